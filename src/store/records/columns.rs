//! Values of the domain as the cluster's columns hold them.

use scylla::value::CqlTimestamp;

use super::corrupt;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::link::{Revision, ShortId};
use crate::domain::rate_limit::RateLimitId;
use crate::store::StoreError;

/// Counts, positions and times all end far below 2^63.
pub fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that was written by [`bigint`]; a column that was never written is 0.
pub fn number(column: Option<i64>) -> u64 {
    column.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// `None` if the column was never written, or is no revision.
pub fn revision_from(column: Option<i64>) -> Option<Revision> {
    column.and_then(|number| u32::try_from(number).ok()).map(Revision)
}

pub fn day(day: Day) -> i32 {
    i32::try_from(day.0).unwrap_or(i32::MAX)
}

pub fn day_from(column: i32) -> Day {
    Day(u32::try_from(column).unwrap_or(0))
}

pub fn month(month: Month) -> i32 {
    i32::try_from(month.0).unwrap_or(i32::MAX)
}

pub fn month_from(column: i32) -> Month {
    Month(u32::try_from(column).unwrap_or(0))
}

pub fn timestamp(time: Timestamp) -> CqlTimestamp {
    CqlTimestamp(bigint(time.0))
}

pub fn timestamp_from(column: CqlTimestamp) -> Timestamp {
    Timestamp(number(Some(column.0)))
}

pub fn short_id(table: &'static str, column: &str) -> Result<ShortId, StoreError> {
    ShortId::parse(column).ok_or_else(|| corrupt(table, &"not a short id"))
}

/// The column's name is `endpoint`.
pub fn rate_limit(limit: RateLimitId) -> i8 {
    // All numbers are below `RateLimitId::COUNT`.
    i8::try_from(limit.number()).unwrap_or(i8::MAX)
}

/// Times in milliseconds since 1970, 8 bytes each.
pub fn times(times_ms: &[u64]) -> Vec<u8> {
    times_ms.iter().flat_map(|at| at.to_be_bytes()).collect()
}

pub fn times_from(table: &'static str, column: &[u8]) -> Result<Vec<u64>, StoreError> {
    let (times, []) = column.as_chunks() else { return Err(corrupt(table, &"times of 8 bytes are cut off")) };
    Ok(times.iter().map(|at| u64::from_be_bytes(*at)).collect())
}

//! How our types stand in columns.

use scylla::value::CqlTimestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::StringDeserializer;

use crate::domain::calendar::{Day, Month, Timestamp};
use crate::store::StoreError;

pub fn corrupt(table: &'static str, reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt { table, reason: reason.to_string() }
}

/// Counts, positions and times all end far below 2^63.
pub fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that was written by [`bigint`]; a column that was never written is 0.
pub fn number(column: Option<i64>) -> u64 {
    column.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
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

pub fn timestamp(time: Timestamp) -> CqlTimestamp {
    CqlTimestamp(bigint(time.0))
}

pub fn timestamp_from(column: CqlTimestamp) -> Timestamp {
    Timestamp(number(Some(column.0)))
}

/// A text that was checked before it was stored.
pub fn checked<T: for<'de> Deserialize<'de>>(table: &'static str, text: String) -> Result<T, StoreError> {
    let text: StringDeserializer<serde::de::value::Error> = text.into_deserializer();
    T::deserialize(text).map_err(|error| corrupt(table, &error))
}

/// A JSON column.
pub fn json<T: DeserializeOwned>(table: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt(table, &error))
}

pub fn to_json<T: serde::Serialize>(table: &'static str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| corrupt(table, &error))
}

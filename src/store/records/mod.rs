//! The format of everything that the service stores: rows of the embedded store, columns of the cluster, lines of an
//! export.
//!
//! A record is a type of its own, named after its version: `LinkV1` is how release 0.1.0 writes a
//! [`Link`](crate::domain::link::Link), and `LinkRecord` the name of the latest version. Serde is derived for records
//! only, never for types of the domain, so that a change of the domain cannot change what is on disk. Conversions name
//! every field, without `..`: a field that a conversion forgets does not compile.
//!
//! To change a record, leave the released type as it is. Add the next version beside it, with a conversion from the
//! version before, and have `decode` read both. JSON names its fields: a new field of a JSON record needs a default and
//! no new version. `tests/it/formats` reads fixtures of all released versions.

#[macro_use]
mod values;

pub mod columns;
pub mod counters;
pub mod counts;
pub mod days;
pub mod deliveries;
pub mod destinations;
pub mod export;
pub mod failure_runs;
pub mod first_tries;
pub mod keys;
pub mod labels;
pub mod link_details;
pub mod link_lists;
pub mod link_names;
pub mod links;
pub mod live_hits;
pub mod once;
pub mod quarters;
pub mod row_keys;
pub mod sheets;
pub mod varint;

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::values::{Base62Id, Time};
use crate::store::StoreError;

/// A row that this program cannot read or must not write.
pub fn corrupt(table: &'static str, reason: &dyn Display) -> StoreError {
    StoreError::Corrupt { table, reason: reason.to_string() }
}

/// A row of the embedded store: the version of its record, then the record in postcard.
///
/// A version is never 255: that byte marks a value that takes several rows (`embedded/overflow.rs`).
fn encode<R: Serialize>(table: &'static str, version: u8, record: &R) -> Result<Vec<u8>, StoreError> {
    postcard::to_extend(record, vec![version]).map_err(|error| corrupt(table, &error))
}

/// The version of a row's record, and the record itself.
fn split_version<'a>(table: &'static str, row: &'a [u8]) -> Result<(u8, &'a [u8]), StoreError> {
    row.split_first().map(|(version, record)| (*version, record)).ok_or_else(|| corrupt(table, &"empty row"))
}

/// Reads the record of a row, whose version is that of `R`.
fn decode<'a, R: Deserialize<'a>>(table: &'static str, record: &'a [u8]) -> Result<R, StoreError> {
    postcard::from_bytes(record).map_err(|error| corrupt(table, &error))
}

/// The error for a row with a version that this program does not read.
fn unknown_version(table: &'static str, found: u8, latest: u8) -> StoreError {
    if found > latest {
        let reason =
            format!("written by a later version: the row has version {found}, this program reads up to {latest}");
        corrupt(table, &reason)
    } else {
        corrupt(table, &format_args!("unknown row version {found}"))
    }
}

/// Writes a JSON column.
fn to_json<R: Serialize>(table: &'static str, record: &R) -> Result<String, StoreError> {
    serde_json::to_string(record).map_err(|error| corrupt(table, &error))
}

/// Reads a JSON column.
fn from_json<R: DeserializeOwned>(table: &'static str, text: &str) -> Result<R, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt(table, &error))
}

/// Why a record from a file is refused.
pub type RecordFault = String;

/// Refuses a record from a file, unless `holds`.
fn require(holds: bool, fault: &str) -> Result<(), RecordFault> {
    if holds { Ok(()) } else { Err(fault.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_later_version_and_a_damaged_row_have_different_errors() {
        let reason = |row: &[u8]| links::decode(row).unwrap_err().to_string();
        assert_eq!(reason(&[]), "unreadable row in links: empty row");
        assert_eq!(reason(&[0, 1, 2]), "unreadable row in links: unknown row version 0");
        let (latest, later) = (links::VERSION, links::VERSION + 1);
        assert_eq!(
            reason(&[later, 1, 2]),
            format!(
                "unreadable row in links: written by a later version: the row has version {later}, this program reads up to \
                 {latest}"
            )
        );
        assert!(reason(&[1, 1, 2]).starts_with("unreadable row in links: "), "cut off");
        let later = [9, 0];
        let tables = [
            keys::decode(&later).map(drop),
            deliveries::decode(&later).map(drop),
            deliveries::decode_day(&later).map(drop),
            counts::decode(&later).map(drop),
            labels::decode_head(&later).map(drop),
            labels::decode_months(&later).map(drop),
            link_names::decode(&later).map(drop),
            failure_runs::decode(&later).map(drop),
        ];
        for table in tables {
            assert!(table.unwrap_err().to_string().contains("written by a later version: the row has version 9"));
        }
    }
}

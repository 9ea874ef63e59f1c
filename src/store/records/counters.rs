//! Rows of the embedded store that are numbers and nothing else: 8 bytes each, big-endian, without a version.
//!
//! Their number is their layout: a row that needs another number goes into another table.

use super::corrupt;
use crate::domain::calendar::Timestamp;
use crate::store::StoreError;

/// The counters of a row; without a row, all are 0.
pub fn decode<const N: usize>(table: &'static str, row: Option<&[u8]>) -> Result<[u64; N], StoreError> {
    let mut counts = [0; N];
    let Some(row) = row else { return Ok(counts) };
    if row.len() != N * 8 {
        return Err(corrupt(table, &format_args!("{} bytes for {N} counters", row.len())));
    }
    for (count, bytes) in counts.iter_mut().zip(row.as_chunks::<8>().0) {
        *count = u64::from_be_bytes(*bytes);
    }
    Ok(counts)
}

pub fn encode<const N: usize>(counts: [u64; N]) -> Vec<u8> {
    counts.iter().flat_map(|count| count.to_be_bytes()).collect()
}

/// A time, in milliseconds since 1970.
pub fn decode_time(table: &'static str, row: &[u8]) -> Result<Timestamp, StoreError> {
    decode(table, Some(row)).map(|[millis]| Timestamp(millis))
}

pub fn encode_time(time: Timestamp) -> [u8; 8] {
    time.0.to_be_bytes()
}

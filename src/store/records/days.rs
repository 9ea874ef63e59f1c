//! The hits of a day of a link or key whose counts are spilled (`embedded/days.rs`).
//!
//! The version, the hits of each device as in [`sheets`], and the quarters to the end. A row of 0.1.0 is three counters
//! and begins with 0, which is no version: no day has 2^56 hits.

use super::counts::devices_v1;
use super::{corrupt, counters, quarters, sheets, split_version, unknown_version};
use crate::domain::hit::DeviceHits;
use crate::domain::quarters::QuarterHits;
use crate::store::StoreError;

pub const TABLE: &str = "days";
const VERSION: u8 = 2;
const COUNTERS: u8 = 0;

pub fn encode(devices: DeviceHits, hits: &QuarterHits) -> Vec<u8> {
    let mut row = vec![VERSION];
    devices.0.iter().for_each(|tally| sheets::push_tally(&mut row, *tally));
    row.extend(quarters::encode(hits));
    row
}

/// Without a row, there are no hits.
pub fn decode(row: Option<&[u8]>) -> Result<(DeviceHits, QuarterHits), StoreError> {
    let Some(row) = row else { return Ok(Default::default()) };
    match split_version(TABLE, row)? {
        (COUNTERS, _) => Ok((devices_v1(counters::decode(TABLE, Some(row))?), QuarterHits::default())),
        (VERSION, mut bytes) => {
            let mut devices = DeviceHits::default();
            for tally in &mut devices.0 {
                *tally = sheets::take_tally(&mut bytes).ok_or_else(|| corrupt(TABLE, &"not a count"))?;
            }
            Ok((devices, quarters::decode(bytes)?))
        }
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tally::Tally;

    #[test]
    fn rows_of_all_versions_are_read() {
        let devices = DeviceHits([(1, 0), (300, 2), (0, 0)].map(|(persons, bots)| Tally { persons, bots }));
        let mut hits = QuarterHits::default();
        hits.add(95, Tally { persons: 301, bots: 2 });
        let row = encode(devices, &hits);
        assert_eq!(row, [2, 2, 0xd9, 4, 2, 0, 95, 0xad, 2, 128 + 95, 2]);
        assert_eq!(decode(Some(&row)).unwrap(), (devices, hits));
        let persons = DeviceHits([7, 0, 9].map(|persons| Tally { persons, bots: 0 }));
        assert_eq!(decode(Some(&counters::encode([7, 0, 9]))).unwrap(), (persons, QuarterHits::default()));
        assert_eq!(decode(None).unwrap(), Default::default());
        for damaged in [&[][..], &[1], &[2, 1], &[0; 23], &[3, 0, 0, 0], &row[..row.len() - 1]] {
            assert!(decode(Some(damaged)).is_err(), "{damaged:?}");
        }
    }
}

//! Failed deliveries in a row of one URL of a link.

use serde::{Deserialize, Serialize};

use super::{Time, split_version, unknown_version};
use crate::domain::calendar::Day;
use crate::domain::failure_run::{DeliveryEnd, FailureRun};
use crate::store::StoreError;

pub const TABLE: &str = "failure runs";
const VERSION: u8 = 1;

/// A run of failures, in rows and in the column `run`.
#[derive(Serialize, Deserialize)]
struct FailureRunV1 {
    failures: u32,
    first_at: Time,
    last_day: u32,
    suspended_at: Option<Time>,
}

impl From<FailureRun> for FailureRunV1 {
    fn from(run: FailureRun) -> Self {
        let FailureRun { failures, first_at, last_day, suspended_at } = run;
        Self { failures, first_at: Time(first_at), last_day: last_day.0, suspended_at: suspended_at.map(Time) }
    }
}

impl From<FailureRunV1> for FailureRun {
    fn from(record: FailureRunV1) -> Self {
        let FailureRunV1 { failures, first_at, last_day, suspended_at } = record;
        Self { failures, first_at: first_at.0, last_day: Day(last_day), suspended_at: suspended_at.map(|time| time.0) }
    }
}

pub fn encode(run: FailureRun) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &FailureRunV1::from(run))
}

pub fn decode(row: &[u8]) -> Result<FailureRun, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => super::decode::<FailureRunV1>(TABLE, record).map(FailureRun::from),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// The column `run`.
pub fn to_json(run: FailureRun) -> Result<String, StoreError> {
    super::to_json(TABLE, &FailureRunV1::from(run))
}

pub fn from_json(text: &str) -> Result<FailureRun, StoreError> {
    super::from_json::<FailureRunV1>(TABLE, text).map(FailureRun::from)
}

/// Counted deliveries that the column `counted` has at least, if there were so many.
const REMEMBERED: usize = 64;
const COUNTED_BYTES: usize = 20;

/// Set in the round of a delivery that succeeded.
const SUCCEEDED: u32 = 1 << 31;

/// The deliveries of a URL that were counted last: of each the hit's id, the round, and whether it succeeded. An
/// attempt is repeated if its outcome was not written, and may end otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedDeliveries(Vec<[u8; COUNTED_BYTES]>);

impl CountedDeliveries {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.as_chunks().0.to_vec())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.concat()
    }

    fn entry(end: &DeliveryEnd) -> [u8; COUNTED_BYTES] {
        let mut entry = [0; COUNTED_BYTES];
        entry[..16].copy_from_slice(end.id.hit.id.0.as_bytes());
        let end_of_round = if end.has_failed { end.round } else { end.round | SUCCEEDED };
        entry[16..].copy_from_slice(&end_of_round.to_be_bytes());
        entry
    }

    pub fn has(&self, end: &DeliveryEnd) -> bool {
        self.0.contains(&Self::entry(end))
    }

    /// Adds the deliveries of one write; forgets old ones.
    pub fn add_all<'a>(&mut self, ends: impl IntoIterator<Item = &'a DeliveryEnd>) {
        let before = self.0.len();
        for end in ends {
            if !self.has(end) {
                self.0.push(Self::entry(end));
            }
        }
        let added = self.0.len() - before;
        self.0.drain(..self.0.len().saturating_sub(REMEMBERED.max(added)));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::ShortId;
    use crate::domain::webhook::DeliveryId;

    const AT: Timestamp = Timestamp(1_795_000_000_000);

    fn end(hit: u128, round: u32) -> DeliveryEnd {
        let hit = HitStamp { id: HitId(Uuid::from_u128(hit)), at: AT };
        let id = DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index: 0 };
        DeliveryEnd { id, round, at: AT, has_failed: true }
    }

    #[test]
    fn a_run_is_read_back_from_rows_and_columns() {
        for suspended_at in [None, Some(Timestamp(AT.0 + 7))] {
            let run = FailureRun { failures: 12, first_at: AT, last_day: AT.day(), suspended_at };
            assert_eq!(decode(&encode(run).unwrap()).unwrap(), run);
            assert_eq!(from_json(&to_json(run).unwrap()).unwrap(), run);
        }
        // As 0.2.0 writes it.
        let run =
            FailureRun { failures: 12, first_at: AT, last_day: Day(20775), suspended_at: Some(Timestamp(AT.0 + 7)) };
        let row: [u8; 18] = [1, 12, 128, 188, 217, 242, 158, 52, 167, 162, 1, 1, 135, 188, 217, 242, 158, 52];
        assert_eq!(encode(run).unwrap(), row);
        let json = r#"{"failures":12,"first_at":"2026-11-18T11:06:40.000Z","last_day":20775,"suspended_at":"2026-11-18T11:06:40.007Z"}"#;
        assert_eq!(to_json(run).unwrap(), json);
        assert!(decode(&[2, 0]).unwrap_err().to_string().contains("later version"));
        assert!(decode(&[]).is_err() && from_json("{}").is_err());
    }

    #[test]
    fn the_last_counted_deliveries_are_remembered() {
        let mut counted = CountedDeliveries::default();
        counted.add_all(&[end(1, 0), end(1, 1), end(1, 0)]);
        assert!(counted.has(&end(1, 0)) && counted.has(&end(1, 1)) && !counted.has(&end(1, 2)));
        let delivered = DeliveryEnd { has_failed: false, ..end(1, 1) };
        assert!(!counted.has(&delivered), "the attempt was repeated");
        let mut both = counted.clone();
        both.add_all(&[delivered]);
        assert!(both.has(&delivered) && both.has(&end(1, 1)));
        assert_eq!(counted.to_bytes().len(), 2 * COUNTED_BYTES);
        assert_eq!(CountedDeliveries::from_bytes(&counted.to_bytes()), counted);
        counted.add_all(&(2..65).map(|hit| end(hit, 0)).collect::<Vec<_>>());
        assert!(!counted.has(&end(1, 0)) && counted.has(&end(1, 1)) && counted.has(&end(64, 0)));
        // All of a large write.
        counted.add_all(&(100..300).map(|hit| end(hit, 0)).collect::<Vec<_>>());
        assert!(counted.has(&end(100, 0)) && counted.has(&end(299, 0)) && !counted.has(&end(64, 0)));
    }
}

//! Hits by day of links and keys whose counts are spilled (see `counts`): one row a day.

use std::ops::RangeInclusive;

use fjall::{Keyspace, Readable, Snapshot};

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Day;
use crate::domain::hit::{DayCount, DayHits, HitSubject};
use crate::domain::quarters::QuarterHits;
use crate::domain::series::{QUARTERS_DAYS, quarters_kept_until};
use crate::store::StoreError;
use crate::store::records::days::{TABLE, decode, encode};
use crate::store::records::{corrupt, row_keys};

/// Days whose quarters are dropped when a day begins: after a pause of some weeks, as many as have any.
const DROPPED_AT_ONCE: usize = QUARTERS_DAYS as usize + 4;

/// Whether the quarters of `day` may go, now that there are hits of `newest`.
pub fn has_old_quarters(day: Day, newest: Day) -> bool {
    quarters_kept_until(day) <= newest.start()
}

/// Hits by link or key and day.
#[derive(Clone)]
pub struct DayTable {
    days: Keyspace,
}

impl DayTable {
    pub fn new(engine: &Engine) -> Self {
        Self { days: engine.keyspaces.days.clone() }
    }

    /// Adds hits to those that are counted.
    pub fn add(&self, transaction: &mut Transaction<'_>, hits: &DayHits) -> Result<(), StoreError> {
        let key = row_keys::day(hits.of, hits.day);
        let row = transaction.row(&self.days, &key)?;
        if row.is_none() {
            self.drop_old_quarters(transaction, hits.of, hits.day)?;
        }
        let (mut devices, mut quarters) = decode(row.as_deref())?;
        devices += hits.devices;
        quarters.add_all(&hits.quarters);
        transaction.insert(&self.days, key, encode(devices, &quarters))
    }

    /// Replaces the hits of a day by those that another store has counted.
    pub fn set(&self, transaction: &mut Transaction<'_>, row: &DayCount) -> Result<(), StoreError> {
        transaction.insert(&self.days, row_keys::day(row.of, row.day), encode(row.devices, &row.quarters))
    }

    /// Drops the quarters of days that have become too old since the last day with hits began.
    fn drop_old_quarters(
        &self,
        transaction: &mut Transaction<'_>,
        of: HitSubject,
        newest: Day,
    ) -> Result<(), StoreError> {
        let mut old = newest;
        while !has_old_quarters(old, newest) {
            if old == Day(0) {
                return Ok(());
            }
            old = old.minus(1);
        }
        // The newest first. Rows that this transaction adds are of no old day.
        let rows = self.days.range(row_keys::day(of, Day(0))..=row_keys::day(of, old)).rev();
        for row in rows.take(DROPPED_AT_ONCE) {
            let key = row.key().map_err(|error| engine_error(&error))?;
            let (devices, quarters) = decode(transaction.row(&self.days, &key)?.as_deref())?;
            // Those before were dropped with it.
            if quarters.is_empty() {
                break;
            }
            transaction.insert(&self.days, key, encode(devices, &QuarterHits::default()))?;
        }
        Ok(())
    }

    /// Days of a link or key, oldest first.
    pub fn between(
        &self,
        from: &Snapshot,
        of: HitSubject,
        days: RangeInclusive<Day>,
    ) -> impl Iterator<Item = Result<DayCount, StoreError>> {
        let keys = row_keys::day(of, *days.start())..=row_keys::day(of, *days.end());
        from.range(&self.days, keys).map(|row| {
            let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
            Self::read(&key, &value)
        })
    }

    /// The hits in a row.
    pub fn read(key: &[u8], value: &[u8]) -> Result<DayCount, StoreError> {
        let (of, day) = row_keys::subject_of(key)?;
        let day = day.try_into().map_err(|_| corrupt(TABLE, &"not a day"))?;
        let (devices, quarters) = decode(Some(value))?;
        Ok(DayCount { of, day: Day(u32::from_be_bytes(day)), devices, quarters })
    }
}

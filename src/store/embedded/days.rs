//! Hits by day of links whose counts are spilled (see `counts`): one row a day, with one counter for each device.

use fjall::{Keyspace, Readable, Snapshot};

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Day;
use crate::domain::hit::DayCount;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::{corrupt, counters, row_keys};

const DAYS: &str = "days";

/// Hits by link and day.
#[derive(Clone)]
pub struct DayTable {
    days: Keyspace,
}

impl DayTable {
    pub fn new(engine: &Engine) -> Self {
        Self { days: engine.keyspaces.days.clone() }
    }

    /// Adds hits to those that are counted.
    pub fn add(&self, transaction: &mut Transaction<'_>, rows: &[DayCount]) -> Result<(), StoreError> {
        for row in rows {
            let key = row_keys::day(row.link, row.day);
            let mut counts = counters::decode::<3>(DAYS, transaction.row(&self.days, &key)?.as_deref())?;
            add_up(&mut counts, row.devices);
            transaction.insert(&self.days, key, counters::encode(counts))?;
        }
        Ok(())
    }

    /// Replaces the hits of a day by those that another store has counted.
    pub fn set(&self, transaction: &mut Transaction<'_>, row: &DayCount) -> Result<(), StoreError> {
        transaction.insert(&self.days, row_keys::day(row.link, row.day), counters::encode(row.devices))
    }

    /// The days of a link, oldest first.
    pub fn of_link(&self, from: &Snapshot, link: ShortId) -> Result<Vec<(Day, [u64; 3])>, StoreError> {
        let rows = from.prefix(&self.days, link.0).map(|row| {
            let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
            Self::read(&key, &value).map(|row| (row.day, row.devices))
        });
        rows.collect()
    }

    /// The hits in a row.
    pub fn read(key: &[u8], value: &[u8]) -> Result<DayCount, StoreError> {
        let (link, day) = key.split_at_checked(ShortId::LENGTH).ok_or_else(|| corrupt(DAYS, &"a short key"))?;
        let day = day.try_into().map_err(|_| corrupt(DAYS, &"not a day"))?;
        let devices = counters::decode::<3>(DAYS, Some(value))?;
        Ok(DayCount { link: row_keys::short_id(link)?, day: Day(u32::from_be_bytes(day)), devices })
    }
}

pub fn add_up(counts: &mut [u64; 3], added: [u64; 3]) {
    for (count, added) in counts.iter_mut().zip(added) {
        *count += added;
    }
}

//! The sheets of days, by day first: those of old days are removed together.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use fjall::{Guard, Keyspace};

use super::database::engine_error;
use super::engine::Engine;
use super::overflow;
use super::transaction::{RowReader, Transaction};
use crate::domain::breakdown::Sheet;
use crate::domain::calendar::Day;
use crate::domain::hit::{DayHits, HitSubject};
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::{row_keys, sheets};

const TABLE: &str = "sheets";
/// Rows that one transaction removes.
const REMOVED_AT_ONCE: usize = 1_000;

/// Sheets by day and link or key.
#[derive(Clone)]
pub struct SheetTable {
    sheets: Keyspace,
    is_kept: bool,
    /// The first key of the last removal, where the next one begins: no sheet is before it. Its last key would not do, because the
    /// transaction may have been rolled back.
    removed_from: Arc<Mutex<Vec<u8>>>,
}

impl SheetTable {
    /// With 0 days of sheets, none is written.
    pub fn new(engine: &Engine, sheet_days: u32) -> Self {
        let (sheets, is_kept) = (engine.keyspaces.sheets.clone(), sheet_days > 0);
        Self { sheets, is_kept, removed_from: Arc::default() }
    }

    /// Adds hits to those that are counted.
    pub fn add(&self, transaction: &mut Transaction<'_>, hits: &DayHits) -> Result<(), StoreError> {
        if !self.is_kept {
            return Ok(());
        }
        let key = row_keys::sheet(hits.day, hits.of);
        self.wrote(&key);
        let value = overflow::get(TABLE, transaction, &self.sheets, &key)?;
        let mut sheet = sheets::decode(value.as_deref().unwrap_or_default())?;
        sheet.add_within_bounds(&hits.sheet);
        let written = sheets::encode(&sheet);
        overflow::insert(transaction, &self.sheets, &key, &written)
    }

    /// Replaces a sheet by that of another store.
    pub fn set<T: AsRef<str>>(
        &self,
        transaction: &mut Transaction<'_>,
        of: HitSubject,
        day: Day,
        sheet: &Sheet<T>,
    ) -> Result<(), StoreError> {
        let key = row_keys::sheet(day, of);
        self.wrote(&key);
        overflow::remove(TABLE, transaction, &self.sheets, &key)?;
        overflow::insert(transaction, &self.sheets, &key, &sheets::encode(sheet))
    }

    /// A row that may be among removed ones is found by the next removal.
    fn wrote(&self, key: &[u8]) {
        let mut removed_from = self.removed_from();
        if *key < removed_from[..] {
            *removed_from = key.to_vec();
        }
    }

    fn removed_from(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.removed_from)
    }

    /// Whether sheets of days are kept.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The bytes of a sheet.
    pub fn bytes(&self, from: &impl RowReader, day: Day, of: HitSubject) -> Result<Option<Vec<u8>>, StoreError> {
        overflow::get(TABLE, from, &self.sheets, &row_keys::sheet(day, of))
    }

    /// Removes some sheets of days before `before`; `false` when none is left.
    pub fn remove(&self, transaction: &mut Transaction<'_>, before: Day) -> Result<bool, StoreError> {
        let mut removed_from = self.removed_from();
        let end = before.0.to_be_bytes();
        if removed_from[..] >= end[..] {
            return Ok(false);
        }
        let old = self.sheets.range::<&[u8], _>((Bound::Included(&removed_from[..]), Bound::Excluded(&end[..])));
        let keys = old.take(REMOVED_AT_ONCE).map(Guard::key).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|error| engine_error(&error))?;
        let Some(first) = keys.first() else { return Ok(false) };
        *removed_from = first.to_vec();
        for key in keys {
            transaction.remove(&self.sheets, key);
        }
        Ok(true)
    }

    /// Removes the sheet of a day.
    pub fn remove_day(&self, transaction: &mut Transaction<'_>, of: HitSubject, day: Day) -> Result<(), StoreError> {
        overflow::remove(TABLE, transaction, &self.sheets, &row_keys::sheet(day, of))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::key::KeyId;

    #[test]
    fn a_removal_that_is_rolled_back_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        let table = SheetTable::new(&engine, 90);
        let of = |n| HitSubject::Key(KeyId(Uuid::from_u128(n)));
        let put = |days: std::ops::Range<u32>| {
            let mut transaction = Transaction::begin(&engine);
            for (n, day) in (0..).zip(days) {
                table.set(&mut transaction, of(n), Day(day), &Sheet::<&str>::default()).unwrap();
            }
            transaction.commit().unwrap();
        };
        let count = || table.sheets.iter().count();
        put(10..30);
        let mut transaction = Transaction::begin(&engine);
        assert!(table.remove(&mut transaction, Day(20)).unwrap());
        drop(transaction);
        assert_eq!(count(), 20);
        for _ in 0..2 {
            let mut transaction = Transaction::begin(&engine);
            while table.remove(&mut transaction, Day(20)).unwrap() {
                transaction.commit().unwrap();
                transaction = Transaction::begin(&engine);
            }
            assert_eq!(count(), 10);
            drop(transaction);
            // Hits that are counted late.
            put(5..7);
        }
    }
}

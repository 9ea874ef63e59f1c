//! The sheets of days, by day first: those of old days are removed together.

use std::ops::Range;

use fjall::Keyspace;

use super::engine::Engine;
use super::overflow;
use super::transaction::{RowReader, Transaction};
use crate::domain::breakdown::Sheet;
use crate::domain::calendar::Day;
use crate::domain::hit::{DayHits, HitSubject};
use crate::store::StoreError;
use crate::store::records::{row_keys, sheets};

const TABLE: &str = "sheets";
/// Rows that one transaction removes.
const REMOVED_AT_ONCE: usize = 5_000;

/// Sheets by day and link or key.
#[derive(Clone)]
pub struct SheetTable {
    sheets: Keyspace,
    is_kept: bool,
}

impl SheetTable {
    /// With 0 days of sheets, none is written.
    pub fn new(engine: &Engine, sheet_days: u32) -> Self {
        Self { sheets: engine.keyspaces.sheets.clone(), is_kept: sheet_days > 0 }
    }

    /// Adds hits to those that are counted.
    pub fn add(&self, transaction: &mut Transaction<'_>, hits: &DayHits) -> Result<(), StoreError> {
        if !self.is_kept {
            return Ok(());
        }
        let key = row_keys::sheet(hits.day, hits.of);
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
        overflow::remove(TABLE, transaction, &self.sheets, &key)?;
        overflow::insert(transaction, &self.sheets, &key, &sheets::encode(sheet))
    }

    /// Calls `read` with each sheet of some days.
    pub fn each(
        &self,
        from: &impl RowReader,
        of: HitSubject,
        days: Range<Day>,
        mut read: impl FnMut(&Sheet<&str>),
    ) -> Result<(), StoreError> {
        for day in (days.start.0..days.end.0).map(Day) {
            if let Some(value) = self.bytes(from, day, of)? {
                read(&sheets::decode(&value)?);
            }
        }
        Ok(())
    }

    /// The bytes of a sheet.
    pub fn bytes(&self, from: &impl RowReader, day: Day, of: HitSubject) -> Result<Option<Vec<u8>>, StoreError> {
        overflow::get(TABLE, from, &self.sheets, &row_keys::sheet(day, of))
    }

    /// Removes some sheets of days before `before`; `false` when none is left.
    pub fn remove(&self, transaction: &mut Transaction<'_>, before: Day) -> Result<bool, StoreError> {
        let rows = transaction.range(&self.sheets, ..before.0.to_be_bytes().to_vec(), REMOVED_AT_ONCE)?;
        let is_any = !rows.is_empty();
        for (key, _) in rows {
            transaction.remove(&self.sheets, key);
        }
        Ok(is_any)
    }
}

//! The only way to write rows, and the bound on their length.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::MutexGuard;

use fjall::{Guard, Keyspace, Readable, Slice, Snapshot};

use super::database::{durable_batch, engine_error};
use super::engine::Engine;
use super::first_tries::FirstTryChanges;
use super::known_links::NewRecord;
use crate::domain::link::ShortId;
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::corrupt;

/// Bytes of a row, key and value together.
///
/// A power cut may leave any 4 KiB page of the engine's journal unwritten, as zeros. If the page has the head of a row,
/// the engine detects that and drops the unfinished transaction. A page that lies wholly within one row is detected
/// only by the transaction's checksum, and then the engine refuses to open at all. So no row is as long as a page.
pub const MAX_ROW: usize = 3_900;

/// Reads single rows: a snapshot, or a transaction, which sees its own changes.
pub trait RowReader {
    fn row(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>, StoreError>;
}

impl RowReader for Snapshot {
    fn row(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>, StoreError> {
        self.get(keyspace, key).map_err(|error| engine_error(&error))
    }
}

/// A transaction: collects changes and commits them as one batch of the engine. There is one at a time, so rows that it
/// has read do not change before the commit.
///
/// The engine's own transactions collect changes in a memory table like the one that a commit fills, which costs each
/// row that insertion twice.
pub struct Transaction<'a> {
    engine: &'a Engine,
    /// Held until the end. It guards no data, so a panic cannot leave anything half done.
    _alone: MutexGuard<'a, ()>,
    /// By keyspace, of which there are few: the new value of each row, ordered by key for reads of ranges. `None` for a
    /// row that is removed.
    changes: Vec<(Keyspace, BTreeMap<Slice, Option<Slice>>)>,
    new_records: Vec<NewRecord>,
    pub first_tries: FirstTryChanges,
}

/// Bytes of a row in the engine's journal besides key and value.
const ROW_HEAD: usize = 21;

impl<'a> Transaction<'a> {
    /// Waits for the end of the transaction before.
    pub fn begin(engine: &'a Engine) -> Self {
        let alone = lock(&engine.writing);
        let (changes, new_records, first_tries) = Default::default();
        Self { engine, _alone: alone, changes, new_records, first_tries }
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When the row is longer than [`MAX_ROW`] or has no key, which the engine does not support; nothing is written
    /// then.
    pub fn insert(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Slice>,
        value: impl Into<Slice>,
    ) -> Result<(), StoreError> {
        let (key, value) = (key.into(), value.into());
        let bytes = key.len() + value.len();
        if bytes > MAX_ROW {
            let reason = format!("a new row would have {bytes} bytes, at most {MAX_ROW} are safe");
            return Err(corrupt("new rows", &reason));
        }
        if key.is_empty() {
            return Err(corrupt("new rows", &"a new row would have no key"));
        }
        self.change(keyspace, key, Some(value));
        Ok(())
    }

    pub fn remove(&mut self, keyspace: &Keyspace, key: impl Into<Slice>) {
        let key = key.into();
        // No row has such a key, and the engine does not support it.
        if !key.is_empty() && key.len() <= MAX_ROW {
            self.change(keyspace, key, None);
        }
    }

    fn change(&mut self, keyspace: &Keyspace, key: Slice, row: Option<Slice>) {
        let at = self.changes.iter().position(|(known, _)| known == keyspace).unwrap_or_else(|| {
            self.changes.push((keyspace.clone(), BTreeMap::new()));
            self.changes.len() - 1
        });
        self.changes[at].1.insert(key, row);
    }

    /// The first rows of a range, ordered by key, with the changes of this transaction.
    pub fn range(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<(Slice, Slice)>, StoreError> {
        let range = (range.start_bound().map(Vec::as_slice), range.end_bound().map(Vec::as_slice));
        let changes = self.changes_of(keyspace);
        let is_changed = |key: &Slice| changes.is_some_and(|rows| rows.contains_key(key));
        let committed = keyspace.range::<&[u8], _>(range).map(Guard::into_inner);
        let unchanged = committed
            .filter(|row| !row.as_ref().is_ok_and(|(key, _)| is_changed(key)))
            .map(|row| row.map_err(|error| engine_error(&error)));
        let own = changes.into_iter().flat_map(|rows| rows.range::<[u8], _>(range));
        let own = own.filter_map(|(key, row)| Some(Ok((key.clone(), row.clone()?))));
        let mut rows = unchanged.take(limit).chain(own.take(limit)).collect::<Result<Vec<_>, StoreError>>()?;
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        rows.truncate(limit);
        Ok(rows)
    }

    fn changes_of(&self, keyspace: &Keyspace) -> Option<&BTreeMap<Slice, Option<Slice>>> {
        self.changes.iter().find(|(known, _)| known == keyspace).map(|(_, rows)| rows)
    }

    /// Adds a link's record to the known links after the commit.
    pub fn makes_known(&mut self, record: Option<NewRecord>) {
        self.new_records.extend(record);
    }

    /// A link changes or is deleted: its record before is not added any more.
    pub fn forgets(&mut self, id: ShortId) {
        self.new_records.retain(|record| record.names.id != id);
    }

    /// The changes are durable once this returns.
    pub fn commit(self) -> Result<(), StoreError> {
        let rows = self.changes.iter().map(|(_, rows)| rows.len()).sum();
        let mut batch = durable_batch(&self.engine.database, rows);
        let mut bytes = 0;
        for (keyspace, rows) in self.changes {
            for (key, row) in rows {
                bytes += ROW_HEAD + key.len() + row.as_ref().map_or(0, |row| row.len());
                match row {
                    Some(row) => batch.insert(&keyspace, key, row),
                    None => batch.remove(&keyspace, key),
                }
            }
        }
        self.engine.snapshots.commit(batch)?;
        self.engine.wrote(bytes as u64);
        self.engine.known_links.place(&self.new_records);
        self.engine.first_tries.apply(self.first_tries);
        Ok(())
    }
}

impl RowReader for Transaction<'_> {
    fn row(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>, StoreError> {
        match self.changes_of(keyspace).and_then(|rows| rows.get(key.as_ref())) {
            Some(row) => Ok(row.clone()),
            None => keyspace.get(key).map_err(|error| engine_error(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected rows of two tables.
    type ExpectedRows = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

    fn assert_range(
        transaction: &Transaction<'_>,
        table: &Keyspace,
        rows: &BTreeMap<Vec<u8>, Vec<u8>>,
        range: impl RangeBounds<Vec<u8>> + Clone,
        limit: usize,
    ) {
        let expected = rows.range(range.clone()).take(limit).map(|(key, row)| (key.clone(), row.clone()));
        let read = transaction.range(table, range, limit).unwrap();
        let read = read.into_iter().map(|(key, row)| (key.to_vec(), row.to_vec()));
        assert_eq!(read.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    fn assert_reads(transaction: &Transaction<'_>, tables: [&Keyspace; 2], model: &ExpectedRows) {
        for (table, rows) in tables.into_iter().zip(model) {
            for key in 0..=u8::MAX {
                let row = transaction.row(table, [b'k', key]).unwrap();
                assert_eq!(row.as_deref(), rows.get([b'k', key].as_slice()).map(Vec::as_slice), "{key}");
            }
            for (first, last, limit) in [(0, 255, usize::MAX), (10, 200, 7), (30, 29, 5), (250, 255, 0)] {
                let (first, last) = (vec![b'k', first], vec![b'k', last.max(first)]);
                assert_range(transaction, table, rows, first.clone()..last.clone(), limit);
                assert_range(transaction, table, rows, first..=last, limit);
            }
        }
    }

    #[test]
    fn a_transaction_reads_what_it_has_changed_and_only_a_commit_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        let tables = [&engine.keyspaces.days, &engine.keyspaces.labels];
        let mut model = ExpectedRows::default();
        for round in 0..8_u8 {
            let mut transaction = Transaction::begin(&engine);
            let mut changed = model.clone();
            for step in 0..200_u8 {
                // Many of them twice in a round, and some in both tables.
                let number = step.wrapping_mul(37).wrapping_add(round.wrapping_mul(11)) % 128;
                let at = usize::from(step % 3 == 0);
                if (step + round) % 4 == 0 {
                    transaction.remove(tables[at], [b'k', number]);
                    changed[at].remove([b'k', number].as_slice());
                } else {
                    transaction.insert(tables[at], [b'k', number], [round, step]).unwrap();
                    changed[at].insert(vec![b'k', number], vec![round, step]);
                }
            }
            assert_reads(&transaction, tables, &changed);
            if round % 3 == 2 {
                drop(transaction);
            } else {
                transaction.commit().unwrap();
                model = changed;
            }
            if round % 4 == 1 {
                // From memory to a table on disk.
                engine.keyspaces.days.rotate_memtable_and_wait().unwrap();
            }
            assert_reads(&Transaction::begin(&engine), tables, &model);
        }
    }
}

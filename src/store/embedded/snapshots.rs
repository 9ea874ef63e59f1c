//! Snapshots that see all rows of a commit, or none of them.
//!
//! The engine numbers a commit before it writes the journal, and then applies the rows one by one. A flush or a compaction that ends
//! meanwhile has a higher number, and makes everything up to its own number visible. The engine's own snapshot of that moment would see
//! the rows that are applied, and later the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use fjall::{Database, OwnedWriteBatch, Snapshot};

use super::database::engine_error;
use crate::locks::lock;
use crate::store::StoreError;

/// No commit is under way: every snapshot is whole.
const NO_COMMIT: u64 = u64::MAX;

/// Takes snapshots, and commits.
pub struct Snapshots {
    database: Database,
    /// Held during a commit. It guards no data, so a panic can't leave anything half done.
    committing: Mutex<()>,
    /// The highest number of a snapshot that sees no row of the commit under way.
    whole_upto: AtomicU64,
}

impl Snapshots {
    pub fn of(database: &Database) -> Self {
        Self { database: database.clone(), committing: Mutex::default(), whole_upto: AtomicU64::new(NO_COMMIT) }
    }

    /// The rows as they are now.
    pub fn take(&self) -> Snapshot {
        let snapshot = self.database.snapshot();
        if snapshot.seqno() <= self.whole_upto.load(Ordering::Acquire) {
            return snapshot;
        }
        // A flush or a compaction has ended during the commit.
        let _no_commit = lock(&self.committing);
        self.database.snapshot()
    }

    /// Commits the rows of a transaction. They are durable once this returns.
    pub fn commit(&self, batch: OwnedWriteBatch) -> Result<(), StoreError> {
        let _commit = self.begin_commit();
        batch.commit().map_err(|error| engine_error(&error))
    }

    fn begin_commit(&self) -> CommitUnderWay<'_> {
        let alone = lock(&self.committing);
        // The engine gives the commit this number, or a later one, and a snapshot sees lower numbers only.
        self.whole_upto.store(self.database.snapshot().seqno(), Ordering::Release);
        CommitUnderWay { whole_upto: &self.whole_upto, _alone: alone }
    }
}

/// Ends with the commit, also if the engine panics.
struct CommitUnderWay<'a> {
    whole_upto: &'a AtomicU64,
    _alone: MutexGuard<'a, ()>,
}

impl Drop for CommitUnderWay<'_> {
    fn drop(&mut self) {
        self.whole_upto.store(NO_COMMIT, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use fjall::{KeyspaceCreateOptions, Readable};

    use super::*;

    #[test]
    fn a_snapshot_that_a_flush_lets_see_a_part_of_a_commit_waits_for_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::builder(directory.path()).open().unwrap();
        let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default).unwrap();
        let (links, others) = (keyspace("links"), keyspace("others"));
        others.insert("key", "value").unwrap();
        let snapshots = Snapshots::of(&database);

        let commit = snapshots.begin_commit();
        assert!(!snapshots.take().contains_key(&links, "key").unwrap(), "without a flush, nobody waits");
        others.rotate_memtable_and_wait().unwrap();
        let (sender, taken) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(snapshots.take().contains_key(&others, "key").unwrap()).unwrap());
            assert!(taken.recv_timeout(Duration::from_millis(100)).is_err(), "it sees a part of the commit");
            drop(commit);
            assert!(taken.recv_timeout(Duration::from_secs(10)).unwrap());
        });
    }

    #[test]
    fn a_snapshot_after_a_commit_sees_it_and_one_before_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::builder(directory.path()).open().unwrap();
        let links = database.keyspace("links", KeyspaceCreateOptions::default).unwrap();
        let snapshots = Snapshots::of(&database);
        let before = snapshots.take();
        let mut batch = database.batch();
        batch.insert(&links, "key", "value");
        snapshots.commit(batch).unwrap();
        assert!(snapshots.take().contains_key(&links, "key").unwrap());
        assert!(!before.contains_key(&links, "key").unwrap());
    }
}

//! The storage engine (fjall, a log-structured merge tree) and its keyspaces.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fjall::{Database, Keyspace, PersistMode};
use tokio::sync::oneshot;

use super::creation;
use super::known_links::{self, KnownLinks};
use super::tables::{self, Tables};
use super::transaction::durable_batch;
use crate::store::StoreError;
use crate::store::records::row_keys;
use crate::threads::in_background;

const MIB: u64 = 1024 * 1024;

/// Counted up when an older program would misread what this one writes.
const LAYOUT: u8 = 1;

/// Opening replays the journals: all of the one that is written to, and the older ones that are not flushed from memory yet.
/// So memory is flushed whenever this much was written since the last time, and an older journal at once; what is replayed
/// is about one of this length after a clean end, and two at the most after a crash. The engine begins a new journal no
/// earlier than this.
const JOURNAL: u64 = 64 * MIB;
/// Less than this is not worth flushing at a clean end: it is replayed in no time.
const FEW_BYTES: u64 = 8 * MIB;
/// Its first thread only flushes, and as long as a merging is asked for that no other thread has taken up, it asks and looks again
/// without a pause. With one other thread that was so in every merging: four parts of ten of what the two took, in a profile of wide
/// redirects (2026-11-22). With three it is so while all of them merge.
const WORKERS: usize = 4;

/// The database, and what is known of it.
pub struct Engine {
    pub tables: Tables,
    pub database: Database,
    /// Which links there are.
    pub known_links: Arc<KnownLinks>,
    /// Held by a transaction.
    pub writing: Mutex<()>,
    /// Bytes that went to the journal since memory was flushed.
    unflushed: AtomicU64,
    /// Dropped last: tells whoever waits for it that all is closed, and the directory free.
    gone: Mutex<Option<oneshot::Sender<()>>>,
}

/// Resolves, with an error, once the engine is closed.
pub type Gone = oneshot::Receiver<()>;

/// A database that is opened. Nothing was written to it, unless it was made just now.
pub struct Opened {
    database: Database,
    meta: Keyspace,
    directory: PathBuf,
}

impl Opened {
    /// Opens or creates the database in `directory`.
    pub fn in_directory(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        // Closed again when it is dropped.
        creation::make_if_absent(directory, || Self::open(directory, cache_bytes)?.into_engine().map(drop))?;
        Self::open(directory, cache_bytes)
    }

    fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let database =
            Database::builder(directory).cache_size(cache_bytes).max_journaling_size(JOURNAL).worker_threads(WORKERS);
        // Its own threads, which flush and merge, stand back as the one does that starts them.
        let opened = in_background("store-opening", move || database.open())
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
            .join();
        let panicked = |_| StoreError::Unavailable("the engine panicked while it was opened".into());
        let database = opened.map_err(panicked)?.map_err(|error| match error {
            fjall::Error::Locked => StoreError::Unavailable("another process has the store open".into()),
            error => engine_error(&error),
        })?;
        // Its hits would not be seen. No release has written one.
        if database.keyspace_exists("days") && !database.keyspace_exists("counts") {
            return Err(StoreError::Unavailable(
                "a version before 0.1.0 has made it: export it with that version".into(),
            ));
        }
        let meta = tables::open_meta(&database)?;
        // Before anything is made in it.
        check_layout(&database, &meta)?;
        Ok(Self { database, meta, directory: directory.to_owned() })
    }

    /// The value that is kept under a name.
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.meta.get(row_keys::name(name)).map_err(|error| engine_error(&error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// The engine, for use.
    pub fn into_engine(self) -> Result<(Engine, Gone), StoreError> {
        let Self { database, meta: _, directory } = self;
        let directory = directory.as_path();
        let (sender, gone) = oneshot::channel();
        // What was read from it is in memory again, and it goes on behind that.
        let unflushed = AtomicU64::new(newest_journal(directory).unwrap_or_default());
        let tables = Tables::open(&database)?;
        let known_links = Arc::new(known_links::open(&database, &tables.meta, &tables.links, directory)?);
        let engine = Engine {
            tables,
            known_links,
            database,
            writing: Mutex::default(),
            unflushed,
            gone: Mutex::new(Some(sender)),
        };
        // The engine syncs what is in its directory; that the directory is there is for us to make sure.
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok((engine, gone))
    }
}

impl Engine {
    /// Opens or creates the database in `directory`, for use.
    #[cfg(test)]
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<(Self, Gone), StoreError> {
        Opened::in_directory(directory, cache_bytes)?.into_engine()
    }

    /// Whether commits still succeed: after an I/O error, or a panic of its own threads, the engine refuses all further ones
    /// until it is opened anew.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::Buffer).map_err(|error| engine_error(&error))
    }

    /// Takes note of what was written, and has memory flushed in the background where that was enough.
    pub fn wrote(&self, bytes: u64) {
        if self.unflushed.fetch_add(bytes, Ordering::Relaxed) + bytes < JOURNAL {
            return;
        }
        self.unflushed.store(0, Ordering::Relaxed);
        for keyspace in self.tables.all() {
            if let Err(error) = keyspace.rotate_memtable() {
                // Writes fail then too, and say more.
                tracing::debug!(%error, "store: can't flush memory tables");
            }
        }
    }

    /// Writes what is in memory to where it needs no replay.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.unflushed.load(Ordering::Relaxed) < FEW_BYTES {
            return Ok(());
        }
        // An engine that failed would never be done.
        self.probe()?;
        self.tables
            .all()
            .into_iter()
            .try_for_each(Keyspace::rotate_memtable_and_wait)
            .map_err(|error| engine_error(&error))
    }

    /// Leaves an engine that has failed as it is, to the end of the process. Closing it would write what it still has of the
    /// commit that failed: where there is room again, the next start would find what was refused.
    pub fn leave(self: Arc<Self>) {
        drop(self.gone.lock().unwrap_or_else(PoisonError::into_inner).take());
        std::mem::forget(self);
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| engine_error(&error))
    }
}

/// Refuses what a later program has written, and marks what has no mark.
fn check_layout(database: &Database, meta: &Keyspace) -> Result<(), StoreError> {
    let written = meta.get(row_keys::LAYOUT).map_err(|error| engine_error(&error))?;
    match written.as_deref() {
        Some([..=LAYOUT]) => Ok(()),
        Some(other) => {
            let layout = row_keys::hex(other);
            let reason = format!("a later version has written it, in layout {layout}; this one knows {LAYOUT:02x}");
            Err(StoreError::Unavailable(reason))
        }
        None => {
            let mut batch = durable_batch(database, 1);
            batch.insert(meta, row_keys::LAYOUT, [LAYOUT]);
            batch.commit().map_err(|error| engine_error(&error))
        }
    }
}

/// The length of the journal that the engine writes to.
fn newest_journal(directory: &Path) -> Option<u64> {
    let journals = std::fs::read_dir(directory).ok()?.flatten().filter_map(|file| {
        let path = file.path();
        let number: u64 =
            path.extension().filter(|kind| *kind == "jnl").and(path.file_stem())?.to_str()?.parse().ok()?;
        Some((number, file.metadata().ok()?.len()))
    });
    journals.max().map(|(_, length)| length)
}

pub fn engine_error(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(match error {
        fjall::Error::Locked => "another process has it open".into(),
        fjall::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::transaction::Transaction;
    use super::*;

    #[test]
    fn memory_is_flushed_whenever_a_journal_is_full_whichever_tables_it_was_written_for() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        let put = |keyspace: &Keyspace| {
            let mut transaction = Transaction::begin(&engine);
            transaction.insert(keyspace, "key", "value").unwrap();
            transaction.commit().unwrap();
        };
        put(&engine.tables.links);
        engine.wrote(JOURNAL - 1_000);
        put(&engine.tables.usage);
        assert_eq!((engine.tables.links.table_count(), engine.tables.usage.table_count()), (0, 0));
        engine.wrote(1_000);
        let begun = Instant::now();
        while [&engine.tables.links, &engine.tables.usage].iter().any(|keyspace| keyspace.table_count() == 0) {
            assert!(begun.elapsed() < Duration::from_secs(10), "what is in memory was not flushed");
            // Who flushes stands back behind this thread.
            std::thread::sleep(Duration::from_millis(1));
        }
        // And again only after as much more.
        put(&engine.tables.links);
        assert_eq!(engine.tables.links.table_count(), 1);
    }

    #[test]
    fn a_store_of_a_later_layout_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        for written in [LAYOUT, LAYOUT + 1] {
            let engine = Engine::open(&path, 1 << 20).unwrap().0;
            engine.tables.meta.insert(row_keys::LAYOUT, [written]).unwrap();
        }
        let refused = Engine::open(&path, 1 << 20).err().unwrap().to_string();
        assert!(refused.contains("a later version has written it, in layout 02; this one knows 01"), "{refused}");
    }
}

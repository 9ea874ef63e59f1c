//! The storage engine (fjall, a log-structured merge tree) and its keyspaces.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fjall::{Database, Keyspace, PersistMode};
use tokio::sync::oneshot;

use super::creation;
use super::database::{durable_batch, engine_error};
use super::first_tries::FirstTries;
use super::keyspaces::{self, Keyspaces};
use super::known_links::KnownLinks;
use super::snapshots::Snapshots;
use crate::domain::breakdown::DEFAULT_SHEET_DAYS;
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::row_keys;
use crate::threads::in_background;

const MIB: u64 = 1024 * 1024;

/// Incremented when an older program would misread what this one writes. Since 2, links change and have names: 0.1.0 knows
/// neither, and refuses the store. What 0.1.0 has written is read as it is.
const LAYOUT: u8 = 2;

/// Opening replays the journals: the current one, and older ones that are not flushed from memory yet. So memory is
/// flushed whenever this much was written since the last flush, and an older journal at once. About one journal of this
/// length is replayed after a clean end, and at most two after a crash. The engine begins a new journal no earlier than
/// this.
const JOURNAL: u64 = 64 * MIB;
/// Less than this is not flushed at a clean end: its replay takes negligible time.
const FEW_BYTES: u64 = 8 * MIB;
/// Journals at a flush: that which is written, and one whose rows are being flushed. With more, one may be held by a keyspace that has
/// no rows any more: the engine removes a journal once the tables of each keyspace in it have a later row, and a merge may leave no table.
const USUAL_JOURNALS: usize = 2;
/// No row has this key. Its removal is a row of a table.
const NO_ROW: [u8; 16] = [0xff; 16];
/// The engine's first thread only flushes. While a compaction is requested that no other thread has taken, it
/// busy-waits. With one other thread it did so during every compaction: 40 % of the CPU time of the two, in a profile
/// of wide redirects (2026-11-22). With three others it does so only while all of them are compacting.
const WORKERS: usize = 4;

/// The open database.
pub struct Engine {
    pub keyspaces: Keyspaces,
    pub database: Database,
    /// The ids of all links, and what redirects need of them.
    pub known_links: Arc<KnownLinks>,
    /// New deliveries that are in memory.
    pub first_tries: Arc<FirstTries>,
    pub snapshots: Arc<Snapshots>,
    /// Held by a transaction.
    pub writing: Mutex<()>,
    /// Bytes written to the journal since memory was flushed.
    unflushed: AtomicU64,
    pub sheet_days: u32,
    /// Dropped last: everything is closed then, and another process may open the directory.
    gone: Mutex<Option<oneshot::Sender<()>>>,
}

/// Resolves, with an error, once the engine is closed.
pub type Gone = oneshot::Receiver<()>;

/// An open database. Nothing was written to it, unless it was created by this call.
pub struct Opened {
    database: Database,
    meta: Keyspace,
    directory: PathBuf,
    sheet_days: u32,
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
        // The engine's threads, which flush and compact, inherit the low priority of the thread that starts them.
        let opened = in_background("store-opening", move || database.open())
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
            .join();
        let panicked = |_| StoreError::Unavailable("the engine panicked while it was opened".into());
        let database = opened.map_err(panicked)?.map_err(|error| match error {
            fjall::Error::Locked => StoreError::Unavailable("another process has the store open".into()),
            error => engine_error(&error),
        })?;
        // Its hits would not be found. No release has written such a store.
        if database.keyspace_exists("days") && !database.keyspace_exists("counts") {
            return Err(StoreError::Unavailable(
                "a version before 0.1.0 created it: export it with that version".into(),
            ));
        }
        let meta = keyspaces::open_meta(&database)?;
        check_layout(&meta)?;
        Ok(Self { database, meta, directory: directory.to_owned(), sheet_days: DEFAULT_SHEET_DAYS })
    }

    /// Keeps the sheets of so many days; with 0, none is written.
    #[must_use]
    pub fn keeping_sheets(self, sheet_days: u32) -> Self {
        Self { sheet_days, ..self }
    }

    /// The value that is kept under a name.
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.meta.get(row_keys::name(name)).map_err(|error| engine_error(&error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// The engine, for use.
    pub fn into_engine(self) -> Result<(Engine, Gone), StoreError> {
        let Self { database, meta, directory, sheet_days } = self;
        let directory = directory.as_path();
        let (sender, gone) = oneshot::channel();
        // The content of the newest journal is in memory again, and new rows are appended to it.
        let unflushed = AtomicU64::new(newest_journal(directory).unwrap_or_default());
        // Before any keyspace is created that an older program does not know.
        write_layout(&database, &meta)?;
        let keyspaces = Keyspaces::open(&database)?;
        let known_links = Arc::new(KnownLinks::open(&database, &keyspaces.meta, &keyspaces.links, directory)?);
        let engine = Engine {
            keyspaces,
            known_links,
            first_tries: Arc::default(),
            snapshots: Arc::new(Snapshots::of(&database)),
            writing: Mutex::default(),
            database,
            unflushed,
            sheet_days,
            gone: Mutex::new(Some(sender)),
        };
        // The engine syncs the content of its directory; the entry of the directory in its parent is synced here.
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

    /// Whether commits still succeed: after an I/O error, or a panic in one of its threads, the engine refuses all
    /// further commits until it is opened again.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::Buffer).map_err(|error| engine_error(&error))
    }

    /// Counts bytes that were written, and starts a flush of memory in the background once they reach [`JOURNAL`].
    pub fn wrote(&self, bytes: u64) {
        if self.unflushed.fetch_add(bytes, Ordering::Relaxed) + bytes >= JOURNAL {
            self.flush_in_background();
        }
    }

    /// Bytes written since memory was flushed.
    pub fn unflushed(&self) -> u64 {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// Starts a flush of memory by the engine's own threads.
    pub fn flush_in_background(&self) {
        self.unflushed.store(0, Ordering::Relaxed);
        let is_held = self.database.journal_count() > USUAL_JOURNALS;
        for keyspace in self.keyspaces.all() {
            let row = if is_held { keyspace.remove(NO_ROW) } else { Ok(()) };
            if let Err(error) = row.and_then(|()| keyspace.rotate_memtable()) {
                // Writes fail then too, and log the cause.
                tracing::debug!(%error, "store: can't flush memory tables");
            }
        }
    }

    /// Drops the memory tables that were flushed. The engine keeps them until another one is to be flushed, of any keyspace:
    /// this is one of a single row, written again as it is.
    pub fn drop_flushed(&self) -> Result<(), StoreError> {
        let meta = &self.keyspaces.meta;
        let rewritten = meta.get(row_keys::LAYOUT).and_then(|row| match row {
            Some(row) => meta.insert(row_keys::LAYOUT, row).and_then(|()| meta.rotate_memtable()),
            None => Ok(false),
        });
        rewritten.map(drop).map_err(|error| engine_error(&error))
    }

    /// Flushes memory, so that the next start has nothing to replay.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.unflushed() < FEW_BYTES {
            return Ok(());
        }
        // A failed engine would never finish.
        self.probe()?;
        self.keyspaces
            .all()
            .into_iter()
            .try_for_each(Keyspace::rotate_memtable_and_wait)
            .map_err(|error| engine_error(&error))
    }

    /// Leaks a failed engine until the process ends. Closing it would write the rest of the commit that failed: if the
    /// disk has space again, the next start would find rows that were refused.
    pub fn leave(self: Arc<Self>) {
        drop(lock(&self.gone).take());
        std::mem::forget(self);
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| engine_error(&error))
    }
}

/// Refuses a store that a later program has written.
fn check_layout(meta: &Keyspace) -> Result<(), StoreError> {
    let written = meta.get(row_keys::LAYOUT).map_err(|error| engine_error(&error))?;
    match written.as_deref() {
        None | Some([..=LAYOUT]) => Ok(()),
        Some(other) => {
            let layout = row_keys::hex(other);
            let reason = format!("a later version has written it, in layout {layout}; this one knows {LAYOUT:02x}");
            Err(StoreError::Unavailable(reason))
        }
    }
}

/// Writes the layout version of a new store, or of one that an older program has written.
fn write_layout(database: &Database, meta: &Keyspace) -> Result<(), StoreError> {
    let written = meta.get(row_keys::LAYOUT).map_err(|error| engine_error(&error))?;
    if written.as_deref() == Some(&[LAYOUT]) {
        return Ok(());
    }
    let mut batch = durable_batch(database, 1);
    batch.insert(meta, row_keys::LAYOUT, [LAYOUT]);
    batch.commit().map_err(|error| engine_error(&error))
}

/// The length of the journal that the engine appends to.
fn newest_journal(directory: &Path) -> Option<u64> {
    let journals = std::fs::read_dir(directory).ok()?.flatten().filter_map(|file| {
        let path = file.path();
        let number: u64 =
            path.extension().filter(|kind| *kind == "jnl").and(path.file_stem())?.to_str()?.parse().ok()?;
        Some((number, file.metadata().ok()?.len()))
    });
    journals.max().map(|(_, length)| length)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::transaction::{MAX_ROW, Transaction};
    use super::*;

    #[test]
    fn memory_is_flushed_whenever_a_journal_is_full_whichever_keyspaces_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        let put = |keyspace: &Keyspace| {
            let mut transaction = Transaction::begin(&engine);
            transaction.insert(keyspace, "key", "value").unwrap();
            transaction.commit().unwrap();
        };
        put(&engine.keyspaces.links);
        engine.wrote(JOURNAL - 1_000);
        put(&engine.keyspaces.usage);
        assert_eq!((engine.keyspaces.links.table_count(), engine.keyspaces.usage.table_count()), (0, 0));
        engine.wrote(1_000);
        let begun = Instant::now();
        while [&engine.keyspaces.links, &engine.keyspaces.usage].iter().any(|keyspace| keyspace.table_count() == 0) {
            assert!(begun.elapsed() < Duration::from_secs(10), "memory was not flushed");
            // The flushing threads have a lower priority than this one.
            std::thread::sleep(Duration::from_millis(1));
        }
        // The next flush comes only after as much more.
        put(&engine.keyspaces.links);
        assert_eq!(engine.keyspaces.links.table_count(), 1);
    }

    #[test]
    fn a_keyspace_that_has_no_rows_any_more_holds_no_journals() {
        const JOURNAL_OF_ENGINE: usize = 64_000_000;
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
        let Keyspaces { idempotency, usage, sheets, .. } = &engine.keyspaces;
        let fill_journal = || {
            for part in 0..8_u8 {
                let mut batch = engine.database.batch();
                let rows = 0..JOURNAL_OF_ENGINE / 8 / MAX_ROW + 1;
                rows.for_each(|row| batch.insert(sheets, format!("{part}-{row}"), vec![part; MAX_ROW]));
                batch.commit().unwrap();
            }
            sheets.rotate_memtable_and_wait().unwrap();
        };
        idempotency.insert("key", "value").unwrap();
        usage.insert("key", "value").unwrap();
        fill_journal();
        // All rows are merged away before the journal's last keyspace is flushed.
        idempotency.remove("key").unwrap();
        idempotency.rotate_memtable_and_wait().unwrap();
        idempotency.major_compact().unwrap();
        assert_eq!(idempotency.table_count(), 0);
        usage.rotate_memtable_and_wait().unwrap();
        fill_journal();
        assert!(engine.database.journal_count() > USUAL_JOURNALS);

        engine.flush_in_background();
        let begun = Instant::now();
        while engine.database.journal_count() > USUAL_JOURNALS {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} journals", engine.database.journal_count());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(idempotency.iter().count(), 0);
    }

    #[test]
    fn a_store_of_an_earlier_layout_has_this_one_from_its_first_use_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        for written in 1..=LAYOUT {
            let engine = Engine::open(&path, 1 << 20).unwrap().0;
            engine.keyspaces.meta.insert(row_keys::LAYOUT, [written]).unwrap();
            drop(engine);
            let engine = Engine::open(&path, 1 << 20).unwrap().0;
            assert_eq!(engine.keyspaces.meta.get(row_keys::LAYOUT).unwrap().as_deref(), Some(&[LAYOUT][..]));
        }
    }

    #[test]
    fn a_store_of_a_later_layout_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        for written in [LAYOUT, LAYOUT + 1] {
            let engine = Engine::open(&path, 1 << 20).unwrap().0;
            engine.keyspaces.meta.insert(row_keys::LAYOUT, [written]).unwrap();
        }
        let refused = Engine::open(&path, 1 << 20).err().unwrap().to_string();
        assert!(refused.contains("a later version has written it, in layout 03; this one knows 02"), "{refused}");
    }
}

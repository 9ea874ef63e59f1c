//! The storage engine (fjall, a log-structured merge tree) and its keyspaces.

use std::fs::File;
use std::path::Path;

use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{KeyspaceCreateOptions, PersistMode, SingleWriterTxDatabase, SingleWriterTxKeyspace};
use tokio::sync::oneshot;

use crate::store::StoreError;

const MIB: u64 = 1024 * 1024;

/// Journals are kept until all that is in them has been flushed from memory. Opening replays what is left, after a crash
/// and after a clean end alike: about this and the one being written, which takes seconds at the most.
const JOURNALS: u64 = 128 * MIB;
/// Memory for what is not flushed yet, a keyspace. Smaller tables are flushed and merged more often, which costs the
/// writes; larger ones leave more to replay.
const BUSY_MEMTABLE: u64 = 64 * MIB;
/// For keyspaces of few rows, which are written over and over.
const SMALL_MEMTABLE: u64 = 16 * MIB;

/// The database and one handle a keyspace. Keyspaces are few: each has a memory table of its own.
pub struct Engine {
    /// Singletons by name; last uses of keys; journal cursors; how many deliveries are pending.
    pub meta: SingleWriterTxKeyspace,
    /// Link by short id.
    pub links: SingleWriterTxKeyspace,
    /// Key by id; key id by secret hash; what a key sees: small tables told apart by their first byte.
    pub keys: SingleWriterTxKeyspace,
    /// Counts by key, month and metric.
    pub usage: SingleWriterTxKeyspace,
    /// Hits by link and day, one counter a device.
    pub days: SingleWriterTxKeyspace,
    /// Hits by link, dimension, month and label; the bare list key holds how many labels it has.
    pub labels: SingleWriterTxKeyspace,
    /// Delivery by link and time, newest first.
    pub deliveries: SingleWriterTxKeyspace,
    /// Ids of failed deliveries, by link and time.
    pub failed: SingleWriterTxKeyspace,
    /// Pending deliveries by due time.
    pub due: SingleWriterTxKeyspace,
    /// Deliveries counted by link, day and URL; and which links have any, by day.
    pub delivery_days: SingleWriterTxKeyspace,
    pub database: SingleWriterTxDatabase,
    /// Dropped last: tells whoever waits for it that all is closed, and the directory free.
    _gone: oneshot::Sender<()>,
}

/// Resolves, with an error, once the engine is closed.
pub type Gone = oneshot::Receiver<()>;

impl Engine {
    /// Opens or creates the database in `directory`.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<(Self, Gone), StoreError> {
        let database = SingleWriterTxDatabase::builder(directory)
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNALS)
            .worker_threads(2)
            .open()
            .map_err(|error| match error {
                fjall::Error::Locked => StoreError::Unavailable("another process has the store open".into()),
                error => engine_error(&error),
            })?;
        let keyspace = |name: &str, options: fn() -> KeyspaceCreateOptions| {
            database.keyspace(name, options).map_err(|error| engine_error(&error))
        };
        let (sender, gone) = oneshot::channel();
        let engine = Self {
            meta: keyspace("meta", small)?,
            links: keyspace("links", looked_up)?,
            keys: keyspace("keys", small)?,
            usage: keyspace("usage", small)?,
            days: keyspace("days", looked_up)?,
            labels: keyspace("labels", looked_up)?,
            deliveries: keyspace("deliveries", looked_up)?,
            failed: keyspace("failed", small)?,
            due: keyspace("due", small)?,
            delivery_days: keyspace("delivery_days", small)?,
            database,
            _gone: sender,
        };
        // The engine syncs what is in its directory; that the directory is there is for us to make sure.
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok((engine, gone))
    }

    /// Whether commits still succeed: after an I/O error, or a panic of its own threads, the engine refuses all further ones
    /// until it is opened anew.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::Buffer).map_err(|error| engine_error(&error))
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| engine_error(&error))
    }
}

pub fn engine_error(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(match error {
        fjall::Error::Locked => "another process has it open".into(),
        fjall::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    })
}

/// The engine keeps the options with which a keyspace was made: a change here is for new stores.
fn small() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(SMALL_MEMTABLE)
}

/// Asked by whole key, where an absent key must cost no disk read: filters on every level, the upper ones pinned.
fn looked_up() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(BUSY_MEMTABLE)
        .filter_policy(FilterPolicy::new([
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
        .filter_block_pinning_policy(PinningPolicy::new([true, false]))
        .expect_point_read_hits(false)
}

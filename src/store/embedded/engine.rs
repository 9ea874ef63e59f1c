//! The storage engine (fjall, a log-structured merge tree) and its keyspaces.

use std::path::Path;

use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{KeyspaceCreateOptions, PersistMode, SingleWriterTxDatabase, SingleWriterTxKeyspace};

use crate::store::StoreError;

const MIB: u64 = 1024 * 1024;

/// The database and one handle a keyspace. Keyspaces are few: each has a memory table of its own.
pub struct Engine {
    /// Singletons by name; last uses of keys; journal cursors.
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
    /// Pending deliveries by due time.
    pub due: SingleWriterTxKeyspace,
    /// Deliveries counted by link, day and URL; and which links have any, by day.
    pub delivery_days: SingleWriterTxKeyspace,
    pub database: SingleWriterTxDatabase,
}

impl Engine {
    /// Opens or creates the database in `directory`.
    ///
    /// Needs about `cache_bytes` of memory and 64 MiB a busy keyspace; replays at most 256 MiB after a crash.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        let database = SingleWriterTxDatabase::builder(directory)
            .cache_size(cache_bytes)
            .max_journaling_size(256 * MIB)
            .worker_threads(2)
            .open()
            .map_err(|error| engine_error(&error))?;
        let keyspace = |name: &str, options: fn() -> KeyspaceCreateOptions| {
            database.keyspace(name, options).map_err(|error| engine_error(&error))
        };
        Ok(Self {
            meta: keyspace("meta", small)?,
            links: keyspace("links", looked_up)?,
            keys: keyspace("keys", small)?,
            usage: keyspace("usage", small)?,
            days: keyspace("days", looked_up)?,
            labels: keyspace("labels", looked_up)?,
            deliveries: keyspace("deliveries", looked_up)?,
            due: keyspace("due", small)?,
            delivery_days: keyspace("delivery_days", small)?,
            database,
        })
    }

    /// Whether commits still succeed: after an I/O error the engine refuses all further ones.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::Buffer).map_err(|error| engine_error(&error))
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| engine_error(&error))
    }
}

pub fn engine_error(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn small() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(16 * MIB)
}

/// Asked by whole key, where an absent key must cost no disk read: filters on every level, the upper ones pinned.
fn looked_up() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .filter_policy(FilterPolicy::new([
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
        .filter_block_pinning_policy(PinningPolicy::new([true, false]))
        .expect_point_read_hits(false)
}

//! The tables of the store: what each holds, its name, and how the engine keeps it.

use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::engine::engine_error;
use crate::store::StoreError;
use crate::store::records::{counts, labels};

const MIB: u64 = 1024 * 1024;

/// Memory for what is not flushed yet, a keyspace. Smaller tables are flushed and merged more often, which costs the
/// writes; larger ones leave more to replay.
const BUSY_MEMTABLE: u64 = 64 * MIB;
/// For keyspaces of few rows, which are written over and over.
const SMALL_MEMTABLE: u64 = 16 * MIB;

macro_rules! tables {
    ($($(#[$holds:meta])* $field:ident: $name:expr, $options:ident;)*) => {
        /// A handle for each keyspace. Keyspaces are few: each has a memory table of its own.
        pub struct Tables {
            $($(#[$holds])* pub $field: Keyspace,)*
        }

        impl Tables {
            /// Opens all tables, or makes those that are not there.
            pub fn open(database: &Database) -> Result<Self, StoreError> {
                Ok(Self { $($field: keyspace(database, $name, $options)?,)* })
            }

            pub fn all(&self) -> impl IntoIterator<Item = &Keyspace> {
                [$(&self.$field),*]
            }
        }
    };
}

tables! {
    /// Singletons by name; last uses of keys; journal cursors; how many deliveries are pending.
    meta: "meta", small;
    /// Link by short id.
    links: "links", read_by_id;
    /// Key by id; key id by secret hash; what a key sees: small tables told apart by their first byte.
    keys: "keys", small;
    /// Counts by key, month and metric.
    usage: "usage", small;
    /// All hits by link, where they are few.
    counts: counts::TABLE, counted;
    /// Hits of links that are spread by day, one counter a device.
    days: "days", looked_up;
    /// The same by dimension and label; what is shown of a list, and how many labels it has in a month.
    labels: labels::TABLE, looked_up;
    /// Delivery by link and time, newest first.
    deliveries: "deliveries", looked_up;
    /// Ids of failed deliveries, by link and time.
    failed: "failed", small;
    /// Pending deliveries by due time.
    due: "due", small;
    /// Deliveries counted by link, day and URL; and which links have any, by day.
    delivery_days: "delivery_days", small;
}

fn keyspace(database: &Database, name: &str, options: fn() -> KeyspaceCreateOptions) -> Result<Keyspace, StoreError> {
    database.keyspace(name, options).map_err(|error| engine_error(&error))
}

/// The table that tells the layout of the others.
pub fn open_meta(database: &Database) -> Result<Keyspace, StoreError> {
    keyspace(database, "meta", small)
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

/// Asked by whole key, once for each link of a batch: filters and where each block is, some two bytes a row, are in memory whole, so
/// that the cache is asked for one block and no other.
fn counted() -> KeyspaceCreateOptions {
    looked_up()
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
}

/// Asked by whole key, of which the index of known links tells nearly all that are absent: no filter on the last level, where nearly all
/// rows are. A look-up there reads one block and no other: where it is, is in memory whole, about a byte a link.
fn read_by_id() -> KeyspaceCreateOptions {
    counted().expect_point_read_hits(true)
}

//! The keyspaces of the engine: what each holds, its name, and its options. `tables.rs` has what reads and writes them.

use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::database::engine_error;
use crate::store::StoreError;
use crate::store::records::{counts, days, labels, link_lists, link_names, once};

const MIB: u64 = 1024 * 1024;

/// Memory for unflushed rows, per keyspace. Smaller memory tables are flushed and merged more often, which slows down
/// writes; larger ones leave more to replay.
const BUSY_MEMTABLE: u64 = 64 * MIB;
/// For keyspaces with few rows, which are overwritten often.
const SMALL_MEMTABLE: u64 = 16 * MIB;

macro_rules! keyspaces {
    ($($(#[$holds:meta])* $field:ident: $name:expr, $options:ident;)*) => {
        /// A handle for each keyspace. Keyspaces are few: each has a memory table of its own.
        pub struct Keyspaces {
            $($(#[$holds])* pub $field: Keyspace,)*
        }

        impl Keyspaces {
            /// Opens all keyspaces and creates those that do not exist.
            pub fn open(database: &Database) -> Result<Self, StoreError> {
                Ok(Self { $($field: keyspace(database, $name, $options)?,)* })
            }

            pub fn all(&self) -> impl IntoIterator<Item = &Keyspace> {
                [$(&self.$field),*]
            }
        }
    };
}

keyspaces! {
    /// Singletons by name; last uses of keys; journal cursors; how many deliveries are pending.
    meta: "meta", small;
    /// Link by short id.
    links: "links", read_by_id;
    /// What is known of a name that is not the id of a live link: the id of the link that has it, or for whom it is kept.
    link_names: link_names::TABLE, looked_up;
    /// Link as it was, by id and revision.
    link_revisions: "link_revisions", small;
    /// Links by expiry and by deletion; earlier revisions by the time when they were replaced. The first byte of the row key
    /// says which.
    link_times: "link_times", small;
    /// Lists of links by time and by slug. The first byte of the row key says of which.
    link_lists: link_lists::TABLE, listed;
    /// Key by id; key id by secret hash; what a key sees; what a key has created. The first byte of the row key says
    /// which.
    keys: "keys", small;
    /// Answers to requests with an `Idempotency-Key`, by the request and by its time. The first byte of the row key says which.
    idempotency: once::TABLE, small;
    /// Counts by key, month and metric.
    usage: "usage", small;
    /// All hits by link or key, while they are few.
    counts: counts::TABLE, counted;
    /// Hits by link or key and day, where they have no room with all others.
    days: days::TABLE, looked_up;
    /// The same by dimension and label; what is shown of a list; how many labels it has in a month.
    labels: labels::TABLE, looked_up;
    /// Sheets by day and link or key.
    sheets: "sheets", looked_up;
    /// Delivery by link and time, newest first.
    deliveries: "deliveries", looked_up;
    /// Ids of failed deliveries, by link and time.
    failed: "failed", small;
    /// Pending deliveries by due time.
    due: "due", small;
    /// New deliveries that are in memory, and what of them is counted.
    first_tries: "first_tries", small;
    /// Sums of deliveries by link, day and URL; the links that have deliveries, by day.
    delivery_days: "delivery_days", small;
}

fn keyspace(database: &Database, name: &str, options: fn() -> KeyspaceCreateOptions) -> Result<Keyspace, StoreError> {
    database.keyspace(name, options).map_err(|error| engine_error(&error))
}

/// The keyspace that has the layout version of the others.
pub fn open_meta(database: &Database) -> Result<Keyspace, StoreError> {
    keyspace(database, "meta", small)
}

/// The engine keeps the options with which a keyspace was created: a change here applies to new stores only.
fn small() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(SMALL_MEMTABLE)
}

/// Read by ranges of many rows. The index of blocks is fully in memory, about half a byte a row: finding the first row of a range reads one
/// block of each sorted run. No filter is ever asked.
fn listed() -> KeyspaceCreateOptions {
    small()
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_policy(FilterPolicy::disabled())
}

/// Read by whole key. An absent key must cost no disk read: filters on every level, the upper ones pinned.
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

/// Read by whole key, once for each link of a batch. Filters and block indexes, about two bytes a row, are fully in
/// memory, so that a read needs one block from the cache.
fn counted() -> KeyspaceCreateOptions {
    looked_up()
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
}

/// Read by whole key. The index of known links answers for nearly all absent keys, so the last level, which has nearly
/// all rows, has no filter. A look-up there reads one block: the block index is fully in memory, about a byte a link.
fn read_by_id() -> KeyspaceCreateOptions {
    counted().expect_point_read_hits(true)
}

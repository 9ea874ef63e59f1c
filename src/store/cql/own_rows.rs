//! Rows that one node alone writes: totals up to a position in its journal. Writing one again changes nothing.
//!
//! A row has the end of the last batch that it counts. If a batch was begun and not ended, the same batch comes again,
//! and rows that count it already stay as they are. The rows that this process wrote last are kept in memory, so that
//! counting again needs no read.

use std::hash::Hash;

use moka::sync::Cache;

use super::cluster::Cluster;
use crate::domain::hit::Position;
use crate::store::StoreError;

/// A number that may not be written yet.
pub type Column = Option<i64>;

/// A total that includes the journal up to a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own<T> {
    pub total: T,
    pub upto: u64,
}

impl<T> Own<T> {
    /// The total with a batch that ends at `upto`; `None` if it includes that batch already.
    pub fn plus(self, upto: Position, add: impl FnOnce(T) -> T) -> Option<Self> {
        (self.upto < upto.0).then(|| Self { total: add(self.total), upto: upto.0 })
    }
}

/// A table of such rows.
pub trait OwnTable {
    /// Of one row, or of several that are read together, with the node that writes them.
    type Key: Copy + Eq + Hash + Send + Sync + 'static;
    /// The content of these rows.
    type Stored: Clone + Send + Sync + 'static;
    /// What a batch has counted.
    type Added: Send;

    /// A missing row counts nothing.
    fn read(cluster: &Cluster, key: Self::Key) -> impl Future<Output = Result<Self::Stored, StoreError>> + Send;

    /// Adds what a batch that ends at `upto` has counted, unless the rows include it; writes and returns the new rows.
    fn add(
        cluster: &Cluster,
        key: Self::Key,
        rows: Self::Stored,
        added: Self::Added,
        upto: Position,
    ) -> impl Future<Output = Result<Self::Stored, StoreError>> + Send;

    /// How many rows these are, for the bound of the cache.
    fn weight(_rows: &Self::Stored) -> u32 {
        1
    }
}

/// The rows of a table that this process has written last.
pub struct OwnRows<T: OwnTable>(Cache<T::Key, T::Stored>);

impl<T: OwnTable> OwnRows<T> {
    pub fn with_capacity(rows: u64) -> Self {
        let cache = Cache::builder().max_capacity(rows).weigher(|_, rows| T::weight(rows));
        Self(cache.build())
    }

    /// Adds what a batch that ends at `upto` has counted.
    pub async fn add(&self, cluster: &Cluster, key: T::Key, added: T::Added, upto: Position) -> Result<(), StoreError> {
        let rows = match self.0.get(&key) {
            Some(rows) => rows,
            None => T::read(cluster, key).await?,
        };
        // Inserted in every case: the weight may have changed.
        self.0.insert(key, T::add(cluster, key, rows, added, upto).await?);
        Ok(())
    }
}

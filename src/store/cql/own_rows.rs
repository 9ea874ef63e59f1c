//! Rows that one node alone writes: totals up to a position in its journal. Writing one again changes nothing.
//!
//! A row says up to which batch it counts. Where a batch was begun and not ended, the same batch comes again, and rows that
//! count it already stay as they are. The rows of this process are kept in memory, so that counting again needs no read.

use std::hash::Hash;

use moka::sync::Cache;

use super::cluster::Cluster;
use super::outcome::CqlError;
use crate::domain::hit::Position;
use crate::store::StoreError;

/// A total that includes the journal up to a position.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<T> {
    pub total: T,
    pub upto: u64,
}

/// A table of such rows.
pub trait OwnTable {
    /// Of a row, with the node that writes it.
    type Key: Copy + Eq + Hash + Send + Sync + 'static;
    type Total: Copy + Default + Send + Sync + 'static;

    fn add(total: Self::Total, added: Self::Total) -> Self::Total;

    /// A row that is not there is one of nothing.
    fn read(cluster: &Cluster, key: Self::Key) -> impl Future<Output = Result<Own<Self::Total>, CqlError>> + Send;

    fn write(
        cluster: &Cluster,
        key: Self::Key,
        own: Own<Self::Total>,
    ) -> impl Future<Output = Result<(), CqlError>> + Send;
}

/// The rows of a table that this process has written last.
pub struct OwnRows<T: OwnTable>(Cache<T::Key, Own<T::Total>>);

impl<T: OwnTable> OwnRows<T> {
    pub fn with_room_for(rows: u64) -> Self {
        Self(Cache::new(rows))
    }

    /// Adds what a batch that ends at `upto` has counted, unless the row includes it.
    pub async fn add(&self, cluster: &Cluster, key: T::Key, added: T::Total, upto: Position) -> Result<(), StoreError> {
        let mut own = match self.0.get(&key) {
            Some(own) => own,
            None => T::read(cluster, key).await?,
        };
        if own.upto < upto.0 {
            own = Own { total: T::add(own.total, added), upto: upto.0 };
            T::write(cluster, key, own).await?;
        }
        self.0.insert(key, own);
        Ok(())
    }
}

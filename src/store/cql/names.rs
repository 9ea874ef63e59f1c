//! Values by name, of which the first is kept, and numbers that only grow.

use std::sync::Arc;

use super::cluster::Cluster;
use super::outcome::CqlError;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, number};

/// Values and numbers by name.
pub struct CqlNames {
    cluster: Arc<Cluster>,
}

impl CqlNames {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster) }
    }

    pub(super) async fn put_name(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let statements = &self.cluster.statements;
        let there = || async {
            let row = self.cluster.cql.read_one::<(Option<Vec<u8>>,)>(&statements.name, (name,)).await?;
            Ok::<_, CqlError>(row.map(|(value,)| value.unwrap_or_default()))
        };
        let attempt = || async { self.cluster.cql.lwt(&statements.put_name, (name, &value)).await };
        // The same value counts as ours, even if another process wrote it.
        let settle = || async { Ok(there().await?.map(|kept| kept == value)) };
        if self.cluster.cql.settled(attempt, settle).await? {
            return Ok(value);
        }
        Ok(there().await?.unwrap_or(value))
    }

    /// The value under a name.
    pub(super) async fn name(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.cluster.cql.read_one::<(Option<Vec<u8>>,)>(&self.cluster.statements.name, (name,)).await?;
        Ok(row.map(|(value,)| value.unwrap_or_default()))
    }

    /// The number under a name; 0 if there is none.
    pub(super) async fn mark(&self, name: &str) -> Result<u64, StoreError> {
        let row = self.cluster.cql.read_one::<(Option<i64>,)>(&self.cluster.statements.mark, (name,)).await?;
        Ok(number(row.and_then(|(value,)| value)))
    }

    /// Raises the number under a name; a higher one stays.
    pub(super) async fn raise_mark(&self, name: &str, value: u64) -> Result<(), StoreError> {
        let value = bigint(value);
        Ok(self.cluster.cql.write(&self.cluster.statements.raise_mark, (value, value, name)).await?)
    }
}

//! When keys were last used.

use fjall::Keyspace;

use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::store::StoreError;
use crate::store::records::{counters, row_keys};

const USES: &str = "key uses";

/// The last use of each key.
pub struct KeyUseTable {
    meta: Keyspace,
}

impl KeyUseTable {
    pub fn new(engine: &Engine) -> Self {
        Self { meta: engine.keyspaces.meta.clone() }
    }

    /// Notes uses; one that is earlier than the last known use changes nothing.
    pub fn note(&self, transaction: &mut Transaction<'_>, uses: &[(KeyId, Timestamp)]) -> Result<(), StoreError> {
        for (id, at) in uses {
            if self.last_use(transaction, *id)?.is_none_or(|known| known < *at) {
                transaction.insert(&self.meta, row_keys::key_use(*id), counters::encode_time(*at))?;
            }
        }
        Ok(())
    }

    pub fn last_uses(&self, from: &impl RowReader, ids: &[KeyId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        ids.iter().map(|id| self.last_use(from, *id)).collect()
    }

    fn last_use(&self, from: &impl RowReader, id: KeyId) -> Result<Option<Timestamp>, StoreError> {
        from.row(&self.meta, row_keys::key_use(id))?.map(|row| Self::read(&row)).transpose()
    }

    /// The time in a row.
    pub fn read(row: &[u8]) -> Result<Timestamp, StoreError> {
        counters::decode_time(USES, row)
    }
}

//! Values by name; the first value of a name is kept.

use fjall::Keyspace;

use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::store::StoreError;
use crate::store::records::row_keys;

/// Values by name.
pub struct NameTable {
    meta: Keyspace,
}

impl NameTable {
    pub fn new(engine: &Engine) -> Self {
        Self { meta: engine.keyspaces.meta.clone() }
    }

    pub fn get(&self, from: &impl RowReader, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(from.row(&self.meta, row_keys::name(name))?.map(|value| value.to_vec()))
    }

    /// Writes a value unless the name has one; returns the value that the name has then.
    pub fn put_if_absent(
        &self,
        transaction: &mut Transaction<'_>,
        name: &str,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        if let Some(kept) = self.get(transaction, name)? {
            return Ok(kept);
        }
        transaction.insert(&self.meta, row_keys::name(name), value)?;
        Ok(value.to_vec())
    }
}

//! Values by name, of which the first is kept, and numbers that only grow.

use fjall::Keyspace;

use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::store::StoreError;
use crate::store::records::{counters, row_keys};

const NUMBERS: &str = "numbers by name";

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

    /// The number under a name; 0 if there is none.
    pub fn number(&self, from: &impl RowReader, name: &str) -> Result<u64, StoreError> {
        let row = from.row(&self.meta, row_keys::name(name))?;
        counters::decode::<1>(NUMBERS, row.as_deref()).map(|[number]| number)
    }

    /// Raises the number under a name to `least`, or by one if it is that high.
    pub fn raise(&self, transaction: &mut Transaction<'_>, name: &str, least: u64) -> Result<(), StoreError> {
        let number = least.max(self.number(transaction, name)? + 1);
        transaction.insert(&self.meta, row_keys::name(name), counters::encode([number]))
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

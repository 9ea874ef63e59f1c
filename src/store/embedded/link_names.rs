//! Names that are not simply the ids of live links.

use fjall::Keyspace;

use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::link::LinkName;
use crate::store::StoreError;
use crate::store::records::link_names::{self as records, NameState};

/// States of names by name.
pub struct LinkNameTable {
    names: Keyspace,
}

impl LinkNameTable {
    pub fn new(engine: &Engine) -> Self {
        Self { names: engine.keyspaces.link_names.clone() }
    }

    /// `None` for a name that was never used, and for the id of a live link.
    pub fn get(&self, from: &impl RowReader, name: &LinkName) -> Result<Option<NameState>, StoreError> {
        from.row(&self.names, name.as_bytes())?.map(|row| records::decode(&row)).transpose()
    }

    /// The state as it is now.
    pub fn get_now(&self, name: &LinkName) -> Result<Option<NameState>, StoreError> {
        let row = self.names.get(name.as_bytes()).map_err(|e| engine_error(&e))?;
        row.map(|row| records::decode(&row)).transpose()
    }

    pub fn put(&self, transaction: &mut Transaction<'_>, name: &LinkName, state: NameState) -> Result<(), StoreError> {
        transaction.insert(&self.names, name.as_bytes(), records::encode(state)?)
    }
}

//! What a store records about itself, read before anything in it is changed.

use super::StartError;
use super::cluster::ClusterConnection;
use crate::domain::key::SealedSecret;
use crate::store::StoreError;
use crate::store::embedded::Opened;
use crate::store::transfer::{FILLED, FILLED_FROM, MASTER_KEY_CHECK};

const READ: [&str; 3] = [FILLED_FROM, FILLED, MASTER_KEY_CHECK];

/// The state of a store before it is used.
pub struct StoreState {
    /// Opens under the store's master key only. `None` if no service has started on the store yet.
    pub master_key_check: Option<SealedSecret>,
    filled_from: bool,
    filled: bool,
}

impl StoreState {
    pub fn in_database(store: &Opened) -> Result<Self, StoreError> {
        let [from, filled, check] = READ.map(|name| store.kept(name));
        Ok(Self::of([from?, filled?, check?]))
    }

    pub async fn on_cluster(cluster: &ClusterConnection<'_>) -> Result<Self, StartError> {
        let [from, filled, check] = READ.map(|name| cluster.stored(name));
        let (from, filled, check) = futures_util::try_join!(from, filled, check)?;
        Ok(Self::of([from, filled, check]))
    }

    fn of([from, filled, check]: [Option<Vec<u8>>; READ.len()]) -> Self {
        Self { master_key_check: check.map(SealedSecret), filled_from: from.is_some(), filled: filled.is_some() }
    }

    /// Whether an import into the store is unfinished. The check of the master key is imported last: until then a
    /// start would accept any key.
    pub fn has_unfinished_import(&self) -> bool {
        self.filled_from && !self.filled
    }

    /// Whether a service has started on the store, and the data did not come from an import.
    pub fn is_in_use(&self) -> bool {
        self.master_key_check.is_some() && !self.filled_from
    }
}

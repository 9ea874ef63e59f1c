//! `[store]`: where links, keys and counters are kept.

use super::{error::SettingError, layers::Settings};

/// The store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Which store is used.
    pub kind: StoreKind,
    /// Memory for the embedded engine's block cache, in bytes.
    pub cache_bytes: u64,
}

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process, with its files under the data directory.
    Embedded,
    /// On a cluster that speaks CQL, shared by any number of nodes; see [`super::Scylla`].
    Scylla,
}

impl Store {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        let kinds = [("embedded", StoreKind::Embedded), ("scylla", StoreKind::Scylla)];
        Ok(Self {
            kind: settings.choice("store.kind", &kinds)?,
            cache_bytes: settings.integer("store.cache_bytes", 1 << 20..=1 << 40)?,
        })
    }
}

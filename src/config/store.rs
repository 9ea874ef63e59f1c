//! `[store]`: which store is used.

use super::{error::SettingError, layers::LayeredSettings};

/// The store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    pub kind: StoreKind,
    /// Memory for the embedded engine's block cache, in bytes.
    pub cache_bytes: u64,
}

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process, with its files in the data directory.
    Embedded,
    /// On a cluster with CQL, shared by any number of nodes; see [`super::ScyllaConfig`].
    Scylla,
}

impl StoreConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let kinds = [("embedded", StoreKind::Embedded), ("scylla", StoreKind::Scylla)];
        Ok(Self {
            kind: settings.choice("store.kind", &kinds)?,
            cache_bytes: settings.integer("store.cache_bytes", 1 << 20..=1 << 40)?,
        })
    }
}

//! Carrying all that a store keeps to a file, and from there to another store.

use std::path::Path;

use super::{StartError, build, cluster};
use crate::clock::Clock;
use crate::config::{Config, StoreKind};
use crate::store::Lifecycle;
use crate::transfer::{self, Counts, Imported};

/// What an export has done.
pub struct Exported {
    pub counts: Counts,
    /// Whether deliveries may be pending, which stay behind.
    pub leaves_deliveries: bool,
}

/// Writes all that the store keeps to a file, but for deliveries.
pub async fn export(config: &Config, path: &Path) -> Result<Exported, StartError> {
    use crate::store::transfer::Source;

    let now = Clock::system().now();
    match config.store.kind {
        StoreKind::Embedded => {
            // Opening one that is not there would make it.
            let directory = config.data_dir.join("store");
            if !directory.is_dir() {
                return Err(StartError::StoreDirectory { path: directory, reason: "it is not there".into() });
            }
            let store = build::open_embedded(config)?;
            let leaves_deliveries = store.has_pending_deliveries().await?;
            let counts = transfer::export(&store, path, now).await;
            store.close().await;
            Ok(Exported { counts: counts?, leaves_deliveries })
        }
        StoreKind::Scylla => {
            let store = cluster::open_transfer(config).await?;
            let leaves_deliveries = store.has_pending_deliveries().await?;
            Ok(Exported { counts: transfer::export(&store, path, now).await?, leaves_deliveries })
        }
    }
}

/// Fills the store, which must be empty, from a file.
pub async fn import(config: &Config, path: &Path) -> Result<Imported, StartError> {
    match config.store.kind {
        StoreKind::Embedded => {
            build::make_directory(config)?;
            let store = build::open_embedded(config)?;
            let imported = transfer::import(&store, path).await;
            store.close().await;
            Ok(imported?)
        }
        StoreKind::Scylla => Ok(transfer::import(&cluster::open_transfer(config).await?, path).await?),
    }
}

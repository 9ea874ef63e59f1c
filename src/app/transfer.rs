//! Exports a store to a file, and imports such a file into an empty store.

use std::path::Path;

use futures_util::future::LocalBoxFuture;
use uuid::Uuid;

use super::{StartError, master_key, opening};
use crate::clock::Clock;
use crate::config::{Config, StoreKind};
use crate::domain::hit::NodeId;
use crate::store::Lifecycle;
use crate::transfer::{self, Counts, Imported};

/// The result of an export.
pub struct Exported {
    pub counts: Counts,
    /// Whether pending deliveries may exist. They are not exported.
    pub leaves_deliveries: bool,
    /// Hits that are in the journal of this node only, where the store is embedded; an error if that can't be found out. They are not
    /// exported.
    pub uncounted_hits: Result<u64, StartError>,
    /// Whether the key that decrypts the secrets in the file is available on this machine.
    pub has_master_key: bool,
}

/// Exports everything except deliveries to a file. `lost_nodes`: ids of nodes of a cluster whose data directories are lost.
pub fn export<'a>(
    config: &'a Config,
    path: &'a Path,
    lost_nodes: &'a [Uuid],
) -> LocalBoxFuture<'a, Result<Exported, StartError>> {
    Box::pin(export_into(config, path, lost_nodes))
}

async fn export_into(config: &Config, path: &Path, lost_nodes: &[Uuid]) -> Result<Exported, StartError> {
    use crate::store::CountStore;
    use crate::store::transfer::ExportSource;

    let now = Clock::system().now();
    match config.store.kind {
        StoreKind::Embedded if !lost_nodes.is_empty() => Err(StartError::LostNodeOfEmbeddedStore),
        StoreKind::Embedded => {
            let opening::StoreToExport { store, has_master_key } = opening::embedded_to_export(config)?;
            let leaves_deliveries = store.has_pending_deliveries().await?;
            let uncounted_hits = opening::uncounted_hits(config, async |node| store.hit_cursor(node).await).await;
            let counts = transfer::export(&store, path, now).await;
            store.close().await;
            Ok(Exported { counts: counts?, leaves_deliveries, uncounted_hits, has_master_key })
        }
        StoreKind::Scylla => {
            let opening::StoreToExport { store, has_master_key } = opening::cluster_to_export(config).await?;
            let store = store.without_nodes(lost_nodes.iter().copied().map(NodeId).collect());
            let leaves_deliveries = store.has_pending_deliveries().await?;
            // Those of this node, if it has its data directory here. Where another one has begun a batch, the export fails.
            let uncounted_hits = opening::uncounted_hits(config, async |node| store.hit_cursor(node).await).await;
            let counts = transfer::export(&store, path, now).await?;
            Ok(Exported { counts, leaves_deliveries, uncounted_hits, has_master_key })
        }
    }
}

/// Imports a file into the store, which must be empty. The file and its master key are checked before anything is
/// changed.
pub fn import<'a>(config: &'a Config, path: &'a Path) -> LocalBoxFuture<'a, Result<Imported, StartError>> {
    Box::pin(import_from(config, path))
}

async fn import_from(config: &Config, path: &Path) -> Result<Imported, StartError> {
    let file = transfer::check(path)?;
    if let Some(check) = &file.master_key_check {
        master_key::check_for_import(config, path, check)?;
    }
    match config.store.kind {
        StoreKind::Embedded => {
            let store = opening::embedded_to_import(config)?;
            let imported = transfer::fill(&store, file).await;
            store.close().await;
            Ok(imported?)
        }
        StoreKind::Scylla => Ok(transfer::fill(&opening::cluster_to_import(config).await?, file).await?),
    }
}

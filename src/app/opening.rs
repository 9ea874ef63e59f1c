//! Opens a node's files and its store. Everything is checked before anything is changed.

use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use super::master_key::StorePlace;
use super::store_state::StoreState;
use super::{StartError, cluster, files, keys_on_disk, master_key, refused, writable};
use crate::clock::Clock;
use crate::config::{Config, StoreKind};
use crate::domain::hit::{HitCursor, NodeId};
use crate::domain::vault::Vault;
use crate::journal::{self, LockedDirectory};
use crate::store::cql::migrate::Applied;
use crate::store::cql::transfer::ScyllaTransfer;
use crate::store::embedded::{EmbeddedStore, Opened};
use crate::store::reach::Reach;
use crate::store::{Store, StoreError};
use crate::transfer::TransferError;

/// The files and the store of a node.
pub struct OpenedNode {
    pub vault: Arc<Vault>,
    pub node: NodeId,
    pub journal: LockedDirectory,
    pub store: Arc<dyn Store>,
    /// Whether a store on a cluster is reachable.
    pub reach: Option<Arc<Reach>>,
}

/// Opens the store and the node's files.
pub async fn open(config: &Config, clock: &Clock) -> Result<OpenedNode, StartError> {
    match config.store.kind {
        StoreKind::Embedded => {
            create_data_directory(config)?;
            writable::check(config)?;
            // The store's files have their own lock. So one process alone creates the files below.
            let (database, state) = open_database(config)?;
            let (vault, node, journal) = open_node(config, &state)?;
            let store = open_store(config, database)?;
            Ok(OpenedNode { vault, node, journal, store: Arc::new(store), reach: None })
        }
        StoreKind::Scylla => {
            writable::check(config)?;
            let cluster = cluster::reach(config).await?;
            let state = StoreState::on_cluster(&cluster).await?;
            // Before the store: the process that locks the node's journal is the node, and takes over the node's rows
            // in the store.
            let (vault, node, journal) = open_node(config, &state)?;
            let store = cluster.open(node, clock).await?;
            let reach = store.reach();
            Ok(OpenedNode { vault, node, journal, store: Arc::new(store), reach: Some(reach) })
        }
    }
}

/// Opens the node's files beside the store, after checking that the store is complete and the key fits.
fn open_node(config: &Config, state: &StoreState) -> Result<(Arc<Vault>, NodeId, LockedDirectory), StartError> {
    check_import_finished(config, state)?;
    let vault = Arc::new(master_key::for_start(config, state)?);
    create_data_directory(config)?;
    let node = keys_on_disk::node_id(&files::node_id(config))?;
    Ok((vault, node, journal::lock_directory(&files::journal(config))?))
}

/// A store that was opened to be exported, and whether its master key is available here.
pub struct StoreToExport<S> {
    pub store: S,
    pub has_master_key: bool,
}

/// How many hits in this node's journal the store does not count yet. An export does not have them.
///
/// # Errors
/// If the journal, the node's id or the store can't be read. What the store has can be exported all the same.
pub async fn uncounted_hits(
    config: &Config,
    cursor: impl AsyncFnOnce(NodeId) -> Result<HitCursor, StoreError>,
) -> Result<u64, StartError> {
    let journal = files::journal(config);
    if !journal.is_dir() {
        return Ok(0);
    }
    let Some(node) = keys_on_disk::known_node_id(&files::node_id(config))? else { return Ok(0) };
    let counted = cursor(node).await?.counted;
    Ok(journal::lock_directory(&journal)?.uncounted_hits(node, counted)?)
}

/// Opens the embedded store to export it. The store must exist.
pub fn embedded_to_export(config: &Config) -> Result<StoreToExport<EmbeddedStore>, StartError> {
    let path = files::store(config);
    // Opening a missing store would create it.
    if !path.is_dir() {
        return Err(StartError::StoreDirectory { path, reason: "it does not exist".into() });
    }
    writable::check_store(config)?;
    let (database, state) = open_database(config)?;
    check_import_finished(config, &state)?;
    let has_master_key = master_key::is_available(config, &state)?;
    Ok(StoreToExport { store: open_store(config, database)?, has_master_key })
}

/// Opens the tables on the cluster to export them.
pub async fn cluster_to_export(config: &Config) -> Result<StoreToExport<ScyllaTransfer>, StartError> {
    let cluster = cluster::reach(config).await?;
    let state = StoreState::on_cluster(&cluster).await?;
    check_import_finished(config, &state)?;
    let has_master_key = master_key::is_available(config, &state)?;
    Ok(StoreToExport { store: cluster.open_transfer().await?, has_master_key })
}

/// Opens the embedded store to import into it. A missing store is created.
pub fn embedded_to_import(config: &Config) -> Result<EmbeddedStore, StartError> {
    create_data_directory(config)?;
    writable::check_store(config)?;
    let (database, state) = open_database(config)?;
    check_unused(&state)?;
    open_store(config, database)
}

/// Opens the tables on the cluster to import into them.
pub async fn cluster_to_import(config: &Config) -> Result<ScyllaTransfer, StartError> {
    let cluster = cluster::reach(config).await?;
    check_unused(&StoreState::on_cluster(&cluster).await?)?;
    cluster.open_transfer().await
}

/// Migrates the schema on the cluster to the current version.
pub async fn migrate_cluster(config: &Config) -> Result<Vec<Applied>, StartError> {
    let cluster = cluster::reach(config).await?;
    master_key::is_available(config, &StoreState::on_cluster(&cluster).await?)?;
    cluster.migrate().await
}

fn check_import_finished(config: &Config, state: &StoreState) -> Result<(), StartError> {
    if state.has_unfinished_import() { Err(StartError::UnfinishedImport(StorePlace::of(config))) } else { Ok(()) }
}

fn check_unused(state: &StoreState) -> Result<(), StartError> {
    if state.is_in_use() { Err(TransferError::NotEmpty.into()) } else { Ok(()) }
}

fn create_data_directory(config: &Config) -> Result<(), StartError> {
    let path = &config.data_dir;
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| refused(config, "data_dir", format!("{} can't be created: {error}", path.display())))
}

fn open_database(config: &Config) -> Result<(Opened, StoreState), StartError> {
    let opened = Opened::in_directory(&files::store(config), config.store.cache_bytes);
    let opened = opened.and_then(|database| StoreState::in_database(&database).map(|state| (database, state)));
    opened.map_err(|error| unusable(config, error))
}

fn open_store(config: &Config, database: Opened) -> Result<EmbeddedStore, StartError> {
    let database = database.keeping_sheets(config.analytics.sheet_days);
    EmbeddedStore::of(database).map_err(|error| unusable(config, error))
}

fn unusable(config: &Config, error: StoreError) -> StartError {
    match error {
        StoreError::Unavailable(reason) => StartError::StoreDirectory { path: files::store(config), reason },
        error @ StoreError::Corrupt { .. } => error.into(),
    }
}

//! What a start finds on its disk, opened for use: first all is looked at, and only then is anything changed.

use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use super::kept::Kept;
use super::master_key::StorePlace;
use super::{StartError, cluster, files, keys_on_disk, master_key, refused, writable};
use crate::config::{Config, StoreKind};
use crate::domain::hit::NodeId;
use crate::domain::vault::Vault;
use crate::journal::{self, HeldDirectory};
use crate::store::cql::migrate::Applied;
use crate::store::cql::transfer::ScyllaTransfer;
use crate::store::embedded::{EmbeddedStore, Opened};
use crate::store::reach::Reach;
use crate::store::{Store, StoreError};
use crate::transfer::TransferError;

/// What a node serves from.
pub struct OpenedNode {
    pub vault: Arc<Vault>,
    pub node: NodeId,
    pub journal: HeldDirectory,
    pub store: Arc<dyn Store>,
    /// What is known of the way to a store elsewhere.
    pub reach: Option<Arc<Reach>>,
}

/// Opens all of it.
pub async fn open(config: &Config) -> Result<OpenedNode, StartError> {
    match config.store.kind {
        StoreKind::Embedded => {
            make_directory(config)?;
            writable::check(config)?;
            // Its files have a lock of their own, so that what is made from here on is made by one process.
            let (database, kept) = open_database(config)?;
            let (vault, node, journal) = open_node(config, &kept)?;
            let store = open_store(config, database)?;
            Ok(OpenedNode { vault, node, journal, store: Arc::new(store), reach: None })
        }
        StoreKind::Scylla => {
            writable::check(config)?;
            let cluster = cluster::reach(config).await?;
            let kept = Kept::on_cluster(&cluster).await?;
            // Before the store: whoever has the node's journal is that node, and takes over what is the node's there.
            let (vault, node, journal) = open_node(config, &kept)?;
            let store = cluster.open(node).await?;
            let reach = store.reach();
            Ok(OpenedNode { vault, node, journal, store: Arc::new(store), reach: Some(reach) })
        }
    }
}

/// Takes what a node has beside its store, once it is known that it fits.
fn open_node(config: &Config, kept: &Kept) -> Result<(Arc<Vault>, NodeId, HeldDirectory), StartError> {
    is_not_being_filled(config, kept)?;
    let vault = Arc::new(master_key::for_start(config, kept)?);
    make_directory(config)?;
    let node = keys_on_disk::node_id(&files::node_id(config))?;
    Ok((vault, node, journal::hold(&files::journal(config))?))
}

/// A store that is opened to be read from, and whether its master key is here.
pub struct Readable<S> {
    pub store: S,
    pub has_master_key: bool,
}

/// Opens the embedded store, which has to be there, to export it.
pub fn embedded_to_export(config: &Config) -> Result<Readable<EmbeddedStore>, StartError> {
    let path = files::store(config);
    // Opening one that is not there would make it.
    if !path.is_dir() {
        return Err(StartError::StoreDirectory { path, reason: "it is not there".into() });
    }
    writable::check_store(config)?;
    let (database, kept) = open_database(config)?;
    is_not_being_filled(config, &kept)?;
    let has_master_key = master_key::is_here(config, &kept)?;
    Ok(Readable { store: open_store(config, database)?, has_master_key })
}

/// Opens the tables on the cluster to export them.
pub async fn cluster_to_export(config: &Config) -> Result<Readable<ScyllaTransfer>, StartError> {
    let cluster = cluster::reach(config).await?;
    let kept = Kept::on_cluster(&cluster).await?;
    is_not_being_filled(config, &kept)?;
    let has_master_key = master_key::is_here(config, &kept)?;
    Ok(Readable { store: cluster.open_transfer().await?, has_master_key })
}

/// Opens the embedded store to import into it. One that is not there is made.
pub fn embedded_to_import(config: &Config) -> Result<EmbeddedStore, StartError> {
    make_directory(config)?;
    writable::check_store(config)?;
    let (database, kept) = open_database(config)?;
    is_not_in_use(&kept)?;
    open_store(config, database)
}

/// Opens the tables on the cluster to import into them.
pub async fn cluster_to_import(config: &Config) -> Result<ScyllaTransfer, StartError> {
    let cluster = cluster::reach(config).await?;
    is_not_in_use(&Kept::on_cluster(&cluster).await?)?;
    cluster.open_transfer().await
}

/// Brings the schema on the cluster up to date.
pub async fn migrate_cluster(config: &Config) -> Result<Vec<Applied>, StartError> {
    let cluster = cluster::reach(config).await?;
    master_key::is_here(config, &Kept::on_cluster(&cluster).await?)?;
    cluster.migrate().await
}

fn is_not_being_filled(config: &Config, kept: &Kept) -> Result<(), StartError> {
    if kept.is_being_filled() { Err(StartError::UnfinishedImport(StorePlace::of(config))) } else { Ok(()) }
}

fn is_not_in_use(kept: &Kept) -> Result<(), StartError> {
    if kept.is_in_use() { Err(TransferError::NotEmpty.into()) } else { Ok(()) }
}

fn make_directory(config: &Config) -> Result<(), StartError> {
    let path = &config.data_dir;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| refused(config, "data_dir", format!("{} can't be made: {error}", path.display())))
}

fn open_database(config: &Config) -> Result<(Opened, Kept), StartError> {
    let opened = Opened::in_directory(&files::store(config), config.store.cache_bytes);
    let opened = opened.and_then(|database| Kept::in_database(&database).map(|kept| (database, kept)));
    opened.map_err(|error| unusable(config, error))
}

fn open_store(config: &Config, database: Opened) -> Result<EmbeddedStore, StartError> {
    EmbeddedStore::of(database).map_err(|error| unusable(config, error))
}

fn unusable(config: &Config, error: StoreError) -> StartError {
    match error {
        StoreError::Unavailable(reason) => StartError::StoreDirectory { path: files::store(config), reason },
        error @ StoreError::Corrupt { .. } => error.into(),
    }
}

//! What a start finds on its disk, opened for use: first all is looked at, and only then is anything changed.

use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use super::{StartError, cluster, files, keys_on_disk, master_key, refused, writable};
use crate::config::{Config, StoreKind};
use crate::domain::hit::NodeId;
use crate::domain::key::SealedSecret;
use crate::domain::vault::Vault;
use crate::hits::journal::{self, HeldDirectory};
use crate::store::embedded::{EmbeddedStore, Opened};
use crate::store::reach::Reach;
use crate::store::transfer::{FILLED, FILLED_FROM, MASTER_KEY_CHECK};
use crate::store::{Store, StoreError};

/// What a node serves from.
pub struct Ground {
    pub vault: Arc<Vault>,
    pub node: NodeId,
    pub journal: HeldDirectory,
    pub store: Arc<dyn Store>,
    /// What is known of the way to a store elsewhere.
    pub reach: Option<Arc<Reach>>,
}

/// Opens all of it.
pub async fn open(config: &Config) -> Result<Ground, StartError> {
    make_directory(config)?;
    writable::check(config)?;
    let here = match config.store.kind {
        // Its files have a lock of their own, so that what is made from here on is made by one process.
        StoreKind::Embedded => Some(open_database(config)?),
        StoreKind::Scylla => None,
    };
    let check = here.as_ref().map(|store| kept_check(config, store)).transpose()?.flatten();
    let vault = Arc::new(master_key::for_store(config, check.as_ref())?);
    let node = keys_on_disk::node_id(&files::node_id(config))?;
    // Before a store on a cluster is opened: whoever has the node's journal is that node, and takes over what is the node's there.
    let journal = journal::hold(&files::journal(config))?;
    let (store, reach): (Arc<dyn Store>, _) = match here {
        Some(database) => (Arc::new(open_store(config, database)?), None),
        None => {
            let store = cluster::open(config, node).await?;
            let reach = store.reach();
            (Arc::new(store), Some(reach))
        }
    };
    Ok(Ground { vault, node, journal, store, reach })
}

/// Opens the embedded store for use; its key is not asked for.
pub fn open_embedded(config: &Config) -> Result<EmbeddedStore, StartError> {
    open_store(config, open_database(config)?)
}

pub fn make_directory(config: &Config) -> Result<(), StartError> {
    let path = &config.data_dir;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| refused(config, "data_dir", format!("{} can't be made: {error}", path.display())))
}

fn open_database(config: &Config) -> Result<Opened, StartError> {
    Opened::in_directory(&files::store(config), config.store.cache_bytes).map_err(|error| unusable(config, error))
}

fn open_store(config: &Config, database: Opened) -> Result<EmbeddedStore, StartError> {
    EmbeddedStore::of(database).map_err(|error| unusable(config, error))
}

/// What the store keeps to tell its master key.
fn kept_check(config: &Config, store: &Opened) -> Result<Option<SealedSecret>, StartError> {
    let kept = |name| store.kept(name).map_err(|error| unusable(config, error));
    // What tells its key comes at the end of an import: until then the key of a start may be another one.
    if kept(FILLED_FROM)?.is_some() && kept(FILLED)?.is_none() {
        return Err(StartError::UnfinishedImport(files::store(config)));
    }
    Ok(kept(MASTER_KEY_CHECK)?.map(SealedSecret))
}

fn unusable(config: &Config, error: StoreError) -> StartError {
    match error {
        StoreError::Unavailable(reason) => StartError::StoreDirectory { path: files::store(config), reason },
        error => error.into(),
    }
}

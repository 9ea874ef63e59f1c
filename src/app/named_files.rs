//! Files that the settings name, and the URLs of the fallbacks. A start reads and checks them before it opens the store, so that a start with
//! a bad one changes nothing.

use std::sync::Arc;

use super::{StartError, blocked_hosts, bots, pages, refused};
use crate::config::{Config, StoreKind};
use crate::counting::places::PlaceDatabase;
use crate::domain::blocked_hosts::BlockedHosts;
use crate::domain::bots::BotRules;
use crate::domain::link::BaseUrl;
use crate::http::pages::{Fallbacks, Pages};
use crate::store::cql::session::authority;

/// The content of these files, and the checked fallbacks.
pub(super) struct NamedFiles {
    pub places: Option<Arc<PlaceDatabase>>,
    pub bots: BotRules,
    pub blocked_hosts: BlockedHosts,
    pub pages: Arc<Pages>,
    pub fallbacks: Fallbacks,
}

impl NamedFiles {
    /// Reads and checks all of them. Changes nothing.
    pub fn read(config: &Config, base_url: &BaseUrl) -> Result<Self, StartError> {
        check_authority(config)?;
        Ok(Self {
            places: open_places(config)?,
            bots: bots::open(config)?,
            blocked_hosts: blocked_hosts::open(config)?,
            pages: Arc::new(pages::open(config, base_url)?),
            fallbacks: pages::fallbacks(config, base_url)?,
        })
    }
}

/// The certificates are read again with each connection to the cluster.
fn check_authority(config: &Config) -> Result<(), StartError> {
    let path = config.scylla.tls_ca.as_ref().filter(|_| config.store.kind == StoreKind::Scylla);
    let read = path.map_or(Ok(()), |path| authority(path).map(drop));
    read.map_err(|error| refused(config, "scylla.tls_ca", error.to_string()))
}

fn open_places(config: &Config) -> Result<Option<Arc<PlaceDatabase>>, StartError> {
    let Some(path) = &config.geo.database else { return Ok(None) };
    let places = PlaceDatabase::open(path).map_err(|error| refused(config, "geo.database", error.to_string()))?;
    Ok(Some(Arc::new(places)))
}

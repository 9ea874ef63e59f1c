//! Use cases, which handlers call. Each uses the store, the caches and the actors it needs, and does not know HTTP.

pub mod analytics;
pub mod authentication;
pub mod keys;
pub mod link_upkeep;
pub mod links;
pub mod redirects;
pub mod root_key;
pub mod usage;
pub mod webhook_status;

use thiserror::Error;

use crate::domain::key::ApiKey;
use crate::domain::link::{Link, ShortId};
use crate::store::{LinkStore, StoreError};

/// Why a caller may not see a link.
#[derive(Debug, Error)]
pub enum AccessError {
    #[error("no such link")]
    NotFound,
    #[error("another key's link")]
    NotOwner,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The link, if it exists and `caller` owns it or is the root key.
async fn owned_link(store: &dyn LinkStore, caller: &ApiKey, id: Option<ShortId>) -> Result<Link, AccessError> {
    // Text that is not a valid id matches no link, so the store is not asked.
    let id = id.ok_or(AccessError::NotFound)?;
    let link = store.link(id.into()).await?.ok_or(AccessError::NotFound)?;
    if caller.is_root || link.owner == caller.id { Ok(link) } else { Err(AccessError::NotOwner) }
}

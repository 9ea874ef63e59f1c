//! Use cases, which handlers call. Each uses the store, the caches and the actors it needs, and does not know HTTP.

pub mod analytics;
pub mod authentication;
pub mod exports;
pub mod hit_streams;
pub mod keys;
pub mod link_lists;
pub mod link_upkeep;
pub mod links;
pub mod once;
pub mod redirects;
pub mod root_key;
pub mod run_to_completion;
mod striped_locks;
pub mod usage;
pub mod webhook_actions;
pub mod webhook_status;

use thiserror::Error;

use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName};
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
async fn owned_link(store: &dyn LinkStore, caller: &ApiKey, name: Option<LinkName>) -> Result<Link, AccessError> {
    // No link has text as its name that is not a valid name, so the store is not asked.
    let name = name.ok_or(AccessError::NotFound)?;
    let link = store.link(name).await?.ok_or(AccessError::NotFound)?;
    if caller.is_root || link.owner == caller.id { Ok(link) } else { Err(AccessError::NotOwner) }
}

//! Use cases: what a handler calls. Each knows the store, the caches and the actors it needs, and nothing of HTTP.

pub mod analytics;
pub mod authentication;
pub mod keys;
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

/// The link, where it is there and `caller` made it or is the root.
async fn owned_link(store: &dyn LinkStore, caller: &ApiKey, id: Option<ShortId>) -> Result<Link, AccessError> {
    // Text that can't be an id is the id of no link: the store need not be asked.
    let id = id.ok_or(AccessError::NotFound)?;
    let link = store.link(id).await?.ok_or(AccessError::NotFound)?;
    if caller.is_root || link.owner == caller.id { Ok(link) } else { Err(AccessError::NotOwner) }
}

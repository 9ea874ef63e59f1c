//! Caches of links in front of the store: a shared one, and one for each worker in front of it.
//!
//! A link can change at any time, on this node and on others. `docs/design/caches.md` says how the caches follow.

pub mod changes;
pub mod clock;
pub mod link;
pub mod links;
mod loads;
pub mod redirect_head;
pub mod worker_cache;

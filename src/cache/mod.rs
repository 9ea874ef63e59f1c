//! Caches of links in front of the store.

pub mod links;
pub mod near;

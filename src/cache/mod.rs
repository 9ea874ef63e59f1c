//! What is kept in memory in front of the store.

pub mod links;
pub mod near;

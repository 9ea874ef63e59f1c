//! Limits that are not per key.

pub mod client;

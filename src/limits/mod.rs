//! Limits that are not per key.

pub mod client;

mod atomics {
    pub use std::sync::atomic::AtomicU64;
}

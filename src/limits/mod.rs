//! The limit of requests by client.

pub mod client;

mod atomics {
    pub use std::sync::atomic::AtomicU64;

    /// `count` zeros. Pages of memory that are never written take no memory.
    pub fn zeros(count: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(count)
    }
}

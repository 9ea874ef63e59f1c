//! Limits that are not per key.

pub mod client;

mod atomics {
    pub use std::sync::atomic::AtomicU64;

    /// So many that are zero. Pages of memory that nothing is written to take none.
    pub fn zeros(count: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(count)
    }
}

//! The limit of requests by client.

pub mod client;

mod atomics {
    pub use std::sync::atomic::AtomicU64;

    pub use crate::memory::words::Words as Table;

    pub fn zeros(count: usize) -> Table {
        Table::zeros(count)
    }

    /// Prefetches a word into the CPU cache. Does nothing on other architectures.
    #[cfg(target_arch = "x86_64")]
    pub fn prefetch(word: &AtomicU64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: each processor of this architecture has the instruction, which changes nothing but caches.
        #[expect(unsafe_code, reason = "it takes a pointer")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn prefetch(_: &AtomicU64) {}
}

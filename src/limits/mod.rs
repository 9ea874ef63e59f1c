//! The limit of requests by client.

pub mod client;

mod atomics {
    pub use std::sync::atomic::AtomicU64;

    pub use crate::memory::words::Words as Table;

    /// A table of zeros. It is in huge pages: with some hundred clients, each small one has a client.
    pub fn zeros(count: usize) -> Table {
        Table::zeros(count).in_huge_pages()
    }

    /// Has the processor bring a word into its cache, without waiting for it.
    #[cfg(target_arch = "x86_64")]
    pub fn prefetch(word: &AtomicU64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: each processor of this architecture has the instruction, which changes nothing but caches.
        #[expect(unsafe_code, reason = "it takes a pointer")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
        }
    }

    /// On other architectures the first look at the word waits.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn prefetch(_: &AtomicU64) {}
}

//! Large tables of numbers that many threads read and write.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapRaw};

/// Numbers, all of them 0 at first, in pages of their own from the operating system. Pages that are never written to take no
/// memory. An allocator may give memory that was used before, all of which it has to clear.
pub struct Words(MmapRaw);

impl Words {
    /// # Panics
    /// If there is no memory of this size.
    pub fn zeros(count: usize) -> Self {
        Self(MmapMut::map_anon(count * size_of::<AtomicU64>()).expect("memory cannot hold the table").into())
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins with a page")]
        let first = self.0.as_ptr().cast::<AtomicU64>();
        let count = self.0.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping is this long, begins with a page, is there as long as `self`, and any bytes are a number.
        // Nobody reads or writes it but through these slices.
        #[allow(unsafe_code, reason = "no library has a slice of atomics in memory of its own")]
        unsafe {
            std::slice::from_raw_parts(first, count)
        }
    }
}

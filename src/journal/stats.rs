//! What a journal tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a journal has done since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Hits appended.
    pub appended: u64,
    /// Hits that were not recorded for want of room.
    pub not_recorded: u64,
    /// Bytes of all segments on disk, the spare one included.
    pub bytes_on_disk: u64,
    /// The most that `bytes_on_disk` may become.
    pub disk_budget: u64,
    /// Segments on disk, the spare one included.
    pub segments: u64,
    /// Bytes between what was read last and what was appended last, unused ends of old segments
    /// included.
    pub unread_bytes: u64,
    /// Bytes ahead of the writers, in the segment that they append to, whose pages are in memory, ready for writing.
    pub ready_bytes: u64,
}

/// What all segments take on disk.
#[derive(Debug, Default)]
pub(super) struct DiskUse {
    pub bytes: AtomicU64,
    pub segments: AtomicU64,
}

impl DiskUse {
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.segments.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.segments.fetch_sub(1, Ordering::Relaxed);
    }
}

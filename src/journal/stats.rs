//! Statistics of the journal.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the journal was opened, and its current size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Hits appended.
    pub appended: u64,
    /// Hits that were not recorded because there was no space.
    pub not_recorded: u64,
    /// Bytes of all segments on disk, including the spare segment.
    pub bytes_on_disk: u64,
    /// The limit of `bytes_on_disk`.
    pub disk_budget: u64,
    /// Segments on disk, including the spare segment.
    pub segments: u64,
    /// Bytes between the reader's position and the end of the last append, including unused ends of old segments.
    pub unread_bytes: u64,
    /// Bytes ahead of the writers, in the active segment, whose pages are in memory and ready for writing.
    pub ready_bytes: u64,
}

/// The disk space of all segments.
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

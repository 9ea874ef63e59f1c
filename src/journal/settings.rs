//! The journal's settings.

use std::time::Duration;

use super::format::SEGMENT_HEADER_BYTES;
use super::record::MAX_RECORD_BYTES;

/// The shortest segment, in bytes.
pub const MIN_SEGMENT_BYTES: u64 = 4096;

/// The longest segment, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

// Otherwise a record might not fit in a segment.
const _: () = assert!(MIN_SEGMENT_BYTES > (SEGMENT_HEADER_BYTES + MAX_RECORD_BYTES + 16) as u64);

/// How the journal uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The length of a segment in bytes, a multiple of 4096.
    pub segment_bytes: u64,
    /// The limit of all segments' total length in bytes; at least two segments.
    pub disk_budget: u64,
    /// How often appended records are synced to the disk. A power cut loses at most the hits of this time.
    pub sync_interval: Duration,
    /// How long to wait after a segment could not be created before the next attempt.
    pub retry_interval: Duration,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            disk_budget: 2 << 30,
            sync_interval: Duration::from_secs(1),
            retry_interval: Duration::from_millis(100),
        }
    }
}

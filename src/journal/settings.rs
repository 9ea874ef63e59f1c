//! How the journal uses the disk.

use std::time::Duration;

use super::format::SEGMENT_HEADER_BYTES;
use super::record::MAX_RECORD_BYTES;

/// The shortest segment, in bytes.
pub const MIN_SEGMENT_BYTES: u64 = 4096;

/// The longest segment, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

// Else an append could find no room in any segment.
const _: () = assert!(MIN_SEGMENT_BYTES > (SEGMENT_HEADER_BYTES + MAX_RECORD_BYTES + 16) as u64);

/// How the journal uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The length of a segment in bytes, a multiple of 4096.
    pub segment_bytes: u64,
    /// The most that all segments may take together, in bytes; at least two segments.
    pub disk_budget: u64,
    /// How often what was appended is brought to the disk: the most that a power cut takes.
    pub sync_interval: Duration,
    /// How long to leave the disk alone after it had no room.
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

//! `[journal]`: settings of the hit journal.

use std::time::Duration;

use super::{error::SettingError, layers::LayeredSettings};

/// Segments are mapped into memory; this is a multiple of all common page sizes.
const SEGMENT_GRANULE: u64 = 64 * 1024;

/// The hit journal's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Size of a segment file in bytes; a multiple of 64 KiB.
    pub segment_bytes: u64,
    /// Maximum disk space of all segments in bytes; at least two segments.
    pub disk_budget_bytes: u64,
    /// How often the journal is synced to disk.
    pub sync_interval: Duration,
}

impl JournalConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let segment = "journal.segment_bytes";
        let budget = "journal.disk_budget_bytes";
        let journal = Self {
            segment_bytes: settings.integer(segment, SEGMENT_GRANULE..=1 << 30)?,
            disk_budget_bytes: settings.integer(budget, 1..=1 << 50)?,
            sync_interval: settings
                .duration("journal.sync_interval", Duration::from_millis(10)..=Duration::from_mins(1))?,
        };
        if !journal.segment_bytes.is_multiple_of(SEGMENT_GRANULE) {
            let message = format!("{} is not a multiple of {SEGMENT_GRANULE}", journal.segment_bytes);
            return Err(settings.conflict(&[segment], &message));
        }
        // One segment is written while another is read.
        if journal.disk_budget_bytes < 2 * journal.segment_bytes {
            let message = format!(
                "the journal needs space for two segments: {budget} is {}, {segment} is {}",
                journal.disk_budget_bytes, journal.segment_bytes
            );
            return Err(settings.conflict(&[budget, segment], &message));
        }
        Ok(journal)
    }
}

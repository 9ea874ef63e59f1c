//! `[journal]`: the hit journal.

use std::time::Duration;

use super::{error::SettingError, layers::Settings};

/// Segments are mapped into memory; this is a multiple of every page size in common use.
const SEGMENT_GRANULE: u64 = 64 * 1024;

/// The hit journal's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Size of one segment file, in bytes; a multiple of 64 KiB.
    pub segment_bytes: u64,
    /// Most disk space for all segments, in bytes; at least two segments.
    pub disk_budget_bytes: u64,
    /// How often the journal is forced to disk.
    pub sync_interval: Duration,
}

impl Journal {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
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
        // One segment is written while the other is read; with fewer the journal would stand still.
        if journal.disk_budget_bytes < 2 * journal.segment_bytes {
            let message = format!(
                "the journal needs room for two segments: {budget} is {}, {segment} is {}",
                journal.disk_budget_bytes, journal.segment_bytes
            );
            return Err(settings.conflict(&[budget, segment], &message));
        }
        Ok(journal)
    }
}

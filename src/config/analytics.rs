//! `[analytics]`: what is kept of hits.

use super::{error::SettingError, layers::LayeredSettings};

/// A year: days of all links with all their labels take most of a store.
const MAX_SHEET_DAYS: u32 = 366;

/// Settings of analytics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalyticsConfig {
    /// For how many days the labels of each single day are kept; 0: of months alone.
    pub sheet_days: u32,
}

impl AnalyticsConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self { sheet_days: settings.integer("analytics.sheet_days", 0..=MAX_SHEET_DAYS)? })
    }
}

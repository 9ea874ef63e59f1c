//! `[links]`: settings of links.

use std::time::Duration;

use super::{error::SettingError, layers::LayeredSettings};

/// As in the format of durations, a year of which has 365.25 days.
const TEN_YEARS: Duration = Duration::from_hours(10 * 8_766);

/// The settings of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinksConfig {
    /// How long after its expiry a link is deleted; `None`: never.
    pub delete_expired_after: Option<Duration>,
}

impl LinksConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self {
            delete_expired_after: settings
                .duration_or_never("links.delete_expired_after", Duration::ZERO..=TEN_YEARS)?,
        })
    }
}

//! `[telemetry]`: what is told to collectors.

use std::num::NonZeroU32;

use super::http::{BASE_URL, BaseUrl};
use super::{error::SettingError, layers::Settings};

/// Settings for traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// An OpenTelemetry collector's base URL; none: no traces.
    pub otlp_endpoint: Option<BaseUrl>,
    /// Of this many traces one is sent.
    pub otlp_one_in: NonZeroU32,
}

impl Telemetry {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self {
            otlp_endpoint: settings.optional("telemetry.otlp_endpoint", BASE_URL, BaseUrl::parse)?,
            otlp_one_in: NonZeroU32::new(settings.integer("telemetry.otlp_one_in", 1..=1_000_000)?)
                .unwrap_or(NonZeroU32::MIN),
        })
    }
}

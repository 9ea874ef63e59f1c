//! `[telemetry]`: what is told to collectors.

use super::http::{BASE_URL, BaseUrl};
use super::{error::SettingError, layers::Settings};

/// Settings for traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// An OpenTelemetry collector's base URL; none: no traces.
    pub otlp_endpoint: Option<BaseUrl>,
    /// The share of traces that are sent, from 0 to 1.
    pub trace_sample_ratio: f64,
}

impl Telemetry {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self {
            otlp_endpoint: settings.optional("telemetry.otlp_endpoint", BASE_URL, BaseUrl::parse)?,
            trace_sample_ratio: settings.ratio("telemetry.trace_sample_ratio")?,
        })
    }
}

//! `[telemetry]`: settings of traces.

use super::http::{BASE_URL, HttpBaseUrl};
use super::{error::SettingError, layers::LayeredSettings};

/// Settings of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Base URL of an OpenTelemetry collector. `None`: no traces.
    pub otlp_endpoint: Option<HttpBaseUrl>,
    /// The share of traces that are sent, from 0 to 1.
    pub trace_sample_ratio: f64,
}

impl TelemetryConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self {
            otlp_endpoint: settings.optional("telemetry.otlp_endpoint", BASE_URL, HttpBaseUrl::parse)?,
            trace_sample_ratio: settings.ratio("telemetry.trace_sample_ratio")?,
        })
    }
}

//! Metrics of exported spans.

use metrics::Counter;

use super::catalogue::TRACE_SPANS;

/// Counts spans by outcome.
#[derive(Clone, Debug)]
pub struct TraceMeters {
    pub exported: Counter,
    pub failed: Counter,
    pub dropped: Counter,
}

impl TraceMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let outcome = |outcome: &'static str| metrics::counter!(TRACE_SPANS.name, "outcome" => outcome);
        Self { exported: outcome("exported"), failed: outcome("failed"), dropped: outcome("dropped") }
    }
}

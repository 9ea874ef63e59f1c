//! Metrics, logs and traces.

pub mod log_limit;
pub mod logging;
pub mod metrics;
pub mod outage_log;
pub mod traces;

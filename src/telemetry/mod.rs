//! What operators see: metrics and logs.

pub mod logging;
pub mod metrics;

//! Metrics of the store's operations.

use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{STORE_OPERATION_DURATION, STORE_OPERATIONS};

/// The outcome of a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    Ok,
    /// The call worked and was refused, for example because of a conflict or a quota.
    Refused,
    Unavailable,
    Corrupt,
}

impl StoreOutcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
        }
    }
}

/// Counts the calls of one operation.
pub struct OperationMeters {
    ok: Counter,
    refused: Counter,
    unavailable: Counter,
    corrupt: Counter,
    time: Histogram,
}

impl OperationMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register(operation: &'static str) -> Self {
        let outcome = |outcome: StoreOutcome| metrics::counter!(STORE_OPERATIONS.name, "operation" => operation, "outcome" => outcome.name());
        Self {
            ok: outcome(StoreOutcome::Ok),
            refused: outcome(StoreOutcome::Refused),
            unavailable: outcome(StoreOutcome::Unavailable),
            corrupt: outcome(StoreOutcome::Corrupt),
            time: metrics::histogram!(STORE_OPERATION_DURATION.name, "operation" => operation),
        }
    }

    /// A call has ended.
    pub fn ended(&self, outcome: StoreOutcome, time: Duration) {
        let counter = match outcome {
            StoreOutcome::Ok => &self.ok,
            StoreOutcome::Refused => &self.refused,
            StoreOutcome::Unavailable => &self.unavailable,
            StoreOutcome::Corrupt => &self.corrupt,
        };
        counter.increment(1);
        self.time.record(time);
    }
}

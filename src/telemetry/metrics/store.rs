//! What the store is asked, and how it answers.

use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{STORE_OPERATION_DURATION, STORE_OPERATIONS};

/// What became of a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// The store did its work, and the answer is no.
    Refused,
    Unavailable,
    Corrupt,
}

impl Outcome {
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
    /// Must run with the recorder that is to show them.
    pub(super) fn register(operation: &'static str) -> Self {
        let outcome = |outcome: Outcome| metrics::counter!(STORE_OPERATIONS.name, "operation" => operation, "outcome" => outcome.name());
        Self {
            ok: outcome(Outcome::Ok),
            refused: outcome(Outcome::Refused),
            unavailable: outcome(Outcome::Unavailable),
            corrupt: outcome(Outcome::Corrupt),
            time: metrics::histogram!(STORE_OPERATION_DURATION.name, "operation" => operation),
        }
    }

    /// A call has ended.
    pub fn ended(&self, outcome: Outcome, time: Duration) {
        let counter = match outcome {
            Outcome::Ok => &self.ok,
            Outcome::Refused => &self.refused,
            Outcome::Unavailable => &self.unavailable,
            Outcome::Corrupt => &self.corrupt,
        };
        counter.increment(1);
        self.time.record(time);
    }
}

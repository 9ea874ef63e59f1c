//! Metrics of requests with an `Idempotency-Key`.

use metrics::Counter;

use super::catalogue::IDEMPOTENT_REQUESTS;

/// The outcome of a request with an `Idempotency-Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceOutcome {
    Done,
    Replayed,
    InProgress,
    Reused,
}

/// Counts them by outcome.
pub struct OnceMeters {
    done: Counter,
    replayed: Counter,
    in_progress: Counter,
    reused: Counter,
}

impl OnceMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let counter = |outcome: &'static str| metrics::counter!(IDEMPOTENT_REQUESTS.name, "outcome" => outcome);
        Self {
            done: counter("done"),
            replayed: counter("replayed"),
            in_progress: counter("in_progress"),
            reused: counter("reused"),
        }
    }

    pub fn count(&self, outcome: OnceOutcome) {
        let counter = match outcome {
            OnceOutcome::Done => &self.done,
            OnceOutcome::Replayed => &self.replayed,
            OnceOutcome::InProgress => &self.in_progress,
            OnceOutcome::Reused => &self.reused,
        };
        counter.increment(1);
    }
}

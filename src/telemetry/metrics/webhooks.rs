//! Metrics of webhook delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{
    QUOTAS_REFUSED, WEBHOOK_ATTEMPTS, WEBHOOK_DELIVERIES, WEBHOOK_DELIVERY_DELAY, WEBHOOK_FIRST_ATTEMPT_DELAY,
    WEBHOOK_REPLAYS, WEBHOOK_SUSPENSIONS, WEBHOOK_TESTS,
};

/// Buckets of delays in seconds, from a delivery on an idle machine to one after an outage.
pub(super) const DELAY_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 300.0, 3600.0];

/// Counts deliveries and their attempts.
#[derive(Clone)]
pub struct WebhookMeters {
    delivered: Counter,
    failed: Counter,
    quota_exceeded: Counter,
    unsendable: Counter,
    not_sent_to_suspended: Counter,
    quotas_refused: Counter,
    succeeded_attempts: Counter,
    failed_attempts: Counter,
    tests: TestMeters,
    replays: Counter,
    suspensions: Counter,
    first_attempt_delay: Histogram,
    delivery_delay: Histogram,
    queue: Arc<QueueMeters>,
}

/// The last known state of the queue in the store.
#[derive(Debug)]
struct QueueMeters {
    pending: AtomicU64,
    /// Milliseconds since the epoch; `u64::MAX` if no delivery is due.
    first_due: AtomicU64,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The delivery succeeded; this long after its hit, unless it was replayed.
    Delivered(Option<Duration>),
    /// The delivery is retried.
    FailedForNow,
    /// It was the last attempt.
    FailedForGood,
}

/// Why a delivery failed without an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverSent {
    QuotaExceeded,
    /// The stored delivery, its link or its key can't be used.
    Unsendable,
    /// The URL is suspended.
    Suspended,
}

/// The outcome of the test of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutcome {
    Delivered,
    Failed,
    QuotaExceeded,
}

/// Counts tests by outcome.
#[derive(Clone)]
struct TestMeters {
    delivered: Counter,
    failed: Counter,
    quota_exceeded: Counter,
}

impl TestMeters {
    fn register() -> Self {
        let outcome = |outcome: &'static str| metrics::counter!(WEBHOOK_TESTS.name, "outcome" => outcome);
        Self { delivered: outcome("delivered"), failed: outcome("failed"), quota_exceeded: outcome("quota_exceeded") }
    }
}

impl WebhookMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        let outcome = |outcome: &'static str| metrics::counter!(WEBHOOK_DELIVERIES.name, "outcome" => outcome);
        let result = |result: &'static str| metrics::counter!(WEBHOOK_ATTEMPTS.name, "result" => result);
        Self {
            delivered: outcome("delivered"),
            failed: outcome("failed"),
            quota_exceeded: outcome("quota_exceeded"),
            unsendable: outcome("unsendable"),
            not_sent_to_suspended: outcome("suspended"),
            quotas_refused: metrics::counter!(QUOTAS_REFUSED.name, "quota" => "webhook_deliveries"),
            succeeded_attempts: result("success"),
            failed_attempts: result("failure"),
            tests: TestMeters::register(),
            replays: metrics::counter!(WEBHOOK_REPLAYS.name),
            suspensions: metrics::counter!(WEBHOOK_SUSPENSIONS.name),
            first_attempt_delay: metrics::histogram!(WEBHOOK_FIRST_ATTEMPT_DELAY.name),
            delivery_delay: metrics::histogram!(WEBHOOK_DELIVERY_DELAY.name),
            queue: Arc::new(QueueMeters { pending: AtomicU64::new(0), first_due: AtomicU64::new(u64::MAX) }),
        }
    }

    /// A delivery is attempted for the first time, this long after its hit.
    pub fn first_tried(&self, delay: Duration) {
        self.first_attempt_delay.record(delay);
    }

    /// An attempt has ended.
    pub fn attempted(&self, result: AttemptResult) {
        match result {
            AttemptResult::Delivered(delay) => {
                self.succeeded_attempts.increment(1);
                self.delivered.increment(1);
                if let Some(delay) = delay {
                    self.delivery_delay.record(delay);
                }
            }
            AttemptResult::FailedForNow => self.failed_attempts.increment(1),
            AttemptResult::FailedForGood => {
                self.failed_attempts.increment(1);
                self.failed.increment(1);
            }
        }
    }

    pub fn never_sent(&self, why: NeverSent) {
        match why {
            NeverSent::QuotaExceeded => {
                self.quota_exceeded.increment(1);
                self.quotas_refused.increment(1);
            }
            NeverSent::Unsendable => self.unsendable.increment(1),
            NeverSent::Suspended => self.not_sent_to_suspended.increment(1),
        }
    }

    /// A webhook was tested.
    pub fn tested(&self, outcome: TestOutcome) {
        match outcome {
            TestOutcome::Delivered => self.tests.delivered.increment(1),
            TestOutcome::Failed => self.tests.failed.increment(1),
            TestOutcome::QuotaExceeded => {
                self.tests.quota_exceeded.increment(1);
                self.quotas_refused.increment(1);
            }
        }
    }

    /// Deliveries were queued again.
    pub fn replayed(&self, count: u64) {
        self.replays.increment(count);
    }

    /// A URL of a link was suspended.
    pub fn suspended(&self) {
        self.suspensions.increment(1);
    }

    /// The number of deliveries in the queue.
    pub fn set_pending(&self, pending: u64) {
        self.queue.pending.store(pending, Ordering::Relaxed);
    }

    /// When the earliest due delivery became due, in milliseconds since the epoch.
    pub fn set_first_due(&self, first_due_ms: Option<u64>) {
        self.queue.first_due.store(first_due_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Deliveries in the queue when it was last read.
    pub fn pending(&self) -> u64 {
        self.queue.pending.load(Ordering::Relaxed)
    }

    /// How long, at `now_ms`, the earliest due delivery is overdue.
    pub fn overdue(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.queue.first_due.load(Ordering::Relaxed)))
    }
}

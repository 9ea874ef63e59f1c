//! How long actors take to answer messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use metrics::Histogram;

use super::catalogue::ACTOR_MESSAGE_DURATION;

/// Counts the messages to one kind of actor.
#[derive(Clone)]
pub struct ActorMeters {
    waiting: Arc<AtomicU64>,
    time: Histogram,
}

impl ActorMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register(actor: &'static str) -> Self {
        Self { waiting: Arc::default(), time: metrics::histogram!(ACTOR_MESSAGE_DURATION.name, "actor" => actor) }
    }

    /// Meters that no recorder shows.
    pub fn noop() -> Self {
        Self { waiting: Arc::default(), time: Histogram::noop() }
    }

    /// Messages that are not answered yet.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts a message. It waits for its answer until the returned value is dropped.
    #[must_use]
    pub fn ask(&self) -> Asked<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Asked { meters: self, since: Instant::now() }
    }
}

/// A message that waits for its answer.
pub struct Asked<'a> {
    meters: &'a ActorMeters,
    since: Instant,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.meters.waiting.fetch_sub(1, Ordering::Relaxed);
        self.meters.time.record(self.since.elapsed());
    }
}

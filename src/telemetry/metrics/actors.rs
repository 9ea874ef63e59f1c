//! How long actors take to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use metrics::Histogram;

use super::catalogue::ACTOR_MESSAGE_DURATION;

/// Counts the questions to one kind of actors.
#[derive(Clone)]
pub struct ActorMeters {
    waiting: Arc<AtomicU64>,
    time: Histogram,
}

impl ActorMeters {
    /// Must run with the recorder that is to show them.
    pub(super) fn register(actor: &'static str) -> Self {
        Self { waiting: Arc::default(), time: metrics::histogram!(ACTOR_MESSAGE_DURATION.name, "actor" => actor) }
    }

    /// Shown nowhere.
    pub fn noop() -> Self {
        Self { waiting: Arc::default(), time: Histogram::noop() }
    }

    /// Questions that wait for their answer.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A question is asked; it waits until what this answers is dropped.
    #[must_use]
    pub fn ask(&self) -> Asked<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Asked { meters: self, since: Instant::now() }
    }
}

/// A question that waits for its answer.
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

//! How the counting of hits fares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{COUNTING_DURATION, HITS_CONSUMED, HITS_COUNTED};

/// Counts what is read from the journal and what the store has counted.
#[derive(Clone)]
pub struct CountingMeters {
    consumed: Counter,
    counted: Counter,
    batch_time: Histogram,
    /// All hits before this moment are counted; in milliseconds since the epoch.
    counted_upto_ms: Arc<AtomicU64>,
    /// Hits that were read and are not counted.
    in_hand: Arc<AtomicU64>,
}

impl CountingMeters {
    /// Must run with the recorder that is to show them.
    pub(super) fn register() -> Self {
        Self {
            consumed: metrics::counter!(HITS_CONSUMED.name),
            counted: metrics::counter!(HITS_COUNTED.name),
            batch_time: metrics::histogram!(COUNTING_DURATION.name),
            counted_upto_ms: Arc::new(AtomicU64::new(u64::MAX)),
            in_hand: Arc::default(),
        }
    }

    /// Shown nowhere.
    pub fn noop() -> Self {
        Self {
            consumed: Counter::noop(),
            counted: Counter::noop(),
            batch_time: Histogram::noop(),
            counted_upto_ms: Arc::default(),
            in_hand: Arc::default(),
        }
    }

    /// The first hit of a batch was read, which came at this moment; it is not counted before the batch is.
    pub fn began_at(&self, moment_ms: u64) {
        // After a pause of the whole process, hits may wait for longer than this one runs.
        self.counted_upto(moment_ms);
        self.in_hand.store(1, Ordering::Relaxed);
    }

    /// So many hits were read, and are to be counted next.
    pub fn consumed(&self, hits: u64) {
        self.in_hand.store(hits, Ordering::Relaxed);
        self.consumed.increment(hits);
    }

    /// The store has counted what was read.
    pub fn counted(&self, took: Duration) {
        self.counted.increment(self.in_hand.swap(0, Ordering::Relaxed));
        self.batch_time.record(took);
    }

    /// All hits before this moment are counted.
    pub fn counted_upto(&self, moment_ms: u64) {
        self.counted_upto_ms.store(moment_ms, Ordering::Relaxed);
    }

    /// How long, at `now_ms`, the oldest hit waits that is not counted, where there are such in the journal (`unread`). Zero
    /// only where none waits.
    pub fn oldest_age(&self, unread: bool, now_ms: u64) -> Duration {
        if !unread && self.in_hand.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(now_ms.saturating_sub(self.counted_upto_ms.load(Ordering::Relaxed)).max(1))
    }
}

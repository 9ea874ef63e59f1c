//! Metrics of hit counting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{BOT_HITS_COUNTED, COUNTING_DURATION, HITS_CONSUMED, HITS_COUNTED};

/// The kinds of bots by which hits are counted, in the order of their codes.
pub const BOT_KINDS: [&str; 6] = ["prefetch", "preview", "crawler", "monitor", "scanner", "tool"];

/// Hits by kind of bot.
pub type BotHits = [u64; BOT_KINDS.len()];

/// Counts the hits that are read from the journal and those that the store has counted.
#[derive(Clone)]
pub struct CountingMeters {
    consumed: Counter,
    counted: Counter,
    counted_of_bots: [Counter; BOT_KINDS.len()],
    batch_time: Histogram,
    /// All hits before this time are counted; in milliseconds since the epoch.
    counted_upto_ms: Arc<AtomicU64>,
    /// Hits that are read and not counted yet.
    uncounted: Arc<AtomicU64>,
    /// Those of them that bots made.
    uncounted_bots: Arc<[AtomicU64; BOT_KINDS.len()]>,
}

impl CountingMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register() -> Self {
        Self {
            consumed: metrics::counter!(HITS_CONSUMED.name),
            counted: metrics::counter!(HITS_COUNTED.name),
            counted_of_bots: BOT_KINDS.map(|kind| metrics::counter!(BOT_HITS_COUNTED.name, "kind" => kind)),
            batch_time: metrics::histogram!(COUNTING_DURATION.name),
            counted_upto_ms: Arc::new(AtomicU64::new(u64::MAX)),
            uncounted: Arc::default(),
            uncounted_bots: Arc::default(),
        }
    }

    /// Meters that no recorder shows.
    pub fn noop() -> Self {
        Self {
            consumed: Counter::noop(),
            counted: Counter::noop(),
            counted_of_bots: BOT_KINDS.map(|_| Counter::noop()),
            batch_time: Histogram::noop(),
            counted_upto_ms: Arc::default(),
            uncounted: Arc::default(),
            uncounted_bots: Arc::default(),
        }
    }

    /// The first hit of a batch was read. It occurred at `moment_ms`, and is counted with the batch.
    pub fn began_at(&self, moment_ms: u64) {
        // After a pause of the whole process, hits may be older than this run of it.
        self.counted_upto(moment_ms);
        self.uncounted.store(1, Ordering::Relaxed);
    }

    /// So many hits were read, and so many of them were made by bots; they are counted next.
    pub fn consumed(&self, hits: u64, of_bots: BotHits) {
        self.uncounted.store(hits, Ordering::Relaxed);
        self.uncounted_bots.iter().zip(of_bots).for_each(|(uncounted, hits)| uncounted.store(hits, Ordering::Relaxed));
        self.consumed.increment(hits);
    }

    /// The store has counted the hits that were read.
    pub fn counted(&self, took: Duration) {
        self.counted.increment(self.uncounted.swap(0, Ordering::Relaxed));
        for (counted, uncounted) in self.counted_of_bots.iter().zip(&*self.uncounted_bots) {
            counted.increment(uncounted.swap(0, Ordering::Relaxed));
        }
        self.batch_time.record(took);
    }

    /// All hits before this time are counted.
    pub fn counted_upto(&self, moment_ms: u64) {
        self.counted_upto_ms.store(moment_ms, Ordering::Relaxed);
    }

    /// The age, at `now_ms`, of the oldest uncounted hit. `unread` says whether the journal has unread hits. Zero
    /// only if no hit is uncounted.
    pub fn oldest_age(&self, unread: bool, now_ms: u64) -> Duration {
        if !unread && self.uncounted.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(now_ms.saturating_sub(self.counted_upto_ms.load(Ordering::Relaxed)).max(1))
    }
}

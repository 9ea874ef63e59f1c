//! The feed of live streams: the hits of links and keys that somebody listens to, from this node and from others.
//!
//! The hit counter notes hits before it counts them, so that each is noted also over a crash; a hit that is noted again has
//! the same position. `docs/design/hit-stream.md` tells how it all goes together.

mod capture;
mod cursor;
mod listeners;
mod order;
mod place;
mod ring;
mod rings;
mod skipped;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

pub use self::capture::HitCapture;
pub use self::cursor::{StreamCursor, StreamEvent, StreamEventKind};
use self::listeners::Listeners;
use self::order::in_order;
pub use self::place::StreamPlace;
use self::ring::Ring;
pub use self::ring::RingEntry;
use self::rings::Rings;
use self::skipped::SkippedEntries;
use crate::domain::hit::{HitSubject, NodeId, Position};
use crate::domain::live_hit::LiveEntry;
use crate::store::hit_streams::NotesReadUpto;
use crate::store::{HitStreamStore, StoreError};

/// How often the hits of other nodes are read while there are streams, and what is too old is dropped.
const READ_EVERY: Duration = Duration::from_millis(500);
/// How often listeners are made known again. They are known for 90 s, and a client may come back within 60 s.
const KNOWN_AGAIN_AFTER: Duration = Duration::from_secs(20);
/// How long hits are kept for a client that comes back: 60 s, and some for its way.
const KEPT_FOR: Duration = Duration::from_secs(70);
/// The memory of the kept hits, in bytes.
const KEPT_BYTES: usize = 64 << 20;

/// Passes hits on to live streams.
pub struct HitFeed {
    store: Arc<dyn HitStreamStore>,
    node: NodeId,
    rings: Rings,
    skipped: SkippedEntries,
    listeners: Listeners,
    /// `Some` while the notes of other nodes are read.
    following: Mutex<Option<HashMap<Uuid, i64>>>,
    counts: FeedCounts,
}

/// What streams were sent since the start.
#[derive(Debug, Default)]
pub struct FeedCounts {
    hits: AtomicU64,
    left_out: AtomicU64,
}

/// A stream that listens to a link or key until it is dropped.
pub struct FeedStream {
    pub cursor: StreamCursor,
    _listening: Listening,
}

struct Listening {
    feed: Arc<HitFeed>,
    ring: Arc<Ring>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ring.closed();
        self.feed.update_listened();
    }
}

impl HitFeed {
    /// `store` has what other nodes note, and what earlier lives of this one have noted.
    pub fn new(store: Arc<dyn HitStreamStore>, node: NodeId) -> Self {
        Self {
            store,
            node,
            rings: Rings::new(KEPT_FOR, KEPT_BYTES),
            skipped: SkippedEntries::default(),
            listeners: Listeners::default(),
            following: Mutex::default(),
            counts: FeedCounts::default(),
        }
    }

    pub fn counts(&self) -> &FeedCounts {
        &self.counts
    }

    /// How many streams are open on this node.
    pub fn open_streams(&self) -> u64 {
        self.rings.open_streams()
    }

    /// What the hit counter notes hits with.
    pub fn capture(self: &Arc<Self>) -> HitCapture {
        HitCapture::new(Arc::clone(self))
    }

    /// Up to where the hits of a link or key that this node has journaled were noted.
    fn noted_upto(&self, of: HitSubject) -> Position {
        self.rings.noted_upto(of, self.node).unwrap_or_default()
    }

    /// Learns who listens on other nodes, unless that is known well enough. A stream may have begun 2 s before a hit that
    /// is counted next.
    ///
    /// # Errors
    /// If it is not known for too long.
    pub async fn learn_listeners(&self) -> Result<(), StoreError> {
        if self.listeners.are_fresh() {
            return Ok(());
        }
        let asked_at = Instant::now();
        match self.store.listened_subjects().await {
            Ok(subjects) => {
                if self.listeners.are_unknown() && !subjects.is_empty() {
                    // What an earlier life of this node has noted comes before what is noted next.
                    self.begin_following().await?;
                }
                self.listeners.learned(subjects, asked_at);
                self.update_listened();
                Ok(())
            }
            Err(error) if self.listeners.are_known_well_enough() => {
                tracing::debug!(%error, "can't read who listens to hits");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes hits that the hit counter has noted to the streams of all nodes. After an error, the same are to be published
    /// again.
    pub async fn publish(&self, entries: &[LiveEntry]) -> Result<(), StoreError> {
        if !entries.is_empty() {
            let skipped = self.skipped.entries();
            let all = skipped.iter().chain(entries).cloned().collect();
            self.store.note_live_hits(self.node, all).await?;
            self.skipped.clear();
        }
        self.publish_locally(entries);
        Ok(())
    }

    fn publish_locally(&self, entries: &[LiveEntry]) {
        self.rings.add(self.node, entries.iter().cloned());
    }

    /// Publishes hits to the streams of this node only. The streams of other nodes get, with the next hits, the number of those that were skipped.
    pub fn publish_locally_only(&self, entries: &[LiveEntry]) {
        self.skipped.add(entries);
        self.publish_locally(entries);
    }

    /// Begins a stream. `after`: the place at which an earlier stream ended. The stream gets every hit from 2 s after this call returned,
    /// or the number of skipped hits; with `after`, also all hits since that place that are still kept.
    ///
    /// # Errors
    /// If the listeners of this node can't be published, or the hits of others can't be read.
    pub async fn listen(
        self: &Arc<Self>,
        of: HitSubject,
        after: Option<StreamPlace>,
    ) -> Result<FeedStream, StoreError> {
        let ring = self.rings.open(of);
        let listening = Listening { feed: Arc::clone(self), ring: Arc::clone(&ring) };
        self.update_listened();
        self.store.note_listeners(vec![of]).await?;
        self.begin_following().await?;
        Ok(FeedStream { cursor: StreamCursor::new(ring, after), _listening: listening })
    }

    /// Begins to read the notes of others, if that has not begun.
    async fn begin_following(&self) -> Result<(), StoreError> {
        let mut following = self.following.lock().await;
        if following.is_none() {
            let mut read = HashMap::new();
            self.read_others(&mut read).await?;
            *following = Some(read);
        }
        Ok(())
    }

    /// Reads what other nodes note, and drops what is too old, for as long as the process runs.
    pub async fn run(&self) {
        let mut ticks = interval(READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known_at = Instant::now();
        loop {
            ticks.tick().await;
            self.rings.drop_old();
            self.update_listened();
            if known_at.elapsed() >= KNOWN_AGAIN_AFTER && self.note_listeners().await {
                known_at = Instant::now();
            }
            if let Err(error) = self.follow().await {
                tracing::debug!(%error, "can't read the hits of other nodes for live streams");
            }
        }
    }

    /// Makes the listeners of this node known again; returns whether that succeeded.
    async fn note_listeners(&self) -> bool {
        let subjects = self.rings.subjects_with_streams();
        let noted = if subjects.is_empty() { Ok(()) } else { self.store.note_listeners(subjects).await };
        noted.inspect_err(|error| tracing::debug!(%error, "can't publish the listeners of this node")).is_ok()
    }

    /// Reads the notes of other nodes, as long as there are streams or clients that may come back.
    async fn follow(&self) -> Result<(), StoreError> {
        let mut following = self.following.lock().await;
        if !self.rings.have_listeners() {
            *following = None;
        }
        match &mut *following {
            Some(read) => self.read_others(read).await,
            None => Ok(()),
        }
    }

    async fn read_others(&self, read: &mut HashMap<Uuid, i64>) -> Result<(), StoreError> {
        let after = read.iter().map(|(life, number)| NotesReadUpto { life: *life, number: *number }).collect();
        for noted in in_order(self.store.live_hits(after).await?) {
            let upto = read.entry(noted.upto.life).or_default();
            *upto = noted.upto.number.max(*upto);
            self.rings.add(noted.node, noted.entries.into_iter());
        }
        Ok(())
    }

    fn update_listened(&self) {
        self.listeners.update(|| self.rings.listened_subjects());
    }
}

impl FeedCounts {
    /// Hits that were sent, to each stream.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Hits that were left out of streams, where their number is known.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    pub fn sent(&self, events: &[StreamEvent]) {
        for event in events {
            match event.kind {
                StreamEventKind::Hit(_) => self.hits.fetch_add(1, Ordering::Relaxed),
                StreamEventKind::LeftOut(count) => self.left_out.fetch_add(count.unwrap_or(0), Ordering::Relaxed),
            };
        }
    }
}

#[cfg(test)]
mod tests;

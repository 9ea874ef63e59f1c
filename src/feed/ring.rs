//! The recent hits of one link or key, for all of its streams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::place::StreamPlace;
use crate::domain::hit::{NodeId, Position};
use crate::domain::live_hit::{LiveEntry, LiveEvent, LiveHit};
use crate::locks::lock;

/// The memory of an entry beside its texts, in bytes. Its text as an event is about as long as all else.
const ENTRY_BYTES: usize = 768;

/// A hit, or hits that were left out.
pub struct RingEntry {
    pub node: NodeId,
    pub position: Position,
    /// As [`LiveEntry::after`].
    pub after: Option<Position>,
    pub event: LiveEvent,
    /// The text that all streams send, once it is made.
    pub text: OnceLock<Bytes>,
}

impl RingEntry {
    pub fn new(node: NodeId, entry: LiveEntry) -> Self {
        let LiveEntry { of: _, position, after, event } = entry;
        Self { node, position, after, event, text: OnceLock::new() }
    }

    /// The hit, if it was not left out.
    pub fn hit(&self) -> Option<&LiveHit> {
        match &self.event {
            LiveEvent::Hit(hit) => Some(hit),
            LiveEvent::LeftOut(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        match &self.event {
            LiveEvent::Hit(hit) => ENTRY_BYTES + 2 * hit.text_bytes(),
            LiveEvent::LeftOut(_) => ENTRY_BYTES,
        }
    }
}

/// The recent hits of a link or key: in the order of each node's journal, and as they came.
pub struct Ring {
    state: Mutex<RingState>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
pub struct RingState {
    pub entries: VecDeque<Arc<RingEntry>>,
    /// The number of the first entry.
    pub first: u64,
    /// Hits of the entries that were dropped, and of all entries.
    pub dropped_hits: u64,
    pub all_hits: u64,
    /// How far entries were dropped.
    pub dropped: StreamPlace,
    /// How far entries were added.
    pub added: StreamPlace,
    /// Streams that listen now.
    open: usize,
    /// When the last one ended.
    ended_at: Option<Instant>,
    /// Whether entries were added since streams were last woken.
    is_changed: bool,
}

impl RingState {
    /// The number of the next entry.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Ring {
    pub fn state(&self) -> MutexGuard<'_, RingState> {
        lock(&self.state)
    }

    /// Notified when entries are added.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Adds an entry, unless it was added before. Returns its bytes, and whether streams are to be woken for it.
    pub fn add(&self, entry: RingEntry) -> Option<(usize, bool)> {
        let mut state = self.state();
        if state.added.of(entry.node).is_some_and(|added| entry.position <= added) {
            return None;
        }
        state.added.advance_to(entry.node, entry.position);
        state.all_hits += entry.event.hits();
        let bytes = entry.bytes();
        state.entries.push_back(Arc::new(entry));
        Some((bytes, !std::mem::replace(&mut state.is_changed, true)))
    }

    pub fn wake_streams(&self) {
        self.state().is_changed = false;
        self.changed.send_replace(());
    }

    /// Drops the first entry.
    pub fn drop_first(&self) {
        let mut state = self.state();
        if let Some(entry) = state.entries.pop_front() {
            state.first += 1;
            state.dropped_hits += entry.event.hits();
            state.dropped.advance_to(entry.node, entry.position);
        }
    }

    pub fn opened(&self) {
        self.state().open += 1;
    }

    pub fn closed(&self) {
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        state.ended_at = Some(Instant::now());
    }

    pub fn open_streams(&self) -> usize {
        self.state().open
    }

    /// Whether streams listen, or the last one ended less than `kept_for` ago.
    pub fn is_listened(&self, kept_for: Duration) -> bool {
        let state = self.state();
        state.open > 0 || state.ended_at.is_some_and(|at| at.elapsed() < kept_for)
    }

    pub fn is_empty(&self) -> bool {
        self.state().entries.is_empty()
    }
}

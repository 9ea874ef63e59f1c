//! One stream's way through the recent hits.

use std::sync::Arc;

use tokio::sync::watch;

use super::place::StreamPlace;
use super::ring::{Ring, RingEntry, RingState};
use crate::domain::live_hit::LiveEvent;

/// How many hits more than ever before may wait for a stream: some two seconds' worth. If more wait, the oldest are left out, so
/// that a stream stays live. Hits that waited when the stream began may all be sent.
const MAX_BACKLOG_GROWTH: u64 = 250;

/// What a stream tells its client.
pub struct StreamEvent {
    pub kind: StreamEventKind,
    /// The text of the place behind it.
    pub id: String,
}

pub enum StreamEventKind {
    Hit(Arc<RingEntry>),
    /// So many hits were left out; `None`: it is not known how many, if any.
    LeftOut(Option<u64>),
}

/// One stream's way through the recent hits of a link or key.
pub struct StreamCursor {
    ring: Arc<Ring>,
    changes: watch::Receiver<()>,
    /// The number of the next entry.
    next: u64,
    /// Hits of all entries before it.
    hits_before: u64,
    place: StreamPlace,
    /// The smallest number of entries that have waited so far.
    smallest_backlog: u64,
    /// Whether it goes on at the place of an earlier stream, and hits may turn out to be missing.
    is_resumed: bool,
    left_out: LeftOut,
}

/// Hits that were left out since the last event.
#[derive(Clone, Copy, Default)]
struct LeftOut {
    count: u64,
    is_unknown: bool,
}

impl LeftOut {
    fn take(&mut self) -> Option<StreamEventKind> {
        let Self { count, is_unknown } = std::mem::take(self);
        (count > 0 || is_unknown).then(|| StreamEventKind::LeftOut((!is_unknown).then_some(count)))
    }
}

impl StreamCursor {
    /// Begins behind all hits, or after the place of an earlier stream.
    pub(super) fn new(ring: Arc<Ring>, after: Option<StreamPlace>) -> Self {
        let changes = ring.changes();
        let state = ring.state();
        let is_resumed = after.is_some();
        let (next, hits_before, place, left_out) = match after {
            None => (state.end(), state.all_hits, state.added.clone(), LeftOut::default()),
            Some(mut place) => {
                let is_unknown = !place.covers(&state.dropped);
                place.merge(&state.dropped);
                (state.first, state.dropped_hits, place, LeftOut { count: 0, is_unknown })
            }
        };
        let smallest_backlog = state.end() - next;
        drop(state);
        let mut cursor = Self { ring, changes, next, hits_before, place, smallest_backlog, is_resumed, left_out };
        cursor.skip_sent();
        cursor
    }

    /// Skips the first entries that the client already has. So entries that are dropped later are always new to it.
    fn skip_sent(&mut self) {
        let ring = Arc::clone(&self.ring);
        let state = ring.state();
        while let Some(entry) = self.entry(&state)
            && self.place.of(entry.node).is_some_and(|sent_upto| entry.position <= sent_upto)
        {
            self.pass(entry);
        }
    }

    /// How far hits were sent to the client.
    pub fn place(&self) -> &StreamPlace {
        &self.place
    }

    /// Waits until there may be more to send.
    pub async fn changed(&mut self) {
        // The sender is in the ring.
        let _ = self.changes.changed().await;
    }

    /// Whether there is more to send.
    pub fn has_more(&self) -> bool {
        self.next < self.ring.state().end()
    }

    /// Takes what is to be sent next, at most `most` hits.
    pub fn take(&mut self, most: usize) -> Vec<StreamEvent> {
        self.changes.mark_unchanged();
        let ring = Arc::clone(&self.ring);
        let state = ring.state();
        self.leave_out_dropped(&state);
        self.leave_out_oldest(&state);
        let mut events = Vec::new();
        let mut hits = 0;
        while hits < most
            && let Some(entry) = self.entry(&state)
        {
            if !self.pass(entry) {
                continue;
            }
            match &entry.event {
                LiveEvent::LeftOut(count) => self.left_out.count += count,
                LiveEvent::Hit(_) => {
                    events.extend(self.left_out.take().map(|left_out| self.event(left_out)));
                    self.place.advance_to(entry.node, entry.position);
                    events.push(self.event(StreamEventKind::Hit(Arc::clone(entry))));
                    hits += 1;
                    continue;
                }
            }
            self.place.advance_to(entry.node, entry.position);
        }
        self.smallest_backlog = self.smallest_backlog.min(state.end() - self.next);
        events.extend(self.left_out.take().map(|left_out| self.event(left_out)));
        events
    }

    fn event(&self, kind: StreamEventKind) -> StreamEvent {
        StreamEvent { kind, id: self.place.to_text() }
    }

    fn entry<'a>(&self, state: &'a RingState) -> Option<&'a Arc<RingEntry>> {
        let at = usize::try_from(self.next.checked_sub(state.first)?).ok()?;
        state.entries.get(at)
    }

    /// Goes past an entry; returns whether it was not sent to the client before.
    fn pass(&mut self, entry: &RingEntry) -> bool {
        self.next += 1;
        self.hits_before += entry.event.hits();
        let sent_upto = self.place.of(entry.node);
        if sent_upto.is_some_and(|sent_upto| entry.position <= sent_upto) {
            return false;
        }
        if self.is_resumed && sent_upto.is_some_and(|sent_upto| entry.after.is_none_or(|after| after > sent_upto)) {
            self.left_out.is_unknown = true;
        }
        true
    }

    /// Leaves out what was dropped before its turn: the client reads too slowly.
    fn leave_out_dropped(&mut self, state: &RingState) {
        if self.next < state.first {
            self.left_out.count += state.dropped_hits - self.hits_before;
            (self.next, self.hits_before) = (state.first, state.dropped_hits);
            self.place.merge(&state.dropped);
        }
    }

    /// Leaves out the oldest if too many wait.
    fn leave_out_oldest(&mut self, state: &RingState) {
        let end_of_excess = state.end().saturating_sub(self.smallest_backlog + MAX_BACKLOG_GROWTH);
        while self.next < end_of_excess
            && let Some(entry) = self.entry(state)
        {
            if self.pass(entry) {
                self.left_out.count += entry.event.hits();
                self.place.advance_to(entry.node, entry.position);
            }
        }
    }
}

//! The position of the poller in the queue of due deliveries.
//!
//! The store has the queue, ordered by due time. A delivery without a free slot is passed over, and the position of its
//! flow's first one is remembered, so that a flow's backlog is not read again and again to reach the deliveries behind
//! it. Each round goes on where the last one stopped, and goes back only for flows that have free slots again. For a
//! barred key only the first position is remembered.

use std::hash::Hash;

use super::maps::Map;
use super::scheduler::Flow;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::{DueDelivery, DuePlace};

/// A position in the queue: behind a delivery, or the head of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePlace(Option<(Timestamp, [u8; 32])>);

impl QueuePlace {
    fn behind(due: &DueDelivery) -> Self {
        Self(Some((due.due_at, due.id.to_bytes())))
    }

    /// The position before all deliveries that are due at `time` or later.
    fn before(time: Timestamp) -> Self {
        let last = DeliveryId {
            link: ShortId([b'z'; ShortId::LENGTH]),
            hit: HitStamp { id: HitId(uuid::Uuid::max()), at: Timestamp(0) },
            url_index: u8::MAX,
        };
        Self(time.0.checked_sub(1).map(|earlier| (Timestamp(earlier), last.to_bytes())))
    }

    fn as_due(&self) -> Option<DuePlace> {
        let (due_at, id) = self.0?;
        // The bytes are those of a delivery, by the two functions above.
        Some(DuePlace { due_at, id: DeliveryId::from_bytes(&id)? })
    }
}

/// The position behind all deliveries that are due at `time` or earlier, in the form of [`QueueScan::next_page`].
pub fn behind_all_until(time: Timestamp) -> Option<DuePlace> {
    QueuePlace::before(Timestamp(time.0.saturating_add(1))).as_due()
}

/// What to do with a due delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundDelivery {
    /// Begin it, if there is a free slot; otherwise call [`QueueScan::passed_over`] or [`QueueScan::barred`].
    Consider,
    /// It was passed over before, and there was no free slot for it since.
    StillBusy,
}

/// The position of the poller in the queue.
#[derive(Debug, Default)]
pub struct QueueScan {
    /// All deliveries before this position were read: they are in flight, or were passed over.
    seen: QueuePlace,
    /// By flow: the position before its first delivery that was passed over.
    passed_over: Map<Flow, QueuePlace>,
    /// The flows of them that may have free slots again, and the position from which to look for their deliveries.
    recalled: Map<Flow, QueuePlace>,
    /// By key: the position before the first delivery that was passed over since the key was barred.
    barred: Map<KeyId, QueuePlace>,
    /// The keys of them that are no longer barred, and the position from which to look for their deliveries.
    recalled_keys: Map<KeyId, QueuePlace>,
    /// The first of these positions: no delivery before it can begin.
    goal: QueuePlace,
    /// The position of this round.
    at: QueuePlace,
}

impl QueueScan {
    /// Starts again at the head of the queue: deliveries that were taken may not have started.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Deliveries that are due at `time` or later were put into the queue after it was read.
    pub fn queued_from(&mut self, time: Timestamp) {
        self.seen = self.seen.min(QueuePlace::before(time));
    }

    /// A flow has free slots again. Returns whether one of its deliveries was passed over.
    pub fn recall_flow(&mut self, flow: &Flow) -> bool {
        move_position(&mut self.passed_over, &mut self.recalled, flow);
        self.recalled.contains_key(flow)
    }

    /// A key is no longer barred. Returns whether one of its deliveries was passed over.
    pub fn recall_key(&mut self, key: KeyId) -> bool {
        move_position(&mut self.barred, &mut self.recalled_keys, &key);
        self.recalled_keys.contains_key(&key)
    }

    /// Whether deliveries of a flow wait in the queue for a free slot.
    pub fn has_passed_over(&self, flow: &Flow) -> bool {
        let of_flow = self.passed_over.contains_key(flow) || self.recalled.contains_key(flow);
        of_flow || self.barred.contains_key(&flow.owner) || self.recalled_keys.contains_key(&flow.owner)
    }

    /// All deliveries of a key that were passed over are read again.
    pub fn recall_all_of(&mut self, key: KeyId) {
        let flows: Vec<Flow> = self.passed_over.keys().filter(|flow| flow.owner == key).cloned().collect();
        for flow in flows {
            self.recall_flow(&flow);
        }
        self.recall_key(key);
    }

    fn find_goal(&mut self) {
        self.goal = self.recalled.values().chain(self.recalled_keys.values()).copied().fold(self.seen, QueuePlace::min);
    }

    /// Starts a round at the first delivery that may be able to begin.
    pub fn begin_round(&mut self) {
        self.find_goal();
        self.at = self.goal;
    }

    /// The position from which to read the next page.
    pub fn next_page(&mut self) -> Option<DuePlace> {
        // Between the two positions nothing has changed.
        self.at = self.at.max(self.goal);
        self.at.as_due()
    }

    /// Whether to go on at [`next_page`](Self::next_page) instead of reading this page to its end.
    pub fn is_skipping(&self) -> bool {
        self.at < self.goal
    }

    /// Decides about the next delivery in the queue.
    pub fn look_at(&self, due: &DueDelivery, flow: &Flow) -> FoundDelivery {
        let is_new = || QueuePlace::behind(due) > self.seen;
        // Deliveries behind the first passed-over one of a flow wait for that flow, even if the key is recalled.
        let is_of_key = || self.passed_over.get(flow).is_none_or(|place| *place > self.at);
        let is_recalled =
            || self.recalled.contains_key(flow) || (self.recalled_keys.contains_key(&flow.owner) && is_of_key());
        if is_new() || is_recalled() { FoundDelivery::Consider } else { FoundDelivery::StillBusy }
    }

    /// The current delivery does not begin now: its flow has no free slot.
    pub fn passed_over(&mut self, flow: &Flow) {
        lower(&mut self.passed_over, flow, self.at);
        if self.recalled.remove(flow).is_some() {
            self.find_goal();
        }
    }

    /// As [`passed_over`](Self::passed_over), for a delivery that was read in this round or before.
    pub fn passed_over_at(&mut self, due: &DueDelivery, flow: &Flow) {
        let place = QueuePlace::before(due.due_at);
        let place = self.recalled.remove(flow).map_or(place, |recalled| recalled.min(place));
        lower(&mut self.passed_over, flow, place);
    }

    /// The current delivery does not begin now: its key is barred.
    pub fn barred(&mut self, key: KeyId) {
        lower(&mut self.barred, &key, self.at);
        if self.recalled_keys.remove(&key).is_some() {
            self.find_goal();
        }
    }

    /// As [`barred`](Self::barred), for a delivery that was read in this round or before.
    pub fn barred_at(&mut self, due: &DueDelivery, key: KeyId) {
        let place = QueuePlace::before(due.due_at);
        let place = self.recalled_keys.remove(&key).map_or(place, |recalled| recalled.min(place));
        lower(&mut self.barred, &key, place);
    }

    /// Moves behind `due`.
    pub fn step(&mut self, due: &DueDelivery) {
        self.at = QueuePlace::behind(due);
    }

    /// Ends a round; `is_at_end` if nothing more is due now.
    pub fn end_round(&mut self, is_at_end: bool) {
        if is_at_end {
            self.at = self.at.max(self.seen);
        }
        if self.at < self.seen {
            // The round stopped before the end: the next one looks for recalled flows and keys from here.
            for place in self.recalled.values_mut().chain(self.recalled_keys.values_mut()) {
                *place = self.at.max(*place);
            }
        } else {
            self.seen = self.at;
            self.recalled.clear();
            self.recalled_keys.clear();
        }
    }

    /// The approximate due time of the first delivery that was passed over.
    pub fn first_passed_over(&self) -> Option<Timestamp> {
        let places = self.passed_over.values().chain(self.barred.values());
        places.filter_map(|place| place.0.map(|(due_at, _)| due_at)).min()
    }

    /// Whether deliveries that were passed over can begin.
    pub fn has_recalled(&self) -> bool {
        !self.recalled.is_empty() || !self.recalled_keys.is_empty()
    }
}

/// Moves a position from one map to the other; if both have one, the first position counts.
fn move_position<K: Clone + Eq + Hash>(from: &mut Map<K, QueuePlace>, to: &mut Map<K, QueuePlace>, of: &K) {
    if let Some(place) = from.remove(of) {
        lower(to, of, place);
    }
}

fn lower<K: Clone + Eq + Hash>(places: &mut Map<K, QueuePlace>, of: &K, place: QueuePlace) {
    match places.get_mut(of) {
        Some(known) => *known = place.min(*known),
        None => drop(places.insert(of.clone(), place)),
    }
}

#[cfg(test)]
mod tests;

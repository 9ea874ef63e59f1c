//! Where the look through the queue of due deliveries stands.
//!
//! The queue is in the store, in the order of due times. A delivery whose flow has no room is passed over, and the flow's
//! place is remembered, so that a flow's backlog is not read again and again to get at the deliveries behind it: each round
//! goes on where the last one stopped, and goes back only for flows that have room again. Of a key that is barred only the
//! first place is remembered.

use std::collections::HashMap;
use std::hash::Hash;

use super::scheduler::Flow;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::DueDelivery;

/// A place in the queue: right behind a delivery, or the queue's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePlace(Option<(Timestamp, [u8; 32])>);

impl QueuePlace {
    fn behind(due: &DueDelivery) -> Self {
        Self(Some((due.due_at, due.id.to_bytes())))
    }

    /// In front of everything that is due at `time` or later.
    fn before(time: Timestamp) -> Self {
        let last = DeliveryId {
            link: ShortId([b'z'; ShortId::LENGTH]),
            hit: HitStamp { id: HitId(uuid::Uuid::max()), at: Timestamp(0) },
            url_index: u8::MAX,
        };
        Self(time.0.checked_sub(1).map(|earlier| (Timestamp(earlier), last.to_bytes())))
    }

    fn as_due(&self) -> Option<DueDelivery> {
        let (due_at, id) = self.0?;
        // The bytes are those of a delivery, by the two functions above.
        Some(DueDelivery { due_at, id: DeliveryId::from_bytes(&id)? })
    }
}

/// A place in the queue behind everything that is due at `time` or earlier, as [`QueueScan::next_page`] tells places.
pub fn behind_all_until(time: Timestamp) -> Option<DueDelivery> {
    QueuePlace::before(Timestamp(time.0.saturating_add(1))).as_due()
}

/// What is to be done with a delivery that was found due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundDelivery {
    /// Begin it, if its flow has room; tell [`QueueScan::passed_over`] or [`QueueScan::barred`] if not.
    Consider,
    /// It was passed over before, and its flow has no room since.
    StillBusy,
}

/// Where the look through the queue stands.
#[derive(Debug, Default)]
pub struct QueueScan {
    /// Everything in front of here was looked at: it is under way, or was passed over.
    seen: QueuePlace,
    /// By flow: the place in front of its first delivery that was passed over.
    passed_over: HashMap<Flow, QueuePlace>,
    /// Those of them that have room again, and where to look for theirs.
    recalled: HashMap<Flow, QueuePlace>,
    /// By key: the place in front of the first delivery that was passed over since the key was barred.
    barred: HashMap<KeyId, QueuePlace>,
    /// Those of them that are not barred any more, and where to look for theirs.
    recalled_keys: HashMap<KeyId, QueuePlace>,
    /// Where the first delivery may be that can be begun: the first of these places.
    goal: QueuePlace,
    /// Where this round reads.
    at: QueuePlace,
}

impl QueueScan {
    /// Begins anew at the queue's head: what was taken from the queue may not have been begun.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// There are deliveries that were put into the queue after it was looked at, due at `time` or later.
    pub fn queued_from(&mut self, time: Timestamp) {
        self.seen = self.seen.min(QueuePlace::before(time));
    }

    /// A flow has room again. Answers whether one of its deliveries was passed over.
    pub fn has_room(&mut self, flow: &Flow) -> bool {
        move_place(&mut self.passed_over, &mut self.recalled, flow);
        self.recalled.contains_key(flow)
    }

    /// A key is not barred any more. Answers whether one of its deliveries was passed over.
    pub fn key_has_room(&mut self, key: KeyId) -> bool {
        move_place(&mut self.barred, &mut self.recalled_keys, &key);
        self.recalled_keys.contains_key(&key)
    }

    /// All deliveries of a key that were passed over are to be looked at again.
    pub fn recall_all_of(&mut self, key: KeyId) {
        let flows: Vec<Flow> = self.passed_over.keys().filter(|flow| flow.owner == key).cloned().collect();
        for flow in flows {
            self.has_room(&flow);
        }
        self.key_has_room(key);
    }

    fn find_goal(&mut self) {
        self.goal = self.recalled.values().chain(self.recalled_keys.values()).copied().fold(self.seen, QueuePlace::min);
    }

    /// Begins a round, where the first delivery is that might be begun now.
    pub fn begin_round(&mut self) {
        self.find_goal();
        self.at = self.goal;
    }

    /// Behind which delivery to read on.
    pub fn next_page(&mut self) -> Option<DueDelivery> {
        // Between here and there nothing has changed.
        self.at = self.at.max(self.goal);
        self.at.as_due()
    }

    /// Whether to go on at [`next_page`](Self::next_page) instead of reading this page to its end.
    pub fn skips_on(&self) -> bool {
        self.at < self.goal
    }

    /// Looks at the next delivery in the queue.
    pub fn look_at(&self, due: &DueDelivery, flow: &Flow) -> FoundDelivery {
        let is_new = || QueuePlace::behind(due) > self.seen;
        // What its flow was passed over for is no matter of its key.
        let is_of_key = || self.passed_over.get(flow).is_none_or(|place| *place > self.at);
        let is_recalled =
            || self.recalled.contains_key(flow) || (self.recalled_keys.contains_key(&flow.owner) && is_of_key());
        if is_new() || is_recalled() { FoundDelivery::Consider } else { FoundDelivery::StillBusy }
    }

    /// The delivery that is looked at is not begun now: its flow has no room.
    pub fn passed_over(&mut self, flow: &Flow) {
        lower(&mut self.passed_over, flow, self.at);
        if self.recalled.remove(flow).is_some() {
            self.find_goal();
        }
    }

    /// As [`passed_over`](Self::passed_over), of one that was looked at in this round or before.
    pub fn passed_over_at(&mut self, due: &DueDelivery, flow: &Flow) {
        let place = QueuePlace::before(due.due_at);
        let place = self.recalled.remove(flow).map_or(place, |recalled| recalled.min(place));
        lower(&mut self.passed_over, flow, place);
    }

    /// The delivery that is looked at is not begun now: its key is barred.
    pub fn barred(&mut self, key: KeyId) {
        lower(&mut self.barred, &key, self.at);
        if self.recalled_keys.remove(&key).is_some() {
            self.find_goal();
        }
    }

    /// As [`barred`](Self::barred), of one that was looked at in this round or before.
    pub fn barred_at(&mut self, due: &DueDelivery, key: KeyId) {
        let place = QueuePlace::before(due.due_at);
        let place = self.recalled_keys.remove(&key).map_or(place, |recalled| recalled.min(place));
        lower(&mut self.barred, &key, place);
    }

    /// Goes on behind `due`.
    pub fn step(&mut self, due: &DueDelivery) {
        self.at = QueuePlace::behind(due);
    }

    /// Ends a round; `is_at_end` where nothing more is due now.
    pub fn end_round(&mut self, is_at_end: bool) {
        if is_at_end {
            self.at = self.at.max(self.seen);
        }
        if self.at < self.seen {
            // Stopped on the way: those who were looked for are looked for again from here.
            for place in self.recalled.values_mut().chain(self.recalled_keys.values_mut()) {
                *place = self.at.max(*place);
            }
        } else {
            self.seen = self.at;
            self.recalled.clear();
            self.recalled_keys.clear();
        }
    }

    /// About when the first delivery was due that was passed over.
    pub fn first_passed_over(&self) -> Option<Timestamp> {
        let places = self.passed_over.values().chain(self.barred.values());
        places.filter_map(|place| place.0.map(|(due_at, _)| due_at)).min()
    }

    /// Whether deliveries that were passed over can be begun.
    pub fn has_recalled(&self) -> bool {
        !self.recalled.is_empty() || !self.recalled_keys.is_empty()
    }
}

/// Moves a place from one map to the other; where both have one, the first counts.
fn move_place<K: Clone + Eq + Hash>(from: &mut HashMap<K, QueuePlace>, to: &mut HashMap<K, QueuePlace>, of: &K) {
    if let Some(place) = from.remove(of) {
        lower(to, of, place);
    }
}

fn lower<K: Clone + Eq + Hash>(places: &mut HashMap<K, QueuePlace>, of: &K, place: QueuePlace) {
    match places.get_mut(of) {
        Some(known) => *known = place.min(*known),
        None => drop(places.insert(of.clone(), place)),
    }
}

#[cfg(test)]
mod tests;

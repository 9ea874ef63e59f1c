//! Where the look through the queue of due deliveries stands.
//!
//! The queue is in the store, in the order of due times. A delivery whose receiver is busy is passed over, and its
//! receiver's place is remembered, so that a receiver's backlog is not read again and again to get at the deliveries
//! behind it: each round goes on where the last one stopped, and goes back only for receivers that have room again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::webhook_hosts::Host;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::DueDelivery;

/// Wakes the dispatcher: there are new deliveries.
#[derive(Clone, Debug, Default)]
pub struct DispatcherWake(Arc<Waking>);

#[derive(Debug)]
struct Waking {
    notify: Notify,
    /// When the earliest of the new deliveries is due, in milliseconds.
    earliest: AtomicU64,
}

impl Default for Waking {
    fn default() -> Self {
        Self { notify: Notify::new(), earliest: AtomicU64::new(u64::MAX) }
    }
}

impl DispatcherWake {
    /// Tells that deliveries were put into the queue, the earliest due at `earliest`.
    pub fn wake(&self, earliest: Timestamp) {
        self.0.earliest.fetch_min(earliest.0, Ordering::AcqRel);
        self.0.notify.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.0.notify.notified().await;
    }

    /// The earliest due time that was told since the last call.
    pub(super) fn take_earliest(&self) -> Option<Timestamp> {
        let earliest = self.0.earliest.swap(u64::MAX, Ordering::AcqRel);
        (earliest != u64::MAX).then_some(Timestamp(earliest))
    }
}

/// A place in the queue: right behind a delivery, or the queue's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Option<(Timestamp, [u8; 32])>);

impl Place {
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
    Place::before(Timestamp(time.0.saturating_add(1))).as_due()
}

/// What is to be done with a delivery that was found due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Begin it, if its receiver has room; tell [`QueueScan::passed_over`] if not.
    Consider,
    /// It was passed over before, and its receiver has no room since.
    StillBusy,
}

/// Where the look through the queue stands.
#[derive(Debug, Default)]
pub struct QueueScan {
    /// Everything in front of here was looked at: it is under way, or was passed over.
    seen: Place,
    /// By receiver: the place in front of its first delivery that was passed over.
    passed_over: HashMap<Host, Place>,
    /// Those of them that have room again, and where to look for theirs.
    recalled: HashMap<Host, Place>,
    /// Where the first delivery may be that can be begun: the first of these places.
    goal: Place,
    /// Where this round reads.
    at: Place,
}

impl QueueScan {
    /// Begins anew at the queue's head: what was taken from the queue may not have been begun.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// There are deliveries that were put into the queue after it was looked at, due at `time` or later.
    pub fn queued_from(&mut self, time: Timestamp) {
        self.seen = self.seen.min(Place::before(time));
    }

    /// A receiver has room again. Answers whether one of its deliveries was passed over.
    pub fn has_room(&mut self, host: &Host) -> bool {
        if let Some(place) = self.passed_over.remove(host) {
            self.recalled.insert(Arc::clone(host), place);
        }
        self.recalled.contains_key(host)
    }

    fn find_goal(&mut self) {
        self.goal = self.recalled.values().min().map_or(self.seen, |first| (*first).min(self.seen));
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
    pub fn look_at(&self, due: &DueDelivery, host: &Host) -> Found {
        let is_new = Place::behind(due) > self.seen;
        if is_new || self.recalled.contains_key(host) { Found::Consider } else { Found::StillBusy }
    }

    /// `due` is not begun now: its receiver is busy.
    pub fn passed_over(&mut self, host: &Host) {
        let place = self.passed_over.entry(Arc::clone(host)).or_insert(self.at);
        *place = self.at.min(*place);
        if self.recalled.remove(host).is_some() {
            self.find_goal();
        }
    }

    /// Goes on behind `due`.
    pub fn step(&mut self, due: &DueDelivery) {
        self.at = Place::behind(due);
    }

    /// Ends a round; `is_at_end` where nothing more is due now.
    pub fn end_round(&mut self, is_at_end: bool) {
        if is_at_end {
            self.at = self.at.max(self.seen);
        }
        if self.at < self.seen {
            // Stopped on the way: those who were looked for are looked for again from here.
            for place in self.recalled.values_mut() {
                *place = self.at.max(*place);
            }
        } else {
            self.seen = self.at;
            self.recalled.clear();
        }
    }

    /// About when the first delivery was due that was passed over.
    pub fn first_passed_over(&self) -> Option<Timestamp> {
        self.passed_over.values().filter_map(|place| place.0.map(|(due_at, _)| due_at)).min()
    }

    /// Whether deliveries that were passed over can be begun.
    pub fn has_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Tries under way to one receiver at the most, and to all.
    const PER_HOST: usize = 2;
    const WORKERS: usize = 5;
    const PAGE: usize = 3;
    const LOOK_AHEAD: usize = 7;

    /// The queue and its dispatcher, as small as can be.
    #[derive(Default)]
    struct Model {
        scan: QueueScan,
        /// Receivers by place in the queue.
        queue: BTreeMap<(Timestamp, [u8; 32]), Host>,
        under_way: Vec<((Timestamp, [u8; 32]), Host)>,
        next_id: u128,
    }

    impl Model {
        fn put(&mut self, due_ms: u64, host: u8) {
            self.next_id += 1;
            // Ids do not come in their order.
            let id = HitId(uuid::Uuid::from_u128(self.next_id.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            let hit = HitStamp { id, at: Timestamp(due_ms) };
            let id = DeliveryId { link: ShortId([b'a' + host; 7]), hit, url_index: 0 };
            self.queue.insert((Timestamp(due_ms), id.to_bytes()), char::from(b'a' + host).to_string().into());
            self.scan.queued_from(Timestamp(due_ms));
        }

        fn busy(&self, host: &Host) -> usize {
            self.under_way.iter().filter(|(_, other)| other == host).count()
        }

        /// One round; whether another one has to follow at once.
        fn round(&mut self) -> bool {
            let (mut chosen, mut looked_at, mut is_at_end) = (Vec::new(), 0, false);
            self.scan.begin_round();
            'pages: while looked_at < LOOK_AHEAD && !is_at_end {
                let after = self.scan.next_page().map(|due| (due.due_at, due.id.to_bytes()));
                let behind = |place: &&(Timestamp, [u8; 32])| after.is_none_or(|after| **place > after);
                let page: Vec<_> = self.queue.keys().filter(behind).take(PAGE).copied().collect();
                is_at_end = page.len() < PAGE;
                looked_at += page.len();
                for place in page {
                    if chosen.len() + self.under_way.len() == WORKERS {
                        is_at_end = false;
                        break 'pages;
                    }
                    let due = DueDelivery { due_at: place.0, id: DeliveryId::from_bytes(&place.1).unwrap() };
                    let host = Arc::clone(&self.queue[&place]);
                    let is_under_way = self.under_way.iter().any(|(other, _)| *other == place);
                    if !is_under_way && self.scan.look_at(&due, &host) == Found::Consider {
                        let taken = chosen.iter().filter(|(_, other)| *other == host).count();
                        if self.busy(&host) + taken < PER_HOST {
                            chosen.push((place, host));
                        } else {
                            self.scan.passed_over(&host);
                        }
                    }
                    self.scan.step(&due);
                    if self.scan.skips_on() {
                        is_at_end = false;
                        continue 'pages;
                    }
                }
            }
            self.scan.end_round(is_at_end);
            self.under_way.extend(chosen);
            self.under_way.len() < WORKERS && (!is_at_end || self.scan.has_recalled())
        }

        /// A try ends; the delivery is settled, or due again.
        fn finish(&mut self, which: usize, retry_ms: Option<u64>) {
            if self.under_way.is_empty() {
                return;
            }
            let (place, host) = self.under_way.swap_remove(which % self.under_way.len());
            self.queue.remove(&place);
            if let Some(due_ms) = retry_ms {
                self.put(due_ms, host.as_bytes()[0] - b'a');
            }
            self.scan.has_room(&host);
        }

        /// No receiver with room has a delivery that waits, as long as there is a worker for it.
        fn nothing_is_forgotten(&self) -> bool {
            let waits = |(place, host): (&(Timestamp, [u8; 32]), &Host)| {
                self.under_way.iter().all(|(other, _)| other != place) && self.busy(host) < PER_HOST
            };
            self.under_way.len() == WORKERS || !self.queue.iter().any(waits)
        }
    }

    proptest! {
        #[test]
        fn no_delivery_is_forgotten_whatever_comes_and_ends(
            steps in prop::collection::vec((0_u8..4, 0_u64..20, 0_u8..5), 1..150),
        ) {
            let mut model = Model::default();
            for (step, number, host) in steps {
                match step {
                    0 | 1 => model.put(number, host),
                    2 => model.finish(usize::from(host), None),
                    _ => model.finish(usize::from(host), Some(number)),
                }
                let rounds = (0..200).take_while(|_| model.round()).count();
                prop_assert!(rounds < 200, "rounds come to an end");
                prop_assert!(model.nothing_is_forgotten());
            }
        }
    }
}

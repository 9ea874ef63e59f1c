use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::link::Revision;

/// The largest numbers of attempts in flight of one flow, of one key, and of all.
const PER_FLOW: usize = 2;
const PER_KEY: usize = 3;
const WORKERS: usize = 5;
/// How many waiting flows of a key are remembered; beyond that, the key is barred.
const REMEMBERED: usize = 1;
const PAGE: usize = 3;
const LOOK_AHEAD: usize = 7;

type QueueKey = (Timestamp, [u8; 32]);

/// A minimal model of the queue and its dispatcher.
#[derive(Default)]
struct QueueModel {
    scan: QueueScan,
    /// Flows by position in the queue.
    queue: BTreeMap<QueueKey, Flow>,
    under_way: Vec<(QueueKey, Flow)>,
    /// Flows that wait for a slot of their key.
    refused: Vec<Flow>,
    barred: BTreeSet<KeyId>,
    next_id: u128,
}

/// Hosts are shared by two keys.
fn flow(number: u8) -> Flow {
    Flow {
        owner: KeyId(Uuid::from_u128(u128::from(number % 2))),
        host: char::from(b'a' + number / 2).to_string().into(),
    }
}

impl QueueModel {
    fn put(&mut self, due_ms: u64, flow: Flow) {
        self.next_id += 1;
        // Ids are not in order.
        let id = HitId(Uuid::from_u128(self.next_id.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let hit = HitStamp { id, at: Timestamp(due_ms) };
        let id = DeliveryId { link: ShortId([b'a'; 7]), hit, url_index: 0 };
        self.queue.insert((Timestamp(due_ms), id.to_bytes()), flow);
        self.scan.queued_from(Timestamp(due_ms));
    }

    fn busy(&self, flow: &Flow) -> usize {
        self.under_way.iter().filter(|(_, other)| other == flow).count()
    }

    fn busy_key(&self, key: KeyId) -> usize {
        self.under_way.iter().filter(|(_, other)| other.owner == key).count()
    }

    /// Begins a delivery that was read, or passes it over.
    fn consider(&mut self, place: QueueKey, flow: Flow) {
        if self.busy(&flow) >= PER_FLOW {
            self.scan.passed_over(&flow);
        } else if self.busy_key(flow.owner) >= PER_KEY {
            let others = self.refused.iter().filter(|other| other.owner == flow.owner && **other != flow).count();
            if others >= REMEMBERED {
                self.barred.insert(flow.owner);
                self.scan.barred(flow.owner);
            } else {
                self.scan.passed_over(&flow);
                if !self.refused.contains(&flow) {
                    self.refused.push(flow);
                }
            }
        } else {
            self.refused.retain(|other| *other != flow);
            self.under_way.push((place, flow));
        }
    }

    /// Runs a round; returns whether another one must follow at once.
    fn round(&mut self) -> bool {
        let (mut looked_at, mut is_at_end) = (0, false);
        self.scan.begin_round();
        'pages: while looked_at < LOOK_AHEAD && !is_at_end {
            let after = self.scan.next_page().map(|due| (due.due_at, due.id.to_bytes()));
            let behind = |place: &&QueueKey| after.is_none_or(|after| **place > after);
            let page: Vec<_> = self.queue.keys().filter(behind).take(PAGE).copied().collect();
            is_at_end = page.len() < PAGE;
            looked_at += page.len();
            for place in page {
                if self.under_way.len() == WORKERS {
                    is_at_end = false;
                    break 'pages;
                }
                let due = DueDelivery {
                    due_at: place.0,
                    id: DeliveryId::from_bytes(&place.1).unwrap(),
                    revision: Revision::FIRST,
                    round: 0,
                };
                let flow = self.queue[&place].clone();
                let is_under_way = self.under_way.iter().any(|(other, _)| *other == place);
                if !is_under_way && self.scan.look_at(&due, &flow) == FoundDelivery::Consider {
                    self.consider(place, flow);
                }
                self.scan.step(&due);
                if self.scan.is_skipping() {
                    is_at_end = false;
                    continue 'pages;
                }
            }
        }
        self.scan.end_round(is_at_end);
        self.under_way.len() < WORKERS && (!is_at_end || self.scan.has_recalled())
    }

    /// Ends an attempt; the delivery is settled, or due again.
    fn finish(&mut self, which: usize, retry_ms: Option<u64>) {
        if self.under_way.is_empty() {
            return;
        }
        let (place, flow) = self.under_way.swap_remove(which % self.under_way.len());
        self.queue.remove(&place);
        self.scan.recall_flow(&flow);
        let key = flow.owner;
        if let Some(due_ms) = retry_ms {
            self.put(due_ms, flow);
        }
        if let Some(at) = self.refused.iter().position(|other| other.owner == key) {
            let refused = self.refused.remove(at);
            self.scan.recall_flow(&refused);
        }
        if self.barred.remove(&key) {
            self.scan.recall_key(key);
        }
    }

    /// Passes a waiting delivery over although its flow and its key have free slots, like one that waits for a slot
    /// elsewhere.
    fn pass_over(&mut self, which: usize) {
        let under_way = |place: &QueueKey| self.under_way.iter().any(|(other, _)| other == place);
        let waiting: Vec<_> = self.queue.iter().filter(|(place, _)| !under_way(place)).collect();
        let Some((place, flow)) = waiting.get(which % waiting.len().max(1)) else { return };
        let due = DueDelivery {
            due_at: place.0,
            id: DeliveryId::from_bytes(&place.1).unwrap(),
            revision: Revision::FIRST,
            round: 0,
        };
        let flow = (*flow).clone();
        self.scan.passed_over_at(&due, &flow);
        self.scan.recall_flow(&flow);
        self.scan.barred_at(&due, flow.owner);
        self.barred.insert(flow.owner);
        self.scan.recall_all_of(flow.owner);
    }

    /// No waiting delivery belongs to a flow and key with free slots, if a worker is idle.
    fn nothing_is_forgotten(&self) -> bool {
        let waits = |(place, flow): (&QueueKey, &Flow)| {
            self.under_way.iter().all(|(other, _)| other != place)
                && self.busy(flow) < PER_FLOW
                && self.busy_key(flow.owner) < PER_KEY
        };
        self.under_way.len() == WORKERS || !self.queue.iter().any(waits)
    }
}

proptest! {
    #[test]
    fn no_delivery_is_forgotten_whatever_comes_and_ends(
        steps in prop::collection::vec((0_u8..6, 0_u64..20, 0_u8..10), 1..200),
    ) {
        let mut model = QueueModel::default();
        for (step, number, which) in steps {
            match step {
                0..=2 => model.put(number, flow(which)),
                3 => model.finish(usize::from(which), None),
                4 => model.finish(usize::from(which), Some(number)),
                _ => model.pass_over(usize::from(which)),
            }
            let rounds = (0..300).take_while(|_| model.round()).count();
            prop_assert!(rounds < 300, "rounds come to an end");
            prop_assert!(model.nothing_is_forgotten());
        }
    }
}

//! New deliveries that wait in memory for a slot, by flow.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::flow::Flow;
use super::maps::{Map, Set};
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::store::DueDelivery;

/// The deliveries, each flow's in their order.
#[derive(Default)]
pub struct WaitingFirstTries {
    by_flow: Map<Flow, VecDeque<(Instant, DueDelivery)>>,
    /// Flows that may have free slots.
    look_at: Set<Flow>,
}

impl WaitingFirstTries {
    pub fn push(&mut self, flow: Flow, due: DueDelivery, at: Instant) {
        self.look_at(&flow);
        self.by_flow.entry(flow).or_default().push_back((at, due));
    }

    /// A flow may have free slots; returns whether it has deliveries.
    pub fn flow_freed(&mut self, flow: &Flow) -> bool {
        let has_some = self.by_flow.contains_key(flow);
        if has_some {
            self.look_at(flow);
        }
        has_some
    }

    fn look_at(&mut self, flow: &Flow) {
        if !self.look_at.contains(flow) {
            self.look_at.insert(flow.clone());
        }
    }

    /// The flows of a key may have free slots; returns whether one has deliveries.
    pub fn key_freed(&mut self, key: KeyId) -> bool {
        let flows: Vec<Flow> = self.by_flow.keys().filter(|flow| flow.owner == key).cloned().collect();
        let has_some = !flows.is_empty();
        self.look_at.extend(flows);
        has_some
    }

    /// The flows that may have free slots.
    pub fn take_flows(&mut self) -> Set<Flow> {
        std::mem::take(&mut self.look_at)
    }

    /// These flows are looked at again.
    pub fn put_back(&mut self, flows: impl Iterator<Item = Flow>) {
        self.look_at.extend(flows);
    }

    pub fn first_of(&self, flow: &Flow) -> Option<&DueDelivery> {
        self.by_flow.get(flow)?.front().map(|(_, due)| due)
    }

    /// Takes the first delivery of a flow.
    pub fn pop(&mut self, flow: &Flow) -> Option<DueDelivery> {
        let waiting = self.by_flow.get_mut(flow)?;
        let (_, due) = waiting.pop_front()?;
        if waiting.is_empty() {
            self.by_flow.remove(flow);
        }
        Some(due)
    }

    /// Drops those that have waited for so long: they are in the queue.
    pub fn drop_older(&mut self, age: Duration) {
        self.by_flow.retain(|_, waiting| {
            while waiting.front().is_some_and(|(at, _)| at.elapsed() >= age) {
                waiting.pop_front();
            }
            !waiting.is_empty()
        });
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// When the first of them is due.
    pub fn first_due(&self) -> Option<Timestamp> {
        self.by_flow.values().filter_map(|waiting| waiting.front().map(|(_, due)| due.due_at)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::{Revision, ShortId};
    use crate::domain::webhook::DeliveryId;

    fn due(at: u64) -> DueDelivery {
        let hit = HitStamp { id: HitId(uuid::Uuid::nil()), at: Timestamp(at) };
        let id = DeliveryId { link: ShortId(*b"a1B2c3D"), hit, url_index: 0 };
        DueDelivery { due_at: Timestamp(at), id, revision: Revision::FIRST, round: 0 }
    }

    fn flow(owner: u128, host: &str) -> Flow {
        Flow { owner: KeyId(uuid::Uuid::from_u128(owner)), host: host.into() }
    }

    #[test]
    fn flows_are_looked_at_when_deliveries_come_and_when_slots_are_freed() {
        let mut waiting = WaitingFirstTries::default();
        let (one, other) = (flow(1, "one:80"), flow(2, "other:80"));
        let now = Instant::now();
        for (flow, at) in [(&one, 3), (&one, 4), (&other, 2)] {
            waiting.push(flow.clone(), due(at), now);
        }
        assert_eq!(waiting.first_due(), Some(Timestamp(2)));
        assert_eq!(waiting.take_flows(), Set::from_iter([one.clone(), other.clone()]));
        assert_eq!(waiting.pop(&one), Some(due(3)));
        assert!(waiting.take_flows().is_empty());
        assert!(waiting.flow_freed(&one) && waiting.key_freed(other.owner));
        assert_eq!(waiting.take_flows(), Set::from_iter([one.clone(), other.clone()]));
        assert_eq!(waiting.pop(&one), Some(due(4)));
        assert!(waiting.first_of(&one).is_none() && !waiting.flow_freed(&one) && !waiting.key_freed(one.owner));
    }

    #[test]
    fn those_that_waited_for_too_long_are_dropped() {
        let mut waiting = WaitingFirstTries::default();
        let now = Instant::now();
        let earlier = now.checked_sub(Duration::from_secs(5)).unwrap();
        for (flow, at, since) in [("a", 1, earlier), ("b", 2, earlier), ("b", 3, now)] {
            waiting.push(flow_of(flow), due(at), since);
        }
        waiting.drop_older(Duration::from_secs(4));
        assert_eq!(waiting.first_of(&flow_of("a")), None);
        assert_eq!(waiting.pop(&flow_of("b")), Some(due(3)));
        assert_eq!(waiting.first_due(), None);
    }

    fn flow_of(host: &str) -> Flow {
        flow(1, host)
    }
}

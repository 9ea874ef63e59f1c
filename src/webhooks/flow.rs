//! Flows: the deliveries of one key to one receiver. The scheduler serves flows in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::health::{ReceiverHealth, SlotCounts};
use super::maps::Map;
use crate::domain::key::KeyId;

/// A receiver: host and port.
pub type Host = Arc<str>;

/// The deliveries of one key to one receiver.
///
/// The health of a receiver is tracked for each key: another key's deliveries to the same host may go to another
/// application, and failures of one must not slow the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub owner: KeyId,
    pub host: Host,
}

impl Flow {
    /// The flow of deliveries without a receiver. They are never sent.
    pub fn without_receiver() -> Self {
        Self { owner: KeyId(Uuid::nil()), host: "".into() }
    }

    pub fn has_no_receiver(&self) -> bool {
        self.host.is_empty()
    }
}

/// Concurrent attempts to a receiver that was not tried yet.
const FIRST_WINDOW: usize = 2;

/// The order in which flows and keys are served: fewest attempts in flight first, then least recently served.
pub type Priority = (usize, u64);

/// The deliveries of a flow in memory.
#[derive(Debug)]
pub struct FlowState<T> {
    pub health: ReceiverHealth,
    /// The largest number of attempts in flight.
    pub window: usize,
    pub in_flight: usize,
    /// Slots reserved for deliveries that are being taken from the queue.
    pub reserved: usize,
    /// Deliveries taken from the queue, in its order.
    pub ready: VecDeque<T>,
    /// The value of the scheduler's count of served deliveries when this flow was last served, or created.
    pub served: u64,
    /// The flow's entry in its key's `ready_by_health`.
    queued: Option<(ReceiverHealth, Priority)>,
    /// The flow's number among all refusals, if it was refused a slot.
    refused: Option<u64>,
}

impl<T> FlowState<T> {
    pub fn new(per_host: usize, served: u64) -> Self {
        Self {
            health: ReceiverHealth::New,
            window: FIRST_WINDOW.min(per_host),
            in_flight: 0,
            reserved: 0,
            ready: VecDeque::new(),
            served,
            queued: None,
            refused: None,
        }
    }

    pub fn waiting(&self) -> usize {
        self.reserved + self.ready.len()
    }

    /// Whether the flow has as many deliveries in memory as it may have.
    pub fn is_full(&self) -> bool {
        self.in_flight + self.waiting() >= self.health.windows_in_memory() * self.window
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting() == 0 && !self.is_refused()
    }

    /// The priority of the flow, if it has a ready delivery and may begin it.
    fn priority(&self) -> Option<(ReceiverHealth, Priority)> {
        let may_begin = !self.ready.is_empty() && self.in_flight < self.window;
        may_begin.then_some((self.health, (self.in_flight, self.served)))
    }

    /// A success widens the window by one attempt, a failure halves it.
    fn learn(&mut self, succeeded: bool, per_host: usize) {
        (self.health, self.window) = if succeeded {
            (ReceiverHealth::Healthy, (self.window + 1).min(per_host))
        } else {
            (ReceiverHealth::Failing, (self.window / 2).max(1))
        };
    }
}

/// The flows of a key.
#[derive(Debug)]
pub struct KeyState<T> {
    pub flows: Map<Host, FlowState<T>>,
    pub in_flight: SlotCounts,
    /// Reserved slots and ready deliveries.
    pub waiting: SlotCounts,
    /// By health: flows with a delivery that can begin.
    ready_by_health: [BTreeSet<(Priority, Host)>; 3],
    /// By health: flows that were refused a slot, in the order of their refusals.
    refused: [BTreeMap<u64, Host>; 3],
    /// By health: whether the key is in the scheduler's `recall_queue`.
    pub is_recall_queued: [bool; 3],
    /// As [`FlowState::served`], of the key.
    pub served: u64,
    /// By health: the key's entry in the scheduler's `ready_by_health`.
    pub queued: [Option<Priority>; 3],
}

impl<T> KeyState<T> {
    pub fn new(served: u64) -> Self {
        Self {
            flows: Map::default(),
            in_flight: SlotCounts::default(),
            waiting: SlotCounts::default(),
            ready_by_health: Default::default(),
            refused: Default::default(),
            is_recall_queued: [false; 3],
            served,
            queued: [None; 3],
        }
    }

    /// Updates the position of a flow in `ready_by_health`.
    pub fn requeue(&mut self, host: &Host) {
        let Some(flow) = self.flows.get_mut(host) else { return };
        let priority = flow.priority();
        if priority == flow.queued {
            return;
        }
        if let Some((health, priority)) = std::mem::replace(&mut flow.queued, priority) {
            self.ready_by_health[health as usize].remove(&(priority, Arc::clone(host)));
        }
        if let Some((health, priority)) = priority {
            self.ready_by_health[health as usize].insert((priority, Arc::clone(host)));
        }
    }

    /// The priority of the key among the keys that have a flow of this health to serve.
    pub fn priority(&self, health: ReceiverHealth) -> Option<Priority> {
        let has_one = !self.ready_by_health[health as usize].is_empty();
        has_one.then_some((self.in_flight.total(), self.served))
    }

    /// The flows of this health with a delivery that can begin, by priority.
    pub fn ready_flows(&self, health: ReceiverHealth) -> impl Iterator<Item = (Priority, &Host)> {
        self.ready_by_health[health as usize].iter().map(|(priority, host)| (*priority, host))
    }

    /// Updates a flow after an attempt; returns its health before and after.
    pub fn learn(&mut self, host: &Host, succeeded: bool, per_host: usize) -> Option<(ReceiverHealth, ReceiverHealth)> {
        let flow = self.flows.get_mut(host)?;
        let before = flow.health;
        flow.learn(succeeded, per_host);
        let now = flow.health;
        self.in_flight.shift(before, now, flow.in_flight);
        self.waiting.shift(before, now, flow.waiting());
        // A refused flow keeps its position in the order of refusals.
        if let Some(number) = flow.refused
            && let Some(host) = self.refused[before as usize].remove(&number)
        {
            self.refused[now as usize].insert(number, host);
        }
        Some((before, now))
    }

    /// Marks a flow as refused; `number` is its number among all refusals.
    pub fn refuse(&mut self, host: &Host, number: u64) {
        let Some(flow) = self.flows.get_mut(host) else { return };
        flow.refused = Some(number);
        self.refused[flow.health as usize].insert(number, Arc::clone(host));
    }

    /// Removes a flow from the refused ones; returns whether it was one of them.
    pub fn remove_refused(&mut self, host: &Host) -> bool {
        let Some(flow) = self.flows.get_mut(host) else { return false };
        let number = flow.refused.take();
        number.is_some_and(|number| self.refused[flow.health as usize].remove(&number).is_some())
    }

    /// The flow of this health that was refused first.
    pub fn first_refused(&self, health: ReceiverHealth) -> Option<&Host> {
        self.all_refused(health).next()
    }

    /// The refused flows of this health, in the order of their refusals.
    pub fn all_refused(&self, health: ReceiverHealth) -> impl Iterator<Item = &Host> {
        self.refused[health as usize].values()
    }

    pub fn refused(&self) -> usize {
        self.refused.iter().map(BTreeMap::len).sum()
    }

    /// Drops all waiting deliveries.
    pub fn clear_waiting(&mut self) {
        for flow in self.flows.values_mut() {
            flow.ready.clear();
            (flow.reserved, flow.queued, flow.refused) = (0, None, None);
        }
        self.waiting = SlotCounts::default();
        self.ready_by_health = Default::default();
        self.refused = Default::default();
        (self.queued, self.is_recall_queued) = ([None; 3], [false; 3]);
    }
}

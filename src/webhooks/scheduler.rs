//! The fair scheduler: which delivery begins next, how many attempts each key and each of its receivers may have in
//! flight, and how many deliveries may wait to begin.
//!
//! Keys come first: the next worker goes to the key with the fewest attempts in flight, and the attempts of one key are
//! bounded so that the next key finds a worker (see [`FairShare`]). Then the receivers of the key follow in the same
//! order. Each receiver has a window of concurrent attempts. It starts at two, a success widens it by one up to the
//! bound for one host, and a failure halves it, down to one: a failing receiver gets fewer attempts and is never
//! abandoned. No receiver has more in flight than its key may still add (the dynamic threshold again), so that slow
//! receivers leave workers for the key's next one. Failing and new receivers may use only a share of the workers, over
//! all keys and of what one key may have (see [`ReceiverHealth`]). So a healthy receiver finds a free worker, however
//! many others hang.
//!
//! The slots of waiting deliveries are shared by the same rules, and so is the memory for flows that were refused a
//! slot. A key that has used up its share of that memory is barred: its further deliveries are read again later.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

pub use super::flow::{Flow, Host};
use super::flow::{FlowState, KeyState, Priority};
use super::health::{FairShare, ReceiverHealth, SlotCounts};
use super::maps::{Map, Set};
use crate::domain::key::KeyId;

/// The largest number of idle flows that are remembered, and of flows that were refused a slot.
const REMEMBERED: usize = 16_384;
/// How many waiting keys are checked for free slots at once.
const KEYS_AT_ONCE: usize = 256;

/// The bounds of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Attempts in flight, over all receivers.
    pub workers: usize,
    /// Attempts in flight to one receiver.
    pub per_host: usize,
    /// Deliveries taken from the queue and not in flight yet, over all receivers.
    pub waiting: usize,
}

/// Why no delivery of a flow is taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCapacity {
    /// The flow has as many deliveries as it may have, or waits for a slot of its key. Other flows may have free slots.
    Flow,
    /// The key is barred: so many of its flows wait for a slot that no more are remembered.
    Key,
    /// No slot is free.
    All,
}

/// Flows and keys that may have free slots. Some may have none after all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FreedCapacity {
    pub flows: Vec<Flow>,
    /// Keys that were barred.
    pub keys: Vec<KeyId>,
}

/// All flows with deliveries, and some idle ones.
#[derive(Debug)]
pub struct Scheduler<T> {
    bounds: Bounds,
    remembered: usize,
    keys: Map<KeyId, KeyState<T>>,
    /// The number of flows of all keys.
    known: usize,
    /// If more flows are known than this, idle ones are forgotten.
    evict_above: usize,
    /// By receiver: attempts in flight, over all keys.
    to_host: Map<Host, usize>,
    in_flight: SlotCounts,
    /// Reserved slots and ready deliveries.
    waiting: SlotCounts,
    /// By receiver: reserved slots and ready deliveries, over all keys.
    waiting_at: Map<Host, usize>,
    /// By health: keys with a flow of this health that has a delivery to begin.
    ready_by_health: [BTreeSet<(Priority, KeyId)>; 3],
    /// By health: keys with flows that were refused a slot, in turn.
    recall_queue: [VecDeque<KeyId>; 3],
    /// The number of flows that were refused a slot, now and in total.
    refused: usize,
    ever_refused: u64,
    /// Keys of which no more refused flows are remembered.
    barred: VecDeque<KeyId>,
    is_barred: Set<KeyId>,
    /// Flows that may have free slots since the last call of [`take_freed`](Self::take_freed).
    freed: Vec<Flow>,
    /// The number of deliveries served.
    served: u64,
}

impl<T> Scheduler<T> {
    pub fn new(bounds: Bounds) -> Self {
        Self::with_memory(REMEMBERED, bounds)
    }

    fn with_memory(remembered: usize, bounds: Bounds) -> Self {
        Self {
            bounds,
            remembered,
            keys: Map::default(),
            known: 0,
            evict_above: remembered,
            to_host: Map::default(),
            in_flight: SlotCounts::default(),
            waiting: SlotCounts::default(),
            waiting_at: Map::default(),
            ready_by_health: Default::default(),
            recall_queue: Default::default(),
            refused: 0,
            ever_refused: 0,
            barred: VecDeque::new(),
            is_barred: Set::default(),
            freed: Vec::new(),
            served: 0,
        }
    }

    /// The number of attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.total()
    }

    /// Reserves a slot for a delivery to be taken from the queue; [`put`](Self::put) or [`release_slot`](Self::release_slot)
    /// must follow.
    pub fn reserve(&mut self, flow: &Flow) -> Result<(), NoCapacity> {
        let taken = self.waiting.total();
        if taken >= self.bounds.waiting {
            return Err(NoCapacity::All);
        }
        let known = self.keys.get(&flow.owner).and_then(|key| key.flows.get(&flow.host));
        let health = known.map_or(ReceiverHealth::New, |state| state.health);
        let is_refused = known.is_some_and(FlowState::is_refused);
        let left = self.slots_left(flow.owner, self.waiting, SlotCounts::default(), health);
        let is_admitted = left > 0 && !self.has_too_many_waiting(&flow.host, 0);
        // The flow has no more slots than its key may still take.
        if known.is_some_and(|state| state.is_full() || (is_admitted && state.waiting() >= left)) {
            return Err(NoCapacity::Flow);
        }
        if !is_admitted && !is_refused && !self.remembers_refused(flow.owner) {
            if self.is_barred.insert(flow.owner) {
                self.barred.push_back(flow.owner);
            }
            return Err(NoCapacity::Key);
        }
        let (served, per_host) = (self.served, self.bounds.per_host);
        let key = self.keys.entry(flow.owner).or_insert_with(|| KeyState::new(served));
        let state = key.flows.entry(Arc::clone(&flow.host)).or_insert_with(|| {
            self.known += 1;
            FlowState::new(per_host, served)
        });
        if !is_admitted {
            if !is_refused {
                (self.refused, self.ever_refused) = (self.refused + 1, self.ever_refused + 1);
                key.refuse(&flow.host, self.ever_refused);
                self.queue_recall(flow.owner, health);
            }
            return Err(NoCapacity::Flow);
        }
        state.reserved += 1;
        key.waiting.add(health);
        self.waiting.add(health);
        *self.waiting_at.entry(Arc::clone(&flow.host)).or_default() += 1;
        self.refused -= usize::from(key.remove_refused(&flow.host));
        Ok(())
    }

    /// How many more slots a key may take if `waiting` are taken and the key holds `more` than it has now.
    fn slots_left(&self, owner: KeyId, waiting: SlotCounts, more: SlotCounts, health: ReceiverHealth) -> usize {
        let own = self.keys.get(&owner).map_or_else(SlotCounts::default, |key| key.waiting);
        waiting.left(own.plus(more), health, self.bounds.waiting)
    }

    /// Whether so many deliveries to a receiver wait, plus `more`, that it gets no further slot. This counts over all
    /// keys: otherwise many keys with one slow receiver would take all slots, and delay all other receivers.
    fn has_too_many_waiting(&self, host: &Host, more: usize) -> bool {
        let most =
            (ReceiverHealth::Healthy.windows_in_memory() * self.bounds.per_host).min(self.bounds.waiting / 2).max(1);
        self.waiting_at.get(host).copied().unwrap_or(0) + more >= most
    }

    /// A delivery to a receiver no longer waits.
    fn release_waiting(&mut self, host: &Host) {
        if let Some(waiting) = self.waiting_at.get_mut(host) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting_at.remove(host);
            }
        }
    }

    /// Whether one more refused flow of a key is remembered.
    fn remembers_refused(&self, owner: KeyId) -> bool {
        let own = self.keys.get(&owner).map_or(0, KeyState::refused);
        FairShare::of(self.remembered).admits(self.refused, own)
    }

    /// Queues a key with a refused flow of this health for a recall.
    fn queue_recall(&mut self, owner: KeyId, health: ReceiverHealth) {
        let Some(key) = self.keys.get_mut(&owner) else { return };
        if !std::mem::replace(&mut key.is_recall_queued[health as usize], true) {
            self.recall_queue[health as usize].push_back(owner);
        }
    }

    /// Makes the delivery with a reserved slot ready.
    pub fn put(&mut self, flow: &Flow, delivery: T) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.reserved -= 1;
        state.ready.push_back(delivery);
        key.requeue(&flow.host);
        self.requeue(flow.owner);
    }

    /// Frees a reserved slot: its delivery does not come.
    pub fn release_slot(&mut self, flow: &Flow) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.reserved -= 1;
        key.waiting.remove(state.health);
        self.waiting.remove(state.health);
        self.release_waiting(&flow.host);
        self.freed.push(flow.clone());
        self.evict_idle_flows();
    }

    /// Takes the delivery to attempt next, with its flow; it is in flight from now on.
    pub fn next(&mut self) -> Option<(Flow, T)> {
        let firsts = ReceiverHealth::ALL.into_iter().filter_map(|health| self.first_of(health));
        let (_, owner, host) = firsts.min_by_key(|(priorities, ..)| *priorities)?;
        let key = self.keys.get_mut(&owner)?;
        let state = key.flows.get_mut(&host)?;
        let delivery = state.ready.pop_front()?;
        self.served += 1;
        state.in_flight += 1;
        (state.served, key.served) = (self.served, self.served);
        for waiting in [&mut key.waiting, &mut self.waiting] {
            waiting.remove(state.health);
        }
        for in_flight in [&mut key.in_flight, &mut self.in_flight] {
            in_flight.add(state.health);
        }
        *self.to_host.entry(Arc::clone(&host)).or_default() += 1;
        key.requeue(&host);
        self.requeue(owner);
        self.release_waiting(&host);
        Some((Flow { owner, host }, delivery))
    }

    /// The first key, and its first flow of this health, that may begin a delivery now.
    ///
    /// Keys without a free worker are skipped, and so are keys whose receivers have none. The number of the latter is
    /// bounded by the slots.
    fn first_of(&self, health: ReceiverHealth) -> Option<((Priority, Priority), KeyId, Host)> {
        let workers = self.bounds.workers;
        if !self.in_flight.fits(health, workers) {
            return None;
        }
        let taken = self.in_flight.total();
        let at_host = FairShare::of_few(self.bounds.per_host);
        let line = self.ready_by_health[health as usize].iter();
        // The keys are ordered by attempts in flight, so all later keys have too many as well.
        let mut line = line.take_while(|((in_flight, _), _)| FairShare::of(workers).admits(taken, *in_flight));
        line.find_map(|(key_priority, owner)| {
            let key = self.keys.get(owner)?;
            let left = self.in_flight.left(key.in_flight, health, workers);
            let mut flows = key.ready_flows(health).take_while(|((in_flight, _), _)| *in_flight < left);
            let (priority, host) = flows.find(|((in_flight, _), host)| {
                let taken = self.to_host.get(*host).copied().unwrap_or(0);
                at_host.admits(taken, *in_flight)
            })?;
            Some(((*key_priority, priority), *owner, Arc::clone(host)))
        })
    }

    /// Ends an attempt; `succeeded` is `None` if it was not made.
    pub fn ended(&mut self, flow: &Flow, succeeded: Option<bool>) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.in_flight -= 1;
        let (waiting, in_flight) = (state.waiting(), state.in_flight);
        key.in_flight.remove(state.health);
        self.in_flight.remove(state.health);
        if let Some(to_host) = self.to_host.get_mut(&flow.host) {
            *to_host -= 1;
            if *to_host == 0 {
                self.to_host.remove(&flow.host);
            }
        }
        if let Some(succeeded) = succeeded
            && let Some((before, now)) = key.learn(&flow.host, succeeded, self.bounds.per_host)
        {
            self.in_flight.shift(before, now, in_flight);
            self.waiting.shift(before, now, waiting);
            if before != now && key.first_refused(now).is_some() {
                self.queue_recall(flow.owner, now);
            }
        }
        if let Some(key) = self.keys.get_mut(&flow.owner) {
            key.requeue(&flow.host);
        }
        self.requeue(flow.owner);
        self.freed.push(flow.clone());
        self.evict_idle_flows();
    }

    /// Updates the position of a key in `ready_by_health`.
    fn requeue(&mut self, owner: KeyId) {
        let Some(key) = self.keys.get_mut(&owner) else { return };
        for health in ReceiverHealth::ALL {
            let priority = key.priority(health);
            let queued = std::mem::replace(&mut key.queued[health as usize], priority);
            if queued == priority {
                continue;
            }
            let line = &mut self.ready_by_health[health as usize];
            if let Some(priority) = queued {
                line.remove(&(priority, owner));
            }
            if let Some(priority) = priority {
                line.insert((priority, owner));
            }
        }
    }

    /// If too many flows are known, forgets idle ones, of the keys with the most flows.
    fn evict_idle_flows(&mut self) {
        if self.known <= self.evict_above {
            return;
        }
        let most_of_a_key = (self.remembered * 3 / 4) / self.keys.len().max(1);
        for key in self.keys.values_mut().filter(|key| key.flows.len() > most_of_a_key) {
            let before = key.flows.len();
            key.flows.retain(|_, flow| !flow.is_idle());
            self.known -= before - key.flows.len();
        }
        self.keys.retain(|_, key| !key.flows.is_empty() || key.is_recall_queued.contains(&true));
        // If most flows are busy, the next pass waits until there are many more: a pass reads all flows.
        self.evict_above = self.remembered.max(self.known + self.remembered / 4);
    }

    /// The flows and keys that may have free slots since the last call.
    pub fn take_freed(&mut self) -> FreedCapacity {
        for health in ReceiverHealth::ALL {
            self.recall_refused(health);
        }
        let mut keys = Vec::new();
        for _ in 0..self.barred.len().min(KEYS_AT_ONCE) {
            let Some(key) = self.barred.pop_front() else { break };
            if self.remembers_refused(key) {
                self.is_barred.remove(&key);
                keys.push(key);
            } else {
                self.barred.push_back(key);
            }
        }
        FreedCapacity { flows: std::mem::take(&mut self.freed), keys }
    }

    /// Recalls as many refused flows as there are free slots, of each key in turn: further ones would be refused again.
    fn recall_refused(&mut self, health: ReceiverHealth) {
        let mut waiting = self.waiting;
        let mut recalled: Map<KeyId, SlotCounts> = Map::default();
        let mut recalled_at: Map<Host, usize> = Map::default();
        let mut without_slot = 0;
        while waiting.admits(SlotCounts::default(), health, self.bounds.waiting)
            && without_slot < self.recall_queue[health as usize].len().min(KEYS_AT_ONCE)
            && let Some(owner) = self.recall_queue[health as usize].pop_front()
        {
            let more = recalled.get(&owner).copied().unwrap_or_default();
            let is_admitted = self.slots_left(owner, waiting, more, health) > 0;
            let Some(key) = self.keys.get(&owner) else { continue };
            if key.first_refused(health).is_none() {
                if let Some(key) = self.keys.get_mut(&owner) {
                    key.is_recall_queued[health as usize] = false;
                }
                continue;
            }
            self.recall_queue[health as usize].push_back(owner);
            let has_capacity =
                |host: &&Host| !self.has_too_many_waiting(host, recalled_at.get(*host).copied().unwrap_or(0));
            let first = is_admitted.then(|| key.all_refused(health).find(has_capacity).cloned()).flatten();
            let Some(host) = first else {
                without_slot += 1;
                continue;
            };
            without_slot = 0;
            if let Some(key) = self.keys.get_mut(&owner) {
                key.remove_refused(&host);
            }
            self.refused -= 1;
            waiting.add(health);
            recalled.entry(owner).or_default().add(health);
            *recalled_at.entry(Arc::clone(&host)).or_default() += 1;
            self.freed.push(Flow { owner, host });
        }
    }

    /// Whether any slot is free.
    pub fn has_capacity(&self) -> bool {
        self.waiting.total() < self.bounds.waiting
    }

    /// Drops all reserved slots and ready deliveries. Attempts in flight go on.
    pub fn clear_waiting(&mut self) {
        for key in self.keys.values_mut() {
            key.clear_waiting();
        }
        self.waiting = SlotCounts::default();
        self.waiting_at.clear();
        self.ready_by_health = Default::default();
        self.recall_queue = Default::default();
        self.refused = 0;
        self.barred.clear();
        self.is_barred.clear();
        self.freed.clear();
    }
}

#[cfg(test)]
mod tests;

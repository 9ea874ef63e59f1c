//! The fair scheduler: which delivery begins next, how many each key and each of its receivers may have in flight, and how
//! many may wait to begin.
//!
//! Keys come first: the next worker goes to the key that has the fewest tries in flight, and how many one key may have is
//! bounded so that the next key finds a worker (see [`FairShare`]). Then come the key's receivers, by the same order. A
//! receiver is tried with as many at a time as it has shown to bear: a new one begins with two; each success lets one more
//! in, up to the bound for one host; each failure halves it, down to one, so that a receiver in trouble is asked less and
//! never abandoned. No receiver has more in flight than its key may still have (the dynamic threshold again), so that however
//! many are slow there are some workers left for the key's next one. Those that fail or are not yet known have only a share
//! of the workers, over all keys and of what one key may have (see [`Standing`]): so a receiver that answers finds a free
//! one, however many others hang.
//!
//! The places of deliveries that wait to begin are shared by the same rules, and so is the memory for flows that were
//! refused one. A key that has used up its share of that is barred: what is behind is looked at again later.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

pub use super::flow::{Flow, Host};
use super::flow::{FlowState, KeyState, Turn};
use super::standing::{FairShare, Places, Standing};
use crate::domain::key::KeyId;

/// Flows remembered at the most while they have nothing to do, and as many that were refused a place.
const REMEMBERED: usize = 16_384;
/// Keys that wait for room, of which it is looked at once whether they have some.
const KEYS_AT_ONCE: usize = 256;

/// How many of what there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Tries in flight, over all receivers.
    pub workers: usize,
    /// Tries in flight to one receiver.
    pub per_host: usize,
    /// Deliveries taken from the queue and not yet in flight, over all receivers.
    pub waiting: usize,
}

/// Why nothing more is taken from the queue for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It has as many as it may have, or waits for a place that its key may have. Others may have room.
    Flow,
    /// Its key is barred: so many of its flows wait for a place that no more are remembered.
    Key,
    /// Nobody has room.
    All,
}

/// Who may have room for a promise. Some may have none after all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Roomy {
    pub flows: Vec<Flow>,
    /// Keys that were barred.
    pub keys: Vec<KeyId>,
}

/// All flows that have something to do, and some that had.
#[derive(Debug)]
pub struct Scheduler<T> {
    bounds: Bounds,
    remembered: usize,
    keys: HashMap<KeyId, KeyState<T>>,
    /// Flows of all keys.
    known: usize,
    /// With more known ones than these, idle ones are forgotten.
    forget_above: usize,
    /// Tries in flight by receiver, over all keys.
    to_host: HashMap<Host, usize>,
    in_flight: Places,
    /// Promised and ready ones.
    waiting: Places,
    /// The same by receiver, over all keys.
    waiting_at: HashMap<Host, usize>,
    /// By standing: keys with a flow of it that has something to begin.
    lines: [BTreeSet<(Turn, KeyId)>; 3],
    /// By standing: keys with flows that were refused a place, in turns.
    asking: [VecDeque<KeyId>; 3],
    /// Flows that were refused a place, and how many ever were.
    refused: usize,
    ever_refused: u64,
    /// Keys of which no more refused flows are remembered.
    barred: VecDeque<KeyId>,
    is_barred: HashSet<KeyId>,
    /// Flows that can be promised more since [`take_roomy`](Self::take_roomy) was last called.
    roomy: Vec<Flow>,
    /// How often any flow was served.
    served: u64,
}

impl<T> Scheduler<T> {
    pub fn new(bounds: Bounds) -> Self {
        Self::that_remembers(REMEMBERED, bounds)
    }

    fn that_remembers(remembered: usize, bounds: Bounds) -> Self {
        Self {
            bounds,
            remembered,
            keys: HashMap::new(),
            known: 0,
            forget_above: remembered,
            to_host: HashMap::new(),
            in_flight: Places::default(),
            waiting: Places::default(),
            waiting_at: HashMap::new(),
            lines: Default::default(),
            asking: Default::default(),
            refused: 0,
            ever_refused: 0,
            barred: VecDeque::new(),
            is_barred: HashSet::new(),
            roomy: Vec::new(),
            served: 0,
        }
    }

    /// Tries in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.total()
    }

    /// Promises a place to a delivery that is to be taken from the queue; [`put`](Self::put) or
    /// [`give_back`](Self::give_back) has to follow.
    pub fn promise(&mut self, flow: &Flow) -> Result<(), Full> {
        let taken = self.waiting.total();
        if taken >= self.bounds.waiting {
            return Err(Full::All);
        }
        let known = self.keys.get(&flow.owner).and_then(|key| key.flows.get(&flow.host));
        let standing = known.map_or(Standing::New, |state| state.standing);
        let is_refused = known.is_some_and(FlowState::is_refused);
        let left = self.left_to_wait(flow.owner, self.waiting, Places::default(), standing);
        let is_admitted = left > 0 && !self.is_crowded(&flow.host, 0);
        // Of the places too it has no more than are left.
        if known.is_some_and(|state| state.is_full() || (is_admitted && state.waiting() >= left)) {
            return Err(Full::Flow);
        }
        if !is_admitted && !is_refused && !self.remembers_refused(flow.owner) {
            if self.is_barred.insert(flow.owner) {
                self.barred.push_back(flow.owner);
            }
            return Err(Full::Key);
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
                self.ask(flow.owner, standing);
            }
            return Err(Full::Flow);
        }
        state.promised += 1;
        key.waiting.add(standing);
        self.waiting.add(standing);
        *self.waiting_at.entry(Arc::clone(&flow.host)).or_default() += 1;
        self.refused -= usize::from(key.forgive(&flow.host));
        Ok(())
    }

    /// How many more places a key may have where `waiting` are taken, `more` of them by itself besides what it has.
    fn left_to_wait(&self, owner: KeyId, waiting: Places, more: Places, standing: Standing) -> usize {
        let own = self.keys.get(&owner).map_or_else(Places::default, |key| key.waiting);
        waiting.left(own.plus(more), standing, self.bounds.waiting)
    }

    /// Whether so many deliveries to a receiver wait, with `more`, that it gets no further place. Over all keys: else those of many
    /// keys to one slow receiver would take all places, and everybody would be as slow.
    fn is_crowded(&self, host: &Host, more: usize) -> bool {
        let most = (Standing::Sound.windows_at_hand() * self.bounds.per_host).min(self.bounds.waiting / 2).max(1);
        self.waiting_at.get(host).copied().unwrap_or(0) + more >= most
    }

    /// A delivery to a receiver no longer waits.
    fn leave(&mut self, host: &Host) {
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

    /// A key has a flow that was refused.
    fn ask(&mut self, owner: KeyId, standing: Standing) {
        let Some(key) = self.keys.get_mut(&owner) else { return };
        if !std::mem::replace(&mut key.asks[standing as usize], true) {
            self.asking[standing as usize].push_back(owner);
        }
    }

    /// The delivery that a place was promised to.
    pub fn put(&mut self, flow: &Flow, delivery: T) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.promised -= 1;
        state.ready.push_back(delivery);
        key.line_up(&flow.host);
        self.line_up(flow.owner);
    }

    /// The delivery that a place was promised to does not come.
    pub fn give_back(&mut self, flow: &Flow) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.promised -= 1;
        key.waiting.remove(state.standing);
        self.waiting.remove(state.standing);
        self.leave(&flow.host);
        self.roomy.push(flow.clone());
        self.forget_some();
    }

    /// The next delivery to be tried, and where: it is in flight from now on.
    pub fn next(&mut self) -> Option<(Flow, T)> {
        let firsts = Standing::ALL.into_iter().filter_map(|standing| self.first_of(standing));
        let (_, owner, host) = firsts.min_by_key(|(turns, ..)| *turns)?;
        let key = self.keys.get_mut(&owner)?;
        let state = key.flows.get_mut(&host)?;
        let delivery = state.ready.pop_front()?;
        self.served += 1;
        state.in_flight += 1;
        (state.served, key.served) = (self.served, self.served);
        for waiting in [&mut key.waiting, &mut self.waiting] {
            waiting.remove(state.standing);
        }
        for in_flight in [&mut key.in_flight, &mut self.in_flight] {
            in_flight.add(state.standing);
        }
        *self.to_host.entry(Arc::clone(&host)).or_default() += 1;
        key.line_up(&host);
        self.line_up(owner);
        self.leave(&host);
        Some((Flow { owner, host }, delivery))
    }

    /// The first key, and of it the first flow, of this standing that may begin something now.
    ///
    /// Keys are passed over that may have no more in flight, and those whose receivers may not. Of the latter there are only
    /// as many as have a place.
    fn first_of(&self, standing: Standing) -> Option<((Turn, Turn), KeyId, Host)> {
        let workers = self.bounds.workers;
        if !self.in_flight.has_room(standing, workers) {
            return None;
        }
        let taken = self.in_flight.total();
        let at_host = FairShare::of_few(self.bounds.per_host);
        let line = self.lines[standing as usize].iter();
        // Those behind one that has too many have no fewer.
        let mut line = line.take_while(|((in_flight, _), _)| FairShare::of(workers).admits(taken, *in_flight));
        line.find_map(|(key_turn, owner)| {
            let key = self.keys.get(owner)?;
            let left = self.in_flight.left(key.in_flight, standing, workers);
            let mut flows = key.line(standing).take_while(|((in_flight, _), _)| *in_flight < left);
            let (turn, host) = flows.find(|((in_flight, _), host)| {
                let taken = self.to_host.get(*host).copied().unwrap_or(0);
                at_host.admits(taken, *in_flight)
            })?;
            Some(((*key_turn, turn), *owner, Arc::clone(host)))
        })
    }

    /// A try has ended; `succeeded` is nothing where it was not made.
    pub fn ended(&mut self, flow: &Flow, succeeded: Option<bool>) {
        let Some(key) = self.keys.get_mut(&flow.owner) else { return };
        let Some(state) = key.flows.get_mut(&flow.host) else { return };
        state.in_flight -= 1;
        let (waiting, in_flight) = (state.waiting(), state.in_flight);
        key.in_flight.remove(state.standing);
        self.in_flight.remove(state.standing);
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
                self.ask(flow.owner, now);
            }
        }
        if let Some(key) = self.keys.get_mut(&flow.owner) {
            key.line_up(&flow.host);
        }
        self.line_up(flow.owner);
        self.roomy.push(flow.clone());
        self.forget_some();
    }

    /// Puts a key where it is to stand in the lines now.
    fn line_up(&mut self, owner: KeyId) {
        let Some(key) = self.keys.get_mut(&owner) else { return };
        for standing in Standing::ALL {
            let turn = key.turn(standing);
            let lined = std::mem::replace(&mut key.lined[standing as usize], turn);
            if lined == turn {
                continue;
            }
            let line = &mut self.lines[standing as usize];
            if let Some(turn) = lined {
                line.remove(&(turn, owner));
            }
            if let Some(turn) = turn {
                line.insert((turn, owner));
            }
        }
    }

    /// Forgets flows with nothing to do when there are too many, those of the keys that have the most.
    fn forget_some(&mut self) {
        if self.known <= self.forget_above {
            return;
        }
        let most_of_a_key = (self.remembered * 3 / 4) / self.keys.len().max(1);
        for key in self.keys.values_mut().filter(|key| key.flows.len() > most_of_a_key) {
            let before = key.flows.len();
            key.flows.retain(|_, flow| !flow.is_idle());
            self.known -= before - key.flows.len();
        }
        self.keys.retain(|_, key| !key.flows.is_empty() || key.asks.contains(&true));
        // Where most are busy it is looked again only once there are many more, for it means to look at all.
        self.forget_above = self.remembered.max(self.known + self.remembered / 4);
    }

    /// Who may have room for a promise since this was last asked.
    pub fn take_roomy(&mut self) -> Roomy {
        for standing in Standing::ALL {
            self.recall_refused(standing);
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
        Roomy { flows: std::mem::take(&mut self.roomy), keys }
    }

    /// Recalls as many of the flows that were refused as there are places, of each key in turn: more would only be refused
    /// again.
    fn recall_refused(&mut self, standing: Standing) {
        let mut waiting = self.waiting;
        let mut given: HashMap<KeyId, Places> = HashMap::new();
        let mut given_at: HashMap<Host, usize> = HashMap::new();
        let mut in_vain = 0;
        while waiting.admits(Places::default(), standing, self.bounds.waiting)
            && in_vain < self.asking[standing as usize].len().min(KEYS_AT_ONCE)
            && let Some(owner) = self.asking[standing as usize].pop_front()
        {
            let more = given.get(&owner).copied().unwrap_or_default();
            let is_admitted = self.left_to_wait(owner, waiting, more, standing) > 0;
            let Some(key) = self.keys.get(&owner) else { continue };
            if key.first_refused(standing).is_none() {
                if let Some(key) = self.keys.get_mut(&owner) {
                    key.asks[standing as usize] = false;
                }
                continue;
            }
            self.asking[standing as usize].push_back(owner);
            let has_room = |host: &&Host| !self.is_crowded(host, given_at.get(*host).copied().unwrap_or(0));
            let first = is_admitted.then(|| key.all_refused(standing).find(has_room).cloned()).flatten();
            let Some(host) = first else {
                in_vain += 1;
                continue;
            };
            in_vain = 0;
            if let Some(key) = self.keys.get_mut(&owner) {
                key.forgive(&host);
            }
            self.refused -= 1;
            waiting.add(standing);
            given.entry(owner).or_default().add(standing);
            *given_at.entry(Arc::clone(&host)).or_default() += 1;
            self.roomy.push(Flow { owner, host });
        }
    }

    /// Whether anybody can be promised a place.
    pub fn has_room(&self) -> bool {
        self.waiting.total() < self.bounds.waiting
    }

    /// Drops all that is promised or ready. What is in flight goes on.
    pub fn clear_waiting(&mut self) {
        for key in self.keys.values_mut() {
            key.clear_waiting();
        }
        self.waiting = Places::default();
        self.waiting_at.clear();
        self.lines = Default::default();
        self.asking = Default::default();
        self.refused = 0;
        self.barred.clear();
        self.is_barred.clear();
        self.roomy.clear();
    }
}

#[cfg(test)]
mod tests;

//! The fair scheduler: which delivery begins next, how many each key and each of its receivers may have in flight, and how
//! many may wait to begin.
//!
//! Keys come first: the next worker goes to the key that has the fewest tries in flight, and how many one key may have is
//! bounded so that the next key finds a worker (see [`FairShare`]). Then come the key's receivers, by the same order. A
//! receiver is tried with as many at a time as it has shown to bear: a new one begins with two; each success lets one more
//! in, up to the bound for one host; each failure halves it, down to one, so that a receiver in trouble is asked less and
//! never abandoned. No receiver has more in flight than there are idle workers. Those that fail or are not yet known have
//! only a share of the workers, over all keys and of what one key may have (see [`Standing`]): so a receiver that answers
//! finds a free one, however many others hang.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::webhook_flow::{Flow, FlowState, Host, KeyState, Turn};
use super::webhook_standing::{FairShare, Places, Standing};
use crate::domain::key::KeyId;

/// Flows remembered at the most while they have nothing to do.
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
    /// It has as many as it may have. Others may have room.
    Host,
    /// Its key has as many as it may have of this standing. Others may have room.
    Key(Standing),
    /// Nobody has room.
    All,
}

/// Keys that have room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRoom {
    pub key: KeyId,
    pub standing: Standing,
    /// For so many.
    pub places: usize,
}

/// All flows that have something to do, and some that had.
#[derive(Debug)]
pub struct Hosts<T> {
    bounds: Bounds,
    keys: HashMap<KeyId, KeyState<T>>,
    /// Flows of all keys.
    known: usize,
    /// Tries in flight by receiver, over all keys.
    to_host: HashMap<Host, usize>,
    in_flight: Places,
    /// Promised and ready ones.
    waiting: Places,
    /// By standing: keys with a flow of it that has something to begin.
    lines: [BTreeSet<(Turn, KeyId)>; 3],
    /// By standing: keys that wait for a place, first come first served.
    refused: [VecDeque<KeyId>; 3],
    is_refused: HashSet<(KeyId, usize)>,
    /// Flows that can be promised more since [`take_roomy`](Self::take_roomy) was last called.
    roomy: Vec<Flow>,
    /// How often any flow was served.
    served: u64,
}

impl<T> Hosts<T> {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            keys: HashMap::new(),
            known: 0,
            to_host: HashMap::new(),
            in_flight: Places::default(),
            waiting: Places::default(),
            lines: Default::default(),
            refused: Default::default(),
            is_refused: HashSet::new(),
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
        if let Some(full) = self.refusal(flow) {
            return Err(full);
        }
        let (served, per_host) = (self.served, self.bounds.per_host);
        let key = self.keys.entry(flow.owner).or_insert_with(|| KeyState::new(served));
        let state = key.flows.entry(Arc::clone(&flow.host)).or_insert_with(|| {
            self.known += 1;
            FlowState::new(per_host, served)
        });
        state.promised += 1;
        key.waiting.add(state.standing);
        self.waiting.add(state.standing);
        Ok(())
    }

    /// Why a flow would not be promised a place.
    pub fn refusal(&self, flow: &Flow) -> Option<Full> {
        let taken = self.waiting.total();
        if taken >= self.bounds.waiting {
            return Some(Full::All);
        }
        let key = self.keys.get(&flow.owner);
        let state = key.and_then(|key| key.flows.get(&flow.host));
        // Of the places too nobody has more than are left.
        let left = self.bounds.waiting - taken;
        if state.is_some_and(|state| state.is_full() || state.waiting() >= left) {
            return Some(Full::Host);
        }
        let standing = state.map_or(Standing::New, |state| state.standing);
        let own = key.map_or_else(Places::default, |key| key.waiting);
        (!self.waiting.admits(own, standing, self.bounds.waiting)).then_some(Full::Key(standing))
    }

    /// Has [`take_roomy`](Self::take_roomy) tell when a key has room that was refused for it.
    pub fn wait_for_room(&mut self, key: KeyId, standing: Standing) {
        if self.is_refused.insert((key, standing as usize)) {
            self.refused[standing as usize].push_back(key);
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
        self.roomy.push(flow.clone());
        self.forget_some();
    }

    /// The next delivery to be tried, and where: it is in flight from now on.
    pub fn next(&mut self) -> Option<(Flow, T)> {
        let firsts = Standing::ALL.into_iter().filter_map(|standing| self.first_of(standing));
        let (_, owner, host) = firsts.min_by_key(|(turns, ..)| *turns)?;
        self.served += 1;
        let key = self.keys.get_mut(&owner)?;
        let state = key.flows.get_mut(&host)?;
        let delivery = state.ready.pop_front()?;
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
        Some((Flow { owner, host }, delivery))
    }

    /// The first key, and of it the first flow, of this standing that may begin something now.
    ///
    /// Keys are passed over that have tries in flight and may have no more, so never more keys than tries in flight.
    fn first_of(&self, standing: Standing) -> Option<((Turn, Turn), KeyId, Host)> {
        let workers = self.bounds.workers;
        if !self.in_flight.has_room(standing, workers) {
            return None;
        }
        let taken = self.in_flight.total();
        let idle = workers - taken;
        let at_host = FairShare::of_few(self.bounds.per_host);
        let line = self.lines[standing as usize].iter();
        // Those behind one that has too many have no fewer.
        let mut line = line.take_while(|((in_flight, _), _)| FairShare::of(workers).admits(taken, *in_flight));
        line.find_map(|(key_turn, owner)| {
            let key = self.keys.get(owner)?;
            if !self.in_flight.admits(key.in_flight, standing, workers) {
                return None;
            }
            // However many receivers are slow, there are some workers left for the next one that comes.
            let mut flows = key.line(standing).take_while(|((in_flight, _), _)| *in_flight < idle);
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
        key.in_flight.remove(state.standing);
        self.in_flight.remove(state.standing);
        if let Some(in_flight) = self.to_host.get_mut(&flow.host) {
            *in_flight -= 1;
            if *in_flight == 0 {
                self.to_host.remove(&flow.host);
            }
        }
        if let Some(succeeded) = succeeded {
            let before = state.standing;
            state.learn(succeeded, self.bounds.per_host);
            for in_flight in [&mut key.in_flight, &mut self.in_flight] {
                in_flight.shift(before, state.standing, state.in_flight);
            }
            for waiting in [&mut key.waiting, &mut self.waiting] {
                waiting.shift(before, state.standing, state.waiting());
            }
        }
        key.line_up(&flow.host);
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
        if self.known <= REMEMBERED {
            return;
        }
        let most_of_a_key = (REMEMBERED * 3 / 4) / self.keys.len().max(1);
        for key in self.keys.values_mut().filter(|key| key.flows.len() > most_of_a_key) {
            let before = key.flows.len();
            key.flows.retain(|_, flow| !flow.is_idle());
            self.known -= before - key.flows.len();
        }
        self.keys.retain(|_, key| !key.flows.is_empty());
    }

    /// Flows, and keys that waited for it, that may have room for a promise since this was last asked. Some of the flows
    /// may have none after all.
    pub fn take_roomy(&mut self) -> (Vec<Flow>, Vec<KeyRoom>) {
        let mut keys = Vec::new();
        for standing in Standing::ALL {
            // Each in turn is given a place of those that are left: more would only be refused again.
            let refused = &mut self.refused[standing as usize];
            let mut waiting = self.waiting;
            let of_key = |key: KeyId| self.keys.get(&key).map_or_else(Places::default, |key| key.waiting);
            let some = refused.len().min(KEYS_AT_ONCE);
            let mut asking: VecDeque<_> = refused.drain(..some).map(|key| (key, of_key(key), 0)).collect();
            while let Some((key, mut own, places)) = asking.pop_front() {
                if waiting.admits(own, standing, self.bounds.waiting) {
                    waiting.add(standing);
                    own.add(standing);
                    asking.push_back((key, own, places + 1));
                } else if places > 0 {
                    self.is_refused.remove(&(key, standing as usize));
                    keys.push(KeyRoom { key, standing, places });
                } else {
                    refused.push_back(key);
                }
            }
        }
        (std::mem::take(&mut self.roomy), keys)
    }

    /// Whether anybody can be promised a place.
    pub fn has_room(&self) -> bool {
        self.waiting.total() < self.bounds.waiting
    }

    /// Drops all that is promised or ready. What is in flight goes on.
    pub fn clear_waiting(&mut self) {
        for key in self.keys.values_mut() {
            key.clear_waiting();
            key.lined = [None; 3];
        }
        self.waiting = Places::default();
        self.lines = Default::default();
        self.refused = Default::default();
        self.is_refused.clear();
        self.roomy.clear();
    }
}

#[cfg(test)]
mod tests;

//! Flows: a key's deliveries to one receiver. They are what the scheduler serves in turns.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::standing::{Places, Standing};
use crate::domain::key::KeyId;

/// A receiver: host and port.
pub type Host = Arc<str>;

/// A key's deliveries to one receiver.
///
/// What is known of a receiver is known for one key: another key's deliveries to the same host may go to another
/// application, and one that fails must not slow the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub owner: KeyId,
    pub host: Host,
}

impl Flow {
    /// That of deliveries that have no receiver. They are never sent.
    pub fn nowhere() -> Self {
        Self { owner: KeyId(Uuid::nil()), host: "".into() }
    }

    pub fn is_nowhere(&self) -> bool {
        self.host.is_empty()
    }
}

/// Tries at once to a receiver that nothing is known of.
const FIRST_WINDOW: usize = 2;

/// A flow's place in a line: fewest tries in flight first, then the one that was served longest ago.
pub type Turn = (usize, u64);

/// A flow's deliveries at hand.
#[derive(Debug)]
pub struct FlowState<T> {
    pub standing: Standing,
    /// Tries that it may have in flight.
    pub window: usize,
    pub in_flight: usize,
    /// Promised to deliveries that are being taken from the queue.
    pub promised: usize,
    /// Taken from the queue, in its order.
    pub ready: VecDeque<T>,
    /// Counted up whenever any flow is served; that of the last time this one was, or was new.
    pub served: u64,
    /// Where it stands in its key's lines.
    lined: Option<(Standing, Turn)>,
    /// Where it stands among its key's refused flows: which one of all that were ever refused.
    refused: Option<u64>,
}

impl<T> FlowState<T> {
    pub fn new(per_host: usize, served: u64) -> Self {
        Self {
            standing: Standing::New,
            window: FIRST_WINDOW.min(per_host),
            in_flight: 0,
            promised: 0,
            ready: VecDeque::new(),
            served,
            lined: None,
            refused: None,
        }
    }

    pub fn waiting(&self) -> usize {
        self.promised + self.ready.len()
    }

    /// Whether it has as many deliveries at hand as it may have.
    pub fn is_full(&self) -> bool {
        self.in_flight + self.waiting() >= self.standing.windows_at_hand() * self.window
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting() == 0 && !self.is_refused()
    }

    /// Where it is to stand: in line, if it has something ready and may begin it.
    fn turn(&self) -> Option<(Standing, Turn)> {
        let may_begin = !self.ready.is_empty() && self.in_flight < self.window;
        may_begin.then_some((self.standing, (self.in_flight, self.served)))
    }

    /// One more is let in after a success, half as many after a failure.
    fn learn(&mut self, succeeded: bool, per_host: usize) {
        (self.standing, self.window) = if succeeded {
            (Standing::Sound, (self.window + 1).min(per_host))
        } else {
            (Standing::Failing, (self.window / 2).max(1))
        };
    }
}

/// A key's flows.
#[derive(Debug)]
pub struct KeyState<T> {
    pub flows: HashMap<Host, FlowState<T>>,
    pub in_flight: Places,
    /// Promised and ready ones.
    pub waiting: Places,
    /// By standing: flows that have something to begin.
    lines: [BTreeSet<(Turn, Host)>; 3],
    /// By standing: flows that were refused a place, first come first served.
    refused: [BTreeMap<u64, Host>; 3],
    /// By standing: whether the key is among those that ask for places.
    pub asks: [bool; 3],
    /// As [`FlowState::served`], of the key.
    pub served: u64,
    /// Where the key stands in the lines of keys.
    pub lined: [Option<Turn>; 3],
}

impl<T> KeyState<T> {
    pub fn new(served: u64) -> Self {
        Self {
            flows: HashMap::new(),
            in_flight: Places::default(),
            waiting: Places::default(),
            lines: Default::default(),
            refused: Default::default(),
            asks: [false; 3],
            served,
            lined: [None; 3],
        }
    }

    /// Puts a flow where it is to stand now.
    pub fn line_up(&mut self, host: &Host) {
        let Some(flow) = self.flows.get_mut(host) else { return };
        let turn = flow.turn();
        if turn == flow.lined {
            return;
        }
        if let Some((standing, turn)) = std::mem::replace(&mut flow.lined, turn) {
            self.lines[standing as usize].remove(&(turn, Arc::clone(host)));
        }
        if let Some((standing, turn)) = turn {
            self.lines[standing as usize].insert((turn, Arc::clone(host)));
        }
    }

    /// Where the key is to stand in the line of keys that have a flow of this standing to serve.
    pub fn turn(&self, standing: Standing) -> Option<Turn> {
        let has_one = !self.lines[standing as usize].is_empty();
        has_one.then_some((self.in_flight.total(), self.served))
    }

    /// Its flows of a standing that have something to begin, in the order of their turns.
    pub fn line(&self, standing: Standing) -> impl Iterator<Item = (Turn, &Host)> {
        self.lines[standing as usize].iter().map(|(turn, host)| (*turn, host))
    }

    /// What a try has shown of a flow; answers the standing before and now.
    pub fn learn(&mut self, host: &Host, succeeded: bool, per_host: usize) -> Option<(Standing, Standing)> {
        let flow = self.flows.get_mut(host)?;
        let before = flow.standing;
        flow.learn(succeeded, per_host);
        let now = flow.standing;
        self.in_flight.shift(before, now, flow.in_flight);
        self.waiting.shift(before, now, flow.waiting());
        // It keeps its place by age.
        if let Some(number) = flow.refused
            && let Some(host) = self.refused[before as usize].remove(&number)
        {
            self.refused[now as usize].insert(number, host);
        }
        Some((before, now))
    }

    /// A flow was refused a place, the `number`th of all.
    pub fn refuse(&mut self, host: &Host, number: u64) {
        let Some(flow) = self.flows.get_mut(host) else { return };
        flow.refused = Some(number);
        self.refused[flow.standing as usize].insert(number, Arc::clone(host));
    }

    /// A flow is no longer among the refused ones; answers whether it was.
    pub fn forgive(&mut self, host: &Host) -> bool {
        let Some(flow) = self.flows.get_mut(host) else { return false };
        let number = flow.refused.take();
        number.is_some_and(|number| self.refused[flow.standing as usize].remove(&number).is_some())
    }

    /// The flow of this standing that was refused first.
    pub fn first_refused(&self, standing: Standing) -> Option<&Host> {
        self.all_refused(standing).next()
    }

    /// The flows of this standing that were refused, in that order.
    pub fn all_refused(&self, standing: Standing) -> impl Iterator<Item = &Host> {
        self.refused[standing as usize].values()
    }

    pub fn refused(&self) -> usize {
        self.refused.iter().map(BTreeMap::len).sum()
    }

    /// Drops all that waits.
    pub fn clear_waiting(&mut self) {
        for flow in self.flows.values_mut() {
            flow.ready.clear();
            (flow.promised, flow.lined, flow.refused) = (0, None, None);
        }
        self.waiting = Places::default();
        self.lines = Default::default();
        self.refused = Default::default();
        (self.lined, self.asks) = ([None; 3], [false; 3]);
    }
}

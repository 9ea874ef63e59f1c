//! Flows: a key's deliveries to one receiver. They are what the scheduler serves in turns.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::webhook_standing::{Places, Standing};
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

/// Tries at once to a receiver that nothing is known of.
const FIRST_WINDOW: usize = 2;

/// A flow's place in a line: fewest tries in flight first, then the one that was served longest ago.
pub type Turn = (usize, u64);

/// A flow's deliveries at hand.
#[derive(Debug)]
pub struct FlowState<T> {
    pub standing: Standing,
    /// Tries that it may have in flight.
    window: usize,
    pub in_flight: usize,
    /// Promised to deliveries that are being taken from the queue.
    pub promised: usize,
    /// Taken from the queue, in its order.
    pub ready: VecDeque<T>,
    /// Counted up whenever any flow is served; that of the last time this one was, or was new.
    pub served: u64,
    /// Where it stands in its key's lines.
    lined: Option<(Standing, Turn)>,
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
        }
    }

    pub fn waiting(&self) -> usize {
        self.promised + self.ready.len()
    }

    /// Whether it has as many deliveries at hand as it may have.
    pub fn is_full(&self) -> bool {
        self.in_flight + self.waiting() >= self.standing.windows_at_hand() * self.window
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting() == 0
    }

    /// Where it is to stand: in line, if it has something ready and may begin it.
    fn turn(&self) -> Option<(Standing, Turn)> {
        let may_begin = !self.ready.is_empty() && self.in_flight < self.window;
        may_begin.then_some((self.standing, (self.in_flight, self.served)))
    }

    /// One more is let in after a success, half as many after a failure.
    pub fn learn(&mut self, succeeded: bool, per_host: usize) {
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

    /// Drops all that waits; answers how many flows have nothing left to do and are dropped with it.
    pub fn clear_waiting(&mut self) {
        for flow in self.flows.values_mut() {
            flow.ready.clear();
            flow.promised = 0;
            flow.lined = None;
        }
        self.waiting = Places::default();
        self.lines = Default::default();
    }
}

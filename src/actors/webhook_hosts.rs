//! Whose turn it is: how many tries each receiver has under way, and how many it may have.
//!
//! A receiver is tried with as many at a time as it has shown to bear. A new one begins with [`FIRST_WINDOW`]; each success
//! lets one more in, up to the bound for one receiver; each failure halves it, down to one, so that a receiver that is in
//! trouble is asked less and never abandoned. No receiver has more under way than there are idle workers (the dynamic
//! threshold of shared-memory switches: Choudhury and Hahne, 1998), so that slow ones leave some for others. Receivers take
//! turns, and those that fail or are not yet known have only a share of the workers (see [`Standing`]): so a receiver that
//! answers always finds a free one, however many others hang.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::webhook_standing::{Places, Standing};

/// A receiver: host and port.
pub type Host = Arc<str>;

/// Tries at once to a receiver that nothing is known of.
const FIRST_WINDOW: usize = 2;
/// Receivers remembered at the most while they have nothing to do.
const REMEMBERED: usize = 16_384;

/// How many of what there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Tries under way, over all receivers.
    pub workers: usize,
    /// Tries under way to one receiver.
    pub per_host: usize,
    /// Deliveries taken from the queue and not yet under way, over all receivers.
    pub waiting: usize,
}

/// Where a receiver with something ready waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Turns,
    /// For a worker of its standing's share.
    Held,
    /// For more idle workers than it has tries under way.
    Sated,
}

#[derive(Debug)]
struct State<T> {
    standing: Standing,
    /// Tries that it may have under way.
    window: usize,
    under_way: usize,
    /// Promised to deliveries that are being taken from the queue.
    promised: usize,
    /// Taken from the queue, in its order.
    ready: VecDeque<T>,
    line: Option<Line>,
    /// Whether it stands in `refused`.
    in_refused: bool,
}

impl<T> State<T> {
    fn new(per_host: usize) -> Self {
        Self {
            standing: Standing::New,
            window: FIRST_WINDOW.min(per_host),
            under_way: 0,
            promised: 0,
            ready: VecDeque::new(),
            line: None,
            in_refused: false,
        }
    }

    fn waiting(&self) -> usize {
        self.promised + self.ready.len()
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0 && self.waiting() == 0 && !self.in_refused
    }
}

/// Why nothing more is taken from the queue for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It has as many as it may have. Others may have room.
    Host,
    /// Nobody has room.
    All,
}

/// All receivers that have something to do, and some that had.
#[derive(Debug)]
pub struct Hosts<T> {
    bounds: Bounds,
    known: HashMap<Host, State<T>>,
    under_way: Places,
    /// Promised and ready ones.
    waiting: Places,
    /// Receivers that may have something to begin, in the order of their turns.
    turns: VecDeque<Host>,
    /// By standing: receivers whose turn it was while those of their standing had all their workers.
    held: [VecDeque<Host>; 3],
    /// Receivers whose turn it was while they had more under way than others have left.
    sated: VecDeque<Host>,
    /// By standing: receivers that were refused a promise while those of their standing had all their places.
    refused: [VecDeque<Host>; 3],
    /// Receivers that can be promised more since [`take_roomy`](Self::take_roomy) was last called.
    roomy: Vec<Host>,
}

impl<T> Hosts<T> {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            known: HashMap::new(),
            under_way: Places::default(),
            waiting: Places::default(),
            turns: VecDeque::new(),
            held: Default::default(),
            sated: VecDeque::new(),
            refused: Default::default(),
            roomy: Vec::new(),
        }
    }

    /// Tries under way.
    pub fn under_way(&self) -> usize {
        self.under_way.total()
    }

    /// Promises a place to a delivery that is to be taken from the queue; [`put`](Self::put) or
    /// [`give_back`](Self::give_back) has to follow.
    pub fn promise(&mut self, host: &Host) -> Result<(), Full> {
        if self.waiting.total() >= self.bounds.waiting {
            return Err(Full::All);
        }
        let per_host = self.bounds.per_host;
        let state = self.known.entry(Arc::clone(host)).or_insert_with(|| State::new(per_host));
        if state.under_way + state.waiting() >= state.standing.windows_at_hand() * state.window {
            return Err(Full::Host);
        }
        // Of the places too nobody has more than are left.
        let left = self.bounds.waiting - self.waiting.total();
        if state.waiting() >= left {
            return Err(Full::Host);
        }
        if !self.waiting.has_room(state.standing, self.bounds.waiting) {
            if state.in_refused {
                return Err(Full::Host);
            }
            let refused = &mut self.refused[state.standing as usize];
            if refused.len() >= REMEMBERED {
                return Err(Full::All);
            }
            state.in_refused = true;
            refused.push_back(Arc::clone(host));
            return Err(Full::Host);
        }
        state.promised += 1;
        self.waiting.add(state.standing);
        Ok(())
    }

    /// The delivery that a place was promised to.
    pub fn put(&mut self, host: &Host, delivery: T) {
        let Some(state) = self.known.get_mut(host) else { return };
        state.promised -= 1;
        state.ready.push_back(delivery);
        self.line_up(host);
    }

    /// The delivery that a place was promised to does not come.
    pub fn give_back(&mut self, host: &Host) {
        let Some(state) = self.known.get_mut(host) else { return };
        state.promised -= 1;
        self.waiting.remove(state.standing);
        self.roomy.push(Arc::clone(host));
    }

    /// The next delivery to be tried, and where: it is under way from now on.
    pub fn next(&mut self) -> Option<(Host, T)> {
        let idle_share = self.idle_share();
        while let Some(host) = self.turns.pop_front().or_else(|| self.release()) {
            let Some(state) = self.known.get_mut(&host) else { continue };
            state.line = None;
            if state.ready.is_empty() || state.under_way >= state.window {
                continue;
            }
            if !self.under_way.has_room(state.standing, self.bounds.workers) {
                state.line = Some(Line::Held);
                self.held[state.standing as usize].push_back(host);
                continue;
            }
            if state.under_way >= idle_share {
                state.line = Some(Line::Sated);
                self.sated.push_back(host);
                continue;
            }
            let Some(delivery) = state.ready.pop_front() else { continue };
            state.under_way += 1;
            self.waiting.remove(state.standing);
            self.under_way.add(state.standing);
            self.line_up(&host);
            return Some((host, delivery));
        }
        None
    }

    /// A receiver that was held back, if there is room now for one of its standing.
    fn release(&mut self) -> Option<Host> {
        let standings = Standing::ALL.into_iter();
        let mut roomy = standings.filter(|standing| self.under_way.has_room(*standing, self.bounds.workers));
        if let Some(host) = roomy.find_map(|standing| self.held[standing as usize].pop_front()) {
            return Some(host);
        }
        let idle_share = self.idle_share();
        let is_hungry = |host: &Host| self.known.get(host).is_none_or(|state| state.under_way < idle_share);
        self.sated.iter().position(is_hungry).and_then(|at| self.sated.remove(at))
    }

    /// How many tries a receiver may have under way for the sake of the others: as many as there are idle workers, so
    /// that however many are slow there are some left for the next one that comes.
    fn idle_share(&self) -> usize {
        self.bounds.workers.saturating_sub(self.under_way.total()).max(1)
    }

    /// A try has ended; `succeeded` is nothing where it was not made.
    pub fn ended(&mut self, host: &Host, succeeded: Option<bool>) {
        let Some(state) = self.known.get_mut(host) else { return };
        state.under_way -= 1;
        self.under_way.remove(state.standing);
        if let Some(succeeded) = succeeded {
            let before = state.standing;
            (state.standing, state.window) = if succeeded {
                (Standing::Sound, (state.window + 1).min(self.bounds.per_host))
            } else {
                (Standing::Failing, (state.window / 2).max(1))
            };
            self.under_way.shift(before, state.standing, state.under_way);
            self.waiting.shift(before, state.standing, state.waiting());
            if before != state.standing && state.line == Some(Line::Held) {
                // It is held back among those of its old standing.
                self.held[before as usize].retain(|held| held != host);
                state.line = None;
            }
        }
        self.line_up(host);
        // Those who are held back have a turn too, also where others always have something to begin.
        if let Some(host) = self.release() {
            if let Some(state) = self.known.get_mut(&host) {
                state.line = Some(Line::Turns);
            }
            self.turns.push_back(host);
        }
        self.roomy.push(Arc::clone(host));
        if self.known.len() > REMEMBERED {
            self.known.retain(|_, state| !state.is_idle());
        }
    }

    /// Lets a receiver have a turn, if it has something ready and may begin it.
    fn line_up(&mut self, host: &Host) {
        let Some(state) = self.known.get_mut(host) else { return };
        if state.line.is_none() && !state.ready.is_empty() && state.under_way < state.window {
            state.line = Some(Line::Turns);
            self.turns.push_back(Arc::clone(host));
        }
    }

    /// Receivers that may have room for a promise, since this was last asked. Some of them may have none after all.
    pub fn take_roomy(&mut self) -> Vec<Host> {
        for standing in Standing::ALL {
            // As many of those that were refused as there are places: more would only be refused again.
            let mut places = self.waiting;
            while places.has_room(standing, self.bounds.waiting)
                && let Some(host) = self.refused[standing as usize].pop_front()
            {
                places.add(standing);
                if let Some(state) = self.known.get_mut(&host) {
                    state.in_refused = false;
                }
                self.roomy.push(host);
            }
        }
        std::mem::take(&mut self.roomy)
    }

    /// Whether anybody can be promised a place.
    pub fn has_room(&self) -> bool {
        self.waiting.total() < self.bounds.waiting
    }

    /// Drops all that is promised or ready. What is under way goes on.
    pub fn clear_waiting(&mut self) {
        for state in self.known.values_mut() {
            state.ready.clear();
            (state.promised, state.line, state.in_refused) = (0, None, false);
        }
        self.waiting = Places::default();
        self.turns.clear();
        self.held = Default::default();
        self.sated.clear();
        self.refused = Default::default();
        self.roomy.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { workers: 8, per_host: 4, waiting: 12 };

    fn host(number: u8) -> Host {
        number.to_string().into()
    }

    /// Promises and puts one delivery, if there is room.
    fn offer(hosts: &mut Hosts<u32>, to: &Host, delivery: u32) -> Result<(), Full> {
        hosts.promise(to)?;
        hosts.put(to, delivery);
        Ok(())
    }

    /// As many as go at once to one receiver.
    fn begin_all(hosts: &mut Hosts<u32>, to: &Host) -> usize {
        while offer(hosts, to, 0).is_ok() {}
        std::iter::from_fn(|| hosts.next()).count()
    }

    #[test]
    fn a_receiver_is_given_more_as_it_succeeds_and_less_as_it_fails() {
        let (mut hosts, one) = (Hosts::new(BOUNDS), host(1));
        assert_eq!(begin_all(&mut hosts, &one), 2);
        for (succeeded, more) in [(true, 2), (true, 2), (true, 1), (false, 0), (false, 0)] {
            hosts.ended(&one, Some(succeeded));
            assert_eq!(begin_all(&mut hosts, &one), more, "{}", hosts.under_way());
        }
        while hosts.under_way() > 0 {
            hosts.ended(&one, Some(false));
        }
        assert_eq!(begin_all(&mut hosts, &one), 1);
    }

    #[test]
    fn receivers_take_turns() {
        let (mut hosts, [one, two]) = (Hosts::new(BOUNDS), [host(1), host(2)]);
        for to in [&one, &one, &two, &two] {
            offer(&mut hosts, to, 0).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| hosts.next()).map(|(host, _)| host).collect();
        assert_eq!(order, [&*one, &*two, &*one, &*two].map(Host::from));
    }

    #[test]
    fn however_many_hang_a_sound_receiver_and_a_new_one_find_a_worker() {
        let mut hosts = Hosts::new(BOUNDS);
        let sound = host(0);
        offer(&mut hosts, &sound, 0).unwrap();
        hosts.next().unwrap();
        hosts.ended(&sound, Some(true));
        // Failing ones, then new ones, that never end.
        for number in 1..50 {
            if offer(&mut hosts, &host(number), 0).is_ok() && hosts.next().is_some() && number < 20 {
                hosts.ended(&host(number), Some(false));
            }
        }
        for number in 1..50 {
            let _ = offer(&mut hosts, &host(number), 0);
            hosts.next();
        }
        assert_eq!(hosts.under_way(), 6);
        offer(&mut hosts, &sound, 7).unwrap();
        assert_eq!(hosts.next(), Some((sound, 7)));
    }

    #[test]
    fn idle_receivers_are_forgotten_when_there_are_too_many() {
        let mut hosts = Hosts::new(BOUNDS);
        for number in 0..40_000 {
            let to: Host = number.to_string().into();
            offer(&mut hosts, &to, 0).unwrap();
            hosts.next().unwrap();
            hosts.ended(&to, Some(true));
            hosts.take_roomy();
        }
        assert!(hosts.known.len() <= REMEMBERED + 1);
    }

    proptest! {
        /// Whatever comes and ends, no bound is passed, and no delivery that could begin is left lying.
        #[test]
        fn bounds_hold_and_nothing_is_left_lying(steps in prop::collection::vec((0_u8..6, 0_u8..12), 1..300)) {
            let mut hosts = Hosts::new(BOUNDS);
            let mut under_way: Vec<Host> = Vec::new();
            let (mut offered, mut begun) = (0, 0);
            for (step, number) in steps {
                match step {
                    0..=2 => offered += u32::from(offer(&mut hosts, &host(number), offered).is_ok()),
                    3 if hosts.promise(&host(number)).is_ok() => hosts.give_back(&host(number)),
                    _ if !under_way.is_empty() => {
                        let ended = under_way.swap_remove(usize::from(number) % under_way.len());
                        hosts.ended(&ended, [Some(true), Some(false), None][usize::from(number) % 3]);
                    }
                    _ => {}
                }
                while let Some((host, _)) = hosts.next() {
                    under_way.push(host);
                    begun += 1;
                }
                prop_assert_eq!(hosts.under_way(), under_way.len());
                prop_assert!(under_way.len() <= BOUNDS.workers);
                prop_assert!(hosts.waiting.total() <= BOUNDS.waiting);
                for (host, state) in &hosts.known {
                    prop_assert_eq!(state.under_way, under_way.iter().filter(|other| *other == host).count());
                    prop_assert!(state.under_way <= BOUNDS.per_host);
                    let could_begin = !state.ready.is_empty()
                        && state.under_way < state.window
                        && state.under_way < hosts.idle_share()
                        && hosts.under_way.has_room(state.standing, BOUNDS.workers);
                    prop_assert!(!could_begin, "{host} has something ready");
                }
                hosts.take_roomy();
            }
            // All of it is begun once the tries under way have ended.
            while let Some(host) = under_way.pop() {
                hosts.ended(&host, Some(true));
                while let Some((host, _)) = hosts.next() {
                    under_way.push(host);
                    begun += 1;
                }
            }
            prop_assert_eq!(begun, offered);
            prop_assert_eq!((hosts.under_way.total(), hosts.waiting.total()), (0, 0));
        }
    }
}

//! The state of a shard: what it knows of its keys.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use foldhash::quality::RandomState;
use tokio::sync::watch;

use super::exchange::{ExchangeRequest, ExchangeSchedule, Exchanged};
use super::{AdmitRequest, Admitting, NoteLinksCreated};
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::rate_limit::RateLimitId;
use crate::domain::window::{SlidingWindow, WindowId, WindowLog};
use crate::store::StoreError;

/// How long a note of a key's links is valid, and the shortest time for which an unused key is kept, in milliseconds.
const MEMORY_MS: u64 = 60_000;

/// How many keys each message checks to remove idle ones. More than one, so that keys are removed faster than they are
/// added.
const SWEPT_PER_MESSAGE: usize = 2;

/// The state of a shard.
#[derive(Default)]
pub struct ShardState {
    /// The ids are the service's own, so no client can choose ones that share a slot. The standard library's hashes, which
    /// withstand even that, take a tenth of an admission's instructions.
    keys: HashMap<KeyId, KeyWindows, RandomState>,
    /// Every key in `keys` once, with the time in milliseconds at which to check whether it is idle.
    checks: VecDeque<(u64, KeyId)>,
    /// `None` if the windows are not shared with other nodes.
    schedule: Option<ExchangeSchedule>,
    /// Windows that are being read for waiting requests. A read ends when its sender is dropped.
    reads: HashMap<WindowId, watch::Receiver<()>>,
}

#[derive(Default)]
struct KeyWindows {
    /// The windows that had requests. Most keys use few of the limits.
    windows: Vec<(RateLimitId, SlidingWindow)>,
    links: Option<LinksNote>,
}

#[derive(Clone, Copy)]
struct LinksNote {
    month: Month,
    current: u64,
    noted_ms: u64,
}

impl ShardState {
    /// The state of a shard that shares its windows with other nodes.
    pub fn sharing() -> Self {
        Self { schedule: Some(ExchangeSchedule::default()), ..Self::default() }
    }

    pub fn admit(&mut self, request: &AdmitRequest) -> Admitting {
        let now_ms = request.now.0;
        self.sweep(now_ms);
        let limit = NonZeroU32::new(request.limit);
        if limit.is_none() && !self.keys.contains_key(&request.key) {
            return Admitting { admission: None, links_created: None };
        }
        if limit.is_some()
            && let Some(schedule) = &mut self.schedule
        {
            // A refused request counts too: the window must follow the requests of the other nodes, also those that
            // expire.
            schedule.note((request.key, request.rate_limit), now_ms);
        }
        let key = self.key(request.key, now_ms);
        // This comes before the request is counted: nothing after the counting may panic.
        let links_created = key.links_created(request.now);
        let window = key.window(request.rate_limit);
        Admitting { admission: limit.map(|limit| window.admit(now_ms, limit)), links_created }
    }

    /// Whether the window of the request is tracked, or need not be.
    pub fn is_tracked(&self, request: &AdmitRequest) -> bool {
        let window = (request.key, request.rate_limit);
        request.limit == 0 || self.schedule.as_ref().is_none_or(|schedule| schedule.is_tracked(&window))
    }

    /// Joins the read of a window. Returns a receiver that signals its end. If no read was in progress, returns a
    /// sender as well: the caller reads the window and then drops the sender.
    pub fn join_read(&mut self, window: WindowId) -> (watch::Receiver<()>, Option<watch::Sender<()>>) {
        // A read whose task panicked has ended too.
        if let Some(under_way) = self.reads.get(&window).filter(|read| read.has_changed().is_ok()) {
            return (under_way.clone(), None);
        }
        let (reader, read) = watch::channel(());
        self.reads.insert(window, read.clone());
        (read, Some(reader))
    }

    /// Ends the read of the window of `request`. The window is tracked from now on, even if the read failed: the next
    /// exchange reads it.
    pub fn end_read(&mut self, request: &AdmitRequest, answer: Result<Vec<WindowLog>, StoreError>, now: Timestamp) {
        let window = (request.key, request.rate_limit);
        self.reads.remove(&window);
        match answer {
            Ok(others) => {
                let elsewhere = self.key(request.key, now.0).window(request.rate_limit);
                elsewhere.expect_limit(request.limit);
                elsewhere.count_elsewhere(now.0, others.into_iter().flat_map(|log| log.admitted_ms).collect());
            }
            Err(error) => tracing::debug!(%error, "counted a rate window without the requests to other nodes"),
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.note(window, now.0);
        }
    }

    /// Begins an exchange with the other nodes. `None` if there is nothing to exchange, or one is in progress.
    pub fn begin_exchange(&mut self, now: Timestamp) -> Option<ExchangeRequest> {
        let keys = &mut self.keys;
        let (asked, idle) = self.schedule.as_mut()?.begin(now.0, |(key, _)| keys.contains_key(key))?;
        let log_of = |&(key, rate_limit): &WindowId| {
            let window = keys.get_mut(&key)?.window(rate_limit);
            Some(WindowLog { key, rate_limit, admitted_ms: window.admitted_here(now.0) })
        };
        Some(ExchangeRequest { own: asked.iter().filter_map(log_of).collect(), idle })
    }

    /// Ends the exchange. Requests that were admitted meanwhile are published by the next one.
    pub fn end_exchange(&mut self, Exchanged { others, answered, error }: Exchanged, now: Timestamp) {
        let Some(schedule) = &mut self.schedule else { return };
        let mut elsewhere: HashMap<WindowId, Vec<u64>> = HashMap::new();
        for mut log in others {
            elsewhere.entry((log.key, log.rate_limit)).or_default().append(&mut log.admitted_ms);
        }
        for (key, rate_limit) in schedule.end(&answered, error.as_ref()) {
            // A window that is missing in `others` has no requests at other nodes.
            let admitted_ms = elsewhere.remove(&(key, rate_limit)).unwrap_or_default();
            if let Some(state) = self.keys.get_mut(&key) {
                state.window(rate_limit).count_elsewhere(now.0, admitted_ms);
            }
        }
    }

    /// Ends an exchange that gets no answer.
    pub fn give_up_exchange(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.give_up();
        }
    }

    pub fn note_links_created(&mut self, note: &NoteLinksCreated) {
        let now_ms = note.now.0;
        self.sweep(now_ms);
        let key = self.key(note.key, now_ms);
        // At the end of a month, notes may arrive out of order.
        if key.links.is_none_or(|known| known.month <= note.month) {
            // The latest note counts, not the highest: if it is too low, the store is asked once more; if it were too
            // high, a permitted link would be refused.
            key.links = Some(LinksNote { month: note.month, current: note.current, noted_ms: now_ms });
        }
    }

    fn key(&mut self, key: KeyId, now_ms: u64) -> &mut KeyWindows {
        let checks = &mut self.checks;
        self.keys.entry(key).or_insert_with(|| {
            checks.push_back((now_ms.saturating_add(MEMORY_MS), key));
            KeyWindows::default()
        })
    }

    /// Removes idle keys, a few at each call, so that no message waits for a sweep over all keys.
    fn sweep(&mut self, now_ms: u64) {
        for _ in 0..SWEPT_PER_MESSAGE {
            let Some(&(check_ms, key)) = self.checks.front() else {
                return;
            };
            // A check that is too far ahead was scheduled before the clock was set back.
            let is_due = check_ms <= now_ms || check_ms - now_ms > MEMORY_MS;
            if !is_due {
                return;
            }
            self.checks.pop_front();
            if self.keys.get(&key).is_none_or(|state| state.is_idle(now_ms)) {
                self.keys.remove(&key);
            } else {
                let next_check_ms = now_ms.saturating_add(MEMORY_MS);
                self.checks.push_back((next_check_ms, key));
            }
        }
    }
}

impl KeyWindows {
    fn window(&mut self, rate_limit: RateLimitId) -> &mut SlidingWindow {
        let place = self.windows.iter().position(|(id, _)| *id == rate_limit).unwrap_or_else(|| {
            self.windows.push((rate_limit, SlidingWindow::default()));
            self.windows.len() - 1
        });
        &mut self.windows[place].1
    }

    fn links_created(&self, now: Timestamp) -> Option<u64> {
        let note = self.links.filter(|note| note.is_fresh(now.0))?;
        (note.month == now.month()).then_some(note.current)
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let no_note = self.links.is_none_or(|note| !note.is_fresh(now_ms));
        no_note && self.windows.iter().all(|(_, window)| window.is_idle(now_ms))
    }
}

impl LinksNote {
    /// A note from the future is not fresh either: the clock was set back, and its age is unknown.
    fn is_fresh(self, now_ms: u64) -> bool {
        now_ms.abs_diff(self.noted_ms) < MEMORY_MS
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const USAGE: RateLimitId = RateLimitId::new(4);

    fn key(number: u64) -> KeyId {
        // A UUID v7 with the same first bits, and here even the same last ones.
        KeyId(Uuid::from_u64_pair(0x0194_0000_0000_7000, number))
    }

    fn admit(state: &mut ShardState, key: KeyId, now_ms: u64) {
        state.admit(&AdmitRequest { key, rate_limit: USAGE, limit: 10, now: Timestamp(now_ms) });
    }

    #[test]
    fn idle_keys_are_dropped_while_others_ask() {
        let mut state = ShardState::default();
        (0..1000).for_each(|number| admit(&mut state, key(number), number));
        assert_eq!(state.keys.len(), 1000);
        (0..600).for_each(|_| admit(&mut state, key(0), 70_000));
        assert_eq!((state.keys.len(), state.checks.len()), (1, 1));
    }

    #[test]
    fn a_key_in_use_is_not_dropped() {
        let mut state = ShardState::default();
        for second in 0..300 {
            admit(&mut state, key(1), second * 1000);
            admit(&mut state, key(2 + second), second * 1000);
            let (_, window) = &state.keys[&key(1)].windows[0];
            assert!(!window.is_idle(second * 1000));
            assert!(state.keys.len() < 130);
        }
    }

    #[test]
    fn keys_are_dropped_though_the_clock_was_set_back() {
        let mut state = ShardState::default();
        admit(&mut state, key(1), 10_000_000);
        admit(&mut state, key(2), 1_000_000);
        assert_eq!(state.keys.len(), 2);
        admit(&mut state, key(2), 10_100_000);
        assert_eq!(state.keys.len(), 1);
    }
}

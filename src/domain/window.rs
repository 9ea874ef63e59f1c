//! The exact sliding window of one key at one rate limit.
//!
//! A request that is admitted at `t` is counted until just before `t` + 60 s: at any `now` the window is (now − 60 s,
//! now]. So of two requests exactly 60.000 s apart, the first is no longer counted for the second. In no such 60 s
//! are more requests admitted than the limit.
//!
//! # If time does not go forward
//!
//! Requests get their timestamp before they queue for the window, so a request may be overtaken by a later one; and a
//! clock may be set back. Neither ever admits more requests:
//!
//! - A time up to 60 s before the latest known one is treated as that of an overtaken request: it counts at the
//!   latest time. `Retry-After` is still computed from the request's own time.
//! - A time further back means that the clock was set back. Requests that are now in the future are counted as of
//!   now. So they stay in the window for at least the full 60 s, and a key is not refused for as long as the clock
//!   was set back.
//!
//! # Several nodes
//!
//! Each node counts the requests that it has admitted, and those that other nodes reported, as if it had admitted
//! these too. Requests that other nodes have not reported yet are not counted: so many may be admitted above the
//! limit. A reported request is counted for at most one window: a time in the future, because the other node's clock
//! is ahead, counts as of when it was first reported.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::key::KeyId;
use super::rate_limit::RateLimitId;

/// The requests of one key at one rate limit that a node has admitted, as reported to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLog {
    pub key: KeyId,
    pub rate_limit: RateLimitId,
    /// The times of admission in milliseconds since 1970, oldest first.
    pub admitted_ms: Vec<u64>,
}

/// The window of a key at a rate limit.
pub type WindowId = (KeyId, RateLimitId);

/// The length of the window in seconds: the `w` of `RateLimit-Policy`.
pub const WINDOW_SECONDS: u32 = 60;

const WINDOW_MS: u64 = WINDOW_SECONDS as u64 * 1000;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Admitted and counted.
    Admitted {
        /// How many more requests would be admitted right now: `r` of the `RateLimit` field.
        remaining: u32,
        /// Whole seconds, rounded up, until the oldest counted request leaves the window and one more is available:
        /// `t` of the `RateLimit` field. At least 1.
        reset_seconds: u32,
    },
    /// Refused; not counted.
    Refused {
        /// `Retry-After` in whole seconds, at least 1. A request after this time is admitted if no other request used
        /// the key meanwhile; a request a second earlier is not.
        retry_after_seconds: u32,
    },
}

impl Admission {
    pub fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted { .. })
    }

    /// `r` of the `RateLimit` field.
    pub fn remaining(self) -> u32 {
        match self {
            Self::Admitted { remaining, .. } => remaining,
            Self::Refused { .. } => 0,
        }
    }

    /// `t` of the `RateLimit` field: seconds until quota becomes available.
    pub fn reset_seconds(self) -> u32 {
        match self {
            Self::Admitted { reset_seconds, .. } => reset_seconds,
            Self::Refused { retry_after_seconds } => retry_after_seconds,
        }
    }
}

/// The times of the requests that were admitted in the last 60 s, here and on other nodes.
///
/// Of each it holds at most as many times as the highest limit it was used with, 8 bytes each; and, if clocks of
/// other nodes are ahead, the reported times that were in the future.
#[derive(Clone, Debug, Default)]
pub struct SlidingWindow {
    /// When each counted request was admitted here, in milliseconds, oldest first.
    admitted_ms: VecDeque<u64>,
    /// The same for other nodes, from their latest reports.
    elsewhere_ms: VecDeque<u64>,
    /// Times of other nodes that were in the future when they were first reported, in order, each with the time as of which
    /// it counts.
    ahead_ms: Vec<(u64, u64)>,
    /// The latest known time, in milliseconds. No request counts at an earlier one.
    latest_ms: u64,
    highest_limit: usize,
}

impl SlidingWindow {
    /// Admits a request at `now_ms` if fewer than `limit` are counted.
    ///
    /// `now_ms` is in milliseconds since any fixed time. The limit may change between calls; requests admitted under
    /// another limit still count.
    pub fn admit(&mut self, now_ms: u64, limit: NonZeroU32) -> Admission {
        let counted_as_of = self.advance(now_ms);
        let limit = limit.get() as usize;
        self.highest_limit = self.highest_limit.max(limit);
        let counted = self.admitted_ms.len() + self.elsewhere_ms.len();

        if counted >= limit {
            // All but `limit - 1` of the counted requests must leave first; this is the last of them.
            let expires_ms = self.oldest_except(counted - limit);
            return Admission::Refused { retry_after_seconds: seconds_until_it_leaves(expires_ms, now_ms) };
        }
        self.admitted_ms.push_back(counted_as_of);
        Admission::Admitted {
            // Below `limit`, which is a `u32`.
            remaining: u32::try_from(limit - counted - 1).unwrap_or(u32::MAX),
            reset_seconds: seconds_until_it_leaves(self.oldest_except(0), now_ms),
        }
    }

    /// Sets the expected limit, so that enough times of other nodes are kept.
    pub fn expect_limit(&mut self, limit: u32) {
        self.highest_limit = self.highest_limit.max(limit as usize);
    }

    /// The times of the requests counted at `now_ms` that were admitted here, oldest first.
    pub fn admitted_here(&mut self, now_ms: u64) -> Vec<u64> {
        self.advance(now_ms);
        self.admitted_ms.iter().copied().collect()
    }

    /// Replaces the requests that other nodes have reported.
    pub fn count_elsewhere(&mut self, now_ms: u64, mut admitted_ms: Vec<u64>) {
        let latest_ms = self.advance(now_ms);
        admitted_ms.sort_unstable();
        let known = std::mem::take(&mut self.ahead_ms);
        for admitted in &mut admitted_ms {
            let reported = *admitted;
            match known.binary_search_by_key(&reported, |&(known, _)| known) {
                Ok(place) => *admitted = known[place].1.min(now_ms),
                Err(_) if reported > now_ms => *admitted = now_ms,
                Err(_) => continue,
            }
            self.ahead_ms.push((reported, *admitted));
        }
        admitted_ms.retain(|&admitted| !has_left_window(admitted, latest_ms));
        admitted_ms.sort_unstable();
        // As many as the limit are enough to refuse, and the newest of them leave last.
        admitted_ms.drain(..admitted_ms.len().saturating_sub(self.highest_limit));
        self.elsewhere_ms = admitted_ms.into();
    }

    /// Whether nothing is counted at `now_ms`, so that a new window would decide the same.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        let all_left = |times: &VecDeque<u64>| times.back().is_none_or(|&newest| has_left_window(newest, now_ms));
        all_left(&self.admitted_ms) && all_left(&self.elsewhere_ms)
    }

    /// Removes requests that have left the window, and returns the time at which a request at `now_ms` counts.
    fn advance(&mut self, now_ms: u64) -> u64 {
        let clock_was_set_back = now_ms < self.latest_ms.saturating_sub(WINDOW_MS);
        self.latest_ms = if clock_was_set_back { now_ms } else { self.latest_ms.max(now_ms) };
        for times in [&mut self.admitted_ms, &mut self.elsewhere_ms] {
            // None is later than the latest known time, unless that was set back.
            for admitted in times.iter_mut().rev().take_while(|admitted| **admitted > self.latest_ms) {
                *admitted = self.latest_ms;
            }
            while times.front().is_some_and(|&oldest| has_left_window(oldest, self.latest_ms)) {
                times.pop_front();
            }
        }
        self.latest_ms
    }

    /// The oldest counted time except for `older` ones, which must be fewer than all.
    fn oldest_except(&self, older: usize) -> u64 {
        let mut here = self.admitted_ms.iter().copied().peekable();
        let mut elsewhere = self.elsewhere_ms.iter().copied().peekable();
        let mut oldest_first = std::iter::from_fn(|| match (here.peek(), elsewhere.peek()) {
            (Some(own), Some(others)) if own > others => elsewhere.next(),
            (None, _) => elsewhere.next(),
            _ => here.next(),
        });
        // So many are counted. The default is a time that has left the window.
        oldest_first.nth(older).unwrap_or_default()
    }
}

fn has_left_window(admitted_ms: u64, now_ms: u64) -> bool {
    admitted_ms.saturating_add(WINDOW_MS) <= now_ms
}

/// Rounded up: after this time the request has left the window, a second earlier it has not.
fn seconds_until_it_leaves(admitted_ms: u64, now_ms: u64) -> u32 {
    let wait_ms = admitted_ms.saturating_add(WINDOW_MS).saturating_sub(now_ms);
    // At most twice the window: no counted time is more than a window ahead of `now_ms`.
    u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX)
}

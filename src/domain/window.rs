//! The exact sliding window of one key at one rate limit.
//!
//! A request that is let in at `t` is counted until just before `t` + 60 s: at any `now` the window
//! is (now − 60 s, now], so of two requests exactly 60.000 s apart the second no longer sees the
//! first. In no such 60 s are more requests let in than the limit.
//!
//! # When time does not go forward
//!
//! Requests are stamped before they queue for the window, so one may be overtaken by a later one;
//! and a clock may be set back. Neither ever lets in more:
//!
//! - A time up to 60 s before the latest one seen is taken for an overtaken request: it counts as
//!   of the latest time. `Retry-After` is still reckoned from the request's own time.
//! - A time further back means that the clock was set back. Requests that now lie in the future are
//!   counted as of now, so they stay in the window at least their full 60 s, and a key is never
//!   shut out for as long as the clock was set back.
//!
//! # Over several nodes
//!
//! Each node counts what it let in itself, and what the others told of lately as if it had let that
//! in too. What they have not told of yet is not counted: so much may be let in past the limit. What
//! they told of is counted for no longer than a window: a time that lies in the future, because
//! their clock is ahead, counts as of the moment it was first told.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::key::KeyId;
use super::rate_limit::RateLimitId;

/// What one node has let in of one key at one rate limit, as the other nodes are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLog {
    pub key: KeyId,
    pub rate_limit: RateLimitId,
    /// When, in milliseconds since 1970, oldest first.
    pub admitted_ms: Vec<u64>,
}

/// A window: that of a key at a rate limit.
pub type WindowId = (KeyId, RateLimitId);

/// The length of the window in seconds: the `w` of `RateLimit-Policy`.
pub const WINDOW_SECONDS: u32 = 60;

const WINDOW_MS: u64 = WINDOW_SECONDS as u64 * 1000;

/// The answer to a request that asks to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Let in and counted.
    Admitted {
        /// How many more would be let in right now: `r` of the `RateLimit` field.
        remaining: u32,
        /// Whole seconds, rounded up, until the oldest counted request leaves the window and one
        /// more is available: `t` of the `RateLimit` field. At least 1.
        reset_seconds: u32,
    },
    /// Refused; nothing was counted.
    Refused {
        /// `Retry-After` in whole seconds, at least 1: a request after it is let in if nobody else
        /// used the key meanwhile, one a second earlier is not.
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

    /// `t` of the `RateLimit` field: seconds until quota comes back.
    pub fn reset_seconds(self) -> u32 {
        match self {
            Self::Admitted { reset_seconds, .. } => reset_seconds,
            Self::Refused { retry_after_seconds } => retry_after_seconds,
        }
    }
}

/// The times of the requests that were let in during the last 60 s, here and elsewhere.
///
/// It holds at most as many times of either as the highest limit it was asked with, 8 bytes each;
/// and where the clocks of other nodes are ahead, those that they told of last and that lie in the future.
#[derive(Clone, Debug, Default)]
pub struct SlidingWindow {
    /// When each counted request was let in here, in milliseconds, oldest first.
    admitted_ms: VecDeque<u64>,
    /// The same of other nodes, as they told of it last.
    elsewhere_ms: VecDeque<u64>,
    /// Times of other nodes that lay in the future when they were told last, in order, each with
    /// the time it counts as of.
    ahead_ms: Vec<(u64, u64)>,
    /// The latest time seen, in milliseconds; nothing is counted as of an earlier one.
    latest_ms: u64,
    highest_limit: usize,
}

impl SlidingWindow {
    /// Lets a request in at `now_ms` if fewer than `limit` are counted.
    ///
    /// `now_ms` is in milliseconds since any fixed moment. The limit may change from one call to
    /// the next; what was let in under another limit still counts.
    pub fn admit(&mut self, now_ms: u64, limit: NonZeroU32) -> Admission {
        let counted_as_of = self.advance(now_ms);
        let limit = limit.get() as usize;
        self.highest_limit = self.highest_limit.max(limit);
        let counted = self.admitted_ms.len() + self.elsewhere_ms.len();

        if counted >= limit {
            // All but `limit - 1` of the counted must leave first; the last of those to go is this.
            let gives_way_ms = self.oldest_but(counted - limit);
            return Admission::Refused { retry_after_seconds: seconds_until_it_leaves(gives_way_ms, now_ms) };
        }
        self.admitted_ms.push_back(counted_as_of);
        Admission::Admitted {
            // Below `limit`, which is a `u32`.
            remaining: u32::try_from(limit - counted - 1).unwrap_or(u32::MAX),
            reset_seconds: seconds_until_it_leaves(self.oldest_but(0), now_ms),
        }
    }

    /// Says with which limit it will be asked, so that as much of other nodes is kept.
    pub fn expect_limit(&mut self, limit: u32) {
        self.highest_limit = self.highest_limit.max(limit as usize);
    }

    /// When the requests that are counted at `now_ms` were let in here, oldest first.
    pub fn admitted_here(&mut self, now_ms: u64) -> Vec<u64> {
        self.advance(now_ms);
        self.admitted_ms.iter().copied().collect()
    }

    /// Counts what other nodes have let in, in the place of what they told of before.
    pub fn count_elsewhere(&mut self, now_ms: u64, mut admitted_ms: Vec<u64>) {
        let latest_ms = self.advance(now_ms);
        admitted_ms.sort_unstable();
        let ahead = admitted_ms.split_off(admitted_ms.partition_point(|&admitted| admitted <= now_ms));
        let known = std::mem::take(&mut self.ahead_ms);
        let first_told_ms = |told| match known.binary_search_by_key(&told, |&(known, _)| known) {
            Ok(place) => known[place].1.min(now_ms),
            Err(_) => now_ms,
        };
        self.ahead_ms = ahead.into_iter().map(|told| (told, first_told_ms(told))).collect();

        admitted_ms.extend(self.ahead_ms.iter().map(|&(_, counted_as_of)| counted_as_of));
        admitted_ms.retain(|&admitted| !has_left(admitted, latest_ms));
        admitted_ms.sort_unstable();
        // As many as the limit are enough to refuse, and of those the newest leave last.
        admitted_ms.drain(..admitted_ms.len().saturating_sub(self.highest_limit));
        self.elsewhere_ms = admitted_ms.into();
    }

    /// Whether nothing is counted at `now_ms`, so that a new window would answer the same.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        let all_left = |times: &VecDeque<u64>| times.back().is_none_or(|&newest| has_left(newest, now_ms));
        all_left(&self.admitted_ms) && all_left(&self.elsewhere_ms)
    }

    /// Forgets what has left the window, and returns the time that a request at `now_ms` counts as of.
    fn advance(&mut self, now_ms: u64) -> u64 {
        let clock_was_set_back = now_ms < self.latest_ms.saturating_sub(WINDOW_MS);
        self.latest_ms = if clock_was_set_back { now_ms } else { self.latest_ms.max(now_ms) };
        for times in [&mut self.admitted_ms, &mut self.elsewhere_ms] {
            // None is later than the latest time seen unless that was set back.
            for admitted in times.iter_mut().rev().take_while(|admitted| **admitted > self.latest_ms) {
                *admitted = self.latest_ms;
            }
            while times.front().is_some_and(|&oldest| has_left(oldest, self.latest_ms)) {
                times.pop_front();
            }
        }
        self.latest_ms
    }

    /// The oldest counted time but for `older` ones, which must be fewer than there are.
    fn oldest_but(&self, older: usize) -> u64 {
        let mut here = self.admitted_ms.iter().copied().peekable();
        let mut elsewhere = self.elsewhere_ms.iter().copied().peekable();
        let mut oldest_first = std::iter::from_fn(|| match (here.peek(), elsewhere.peek()) {
            (Some(own), Some(others)) if own > others => elsewhere.next(),
            (None, _) => elsewhere.next(),
            _ => here.next(),
        });
        // As many are counted; a time of none would have left long ago.
        oldest_first.nth(older).unwrap_or_default()
    }
}

fn has_left(admitted_ms: u64, now_ms: u64) -> bool {
    admitted_ms.saturating_add(WINDOW_MS) <= now_ms
}

/// Rounded up, so that after waiting it out the request has left, and a second earlier it has not.
fn seconds_until_it_leaves(admitted_ms: u64, now_ms: u64) -> u32 {
    let wait_ms = admitted_ms.saturating_add(WINDOW_MS).saturating_sub(now_ms);
    // At most twice the window: no counted time is more than a window ahead of `now_ms`.
    u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX)
}

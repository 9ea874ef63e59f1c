//! The exact sliding window of one key at one endpoint.
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

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::endpoint::Endpoint;
use super::key::KeyId;

/// What one node has let in of one key at one endpoint, as the other nodes are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLog {
    pub key: KeyId,
    pub endpoint: Endpoint,
    /// When, in milliseconds since 1970, oldest first.
    pub admitted_ms: Vec<u64>,
}

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

/// The times of the requests that were let in during the last 60 s.
///
/// It holds at most as many times as the highest limit it was asked with, 8 bytes each.
#[derive(Clone, Debug, Default)]
pub struct SlidingWindow {
    /// When each counted request was let in, in milliseconds, oldest first.
    admitted_ms: VecDeque<u64>,
    /// The latest time seen, in milliseconds; nothing is counted as of an earlier one.
    latest_ms: u64,
}

impl SlidingWindow {
    /// Lets a request in at `now_ms` if fewer than `limit` are counted.
    ///
    /// `now_ms` is in milliseconds since any fixed moment. The limit may change from one call to
    /// the next; what was let in under another limit still counts.
    pub fn admit(&mut self, now_ms: u64, limit: NonZeroU32) -> Admission {
        let counted_as_of = self.advance(now_ms);
        let limit = limit.get() as usize;
        let counted = self.admitted_ms.len();

        if counted >= limit {
            // All but `limit - 1` of the counted must leave first; the last of those to go is this.
            let gives_way_ms = self.admitted_ms[counted - limit];
            return Admission::Refused { retry_after_seconds: seconds_until_it_leaves(gives_way_ms, now_ms) };
        }
        self.admitted_ms.push_back(counted_as_of);
        Admission::Admitted {
            // Below `limit`, which is a `u32`.
            remaining: u32::try_from(limit - counted - 1).unwrap_or(u32::MAX),
            reset_seconds: seconds_until_it_leaves(self.admitted_ms[0], now_ms),
        }
    }

    /// Whether nothing is counted at `now_ms`, so that a new window would answer the same.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        self.admitted_ms.back().is_none_or(|&newest| has_left(newest, now_ms))
    }

    /// Forgets what has left the window, and returns the time that a request at `now_ms` counts as of.
    fn advance(&mut self, now_ms: u64) -> u64 {
        let clock_was_set_back = now_ms < self.latest_ms.saturating_sub(WINDOW_MS);
        if clock_was_set_back {
            for admitted in self.admitted_ms.iter_mut().rev() {
                if *admitted <= now_ms {
                    break;
                }
                *admitted = now_ms;
            }
            self.latest_ms = now_ms;
        } else {
            self.latest_ms = self.latest_ms.max(now_ms);
        }
        while let Some(&oldest) = self.admitted_ms.front()
            && has_left(oldest, self.latest_ms)
        {
            self.admitted_ms.pop_front();
        }
        self.latest_ms
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

//! The time by which old data is removed.

use std::sync::Mutex;
use std::time::Duration;

use super::Clock;
use crate::domain::calendar::Timestamp;
use crate::locks::lock;

/// How long a clock that was set forward must not be set again until it is followed.
const FOLLOWED_AFTER: Duration = Duration::from_hours(1);
/// How far a clock may be ahead without having been set forward.
const TOLERANCE: Duration = Duration::from_mins(1);
/// A clock that is further ahead is logged. A node that was stopped for less than that is no reason for a line.
const LOGGED_FROM: Duration = Duration::from_hours(24);

/// The time by which old data is removed. What is removed because a clock was wrong is lost.
///
/// It follows the system's clock. If that is set forward, or is ahead at a start, it continues the time before, and follows
/// the clock once nobody has set it for an hour. Until then, NTP or an operator may correct it.
pub struct RemovalClock {
    clock: Clock,
    known: Mutex<KnownTime>,
}

impl RemovalClock {
    /// `last_known`: the time before this start.
    pub fn new(clock: Clock, last_known: Option<Timestamp>) -> Self {
        let now = clock.now();
        let at = last_known.map_or(now, |known| known.min(now));
        let known = KnownTime { right: Reading { at, uptime: clock.uptime() }, ahead: None };
        Self { clock, known: Mutex::new(known) }
    }

    pub fn now(&self) -> Timestamp {
        lock(&self.known).now(self.clock.now(), self.clock.uptime())
    }
}

/// What a clock said at an uptime.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Timestamp,
    uptime: Duration,
}

impl Reading {
    fn age(self, uptime: Duration) -> Duration {
        uptime.saturating_sub(self.uptime)
    }

    /// What the clock says later, unless it is set.
    fn continued(self, uptime: Duration) -> Timestamp {
        self.at.plus(self.age(uptime))
    }
}

/// A reading that was right, and the first one of a clock that is ahead of it.
#[derive(Debug)]
struct KnownTime {
    right: Reading,
    ahead: Option<Reading>,
}

impl KnownTime {
    fn now(&mut self, now: Timestamp, uptime: Duration) -> Timestamp {
        let expected = self.right.continued(uptime);
        if now > expected.plus(TOLERANCE) && !self.is_followed(now, uptime, expected) {
            return expected;
        }
        *self = Self { right: Reading { at: now, uptime }, ahead: None };
        now
    }

    /// Whether a clock that is ahead has not been set for long enough.
    fn is_followed(&mut self, now: Timestamp, uptime: Duration, expected: Timestamp) -> bool {
        let is_unset = |ahead: &Reading| {
            let continued = ahead.continued(uptime);
            now <= continued.plus(TOLERANCE) && continued <= now.plus(TOLERANCE)
        };
        if let Some(ahead) = self.ahead.filter(is_unset) {
            return ahead.age(uptime) >= FOLLOWED_AFTER;
        }
        self.ahead = Some(Reading { at: now, uptime });
        if now > expected.plus(LOGGED_FROM) {
            tracing::warn!(clock = %now, %expected, "the clock is ahead: for an hour, old data is removed by the expected time");
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MINUTE: Duration = Duration::from_mins(1);
    const YEAR: Duration = Duration::from_hours(365 * 24);

    fn noon() -> Timestamp {
        Timestamp(1_795_003_200_000)
    }

    fn known() -> (Clock, RemovalClock) {
        let clock = Clock::standing_at(noon());
        let removal = RemovalClock::new(clock.clone(), Some(noon()));
        (clock, removal)
    }

    #[test]
    fn it_follows_a_clock_that_goes_on() {
        let (clock, removal) = known();
        for step in [MINUTE, HOUR, YEAR] {
            clock.advance(step);
            assert_eq!(removal.now(), clock.now());
        }
        clock.set_back(HOUR);
        assert_eq!(removal.now(), clock.now());
    }

    #[test]
    fn a_clock_that_was_set_forward_is_followed_once_nobody_set_it_for_an_hour() {
        let (clock, removal) = known();
        clock.set_forward(YEAR);
        assert_eq!(removal.now(), noon());
        clock.advance(59 * MINUTE);
        assert_eq!(removal.now(), noon().plus(59 * MINUTE));
        clock.advance(MINUTE);
        assert_eq!(removal.now(), clock.now());
    }

    #[test]
    fn a_clock_that_is_set_forward_again_or_corrected_is_not_followed() {
        let (clock, removal) = known();
        clock.set_forward(YEAR);
        assert_eq!(removal.now(), noon());
        clock.advance(59 * MINUTE);
        clock.set_forward(YEAR);
        assert_eq!(removal.now(), noon().plus(59 * MINUTE));
        clock.advance(59 * MINUTE);
        assert_eq!(removal.now(), noon().plus(118 * MINUTE));
        clock.set_back(YEAR * 2);
        assert_eq!(removal.now(), clock.now());
    }

    #[test]
    fn after_a_start_the_time_goes_on_from_the_last_that_is_known() {
        let clock = Clock::standing_at(noon());
        let removal = RemovalClock::new(clock.clone(), Some(noon().minus(YEAR)));
        assert_eq!(removal.now(), noon().minus(YEAR));
        clock.advance(HOUR);
        assert_eq!(removal.now(), clock.now());
        assert_eq!(RemovalClock::new(clock.clone(), None).now(), clock.now());
        assert_eq!(RemovalClock::new(clock.clone(), Some(clock.now().plus(YEAR))).now(), clock.now());
    }
}

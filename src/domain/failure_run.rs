//! Failed deliveries in a row of one URL of a link, and when they suspend the URL.

use std::num::NonZeroU32;
use std::time::Duration;

use super::calendar::{Day, Timestamp};
use super::webhook::DeliveryId;

/// How long the deliveries of a URL must have failed before it is suspended.
pub const FAILING_FOR: Duration = Duration::from_hours(24);

/// The end of a delivery after its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryEnd {
    pub id: DeliveryId,
    pub round: u32,
    pub at: Timestamp,
    /// `false`: it was delivered.
    pub has_failed: bool,
}

/// Failed deliveries of a URL since its last delivery that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRun {
    pub failures: u32,
    /// When the first of them failed.
    pub first_at: Timestamp,
    /// The latest day of their hits.
    pub last_day: Day,
    /// When the URL was suspended for them.
    pub suspended_at: Option<Timestamp>,
}

impl FailureRun {
    /// The run after the end of another delivery; `None` if there is none. A suspended URL stays suspended: an attempt
    /// that was in flight may still succeed.
    pub fn after(before: Option<Self>, end: &DeliveryEnd, limit: NonZeroU32) -> Option<Self> {
        if before.is_some_and(|run| run.suspended_at.is_some()) {
            return before;
        }
        if !end.has_failed {
            return None;
        }
        let day = end.id.hit.at.day();
        let run = before.map_or(
            Self { failures: 1, first_at: end.at, last_day: day, suspended_at: None },
            |Self { failures, first_at, last_day, suspended_at }| Self {
                failures: failures.saturating_add(1),
                first_at,
                last_day: last_day.max(day),
                suspended_at,
            },
        );
        let is_over = run.failures >= limit.get() && end.at.since(run.first_at) >= FAILING_FOR;
        Some(Self { suspended_at: is_over.then_some(end.at), ..run })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::ShortId;

    const NOON: Timestamp = Timestamp(1_795_003_200_000);

    fn end(hours: u32, has_failed: bool) -> DeliveryEnd {
        let at = NOON.plus(Duration::from_hours(1) * hours);
        let hit = HitStamp { id: HitId(Uuid::nil()), at };
        let id = DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index: 0 };
        DeliveryEnd { id, round: 0, at, has_failed }
    }

    fn after_all(ends: &[(u32, bool)], limit: u32) -> Option<FailureRun> {
        let limit = NonZeroU32::new(limit).unwrap();
        ends.iter().fold(None, |run, (hours, has_failed)| FailureRun::after(run, &end(*hours, *has_failed), limit))
    }

    #[test]
    fn a_url_is_suspended_after_so_many_failures_in_a_row_over_a_day() {
        let suspended = |ends: &[(u32, bool)], limit| after_all(ends, limit).and_then(|run| run.suspended_at);
        let at = |hours| Some(end(hours, true).at);
        assert_eq!(suspended(&[(0, true), (24, true)], 2), at(24));
        assert_eq!(suspended(&[(0, true), (23, true)], 2), None, "too soon");
        assert_eq!(suspended(&[(0, true), (24, true)], 3), None, "too few");
        assert_eq!(suspended(&[(0, true), (1, true), (2, true), (30, true)], 3), at(30));
        assert_eq!(suspended(&[(0, true), (12, false), (13, true), (36, true)], 2), None, "not in a row");
        assert_eq!(suspended(&[(0, true), (12, false), (13, true), (37, true)], 2), at(37));
        assert_eq!(suspended(&[(0, true)], 1), None, "one failure is no day");
        assert_eq!(suspended(&[(0, true), (24, true)], 1), at(24));
    }

    #[test]
    fn what_ends_after_the_suspension_changes_nothing() {
        let suspended = after_all(&[(0, true), (24, true)], 2);
        assert_eq!(after_all(&[(0, true), (24, true), (25, false), (26, true)], 2), suspended);
    }

    #[test]
    fn a_clock_that_is_set_back_suspends_nothing() {
        let run = after_all(&[(48, true), (0, true), (24, true)], 2).unwrap();
        assert_eq!((run.failures, run.suspended_at, run.last_day), (3, None, end(48, true).at.day()));
    }
}

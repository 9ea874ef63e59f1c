//! A bucket of a held queue, in memory.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::BucketPlace;
use crate::domain::calendar::Day;

/// For so long, a bucket with rows whose state may still be written is counted again with each beat.
const OFTEN_FOR: Duration = Duration::from_mins(1);
/// How often it is counted again after that.
const RECOUNT_EVERY: Duration = Duration::from_mins(5);
/// For how long at all. A state may come late: a node keeps a write for a replica that it can't reach for 3 h, as a hint, and
/// a process that was suspended sends its write when it goes on.
const OPEN_FOR: Duration = Duration::from_hours(4);

/// Numbers the changes of buckets.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// A bucket of a held queue, in memory.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Pending deliveries by the day of the hit; `None` until they are counted.
    pub(super) pending: Option<BTreeMap<Day, i64>>,
    /// All deliveries up to this place are settled.
    pub(super) settled_upto: Option<BucketPlace>,
    /// Whether the bucket's row is written.
    pub(super) is_noted: bool,
    /// Differs after every change, so that a count of a bucket that changed meanwhile is discarded.
    pub(super) version: u64,
    /// Writes under way that add deliveries: a count at the same time may miss them.
    pub(super) writes: usize,
    /// Differs after each begin and end of such a write.
    pub(super) written: u64,
    /// Writes under way that settle deliveries: a count at the same time misses some that are counted off afterwards.
    pub(super) settling: usize,
    /// Rows whose state may still be written, if there are any.
    pub(super) open: Option<Open>,
}

/// That there are rows whose state may still be written. Times are by the uptime of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// When this process has found them.
    begun: Duration,
    /// Until then they are looked for.
    until: Duration,
    looked_at: Duration,
}

impl Open {
    /// Such rows were found now; `before`: they may be those that were found earlier. `age`: for so long all of them have been due.
    pub fn found(before: Option<Self>, now: Duration, age: Duration) -> Self {
        // An old bucket, of a queue that was adopted, is looked at often for a minute all the same.
        let until = now.saturating_add(OPEN_FOR.saturating_sub(age).max(OFTEN_FOR));
        let new = Self { begun: now, until, looked_at: now };
        before.filter(|before| !before.is_over(now)).map_or(new, |before| Self { looked_at: now, ..before })
    }

    /// Whether the bucket is to be counted again.
    pub fn is_due(self, now: Duration) -> bool {
        let is_recent = now.saturating_sub(self.begun) < OFTEN_FOR;
        !self.is_over(now) && (is_recent || now.saturating_sub(self.looked_at) >= RECOUNT_EVERY)
    }

    /// Whether it is too late for them.
    fn is_over(self, now: Duration) -> bool {
        now >= self.until
    }
}

impl Bucket {
    pub fn add(&mut self, day: Day, count: i64) {
        self.version = CHANGES.fetch_add(1, Ordering::Relaxed);
        if let Some(pending) = &mut self.pending {
            *pending.entry(day).or_default() += count;
        }
    }

    /// A write that adds deliveries has begun or ended.
    pub fn note_write(&mut self) {
        self.written = CHANGES.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a scan looks into it. What a count finds in an open bucket is pending from then on.
    pub fn may_have_pending(&self) -> bool {
        let is_written = self.writes > 0 || self.settling > 0;
        is_written || self.pending.as_ref().is_none_or(|days| days.values().any(|pending| *pending > 0))
    }

    /// Whether it has to stay in memory.
    pub fn is_kept(&self, now: Duration) -> bool {
        self.may_have_pending() || self.open.is_some_and(|open| !open.is_over(now))
    }

    pub fn has_pending_of(&self, days: impl RangeBounds<Day>) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.range(days).any(|(_, pending)| *pending > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_state_is_looked_for_often_at_first_and_for_hours() {
        let begin = Duration::from_hours(9);
        let mut bucket = Bucket { pending: Some(BTreeMap::new()), ..Bucket::default() };
        assert!(!bucket.is_kept(begin));
        let (mut counts, mut now) = (Vec::new(), begin);
        bucket.open = Some(Open::found(None, now, Duration::ZERO));
        while bucket.is_kept(now) {
            now += Duration::from_secs(3);
            if bucket.open.is_some_and(|open| open.is_due(now)) {
                counts.push(now.saturating_sub(begin).as_secs());
                bucket.open = Some(Open::found(bucket.open, now, now.saturating_sub(begin)));
            }
        }
        assert_eq!(now.saturating_sub(begin), OPEN_FOR);
        assert_eq!(counts[..3], [3, 6, 9]);
        assert_eq!(counts.len(), 19 + 47, "each beat of a minute, then every five minutes: {counts:?}");
        // One that has been due for long is looked at for a minute.
        bucket.open = Some(Open::found(None, now, OPEN_FOR * 2));
        assert!(bucket.is_kept(now + Duration::from_secs(59)) && !bucket.is_kept(now + OFTEN_FOR));
        // Whatever is pending stays.
        bucket.add(Day(0), 1);
        assert!(bucket.is_kept(now));
    }
}

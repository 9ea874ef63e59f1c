//! Which buckets are to be counted, and their counts.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::bucket::{Bucket, Open};
use super::{HeldBucket, HeldQueue, Queues, bucket_of};
use crate::clock::uptime;
use crate::domain::calendar::{Day, Timestamp};

/// What was found in a bucket.
pub struct CountedBucket {
    pub queue: Uuid,
    pub number: i64,
    /// Pending deliveries by the day of the hit.
    pub found: BTreeMap<Day, i64>,
    /// Whether there are rows whose state may still be written.
    pub is_open: bool,
}

impl Queues {
    /// The count of a bucket is uncertain.
    pub fn mark_bucket_doubtful(&self, queue: Uuid, bucket: i64) {
        self.held().doubtful.insert((queue, bucket));
    }

    /// The counts of the buckets of these due times are uncertain: they are counted again soon.
    pub fn mark_doubtful(&self, queue: Uuid, due: impl IntoIterator<Item = Timestamp>) {
        let mut held = self.held();
        held.doubtful.extend(due.into_iter().map(|due_at| (queue, bucket_of(due_at))));
    }

    /// Has a bucket counted again if it has pending deliveries of hits of this day.
    pub fn mark_if_pending(&self, queue: Uuid, due_at: Timestamp, day: Day) {
        let (mut held, number) = (self.held(), bucket_of(due_at));
        let bucket = held.queues.get(&queue).and_then(|queue| queue.buckets.get(&number));
        if bucket.is_some_and(|bucket| bucket.has_pending_of(day..=day)) {
            held.doubtful.insert((queue, number));
        }
    }

    /// Deliveries that were due by `upto`, of hits of this day, were settled from another queue than the one in their rows: counts the
    /// buckets that may count them as pending.
    pub fn settled_elsewhere(&self, day: Day, upto: Timestamp) {
        let mut held = self.held();
        let HeldQueue { queues, doubtful, .. } = &mut *held;
        for (id, queue) in queues {
            let buckets =
                queue.buckets.range(..=bucket_of(upto)).filter(|(_, bucket)| bucket.has_pending_of(day..=day));
            doubtful.extend(buckets.map(|(number, _)| (*id, *number)));
        }
    }

    /// Deliveries of hits before a day are removed: counts the buckets that had any.
    pub fn dropped_before(&self, day: Day) {
        let mut held = self.held();
        let HeldQueue { queues, doubtful, .. } = &mut *held;
        for (id, queue) in queues {
            let buckets = queue.buckets.iter().filter(|(_, bucket)| bucket.has_pending_of(..day));
            doubtful.extend(buckets.map(|(number, _)| (*id, *number)));
        }
    }

    /// A scan found nothing pending in a bucket that has something by its count. It is counted again, unless it has changed since
    /// it was `known`, or changes now.
    pub fn found_empty(&self, known: &HeldBucket) {
        let mut held = self.held();
        let bucket = held.queues.get(&known.queue).and_then(|queue| queue.buckets.get(&known.number));
        let is_same = |bucket: &Bucket| bucket.version == known.version && bucket.writes == 0 && bucket.settling == 0;
        if bucket.is_some_and(is_same) {
            held.doubtful.insert((known.queue, known.number));
        }
    }

    /// The next bucket to count.
    pub fn next_doubtful(&self) -> Option<(Uuid, i64)> {
        let mut held = self.held();
        let HeldQueue { queues, doubtful, .. } = &mut *held;
        doubtful.retain(|(queue, _)| queues.contains_key(queue));
        doubtful.pop_first()
    }

    /// The version of a bucket before it is counted; `None` if the queue is not held any more.
    pub fn version(&self, queue: Uuid, number: i64) -> Option<u64> {
        Some(self.held().queues.get_mut(&queue)?.buckets.entry(number).or_default().version)
    }

    /// Replaces the count of a bucket by what was found, unless the bucket changed since `version`; returns whether it
    /// was replaced. `age`: how long all of it has been due; an open bucket is counted again later, an old one not for long.
    pub fn recounted(&self, counted: CountedBucket, version: u64, age: Duration) -> bool {
        let CountedBucket { queue: id, number, found, is_open } = counted;
        let mut held = self.held();
        let Some(queue) = held.queues.get_mut(&id) else { return true };
        let bucket = queue.buckets.entry(number).or_default();
        if bucket.version != version || bucket.writes > 0 || bucket.settling > 0 {
            return false;
        }
        if !found.is_empty() {
            // Some may lie before it: they were settled elsewhere, and are not any more.
            bucket.settled_upto = None;
        }
        bucket.pending = Some(found);
        bucket.open = is_open.then(|| Open::found(bucket.open, uptime(), age));
        true
    }
}

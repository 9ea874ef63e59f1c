//! Reads what is due in all queues that this process holds.

use super::deliveries::Deliveries;
use super::queue::{BucketPlace, HeldBucket, QueuedDelivery, bucket_of};
use crate::domain::calendar::Timestamp;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::bigint;
use crate::store::records::corrupt;
use crate::store::{DueDelivery, DuePlace, StoreError};
use uuid::Uuid;

const DUE: &str = "due";

/// Due times read at a time.
pub const LONGEST_PAGE: usize = 1_000;

/// A page of a bucket, in order.
pub struct DuePage {
    pub due: Vec<QueuedDelivery>,
    /// The place of the last one.
    pub last: Option<BucketPlace>,
    /// Whether it is the last page.
    pub is_last: bool,
}

/// The pending deliveries of a page.
pub struct Pending {
    pub due: Vec<DueDelivery>,
    /// How many at its beginning are settled.
    pub dead: usize,
    /// Whether there are some whose state may still be written.
    pub is_open: bool,
}

impl Deliveries {
    pub(super) async fn read_due(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        // Nothing is begun unless it is certain that no other process works on the queue.
        self.leases.queues.own()?;
        let from = after.as_ref().map_or(i64::MIN, |after| bucket_of(after.due_at));
        let after = after.map(|after| place_of(&after));
        let mut found: Vec<DueDelivery> = Vec::new();
        let mut last_bucket = None;
        for bucket in self.leases.queues.buckets(from, bucket_of(now)) {
            // Queues have the same buckets: those of one time are merged.
            if last_bucket != Some(bucket.number) && found.len() >= limit {
                break;
            }
            last_bucket = Some(bucket.number);
            let begin = after.max(bucket.dead_upto);
            found.extend(self.pending_of_bucket(bucket, begin, now, limit).await?);
            found.sort_by_key(|due| place_of(&due.place()));
            found.dedup();
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The first pending deliveries of a bucket after `begin`.
    async fn pending_of_bucket(
        &self,
        bucket: HeldBucket,
        begin: Option<BucketPlace>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let HeldBucket { number, queue, dead_upto: dead } = bucket;
        let (mut found, mut after) = (Vec::new(), begin);
        // While all deliveries so far are settled, the next read begins after them.
        let (mut all_dead, mut dead_upto) = (begin == dead, None);
        while found.len() < limit {
            let page = self.read_bucket(queue, number, after, now, LONGEST_PAGE.min(limit.max(64))).await?;
            let Pending { due: pending, dead: at_begin, .. } = self.still_pending(&page.due).await?;
            if all_dead && at_begin > 0 {
                dead_upto = page.due.get(at_begin - 1).map(row_place);
            }
            all_dead &= at_begin == page.due.len();
            found.extend(pending);
            match page.last {
                Some(last) if !page.is_last => after = Some(last),
                _ => break,
            }
        }
        if let Some(upto) = dead_upto {
            self.leases.queues.is_dead(queue, number, dead, upto);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Due times of a bucket after `after`, up to `now`.
    pub(super) async fn read_bucket(
        &self,
        queue: Uuid,
        bucket: i64,
        after: Option<BucketPlace>,
        now: Timestamp,
        limit: usize,
    ) -> Result<DuePage, StoreError> {
        let (after_time, after_id) = after.map_or((i64::MIN, Vec::new()), |(time, id)| (time, id.to_vec()));
        let end = bigint(now.0.saturating_add(1));
        let rows = i32::try_from(limit).unwrap_or(i32::MAX);
        let values = (queue, bucket, after_time, after_id, end, Vec::<u8>::new(), rows);
        let rows: Vec<(i64, Vec<u8>, Option<i32>)> =
            self.cluster.cql.read(&self.cluster.statements.due, values).await?;
        let is_last = rows.len() < limit;
        let due = rows.into_iter().map(|(due_at, id, round)| {
            let id = DeliveryId::from_bytes(&id).ok_or_else(|| corrupt(DUE, &"not a delivery"))?;
            let round = round.and_then(|round| u32::try_from(round).ok()).unwrap_or(0);
            Ok(QueuedDelivery { due_at: Timestamp(u64::try_from(due_at).unwrap_or(0)), id, round })
        });
        let due = due.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(DuePage { last: due.last().map(row_place), due, is_last })
    }

    /// Those whose state has the same due time.
    pub(super) async fn still_pending(&self, due: &[QueuedDelivery]) -> Result<Pending, StoreError> {
        let states = self.read_states(due.iter().map(|due| due.id).collect()).await?;
        let (mut pending, mut dead, mut is_begin, mut is_open) = (Vec::new(), 0, true, false);
        for (due, state) in due.iter().zip(states) {
            match state {
                Some(state) if state.status != DeliveryStatus::Pending => {
                    dead += usize::from(is_begin);
                    continue;
                }
                // Whatever its round: of two turns that replay a delivery for the same time, the first may write it last.
                Some(state) if state.next_attempt_at == Some(due.due_at) => {
                    let QueuedDelivery { due_at, id, .. } = *due;
                    pending.push(DueDelivery { due_at, id, revision: state.revision, round: state.round });
                }
                Some(state) if due.round < state.round => {
                    dead += usize::from(is_begin);
                    continue;
                }
                // Missing, or due at another time: this due time may be older than its state, or newer.
                _ => is_open = true,
            }
            is_begin = false;
        }
        Ok(Pending { due: pending, dead, is_open })
    }
}

fn row_place(due: &QueuedDelivery) -> BucketPlace {
    (bigint(due.due_at.0), due.id.to_bytes())
}

fn place_of(due: &DuePlace) -> BucketPlace {
    (bigint(due.due_at.0), due.id.to_bytes())
}

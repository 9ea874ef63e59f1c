//! Reads what is due in all queues that this process holds.

use super::deliveries::Deliveries;
use super::queue::{BucketPlace, HeldBucket, QueuedDelivery, bucket_of, end_of};
use crate::domain::calendar::Timestamp;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus};
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

/// What a due time is, by the state of its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueTime {
    Pending,
    /// Nothing is due at this time, nor will be.
    Settled,
    /// The state may still be written.
    Open,
}

/// A due time is written before its state, and that may come very late: after this process has lost its queue, too.
fn due_time(due: &QueuedDelivery, state: Option<&DeliveryState>) -> DueTime {
    let Some(state) = state else { return DueTime::Open };
    let is_pending = state.status == DeliveryStatus::Pending;
    // Whatever its round: of two turns that replay a delivery for the same time, the first may write it last.
    if is_pending && state.next_attempt_at == Some(due.due_at) {
        return DueTime::Pending;
    }
    // The next attempt of a pending delivery may be due at another time in its round, a settled one only in a later round. The
    // first due time is over after an attempt: no later state of the round names it.
    let is_over = if is_pending {
        due.round < state.round || (due.round == 0 && state.attempts > 0 && due.due_at <= state.created_at)
    } else {
        due.round <= state.round
    };
    if is_over { DueTime::Settled } else { DueTime::Open }
}

/// The pending deliveries of a page.
pub struct Pending {
    pub due: Vec<DueDelivery>,
    /// How many at its beginning are settled.
    pub settled: usize,
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
            let begin = after.max(bucket.settled_upto);
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
        let HeldBucket { number, queue, settled_upto: known_upto, .. } = bucket;
        let (mut found, mut after) = (Vec::new(), begin);
        // While all deliveries so far are settled, the next read begins after them.
        let (mut all_settled, mut settled_upto) = (begin == known_upto, None);
        let is_whole = all_settled && end_of(number) <= now;
        while found.len() < limit {
            let page = self.read_bucket(queue, number, after, now, LONGEST_PAGE.min(limit.max(64))).await?;
            let Pending { due: pending, settled: at_begin, .. } = self.still_pending(queue, &page.due).await?;
            if all_settled && at_begin > 0 {
                settled_upto = page.due.get(at_begin - 1).map(row_place);
            }
            all_settled &= at_begin == page.due.len();
            found.extend(pending);
            match page.last {
                Some(last) if !page.is_last => after = Some(last),
                _ => {
                    if is_whole && found.is_empty() {
                        self.leases.queues.found_empty(&bucket);
                        self.leases.doubtful_marked.notify_one();
                    }
                    break;
                }
            }
        }
        if let Some(upto) = settled_upto {
            self.leases.queues.set_settled_upto(&bucket, upto);
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

    /// Those of a queue whose state has the same due time.
    pub(super) async fn still_pending(&self, queue: Uuid, due: &[QueuedDelivery]) -> Result<Pending, StoreError> {
        let rows = self.read_rows(due.iter().map(|due| due.id).collect()).await?;
        let (mut pending, mut settled, mut is_begin, mut is_open) = (Vec::new(), 0, true, false);
        for (due, row) in due.iter().zip(rows) {
            // A process that was killed has written the due time, and its hits were counted again into another queue, for the same
            // time. Its own state may still come, and name this queue. If nobody looks at the other one, the state came too late
            // for that.
            let of_row = row.as_ref().and_then(|row| row.queue);
            let is_elsewhere = of_row.is_some_and(|of| of != queue && self.leases.queues.is_looked_at(of, due.due_at));
            let state = row.map(|row| row.state);
            let time = match due_time(due, state.as_ref()) {
                DueTime::Pending if is_elsewhere => DueTime::Open,
                time => time,
            };
            match (time, state) {
                (DueTime::Settled, _) => {
                    settled += usize::from(is_begin);
                    continue;
                }
                (DueTime::Pending, Some(state)) => {
                    let QueuedDelivery { due_at, id, .. } = *due;
                    pending.push(DueDelivery { due_at, id, revision: state.revision, round: state.round });
                }
                (DueTime::Pending | DueTime::Open, _) => is_open = true,
            }
            is_begin = false;
        }
        Ok(Pending { due: pending, settled, is_open })
    }
}

fn row_place(due: &QueuedDelivery) -> BucketPlace {
    (bigint(due.due_at.0), due.id.to_bytes())
}

fn place_of(due: &DuePlace) -> BucketPlace {
    (bigint(due.due_at.0), due.id.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::key::KeyId;
    use crate::domain::link::{Revision, ShortId};
    use crate::domain::webhook::AttemptOutcome;

    const AT: Timestamp = Timestamp(1_795_000_000_000);

    #[test]
    fn a_due_time_of_a_later_round_waits_for_its_state() {
        let hit = HitStamp { id: HitId(Uuid::nil()), at: AT };
        let id = DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index: 0 };
        let due = |seconds: u64, round| QueuedDelivery { due_at: Timestamp(AT.0 + seconds * 1_000), id, round };
        assert_eq!(due_time(&due(0, 0), None), DueTime::Open);

        let mut state = DeliveryState::new(KeyId(Uuid::nil()), Revision::FIRST, AT);
        assert_eq!(due_time(&due(0, 0), Some(&state)), DueTime::Pending);
        assert_eq!(due_time(&due(1, 0), Some(&state)), DueTime::Open, "that of the next attempt");
        let retry = Some(std::time::Duration::from_secs(5));
        let failed = AttemptOutcome::Failed { response_status: None, error: "dns".into(), retry_in: retry };
        state.settle(&failed, AT);
        assert_eq!(due_time(&due(5, 0), Some(&state)), DueTime::Pending);
        assert_eq!(due_time(&due(0, 0), Some(&state)), DueTime::Settled, "the first");
        assert_eq!(due_time(&due(2, 0), Some(&state)), DueTime::Open, "that of another process's outcome");
        let failed = AttemptOutcome::Failed { response_status: None, error: "dns".into(), retry_in: None };
        state.settle(&failed, AT);
        assert_eq!(due_time(&due(0, 0), Some(&state)), DueTime::Settled);
        assert_eq!(due_time(&due(60, 2), Some(&state)), DueTime::Open, "that of a replay");
        state.replay(2, due(60, 2).due_at, AT);
        assert_eq!(due_time(&due(60, 2), Some(&state)), DueTime::Pending);
        assert_eq!(due_time(&due(0, 0), Some(&state)), DueTime::Settled);
        assert_eq!(due_time(&due(60, 1), Some(&state)), DueTime::Pending, "of the turn before");
    }
}

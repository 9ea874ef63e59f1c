//! How deliveries enter the queue: the due time is written first, the state after it.

use std::collections::{HashMap, HashSet};

use scylla::value::MaybeUnset;
use uuid::Uuid;

use super::deliveries::{Change, Deliveries, DeliveryRow, Writing, in_chunks, lost_queue};
use super::queue::{Expected, QueuedDelivery, bucket_of};
use crate::domain::webhook::{DeliveryId, DeliveryState, NewDelivery};
use crate::store::StoreError;
use crate::store::records::columns::{bigint, day as day_column};

impl Deliveries {
    /// Adds deliveries to the queue; one that exists already stays as it is. `is_replay`: some may exist.
    pub(super) async fn enqueue(&self, deliveries: &[NewDelivery], is_replay: bool) -> Result<(), StoreError> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let _others_may_too = self.changing.read().await;
        let queue = self.leases.queues.own()?;
        let mut new: Vec<(DeliveryId, DeliveryState)> = deliveries.iter().map(|new| (new.id, new.state())).collect();
        let mut due = Vec::new();
        if is_replay {
            let there = self.read_rows(new.iter().map(|(id, _)| *id).collect()).await?;
            // Those that an earlier process has added are in its queue, which this process or another has adopted.
            due = self.forgotten(&new, &there).await?;
            let mut there = there.iter();
            new.retain(|_| there.next().is_some_and(Option::is_none));
        }
        due.extend(new.iter().map(|(id, state)| QueuedDelivery { due_at: state.created_at, id: *id, round: 0 }));
        let _expected = self.write_due(queue, &due).await?;
        let written = async {
            self.note_days(new.iter().map(|(id, _)| *id)).await?;
            // A process that was suspended here: the queue's new holder looks for these states for some hours only.
            if !self.leases.queues.is_held(queue) {
                return Err(lost_queue());
            }
            self.write_states(new.into_iter().map(|(id, state)| Change::new(id, state, queue)), Writing::First).await
        }
        .await;
        if written.is_err() || !self.leases.queues.is_held(queue) {
            self.mark_doubtful(queue, due.iter().map(|due| due.due_at));
        }
        written?;
        // If this process was suspended for long, the queue's new holder may have missed them.
        if self.leases.queues.is_held(queue) { Ok(()) } else { Err(lost_queue()) }
    }

    /// The due times of pending deliveries that nobody looks for any more: their states were written so late that the
    /// queue's holder took it for empty.
    async fn forgotten(
        &self,
        deliveries: &[(DeliveryId, DeliveryState)],
        rows: &[Option<DeliveryRow>],
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let queued = |(id, row): (&DeliveryId, &DeliveryRow)| {
            let queue = row.queue.filter(|_| row.is_pending())?;
            let DeliveryState { next_attempt_at, round, .. } = row.state;
            Some((queue, QueuedDelivery { due_at: next_attempt_at?, id: *id, round }))
        };
        let there = deliveries.iter().zip(rows).filter_map(|((id, _), row)| queued((id, row.as_ref()?)));
        let there: Vec<(Uuid, QueuedDelivery)> = there.collect();
        if there.is_empty() {
            return Ok(Vec::new());
        }
        // After the states: a queue with such a row is kept for longer than a state can be late.
        let table = self.leases.queue_rows().await?;
        let is_forgotten =
            |(queue, due): &(Uuid, QueuedDelivery)| !self.leases.queues.is_looked_at_in(&table, *queue, due.due_at);
        Ok(there.into_iter().filter(is_forgotten).map(|(_, due)| due).collect())
    }

    /// Writes due times into a queue of this process. Their states must be written before the returned value is
    /// dropped.
    pub(super) async fn write_due(&self, queue: Uuid, due: &[QueuedDelivery]) -> Result<Expected<'_>, StoreError> {
        let expected = self.leases.queues.expect(queue, due);
        if due.is_empty() {
            return Ok(expected);
        }
        let written = self.write_due_rows(queue, due, &expected).await;
        if written.is_err() {
            self.mark_doubtful(queue, due.iter().map(|due| due.due_at));
        }
        written.map(|()| expected)
    }

    async fn write_due_rows(
        &self,
        queue: Uuid,
        due: &[QueuedDelivery],
        expected: &Expected<'_>,
    ) -> Result<(), StoreError> {
        if let Some(floor) = expected.floor {
            self.leases.lower_floor(queue, floor).await?;
        }
        self.cluster
            .all(&expected.unnoted, |bucket| async move {
                Ok(self.cluster.cql.write(&self.cluster.statements.put_bucket, (queue, *bucket)).await?)
            })
            .await?;
        self.leases.queues.noted(queue, &expected.unnoted);
        let mut buckets: HashMap<i64, Vec<_>> = HashMap::new();
        for QueuedDelivery { due_at, id, round } in due {
            let bucket = bucket_of(*due_at);
            // Nothing is written for the first round, as by 0.1.0.
            let round =
                i32::try_from(*round).ok().filter(|round| *round > 0).map_or(MaybeUnset::Unset, MaybeUnset::Set);
            let row = (queue, bucket, bigint(due_at.0), id.to_bytes().to_vec(), round);
            buckets.entry(bucket).or_default().push(row);
        }
        let chunks: Vec<_> = buckets.into_values().flat_map(in_chunks).collect();
        self.cluster
            .all(chunks, |rows| async move {
                Ok(self.cluster.cql.write_partition(&self.cluster.statements.put_due, rows).await?)
            })
            .await?;
        if self.leases.queues.is_held(queue) { Ok(()) } else { Err(lost_queue()) }
    }

    /// Notes on which days links have deliveries.
    async fn note_days(&self, ids: impl Iterator<Item = DeliveryId>) -> Result<(), StoreError> {
        let days: HashSet<_> = ids.map(|id| (id.link, id.hit.at.day())).collect();
        let unknown = days.into_iter().filter(|day| !self.noted_days.contains_key(day));
        self.cluster
            .all(unknown, |(link, day)| async move {
                self.cluster
                    .cql
                    .write(&self.cluster.statements.put_delivery_day, (link.as_str(), day_column(day)))
                    .await?;
                self.noted_days.insert((link, day), ());
                Ok(())
            })
            .await
    }
}

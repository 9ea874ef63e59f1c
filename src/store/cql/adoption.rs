//! Takes over queues whose holder is gone, and counts their pending deliveries.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::cluster::ASK_AGAIN_AFTER;
use super::deliveries::Deliveries;
use super::due::LONGEST_PAGE;
use super::queue::{BEAT_EVERY, CountedBucket, end_of};
use super::watch::QueueRow;
use crate::clock::uptime;
use crate::domain::calendar::{Day, Timestamp};
use crate::store::StoreError;

/// How often a bucket that changes meanwhile is counted, before changes are blocked for a count.
const COUNTS_BESIDE: usize = 3;

impl Deliveries {
    pub(super) async fn adoption_loop(deliveries: Weak<Self>) {
        loop {
            tokio::time::sleep(BEAT_EVERY).await;
            let Some(deliveries) = deliveries.upgrade().filter(|it| it.cluster.check_open().is_ok()) else { return };
            if let Err(error) = deliveries.check_queues().await {
                tracing::debug!(%error, "can't read other nodes' webhook queues");
            }
        }
    }

    async fn check_queues(&self) -> Result<(), StoreError> {
        let (looked_at, mut result) = (uptime(), Ok(()));
        for row in self.leases.queue_rows().await? {
            // One queue that can't be taken over keeps no other from it.
            result = self.check_queue(&row, looked_at).await.and(result);
        }
        result
    }

    async fn check_queue(&self, row: &QueueRow, looked_at: Duration) -> Result<(), StoreError> {
        let is_held = self.leases.queues.has(row.queue);
        if !is_held && (row.holder == self.cluster.process || self.leases.queues.watch.look(row, looked_at)) {
            self.leases.adopt(row, looked_at).await?;
        }
        if is_held && self.leases.queues.is_done(row.queue) {
            self.close_queue(row).await?;
        }
        Ok(())
    }

    /// Removes the row of an empty queue, after its buckets are counted once more.
    async fn close_queue(&self, row: &QueueRow) -> Result<(), StoreError> {
        let buckets: Vec<(i64,)> =
            self.cluster.cql.read(&self.cluster.statements.buckets, (row.queue, row.floor)).await?;
        for (bucket,) in buckets {
            self.recount(row.queue, bucket).await?;
        }
        // The last count may have found rows whose states never came.
        if self.leases.queues.has(row.queue) && !self.leases.queues.has_pending(row.queue) {
            self.cluster.cql.lwt(&self.cluster.statements.close_queue, (row.queue, self.cluster.process)).await?;
            self.leases.queues.closed(row.queue);
        }
        Ok(())
    }

    /// Counts adopted and doubtful buckets.
    pub(super) async fn recount_loop(deliveries: Weak<Self>) {
        loop {
            let Some(deliveries) = deliveries.upgrade().filter(|it| it.cluster.check_open().is_ok()) else { return };
            let Some((queue, bucket)) = deliveries.leases.queues.next_doubtful() else {
                let woken = Arc::clone(&deliveries.leases.doubtful_marked);
                drop(deliveries);
                let _ = tokio::time::timeout(BEAT_EVERY, woken.notified()).await;
                continue;
            };
            if let Err(error) = deliveries.recount(queue, bucket).await {
                tracing::debug!(%error, "a bucket of a webhook queue is not counted yet");
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
    }

    /// Counts the pending deliveries of a bucket. If that fails, the bucket stays doubtful.
    async fn recount(&self, queue: Uuid, bucket: i64) -> Result<(), StoreError> {
        let counted = self.count_at_last(queue, bucket).await;
        if counted.is_err() {
            self.leases.queues.mark_bucket_doubtful(queue, bucket);
        }
        counted
    }

    /// If the bucket keeps changing meanwhile, changes are blocked for a last count.
    async fn count_at_last(&self, queue: Uuid, bucket: i64) -> Result<(), StoreError> {
        for _ in 0..COUNTS_BESIDE {
            if self.count_once(queue, bucket).await? {
                return Ok(());
            }
        }
        let _alone = self.changing.write().await;
        self.count_once(queue, bucket).await.map(drop)
    }

    /// Returns `false` if the bucket changed meanwhile.
    async fn count_once(&self, queue: Uuid, bucket: i64) -> Result<bool, StoreError> {
        let Some(version) = self.leases.queues.version(queue, bucket) else { return Ok(true) };
        let mut found: BTreeMap<Day, i64> = BTreeMap::new();
        let mut earliest: Option<Timestamp> = None;
        let (mut after, mut is_open) = (None, false);
        loop {
            let page = self.read_bucket(queue, bucket, after, Timestamp(u64::MAX), LONGEST_PAGE).await?;
            let looked_at = self.still_pending(queue, &page.due).await?;
            is_open |= looked_at.is_open;
            for due in looked_at.due {
                *found.entry(due.id.hit.at.day()).or_default() += 1;
                earliest = Some(earliest.map_or(due.due_at, |known| known.min(due.due_at)));
            }
            match page.last {
                Some(last) if !page.is_last => after = Some(last),
                _ => break,
            }
        }
        let age = self.cluster.cql.settings.clock.now().since(end_of(bucket));
        let counted = CountedBucket { queue, number: bucket, found, is_open };
        if !self.leases.queues.recounted(counted, version, age) {
            return Ok(false);
        }
        if let Some(earliest) = earliest {
            self.leases.queues.notify_due(earliest);
        }
        Ok(true)
    }
}

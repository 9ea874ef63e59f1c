//! Taking over queues whose holder is gone, and counting what they hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::Tables;
use super::due::LONGEST_PAGE;
use super::lease::LONG_AGO;
use super::queue::{BEAT_EVERY, QueueRow, start_of};
use super::watch::uptime;
use crate::domain::calendar::{Day, Timestamp};
use crate::store::StoreError;

/// How often a bucket is counted that changes meanwhile, before changes wait for it.
const COUNTS_BESIDE: usize = 3;

impl Tables {
    pub(super) async fn keep_adopting(tables: Weak<Self>) {
        loop {
            tokio::time::sleep(BEAT_EVERY).await;
            let Some(tables) = tables.upgrade().filter(|tables| tables.check_open().is_ok()) else { return };
            if let Err(error) = tables.look_around().await {
                tracing::debug!(%error, "queues: those of others can't be looked at");
            }
        }
    }

    async fn look_around(&self) -> Result<(), StoreError> {
        let looked_at = uptime();
        for row in self.queue_rows().await? {
            let is_held = self.queues.has(row.queue);
            if !is_held && (row.holder == self.process || self.queues.watch.look(&row, looked_at)) {
                self.adopt(&row, looked_at).await?;
            }
            if is_held && self.queues.is_done(row.queue) {
                self.close_queue(&row).await?;
            }
        }
        Ok(())
    }

    /// Takes a queue over as its row was at `looked_at`, unless another process was faster, or its holder lives after all.
    pub(super) async fn adopt(&self, row: &QueueRow, looked_at: Duration) -> Result<(), StoreError> {
        let is_ours = row.holder == self.process;
        let values = (self.process, self.queues.node, row.beat + 1, row.queue, row.holder, row.beat);
        if !is_ours && !self.cql.lwt(&self.statements.adopt_queue, values).await? {
            return Ok(());
        }
        let buckets: Vec<(i64,)> = self.cql.read(&self.statements.buckets, (row.queue, row.floor)).await?;
        let buckets: Vec<i64> = buckets.into_iter().map(|(bucket,)| bucket).collect();
        // One whose answer was lost is ours already, who knows since when: nothing is begun on it before its next beat.
        let (beat, held_since) = if is_ours { (row.beat, LONG_AGO) } else { (row.beat + 1, looked_at) };
        self.queues.take(row.queue, (beat, row.floor), held_since, &buckets, false);
        tracing::info!(queue = %row.queue, node = %row.node, buckets = buckets.len(), "queues: adopted");
        self.doubts.notify_one();
        if let Some(first) = buckets.first() {
            self.queues.tell(start_of(*first));
        }
        Ok(())
    }

    /// Removes the row of a queue in which nothing is left; what was thought to be done is looked at once more.
    async fn close_queue(&self, row: &QueueRow) -> Result<(), StoreError> {
        let buckets: Vec<(i64,)> = self.cql.read(&self.statements.buckets, (row.queue, row.floor)).await?;
        for (bucket,) in buckets {
            self.recount(row.queue, bucket).await?;
        }
        if self.queues.is_drained(row.queue) {
            self.cql.lwt(&self.statements.close_queue, (row.queue, self.process)).await?;
            self.queues.lose(row.queue);
        }
        Ok(())
    }

    /// Counts adopted and doubtful buckets.
    pub(super) async fn keep_counting(tables: Weak<Self>) {
        loop {
            let Some(tables) = tables.upgrade().filter(|tables| tables.check_open().is_ok()) else { return };
            let Some((queue, bucket)) = tables.queues.next_doubtful() else {
                let woken = Arc::clone(&tables.doubts);
                drop(tables);
                let _ = tokio::time::timeout(BEAT_EVERY, woken.notified()).await;
                continue;
            };
            if let Err(error) = tables.recount(queue, bucket).await {
                tracing::debug!(%error, "queues: a bucket is not counted yet");
                tables.queues.doubt_bucket(queue, bucket);
                tokio::time::sleep(super::ASK_AGAIN_AFTER).await;
            }
        }
    }

    /// Counts what is pending in a bucket; one that does not come to rest meanwhile is counted alone.
    async fn recount(&self, queue: Uuid, bucket: i64) -> Result<(), StoreError> {
        for _ in 0..COUNTS_BESIDE {
            if self.count_once(queue, bucket).await? {
                return Ok(());
            }
        }
        let _alone = self.changing.write().await;
        self.count_once(queue, bucket).await.map(drop)
    }

    /// Answers false where the bucket changed meanwhile.
    async fn count_once(&self, queue: Uuid, bucket: i64) -> Result<bool, StoreError> {
        let Some(version) = self.queues.version(queue, bucket) else { return Ok(true) };
        let mut found: BTreeMap<Day, i64> = BTreeMap::new();
        let mut earliest: Option<Timestamp> = None;
        let (mut after, mut is_open) = (None, false);
        loop {
            let page = self.read_bucket(queue, bucket, after, Timestamp(u64::MAX), LONGEST_PAGE).await?;
            let looked_at = self.those_pending(&page.due).await?;
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
        if !self.queues.recounted(queue, bucket, version, found, is_open) {
            return Ok(false);
        }
        if let Some(earliest) = earliest {
            self.queues.tell(earliest);
        }
        Ok(true)
    }
}

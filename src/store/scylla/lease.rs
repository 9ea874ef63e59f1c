//! Holding queues: the beat, taking over those whose holder is gone, and counting what they hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use futures_util::future::try_join_all;
use uuid::Uuid;

use super::Tables;
use super::outcome::CqlError;
use super::queue::{BEAT_EVERY, QueueRow};
use crate::domain::calendar::{Day, Timestamp};
use crate::store::StoreError;

impl Tables {
    /// Opens a queue for this life of the node, and takes over those of its earlier lives, which are over: nobody else
    /// has its journal.
    pub(super) async fn begin_queues(&self) -> Result<(), StoreError> {
        self.open_own_queue().await?;
        let node = self.queues.node;
        for row in self.queue_rows().await?.into_iter().filter(|row| row.is_left_by(node) && row.holder != self.process)
        {
            self.adopt(&row).await?;
        }
        Ok(())
    }

    /// Beats, for as long as the store is open.
    pub(super) async fn keep_beating(tables: Weak<Self>) {
        loop {
            tokio::time::sleep(BEAT_EVERY).await;
            let Some(tables) = tables.upgrade() else { return };
            if tables.check_open().is_err() {
                return;
            }
            if let Err(error) = tables.beat_once().await {
                tracing::warn!(%error, "queues: the cluster does not confirm that this node holds them");
            }
        }
    }

    /// Counts adopted and doubtful buckets, for as long as the store is open.
    pub(super) async fn keep_counting(tables: Weak<Self>) {
        loop {
            let Some(tables) = tables.upgrade() else { return };
            if tables.check_open().is_err() {
                return;
            }
            match tables.queues.next_doubtful() {
                None => {
                    let woken = Arc::clone(&tables.doubts);
                    drop(tables);
                    let _ = tokio::time::timeout(BEAT_EVERY, woken.notified()).await;
                }
                Some((queue, bucket)) => {
                    if let Err(error) = tables.recount(queue, bucket).await {
                        tracing::debug!(%error, "queues: a bucket is not counted yet");
                        tables.queues.doubt_bucket(queue, bucket);
                        tokio::time::sleep(super::ASK_AGAIN_AFTER).await;
                    }
                }
            }
        }
    }

    async fn beat_once(&self) -> Result<(), StoreError> {
        let rows = self.queue_rows().await?;
        let now = Instant::now();
        for held in self.queues.held_queues() {
            if let Some(row) = rows.iter().find(|row| row.queue == held && row.holder == self.process) {
                self.queues.beat_is(held, row.beat);
            } else {
                tracing::warn!(queue = %held, "queues: another node has taken this one's over");
                self.queues.lose(held);
            }
        }
        if !self.queues.has_own() {
            self.open_own_queue().await?;
        }
        try_join_all(self.queues.held_queues().into_iter().map(|queue| self.beat(queue))).await?;
        for row in &rows {
            let is_held = self.queues.has(row.queue);
            if !is_held && (row.holder == self.process || self.queues.watch(row, now)) {
                self.adopt(row).await?;
            }
            if is_held && self.queues.is_done(row.queue) {
                self.close_queue(row.queue).await?;
            }
        }
        Ok(())
    }

    async fn beat(&self, queue: Uuid) -> Result<(), StoreError> {
        let _one_at_a_time = self.beating.lock().await;
        let Some((beat, floor)) = self.queues.next_beat(queue) else { return Ok(()) };
        self.beat_with(queue, beat, floor).await
    }

    async fn beat_with(&self, queue: Uuid, beat: i64, floor: i64) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        let values = (beat + 1, floor, queue, self.process, beat);
        if self.cql.lwt(&self.statements.beat, values).await? {
            self.queues.has_beaten(queue, beat + 1, floor, sent_at);
            return Ok(());
        }
        // The next look at the rows says why: another holder, or a beat of ours whose answer was lost.
        Err(StoreError::Unavailable("a queue's beat was refused".into()))
    }

    /// Lowers the floor that a queue's row says, before something is written below it.
    pub(super) async fn lower_floor(&self, queue: Uuid, floor: i64) -> Result<(), StoreError> {
        let _one_at_a_time = self.beating.lock().await;
        let row = self.queue_rows().await?.into_iter().find(|row| row.queue == queue && row.holder == self.process);
        let row = row.ok_or_else(|| StoreError::Unavailable("another node has this node's queue".into()))?;
        self.beat_with(queue, row.beat, floor.min(row.floor)).await
    }

    async fn open_own_queue(&self) -> Result<(), StoreError> {
        let queue = Uuid::new_v4();
        let sent_at = Instant::now();
        let (node, floor) = (self.queues.node, 0);
        let values = (queue, node, self.process, node, floor);
        let attempt = || self.cql.lwt(&self.statements.open_queue, values);
        let settle = || async {
            let rows = self.read_queues().await?;
            Ok(rows.iter().any(|row| row.queue == queue).then_some(true))
        };
        self.cql.settled(attempt, settle).await?;
        self.queues.take(queue, (0, floor), sent_at, &[], true);
        Ok(())
    }

    async fn adopt(&self, row: &QueueRow) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        if row.holder != self.process {
            let values = (self.process, self.queues.node, row.beat + 1, row.queue, row.holder, row.beat);
            if !self.cql.lwt(&self.statements.adopt_queue, values).await? {
                // Another one was faster, or it lives after all.
                return Ok(());
            }
        }
        let buckets: Vec<(i64,)> = self.cql.read(&self.statements.buckets, (row.queue, row.floor)).await?;
        let buckets: Vec<i64> = buckets.into_iter().map(|(bucket,)| bucket).collect();
        let beat = if row.holder == self.process { row.beat } else { row.beat + 1 };
        self.queues.take(row.queue, (beat, row.floor), sent_at, &buckets, false);
        tracing::info!(queue = %row.queue, node = %row.node, buckets = buckets.len(), "queues: adopted");
        self.doubts.notify_one();
        if let Some(first) = buckets.first() {
            self.queues.tell(super::queue::start_of(*first));
        }
        Ok(())
    }

    /// Removes the row of a queue in which nothing is left; what was thought to be done is looked at once more.
    async fn close_queue(&self, queue: Uuid) -> Result<(), StoreError> {
        let row = self.queue_rows().await?.into_iter().find(|row| row.queue == queue);
        let Some(row) = row else { return Ok(()) };
        let buckets: Vec<(i64,)> = self.cql.read(&self.statements.buckets, (queue, row.floor)).await?;
        for (bucket,) in buckets {
            self.recount(queue, bucket).await?;
        }
        if self.queues.is_drained(queue) {
            self.cql.lwt(&self.statements.close_queue, (queue, self.process)).await?;
            self.queues.lose(queue);
        }
        Ok(())
    }

    /// Hands all queues back: those with nothing left are removed, the others are free for whoever comes first.
    pub(super) async fn hand_back(&self) -> Result<(), CqlError> {
        for row in self.read_queues().await?.into_iter().filter(|row| row.holder == self.process) {
            if self.queues.is_drained(row.queue) {
                self.cql.lwt(&self.statements.close_queue, (row.queue, self.process)).await?;
            } else {
                let values = (Uuid::nil(), Uuid::nil(), row.beat + 1, row.queue, self.process, row.beat);
                self.cql.lwt(&self.statements.adopt_queue, values).await?;
            }
            self.queues.lose(row.queue);
        }
        Ok(())
    }

    async fn queue_rows(&self) -> Result<Vec<QueueRow>, StoreError> {
        Ok(self.read_queues().await?)
    }

    async fn read_queues(&self) -> Result<Vec<QueueRow>, CqlError> {
        let rows: Vec<(Uuid, Uuid, Uuid, Uuid, i64, i64)> = self.cql.read(&self.statements.queues, ()).await?;
        let row = |(queue, node, holder, holder_node, beat, floor)| QueueRow {
            queue,
            node,
            holder,
            holder_node,
            beat,
            floor,
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Counts what is pending in a bucket, while nothing is settled or enqueued.
    async fn recount(&self, queue: Uuid, bucket: i64) -> Result<(), StoreError> {
        let _alone = self.changing.write().await;
        if !self.queues.has(queue) {
            return Ok(());
        }
        let mut found: BTreeMap<Day, i64> = BTreeMap::new();
        let mut earliest: Option<Timestamp> = None;
        let mut after = None;
        loop {
            let page = self.read_bucket(queue, bucket, after, Timestamp(u64::MAX), super::due::LONGEST_PAGE).await?;
            for due in self.those_pending(&page.due).await?.pending {
                *found.entry(due.id.hit.at.day()).or_default() += 1;
                earliest = Some(earliest.map_or(due.due_at, |known| known.min(due.due_at)));
            }
            match page.last {
                Some(last) if !page.is_last => after = Some(last),
                _ => break,
            }
        }
        self.queues.recounted(queue, bucket, found);
        if let Some(earliest) = earliest {
            self.queues.tell(earliest);
        }
        Ok(())
    }
}

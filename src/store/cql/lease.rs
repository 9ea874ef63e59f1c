//! Holds queues by renewing their leases: a number, the beat, that grows while the holder is alive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

use super::cluster::Cluster;
use super::link_feed::LinkFeed;
use super::outcome::CqlError;
use super::queue::{BEAT_EVERY, Hold, Queues, start_of};
use super::watch::QueueRow;
use crate::clock::uptime;
use crate::domain::hit::NodeId;
use crate::store::StoreError;
use crate::telemetry::log_limit::LogLimit;

/// How soon a failed beat is sent again.
const BEAT_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The queues that this process holds, and their rows.
pub struct Leases {
    cluster: Arc<Cluster>,
    pub queues: Queues,
    feed: Arc<LinkFeed>,
    /// Wakes the task that counts doubtful buckets.
    pub doubtful_marked: Arc<Notify>,
    beating: Mutex<()>,
}

impl Leases {
    pub fn new(cluster: &Arc<Cluster>, node: NodeId, feed: &Arc<LinkFeed>) -> Self {
        let (queues, feed) = (Queues::new(node.0), Arc::clone(feed));
        Self { cluster: Arc::clone(cluster), queues, feed, doubtful_marked: Arc::default(), beating: Mutex::default() }
    }

    /// Opens a queue for this process, and takes over those of earlier processes of the node. They have ended: the
    /// journal is locked by one process at a time.
    pub(super) async fn begin_queues(&self) -> Result<(), StoreError> {
        // This may be another attempt.
        if !self.queues.has_own() {
            self.open_own_queue().await?;
        }
        let (node, looked_at) = (self.queues.node, uptime());
        let rows = self.queue_rows().await?;
        self.queues.note_table(&rows);
        for row in rows.into_iter().filter(|row| row.is_left_by(node)) {
            if row.holder != self.cluster.process {
                self.adopt(&row, looked_at).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn heartbeat_loop(leases: Weak<Self>) {
        static LINES: LogLimit = LogLimit::new(BEAT_EVERY);
        let mut pause = BEAT_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let Some(leases) = leases.upgrade().filter(|leases| leases.cluster.check_open().is_ok()) else { return };
            let beaten = leases.beat_all().await;
            // Nothing is begun on a queue before a beat succeeds: retried often, so that work resumes soon after the
            // cluster is back.
            pause = if beaten.is_ok() { BEAT_EVERY } else { BEAT_AGAIN_AFTER };
            if let Err(error) = beaten
                && LINES.admit().is_some()
            {
                tracing::warn!(%error, "can't renew the lease of this node's webhook queue");
            }
            leases.doubtful_marked.notify_one();
        }
    }

    async fn beat_all(&self) -> Result<(), StoreError> {
        // Before the rows are read: a queue that is adopted meanwhile is in none of them.
        let held_queues = self.queues.held_queues();
        let rows = self.queue_rows().await?;
        self.queues.note_table(&rows);
        for held in held_queues {
            if let Some(row) = rows.iter().find(|row| row.queue == held && row.holder == self.cluster.process) {
                self.queues.set_beat(held, row.beat);
            } else {
                tracing::warn!(queue = %held, "another node took over this node's webhook queue");
                self.queues.lose(held);
            }
        }
        if !self.queues.has_own() {
            self.open_own_queue().await?;
        }
        let beats = join_all(self.queues.held_queues().into_iter().map(|queue| self.beat(queue))).await;
        beats.into_iter().collect()
    }

    pub(super) async fn beat(&self, queue: Uuid) -> Result<(), StoreError> {
        let _one_at_a_time = self.beating.lock().await;
        let Some((beat, floor)) = self.queues.next_beat(queue) else { return Ok(()) };
        self.beat_with(queue, beat, floor).await
    }

    async fn beat_with(&self, queue: Uuid, beat: i64, floor: i64) -> Result<(), StoreError> {
        let sent_at = uptime();
        let values = (beat + 1, floor, queue, self.cluster.process, beat);
        if self.cluster.cql.lwt(&self.cluster.statements.beat, values).await? {
            self.queues.record_beat(queue, beat + 1, floor, sent_at);
            return Ok(());
        }
        // The next read of the rows shows why: another holder, or a beat of this process whose answer was lost.
        Err(StoreError::Unavailable("a queue's beat was refused".into()))
    }

    /// Lowers the floor in a queue's row, before something is written below it.
    pub(super) async fn lower_floor(&self, queue: Uuid, floor: i64) -> Result<(), StoreError> {
        let _one_at_a_time = self.beating.lock().await;
        let row =
            self.queue_rows().await?.into_iter().find(|row| row.queue == queue && row.holder == self.cluster.process);
        let row = row.ok_or_else(|| StoreError::Unavailable("another node has this node's queue".into()))?;
        self.beat_with(queue, row.beat, floor.min(row.floor)).await
    }

    async fn open_own_queue(&self) -> Result<(), StoreError> {
        let (queue, sent_at) = (Uuid::new_v4(), uptime());
        let (node, floor) = (self.queues.node, 0);
        let values = (queue, node, self.cluster.process, node, floor);
        let attempt = || self.cluster.cql.lwt(&self.cluster.statements.open_queue, values);
        let settle = || async {
            let holder = self.cluster.cql.read_one::<(Uuid,)>(&self.cluster.statements.queue_holder, (queue,)).await?;
            Ok(holder.map(|_| true))
        };
        self.cluster.cql.settled(attempt, settle).await?;
        self.queues.open(queue, Hold { beat: 0, floor, renewed_at: sent_at });
        Ok(())
    }

    /// Releases all queues: empty ones are removed, the others can be taken over at once.
    pub(super) async fn release_queues(&self) -> Result<(), CqlError> {
        if self.feed.has_unsettled() {
            // Who takes a released queue over appends no changes again.
            return Ok(());
        }
        for row in self.queue_rows().await?.into_iter().filter(|row| row.holder == self.cluster.process) {
            if self.queues.is_drained(row.queue) {
                self.cluster.cql.lwt(&self.cluster.statements.close_queue, (row.queue, self.cluster.process)).await?;
            } else {
                let values = (Uuid::nil(), Uuid::nil(), row.beat + 1, row.queue, self.cluster.process, row.beat);
                self.cluster.cql.lwt(&self.cluster.statements.adopt_queue, values).await?;
            }
            self.queues.lose(row.queue);
        }
        Ok(())
    }

    /// Takes over a queue whose row was read at `looked_at`, unless another process was faster, or its holder is alive
    /// after all.
    pub(super) async fn adopt(&self, row: &QueueRow, looked_at: Duration) -> Result<(), StoreError> {
        let is_ours = row.holder == self.cluster.process;
        if !is_ours && !row.holder.is_nil() {
            // First: whoever has the queue has done this.
            self.feed.append_again(row.holder).await?;
        }
        let values = (self.cluster.process, self.queues.node, row.beat + 1, row.queue, row.holder, row.beat);
        if !is_ours && !self.cluster.cql.lwt(&self.cluster.statements.adopt_queue, values).await? {
            return Ok(());
        }
        let buckets: Vec<(i64,)> =
            self.cluster.cql.read(&self.cluster.statements.buckets, (row.queue, row.floor)).await?;
        let buckets: Vec<i64> = buckets.into_iter().map(|(bucket,)| bucket).collect();
        // After a lost answer it is unknown since when this process holds the queue: nothing is begun on it before its
        // next beat.
        let (beat, renewed_at) = if is_ours { (row.beat, LONG_AGO) } else { (row.beat + 1, looked_at) };
        self.queues.adopt(row.queue, Hold { beat, floor: row.floor, renewed_at }, &buckets);
        tracing::info!(queue = %row.queue, node = %row.node, buckets = buckets.len(), "took over the webhook queue of a stopped node");
        self.doubtful_marked.notify_one();
        if let Some(first) = buckets.first() {
            self.queues.notify_due(start_of(*first));
        }
        Ok(())
    }

    pub(super) async fn queue_rows(&self) -> Result<Vec<QueueRow>, CqlError> {
        let rows = self.cluster.cql.read(&self.cluster.statements.queues, ()).await?;
        Ok(rows.into_iter().map(QueueRow::from_columns).collect())
    }
}

/// A time so long ago that nothing is begun because of it.
pub const LONG_AGO: Duration = Duration::ZERO;

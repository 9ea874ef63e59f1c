//! Holding queues by their beats.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::Tables;
use super::outcome::CqlError;
use super::queue::{BEAT_EVERY, QueueRow};
use super::watch::uptime;
use crate::store::StoreError;
use crate::telemetry::log_limit::LogLimit;

/// How soon a holder tries again whose beat did not get through.
const BEAT_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Tables {
    /// Opens a queue for this life of the node, and takes over those of its earlier lives, which are over: nobody else
    /// has its journal.
    pub(super) async fn begin_queues(&self) -> Result<(), StoreError> {
        // This may be another attempt.
        if !self.queues.has_own() {
            self.open_own_queue().await?;
        }
        let (node, looked_at) = (self.queues.node, uptime());
        for row in self.queue_rows().await?.into_iter().filter(|row| row.is_left_by(node)) {
            if row.holder != self.process {
                self.adopt(&row, looked_at).await?;
            }
        }
        Ok(())
    }

    /// Starts what keeps the queues for as long as the store is open: beats, takes over, counts; and the cluster in reach.
    /// Each is a task of its own, so that a beat never waits for the others.
    pub(super) fn keep_queues(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let forever = |task: fn(Weak<Self>) -> JoinHandle<()>| {
            let tables = Arc::downgrade(self);
            tokio::spawn(async move {
                // A panic in one would leave this node without a queue until it is started anew.
                while let Err(error) = task(tables.clone()).await
                    && error.is_panic()
                {
                    tracing::error!("a task of the store panicked, and is started anew");
                    tokio::time::sleep(BEAT_EVERY).await;
                }
            })
        };
        vec![
            forever(|tables| tokio::spawn(Self::keep_beating(tables))),
            forever(|tables| tokio::spawn(Self::keep_adopting(tables))),
            forever(|tables| tokio::spawn(Self::keep_counting(tables))),
            forever(|tables| tokio::spawn(Self::keep_in_reach(tables))),
        ]
    }

    async fn keep_beating(tables: Weak<Self>) {
        static LINES: LogLimit = LogLimit::new(BEAT_EVERY);
        let mut pause = BEAT_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let Some(tables) = tables.upgrade().filter(|tables| tables.check_open().is_ok()) else { return };
            let beaten = tables.beat_all().await;
            // Nothing is begun on a queue before the beat that gets through: soon after the cluster is back.
            pause = if beaten.is_ok() { BEAT_EVERY } else { BEAT_AGAIN_AFTER };
            if let Err(error) = beaten
                && LINES.admit().is_some()
            {
                tracing::warn!(%error, "queues: the cluster does not confirm that this node holds them");
            }
            tables.doubts.notify_one();
        }
    }

    async fn beat_all(&self) -> Result<(), StoreError> {
        let rows = self.queue_rows().await?;
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
        let (queue, sent_at) = (Uuid::new_v4(), uptime());
        let (node, floor) = (self.queues.node, 0);
        let values = (queue, node, self.process, node, floor);
        let attempt = || self.cql.lwt(&self.statements.open_queue, values);
        let settle = || async {
            let holder = self.cql.read_one::<(Uuid,)>(&self.statements.queue_holder, (queue,)).await?;
            Ok(holder.map(|_| true))
        };
        self.cql.settled(attempt, settle).await?;
        self.queues.take(queue, (0, floor), sent_at, &[], true);
        Ok(())
    }

    /// Hands all queues back: those with nothing left are removed, the others are free for whoever comes first.
    pub(super) async fn hand_back(&self) -> Result<(), CqlError> {
        for row in self.queue_rows().await?.into_iter().filter(|row| row.holder == self.process) {
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

    pub(super) async fn queue_rows(&self) -> Result<Vec<QueueRow>, CqlError> {
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
}

/// A moment so long ago that nothing is begun on its account.
pub const LONG_AGO: Duration = Duration::ZERO;

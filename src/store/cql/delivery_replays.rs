//! Replays: settled deliveries are found, oldest first, and queued again in another round.
//!
//! A settled delivery is in no queue, so no process is the only one to change it. For that, replays of a link take turns
//! by LWT. The number of the turn is a lower bound of the rounds that it makes: states of two turns never have the same
//! timestamp, even if a process was suspended during its turn and writes late.

use uuid::Uuid;

use super::deliveries::{Change, Deliveries, lost_queue};
use super::outcome::CqlError;
use super::queue::QueuedDelivery;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::day as day_column;
use crate::store::records::{corrupt, deliveries as records, row_keys};
use crate::store::{Replay, SettledPage, SettledQuery, StoreError};

/// Replays of different links that one process makes at once.
pub const REPLAYS_AT_ONCE: usize = 16;

/// Number of the last turn, queue and process.
type TurnRow = (Option<i32>, Option<Uuid>, Option<Uuid>);

impl Deliveries {
    /// Queues settled deliveries again; returns how many.
    pub(super) async fn replay(&self, replay: Replay) -> Result<u64, StoreError> {
        let place = usize::from(replay.link.0[ShortId::LENGTH - 1]) % REPLAYS_AT_ONCE;
        let _one_at_a_time = self.replaying[place].lock().await;
        let turn = self.take_turn(replay.link).await?;
        let queued = self.replay_in_turn(&replay, u32::try_from(turn).unwrap_or(0)).await;
        self.end_turn(replay.link, turn).await;
        queued
    }

    async fn replay_in_turn(&self, replay: &Replay, turn: u32) -> Result<u64, StoreError> {
        let _others_may_too = self.changing.read().await;
        let queue = self.leases.queues.own()?;
        let rows = self.read_rows(replay.ids.clone()).await?;
        let settled = replay.due_times().zip(rows).filter_map(|((id, due_at), row)| {
            let before = row?.state;
            (before.status != DeliveryStatus::Pending).then_some((id, due_at, before))
        });
        let changes = settled.map(|(id, due_at, before)| {
            let mut state = before.clone();
            state.replay((before.round + 1).max(turn), due_at, replay.at);
            Change { id, before: Some(before), attempt: 0, queue: Some(queue), state, tried: false }
        });
        let changes: Vec<Change> = changes.collect();
        let queued = |change: &Change| {
            let due_at = change.state.next_attempt_at?;
            Some(QueuedDelivery { due_at, id: change.id, round: change.state.round })
        };
        let due: Vec<QueuedDelivery> = changes.iter().filter_map(queued).collect();
        let _expected = self.write_due(queue, &due).await?;
        let written = self.write_states(changes.into_iter()).await;
        if written.is_err() || !self.leases.queues.is_held(queue) {
            self.mark_doubtful(queue, due.iter().map(|due| due.due_at));
        }
        written?;
        // If this process was suspended for long, the queue's new holder may have missed them.
        if self.leases.queues.is_held(queue) { Ok(due.len() as u64) } else { Err(lost_queue()) }
    }

    /// Waits for nobody: another process that has its turn may take some seconds.
    async fn take_turn(&self, link: ShortId) -> Result<i32, StoreError> {
        let own = self.leases.queues.own()?;
        let (cluster, statements) = (&self.cluster, &self.cluster.statements);
        let row: Option<TurnRow> = cluster.cql.read_one(&statements.replay_turn, (link.as_str(),)).await?;
        let (before, queue, process) = row.unwrap_or_default();
        if let (Some(queue), Some(process)) = (queue, process)
            && process != cluster.process
            && self.holds_queue(process, queue).await?
        {
            return Err(StoreError::Unavailable("another node is replaying deliveries of this link".into()));
        }
        let turn = before.unwrap_or(0).saturating_add(1);
        let attempt = || async {
            let values = (turn, own, cluster.process, link.as_str(), before);
            cluster.cql.lwt(&statements.take_replay_turn, values).await
        };
        let settle = || async {
            let row: Option<TurnRow> = cluster.cql.read_one(&statements.replay_turn, (link.as_str(),)).await?;
            let (now, _, process) = row.unwrap_or_default();
            let is_decided = now != before;
            Ok::<_, CqlError>(is_decided.then_some(now == Some(turn) && process == Some(cluster.process)))
        };
        let is_ours = cluster.cql.settled(attempt, settle).await?;
        let overtaken =
            || StoreError::Unavailable("another node was about to replay deliveries of this link, too".into());
        is_ours.then_some(turn).ok_or_else(overtaken)
    }

    /// Whether a process still works on a queue, as far as is known.
    async fn holds_queue(&self, process: Uuid, queue: Uuid) -> Result<bool, StoreError> {
        let statement = &self.cluster.statements.queue_holder;
        let holder: Option<(Uuid,)> = self.cluster.cql.read_one(statement, (queue,)).await?;
        Ok(holder.is_some_and(|(holder,)| holder == process))
    }

    /// If this fails, this process takes the next turn all the same, and any other one once this process has lost its queue
    /// or the row has expired.
    async fn end_turn(&self, link: ShortId, turn: i32) {
        let (cluster, statements) = (&self.cluster, &self.cluster.statements);
        let attempt = || async {
            let values = (Uuid::nil(), link.as_str(), turn);
            cluster.cql.lwt(&statements.end_replay_turn, values).await
        };
        let settle = || async {
            let row: Option<TurnRow> = cluster.cql.read_one(&statements.replay_turn, (link.as_str(),)).await?;
            let (now, _, process) = row.unwrap_or_default();
            let is_over = now != Some(turn) || process != Some(cluster.process);
            Ok::<_, CqlError>(is_over.then_some(true))
        };
        if let Err(error) = cluster.cql.settled(attempt, settle).await {
            tracing::debug!(%error, "the end of a replay is not noted");
        }
    }

    /// Settled deliveries of a link, oldest first.
    pub(super) async fn read_settled(&self, query: SettledQuery) -> Result<SettledPage, StoreError> {
        let mut page = SettledPage::default();
        let oldest = query.after.map_or(query.from, |after| after.hit.at.max(query.from)).day();
        let newest = Timestamp(query.until.0.saturating_sub(1)).day();
        let mut left = query.limit;
        for day in self.days_of(query.link, oldest).await?.into_iter().rev().filter(|day| *day <= newest) {
            let ids = self.settled_of_day(&query, day, left).await?;
            for (id, status) in &ids {
                page.next = Some(*id);
                if query.status.map_or(*status != DeliveryStatus::Pending, |wanted| wanted == *status) {
                    page.found.push(*id);
                }
            }
            left -= ids.len().min(left);
            if left == 0 {
                return Ok(page);
            }
        }
        page.next = None;
        Ok(page)
    }

    /// The first `limit` deliveries of a link's day, oldest first; only those that have failed if the query is for these.
    async fn settled_of_day(
        &self,
        query: &SettledQuery,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(DeliveryId, DeliveryStatus)>, StoreError> {
        let (first, last) = row_keys::deliveries_between(query.link, query.from, query.until);
        let last = [last, vec![0]].concat();
        let end = query.after.map_or(last.clone(), |after| after.to_bytes().to_vec().min(last));
        let rows = i32::try_from(limit).unwrap_or(i32::MAX);
        let values = (query.link.as_str(), day_column(day), first, end, rows);
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let parse = |id: &[u8]| DeliveryId::from_bytes(id).ok_or_else(|| corrupt(records::TABLE, &"not a delivery"));
        if query.status == Some(DeliveryStatus::Failed) {
            let rows: Vec<(Vec<u8>,)> = cql.read(&statements.failed_back, values).await?;
            let ids = rows.iter().map(|(id,)| parse(id)).collect::<Result<Vec<_>, _>>()?;
            let states = self.read_states(ids.clone()).await?;
            // A row without a state counts as pending: it is left alone.
            let found = states.into_iter().map(|state| state.map_or(DeliveryStatus::Pending, |state| state.status));
            return Ok(ids.into_iter().zip(found).collect());
        }
        let rows: Vec<(Vec<u8>, Option<String>)> = cql.read(&statements.deliveries_back, values).await?;
        let status = rows.iter().map(|(id, state)| {
            let state = state.as_deref().map(|state| records::from_columns(state, None)).transpose()?;
            Ok((parse(id)?, state.map_or(DeliveryStatus::Pending, |state| state.status)))
        });
        status.collect()
    }
}

//! Replays: settled deliveries are found, oldest first, and queued again in another round.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::cluster::ASK_AGAIN_AFTER;
use super::deliveries::{Change, Deliveries, Writing, lost_queue};
use super::delivery_lists::FailedColumns;
use super::queue::QueuedDelivery;
use super::replay_turns::{TakeTurnError, Turn};
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::day as day_column;
use crate::store::records::{corrupt, deliveries as records, row_keys};
use crate::store::{Replay, SettledPage, SettledQuery, StoreError};

/// Replays of different links that one process makes at once.
pub const REPLAYS_AT_ONCE: usize = 16;

impl Deliveries {
    /// Queues settled deliveries again; returns how many.
    pub(super) async fn replay(self: &Arc<Self>, replay: Replay) -> Result<u64, StoreError> {
        let place = usize::from(replay.link.0[ShortId::LENGTH - 1]) % REPLAYS_AT_ONCE;
        let alone = Arc::clone(&self.replaying[place]).lock_owned().await;
        let turn = self.next_turn(replay.link).await?;
        let mut unsettled = Vec::new();
        let queued = match self.take_turn(&turn).await {
            Ok(()) => self.replay_in_turn(&replay, turn, &mut unsettled).await,
            Err(TakeTurnError::Overtaken(error)) => return Err(error),
            Err(TakeTurnError::Unknown(error)) => Err(error),
        };
        if queued.is_err() || self.end_turn(&turn).await.is_err() {
            tokio::spawn(Arc::clone(self).finish_turn(turn, unsettled, alone));
        }
        queued
    }

    /// Leaves in `unsettled` what may be written, now or later.
    async fn replay_in_turn(
        &self,
        replay: &Replay,
        turn: Turn,
        unsettled: &mut Vec<Change>,
    ) -> Result<u64, StoreError> {
        let _others_may_too = self.changing.read().await;
        let queue = turn.queue;
        let rows = self.read_rows(replay.ids.clone()).await?;
        let settled = replay.due_times().zip(rows).filter_map(|((id, due_at), row)| {
            let before = row?.state;
            (before.status != DeliveryStatus::Pending).then_some((id, due_at, before))
        });
        let changes = settled.map(|(id, due_at, before)| {
            let mut state = before.clone();
            state.replay((before.round + 1).max(turn.lowest_round()), due_at, replay.at);
            Change { id, before: Some(before), attempt: 0, queue: Some(queue), state, tried: false }
        });
        let changes: Vec<Change> = changes.collect();
        let queued = |change: &Change| {
            let due_at = change.state.next_attempt_at?;
            Some(QueuedDelivery { due_at, id: change.id, round: change.state.round })
        };
        let due: Vec<QueuedDelivery> = changes.iter().filter_map(queued).collect();
        let _expected = self.write_due(queue, &due).await?;
        let written = self.write_states(changes.iter().cloned(), Writing::First).await;
        let is_held = self.leases.queues.is_held(queue);
        if written.is_err() || !is_held {
            self.mark_doubtful(queue, due.iter().map(|due| due.due_at));
        }
        if written.is_err() {
            unsettled.extend(changes);
            return written;
        }
        self.note_replayed(&changes).await;
        // If this process was suspended for some hours, the queue's new holder may have given them up.
        if is_held { written } else { Err(lost_queue()) }
    }

    /// Brings a turn to its end, with what it has left unsettled. Until then nobody else replays deliveries of the
    /// link: both would be counted. Once this process has lost its queue, others do not wait for it any more.
    async fn finish_turn(self: Arc<Self>, turn: Turn, mut unsettled: Vec<Change>, _alone: OwnedMutexGuard<()>) {
        while self.cluster.check_open().is_ok() && self.leases.queues.is_held(turn.queue) {
            match self.settle_turn(&turn, &mut unsettled).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "a replay is not finished yet"),
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    async fn settle_turn(&self, turn: &Turn, unsettled: &mut Vec<Change>) -> Result<(), StoreError> {
        if !unsettled.is_empty() {
            let _others_may_too = self.changing.read().await;
            // Writes what is not written. A late request of before changes nothing then: the sums are newer than its
            // own.
            self.write_states(unsettled.iter().cloned(), Writing::Again).await?;
            self.mark_doubtful(turn.queue, unsettled.iter().filter_map(|change| change.state.next_attempt_at));
            self.note_replayed(unsettled).await;
            unsettled.clear();
        }
        Ok(self.end_turn(turn).await?)
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

    /// The first `limit` deliveries of a link's day, oldest first; only those that have failed if the query is for
    /// these.
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
            let rows: Vec<FailedColumns> = cql.read(&statements.failed_back, values).await?;
            let is_failed = |(_, replayed): &&FailedColumns| *replayed != Some(true);
            let failed = rows.iter().filter(is_failed).map(|(id, _)| parse(id)).collect::<Result<Vec<_>, _>>()?;
            let mut states = self.read_states(failed).await?.into_iter();
            // A row without a state, or one that is replayed, counts as pending: it is left alone.
            let found = rows.iter().map(|row| {
                let state = if is_failed(&row) { states.next().flatten() } else { None };
                Ok((parse(&row.0)?, state.map_or(DeliveryStatus::Pending, |state| state.status)))
            });
            return found.collect();
        }
        let rows: Vec<(Vec<u8>, Option<String>)> = cql.read(&statements.deliveries_back, values).await?;
        let status = rows.iter().map(|(id, state)| {
            let state = state.as_deref().map(|state| records::from_columns(state, None)).transpose()?;
            Ok((parse(id)?, state.map_or(DeliveryStatus::Pending, |state| state.status)))
        });
        status.collect()
    }
}

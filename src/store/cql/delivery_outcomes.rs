//! Outcomes of attempts, and the states of deliveries that follow from them.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::deliveries::{Change, Deliveries, DeliveryRow, Writing, lost_queue, place_of};
use super::queue::QueuedDelivery;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::store::records::columns::day as day_column;
use crate::store::{Settlement, StoreError};

/// Outcomes to write, each with its delivery's row.
type WithRows = Vec<(Settlement, DeliveryRow)>;

impl Deliveries {
    /// Writes outcomes of attempts, one after another for the same delivery.
    pub(super) async fn settle(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        let mut rounds: Vec<Vec<Settlement>> = Vec::new();
        let mut of_delivery: HashMap<DeliveryId, usize> = HashMap::new();
        for settlement in settlements {
            let round = of_delivery.entry(settlement.id).and_modify(|round| *round += 1).or_default();
            if rounds.len() == *round {
                rounds.push(Vec::new());
            }
            rounds[*round].push(settlement);
        }
        for round in rounds {
            self.settle_each_once(round).await?;
        }
        Ok(())
    }

    async fn settle_each_once(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        // Before the rows are read: who takes one of these queues over meanwhile settles what is in it.
        let held: HashSet<Uuid> = self.leases.queues.held_queues().into_iter().collect();
        let rows = self.read_rows(settlements.iter().map(|settlement| settlement.id).collect()).await?;
        let there = settlements.into_iter().zip(rows).filter_map(|(settlement, row)| Some((settlement, row?)));
        let (pending, settled): (WithRows, WithRows) =
            there.partition(|(settlement, row)| row.is_pending_in(settlement.round));
        let (mut open, known): (WithRows, WithRows) = pending.into_iter().partition(|(settlement, row)| {
            let state = &row.state;
            if settlement.attempt == 0 { !state.counted } else { settlement.attempt == state.attempts + 1 }
        });
        self.count_again(&settled, &held);
        // First: what is settled is not counted again. Changes are not blocked meanwhile.
        let uncounted = self.failure_runs.note(open.iter().filter_map(|(settlement, _)| settlement.end())).await;
        open.retain(|(settlement, _)| settlement.end().is_none_or(|end| !uncounted.has(&end)));
        let written = self.settle_counted(&open, &known, &held).await;
        written.and(uncounted.into_result())
    }

    /// Writes outcomes that are counted as far as they are ends. `known`: those of attempts that are written already. `held`: the
    /// queues that this process held before the rows were read.
    async fn settle_counted(&self, open: &WithRows, known: &WithRows, held: &HashSet<Uuid>) -> Result<(), StoreError> {
        let _others_may_too = self.changing.read().await;
        let retries = self.retries(open, known);
        let queues = &self.leases.queues;
        // Deliveries without a retry need no queue.
        let queue = if retries.is_empty() { Uuid::nil() } else { queues.own()? };
        let settled = open.iter().filter_map(|(_, before)| Some((before.queue?, before.state.next_attempt_at?)));
        let _settling = queues.settling(settled);
        let is_lost =
            |row: &DeliveryRow| row.queue.is_some_and(|queue| held.contains(&queue) && !queues.is_held(queue));
        let _expected = self.write_due(queue, &retries).await?;
        let changes: Vec<Change> =
            open.iter().map(|(settlement, before)| Change::of(settlement, before, queue)).collect();
        let mut written = match self.put_failed(&changes).await {
            // This process was suspended here: who took the queue over may have settled them, and counted that.
            Ok(()) if open.iter().any(|(_, row)| is_lost(row)) => Err(lost_queue()),
            Ok(()) => self.write_states(changes.into_iter(), Writing::First).await.map(drop),
            Err(error) => Err(error),
        };
        if written.is_ok() && !retries.is_empty() && !queues.is_held(queue) {
            written = Err(lost_queue());
        }
        if written.is_err() {
            // It is unknown which of them were written, and what is due.
            self.mark_doubtful(queue, retries.iter().map(|retry| retry.due_at));
        }
        for (settlement, before) in open {
            if let (Some(queue), Some(due_at)) = (before.queue, before.state.next_attempt_at) {
                match &written {
                    Ok(()) => queues.settled(queue, due_at, settlement.id),
                    Err(_) => self.mark_doubtful(queue, [due_at]),
                }
            }
        }
        let elsewhere = open.iter().filter(|(_, row)| row.queue.is_none_or(|queue| !held.contains(&queue)));
        self.settled_elsewhere(elsewhere.map(|(settlement, _)| settlement));
        written
    }

    /// Has buckets counted again that may count these deliveries as pending. They are settled: by another process, or by a
    /// write of this one whose answer was lost, which has marked its bucket itself.
    fn count_again(&self, settled: &WithRows, held: &HashSet<Uuid>) {
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            settled.iter().partition(|(_, row)| row.queue.is_some_and(|queue| held.contains(&queue)));
        for (settlement, row) in here {
            if let Some(queue) = row.queue {
                // That of its first try; a scan finds out about others.
                self.leases.queues.mark_if_pending(queue, row.state.created_at, settlement.id.hit.at.day());
            }
        }
        self.settled_elsewhere(elsewhere.into_iter().map(|(settlement, _)| settlement));
    }

    /// Has the buckets counted again that may count these deliveries as pending: their rows do not say in which queue that is.
    fn settled_elsewhere<'a>(&self, settled: impl Iterator<Item = &'a Settlement>) {
        let mut days: HashMap<Day, Timestamp> = HashMap::new();
        for settlement in settled {
            let upto = days.entry(settlement.id.hit.at.day()).or_insert(settlement.at);
            *upto = settlement.at.max(*upto);
        }
        for (day, upto) in days {
            self.leases.queues.settled_elsewhere(day, upto);
            self.leases.doubtful_marked.notify_one();
        }
    }

    /// The retries to queue.
    fn retries(&self, open: &WithRows, known: &WithRows) -> Vec<QueuedDelivery> {
        let retry = |settlement: &Settlement| {
            let Settlement { id, round, .. } = *settlement;
            Some(QueuedDelivery { due_at: settlement.retry_at()?, id, round })
        };
        let mut retries: Vec<_> = open.iter().filter_map(|(settlement, _)| retry(settlement)).collect();
        for (settlement, row) in known {
            let Some(queued) = retry(settlement) else { continue };
            // Written already, by a write whose answer was lost: then no counted queue may have its retry.
            if settlement.attempt == row.state.attempts && row.state.next_attempt_at == Some(queued.due_at) {
                match row.queue.filter(|queue| self.leases.queues.has(*queue)) {
                    Some(queue) => self.mark_doubtful(queue, [queued.due_at]),
                    None => retries.push(queued),
                }
            }
        }
        retries
    }

    /// Adds deliveries that are about to fail to the index of failed ones.
    async fn put_failed(&self, changes: &[Change]) -> Result<(), StoreError> {
        let failed = changes.iter().filter(|change| change.state.status == DeliveryStatus::Failed);
        let failed: Vec<_> = failed.map(|change| (change.id, change.written_at())).collect();
        self.cluster
            .all(failed, |(id, at)| async move {
                let (link, day, delivery) = place_of(id);
                let values = (link.as_str(), day_column(day), delivery, at);
                Ok(self.cluster.cql.write(&self.cluster.statements.put_failed, values).await?)
            })
            .await
    }

    /// Marks failed deliveries as replayed in the index, so that lists pass over them. If that fails, only lists take
    /// longer.
    pub(super) async fn note_replayed(&self, changes: &[Change]) {
        let failed = changes.iter().filter(|change| change.replayed() == Some(DeliveryStatus::Failed));
        let failed: Vec<_> = failed.map(|change| (change.id, change.written_at())).collect();
        let noted = self.cluster.all(failed, |(id, at)| async move {
            let (link, day, delivery) = place_of(id);
            let values = (at, link.as_str(), day_column(day), delivery);
            Ok(self.cluster.cql.write(&self.cluster.statements.note_replayed, values).await?)
        });
        if let Err(error) = noted.await {
            tracing::debug!(%error, "some replayed deliveries are not marked in the index of failed ones");
        }
    }
}

//! Deliveries of webhooks: their states, and the sums that count them.
//!
//! A delivery exists once its state does. Reads of the queue skip due times that differ from the state.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use futures_util::future::try_join_all;
use moka::sync::Cache;
use scylla::value::CqlValue;
use tokio::sync::RwLock;
use uuid::Uuid;

use super::cluster::{AT_ONCE, Cluster};
use super::delivery_replays::REPLAYS_AT_ONCE;
use super::delivery_sums::{DayOfProcess, DeliverySums};
use super::delivery_timestamps::written_at;
use super::failure_runs::FailureRuns;
use super::lease::Leases;
use super::names::CqlNames;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus};
use crate::store::records::columns::day as day_column;
use crate::store::records::deliveries::{self as records, DeliveryRound, ProcessSumsV1};
use crate::store::{Settlement, StoreError};

/// Days of links in the cache of noted days; a row takes some 50 bytes.
const DAYS_KEPT: u64 = 100_000;
/// Rows in one write to a partition.
const ROWS_AT_ONCE: usize = 50;

/// Changes of a day that are remembered after they were written again: those of some writes.
const REWRITTEN_KEPT: usize = 4 * ROWS_AT_ONCE;

/// Whether changes are written for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    First,
    /// Some of them may be written.
    Again,
}

/// A delivery's row.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    pub state: DeliveryState,
    /// The queue with its due time.
    pub queue: Option<Uuid>,
}

impl DeliveryRow {
    pub fn is_pending(&self) -> bool {
        self.state.status == DeliveryStatus::Pending
    }

    pub fn is_pending_in(&self, round: u32) -> bool {
        self.is_pending() && self.state.round == round
    }
}

/// A change of a delivery.
#[derive(Clone)]
pub struct Change {
    pub id: DeliveryId,
    /// The state before; `None` for a new delivery.
    pub before: Option<DeliveryState>,
    /// The number of the attempt in its round.
    pub attempt: u32,
    pub queue: Option<Uuid>,
    pub state: DeliveryState,
    pub tried: bool,
}

impl Change {
    /// A delivery that is added to a queue.
    pub fn new(id: DeliveryId, state: DeliveryState, queue: Uuid) -> Self {
        Self { id, before: None, attempt: 0, queue: Some(queue), state, tried: false }
    }

    pub fn of(settlement: &Settlement, before: &DeliveryRow, retry_queue: Uuid) -> Self {
        let mut state = before.state.clone();
        state.settle(&settlement.outcome, settlement.at);
        let queue = if state.next_attempt_at.is_some() { Some(retry_queue) } else { before.queue };
        let tried = state.attempts > before.state.attempts;
        let attempt = settlement.attempt.saturating_sub(before.state.earlier_attempts).max(1);
        let before = Some(before.state.clone());
        Self { id: settlement.id, before, attempt, queue, state, tried }
    }

    /// The status of a settled delivery that is queued again.
    pub fn replayed(&self) -> Option<DeliveryStatus> {
        self.before.as_ref().filter(|before| before.round != self.state.round).map(|before| before.status)
    }

    fn row(&self) -> Result<Vec<Option<CqlValue>>, StoreError> {
        let (link, day, delivery) = place_of(self.id);
        Ok(vec![
            Some(CqlValue::Ascii(link.as_str().to_owned())),
            Some(CqlValue::Int(day_column(day))),
            Some(CqlValue::Blob(delivery)),
            Some(CqlValue::Text(records::to_json(&self.state)?)),
            self.queue.map(CqlValue::Uuid),
            Some(CqlValue::BigInt(self.written_at())),
        ])
    }

    /// Whether it leads to the same state, but for the mark of the quota, which has a column of its own.
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.queue == other.queue
            && self.state == DeliveryState { counted: self.state.counted, ..other.state.clone() }
    }

    /// The timestamp of the state.
    pub fn written_at(&self) -> i64 {
        written_at(self.id, self.state.round, self.attempt, self.state.status)
    }
}

/// The key of a delivery's row: the link, the day, and its bytes.
pub fn place_of(id: DeliveryId) -> (ShortId, Day, Vec<u8>) {
    (id.link, id.hit.at.day(), id.to_bytes().to_vec())
}

/// Deliveries of webhooks, in the queues that this process holds.
pub struct Deliveries {
    pub(super) cluster: Arc<Cluster>,
    pub(super) names: Arc<CqlNames>,
    pub(super) leases: Arc<Leases>,
    pub(super) sums: DeliverySums,
    pub(super) failure_runs: Arc<FailureRuns>,
    /// Held for reading by changes of pending deliveries, and for writing by a count of them.
    pub(super) changing: RwLock<()>,
    /// Held by replays of some links each, so that a link's follow each other.
    pub(super) replaying: [Arc<tokio::sync::Mutex<()>>; REPLAYS_AT_ONCE],
    /// Days of links that are noted as having deliveries.
    pub(super) noted_days: Cache<(ShortId, Day), ()>,
    /// The first day whose deliveries are shown.
    pub(super) kept_from: AtomicU32,
}

impl Deliveries {
    pub fn new(
        cluster: &Arc<Cluster>,
        names: &Arc<CqlNames>,
        leases: &Arc<Leases>,
        failure_runs: &Arc<FailureRuns>,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            names: Arc::clone(names),
            leases: Arc::clone(leases),
            sums: DeliverySums::new(cluster),
            failure_runs: Arc::clone(failure_runs),
            changing: RwLock::default(),
            replaying: Default::default(),
            noted_days: Cache::new(DAYS_KEPT),
            kept_from: AtomicU32::new(0),
        }
    }

    /// Writes states and the sums that count them, together for each link's day. Returns how many were written.
    pub(super) async fn write_states(
        &self,
        changes: impl Iterator<Item = Change>,
        writing: Writing,
    ) -> Result<u64, StoreError> {
        let mut partitions: HashMap<(ShortId, Day), Vec<Change>> = HashMap::new();
        for change in changes {
            partitions.entry((change.id.link, change.id.hit.at.day())).or_default().push(change);
        }
        let count = &AtomicU64::new(0);
        let write = |((link, day), changes)| async move {
            count.fetch_add(self.write_day(link, day, changes, writing).await?, Ordering::Relaxed);
            Ok(())
        };
        self.cluster.all(partitions, write).await?;
        Ok(count.load(Ordering::Relaxed))
    }

    async fn write_day(
        &self,
        link: ShortId,
        day: Day,
        mut changes: Vec<Change>,
        writing: Writing,
    ) -> Result<u64, StoreError> {
        let of_day = self.sums.of(link, day);
        let mut of_day = of_day.lock().await;
        let has_rewritten = self.write_unsettled(link, day, &mut of_day).await?;
        changes.retain(|change| !of_day.rewritten.iter().any(|known| known.is_same(change)));
        // A change that was written only now may have been followed by another one of the same delivery.
        if writing == Writing::Again || has_rewritten {
            changes = self.unwritten(&changes).await?;
        }
        if changes.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        for mut changes in in_chunks(changes) {
            let mut sums = if let Some(sums) = of_day.sums.take() {
                sums
            } else {
                let (sums, unwritten) = self.read_again(link, day, &changes).await?;
                changes = unwritten;
                sums
            };
            for change in &changes {
                sums.count(change);
            }
            count += changes.len() as u64;
            // Before the write: its answer may be lost, or this future dropped.
            (of_day.sums, of_day.unsettled) = (Some(sums.clone()), changes);
            self.write_rows(link, day, &of_day.unsettled, &sums).await?;
            of_day.unsettled.clear();
        }
        Ok(count)
    }

    /// Writes again what may not be written. Returns whether there was any.
    async fn write_unsettled(&self, link: ShortId, day: Day, of_day: &mut DayOfProcess) -> Result<bool, StoreError> {
        let is_held = |change: &Change| change.queue.is_none_or(|queue| self.leases.queues.is_held(queue));
        let sums = match &of_day.sums {
            Some(sums) if of_day.unsettled.iter().all(is_held) => sums,
            _ => {
                *of_day = DayOfProcess::default();
                return Ok(false);
            }
        };
        for changes in of_day.unsettled.chunks(ROWS_AT_ONCE) {
            self.write_rows(link, day, changes, sums).await?;
        }
        let DayOfProcess { unsettled, rewritten, .. } = of_day;
        let has_rewritten = !unsettled.is_empty();
        rewritten.append(unsettled);
        rewritten.drain(..rewritten.len().saturating_sub(REWRITTEN_KEPT));
        Ok(has_rewritten)
    }

    /// Writes states, and the sums that count them.
    async fn write_rows(
        &self,
        link: ShortId,
        day: Day,
        changes: &[Change],
        sums: &ProcessSumsV1,
    ) -> Result<(), StoreError> {
        let statements = &self.cluster.statements;
        let mut writes = Vec::with_capacity(changes.len() + 1);
        for change in changes {
            let is_replay = change.replayed().is_some();
            writes.push((if is_replay { &statements.put_replayed } else { &statements.put_delivery }, change.row()?));
        }
        writes.push((&statements.put_sums, self.sums.row(link, day, sums)?));
        Ok(self.cluster.cql.write_together(writes).await?)
    }

    /// This process's sums of a day, if they are not in memory, and those of the changes that are in no state.
    async fn read_again(
        &self,
        link: ShortId,
        day: Day,
        changes: &[Change],
    ) -> Result<(ProcessSumsV1, Vec<Change>), StoreError> {
        let mut sums = self.sums.read_own(link, day).await?;
        loop {
            let unwritten = self.unwritten(changes).await?;
            // What is written between these reads is in the states, and not in the sums.
            let now = self.sums.read_own(link, day).await?;
            if now == sums {
                return Ok((sums, unwritten));
            }
            sums = now;
        }
    }

    /// Those of the changes that are not written yet.
    async fn unwritten(&self, changes: &[Change]) -> Result<Vec<Change>, StoreError> {
        let rows = self.read_rows(changes.iter().map(|change| change.id).collect()).await?;
        // A delivery may have been counted in a quota meanwhile, which changes nothing that is written here.
        let is_as_before = |change: &Change, row: Option<DeliveryRow>| match (&change.before, row) {
            (None, None) => true,
            (Some(before), Some(row)) => DeliveryState { counted: before.counted, ..row.state } == *before,
            _ => false,
        };
        let changes = changes.iter().zip(rows);
        Ok(changes.filter_map(|(change, row)| is_as_before(change, row).then(|| change.clone())).collect())
    }

    pub(super) fn mark_doubtful(&self, queue: Uuid, due: impl IntoIterator<Item = Timestamp>) {
        self.leases.queues.mark_doubtful(queue, due);
        self.leases.doubtful_marked.notify_one();
    }

    pub(super) async fn read_rows(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryRow>>, StoreError> {
        let mut rows = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            rows.extend(try_join_all(ids.iter().map(|id| self.read_row(*id))).await?);
        }
        Ok(rows)
    }

    /// Treats an unreadable row as missing: one such row must not block all other deliveries.
    async fn read_row(&self, id: DeliveryId) -> Result<Option<DeliveryRow>, StoreError> {
        let day = id.hit.at.day();
        if day < self.first_kept_day() {
            return Ok(None);
        }
        let values = (id.link.as_str(), day_column(day), id.to_bytes().to_vec());
        let row: Option<(Option<String>, Option<bool>, Option<Uuid>)> =
            self.cluster.cql.read_one(&self.cluster.statements.delivery, values).await?;
        let Some((Some(state), counted, queue)) = row else { return Ok(None) };
        match records::from_columns(&state, counted) {
            Ok(state) => Ok(Some(DeliveryRow { state, queue })),
            Err(error) => {
                tracing::error!(%error, delivery = %id, "skipped an unreadable webhook delivery");
                Ok(None)
            }
        }
    }

    pub(super) async fn read_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        Ok(self.read_rows(ids).await?.into_iter().map(|row| row.map(|row| row.state)).collect())
    }

    /// Marks deliveries as counted in their owners' months, in these rounds.
    pub(super) async fn mark_counted(&self, counted: &[DeliveryRound]) -> Result<(), StoreError> {
        self.cluster
            .all(counted, |(id, round)| async move {
                let at = written_at(*id, *round, 1, DeliveryStatus::Pending);
                let values = (at, id.link.as_str(), day_column(id.hit.at.day()), id.to_bytes().to_vec());
                Ok(self.cluster.cql.write(&self.cluster.statements.mark_counted, values).await?)
            })
            .await
    }
}

pub fn in_chunks<T>(mut rows: Vec<T>) -> Vec<Vec<T>> {
    let mut chunks = Vec::with_capacity(rows.len() / ROWS_AT_ONCE + 1);
    while rows.len() > ROWS_AT_ONCE {
        let rest = rows.split_off(ROWS_AT_ONCE);
        chunks.push(std::mem::replace(&mut rows, rest));
    }
    chunks.push(rows);
    chunks
}

pub fn lost_queue() -> StoreError {
    StoreError::Unavailable("another node may have this node's queue".into())
}

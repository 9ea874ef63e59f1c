//! Failed deliveries in a row of each URL, and which URLs are suspended for them.
//!
//! A row changes in the transaction that settles the delivery. It goes when its link is changed or deleted, and with the
//! last of its deliveries unless the URL is suspended.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use fjall::{Keyspace, Readable, Snapshot};

use super::EmbeddedStore;
use super::database::engine_error;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Day;
use crate::domain::failure_run::FailureRun;
use crate::domain::link::ShortId;
use crate::store::records::{corrupt, failure_runs as records, row_keys};
use crate::store::{Settlement, StoreError, Suspension, SuspensionRule, SuspensionStore};

/// Runs that one transaction removes.
const FORGOTTEN_AT_ONCE: usize = 2_000;

/// Runs of failures, in `link_times`.
#[derive(Clone)]
pub struct FailureRunTable {
    links: Keyspace,
    times: Keyspace,
    rule: Arc<OnceLock<SuspensionRule>>,
}

/// Removes the runs of all URLs of a link.
pub fn forget_runs(transaction: &mut Transaction<'_>, times: &Keyspace, link: ShortId) -> Result<(), StoreError> {
    for (row_key, _) in transaction.range(times, row_keys::failure_runs(link), usize::MAX)? {
        transaction.remove(times, row_key);
    }
    Ok(())
}

impl FailureRunTable {
    pub fn new(engine: &Engine) -> Self {
        let keyspaces = &engine.keyspaces;
        Self { links: keyspaces.links.clone(), times: keyspaces.link_times.clone(), rule: Arc::default() }
    }

    /// Counts the outcome of a delivery; returns the suspension that begins with it.
    pub fn note(
        &self,
        transaction: &mut Transaction<'_>,
        settlement: &Settlement,
    ) -> Result<Option<Suspension>, StoreError> {
        let (Some(rule), Some(end)) = (self.rule.get(), settlement.end()) else { return Ok(None) };
        let (link, place) = (end.id.link, end.id.url_index);
        let row_key = row_keys::failure_run(link, place);
        let row = transaction.row(&self.times, &row_key)?;
        let before = row.as_deref().and_then(read_if_sound);
        let after = FailureRun::after(before, &end, rule.failures);
        if after == before {
            return Ok(None);
        }
        let Some(run) = after else {
            transaction.remove(&self.times, row_key);
            return Ok(None);
        };
        // Nobody can end the suspension of a deleted link.
        if before.is_none() && transaction.row(&self.links, link.0)?.is_none() {
            return Ok(None);
        }
        transaction.insert(&self.times, row_key, records::encode(run)?)?;
        Ok(Suspension::of(link, place, &run))
    }

    /// Tells of suspensions that have begun.
    pub fn report(&self, begun: Vec<Suspension>) {
        if let Some(rule) = self.rule.get() {
            for suspension in begun {
                (rule.hook)(suspension);
            }
        }
    }

    /// Removes the runs of a link whose last delivery is of this day or before; suspensions stay.
    pub fn forget_until(&self, transaction: &mut Transaction<'_>, link: ShortId, day: Day) -> Result<(), StoreError> {
        for (row_key, row) in transaction.range(&self.times, row_keys::failure_runs(link), usize::MAX)? {
            if read_if_sound(&row).is_none_or(|run| run.suspended_at.is_none() && run.last_day <= day) {
                transaction.remove(&self.times, row_key);
            }
        }
        Ok(())
    }

    /// Removes the runs of all links, some at a time; `false` when none is left.
    fn forget_all(&self, transaction: &mut Transaction<'_>) -> Result<bool, StoreError> {
        let rows = transaction.range(&self.times, row_keys::all_failure_runs(), FORGOTTEN_AT_ONCE)?;
        let found_some = !rows.is_empty();
        for (row_key, _) in rows {
            transaction.remove(&self.times, row_key);
        }
        Ok(found_some)
    }

    fn suspensions(&self, from: &Snapshot, links: &[ShortId]) -> Result<Vec<Suspension>, StoreError> {
        let mut found = Vec::new();
        for link in links {
            for row in from.range(&self.times, row_keys::failure_runs(*link)) {
                let (row_key, row) = row.into_inner().map_err(|e| engine_error(&e))?;
                let place = row_key.last().ok_or_else(|| corrupt(records::TABLE, &"no place"))?;
                found.extend(read_if_sound(&row).and_then(|run| Suspension::of(*link, *place, &run)));
            }
        }
        Ok(found)
    }
}

/// Treats an unreadable row as missing: it must not block the outcomes of deliveries.
fn read_if_sound(row: &[u8]) -> Option<FailureRun> {
    records::decode(row)
        .inspect_err(|error| tracing::error!(%error, "skipped an unreadable count of failed deliveries"))
        .ok()
}

#[async_trait]
impl SuspensionStore for EmbeddedStore {
    fn suspend_failing(&self, rule: SuspensionRule) {
        // After the store is closed nothing is counted.
        let _ = self.with_open(|open| drop(open.tables.deliveries.runs.rule.set(rule)));
    }

    async fn suspensions(&self, links: Vec<ShortId>) -> Result<Vec<Suspension>, StoreError> {
        self.read(move |tables, snapshot| tables.deliveries.runs.suspensions(snapshot, &links)).await
    }

    async fn end_suspension(&self, link: ShortId, place: u8) -> Result<(), StoreError> {
        self.put(move |tables, transaction| {
            transaction.remove(&tables.deliveries.runs.times, row_keys::failure_run(link, place));
            Ok(())
        })
        .await
    }

    async fn forget_failures(&self) -> Result<(), StoreError> {
        while self.put(|tables, transaction| tables.deliveries.runs.forget_all(transaction)).await? {}
        Ok(())
    }
}

//! The numbers of deliveries of a link's day, by URL and status.
//!
//! Each process counts the deliveries that it has queued and settled, as absolute numbers since its start. It writes
//! its numbers and the states that they count in one atomic write. The day's numbers are the sums over all processes.
//!
//! These rows do not use `own_rows.rs`, because they have no journal position that says which changes they include.
//! So a day is locked for each change, and a write with an unknown outcome is repeated before the next one: states and
//! sums are the same then, and the sums are newer. They are only read if they are not in memory, or if this process
//! has lost the queue of such a write: then the next holder of the queue may have done otherwise.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use scylla::value::CqlValue;
use uuid::Uuid;

use super::cluster::Cluster;
use super::deliveries::Change;
use super::delivery_timestamps::day_timestamp;
use super::in_use::InUse;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryState, DeliveryStatus, UrlSummary};
use crate::store::StoreError;
use crate::store::records::Time;
use crate::store::records::columns::{bigint, day as day_column};
use crate::store::records::deliveries::{self as records, ProcessSumsV1, UrlSumsV1};

/// If more idle days than this are in memory, they are dropped. They are read again when they are used.
const MAX_IDLE: usize = 20_000;

/// By the index of the URL.
pub type DaySums = BTreeMap<u8, DaySum>;

impl ProcessSumsV1 {
    fn count_queued(&mut self, url_index: u8) {
        self.urls.entry(url_index).or_default().put += 1;
    }

    /// Counts a change of a delivery.
    pub fn count(&mut self, change: &Change) {
        let url_index = change.id.url_index;
        if change.before.is_none() {
            self.count_queued(url_index);
        } else if let Some(before) = change.replayed() {
            self.count_replayed(url_index, before);
        } else {
            self.count_settled(url_index, &change.state, change.tried);
        }
    }

    /// Counts a settled delivery as pending again.
    fn count_replayed(&mut self, url_index: u8, before: DeliveryStatus) {
        let sums = self.urls.entry(url_index).or_default();
        match before {
            DeliveryStatus::Pending => {}
            DeliveryStatus::Delivered => sums.replayed_delivered += 1,
            DeliveryStatus::Failed => sums.replayed_failed += 1,
        }
    }

    /// Counts a delivery with its final state. `tried` is false if it was refused before an attempt.
    fn count_settled(&mut self, url_index: u8, state: &DeliveryState, tried: bool) {
        let sums = self.urls.entry(url_index).or_default();
        match state.status {
            DeliveryStatus::Pending => {}
            DeliveryStatus::Delivered => sums.delivered += 1,
            DeliveryStatus::Failed => sums.failed += 1,
        }
        if tried {
            sums.last_attempt_at = Some(Time(state.updated_at));
            sums.last_status = state.response_status;
        }
        sums.last_error.clone_from(&state.error);
        sums.changed_at = Some(Time(state.updated_at));
    }
}

/// The sums of one URL and day over all processes.
#[derive(Clone, Debug, Default)]
pub struct DaySum {
    put: u64,
    /// How often deliveries were delivered, and failed; and how often they were queued again after that.
    delivered: u64,
    failed: u64,
    replayed_delivered: u64,
    replayed_failed: u64,
    changed_at: Option<Timestamp>,
    pub summary: UrlSummary,
}

impl DaySum {
    fn add(&mut self, own: UrlSumsV1) {
        let UrlSumsV1 {
            put,
            delivered,
            failed,
            last_attempt_at,
            last_status,
            last_error,
            changed_at,
            replayed_delivered,
            replayed_failed,
        } = own;
        let (last_attempt_at, changed_at) = (last_attempt_at.map(|time| time.0), changed_at.map(|time| time.0));
        self.put += put;
        self.delivered += delivered;
        self.failed += failed;
        self.replayed_delivered += replayed_delivered;
        self.replayed_failed += replayed_failed;
        // Saturating, because the row of the process that settled a delivery may be added before the row of the process
        // that queued it.
        self.summary.delivered = self.delivered.saturating_sub(self.replayed_delivered);
        self.summary.failed = self.failed.saturating_sub(self.replayed_failed);
        let queued = self.put + self.replayed_delivered + self.replayed_failed;
        self.summary.pending = queued.saturating_sub(self.delivered + self.failed);
        if last_attempt_at > self.summary.last_attempt_at {
            self.summary.last_attempt_at = last_attempt_at;
            self.summary.last_status = last_status;
        }
        if changed_at > self.changed_at {
            self.changed_at = changed_at;
            self.summary.last_error = last_error;
        }
    }
}

/// What this process has counted on a day.
#[derive(Default)]
pub struct DayOfProcess {
    /// `None` while they are unknown.
    pub sums: Option<ProcessSumsV1>,
    /// Changes that the sums count, and that may be written or not.
    pub unsettled: Vec<Change>,
    /// The last of those that were written again: the caller that got no answer may come with them once more.
    pub rewritten: Vec<Change>,
}

/// This process's sums of a day.
pub type KnownSums = tokio::sync::Mutex<DayOfProcess>;

/// Reads the sums of all processes, and keeps the sums of the days that this process changes.
pub struct DeliverySums {
    cluster: Arc<Cluster>,
    days: InUse<(ShortId, Day), KnownSums, MAX_IDLE>,
    /// How often sums were written: no two writes have the same timestamp, even if one was assumed lost.
    written: AtomicU64,
}

impl DeliverySums {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), days: InUse::default(), written: AtomicU64::new(0) }
    }

    /// This process's sums of a day. The lock is held during each change of the day, so changes do not overlap.
    pub fn of(&self, link: ShortId, day: Day) -> Arc<KnownSums> {
        // If no day was dropped yet, this process has not changed a day that is not in memory.
        let new = |may_have_sums: bool| {
            let sums = (!may_have_sums).then(ProcessSumsV1::default);
            tokio::sync::Mutex::new(DayOfProcess { sums, ..DayOfProcess::default() })
        };
        self.days.of((link, day), new)
    }

    async fn read_sums(&self, link: ShortId, day: Day) -> Result<HashMap<Uuid, String>, StoreError> {
        let values = (link.as_str(), day_column(day));
        let row: Option<(Option<HashMap<Uuid, String>>,)> =
            self.cluster.cql.read_one(&self.cluster.statements.delivery_sums, values).await?;
        Ok(row.and_then(|(sums,)| sums).unwrap_or_default())
    }

    /// Reads the sums that this process wrote last.
    pub async fn read_own(&self, link: ShortId, day: Day) -> Result<ProcessSumsV1, StoreError> {
        let own = self.read_sums(link, day).await?.remove(&self.cluster.process);
        own.map_or_else(|| Ok(ProcessSumsV1::default()), |own| records::sums_from_json(&own))
    }

    /// The values of the statement that writes this process's sums. It is sent with the states that they count.
    pub fn row(&self, link: ShortId, day: Day, sums: &ProcessSumsV1) -> Result<Vec<Option<CqlValue>>, StoreError> {
        // Based on the day, like the timestamps of the states, and higher than that of the previous write.
        let version = self.written.fetch_add(1, Ordering::Relaxed);
        let at = day_timestamp(day).saturating_add(bigint(version));
        let text = records::sums_to_json(sums)?;
        let values = [
            CqlValue::BigInt(at),
            CqlValue::Uuid(self.cluster.process),
            CqlValue::Text(text),
            CqlValue::Ascii(link.as_str().to_owned()),
            CqlValue::Int(day_column(day)),
        ];
        Ok(values.into_iter().map(Some).collect())
    }

    /// The sums of a link's day over all processes.
    pub async fn of_day(&self, link: ShortId, day: Day) -> Result<DaySums, StoreError> {
        let mut sums = DaySums::new();
        for own in self.read_sums(link, day).await?.into_values() {
            for (url, own) in records::sums_from_json(&own)?.urls {
                sums.entry(url).or_default().add(own);
            }
        }
        Ok(sums)
    }
}

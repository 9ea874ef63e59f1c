//! How many deliveries of a link's day are in which state, by URL.
//!
//! Each process keeps what it has put in and settled itself, as absolute numbers since its start, and writes them in one
//! write with the states that they count: both are there, or neither. All processes' numbers together are the day's.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use scylla::value::CqlValue;
use uuid::Uuid;

use super::deliveries::{Deliveries, day_timestamp};
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryState, DeliveryStatus, UrlSummary};
use crate::store::StoreError;
use crate::store::records::Time;
use crate::store::records::columns::{bigint, day as day_column};
use crate::store::records::deliveries::{self as records, ProcessSumsV1, UrlSumsV1};

/// Days that nobody uses are forgotten once more than this many are known, and read again when they are used.
const MOST_IDLE: usize = 20_000;

/// By the place of the URL.
pub type DaySums = BTreeMap<u8, DaySum>;

impl ProcessSumsV1 {
    pub fn put(&mut self, url_index: u8) {
        self.urls.entry(url_index).or_default().put += 1;
    }

    /// A delivery was settled, and `tried` if it was not refused before.
    pub fn settled(&mut self, url_index: u8, state: &DeliveryState, tried: bool) {
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

/// A URL's day over all processes.
#[derive(Clone, Debug, Default)]
pub struct DaySum {
    put: u64,
    changed_at: Option<Timestamp>,
    pub summary: UrlSummary,
}

impl DaySum {
    fn add(&mut self, own: UrlSumsV1) {
        let UrlSumsV1 { put, delivered, failed, last_attempt_at, last_status, last_error, changed_at } = own;
        let (last_attempt_at, changed_at) = (last_attempt_at.map(|time| time.0), changed_at.map(|time| time.0));
        self.put += put;
        self.summary.delivered += delivered;
        self.summary.failed += failed;
        // A process may be asked between one's putting and another's settling.
        self.summary.pending = self.put.saturating_sub(self.summary.delivered + self.summary.failed);
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

/// A day's own sums; none where what is written is not known.
pub type KnownSums = Arc<tokio::sync::Mutex<Option<ProcessSumsV1>>>;

/// The days that this process changes.
#[derive(Default)]
pub struct DeliverySums {
    days: Mutex<HashMap<(ShortId, Day), KnownSums>>,
    /// How often sums were written: no two writes have the same timestamp, even where one is thought to be lost.
    written: AtomicU64,
    has_forgotten: AtomicBool,
}

impl DeliverySums {
    /// Who changes a day holds its lock meanwhile: one change after another.
    pub fn of(&self, link: ShortId, day: Day) -> KnownSums {
        let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        if days.len() > MOST_IDLE {
            days.retain(|_, known| Arc::strong_count(known) > 1);
            self.has_forgotten.store(true, Ordering::Relaxed);
        }
        // Until a day was forgotten, one that is not known was not changed by this process yet.
        let anew = || (!self.has_forgotten.load(Ordering::Relaxed)).then(ProcessSumsV1::default);
        Arc::clone(days.entry((link, day)).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(anew()))))
    }
}

impl Deliveries {
    async fn read_sums(&self, link: ShortId, day: Day) -> Result<HashMap<Uuid, String>, StoreError> {
        let values = (link.as_str(), day_column(day));
        let row: Option<(Option<HashMap<Uuid, String>>,)> =
            self.cluster.cql.read_one(&self.cluster.statements.delivery_sums, values).await?;
        Ok(row.and_then(|(sums,)| sums).unwrap_or_default())
    }

    /// What this process has written last.
    pub(super) async fn own_sums(&self, link: ShortId, day: Day) -> Result<ProcessSumsV1, StoreError> {
        let own = self.read_sums(link, day).await?.remove(&self.cluster.process);
        own.map_or_else(|| Ok(ProcessSumsV1::default()), |own| records::sums_from_json(&own))
    }

    /// The write of this process' sums that goes with the states it counts.
    pub(super) fn sums_row(
        &self,
        link: ShortId,
        day: Day,
        sums: &ProcessSumsV1,
    ) -> Result<Vec<Option<CqlValue>>, StoreError> {
        // Of the day, as the states are, and later than the one before.
        let version = self.sums.written.fetch_add(1, Ordering::Relaxed);
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

    /// A link's day over all processes.
    pub(super) async fn day_sums(&self, link: ShortId, day: Day) -> Result<DaySums, StoreError> {
        let mut sums = DaySums::new();
        for own in self.read_sums(link, day).await?.into_values() {
            for (url, own) in records::sums_from_json(&own)?.urls {
                sums.entry(url).or_default().add(own);
            }
        }
        Ok(sums)
    }
}

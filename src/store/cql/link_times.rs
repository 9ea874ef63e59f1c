//! Links by the time of their expiry or deletion. A row counts only as far as the link says the same.

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::policies::timestamp_generator::TimestampGenerator;
use scylla::value::CqlTimestamp;

use super::cluster::Cluster;
use super::failure_runs::FailureRuns;
use super::link_remains::RemainsRow;
use super::sheet_rows::subject_column;
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::hit::HitSubject;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::locks::lock;
use crate::store::records::columns::{day as day_column, day_from, short_id, timestamp, timestamp_from};
use crate::store::records::corrupt;
use crate::store::{ExpiredLink, StoreError};

const TABLE: &str = "link_times";

/// The kind of the rows of deleted links.
pub(super) const DELETION: i8 = 1;

/// Parts of a day, so that no partition is large.
const PARTS: i8 = 16;
/// Deleted links whose counts are removed in one call.
const REMOVED_AT_ONCE: usize = 100;
/// How long before now a day must have been written to last for it to be removed: no write is under way for so long.
const DAY_UNWRITTEN_MICROS: u64 = 60_000_000;
/// Later than every position of a journal, so that hits that are counted late are removed too. Some clusters refuse
/// timestamps that are days ahead of the clock.
const AFTER_ALL_HITS: i64 = 1 << 50;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Expiry,
    Deletion,
}

impl Kind {
    fn number(self) -> i8 {
        match self {
            Self::Expiry => 0,
            Self::Deletion => DELETION,
        }
    }
}

pub struct LinkTimesTable {
    cluster: Arc<Cluster>,
    /// The deleted link whose counts were removed last. The next removal begins behind it: an engine that reads over too many tombstones
    /// refuses the read.
    counts_removed_upto: Mutex<Option<(Timestamp, ShortId)>>,
}

/// Links of one part of a day, in order, each with the revision at which the row was written.
type TimeRow = (CqlTimestamp, String, Option<String>, Option<i64>);

/// A row of the table.
struct LinkTime {
    at: Timestamp,
    id: ShortId,
    name: LinkName,
    revision: i64,
}

impl LinkTimesTable {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), counts_removed_upto: Mutex::default() }
    }

    /// Notes the expiry of a link, if it has one.
    pub async fn put_expiry(&self, link: &Link) -> Result<(), StoreError> {
        match link.options.expires_at {
            Some(at) => self.put(Kind::Expiry, at, link).await,
            None => Ok(()),
        }
    }

    /// Notes the deletion of a link, at its `updated_at`.
    pub async fn put_deletion(&self, link: &Link) -> Result<(), StoreError> {
        self.put(Kind::Deletion, link.updated_at, link).await
    }

    /// Removes the expiry that a link had before it got this revision.
    pub async fn drop_expiry(&self, old: &Link, revision: Revision) -> Result<(), StoreError> {
        match old.options.expires_at {
            Some(at) => self.drop_row(Kind::Expiry, at, old.id, i64::from(revision.0)).await,
            None => Ok(()),
        }
    }

    /// Removes an expiry that its link does not have: its creation or change was refused or interrupted. `link` is the
    /// link as it is. What a change that is under way has written is of a later revision, and stays.
    pub async fn drop_stale_expiry(&self, expired: ExpiredLink, link: Option<&Link>) -> Result<(), StoreError> {
        let revision = link.map_or(i64::from(u32::MAX), |link| i64::from(link.revision.0));
        self.drop_row(Kind::Expiry, expired.expires_at, expired.id, revision).await
    }

    /// Notes the deletion of a link of an import.
    pub async fn import_deletion(&self, id: ShortId, at: Timestamp) -> Result<(), StoreError> {
        let (name, revision) = (id.into(), i64::from(Revision::FIRST.0));
        self.put_row(Kind::Deletion, LinkTime { at, id, name, revision }).await
    }

    async fn put(&self, kind: Kind, at: Timestamp, link: &Link) -> Result<(), StoreError> {
        let revision = i64::from(link.revision.0);
        self.put_row(kind, LinkTime { at, id: link.id, name: link.name(), revision }).await
    }

    async fn put_row(&self, kind: Kind, row: LinkTime) -> Result<(), StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let LinkTime { at, id, name, revision } = row;
        let day = day_column(at.day());
        cql.write(&statements.put_link_time_day, (kind.number(), day)).await?;
        let values = (kind.number(), day, part_of(id), timestamp(at), id.as_str(), name.as_str(), revision);
        cql.write(&statements.put_link_time, values).await?;
        // Again: the day may have been removed as an empty one meanwhile.
        Ok(cql.write(&statements.put_link_time_day, (kind.number(), day)).await?)
    }

    /// Removes a row that was written at this revision or an earlier one.
    async fn drop_row(&self, kind: Kind, at: Timestamp, id: ShortId, revision: i64) -> Result<(), StoreError> {
        let values = (revision, kind.number(), day_column(at.day()), part_of(id), timestamp(at), id.as_str());
        Ok(self.cluster.cql.write(&self.cluster.statements.drop_link_time, values).await?)
    }

    /// Links that expired before `before`, after `after`.
    pub async fn expired(
        &self,
        before: Timestamp,
        after: Option<ExpiredLink>,
        limit: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError> {
        let after = after.map(|after| (after.expires_at, after.id));
        let rows = self.list(Kind::Expiry, before, after, limit).await?;
        Ok(rows.into_iter().map(|LinkTime { at, id, name, .. }| ExpiredLink { expires_at: at, id, name }).collect())
    }

    async fn list(
        &self,
        kind: Kind,
        before: Timestamp,
        after: Option<(Timestamp, ShortId)>,
        limit: usize,
    ) -> Result<Vec<LinkTime>, StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let first = after.map_or(Day(0), |(at, _)| at.day());
        let values = (kind.number(), day_column(first), day_column(before.day()));
        let days: Vec<(i32,)> = cql.read(&statements.link_time_days, values).await?;
        let mut found = Vec::new();
        for day in days.into_iter().map(|(day,)| day_from(day)) {
            let now = self.cluster.cql.timestamps.next_timestamp();
            let mut of_day = self.list_day(kind, day, before, after, limit).await?;
            if of_day.is_empty() && after.is_none() && day < before.day() {
                self.drop_day(kind, day, now).await?;
            }
            of_day.sort_unstable_by_key(|row| (row.at, row.id));
            found.append(&mut of_day);
            if found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Removes a day that was empty at the timestamp `now`, unless it is written to: who writes a row writes its day first.
    async fn drop_day(&self, kind: Kind, day: Day, now: i64) -> Result<(), StoreError> {
        let unwritten_since = now.saturating_sub_unsigned(DAY_UNWRITTEN_MICROS);
        let values = (unwritten_since, kind.number(), day_column(day));
        Ok(self.cluster.cql.write(&self.cluster.statements.drop_link_time_day, values).await?)
    }

    async fn list_day(
        &self,
        kind: Kind,
        day: Day,
        before: Timestamp,
        after: Option<(Timestamp, ShortId)>,
        limit: usize,
    ) -> Result<Vec<LinkTime>, StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let (from, from_id) = after.map_or((Timestamp(0), String::new()), |(at, id)| (at, id.to_string()));
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let of_part = |part: i8| {
            let from_id = from_id.clone();
            async move {
                let key = (kind.number(), day_column(day), part);
                let values = (key.0, key.1, key.2, timestamp(from), from_id, timestamp(before), "", limit);
                cql.read::<TimeRow>(&statements.link_times, values).await
            }
        };
        let parts: Vec<Vec<TimeRow>> = stream::iter((0..PARTS).map(of_part)).buffered(4).try_collect().await?;
        let rows = parts.into_iter().flatten();
        rows.map(|(at, link, name, revision)| {
            let name = name.as_deref().and_then(LinkName::of_form).ok_or_else(|| corrupt(TABLE, &"not a name"))?;
            let (id, revision) = (short_id(TABLE, &link)?, revision.unwrap_or(i64::from(Revision::FIRST.0)));
            Ok(LinkTime { at: timestamp_from(at), id, name, revision })
        })
        .collect()
    }

    /// Removes what is counted of some links that were deleted before `before`; `false` when none is left.
    pub async fn remove_counts(&self, before: Timestamp) -> Result<bool, StoreError> {
        let after = self.counts_removed_upto().take();
        let deleted = self.list(Kind::Deletion, before, after, REMOVED_AT_ONCE).await?;
        let last = deleted.last().map(|row| (row.at, row.id));
        for row in deleted {
            let (at, id, revision) = (row.at, row.id, row.revision);
            let remains = RemainsRow::read(&self.cluster, id).await?;
            match remains.and_then(|remains| remains.live_revision()) {
                None => self.remove_counts_of(id).await?,
                // The deletion was refused or interrupted, and can't be made any more.
                Some(live) if live > revision => {}
                // It may be made yet, by a process that was stopped for long.
                Some(_) => {
                    let micros = self.cluster.cql.timestamps.next_timestamp();
                    let now = Timestamp(u64::try_from(micros / 1_000).unwrap_or(0));
                    self.put_row(Kind::Deletion, LinkTime { at: now, ..row }).await?;
                }
            }
            self.drop_row(Kind::Deletion, at, id, revision).await?;
        }
        *self.counts_removed_upto() = last;
        // At last once more from the beginning.
        Ok(last.is_some() || after.is_some())
    }

    fn counts_removed_upto(&self) -> MutexGuard<'_, Option<(Timestamp, ShortId)>> {
        lock(&self.counts_removed_upto)
    }

    async fn remove_counts_of(&self, id: ShortId) -> Result<(), StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let months: Vec<(i32,)> = cql.read(&statements.months_of_link, (id.as_str(),)).await?;
        for (month,) in months {
            cql.write(&statements.drop_labels_of_link, (AFTER_ALL_HITS, id.as_str(), month)).await?;
        }
        cql.write(&statements.drop_months_of_link, (id.as_str(),)).await?;
        let subject = subject_column(HitSubject::Link(id));
        cql.write(&statements.drop_sheets, (AFTER_ALL_HITS, subject)).await?;
        FailureRuns::forget(&self.cluster, id).await?;
        Ok(cql.write(&statements.drop_days_of_link, (AFTER_ALL_HITS, id.as_str())).await?)
    }
}

/// The part of a day that has a link.
fn part_of(id: ShortId) -> i8 {
    let sum = id.0.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    i8::try_from(sum % 16).unwrap_or(0)
}

//! Deliveries as their owners see them, and the removal of old ones.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use futures_util::future::try_join_all;

use super::deliveries::Deliveries;
use crate::domain::calendar::Day;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, UrlSummary};
use crate::store::records::columns::{day as day_column, day_from};
use crate::store::records::{corrupt, deliveries as records};
use crate::store::{DeliveryQuery, StoreError};

/// The name of the number of the first day whose deliveries are kept.
const KEPT_FROM: &str = "deliveries_kept_from_day";

type DeliveryColumns = (Vec<u8>, Option<String>, Option<bool>);

/// A row of the index of failed deliveries: the delivery, and whether it was replayed since.
pub type FailedColumns = (Vec<u8>, Option<bool>);

fn parse((delivery, state, counted): DeliveryColumns) -> Result<Option<(DeliveryId, DeliveryState)>, StoreError> {
    let id = DeliveryId::from_bytes(&delivery).ok_or_else(|| corrupt(records::TABLE, &"not a delivery"))?;
    let Some(state) = state else { return Ok(None) };
    Ok(Some((id, records::from_columns(&state, counted)?)))
}

impl Deliveries {
    /// The first day whose deliveries are not removed. Rows of earlier days expire some days later.
    pub(super) fn first_kept_day(&self) -> Day {
        Day(self.kept_from.load(Ordering::Relaxed))
    }

    pub(super) async fn read_first_kept_day(&self) -> Result<(), StoreError> {
        let day = u32::try_from(self.names.mark(KEPT_FROM).await?).unwrap_or(0);
        self.kept_from.fetch_max(day, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn drop_deliveries_before(&self, before: Day) -> Result<bool, StoreError> {
        if before > self.first_kept_day() {
            self.names.raise_mark(KEPT_FROM, u64::from(before.0)).await?;
            self.leases.queues.dropped_before(before);
            self.leases.doubtful_marked.notify_one();
        }
        // Also if it goes back: then the node that raised it had a wrong clock, and has hidden deliveries that are not
        // old.
        self.kept_from.store(before.0, Ordering::Relaxed);
        Ok(false)
    }

    /// The days on which a link has deliveries, newest first.
    pub(super) async fn days_of(&self, link: ShortId, since: Day) -> Result<Vec<Day>, StoreError> {
        let since = day_column(since.max(self.first_kept_day()));
        let days: Vec<(i32,)> =
            self.cluster.cql.read(&self.cluster.statements.delivery_days, (link.as_str(), since)).await?;
        Ok(days.into_iter().map(|(day,)| day_from(day)).collect())
    }

    pub(super) async fn read_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        let mut sums: BTreeMap<u8, UrlSummary> = BTreeMap::new();
        let days = self.days_of(link, since).await?;
        let of_days = try_join_all(days.iter().rev().map(|day| self.sums.of_day(link, *day))).await?;
        for (url, sum) in of_days.into_iter().flatten() {
            sums.entry(url).or_default().merge(sum.summary);
        }
        Ok(sums.into_iter().collect())
    }

    pub(super) async fn list_deliveries(
        &self,
        query: DeliveryQuery,
    ) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        let mut found = Vec::new();
        let newest = query.after.map_or(Day(u32::MAX), |after| after.hit.at.day());
        for day in self.days_of(query.link, query.since).await?.into_iter().filter(|day| *day <= newest) {
            if found.len() >= query.limit {
                break;
            }
            // That day from the delivery on, earlier days from their beginning.
            let mut after = query.after.filter(|_| day == newest).map_or_else(Vec::new, |id| id.to_bytes().to_vec());
            let mut expected = self.expected_of(&query, day, after.is_empty()).await?;
            while found.len() < query.limit && expected > 0 {
                let rows = self.read_page(&query, day, after, query.limit.clamp(100, 1_000)).await?;
                let Some((last, is_last)) = rows.1 else { break };
                let fits = |(_, state): &(DeliveryId, DeliveryState)| query.status.is_none_or(|it| it == state.status);
                let before = found.len();
                found.extend(rows.0.into_iter().filter(fits));
                expected = expected.saturating_sub(found.len() - before);
                if is_last {
                    break;
                }
                after = last;
            }
        }
        found.truncate(query.limit);
        Ok(found)
    }

    /// An upper bound on the deliveries of the requested status on a day: rows after the last of them need not be read.
    async fn expected_of(&self, query: &DeliveryQuery, day: Day, is_whole: bool) -> Result<usize, StoreError> {
        let Some(status) = query.status else { return Ok(usize::MAX) };
        let sums = self.sums.of_day(query.link, day).await?;
        let count: u64 = sums.into_values().map(|mut sum| *sum.summary.count_mut(status)).sum();
        // For the rest of a day, only zero is a known bound.
        Ok(if is_whole || count == 0 { usize::try_from(count).unwrap_or(usize::MAX) } else { usize::MAX })
    }

    /// A page of a link's day, and where it ends; only failed deliveries if the query is for those.
    #[allow(clippy::type_complexity, reason = "used once")]
    async fn read_page(
        &self,
        query: &DeliveryQuery,
        day: Day,
        after: Vec<u8>,
        limit: usize,
    ) -> Result<(Vec<(DeliveryId, DeliveryState)>, Option<(Vec<u8>, bool)>), StoreError> {
        let rows = i32::try_from(limit).unwrap_or(i32::MAX);
        let values = (query.link.as_str(), day_column(day), after, rows);
        if query.status == Some(DeliveryStatus::Failed) {
            let rows: Vec<FailedColumns> = self.cluster.cql.read(&self.cluster.statements.failed, values).await?;
            let end = rows.last().map(|(last, _)| (last.clone(), rows.len() < limit));
            let parse =
                |(id, _): &FailedColumns| DeliveryId::from_bytes(id).ok_or_else(|| corrupt(records::TABLE, &"no id"));
            let failed = rows.iter().filter(|(_, replayed)| *replayed != Some(true));
            let ids = failed.map(parse).collect::<Result<Vec<_>, _>>()?;
            let states = self.read_states(ids.clone()).await?;
            return Ok((ids.into_iter().zip(states).filter_map(|(id, state)| Some((id, state?))).collect(), end));
        }
        let rows: Vec<DeliveryColumns> = self.cluster.cql.read(&self.cluster.statements.deliveries, values).await?;
        let end = rows.last().map(|(last, ..)| (last.clone(), rows.len() < limit));
        let rows = rows.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok((rows.into_iter().flatten().collect(), end))
    }
}

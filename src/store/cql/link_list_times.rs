//! Reads the rows of lists by time: bucket after bucket, several at once where those before had too few rows.

use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use super::cluster::Cluster;
use super::link_list_reads::{IndexRow, IndexRows, PARTITIONS_AT_ONCE};
use super::link_lists::{LinkListTables, before_ids_of, bucket_of, columns_of, parts, with_buckets_of};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::link::{ListOrder, ListPlace, ShortId};
use crate::store::records::columns::{day_from, month_from, short_id, timestamp, timestamp_from};
use crate::store::records::link_lists::{TABLE, TimeList, TimeListKind};
use crate::store::{LinkListQuery, StoreError};

/// Buckets that one call looks at: those of deleted links are empty.
const BUCKETS_OF_A_CALL: usize = 64;
/// Buckets that are read at once at the most. The first is read alone: it often has enough rows.
const BUCKETS_AT_ONCE: usize = 8;

/// Creation, link and revision.
type ListedRow = (CqlTimestamp, String, Option<i64>);

impl LinkListTables {
    pub(super) async fn rows_by_time(&self, list: &TimeList, query: &LinkListQuery) -> Result<IndexRows, StoreError> {
        let bounds = &TimeBounds::of(query);
        if bounds.are_empty() {
            return Ok(IndexRows::default());
        }
        let buckets = self.buckets(list, bounds, query.order).await?;
        let (looked_at, behind) = buckets.split_at(buckets.len().min(BUCKETS_OF_A_CALL));
        let (mut found, mut at_once) = (IndexRows::default(), 1);
        while found.buckets < looked_at.len() {
            let group = looked_at.iter().skip(found.buckets).take(at_once);
            let read = |bucket: i32| async move {
                let rows = self.rows_of_bucket(list, bucket, bounds, query).await?;
                Ok::<_, StoreError>((bucket, rows))
            };
            let group: Vec<(i32, Vec<IndexRow>)> =
                stream::iter(group.copied()).map(read).buffered(BUCKETS_AT_ONCE).try_collect().await?;
            found.buckets += group.len();
            for (bucket, mut rows) in group {
                found.rows.append(&mut rows);
                if found.rows.len() > query.limit {
                    found.rows.truncate(query.limit);
                    found.next = found.rows.last().map(|row| row.place);
                    return Ok(found);
                }
                found.next = Some(end_of(list.kind, bucket, query.order));
            }
            at_once = (at_once * 2).min(BUCKETS_AT_ONCE);
        }
        if behind.is_empty() {
            found.next = None;
        }
        Ok(found)
    }

    /// The first buckets of a list between two times, in the order of the list: one more than a call looks at, if there
    /// are.
    async fn buckets(&self, list: &TimeList, bounds: &TimeBounds, order: ListOrder) -> Result<Vec<i32>, StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let statement = in_order(order, &statements.newest_link_list_buckets, &statements.oldest_link_list_buckets);
        let (kind, owner, value) = columns_of(&with_buckets_of(list));
        let (from, until) = (timestamp_from(bounds.first.0), timestamp_from(bounds.end.0));
        let limit = i32::try_from(BUCKETS_OF_A_CALL + 1).unwrap_or(i32::MAX);
        let values = (kind, owner, value, bucket_of(list.kind, from), bucket_of(list.kind, until), limit);
        let buckets: Vec<(i32,)> = cql.read(statement, values).await?;
        Ok(buckets.into_iter().map(|(bucket,)| bucket).collect())
    }

    /// The first rows of a bucket: one more than the query asks for, if there are.
    async fn rows_of_bucket(
        &self,
        list: &TimeList,
        bucket: i32,
        bounds: &TimeBounds,
        query: &LinkListQuery,
    ) -> Result<Vec<IndexRow>, StoreError> {
        let rows = match list.kind {
            TimeListKind::All | TimeListKind::Tag => {
                let of_part = |part: i8| self.rows_of_part(list, bucket, part, bounds, query);
                let parts = stream::iter(0..parts(list)).map(of_part).buffered(PARTITIONS_AT_ONCE);
                parts.try_collect::<Vec<_>>().await?.concat()
            }
            TimeListKind::Target => self.rows_of_target(list, bucket, bounds, query).await?,
        };
        let mut found = Vec::new();
        for (at, link, revision) in rows {
            let (at, id) = (timestamp_from(at), short_id(TABLE, &link)?);
            found.push(IndexRow { id, at, revision: revision.unwrap_or(0), place: ListPlace::Time(at, id) });
        }
        found.sort_unstable_by_key(|row| (row.at, row.id));
        if query.order == ListOrder::Newest {
            found.reverse();
        }
        found.truncate(query.limit.saturating_add(1));
        Ok(found)
    }

    async fn rows_of_part(
        &self,
        list: &TimeList,
        bucket: i32,
        part: i8,
        bounds: &TimeBounds,
        query: &LinkListQuery,
    ) -> Result<Vec<ListedRow>, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let statement = in_order(query.order, &statements.newest_links, &statements.oldest_links);
        let (kind, owner, value) = columns_of(list);
        let ((first, first_id), (end, end_id)) = (&bounds.first, &bounds.end);
        let values =
            (kind, owner, value, bucket, part, *first, first_id.as_str(), *end, end_id.as_str(), one_more(query));
        Ok(cql.read(statement, values).await?)
    }

    async fn rows_of_target(
        &self,
        list: &TimeList,
        month: i32,
        bounds: &TimeBounds,
        query: &LinkListQuery,
    ) -> Result<Vec<ListedRow>, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let statement = in_order(query.order, &statements.newest_links_to, &statements.oldest_links_to);
        let (target, owner) = (list.value.to_vec(), list.owner.0);
        let ((first, first_id), (end, end_id)) = (&bounds.first, &bounds.end);
        let values = (target, month, owner, *first, first_id.as_str(), owner, *end, end_id.as_str(), one_more(query));
        Ok(cql.read(statement, values).await?)
    }
}

/// Of two statements, the one that reads in this order.
fn in_order<'s>(
    order: ListOrder,
    newest: &'s PreparedStatement,
    oldest: &'s PreparedStatement,
) -> &'s PreparedStatement {
    match order {
        ListOrder::Newest => newest,
        ListOrder::Oldest => oldest,
    }
}

/// How many rows are read: one more tells that there are more.
fn one_more(query: &LinkListQuery) -> i32 {
    i32::try_from(query.limit).unwrap_or(i32::MAX).saturating_add(1)
}

/// Between which places rows are read: after the first, before the end.
struct TimeBounds {
    first: (CqlTimestamp, String),
    end: (CqlTimestamp, String),
}

impl TimeBounds {
    fn of(query: &LinkListQuery) -> Self {
        let mut first = before_ids_of(query.created_from.unwrap_or_default());
        let latest = Timestamp(u64::MAX);
        let mut end = before_ids_of(query.created_until.unwrap_or(latest));
        if let Some(ListPlace::Time(at, id)) = query.after {
            let after = (timestamp(at), id.to_string());
            match query.order {
                ListOrder::Newest if (after.0.0, &after.1) < (end.0.0, &end.1) => end = after,
                ListOrder::Oldest if (after.0.0, &after.1) > (first.0.0, &first.1) => first = after,
                ListOrder::Newest | ListOrder::Oldest => {}
            }
        }
        Self { first, end }
    }

    fn are_empty(&self) -> bool {
        (self.first.0.0, &self.first.1) >= (self.end.0.0, &self.end.1)
    }
}

/// The place behind all links of a bucket.
fn end_of(kind: TimeListKind, bucket: i32, order: ListOrder) -> ListPlace {
    let (start, end) = match kind {
        TimeListKind::All | TimeListKind::Tag => {
            let day = day_from(bucket);
            (day.start(), Day(day.0.saturating_add(1)).start())
        }
        TimeListKind::Target => {
            let month = month_from(bucket);
            (month.start(), Month(month.0.saturating_add(1)).start())
        }
    };
    match order {
        ListOrder::Newest => ListPlace::Time(start, ShortId([b'0'; ShortId::LENGTH])),
        ListOrder::Oldest => ListPlace::Time(Timestamp(end.0.saturating_sub(1)), ShortId([b'z'; ShortId::LENGTH])),
    }
}

//! Reads lists: rows of an index, then their links. A row counts only as far as its link says the same; one that does not
//! is removed once no creation of that link can be under way any more.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::policies::timestamp_generator::TimestampGenerator;
use scylla::value::CqlTimestamp;

use super::link_lists::{LinkListTables, TimeRow, before_ids_of, bucket_of, columns_of, parts};
use super::link_names::CqlLinkNames;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, ListIndex, ListOrder, ListPlace, ShortId};
use crate::store::records::columns::{day_from, month_from, short_id, timestamp, timestamp_from};
use crate::store::records::corrupt;
use crate::store::records::link_lists::{EVERYONE, TABLE, TimeList, TimeListKind};
use crate::store::records::links::LinkRow;
use crate::store::{LinkListPage, LinkListQuery, StoreError};

/// Links that are read at once for a list.
const LINKS_AT_ONCE: usize = 32;
/// Partitions that are read at once where they are many.
const PARTITIONS_AT_ONCE: usize = 8;
/// Buckets that one call looks at: those of deleted links are empty.
const BUCKETS_AT_ONCE: usize = 64;
/// How long after its creation began a link may still be made: a request with an `Idempotency-Key` may be repeated for a day,
/// with the time of its first attempt.
const CREATION_ENDS_AFTER: Duration = Duration::from_hours(48);
/// The characters of names, in the order of their bytes.
const NAME_CHARACTERS: &str = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// A row of an index.
struct IndexRow {
    id: ShortId,
    /// When the creation of the link began.
    at: Timestamp,
    revision: i64,
    place: ListPlace,
}

/// Some rows of an index, in order.
#[derive(Default)]
struct IndexRows {
    rows: Vec<IndexRow>,
    /// The place after which there may be more.
    next: Option<ListPlace>,
}

/// A list whose rows are read.
#[derive(Clone, Copy)]
enum ReadList {
    Times(TimeList),
    Slugs(KeyId),
}

impl LinkListTables {
    /// A part of a list.
    pub async fn read(&self, names: &CqlLinkNames, query: &LinkListQuery) -> Result<LinkListPage, StoreError> {
        let owner = query.owner.unwrap_or(EVERYONE);
        let (list, rows) = match (&query.index, TimeList::of_index(owner, &query.index)) {
            (_, Some(list)) => (ReadList::Times(list), self.rows_by_time(&list, query).await?),
            (ListIndex::SlugPrefix(prefix), None) => {
                (ReadList::Slugs(owner), self.rows_by_slug(owner, prefix, query).await?)
            }
            (_, None) => return Err(corrupt(TABLE, &"a list without an index")),
        };
        let (examined, next) = (rows.rows.len(), rows.next);
        let links = stream::iter(rows.rows).map(|row| self.link_of(names, list, row, query)).buffered(LINKS_AT_ONCE);
        let links: Vec<Option<Link>> = links.try_collect().await?;
        Ok(LinkListPage { links: links.into_iter().flatten().collect(), examined, next })
    }

    async fn rows_by_time(&self, list: &TimeList, query: &LinkListQuery) -> Result<IndexRows, StoreError> {
        let bounds = TimeBounds::of(query);
        if bounds.are_empty() {
            return Ok(IndexRows::default());
        }
        let mut found = IndexRows::default();
        let mut buckets = self.buckets(list, &bounds, query.order).await?.into_iter();
        for bucket in buckets.by_ref().take(BUCKETS_AT_ONCE) {
            let mut rows = self.rows_of_bucket(list, bucket, &bounds, query).await?;
            found.rows.append(&mut rows);
            if found.rows.len() > query.limit {
                found.rows.truncate(query.limit);
                found.next = found.rows.last().map(|row| row.place);
                return Ok(found);
            }
            found.next = Some(end_of(list.kind, bucket, query.order));
        }
        if buckets.next().is_none() {
            found.next = None;
        }
        Ok(found)
    }

    /// The buckets of a list between two times, in the order of the list.
    async fn buckets(&self, list: &TimeList, bounds: &TimeBounds, order: ListOrder) -> Result<Vec<i32>, StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let (kind, owner, value) = columns_of(list);
        let (first, last) = (timestamp_from(bounds.first.0), timestamp_from(bounds.end.0));
        let values = (kind, owner, value, bucket_of(list.kind, first), bucket_of(list.kind, last));
        let buckets: Vec<(i32,)> = cql.read(&statements.link_list_buckets, values).await?;
        let mut buckets: Vec<i32> = buckets.into_iter().map(|(bucket,)| bucket).collect();
        if order == ListOrder::Newest {
            buckets.reverse();
        }
        Ok(buckets)
    }

    /// The first rows of a bucket: one more than the query asks for, if there are.
    async fn rows_of_bucket(
        &self,
        list: &TimeList,
        bucket: i32,
        bounds: &TimeBounds,
        query: &LinkListQuery,
    ) -> Result<Vec<IndexRow>, StoreError> {
        type ListedRow = (CqlTimestamp, String, Option<i64>);
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let statement = match query.order {
            ListOrder::Newest => &statements.newest_links,
            ListOrder::Oldest => &statements.oldest_links,
        };
        let limit = i32::try_from(query.limit).unwrap_or(i32::MAX).saturating_add(1);
        let of_part = |part: i8| {
            let (kind, owner, value) = columns_of(list);
            let ((first, first_id), (end, end_id)) = (&bounds.first, &bounds.end);
            let values = (kind, owner, value, bucket, part, *first, first_id.as_str(), *end, end_id.as_str(), limit);
            cql.read::<ListedRow>(statement, values)
        };
        let rows: Vec<Vec<ListedRow>> =
            stream::iter(0..parts(list)).map(of_part).buffered(PARTITIONS_AT_ONCE).try_collect().await?;
        let mut found = Vec::new();
        for (at, link, revision) in rows.into_iter().flatten() {
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

    async fn rows_by_slug(&self, owner: KeyId, prefix: &str, query: &LinkListQuery) -> Result<IndexRows, StoreError> {
        type SlugRow = (String, String, Option<CqlTimestamp>, Option<i64>);
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        // `~` is behind all characters of names and ids.
        let behind = |text: &str| format!("{text}~");
        let end = behind(prefix);
        let first = match query.after {
            Some(ListPlace::Name(name)) => (name.to_string(), behind("")),
            _ => (prefix.to_owned(), String::new()),
        };
        let limit = i32::try_from(query.limit).unwrap_or(i32::MAX).saturating_add(1);
        let partitions: Vec<String> =
            partitions_of(prefix).into_iter().filter(|first_two| first.0 < behind(first_two)).collect();
        let read = |first_two: String| {
            let ((name, link), end) = (&first, end.as_str());
            async move {
                let values = (owner.0, first_two.as_str(), name.as_str(), link.as_str(), end, "", limit);
                cql.read::<SlugRow>(&statements.slugs, values).await
            }
        };
        let mut reads = stream::iter(partitions).map(read).buffered(PARTITIONS_AT_ONCE);
        let mut found = IndexRows::default();
        while let Some(rows) = reads.next().await {
            for (name, link, at, revision) in rows? {
                let name = LinkName::parse(&name).ok_or_else(|| corrupt("slugs_of", &"not a name"))?;
                let (id, place) = (short_id("slugs_of", &link)?, ListPlace::Name(name));
                // All rows of a name are in one part of the list.
                let last = found.rows.last().map(|row| row.place);
                if found.rows.len() >= query.limit && last != Some(place) {
                    found.next = last;
                    return Ok(found);
                }
                let at = at.map_or(Timestamp(0), timestamp_from);
                found.rows.push(IndexRow { id, revision: revision.unwrap_or(0), at, place });
            }
        }
        Ok(found)
    }

    /// The link of a row, if it says the same.
    async fn link_of(
        &self,
        names: &CqlLinkNames,
        list: ReadList,
        row: IndexRow,
        query: &LinkListQuery,
    ) -> Result<Option<Link>, StoreError> {
        let statement = &self.cluster.statements.link;
        let link = self.cluster.cql.read_one::<LinkRow>(statement, (row.id.as_str(),)).await?;
        let link = link.map_or(Ok(None), LinkRow::into_link)?;
        let is_of_owner = |link: &Link| query.owner.is_none_or(|owner| owner == link.owner);
        let has_place = |link: &Link| query.index.place_of(link) == row.place;
        match link {
            Some(link) if is_of_owner(&link) && has_place(&link) && query.index.has(&link) => {
                // A creation that was interrupted or overtaken leaves a link that does not have its name.
                Ok(names.leads_to(&link).await?.then_some(link))
            }
            link => {
                if let Err(error) = self.drop_if_stale(list, &row, link.as_ref()).await {
                    tracing::debug!(%error, link = %row.id, "can't remove a row of a list that is out of date");
                }
                Ok(None)
            }
        }
    }

    async fn drop_if_stale(&self, list: ReadList, row: &IndexRow, link: Option<&Link>) -> Result<(), StoreError> {
        let revision = link.map_or(i64::from(u32::MAX), |link| i64::from(link.revision.0));
        // A change that is under way has written it.
        if row.revision > revision {
            return Ok(());
        }
        let micros = self.cluster.cql.timestamps.next_timestamp();
        let now = Timestamp(u64::try_from(micros / 1_000).unwrap_or(0));
        if link.is_none() && row.at.plus(CREATION_ENDS_AFTER) > now {
            return Ok(());
        }
        match (list, row.place) {
            (ReadList::Times(list), ListPlace::Time(at, id)) => {
                self.drop_time(TimeRow { list, at, id }, revision).await
            }
            (ReadList::Slugs(owner), ListPlace::Name(name)) => self.drop_slug(owner, name, row.id, revision).await,
            _ => Ok(()),
        }
    }
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

/// The partitions with the slugs that begin with a text, in order.
fn partitions_of(prefix: &str) -> Vec<String> {
    match prefix.len() {
        // A slug of one character is in a partition of its own.
        1 => {
            let longer = NAME_CHARACTERS.chars().map(|second| format!("{prefix}{second}"));
            std::iter::once(prefix.to_owned()).chain(longer).collect()
        }
        _ => vec![prefix.get(..2).unwrap_or(prefix).to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_slugs_come_in_the_order_of_their_names() {
        let partitions = partitions_of("a");
        assert_eq!((partitions.len(), partitions.is_sorted()), (65, true));
        assert_eq!(partitions_of("ab"), ["ab"]);
        assert_eq!(partitions_of("abc"), ["ab"]);
    }
}

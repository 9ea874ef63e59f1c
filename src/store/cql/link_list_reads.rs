//! Reads lists: rows of an index, then their links. A row counts only as far as its link says the same; one that does
//! not is removed once no creation of that link can be under way any more.

use std::fmt::Display;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::policies::timestamp_generator::TimestampGenerator;

use super::link_lists::{LinkListTables, TimeRow};
use super::link_names::CqlLinkNames;
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::CREATION_ENDS_AFTER;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, ListIndex, ListPlace, ShortId};
use crate::store::records::corrupt;
use crate::store::records::link_lists::{TABLE, TimeList, owner_of_list};
use crate::store::records::links::LinkRow;
use crate::store::{LinkListPage, LinkListQuery, StoreError};
use crate::telemetry::log_limit::LogLimit;

/// Links that are read at once for a list.
const LINKS_AT_ONCE: usize = 32;
/// Partitions that are read at once where they are many.
pub(super) const PARTITIONS_AT_ONCE: usize = 16;

/// A row of an index.
pub(super) struct IndexRow {
    pub id: ShortId,
    /// When the creation of the link began.
    pub at: Timestamp,
    pub revision: i64,
    pub place: ListPlace,
}

/// Some rows of an index, in order.
#[derive(Default)]
pub(super) struct IndexRows {
    pub rows: Vec<IndexRow>,
    /// Buckets that were read, also empty ones.
    pub buckets: usize,
    /// The place after which there may be more.
    pub next: Option<ListPlace>,
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
        let Some(owner) = owner_of_list(query.owner) else { return Ok(LinkListPage::default()) };
        let (list, found) = match (&query.index, TimeList::of_index(owner, &query.index)) {
            (_, Some(list)) => (ReadList::Times(list), self.rows_by_time(&list, query).await?),
            (ListIndex::SlugPrefix(prefix), None) => {
                (ReadList::Slugs(owner), self.rows_by_slug(owner, prefix, query).await?)
            }
            (_, None) => return Err(corrupt(TABLE, &"a list without an index")),
        };
        let IndexRows { rows, buckets, next } = found;
        let examined = rows.len();
        let links = stream::iter(rows).map(|row| self.link_of(names, list, row, query)).buffered(LINKS_AT_ONCE);
        let links: Vec<Option<Link>> = links.try_collect().await?;
        Ok(LinkListPage { links: links.into_iter().flatten().collect(), examined, buckets, next })
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
        let link = match link.map_or(Ok(None), LinkRow::into_link) {
            Ok(link) => link,
            Err(error) => {
                // The other links are to be listed all the same.
                log_unreadable(row.id.as_str(), &error);
                return Ok(None);
            }
        };
        let is_of_owner = |link: &Link| query.owner.is_none_or(|owner| owner == link.owner);
        let has_place = |link: &Link| query.index.place_of(link) == row.place;
        match link {
            Some(link) if is_of_owner(&link) && has_place(&link) && query.index.has(&link) => {
                // A creation that was interrupted or overtaken leaves a link that does not have its name.
                match names.leads_to(&link).await {
                    Ok(leads) => Ok(leads.then_some(link)),
                    Err(error @ StoreError::Corrupt { table: "link_names", .. }) => {
                        log_unreadable(row.id.as_str(), &error);
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
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

/// At most one line a minute: each list through the link meets it.
fn log_unreadable(row: &str, error: &dyn Display) {
    static LINES: LogLimit = LogLimit::new(Duration::from_mins(1));
    if let Some(rows) = LINES.admit() {
        tracing::error!(%error, row, rows, "a link can't be read, and is left out of lists");
    }
}

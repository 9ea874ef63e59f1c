//! What is stored of links beside the links themselves: names, earlier revisions, deletions.

use futures_util::{StreamExt, TryStreamExt, stream};
use ring::digest::{SHA256, digest};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::super::cluster::AT_ONCE;
use super::super::link_names::LIVE;
use super::super::link_remains::{NameKeeper, RemainsRow};
use super::super::placed::Placed;
use super::{PAGE, ScyllaTransfer, next_place};
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::store::StoreError;
use crate::store::records::columns::{short_id, timestamp, timestamp_from};
use crate::store::records::links::{self, LinkRecord, LinkRow, NewLinkRow};
use crate::store::records::{RecordFault, corrupt};
use crate::store::transfer::{Page, Record, SinkError};

/// What a row of `links` tells of a deleted link: token, id, owner, slug, the key that its name is kept for, revision.
type DeletedRow = (i64, String, Option<Uuid>, Option<String>, Option<Uuid>, Option<i64>);

impl ScyllaTransfer {
    pub(super) async fn put_link(&self, link: &Link) -> Result<(), SinkError> {
        // The same at every attempt, so that an attempt whose answer was lost is recognized.
        let hash = digest(&SHA256, links::to_json(link)?.as_bytes());
        let mut claim = [0; 16];
        claim.copy_from_slice(&hash.as_ref()[..16]);
        let claim = uuid::Builder::from_custom_bytes(claim).into_uuid();
        let row = NewLinkRow::new(link, claim)?;
        let tables = &self.tables.links;
        tables.put_in_indexes(std::slice::from_ref(link)).await?;
        let is_ours = tables.insert_link(link, &row, claim).await.map_err(StoreError::from)?;
        if !is_ours && tables.read_by_id(link.id).await?.is_none_or(|there| there != *link) {
            return Err(SinkError::Taken(format!("link {}", link.id)));
        }
        let name = link.name();
        if name == LinkName::from(link.id) {
            return Ok(());
        }
        if let Some(id) = name.as_id() {
            // There was a link with this id: a name without its row would be looked for in vain.
            self.put_remains(id, None, Revision::FIRST).await?;
        }
        let is_named = tables.names.import_live(&name, link, claim).await?;
        if is_named { Ok(()) } else { Err(SinkError::Taken(format!("name {name}"))) }
    }

    /// Writes what is left of a deleted link; `false` if its row says something else.
    async fn put_remains(&self, id: ShortId, keeper: Option<KeyId>, last: Revision) -> Result<bool, StoreError> {
        let (cluster, keeper, last) = (&self.tables.cluster, keeper.map(|keeper| keeper.0), i64::from(last.0));
        let values = (id.as_str(), keeper, last, timestamp(Timestamp(0)));
        let attempt = || cluster.cql.lwt(&self.scans.put_remains, values);
        let settle = || async {
            let row = cluster.cql.read_one::<(Option<Uuid>, Option<i64>)>(&self.scans.kept_for, (id.as_str(),));
            Ok(row.await?.map(|there| there == (keeper, Some(last))))
        };
        Ok(cluster.cql.settled(attempt, settle).await?)
    }

    /// Notes that all links are in lists: the import has put each of them there.
    pub(super) async fn end_link_lists(&self) -> Result<(), StoreError> {
        let cql = &self.tables.cluster.cql;
        // If its answer is lost, the import repeats it, or a node adds the links once more.
        cql.lwt(&self.scans.end_link_list_fill, ()).await?;
        Ok(())
    }

    /// A name that is kept. If it has the form of an id, the row of the link with that id keeps it.
    pub(super) async fn put_kept_name(
        &self,
        name: LinkName,
        owner: Option<KeyId>,
        revision: Revision,
    ) -> Result<(), SinkError> {
        let is_kept = match (name.as_id(), owner) {
            (Some(id), owner) => self.put_remains(id, owner, revision).await?,
            (None, Some(owner)) => self.tables.links.names.import_kept(&name, owner, revision).await?,
            // Only ids are never used again.
            (None, None) => true,
        };
        if is_kept { Ok(()) } else { Err(SinkError::Taken(format!("name {name}"))) }
    }

    pub(super) async fn put_revision(&self, link: &Link) -> Result<(), SinkError> {
        let values = (link.id.as_str(), i64::from(link.revision.0), links::to_json(link)?);
        let cluster = &self.tables.cluster;
        let written = cluster.cql.write(&cluster.statements.put_link_revision, values).await;
        Ok(written.map_err(StoreError::from)?)
    }

    pub(super) async fn put_deletion(&self, link: ShortId, at: Timestamp) -> Result<(), SinkError> {
        Ok(self.tables.links.times.import_deletion(link, at).await?)
    }

    pub(super) async fn links_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<Placed<LinkRow>> = self.scan(&self.scans.links, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.token), PAGE);
        let links = rows.into_iter().filter_map(|placed| placed.row.into_link().transpose());
        // A creation that was interrupted or overtaken leaves a link that does not have its name.
        let named = |link: Result<Link, StoreError>| async move {
            let link = link?;
            let has_name = self.tables.links.names.leads_to(&link).await?;
            Ok::<_, StoreError>(has_name.then_some(Record::Link(link)))
        };
        let records: Vec<_> = stream::iter(links).map(named).buffered(AT_ONCE).try_collect().await?;
        Ok(Page { records: records.into_iter().flatten().collect(), next })
    }

    /// First the names that rows of deleted links keep, then those that have rows of their own. A place in the second
    /// part begins with `names`.
    pub(super) async fn kept_names_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        const OWN_ROWS: &str = "names ";
        if let Some(token) = from.and_then(|from| from.strip_prefix(OWN_ROWS)) {
            let mut page = self.own_names_page(Some(token).filter(|token| !token.is_empty())).await?;
            page.next = page.next.map(|token| format!("{OWN_ROWS}{token}"));
            return Ok(page);
        }
        let rows: Vec<DeletedRow> = self.scan(&self.scans.remains, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
        let deleted = rows.into_iter().filter(|(_, _, owner, _, _, revision)| owner.is_none() && revision.is_some());
        let records = stream::iter(deleted).map(|row| self.names_of_deleted(row)).buffered(AT_ONCE);
        let records: Vec<Vec<Record>> = records.try_collect().await?;
        let next = Some(next.unwrap_or_else(|| OWN_ROWS.to_owned()));
        Ok(Page { records: records.into_iter().flatten().collect(), next })
    }

    /// What the row of a deleted link tells of its id, and of its name.
    async fn names_of_deleted(&self, row: DeletedRow) -> Result<Vec<Record>, StoreError> {
        let (_, id, _, slug, kept_for, revision) = row;
        let (id, names) = (short_id("links", &id)?, &self.tables.links.names);
        let (of_id, keeper) = (LinkName::from(id), NameKeeper::of(kept_for, revision));
        let used = Record::KeptName { name: of_id, owner: None, revision: Revision::FIRST };
        let slug = slug.as_deref().and_then(LinkName::of_form).filter(|slug| *slug != of_id);
        if let Some(slug) = slug {
            // Its deletion may have been interrupted before the name's own row told of it.
            let is_live = names.read(&slug).await?.map(|row| row.live()).transpose()?.flatten() == Some(id);
            let kept = keeper.filter(|_| is_live).map(|keeper| kept_name(slug, keeper));
            return Ok(std::iter::once(used).chain(kept).collect());
        }
        // If a link was made again with this name, the name has its own row.
        let has_row = names.read(&of_id).await?.is_some();
        let only = || keeper.map_or(used, |keeper| kept_name(of_id, keeper));
        Ok(if has_row { Vec::new() } else { vec![only()] })
    }

    async fn own_names_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        type NameRow = (i64, String, Option<i8>, Option<Uuid>, Option<i64>);
        let rows: Vec<NameRow> = self.scan(&self.scans.names, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
        let kept = rows.into_iter().filter(|(_, _, state, ..)| *state != Some(LIVE));
        let records = kept.filter_map(|(_, name, _, owner, revision)| {
            let keeper = NameKeeper::of(owner, revision)?;
            let name = LinkName::of_form(&name).ok_or_else(|| corrupt("link_names", &"not a name"));
            Some(name.map(|name| kept_name(name, keeper)))
        });
        Ok(Page { records: records.collect::<Result<_, _>>()?, next })
    }

    /// A page of whole partitions: no link has more revisions than a page has room for.
    pub(super) async fn revisions_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<(i64, String)> = self.scan(&self.scans.revised, from, PAGE).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0), PAGE);
        let mut records = Vec::new();
        for (_, link) in rows {
            let kept: Vec<(Option<String>, Option<i64>)> =
                self.tables.cluster.cql.read(&self.scans.revisions, (link,)).await?;
            for (record, written_at) in kept {
                let unreadable = |error: &dyn std::fmt::Display| corrupt("link_revisions", error);
                let record = record.ok_or_else(|| unreadable(&"no record"))?;
                let record: LinkRecord<'_> = serde_json::from_str(&record).map_err(|error| unreadable(&error))?;
                let link = Link::try_from(record).map_err(|fault: RecordFault| unreadable(&fault))?;
                let micros = written_at.and_then(|micros| u64::try_from(micros).ok()).unwrap_or(0);
                records.push(Record::Revision { link, replaced_at: Timestamp(micros / 1_000) });
            }
        }
        Ok(Page { records, next })
    }

    /// All of them: the counts of deleted links are removed within hours.
    pub(super) async fn deletions(&self) -> Result<Vec<Record>, StoreError> {
        let cql = &self.tables.cluster.cql;
        let mut records = Vec::new();
        let parts: Vec<(i8, i32, i8)> = cql.read(&self.scans.time_parts, ()).await?;
        for part in parts.into_iter().filter(|(kind, ..)| *kind == super::super::link_times::DELETION) {
            let rows: Vec<(CqlTimestamp, String)> = cql.read(&self.scans.times, part).await?;
            for (at, link) in rows {
                let id = short_id("link_times", &link)?;
                // A deletion that was refused or interrupted leaves a row, too.
                let remains = RemainsRow::read(&self.tables.cluster, id).await?;
                if remains.is_none_or(|remains| remains.live_revision().is_none()) {
                    records.push(Record::Deletion { link: id, at: timestamp_from(at) });
                }
            }
        }
        Ok(records)
    }
}

fn kept_name(name: LinkName, keeper: NameKeeper) -> Record {
    Record::KeptName { name, owner: Some(keeper.owner), revision: keeper.last }
}

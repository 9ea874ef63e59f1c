//! What is stored of links beside the links themselves: names, earlier revisions, deletions.

use ring::digest::{SHA256, digest};
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::{Placed, ScyllaTransfer, next_place};
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::store::StoreError;
use crate::store::records::columns::{short_id, timestamp, timestamp_from};
use crate::store::records::links::{self, LinkRecord, LinkRow, NewLinkRow};
use crate::store::records::{RecordFault, corrupt};
use crate::store::transfer::{Page, Record, SinkError};

/// A row of `links` as far as it tells of a deleted link.
type RemainsRow = (i64, String, Option<Uuid>, Option<Uuid>, Option<i64>);

impl ScyllaTransfer {
    pub(super) async fn put_link(&self, link: &Link) -> Result<(), SinkError> {
        // The same at every attempt, so that an attempt whose answer was lost is recognized.
        let hash = digest(&SHA256, links::to_json(link)?.as_bytes());
        let mut claim = [0; 16];
        claim.copy_from_slice(&hash.as_ref()[..16]);
        let claim = uuid::Builder::from_custom_bytes(claim).into_uuid();
        let row = NewLinkRow::new(link, claim)?;
        let tables = &self.tables.links;
        tables.times.put_expiry(link).await?;
        let is_ours = tables.insert_link(link, &row, claim).await.map_err(StoreError::from)?;
        if !is_ours && tables.read_by_id(link.id).await?.is_none_or(|there| there != *link) {
            return Err(SinkError::Taken(format!("link {}", link.id)));
        }
        let name = link.name();
        if name != LinkName::from(link.id) && !tables.names.import_live(&name, link, claim).await? {
            return Err(SinkError::Taken(format!("name {name}")));
        }
        Ok(())
    }

    /// A name that is kept. If it has the form of an id, the row of the link with that id keeps it.
    pub(super) async fn put_kept_name(
        &self,
        name: LinkName,
        owner: Option<KeyId>,
        revision: Revision,
    ) -> Result<(), SinkError> {
        let (cluster, tables) = (&self.tables.cluster, &self.tables.links);
        let is_kept = match (name.as_id(), owner) {
            (Some(id), owner) => {
                let owner = owner.map(|owner| owner.0);
                let values = (id.as_str(), owner, i64::from(revision.0), timestamp(Timestamp(0)));
                let attempt = || cluster.cql.lwt(&self.scans.put_remains, values);
                let settle = || async {
                    let row = cluster.cql.read_one::<(Option<Uuid>, Option<i64>)>(&self.scans.kept_for, (id.as_str(),));
                    Ok(row.await?.map(|there| there == (owner, Some(i64::from(revision.0)))))
                };
                cluster.cql.settled(attempt, settle).await.map_err(StoreError::from)?
            }
            (None, Some(owner)) => tables.names.import_kept(&name, owner, revision).await?,
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
        let rows: Vec<Placed<LinkRow>> = self.scan(&self.scans.links, from).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.token));
        let links = rows.into_iter().filter_map(|placed| placed.row.into_link().transpose());
        let records = links.map(|link| link.map(Record::Link));
        Ok(Page { records: records.collect::<Result<_, _>>()?, next })
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
        let rows: Vec<RemainsRow> = self.scan(&self.scans.remains, from).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0));
        let mut records = Vec::new();
        for (_, id, owner, kept_for, revision) in rows {
            let Some(kept_for) = kept_for.filter(|_| owner.is_none()) else { continue };
            let name = LinkName::from(short_id("links", &id)?);
            // A link may have been made again with this name.
            if self.tables.links.names.read(&name).await?.is_none() {
                records.push(kept_name(name, kept_for, revision)?);
            }
        }
        Ok(Page { records, next: Some(next.unwrap_or_else(|| OWN_ROWS.to_owned())) })
    }

    async fn own_names_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        type NameRow = (i64, String, Option<i8>, Option<Uuid>, Option<i64>);
        let rows: Vec<NameRow> = self.scan(&self.scans.names, from).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0));
        let kept = rows.into_iter().filter_map(|(_, name, state, owner, revision)| {
            let owner = owner.filter(|_| state == Some(super::super::link_names::KEPT))?;
            Some((name, owner, revision))
        });
        let records = kept.map(|(name, owner, revision)| {
            let name = LinkName::parse(&name).ok_or_else(|| corrupt("link_names", &"not a name"))?;
            kept_name(name, owner, revision)
        });
        Ok(Page { records: records.collect::<Result<_, _>>()?, next })
    }

    /// A page of whole partitions: no link has more revisions than a page has room for.
    pub(super) async fn revisions_page(&self, from: Option<&str>) -> Result<Page, StoreError> {
        let rows: Vec<(i64, String)> = self.scan(&self.scans.revised, from).await?;
        let next = next_place(rows.len(), rows.last().map(|row| row.0));
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
                records.push(Record::Deletion { link: short_id("link_times", &link)?, at: timestamp_from(at) });
            }
        }
        Ok(records)
    }
}

fn kept_name(name: LinkName, owner: Uuid, revision: Option<i64>) -> Result<Record, StoreError> {
    let revision = revision.and_then(|revision| u32::try_from(revision).ok());
    let revision = Revision(revision.ok_or_else(|| corrupt("link_names", &"a kept name without a revision"))?);
    Ok(Record::KeptName { name, owner: Some(KeyId(owner)), revision })
}

//! Changes of links, each an LWT on the revision.
//!
//! In this order: the row for its new expiry, the revision before (for deliveries), an entry in the change feed, the LWT,
//! another entry, removal of what is not needed any more, the answer. So other nodes watch the link before it changes,
//! and forget it once it has.

use std::sync::Arc;

use scylla::DeserializeRow;
use uuid::Uuid;

use super::links::CqlLinks;
use super::outcome::CqlError;
use crate::domain::link::{Link, Revision, ShortId};
use crate::store::links::MAX_REVISIONS;
use crate::store::records::links::{self as records, ChangedLinkRow, LinkRecord, LinkRow};
use crate::store::records::{RecordFault, corrupt};
use crate::store::{StoreError, UpdateLinkError};

/// How many claims of its last changes a link has.
const EDITS_KEPT: usize = 16;

/// What an LWT on a link is based on.
#[derive(DeserializeRow)]
struct EditsRow {
    /// `None` for a deleted link.
    owner: Option<Uuid>,
    revision: Option<i64>,
    edits: Option<Vec<Uuid>>,
}

impl EditsRow {
    fn edits(&self) -> &[Uuid] {
        self.edits.as_deref().unwrap_or_default()
    }

    /// Whether a link that is not deleted has this revision. Links of 0.1.0 have none in their rows.
    fn is_of(&self, revision: Revision) -> bool {
        self.owner.is_some() && self.revision.unwrap_or(i64::from(Revision::FIRST.0)) == i64::from(revision.0)
    }

    /// The claims after a change with this claim.
    fn with(&self, claim: Uuid) -> Vec<Uuid> {
        let kept = self.edits().len().saturating_sub(EDITS_KEPT - 1);
        self.edits()[kept..].iter().copied().chain([claim]).collect()
    }
}

/// Whether a change writes the link or removes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Update,
    Delete,
}

impl CqlLinks {
    /// Replaces the revision before. The change completes even if its caller is cancelled.
    pub(super) async fn update(self: &Arc<Self>, link: Link) -> Result<(), UpdateLinkError> {
        self.feed.check_all_nodes_know_changes()?;
        let links = Arc::clone(self);
        self.to_its_end(async move { links.change(&link, Change::Update).await }).await
    }

    /// Deletes a link that has this revision.
    pub(super) async fn delete(self: &Arc<Self>, link: Link) -> Result<(), UpdateLinkError> {
        self.feed.check_all_nodes_know_changes()?;
        let links = Arc::clone(self);
        self.to_its_end(async move { links.change(&link, Change::Delete).await }).await
    }

    async fn change(&self, link: &Link, change: Change) -> Result<(), UpdateLinkError> {
        let before = match change {
            Change::Update => Revision(link.revision.0.saturating_sub(1)),
            Change::Delete => link.revision,
        };
        let old = self.read_by_id(link.id).await?.filter(|old| old.revision == before && old.owner == link.owner);
        let old = old.ok_or(UpdateLinkError::Conflict)?;
        let row = self.edits_row(link.id).await.map_err(StoreError::from)?;
        // It may have been changed since it was read above.
        let row = row.filter(|row| row.is_of(before)).ok_or(UpdateLinkError::Conflict)?;
        self.keep_revision(&old, change).await?;
        match change {
            Change::Update => self.times.put_expiry(link).await?,
            Change::Delete => self.times.put_deletion(link).await?,
        }
        let claim = Uuid::new_v4();
        let changed = match change {
            Change::Update => ChangedLinkRow::changed(link, row.revision, row.with(claim))?,
            Change::Delete => ChangedLinkRow::deleted(link, row.revision, row.with(claim)),
        };
        self.feed.append(old.name(), link.id).await?;
        let applied = self.apply(link.id, &changed, row.revision, claim).await;
        // Also if it is unknown whether the change was made: other nodes read what is there.
        self.feed.append(old.name(), link.id).await?;
        if !applied? {
            return Err(UpdateLinkError::Conflict);
        }
        self.clean_up(&old, link, change).await?;
        Ok(())
    }

    /// Sends the LWT until its outcome is known; returns whether the change was made.
    async fn apply(
        &self,
        id: ShortId,
        changed: &ChangedLinkRow,
        before: Option<i64>,
        claim: Uuid,
    ) -> Result<bool, StoreError> {
        let attempt = || async { self.cluster.cql.lwt(&self.cluster.statements.change_link, changed).await };
        let settle = || async {
            let Some(now) = self.edits_row(id).await? else { return Ok(Some(false)) };
            if now.edits().contains(&claim) {
                return Ok(Some(true));
            }
            if now.revision == before && now.owner.is_some() {
                return Ok(None);
            }
            let behind = now.revision.unwrap_or(1) - before.unwrap_or(1);
            if usize::try_from(behind).is_ok_and(|behind| behind > EDITS_KEPT) {
                return Err(CqlError::Unknown("the link was changed too often meanwhile".into()));
            }
            Ok(Some(false))
        };
        Ok(self.cluster.cql.settled(attempt, settle).await?)
    }

    /// Writes the revision before a change, if its hits fire webhooks.
    async fn keep_revision(&self, old: &Link, change: Change) -> Result<(), UpdateLinkError> {
        if old.webhooks.is_empty() {
            return Ok(());
        }
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        // Fewer changes than the limit need no count.
        if change == Change::Update && u64::from(old.revision.0) > MAX_REVISIONS {
            let kept = cql.read_one::<(i64,)>(&statements.count_link_revisions, (old.id.as_str(),)).await;
            let kept = kept.map_err(StoreError::from)?.map_or(0, |(count,)| count);
            if u64::try_from(kept).unwrap_or(0) >= MAX_REVISIONS {
                return Err(UpdateLinkError::TooManyRevisions);
            }
        }
        let values = (old.id.as_str(), i64::from(old.revision.0), records::to_json(old)?);
        cql.write(&statements.put_link_revision, values).await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Removes what a change has made obsolete.
    async fn clean_up(&self, old: &Link, link: &Link, change: Change) -> Result<(), StoreError> {
        if change == Change::Delete {
            self.times.drop_expiry(old, old.revision.next()).await?;
            return self.names.keep(&old.name(), link.id, link.owner, old.revision).await;
        }
        if old.options.expires_at != link.options.expires_at {
            self.times.drop_expiry(old, link.revision).await?;
        }
        Ok(())
    }

    async fn edits_row(&self, id: ShortId) -> Result<Option<EditsRow>, CqlError> {
        self.cluster.cql.read_one(&self.cluster.statements.link_edits, (id.as_str(),)).await
    }

    /// The link as it was at a revision.
    pub(super) async fn read_at(&self, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError> {
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        let row = cql.read_one::<LinkRow>(&statements.link, (id.as_str(),)).await?;
        let current = row.map_or(Ok(None), LinkRow::into_link)?;
        if current.as_ref().is_some_and(|link| link.revision == revision) {
            return Ok(current);
        }
        let values = (id.as_str(), i64::from(revision.0));
        let kept = cql.read_one::<(Option<String>,)>(&statements.link_revision, values).await?;
        let Some(record) = kept.and_then(|(record,)| record) else { return Ok(None) };
        let unreadable = |error: &dyn std::fmt::Display| corrupt("link_revisions", error);
        let record: LinkRecord<'_> = serde_json::from_str(&record).map_err(|error| unreadable(&error))?;
        Link::try_from(record).map(Some).map_err(|fault: RecordFault| unreadable(&fault))
    }
}

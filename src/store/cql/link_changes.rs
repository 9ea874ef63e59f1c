//! Changes of links, each an LWT on the revision.
//!
//! In this order: the rows for its new expiry and its lists, the revision before (for deliveries), an entry in the
//! change feed, the LWT, another entry, removal of what is not needed any more, the answer. So other nodes watch the
//! link before it changes, and forget it once it has.
//!
//! A change whose outcome is unknown is brought to an end after its caller has got an error, and is in the feed again
//! and again until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::DeserializeRow;
use uuid::Uuid;

use super::cluster::ASK_AGAIN_AFTER;
use super::links::CqlLinks;
use super::outcome::CqlError;
use crate::caller::{CallerGuard, CallerState};
use crate::clock::uptime;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::store::links::MAX_REVISIONS;
use crate::store::records::links::{self as records, ChangedLinkRow, LinkRecord, LinkRow};
use crate::store::records::{RecordFault, corrupt};
use crate::store::{StoreError, UpdateLinkError};

/// How many claims of its last changes a link has.
const EDITS_KEPT: usize = 16;
/// How often a change of unknown outcome is appended to the feed. Other nodes watch a link for 15 s.
const APPEND_EVERY: Duration = Duration::from_secs(5);

/// What an LWT on a link is based on.
#[derive(DeserializeRow)]
struct EditsRow {
    /// `None` once the link is deleted.
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

/// The LWT of a change.
struct SentChange<'a> {
    id: ShortId,
    name: LinkName,
    row: ChangedLinkRow,
    /// The revision in the row that it replaces.
    before: Option<i64>,
    claim: Uuid,
    caller: &'a CallerState,
}

/// What an LWT has done.
enum ChangeOutcome {
    Applied,
    /// Another change was applied in its place.
    Refused,
    Undecided,
    /// So many changes were made since then that it can't be told.
    Forgotten,
}

impl CqlLinks {
    /// Replaces the revision before. The change completes even if its caller is cancelled.
    pub(super) async fn update(self: &Arc<Self>, link: Link) -> Result<(), UpdateLinkError> {
        self.change_to_completion(link, Change::Update).await
    }

    /// Deletes a link that has this revision.
    pub(super) async fn delete(self: &Arc<Self>, link: Link) -> Result<(), UpdateLinkError> {
        self.change_to_completion(link, Change::Delete).await
    }

    async fn change_to_completion(self: &Arc<Self>, link: Link, change: Change) -> Result<(), UpdateLinkError> {
        self.feed.check_all_nodes_know_changes()?;
        let (_guard, caller) = CallerGuard::new();
        let links = Arc::clone(self);
        self.run_to_completion(async move { links.change(&link, change, &caller).await }).await
    }

    async fn change(&self, link: &Link, change: Change, caller: &CallerState) -> Result<(), UpdateLinkError> {
        let before = match change {
            Change::Update => Revision(link.revision.0.saturating_sub(1)),
            Change::Delete => link.revision,
        };
        let old = self.read_by_id(link.id).await?.filter(|old| old.revision == before && old.owner == link.owner);
        let old = old.ok_or(UpdateLinkError::Conflict)?;
        let row = self.edits_row(link.id).await.map_err(StoreError::from)?;
        // It may have been changed since it was read above.
        let row = row.filter(|row| row.is_of(before)).ok_or(UpdateLinkError::Conflict)?;
        // The operator can always block a link.
        let has_limit = change == Change::Update && old.block_reason == link.block_reason;
        self.keep_revision(&old, has_limit).await?;
        match change {
            Change::Update => {
                self.times.put_expiry(link).await?;
                self.lists.put_changed(&old, link).await?;
            }
            Change::Delete => self.times.put_deletion(link).await?,
        }
        let (id, name, claim) = (link.id, old.name(), Uuid::new_v4());
        let changed = match change {
            Change::Update => ChangedLinkRow::changed(link, row.revision, row.with(claim))?,
            Change::Delete => ChangedLinkRow::deleted(link, row.revision, row.with(claim)),
        };
        let appended = uptime();
        self.feed.append(name, id).await?;
        let sent = SentChange { id, name, row: changed, before: row.revision, claim, caller };
        let applied = self.apply(&sent, appended).await;
        // Also if it is unknown whether the change was made: other nodes read what is there.
        self.append_to_completion(&sent).await?;
        if !applied? {
            return Err(UpdateLinkError::Conflict);
        }
        // The change is made: what is left behind is skipped by reads, and a name by the row of its deleted link.
        if let Err(error) = self.clean_up(&old, link, change).await {
            tracing::debug!(%error, link = %name, "can't remove old rows of a changed link");
        }
        Ok(())
    }

    /// Sends the LWT until its outcome is known, or the store closes. `appended`: the [`uptime`] before the change's entry was appended.
    async fn apply(&self, sent: &SentChange<'_>, mut appended: Duration) -> Result<bool, StoreError> {
        let began = Instant::now();
        let mut may_be_applied = false;
        loop {
            // Also after a pause of this process or its machine: other nodes must watch the link when the LWT is sent.
            if uptime().saturating_sub(appended) >= APPEND_EVERY {
                self.report_if_unawaited(sent);
                let before = uptime();
                let entry = self.feed.append(sent.name, sent.id).await;
                if !may_be_applied {
                    entry?;
                }
                appended = before;
            }
            let error = match self.cluster.cql.lwt(&self.cluster.statements.change_link, &sent.row).await {
                Ok(true) => return Ok(true),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error @ CqlError::NotApplied(_)) => error,
                // Refused by the row, which an earlier attempt of ours may have written; or unknown.
                outcome => {
                    may_be_applied |= outcome.is_err();
                    match self.settle(sent).await {
                        Ok(ChangeOutcome::Applied) => return Ok(true),
                        Ok(ChangeOutcome::Refused) => return Ok(false),
                        Ok(ChangeOutcome::Forgotten) => {
                            return Err(StoreError::Unavailable("the link was changed too often meanwhile".into()));
                        }
                        Ok(ChangeOutcome::Undecided) => {
                            let refused = || CqlError::NotApplied("an LWT was refused without a later change".into());
                            outcome.err().unwrap_or_else(refused)
                        }
                        Err(error) if error.is_final() => return Err(error.into()),
                        Err(error) => error,
                    }
                }
            };
            let is_late = began.elapsed() >= self.cluster.cql.patience();
            if is_late && (!may_be_applied || self.cluster.check_open().is_err()) {
                if may_be_applied {
                    self.feed.leave_unsettled();
                }
                return Err(error.into());
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    async fn settle(&self, sent: &SentChange<'_>) -> Result<ChangeOutcome, CqlError> {
        let Some(now) = self.edits_row(sent.id).await? else { return Ok(ChangeOutcome::Refused) };
        if now.edits().contains(&sent.claim) {
            return Ok(ChangeOutcome::Applied);
        }
        if now.owner.is_none() {
            return Ok(ChangeOutcome::Refused);
        }
        if now.revision == sent.before {
            return Ok(ChangeOutcome::Undecided);
        }
        let behind = now.revision.unwrap_or(1) - sent.before.unwrap_or(1);
        if usize::try_from(behind).is_ok_and(|behind| behind > EDITS_KEPT) {
            return Ok(ChangeOutcome::Forgotten);
        }
        Ok(ChangeOutcome::Refused)
    }

    /// Appends a change to the feed after its LWT, however long it takes.
    async fn append_to_completion(&self, sent: &SentChange<'_>) -> Result<(), StoreError> {
        self.report_if_unawaited(sent);
        while let Err(error) = self.feed.append(sent.name, sent.id).await {
            if self.cluster.check_open().is_err() {
                return Err(error);
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
        self.report_if_unawaited(sent);
        Ok(())
    }

    /// Reports a change to this node whose caller was told that the outcome is unknown: it may have read the link
    /// meanwhile, and goes on reading it.
    fn report_if_unawaited(&self, sent: &SentChange<'_>) {
        if !sent.caller.is_waiting() {
            self.feed.report_here(sent.name, sent.id);
        }
    }

    /// Writes the revision before a change, if its hits fire webhooks.
    async fn keep_revision(&self, old: &Link, has_limit: bool) -> Result<(), UpdateLinkError> {
        if old.webhooks.is_empty() {
            return Ok(());
        }
        let (cql, statements) = (&self.cluster.cql, &self.cluster.statements);
        // Fewer changes than the limit need no count.
        if has_limit && u64::from(old.revision.0) > MAX_REVISIONS {
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
            self.lists.drop_all(old).await?;
            return self.names.keep(&old.name(), link.id, link.owner, old.revision).await;
        }
        if old.options.expires_at != link.options.expires_at {
            self.times.drop_expiry(old, link.revision).await?;
        }
        if !old.webhooks.all().is_empty() {
            self.failure_runs.forget_before(link.id, link.revision).await?;
        }
        self.lists.drop_changed(old, link).await
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

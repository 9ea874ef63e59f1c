//! Names of links that are not the id of their link: slugs, and names that were made again after a deletion.
//!
//! A creation takes the name first (`pending`), then writes the link and counts it, and then sets the name to its link
//! (`live`). A creator that was overtaken finds its claim gone.

use std::sync::Arc;
use std::time::Duration;

use scylla::DeserializeRow;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::cluster::Cluster;
use super::link_remains::{NameKeeper, RemainsRow};
use super::outcome::CqlError;
use super::pause::Pause;
use crate::domain::calendar::Timestamp;
use crate::domain::key::KeyId;
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::store::StoreError;
use crate::store::records::columns::{short_id, timestamp, timestamp_from};
use crate::store::records::corrupt;

/// All names are of one domain.
const DOMAIN: i8 = 0;
const TABLE: &str = "link_names";

const PENDING: i8 = 0;
pub const LIVE: i8 = 1;
const KEPT: i8 = 2;

/// How long a creation may have a name without a link. Its creator is gone then.
const PENDING_FOR: Duration = Duration::from_secs(30);
/// A name that an earlier attempt has taken so long ago is taken anew.
const TAKEN_ANEW_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, DeserializeRow)]
pub struct NameRow {
    pub link: Option<String>,
    owner: Option<Uuid>,
    state: Option<i8>,
    revision: Option<i64>,
    claim: Option<Uuid>,
    since: Option<CqlTimestamp>,
}

impl NameRow {
    /// The link that has the name.
    pub fn live(&self) -> Result<Option<ShortId>, StoreError> {
        match &self.link {
            Some(link) if self.state == Some(LIVE) => short_id(TABLE, link).map(Some),
            _ => Ok(None),
        }
    }

    fn is_pending_since_before(&self, now: Timestamp, duration: Duration) -> bool {
        self.state == Some(PENDING) && self.since.is_none_or(|since| timestamp_from(since).plus(duration) < now)
    }

    /// For whom the name is kept if no link has it. A creation that has taken a kept name leaves it as it was.
    pub fn keeper(&self) -> Option<NameKeeper> {
        NameKeeper::of(self.owner, self.revision).filter(|_| self.state != Some(LIVE))
    }
}

/// A name that a creation has taken.
pub struct TakenName {
    pub name: LinkName,
    pub owner: KeyId,
    claim: Uuid,
    /// The first revision of the link that gets the name.
    pub revision: Revision,
    /// For whom the name was kept before.
    kept: Option<NameKeeper>,
}

impl TakenName {
    /// A name that an earlier attempt has taken for a link.
    pub fn planned(
        name: LinkName,
        link: &Link,
        claim: Uuid,
        revision: Revision,
        kept: Option<(KeyId, Revision)>,
    ) -> Self {
        let kept = kept.map(|(owner, last)| NameKeeper { owner, last });
        Self { name, owner: link.owner, claim, revision, kept }
    }

    /// For whom the name was kept before.
    pub fn keeper(&self) -> Option<NameKeeper> {
        self.kept
    }

    /// The key that the name was kept for before; of other names, `owner`.
    fn keeper_or(&self, owner: KeyId) -> KeyId {
        self.kept.map_or(owner, |keeper| keeper.owner)
    }

    /// For whom the name was kept before, and the last revision of the link that had it.
    pub fn kept_before(&self) -> Option<(KeyId, Revision)> {
        self.kept.map(|NameKeeper { owner, last }| (owner, last))
    }
}

/// The outcome of an attempt to take a name.
pub enum Taking {
    Taken(TakenName),
    /// Another link has it, or it is kept for another key.
    Refused,
    /// Another creation has had it for as long as was waited. Nothing was changed.
    Busy,
}

/// Tells what earlier attempts of the same creation have made.
#[derive(Clone, Copy)]
pub struct RepeatedClaim {
    pub claim: Uuid,
    /// The time of this attempt.
    pub now: Timestamp,
}

/// What a creation knows of the name that it takes.
#[derive(Clone, Copy)]
pub struct WantedName {
    /// For whom the name is kept by the row of a deleted link that had it as its id.
    pub kept: Option<NameKeeper>,
    /// Whether it may be kept for another key.
    pub takes_kept: bool,
    /// The claim of a creation that may have been begun before.
    pub repeated: Option<RepeatedClaim>,
}

/// The error of a creation whose name another creation has.
pub fn busy() -> StoreError {
    StoreError::Unavailable("another creation of this name is under way".into())
}

pub struct CqlLinkNames {
    cluster: Arc<Cluster>,
}

impl CqlLinkNames {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster) }
    }

    pub async fn read(&self, name: &LinkName) -> Result<Option<NameRow>, CqlError> {
        self.cluster.cql.read_one(&self.cluster.statements.link_name, (DOMAIN, name.as_str())).await
    }

    /// Takes a name for a new link. It waits for another creation that has the name for as long as `patience` says.
    ///
    /// # Errors
    /// The name may have been taken, or may still be.
    pub async fn take(
        &self,
        link: &Link,
        name: LinkName,
        wanted: WantedName,
        patience: Duration,
    ) -> Result<Taking, StoreError> {
        let (owner, WantedName { kept, takes_kept, repeated }) = (link.owner, wanted);
        let new = || RepeatedClaim { claim: Uuid::new_v4(), now: link.created_at };
        let RepeatedClaim { claim, now } = repeated.unwrap_or_else(new);
        let mut pause = Pause::within(patience);
        loop {
            // A settled read would contend with the creation that has the name. What this one misses, the claim finds.
            let row = self.read(&name).await?;
            if let (Some(row), Some(_)) = (&row, repeated)
                && let Some(taken) = self.taken_before(row, link, name, claim).await?
            {
                if !row.is_pending_since_before(now, TAKEN_ANEW_AFTER)
                    || self.claim(&name, taken.keeper_or(owner), now, claim, row.revision, Some(row)).await?
                {
                    return Ok(Taking::Taken(taken));
                }
                continue;
            }
            let keeper = match &row {
                None => kept,
                Some(row) if row.state == Some(LIVE) => match self.keeper_by_remains(row, &name).await? {
                    None => return Ok(Taking::Refused),
                    keeper => keeper,
                },
                // Another creation has it: soon it is settled, or its creator is gone.
                Some(row) if row.state == Some(PENDING) && !is_abandoned(row, now) => {
                    if pause.wait().await.is_break() {
                        return Ok(Taking::Busy);
                    }
                    continue;
                }
                Some(row) if row.state == Some(KEPT) && row.keeper().is_none() => {
                    return Err(corrupt(TABLE, &"a kept name without its keeper"));
                }
                Some(row) => row.keeper(),
            };
            if keeper.is_some_and(|keeper| keeper.owner != owner) && !takes_kept {
                return Ok(Taking::Refused);
            }
            let last = keeper.map(|keeper| i64::from(keeper.last.0));
            // Until a link has it, it stays kept for its keeper.
            let kept_for = keeper.map_or(owner, |keeper| keeper.owner);
            if self.claim(&name, kept_for, now, claim, last, row.as_ref()).await? {
                let revision = keeper.map_or(Revision::FIRST, |keeper| keeper.last.next());
                return Ok(Taking::Taken(TakenName { name, owner, claim, revision, kept: keeper }));
            }
        }
    }

    /// A name that an earlier attempt with the claim `ours` has taken, or has set to its link.
    async fn taken_before(
        &self,
        row: &NameRow,
        link: &Link,
        name: LinkName,
        ours: Uuid,
    ) -> Result<Option<TakenName>, StoreError> {
        let owner = link.owner;
        if row.state == Some(PENDING) && row.claim == Some(ours) {
            let kept = row.keeper();
            let revision = kept.map_or(Revision::FIRST, |keeper| keeper.last.next());
            return Ok(Some(TakenName { name, owner, claim: ours, revision, kept }));
        }
        let Some(id) = row.live()? else { return Ok(None) };
        let statement = &self.cluster.statements.link_claim;
        let claim = self.cluster.cql.read_one::<(Option<Uuid>,)>(statement, (id.as_str(),)).await?;
        if claim != Some((Some(ours),)) {
            return Ok(None);
        }
        let revision = row.revision.and_then(|revision| u32::try_from(revision).ok()).map_or(Revision::FIRST, Revision);
        Ok(Some(TakenName { name, owner, claim: ours, revision, kept: None }))
    }

    /// For whom a name is kept whose link is deleted, though its row does not tell it yet: whoever deleted the link
    /// stopped in between. `None` if the link has the name.
    async fn keeper_by_remains(&self, row: &NameRow, name: &LinkName) -> Result<Option<NameKeeper>, StoreError> {
        let Some(id) = row.live()? else { return Ok(None) };
        Ok(RemainsRow::read(&self.cluster, id).await?.and_then(|remains| remains.keeper(id, name)))
    }

    /// Whether a link has its name. Not so if its creation was not brought to an end, or was overtaken.
    pub async fn leads_to(&self, link: &Link) -> Result<bool, StoreError> {
        let name = link.name();
        if name == LinkName::from(link.id) {
            return Ok(true);
        }
        let row = self.read(&name).await?;
        Ok(row.map(|row| row.live()).transpose()?.flatten() == Some(link.id))
    }

    /// Returns whether the name is ours now.
    async fn claim(
        &self,
        name: &LinkName,
        owner: KeyId,
        now: Timestamp,
        claim: Uuid,
        last: Option<i64>,
        row: Option<&NameRow>,
    ) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let attempt = || async {
            let (name, since) = (name.as_str(), timestamp(now));
            match row {
                None => cql.lwt(&statements.take_link_name, (DOMAIN, name, owner.0, PENDING, last, claim, since)).await,
                Some(row) => {
                    let values = (owner.0, PENDING, last, claim, since, DOMAIN, name, row.claim);
                    cql.lwt(&statements.retake_link_name, values).await
                }
            }
        };
        Ok(cql.settled(attempt, || self.settle(name, claim, row.and_then(|row| row.claim))).await?)
    }

    /// Sets a name to its link; `false` if the creator was overtaken.
    pub async fn set_live(&self, taken: &TakenName, id: ShortId) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let next = Uuid::new_v4();
        let values = (id.as_str(), taken.owner.0, LIVE, i64::from(taken.revision.0), next);
        let (link, owner, state, revision, next_claim) = values;
        let attempt = || {
            let values = (link, owner, state, revision, next_claim, DOMAIN, taken.name.as_str(), taken.claim);
            cql.lwt(&statements.set_link_name, values)
        };
        let settle = || async {
            let row = self.read_settled(&taken.name).await?;
            // Only this creation sets the name to its link.
            let is_live = row.as_ref().is_some_and(|row| row.state == Some(LIVE) && row.link.as_deref() == Some(link));
            let claim = row.and_then(|row| row.claim);
            Ok(if is_live || claim == Some(next) {
                Some(true)
            } else if claim == Some(taken.claim) {
                None
            } else {
                Some(false)
            })
        };
        Ok(cql.settled(attempt, settle).await?)
    }

    /// Gives a name back, because its link was not created.
    pub async fn free(&self, taken: &TakenName) -> Result<(), StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let (name, claim) = (taken.name.as_str(), taken.claim);
        let done = match taken.kept {
            // After its claim is gone, the statement changes nothing more.
            None => self.cluster.until_closed(|| cql.lwt(&statements.free_link_name, (DOMAIN, name, claim))).await,
            Some(NameKeeper { owner, last }) => {
                let next = Uuid::new_v4();
                let values = (None::<&str>, owner.0, KEPT, i64::from(last.0), next, DOMAIN, name, claim);
                self.cluster.until_closed(|| cql.lwt(&statements.set_link_name, values)).await
            }
        };
        done.map(drop)
    }

    /// Gives back a name that an attempt with the claim `ours` may have taken for a link that was not created.
    pub async fn free_if_taken(&self, link: &Link, name: LinkName, ours: Uuid) -> Result<(), StoreError> {
        let Some(row) = self.read(&name).await? else { return Ok(()) };
        match self.taken_before(&row, link, name, ours).await? {
            Some(taken) => self.free(&taken).await,
            None => Ok(()),
        }
    }

    /// Keeps the name of a link that is deleted for its owner.
    pub async fn keep(&self, name: &LinkName, id: ShortId, owner: KeyId, last: Revision) -> Result<(), StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        loop {
            let Some(row) = self.read_settled(name).await? else { return Ok(()) };
            if row.live()? != Some(id) {
                return Ok(());
            }
            let next = Uuid::new_v4();
            let values = (None::<&str>, owner.0, KEPT, i64::from(last.0), next, DOMAIN, name.as_str(), row.claim);
            let attempt = || cql.lwt(&statements.set_link_name, values);
            if cql.settled(attempt, || self.settle(name, next, row.claim)).await? {
                return Ok(());
            }
        }
    }

    /// Writes the name of an imported link; `false` if the name has another row.
    pub async fn import_live(&self, name: &LinkName, link: &Link, claim: Uuid) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let revision = i64::from(link.revision.0);
        let values = (DOMAIN, name.as_str(), link.id.as_str(), link.owner.0, LIVE, revision, claim);
        let attempt = || cql.lwt(&statements.import_link_name, values);
        Ok(cql.settled(attempt, || self.settle(name, claim, None)).await?)
    }

    /// Writes a kept name of an import; `false` if the name has another row.
    pub async fn import_kept(&self, name: &LinkName, owner: KeyId, last: Revision) -> Result<bool, StoreError> {
        let Cluster { cql, statements, .. } = &*self.cluster;
        let revision = i64::from(last.0);
        // The same at every attempt: a kept name has no claim of its own.
        let claim = owner.0;
        let values = (DOMAIN, name.as_str(), None::<&str>, owner.0, KEPT, revision, claim);
        let attempt = || cql.lwt(&statements.import_link_name, values);
        Ok(cql.settled(attempt, || self.settle(name, claim, None)).await?)
    }

    async fn read_settled(&self, name: &LinkName) -> Result<Option<NameRow>, CqlError> {
        let statement = &self.cluster.statements.link_name_settled;
        self.cluster.cql.read_one(statement, (DOMAIN, name.as_str())).await
    }

    /// Whether the row has our claim; `None` if it has the one before.
    async fn settle(&self, name: &LinkName, ours: Uuid, before: Option<Uuid>) -> Result<Option<bool>, CqlError> {
        let now = self.read_settled(name).await?.and_then(|row| row.claim);
        Ok(if now == Some(ours) {
            Some(true)
        } else if now == before {
            None
        } else {
            Some(false)
        })
    }
}

/// Whether the creation that has a name is so old that its creator is gone.
fn is_abandoned(row: &NameRow, now: Timestamp) -> bool {
    row.is_pending_since_before(now, PENDING_FOR)
}

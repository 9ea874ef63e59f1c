//! Links: an LWT takes the short id, then the link is counted in the month.
//!
//! In this order a crash in between leaves a link that no client knows, and never uses up quota without a link.
//!
//! A link that was inserted and is not counted is removed except for its id and its claim. Without the row, an insert
//! that the network delivers late would be applied.

use std::sync::Arc;

use futures_util::future::try_join;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use uuid::Uuid;

use super::cluster::Cluster;
use super::failure_runs::FailureRuns;
use super::in_use::InUse;
use super::link_feed::LinkFeed;
use super::link_lists::LinkListTables;
use super::link_names::{CqlLinkNames, TakenName, Taking, WantedName, busy};
use super::link_quota::{CountedLinks, LinkQuotas};
use super::link_remains::{NameKeeper, RemainsRow};
use super::link_times::LinkTimesTable;
use super::outcome::CqlError;
use crate::caller::{CallerGuard, CallerState};
use crate::domain::link::{Link, LinkName, LinkOptions, Revision, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::records::links::{LinkRow, NewLinkRow};
use crate::store::{CreateLinkError, ExpiredLink, LinkListPage, LinkListQuery, StoreError};

/// Concurrent creations and changes of links.
const MOST_UNDER_WAY: u32 = 1_024;
/// Names without a creation under way whose lock is kept.
const MAX_IDLE_NAMES: usize = 1_024;

/// Links, and the month's count of each key's.
pub struct CqlLinks {
    pub(super) cluster: Arc<Cluster>,
    /// The monthly counts.
    pub quotas: LinkQuotas,
    pub(super) names: CqlLinkNames,
    pub(super) feed: Arc<LinkFeed>,
    pub(super) times: LinkTimesTable,
    pub(super) failure_runs: Arc<FailureRuns>,
    pub(super) lists: Arc<LinkListTables>,
    /// One creation of a name at a time in this process: LWTs of many at once on one row time out.
    names_under_way: InUse<LinkName, Mutex<()>, MAX_IDLE_NAMES>,
    under_way: Arc<Semaphore>,
}

/// The error of a creation that has lost its name.
pub(super) fn name_taken_over() -> StoreError {
    StoreError::Unavailable("another creation has taken over the name".into())
}

/// The error of work that was given up with its caller.
pub(super) fn cancelled() -> StoreError {
    StoreError::Unavailable("its caller was cancelled".into())
}

impl CqlLinks {
    pub fn new(cluster: &Arc<Cluster>, feed: &Arc<LinkFeed>, failure_runs: &Arc<FailureRuns>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            quotas: LinkQuotas::new(cluster),
            names: CqlLinkNames::new(cluster),
            feed: Arc::clone(feed),
            times: LinkTimesTable::new(cluster),
            failure_runs: Arc::clone(failure_runs),
            lists: Arc::new(LinkListTables::new(cluster)),
            names_under_way: InUse::default(),
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
        }
    }

    /// Waits until no creation or change is under way.
    pub(super) async fn end(&self) {
        // The semaphore is never closed.
        let _ = self.under_way.acquire_many(MOST_UNDER_WAY).await;
    }

    /// Does `work` to its end even if its caller is cancelled; gives up waiting for it after the cluster's patience.
    pub(super) async fn run_to_completion<R, E, F>(&self, work: F) -> Result<R, E>
    where
        R: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let unavailable = |reason: &str| StoreError::Unavailable(reason.into());
        // While the cluster is unreachable, these are used up, and then nothing begins.
        let under_way = Arc::clone(&self.under_way).try_acquire_owned();
        let under_way = under_way.map_err(|_| unavailable("too many creations and changes are under way"))?;
        let work = Box::pin(work);
        let working = tokio::spawn(async move {
            let done = work.await;
            drop(under_way);
            done
        });
        match tokio::time::timeout(self.cluster.cql.patience(), working).await {
            Ok(Ok(done)) => done,
            Ok(Err(panicked)) => Err(unavailable(&panicked.to_string()).into()),
            Err(_) => Err(unavailable("the cluster did not settle it in time").into()),
        }
    }

    /// Creates a link. The creation completes or is undone even if its caller is cancelled.
    pub(super) async fn make_link(self: &Arc<Self>, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        if link.slug.is_some() || link.options != LinkOptions::default() {
            self.feed.check_all_nodes_know_changes()?;
        }
        let link = Link { revision: Revision::FIRST, ..link };
        let alone = match link.slug {
            None => None,
            Some(slug) => Some(self.alone_with(slug).await?),
        };
        let (_guard, caller) = CallerGuard::new();
        let store = Arc::clone(self);
        self.run_to_completion(async move {
            let _alone = alone;
            let made = match link.slug {
                None => store.make_and_count(&link, limit, &caller).await.map(|(count, _)| count),
                Some(slug) => Box::pin(store.make_with_slug(link.clone(), slug, limit, &caller)).await,
            };
            if !caller.is_waiting() {
                // Its caller may have looked the name up meanwhile.
                store.feed.report_here(link.name(), link.id);
            }
            made
        })
        .await
    }

    /// Waits until no other creation of this name is under way in this process.
    pub(super) async fn alone_with(&self, name: LinkName) -> Result<OwnedMutexGuard<()>, StoreError> {
        let lock = self.names_under_way.of(name, |_| Mutex::default()).lock_owned();
        tokio::time::timeout(self.cluster.cql.patience(), lock).await.map_err(|_| busy())
    }

    /// Returns the month's count with the link, and the claim in its row.
    async fn make_and_count(
        &self,
        link: &Link,
        limit: MonthlyLimit,
        caller: &CallerState,
    ) -> Result<(u64, Uuid), CreateLinkError> {
        let quota = self.quotas.of(link.owner, link.created_at.month());
        let exceeded = |current| CreateLinkError::QuotaExceeded { limit: limit.unwrap_or(current), current };
        let _place = self.quotas.enter(&quota, limit).await?.map_err(exceeded)?;
        let inserting = quota.inserting();
        let claim = self.insert_new(link, None).await?.ok_or(CreateLinkError::NameTaken)?;
        match self.quotas.count(&quota, 1, limit, caller, Some(inserting)).await? {
            CountedLinks::First { counted: 0, used } => {
                self.remove_link(link, claim).await?;
                Err(exceeded(used))
            }
            CountedLinks::First { used, .. } => Ok((used, claim)),
            CountedLinks::Abandoned => {
                self.remove_link(link, claim).await?;
                Err(cancelled().into())
            }
        }
    }

    /// Inserts a new link that is not counted yet. Returns the claim in its row; `None` if its id was used before, unless
    /// with the claim `ours`.
    pub(super) async fn insert_new(&self, link: &Link, ours: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        try_join(self.times.put_expiry(link), self.lists.put_gathered(link)).await?;
        self.insert_indexed(link, ours).await
    }

    /// Puts links into the indexes that must have them before they are inserted: their lists, and those of expiries.
    pub(super) async fn put_in_indexes(&self, links: &[Link]) -> Result<(), StoreError> {
        let expiries = self.cluster.all(links, |link| self.times.put_expiry(link));
        try_join(expiries, self.lists.put(links)).await.map(drop)
    }

    /// Inserts a new link that is in its indexes.
    pub(super) async fn insert_indexed(&self, link: &Link, ours: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let claim = ours.unwrap_or_else(Uuid::new_v4);
        let row = NewLinkRow::new(link, claim)?;
        let inserted = self.cluster.until_closed(|| async { self.insert_link(link, &row, claim).await }).await?;
        Ok(inserted.then_some(claim))
    }

    /// Creates a link with a chosen name.
    async fn make_with_slug(
        &self,
        link: Link,
        slug: LinkName,
        limit: MonthlyLimit,
        caller: &CallerState,
    ) -> Result<u64, CreateLinkError> {
        let mut kept = None;
        if let Some(id) = slug.as_id() {
            // The row of the id settles who has the name, if there never was a link with it. Where there is one, no link is
            // inserted, so none is listed.
            let made = if self.link_claim(id).await.map_err(StoreError::from)?.is_some() {
                self.check_quota(&link, limit).await?;
                Err(CreateLinkError::NameTaken)
            } else {
                let with_own_id = Link { id, ..link.clone() };
                self.make_and_count(&with_own_id, limit, caller).await
            };
            match made {
                Err(CreateLinkError::NameTaken) => kept = self.kept_by_id(id, &slug).await?,
                made => {
                    // Also if it was refused: its row was there for a moment, and another node may have the link in memory.
                    self.feed.append(slug, id).await?;
                    return made.map(|(count, _)| count);
                }
            }
        }
        self.check_quota(&link, limit).await?;
        let wanted = WantedName { kept, takes_kept: false, repeated: None };
        let taken = match self.names.take(&link, slug, wanted, self.cluster.cql.patience()).await? {
            Taking::Taken(taken) => taken,
            Taking::Refused => return Err(CreateLinkError::NameTaken),
            Taking::Busy => return Err(busy().into()),
        };
        let link = Link { revision: taken.revision, ..link };
        let (count, claim) = match self.make_and_count(&link, limit, caller).await {
            Ok(made) => made,
            Err(error) => {
                // If it is `NameTaken`, the generated id is taken: the caller draws another one.
                self.names.free(&taken).await?;
                return Err(error);
            }
        };
        if self.name_it(&link, &taken, claim).await? { Ok(count) } else { Err(name_taken_over().into()) }
    }

    /// Refuses a creation that the quota does not allow before its name is looked at.
    async fn check_quota(&self, link: &Link, limit: MonthlyLimit) -> Result<(), CreateLinkError> {
        let quota = self.quotas.of(link.owner, link.created_at.month());
        let place = self.quotas.enter(&quota, limit).await?;
        let exceeded = |current| CreateLinkError::QuotaExceeded { limit: limit.unwrap_or(current), current };
        place.map(drop).map_err(exceeded)
    }

    /// For whom the row of an id that was used before keeps it as a name. A link that was given up keeps it for nobody:
    /// any key can have it then.
    pub(super) async fn kept_by_id(&self, id: ShortId, name: &LinkName) -> Result<Option<NameKeeper>, CreateLinkError> {
        match RemainsRow::read(&self.cluster, id).await.map_err(StoreError::from)? {
            Some(remains) if remains.is_of_deleted() => {
                let keeper = remains.keeper(id, name);
                // The id of a link that had another name is never the name of a link; if it is a name, this has a row.
                if keeper.is_none() && self.names.read(name).await.map_err(StoreError::from)?.is_none() {
                    return Err(CreateLinkError::NameTaken);
                }
                Ok(keeper)
            }
            Some(RemainsRow { owner: None, .. }) => Ok(None),
            _ => Err(CreateLinkError::NameTaken),
        }
    }

    /// Sets the name of a link that is created and counted; `false` if another creation has taken the name over: then the
    /// link is removed.
    pub(super) async fn name_it(&self, link: &Link, taken: &TakenName, claim: Uuid) -> Result<bool, StoreError> {
        let is_live = self.names.set_live(taken, link.id).await?;
        if is_live {
            self.feed.append(taken.name, link.id).await?;
        } else {
            // No client knows it. It stays counted: a month's count never falls.
            self.remove_link(link, claim).await?;
        }
        Ok(is_live)
    }

    /// Returns whether the id was free and the link has it now.
    pub(super) async fn insert_link(&self, link: &Link, row: &NewLinkRow, claim: Uuid) -> Result<bool, CqlError> {
        let attempt = || async { self.cluster.cql.lwt(&self.cluster.statements.create_link, row).await };
        let settle = || async { Ok(self.link_claim(link.id).await?.map(|there| there == Some(claim))) };
        self.cluster.cql.settled(attempt, settle).await
    }

    /// Removes a link whose creation was not reported to its caller, if it has this claim.
    pub(super) async fn remove_link(&self, link: &Link, claim: Uuid) -> Result<(), StoreError> {
        // The claim stays, so the statement can be sent any number of times.
        let drop_row = || self.cluster.cql.lwt(&self.cluster.statements.drop_link, (link.id.as_str(), claim));
        if self.cluster.until_closed(drop_row).await? {
            // No link ever has its id again.
            if let Err(error) = self.lists.drop_all(link).await {
                tracing::debug!(%error, link = %link.id, "a link that was not made stays in lists, which skip it");
            }
        }
        Ok(())
    }

    /// The claim in the row of a link, if there is a row. What is left of imported links has none.
    pub(super) async fn link_claim(&self, id: ShortId) -> Result<Option<Option<Uuid>>, CqlError> {
        let statement = &self.cluster.statements.link_claim;
        let row = self.cluster.cql.read_one::<(Option<Uuid>,)>(statement, (id.as_str(),)).await?;
        Ok(row.map(|(claim,)| claim))
    }

    /// The link with this name. One read, if the link has its id as its name.
    pub(super) async fn read_link(&self, name: &LinkName) -> Result<Option<Link>, StoreError> {
        if let Some(id) = name.as_id() {
            let statement = &self.cluster.statements.link;
            let Some(row) = self.cluster.cql.read_one::<LinkRow>(statement, (id.as_str(),)).await? else {
                return Ok(None);
            };
            if let Some(link) = row.into_link()? {
                // A path that is the id of a link with another name leads nowhere.
                return Ok(Some(link).filter(|link| link.name() == *name));
            }
        }
        let Some(id) = self.names.read(name).await?.map(|row| row.live()).transpose()?.flatten() else {
            return Ok(None);
        };
        Ok(self.read_by_id(id).await?.filter(|link| link.name() == *name))
    }

    /// A part of a list.
    pub(super) async fn list(&self, query: &LinkListQuery) -> Result<LinkListPage, StoreError> {
        self.lists.read(&self.names, query).await
    }

    pub(super) async fn read_by_id(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let row = self.cluster.cql.read_one::<LinkRow>(&self.cluster.statements.link, (id.as_str(),)).await?;
        row.map_or(Ok(None), LinkRow::into_link)
    }

    /// Drops the note of an expiry, unless the link has it.
    pub(super) async fn forget_expiry(&self, expired: ExpiredLink) -> Result<(), StoreError> {
        let link = self.read_by_id(expired.id).await?;
        if link.as_ref().is_some_and(|link| link.options.expires_at == Some(expired.expires_at)) {
            return Ok(());
        }
        self.times.drop_stale_expiry(expired, link.as_ref()).await
    }
}

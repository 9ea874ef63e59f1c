//! Links: an LWT takes the short id, then the link is counted in the month.
//!
//! In this order a crash in between leaves a link that no client knows, and never uses up quota without a link.
//!
//! A link that was inserted and is not counted is removed except for its id and its claim. Without the row, an insert
//! that the network delivers late would be applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use uuid::Uuid;

use super::cluster::Cluster;
use super::link_quota::{CountedLink, LinkQuotas};
use super::outcome::CqlError;
use crate::domain::link::{Link, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::records::links::{LinkRow, NewLinkRow};
use crate::store::{CreateLinkError, StoreError};

/// Concurrent creations of links.
const MOST_CREATIONS: u32 = 1_024;

/// Links, and the month's count of each key's.
pub struct CqlLinks {
    cluster: Arc<Cluster>,
    /// The monthly counts.
    pub quotas: LinkQuotas,
    creations: Arc<Semaphore>,
}

/// Whether a caller waits for a creation.
struct Awaited(Arc<AtomicBool>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CqlLinks {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        let creations = Arc::new(Semaphore::new(MOST_CREATIONS as usize));
        Self { cluster: Arc::clone(cluster), quotas: LinkQuotas::new(cluster), creations }
    }

    /// Waits until no creation is under way.
    pub(super) async fn end(&self) {
        // The semaphore is never closed.
        let _ = self.creations.acquire_many(MOST_CREATIONS).await;
    }

    /// Creates a link. The creation completes or is undone even if its caller is cancelled.
    pub(super) async fn make_link(self: &Arc<Self>, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        let unavailable = |reason: &str| StoreError::Unavailable(reason.into());
        // While the cluster is unreachable, these are used up, and then no creation begins.
        let under_way = Arc::clone(&self.creations).try_acquire_owned();
        let under_way = under_way.map_err(|_| unavailable("too many creations are under way"))?;
        let is_awaited = Arc::new(AtomicBool::new(true));
        let awaited = Awaited(Arc::clone(&is_awaited));
        let store = Arc::clone(self);
        let making = tokio::spawn(async move {
            let made = store.make_and_count(&link, limit, &is_awaited).await;
            drop(under_way);
            made
        });
        let made = tokio::time::timeout(self.cluster.cql.patience(), making).await;
        drop(awaited);
        match made {
            Ok(Ok(made)) => made,
            Ok(Err(panicked)) => Err(unavailable(&panicked.to_string()).into()),
            Err(_) => Err(unavailable("the cluster did not settle it in time").into()),
        }
    }

    async fn make_and_count(
        &self,
        link: &Link,
        limit: MonthlyLimit,
        is_awaited: &Arc<AtomicBool>,
    ) -> Result<u64, CreateLinkError> {
        let quota = self.quotas.of(link.owner, link.created_at.month());
        let exceeded = |current| CreateLinkError::QuotaExceeded { limit: limit.unwrap_or(current), current };
        let place = self.quotas.enter(&quota, limit).await?;
        let _place = place.map_err(exceeded)?;
        let claim = Uuid::new_v4();
        let row = NewLinkRow::new(link, claim)?;
        if !self.cluster.until_closed(|| async { self.insert_link(link, &row, claim).await }).await? {
            return Err(CreateLinkError::NameTaken);
        }
        match self.quotas.count(&quota, limit, is_awaited).await? {
            CountedLink::As(count) => Ok(count),
            CountedLink::Abandoned => {
                self.remove_link(link.id, claim).await?;
                Err(StoreError::Unavailable("its caller was cancelled".into()).into())
            }
            CountedLink::Refused(current) => {
                self.remove_link(link.id, claim).await?;
                Err(exceeded(current))
            }
        }
    }

    /// Returns whether the id was free and the link has it now.
    pub(super) async fn insert_link(&self, link: &Link, row: &NewLinkRow, claim: Uuid) -> Result<bool, CqlError> {
        let attempt = || async { self.cluster.cql.lwt(&self.cluster.statements.create_link, row).await };
        let settle = || async { Ok(self.link_claim(link.id).await?.map(|there| there == claim)) };
        self.cluster.cql.settled(attempt, settle).await
    }

    /// Removes a link whose creation was not reported to its caller.
    async fn remove_link(&self, id: ShortId, claim: Uuid) -> Result<(), StoreError> {
        // The claim stays, so the statement can be sent any number of times.
        self.cluster
            .until_closed(|| self.cluster.cql.lwt(&self.cluster.statements.drop_link, (id.as_str(), claim)))
            .await
            .map(drop)
    }

    async fn link_claim(&self, id: ShortId) -> Result<Option<Uuid>, CqlError> {
        let row =
            self.cluster.cql.read_one::<(Option<Uuid>,)>(&self.cluster.statements.link_claim, (id.as_str(),)).await?;
        Ok(row.and_then(|(claim,)| claim))
    }

    pub(super) async fn read_link(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let row = self.cluster.cql.read_one::<LinkRow>(&self.cluster.statements.link, (id.as_str(),)).await?;
        row.map_or(Ok(None), LinkRow::into_link)
    }
}

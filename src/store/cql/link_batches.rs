//! Links that are created together: first all rows are inserted, then one LWT counts those that were inserted.
//!
//! The count of a month never falls. Where the quota ends among the links of a call, the rows behind its end are removed
//! again, as that of a single creation that finds no place.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::link_names::TakenName;
use super::link_quota::CountedLinks;
use super::links::{Awaited, CqlLinks, cancelled};
use crate::domain::link::{Link, LinkName, LinkOptions, Revision, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

/// Links of one call that are inserted, named or removed at once: a call must not flood the cluster.
const LINKS_AT_ONCE: usize = 32;

/// How long a link waits for a creation on another node that has its name. Meanwhile the names of the links before it wait,
/// and two calls with the same names may wait for each other.
const NAME_PATIENCE: Duration = Duration::from_millis(500);

/// A link that is inserted and not counted yet.
pub(super) struct InsertedLink {
    pub link: Link,
    pub claim: Uuid,
    /// Its name, if that is not its id.
    pub name: Option<TakenName>,
}

/// How the quota ends for links that find no room.
#[derive(Clone, Copy)]
pub(super) struct QuotaEnd {
    pub limit: u64,
    pub used: u64,
}

impl QuotaEnd {
    pub fn refusal(self) -> CreateLinkError {
        CreateLinkError::QuotaExceeded { limit: self.limit, current: self.used }
    }

    /// A link behind the first that the quota refuses is refused by the quota, too, also if its name is taken.
    pub fn refuse_behind(self, made: &mut [Result<ShortId, CreateLinkError>]) {
        let is_refused =
            |made: &Result<ShortId, CreateLinkError>| matches!(made, Err(CreateLinkError::QuotaExceeded { .. }));
        for link in made.iter_mut().skip_while(|made| !is_refused(made)) {
            if let Err(CreateLinkError::NameTaken) = link {
                *link = Err(self.refusal());
            }
        }
    }
}

impl CqlLinks {
    /// Creates links. All creations are completed or undone even if the caller is cancelled.
    pub(super) async fn make_links(
        self: &Arc<Self>,
        new: NewLinks,
        limit: MonthlyLimit,
    ) -> Result<MadeLinks, StoreError> {
        if new.links.iter().any(|link| link.slug.is_some() || link.options != LinkOptions::default()) {
            self.feed.check_all_nodes_know_changes()?;
        }
        let (_awaited, is_awaited) = Awaited::new();
        let store = Arc::clone(self);
        self.to_its_end(async move {
            let names: Vec<_> = new.links.iter().map(|link| (link.name(), link.id)).collect();
            let made = store.make_all(new, limit, &is_awaited).await;
            if !is_awaited.load(Ordering::Acquire) {
                // Its caller may have looked the names up meanwhile.
                for (name, id) in names {
                    store.feed.report_here(name, id);
                }
            }
            made
        })
        .await
    }

    async fn make_all(
        &self,
        new: NewLinks,
        limit: MonthlyLimit,
        is_awaited: &Arc<AtomicBool>,
    ) -> Result<MadeLinks, StoreError> {
        let Some(first) = new.links.first() else { return Ok(MadeLinks::default()) };
        // Before it enters the quota: who is in the quota and waits for a name would keep others out that have the name.
        let _alone = self.lock_names(&new.links).await?;
        if !is_awaited.load(Ordering::Acquire) {
            return Err(cancelled());
        }
        let quota = self.quotas.of(first.owner, first.created_at.month());
        let _place = match self.quotas.enter(&quota, limit).await? {
            Ok(place) => place,
            Err(current) => return Ok(MadeLinks::refused(new.links.len(), limit.unwrap_or(current), current)),
        };
        let room = limit.map(|limit| limit.saturating_sub(quota.last_seen()));
        let inserted = self.insert_all(&new, room, None).await;
        let (begun, count) = (inserted.len(), inserted.iter().filter(|link| link.is_ok()).count() as u64);
        if count == 0 {
            let used = self.quotas.used(first.owner, first.created_at.month()).await?;
            let end = QuotaEnd { limit: limit.unwrap_or(used), used };
            return Ok(MadeLinks { links: self.settle_all(inserted, 0, end).await, used });
        }
        let (counted, used) = match self.quotas.count(&quota, count, limit, is_awaited).await? {
            CountedLinks::First { counted, used } => (counted, used),
            CountedLinks::Abandoned => {
                self.settle_all(inserted, 0, QuotaEnd { limit: 0, used: 0 }).await;
                return Err(cancelled());
            }
        };
        let end = QuotaEnd { limit: limit.unwrap_or(used), used };
        let mut made = self.settle_all(inserted, counted, end).await;
        // No more were begun than there is room for.
        made.resize_with(new.links.len(), || Err(end.refusal()));
        if counted < count || begun < new.links.len() {
            end.refuse_behind(&mut made);
        }
        Ok(MadeLinks { links: made, used })
    }

    /// Waits until no other creation in this process has one of the names. All callers lock names in the same order.
    pub(super) async fn lock_names(&self, links: &[Link]) -> Result<Vec<OwnedMutexGuard<()>>, StoreError> {
        let mut names: Vec<LinkName> = links.iter().filter_map(|link| link.slug).collect();
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        let mut locked = Vec::with_capacity(names.len());
        for name in names {
            locked.push(self.alone_with(name).await?);
        }
        Ok(locked)
    }

    /// Inserts links in order until `room` of them are inserted, or a few more.
    pub(super) async fn insert_all(
        &self,
        new: &NewLinks,
        room: Option<u64>,
        claim: Option<Uuid>,
    ) -> Vec<Result<InsertedLink, CreateLinkError>> {
        let mut inserted: Vec<Result<InsertedLink, CreateLinkError>> = Vec::with_capacity(new.links.len());
        let mut slugs = HashSet::new();
        for group in new.links.chunks(LINKS_AT_ONCE) {
            let mut inserting = Vec::with_capacity(group.len());
            for (place, link) in (inserted.len()..).zip(group) {
                // The first link with a slug has it, or is refused because of it.
                let is_repeated = link.slug.is_some_and(|slug| !slugs.insert(slug));
                inserting.push(self.insert_one(link, is_repeated, new.spare_ids_of(place), claim));
            }
            inserted.extend(join_all(inserting).await);
            let count = inserted.iter().filter(|link| link.is_ok()).count() as u64;
            if room.is_some_and(|room| count >= room) {
                break;
            }
        }
        inserted
    }

    async fn insert_one(
        &self,
        link: &Link,
        is_repeated: bool,
        spare_ids: &[ShortId],
        ours: Option<Uuid>,
    ) -> Result<InsertedLink, CreateLinkError> {
        if is_repeated {
            return Err(CreateLinkError::NameTaken);
        }
        let link = Link { revision: Revision::FIRST, ..link.clone() };
        let Some(slug) = link.slug else {
            let (link, claim) = self.insert_with_spare(link, spare_ids, ours).await?;
            return Ok(InsertedLink { link, claim, name: None });
        };
        let mut kept = None;
        if let Some(id) = slug.as_id() {
            // The row of the id settles who has the name, if there never was a link with it.
            let with_own_id = Link { id, ..link.clone() };
            if let Some(claim) = self.insert_new(&with_own_id, ours).await? {
                return Ok(InsertedLink { link: with_own_id, claim, name: None });
            }
            kept = self.kept_by_id(id, &slug).await?;
        }
        let taken = self.names.take(&link, slug, kept, ours, NAME_PATIENCE).await?.ok_or(CreateLinkError::NameTaken)?;
        let link = Link { revision: taken.revision, ..link };
        match self.insert_with_spare(link, spare_ids, ours).await {
            Ok((link, claim)) => Ok(InsertedLink { link, claim, name: Some(taken) }),
            Err(error) => {
                self.names.free(&taken).await?;
                Err(error)
            }
        }
    }

    async fn insert_with_spare(
        &self,
        link: Link,
        spare_ids: &[ShortId],
        ours: Option<Uuid>,
    ) -> Result<(Link, Uuid), CreateLinkError> {
        for id in std::iter::once(link.id).chain(spare_ids.iter().copied()) {
            let link = Link { id, ..link.clone() };
            if let Some(claim) = self.insert_new(&link, ours).await? {
                return Ok((link, claim));
            }
        }
        Err(CreateLinkError::NameTaken)
    }

    /// Sets the names of the first `counted` links, and removes the others.
    pub(super) async fn settle_all(
        &self,
        inserted: Vec<Result<InsertedLink, CreateLinkError>>,
        counted: u64,
        end: QuotaEnd,
    ) -> Vec<Result<ShortId, CreateLinkError>> {
        let mut left = counted;
        let mut settling = Vec::with_capacity(inserted.len());
        for link in inserted {
            let is_counted = link.is_ok() && left > 0;
            left -= u64::from(is_counted);
            settling.push(self.settle_one(link, is_counted, end));
        }
        stream::iter(settling).buffered(LINKS_AT_ONCE).collect().await
    }

    async fn settle_one(
        &self,
        inserted: Result<InsertedLink, CreateLinkError>,
        is_counted: bool,
        end: QuotaEnd,
    ) -> Result<ShortId, CreateLinkError> {
        let InsertedLink { link, claim, name } = inserted?;
        if !is_counted {
            self.remove_link(link.id, claim).await?;
            if let Some(name) = name {
                self.names.free(&name).await?;
            }
            return Err(end.refusal());
        }
        match (name, link.slug) {
            (Some(name), _) => self.name_it(&link, &name, claim).await?,
            (None, Some(slug)) => self.feed.append(slug, link.id).await?,
            (None, None) => {}
        }
        Ok(link.id)
    }
}

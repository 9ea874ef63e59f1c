//! Links that are created together: first all rows are inserted, then one LWT counts those that were inserted.
//!
//! The count of a month never falls. Where the quota ends among the links of a call, the rows behind its end are removed
//! again, as that of a single creation that finds no place.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::link_names::{RepeatedClaim, TakenName, Taking, WantedName, busy};
use super::link_quota::CountedLinks;
use super::links::{CqlLinks, cancelled, name_taken_over};
use crate::caller::{CallerGuard, CallerState};
use crate::domain::link::{Link, LinkName, LinkOptions, Revision, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

/// Links of one call that are inserted, named or removed at once: a call must not flood the cluster.
pub(super) const LINKS_AT_ONCE: usize = 32;

/// How long a link waits for a creation on another node that has its name. Meanwhile the names of the links before it wait,
/// and two calls with the same names may wait for each other.
pub(super) const NAME_PATIENCE: Duration = Duration::from_millis(500);

/// A link that is inserted and not counted yet.
pub(super) struct InsertedLink {
    pub link: Link,
    pub claim: Uuid,
    /// Its name, if that is not its id.
    pub name: Option<TakenName>,
}

/// Why a link was not inserted.
pub(super) struct NotInserted {
    pub error: CreateLinkError,
    /// Its name may have been taken for it all the same.
    pub may_have_name: bool,
}

impl From<CreateLinkError> for NotInserted {
    fn from(error: CreateLinkError) -> Self {
        Self { error, may_have_name: false }
    }
}

impl From<StoreError> for NotInserted {
    fn from(error: StoreError) -> Self {
        CreateLinkError::from(error).into()
    }
}

impl NotInserted {
    fn with_name(error: impl Into<CreateLinkError>) -> Self {
        Self { error: error.into(), may_have_name: true }
    }
}

/// The links of a call up to where it has ended.
pub(super) type Inserted = Vec<Result<InsertedLink, NotInserted>>;

/// The outcome of a link; an error of the store: it is not known, and can be settled again.
pub(super) type Settled = Result<Result<ShortId, CreateLinkError>, StoreError>;

/// What the other links of a call mean for one of them.
struct PlaceInCall {
    /// A link before it has the same slug.
    has_name_of_another: bool,
    /// It was put into its indexes with the links around it, if it has no slug.
    is_indexed: bool,
    /// It may have a name that is kept for another key.
    takes_kept: bool,
    /// How long it waits for its name.
    patience: Duration,
}

/// A link as its creation writes it.
fn as_new(link: &Link) -> Link {
    Link { revision: Revision::FIRST, ..link.clone() }
}

/// How many links are inserted.
pub(super) fn count_of(inserted: &Inserted) -> u64 {
    inserted.iter().filter(|link| link.is_ok()).count() as u64
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

    /// The outcome of all `count` links of a call. `counted` of those that were inserted are counted; no more than those in
    /// `made` were begun.
    ///
    /// A link behind the first that the quota refuses is refused by the quota, too, also if its name is taken.
    pub fn in_order(
        self,
        mut made: Vec<Result<ShortId, CreateLinkError>>,
        counted: u64,
        count: usize,
    ) -> Vec<Result<ShortId, CreateLinkError>> {
        // No more were begun than there is room for.
        made.resize_with(count, || Err(self.refusal()));
        let is_full_before = counted == 0 && self.used >= self.limit;
        let is_refused =
            |made: &Result<ShortId, CreateLinkError>| matches!(made, Err(CreateLinkError::QuotaExceeded { .. }));
        for link in made.iter_mut().skip_while(|made| !is_full_before && !is_refused(made)) {
            if let Err(CreateLinkError::NameTaken) = link {
                *link = Err(self.refusal());
            }
        }
        made
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
        let (_guard, caller) = CallerGuard::new();
        let store = Arc::clone(self);
        self.run_to_completion(async move {
            let names: Vec<_> = new.links.iter().map(|link| (link.name(), link.id)).collect();
            let made = store.make_all(new, limit, &caller).await;
            if !caller.is_waiting() {
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
        caller: &CallerState,
    ) -> Result<MadeLinks, StoreError> {
        let Some(first) = new.links.first() else { return Ok(MadeLinks::default()) };
        // Before it enters the quota: who is in the quota and waits for a name would keep others out that have the name.
        let _alone = self.lock_names(&new.links).await?;
        if !caller.is_waiting() {
            return Err(cancelled());
        }
        let quota = self.quotas.of(first.owner, first.created_at.month());
        let _place = match self.quotas.enter(&quota, limit).await? {
            Ok(place) => place,
            Err(current) => return Ok(MadeLinks::refused(new.links.len(), limit.unwrap_or(current), current)),
        };
        let room = limit.map(|limit| limit.saturating_sub(quota.last_seen()));
        let inserted = self.insert_all(&new, room, None).await;
        let count = count_of(&inserted);
        let (counted, used) = if count == 0 {
            (0, self.quotas.used(first.owner, first.created_at.month()).await?)
        } else {
            match self.quotas.count(&quota, count, limit, caller, None).await? {
                CountedLinks::First { counted, used } => (counted, used),
                CountedLinks::Abandoned => {
                    self.settle_all(inserted, 0, QuotaEnd { limit: 0, used: 0 }).await;
                    return Err(cancelled());
                }
            }
        };
        let end = QuotaEnd { limit: limit.unwrap_or(u64::MAX), used };
        let settled = self.settle_all(inserted, counted, end).await;
        let made = settled.into_iter().map(|made| made.unwrap_or_else(|error| Err(error.into()))).collect();
        Ok(MadeLinks { links: end.in_order(made, counted, new.links.len()), used })
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
        repeated: Option<RepeatedClaim>,
    ) -> Inserted {
        let mut inserted: Inserted = Vec::with_capacity(new.links.len());
        let mut slugs = HashSet::new();
        // No other name of the call waits for that of an only link.
        let patience = if new.links.len() == 1 { self.cluster.cql.patience() } else { NAME_PATIENCE };
        for group in new.links.chunks(LINKS_AT_ONCE) {
            if room.is_some_and(|room| count_of(&inserted) >= room) {
                break;
            }
            // A link with a slug may get another id or revision first. Where a partition is out of reach, each link is put
            // into its indexes alone.
            let without_slug = group.iter().filter(|link| link.slug.is_none()).map(as_new).collect::<Vec<_>>();
            let is_indexed = self.put_in_indexes(&without_slug).await.is_ok();
            let mut inserting = Vec::with_capacity(group.len());
            for (place, link) in (inserted.len()..).zip(group) {
                // The first link with a slug has it, or is refused because of it.
                let has_name_of_another = link.slug.is_some_and(|slug| !slugs.insert(slug));
                let takes_kept = new.takes_kept_names;
                let place_in_call = PlaceInCall { has_name_of_another, is_indexed, takes_kept, patience };
                inserting.push(self.insert_one(link, place_in_call, new.spare_ids_of(place), repeated));
            }
            inserted.extend(join_all(inserting).await);
        }
        inserted
    }

    async fn insert_one(
        &self,
        link: &Link,
        PlaceInCall { has_name_of_another, is_indexed, takes_kept, patience }: PlaceInCall,
        spare_ids: &[ShortId],
        repeated: Option<RepeatedClaim>,
    ) -> Result<InsertedLink, NotInserted> {
        if has_name_of_another {
            return Err(CreateLinkError::NameTaken.into());
        }
        let ours = repeated.map(|repeated| repeated.claim);
        let link = as_new(link);
        let Some(slug) = link.slug else {
            let inserted =
                if is_indexed { self.insert_indexed(&link, ours).await } else { self.insert_new(&link, ours).await };
            let (link, claim) = match inserted? {
                Some(claim) => (link, claim),
                None => self.insert_with_one_of(spare_ids, link, ours).await?,
            };
            return Ok(InsertedLink { link, claim, name: None });
        };
        let mut kept = None;
        if let Some(id) = slug.as_id() {
            // The row of the id settles who has the name, if there never was a link with it. Where there is one, no link is
            // inserted, so none is listed.
            let with_own_id = Link { id, ..link.clone() };
            let claim = match self.link_claim(id).await.map_err(StoreError::from)? {
                None => self.insert_new(&with_own_id, ours).await?,
                Some(there) => there.filter(|there| Some(*there) == ours),
            };
            if let Some(claim) = claim {
                return Ok(InsertedLink { link: with_own_id, claim, name: None });
            }
            kept = self.kept_by_id(id, &slug).await?;
        }
        let wanted = WantedName { kept, takes_kept, repeated };
        let taken = match self.names.take(&link, slug, wanted, patience).await {
            Ok(Taking::Taken(taken)) => taken,
            Ok(Taking::Refused) => return Err(CreateLinkError::NameTaken.into()),
            Ok(Taking::Busy) => return Err(busy().into()),
            Err(error) => return Err(NotInserted::with_name(error)),
        };
        let link = Link { revision: taken.revision, ..link };
        let ids = [&[link.id], spare_ids].concat();
        match self.insert_with_one_of(&ids, link, ours).await {
            Ok((link, claim)) => Ok(InsertedLink { link, claim, name: Some(taken) }),
            // Another attempt of the creation may go on with the name.
            Err(error) if repeated.is_some() => Err(NotInserted::with_name(error)),
            Err(error) => {
                self.names.free(&taken).await.map_err(NotInserted::with_name)?;
                Err(error.into())
            }
        }
    }

    /// Inserts a link with the first of these ids that was not used before.
    async fn insert_with_one_of(
        &self,
        ids: &[ShortId],
        link: Link,
        ours: Option<Uuid>,
    ) -> Result<(Link, Uuid), CreateLinkError> {
        for id in ids {
            let link = Link { id: *id, ..link.clone() };
            if let Some(claim) = self.insert_new(&link, ours).await? {
                return Ok((link, claim));
            }
        }
        Err(CreateLinkError::NameTaken)
    }

    /// Sets the names of the first `counted` links, and removes the others.
    pub(super) async fn settle_all(&self, inserted: Inserted, counted: u64, end: QuotaEnd) -> Vec<Settled> {
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
        inserted: Result<InsertedLink, NotInserted>,
        is_counted: bool,
        end: QuotaEnd,
    ) -> Settled {
        let InsertedLink { link, claim, name } = match inserted {
            Ok(inserted) => inserted,
            Err(NotInserted { error, .. }) => return Ok(Err(error)),
        };
        if !is_counted {
            self.remove_link(&link, claim).await?;
            match (name, link.slug) {
                (Some(name), _) => self.names.free(&name).await?,
                // Its row was there for a moment, and another node may have the link in memory.
                (None, Some(slug)) => self.feed.append(slug, link.id).await?,
                (None, None) => {}
            }
            return Ok(Err(end.refusal()));
        }
        let has_name = match (name, link.slug) {
            (Some(name), _) => self.name_it(&link, &name, claim).await?,
            (None, Some(slug)) => self.feed.append(slug, link.id).await.map(|()| true)?,
            (None, None) => true,
        };
        Ok(if has_name { Ok(link.id) } else { Err(name_taken_over().into()) })
    }
}

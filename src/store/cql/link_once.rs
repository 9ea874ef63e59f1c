//! Links of a request that is done once: as in `link_batches.rs`, with steps that can be done again by another node.
//!
//! Whoever gives up before the month has counted the links gives the key back and removes what it has inserted, or leaves
//! both to the next attempt. Once they are counted, it is always the next attempt that brings it to its end.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::OwnedMutexGuard;

use super::link_batches::{Inserted, InsertedLink, LINKS_AT_ONCE, NAME_PATIENCE, NotInserted, QuotaEnd, count_of};
use super::link_names::{RepeatedClaim, TakenName, Taking, WantedName};
use super::link_quota::{CreationPermit, LinkQuota, LinkQuotas};
use super::link_quota_once::OnceCount;
use super::links::CqlLinks;
use super::once::{CqlOnce, LAST_OF_ROW, OnceRow};
use crate::domain::link::{Link, LinkName, LinkOptions, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::once::{AnswerOfLinks, OnceDone, OnceTicket};
use crate::store::records::once::PlannedLink;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

/// Why an attempt has no answer.
enum AttemptError {
    /// Nothing is left of it: the key is given back.
    Undone(StoreError),
    /// It does not know what it has made: the next attempt finds out.
    Undecided(StoreError),
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        Self::Undecided(error)
    }
}

impl CqlLinks {
    /// Creates the links of a request. It is brought to its end even if its caller is cancelled.
    pub(super) async fn make_links_once(
        self: &Arc<Self>,
        once: &Arc<CqlOnce>,
        ticket: OnceTicket,
        new: NewLinks,
        limit: MonthlyLimit,
        answer: AnswerOfLinks,
    ) -> Result<OnceDone<MadeLinks>, StoreError> {
        let Some(first) = new.links.first() else {
            once.give_up(&ticket).await?;
            return Ok(OnceDone::Done(MadeLinks::default()));
        };
        let has_more = |link: &Link| link.slug.is_some() || link.options != LinkOptions::default();
        if new.links.iter().any(has_more)
            && let Err(error) = self.feed.check_all_nodes_know_changes()
        {
            once.give_up(&ticket).await?;
            return Err(error);
        }
        let quota = self.quotas.of(first.owner, first.created_at.month());
        let (store, once) = (Arc::clone(self), Arc::clone(once));
        self.run_to_completion(async move {
            let attempt = LinkAttempt { store: &store, once: &once, ticket: &ticket, new: &new, limit, quota: &quota };
            let done = match attempt.make(&answer).await {
                Ok(done) => Ok(done),
                Err(AttemptError::Undone(error)) => once.end(&ticket).await.and(Err(error)),
                Err(AttemptError::Undecided(error)) => {
                    once.release(&ticket).await;
                    Err(error)
                }
            };
            for link in &new.links {
                // Its caller may be gone, and may have looked the names up meanwhile.
                store.feed.report_here(link.name(), link.id);
            }
            done
        })
        .await
    }
}

/// An attempt of a request that creates links.
#[derive(Clone, Copy)]
struct LinkAttempt<'a> {
    store: &'a CqlLinks,
    once: &'a CqlOnce,
    ticket: &'a OnceTicket,
    new: &'a NewLinks,
    limit: MonthlyLimit,
    quota: &'a Arc<LinkQuota>,
}

impl LinkAttempt<'_> {
    async fn make(self, answer: &AnswerOfLinks) -> Result<OnceDone<MadeLinks>, AttemptError> {
        let Self { store, once, ticket, new, limit, quota } = self;
        let (_alone, _place, row) = self.enter().await.map_err(|error| self.unbegun(error))?;
        let Some(row) = row else { return Ok(once.replaced(ticket).await?) };
        let (inserted, is_planned) = match row.plan()? {
            Some(plan) => (self.planned(&row, plan).await?, true),
            None => (self.insert().await?, false),
        };
        let count = count_of(&inserted);
        if count == 0 {
            match failure_of(&inserted) {
                None => {}
                // The next attempt goes on with the name. Any other creation would have to wait for it.
                Some((error, true)) => return Err(AttemptError::Undecided(error)),
                Some((error, false)) if self.is_single() => return Err(self.unbegun(error)),
                Some((error, false)) => return self.withdrawn(inserted, error).await,
            }
        } else if !self.is_single() {
            if !is_planned {
                match once.put_plan(ticket, &plan_of(&inserted)).await {
                    Ok(true) => {}
                    Ok(false) => return self.request_taken_over(inserted).await,
                    Err(error) => return self.withdrawn(inserted, error).await,
                }
            }
            // Every later attempt follows the plan.
            self.remove_refused(&inserted).await?;
        }
        let (counted, used) = if count == 0 {
            // Nothing is left of it, whoever has begun it.
            let used = store.quotas.used(quota.owner, quota.month).await.map_err(AttemptError::Undone)?;
            (0, used.max(quota.last_seen()))
        } else {
            match store.quotas.count_once(OnceCount { quota, links: count, limit, once, ticket }).await? {
                Some(counted) => (counted.counted, counted.used),
                None => return self.request_taken_over(inserted).await,
            }
        };
        // Only who has the request removes what it has inserted.
        if counted == 0 {
            if !once.end(ticket).await? {
                return self.request_taken_over(inserted).await;
            }
            self.remove_refused(&inserted).await.map_err(AttemptError::Undone)?;
        }
        let end = QuotaEnd { limit: limit.unwrap_or(u64::MAX), used };
        let settled: Result<Vec<_>, StoreError> = store.settle_all(inserted, counted, end).await.into_iter().collect();
        let made = MadeLinks { links: end.in_order(settled?, counted, new.links.len()), used };
        if counted == 0 {
            return Ok(OnceDone::Done(made));
        }
        if !made.links.iter().any(Result::is_ok) {
            // Other creations have taken over the names.
            once.end(ticket).await?;
            return Ok(OnceDone::Done(made));
        }
        Ok(once.answer(ticket, &answer(&made), made).await?)
    }

    /// A single link needs no plan: it is inserted or not.
    fn is_single(self) -> bool {
        self.new.links.len() == 1
    }

    /// Waits for the names of the links, and reads the request's row; `None`: another attempt has it.
    async fn enter(self) -> Result<(Vec<OwnedMutexGuard<()>>, CreationPermit, Option<OnceRow>), StoreError> {
        let alone = self.store.lock_names(&self.new.links).await?;
        let place = LinkQuotas::acquire_again(self.quota)?;
        let row = self.once.read(&self.ticket.id).await?;
        Ok((alone, place, row.filter(|row| row.holder == Some(self.ticket.holder))))
    }

    /// This attempt has made nothing; one before it may have.
    fn unbegun(self, error: StoreError) -> AttemptError {
        if self.ticket.is_first { AttemptError::Undone(error) } else { AttemptError::Undecided(error) }
    }

    /// Inserts the links that no attempt before has planned.
    async fn insert(self) -> Result<Inserted, AttemptError> {
        let Self { store, ticket, new, limit, quota, .. } = self;
        let room = match limit {
            Some(limit) if ticket.is_first => {
                let used = store.quotas.used_at_least(quota).await.map_err(AttemptError::Undone)?;
                Some(limit.saturating_sub(used))
            }
            // What an attempt before has inserted is found by inserting all again. A single link may be counted already.
            _ => None,
        };
        Ok(store.insert_all(new, room, Some(self.repeated())).await)
    }

    fn repeated(self) -> RepeatedClaim {
        RepeatedClaim { claim: self.ticket.seed.claim, now: self.ticket.now() }
    }

    /// Removes what was inserted of links that are refused, and gives their names back: nobody else would. Another attempt
    /// must not be able to create them any more.
    async fn remove_refused(self, inserted: &Inserted) -> Result<(), StoreError> {
        let Self { store, ticket, new, .. } = self;
        let refused = inserted.iter().enumerate().filter(|(_, link)| match link {
            // The first attempt finds the name taken before it inserts anything.
            Err(NotInserted { error: CreateLinkError::NameTaken, may_have_name }) => !ticket.is_first || *may_have_name,
            // The month may have counted it.
            Err(NotInserted { error: CreateLinkError::Store(_), .. }) => !self.is_single(),
            Ok(_) | Err(NotInserted { error: CreateLinkError::QuotaExceeded { .. }, .. }) => false,
        });
        let claim = ticket.seed.claim;
        // Of two links with one slug, which may be an id, the first may have got it.
        let inserted_ids: HashSet<ShortId> = inserted.iter().flatten().map(|inserted| inserted.link.id).collect();
        let inserted_slugs: HashSet<LinkName> =
            inserted.iter().flatten().filter_map(|inserted| inserted.link.slug).collect();
        let removing: Vec<_> = refused
            .map(async |(place, _)| {
                let link = &new.links[place];
                let own = link.slug.and_then(|slug| slug.as_id());
                let ids = own.into_iter().chain([link.id]).chain(new.spare_ids_of(place).iter().copied());
                for id in ids.filter(|id| !inserted_ids.contains(id)) {
                    store.remove_link(&Link { id, ..link.clone() }, claim).await?;
                }
                match link.slug.filter(|slug| !inserted_slugs.contains(slug)) {
                    Some(slug) => store.names.free_if_taken(link, slug, claim).await,
                    None => Ok(()),
                }
            })
            .collect();
        stream::iter(removing).buffer_unordered(LINKS_AT_ONCE).try_collect().await
    }

    /// The links that an attempt before has inserted.
    async fn planned(self, row: &OnceRow, plan: Vec<PlannedLink>) -> Result<Inserted, StoreError> {
        let inserted = of_plan(self.new, plan, self.ticket)?;
        if row.counted().is_none() {
            let keeping: Vec<_> = inserted.iter().flatten().map(|link| self.keep_name(link)).collect();
            stream::iter(keeping).buffer_unordered(LINKS_AT_ONCE).collect::<Vec<()>>().await;
        }
        Ok(inserted)
    }

    /// Takes the name of a planned link anew, so that no other creation gets it meanwhile. A link whose name is lost is
    /// refused when it is to get it: that it is counted can't be changed any more, because another attempt may count now.
    async fn keep_name(self, inserted: &InsertedLink) {
        let InsertedLink { link, name: Some(planned), .. } = inserted else { return };
        let (kept, repeated) = (planned.keeper(), Some(self.repeated()));
        let wanted = WantedName { kept, takes_kept: self.new.takes_kept_names, repeated };
        let taking = self.store.names.take(link, planned.name, wanted, NAME_PATIENCE).await;
        if let Ok(Taking::Taken(taken)) = taking
            && taken.revision != planned.revision
        {
            // Another link has had it since. What is not set free is free after a while.
            drop(self.store.names.free(&taken).await);
        }
    }

    /// Ends an attempt that no month has counted: as if it had never been begun.
    async fn withdrawn(self, inserted: Inserted, error: StoreError) -> Result<OnceDone<MadeLinks>, AttemptError> {
        if !self.once.end_at_last(self.ticket).await? {
            return self.request_taken_over(inserted).await;
        }
        self.remove_all(inserted).await?;
        Err(AttemptError::Undone(error))
    }

    /// The outcome of an attempt that has lost the request. If the request was ended meanwhile, nobody else knows what this
    /// attempt has inserted since.
    async fn request_taken_over(self, inserted: Inserted) -> Result<OnceDone<MadeLinks>, AttemptError> {
        let row = self.once.row_of(self.ticket).await?;
        // Or else it may have expired, with its answer.
        if row.is_none() && self.ticket.kept_for() > LAST_OF_ROW {
            self.remove_all(inserted).await?;
        }
        let answer = row.and_then(|row| row.answer());
        Ok(answer.map_or(OnceDone::UnderWay, OnceDone::Answered))
    }

    async fn remove_all(self, inserted: Inserted) -> Result<(), StoreError> {
        self.remove_refused(&inserted).await?;
        let removed = self.store.settle_all(inserted, 0, QuotaEnd { limit: 0, used: 0 }).await;
        removed.into_iter().try_for_each(|removed| removed.map(drop))
    }
}

/// Why links could not be inserted, and whether one of them may have its name.
fn failure_of(inserted: &Inserted) -> Option<(StoreError, bool)> {
    let failed = inserted.iter().filter_map(|link| link.as_ref().err());
    let failed = failed.filter_map(|NotInserted { error, may_have_name }| match error {
        CreateLinkError::Store(error) => Some((error.clone(), *may_have_name)),
        CreateLinkError::NameTaken | CreateLinkError::QuotaExceeded { .. } => None,
    });
    failed.max_by_key(|(_, may_have_name)| *may_have_name)
}

fn plan_of(inserted: &Inserted) -> Vec<PlannedLink> {
    let planned = inserted.iter().map(|link| match link {
        Ok(InsertedLink { link, name, .. }) => {
            let name = name.as_ref().map(|name| (name.revision, name.kept_before()));
            PlannedLink::Inserted { id: link.id, name }
        }
        Err(NotInserted { error: CreateLinkError::Store(_), .. }) => PlannedLink::Failed,
        Err(_) => PlannedLink::Taken,
    });
    planned.collect()
}

/// The links that an earlier attempt has inserted.
fn of_plan(new: &NewLinks, plan: Vec<PlannedLink>, ticket: &OnceTicket) -> Result<Inserted, StoreError> {
    let claim = ticket.seed.claim;
    let changed = || StoreError::Unavailable("links of the request were valid before and are not any more".into());
    if plan.len() > new.links.len() {
        return Err(changed());
    }
    let planned = plan.into_iter().enumerate().map(|(place, planned)| {
        let (link, spare_ids) = (&new.links[place], new.spare_ids_of(place));
        let (id, name) = match planned {
            PlannedLink::Inserted { id, name } => (id, name),
            PlannedLink::Taken => return Ok(Err(CreateLinkError::NameTaken.into())),
            PlannedLink::Failed => return Ok(Err(StoreError::Unavailable("it was not made".into()).into())),
        };
        let own = link.slug.and_then(|slug| slug.as_id());
        if id != link.id && own != Some(id) && !spare_ids.contains(&id) {
            return Err(changed());
        }
        let taken = name.zip(link.slug);
        let taken = taken.map(|((revision, kept), slug)| TakenName::planned(slug, link, claim, revision, kept));
        let revision = taken.as_ref().map_or(link.revision, |taken| taken.revision);
        Ok(Ok(InsertedLink { link: Link { id, revision, ..link.clone() }, claim, name: taken }))
    });
    planned.collect()
}

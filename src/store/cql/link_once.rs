//! Links of a request that is done once: as in `link_batches.rs`, with steps that can be done again by another node.

use std::sync::Arc;

use super::link_batches::{InsertedLink, QuotaEnd};
use super::link_names::TakenName;
use super::links::CqlLinks;
use super::once::{CqlOnce, OnceRow};
use crate::domain::link::{Link, LinkOptions, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::store::once::{AnswerOfLinks, OnceDone, OnceTicket};
use crate::store::records::once::PlannedLink;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

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
        let has_more = |link: &Link| link.slug.is_some() || link.options != LinkOptions::default();
        if new.links.iter().any(has_more)
            && let Err(error) = self.feed.check_all_nodes_know_changes()
        {
            once.end(&ticket).await?;
            return Err(error);
        }
        let (store, once) = (Arc::clone(self), Arc::clone(once));
        self.to_its_end(async move {
            let done = store.make_once(&once, &ticket, &new, limit, &answer).await;
            if done.is_err() {
                once.let_go(&ticket).await;
            }
            for link in &new.links {
                // Its caller may be gone, and may have looked the names up meanwhile.
                store.feed.report_here(link.name(), link.id);
            }
            done
        })
        .await
    }

    async fn make_once(
        &self,
        once: &CqlOnce,
        ticket: &OnceTicket,
        new: &NewLinks,
        limit: MonthlyLimit,
        answer: &AnswerOfLinks,
    ) -> Result<OnceDone<MadeLinks>, StoreError> {
        let Some(first) = new.links.first() else { return Ok(OnceDone::Done(MadeLinks::default())) };
        let _alone = self.lock_names(&new.links).await?;
        let row = once.read(&ticket.id).await?.filter(|row| row.holder == Some(ticket.holder));
        let Some(row) = row else { return once.replaced(ticket).await };
        let Some(inserted) = self.inserted_once(once, ticket, &row, new, limit).await? else {
            return once.replaced(ticket).await;
        };
        let (begun, count) = (inserted.len(), inserted.iter().filter(|link| link.is_ok()).count() as u64);
        let month = first.created_at.month();
        let (counted, used) = if count == 0 {
            (0, self.quotas.used(first.owner, month).await?)
        } else {
            let quota = self.quotas.of(first.owner, month);
            match self.quotas.count_once(&quota, count, limit, once, ticket).await? {
                Some(counted) => (counted.counted, counted.used),
                None => return once.replaced(ticket).await,
            }
        };
        // Only who has the request removes what it has inserted.
        if counted == 0 && !once.end(ticket).await? {
            return once.replaced(ticket).await;
        }
        let end = QuotaEnd { limit: limit.unwrap_or(used), used };
        let mut made = self.settle_all(inserted, counted, end).await;
        made.resize_with(new.links.len(), || Err(end.refusal()));
        if counted < count || begun < new.links.len() {
            end.refuse_behind(&mut made);
        }
        let made = MadeLinks { links: made, used };
        if counted == 0 {
            return Ok(OnceDone::Done(made));
        }
        if !made.links.iter().any(Result::is_ok) {
            // Another creation has taken over the names.
            once.end(ticket).await?;
            return Ok(OnceDone::Done(made));
        }
        once.answer(ticket, &answer(&made), made).await
    }

    /// The links as they are to be counted: as an earlier attempt has planned it, or as they are inserted now. `None` if
    /// another attempt has the request.
    async fn inserted_once(
        &self,
        once: &CqlOnce,
        ticket: &OnceTicket,
        row: &OnceRow,
        new: &NewLinks,
        limit: MonthlyLimit,
    ) -> Result<Option<Vec<Result<InsertedLink, CreateLinkError>>>, StoreError> {
        if let Some(plan) = row.plan()? {
            return of_plan(new, plan, ticket).map(Some);
        }
        // A single link needs no plan: it is inserted or not. It may be counted already, whatever room there is.
        let is_single = new.links.len() == 1;
        let room = match (limit, new.links.first()) {
            (Some(limit), Some(first)) if !is_single => {
                let used = self.quotas.used(first.owner, first.created_at.month()).await?;
                Some(limit.saturating_sub(used))
            }
            _ => None,
        };
        let mut inserted = match room {
            Some(0) => Vec::new(),
            room => self.insert_all(new, room, Some(ticket.seed.claim)).await,
        };
        // What became of such a link is not known: the next attempt finds it out.
        if let Some(place) = inserted.iter().position(|link| matches!(link, Err(CreateLinkError::Store(_))))
            && let Err(CreateLinkError::Store(error)) = inserted.swap_remove(place)
        {
            return Err(error);
        }
        if is_single || inserted.is_empty() {
            return Ok(Some(inserted));
        }
        let plan: Vec<Option<PlannedLink>> =
            inserted.iter().map(|link| link.as_ref().ok().map(InsertedLink::planned)).collect();
        Ok(once.put_plan(ticket, &plan).await?.then_some(inserted))
    }
}

/// The links that an earlier attempt has inserted.
fn of_plan(
    new: &NewLinks,
    plan: Vec<Option<PlannedLink>>,
    ticket: &OnceTicket,
) -> Result<Vec<Result<InsertedLink, CreateLinkError>>, StoreError> {
    let claim = ticket.seed.claim;
    let changed = || StoreError::Unavailable("links of the request were valid before and are not any more".into());
    if plan.len() > new.links.len() {
        return Err(changed());
    }
    let planned = plan.into_iter().enumerate().map(|(place, planned)| {
        let (link, spare_ids) = (&new.links[place], new.spare_ids_of(place));
        let Some(PlannedLink { id, name }) = planned else { return Ok(Err(CreateLinkError::NameTaken)) };
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

impl InsertedLink {
    fn planned(&self) -> PlannedLink {
        let id: ShortId = self.link.id;
        PlannedLink { id, name: self.name.as_ref().map(|name| (name.revision, name.kept_before())) }
    }
}

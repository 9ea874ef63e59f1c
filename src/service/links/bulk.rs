//! Links that are created together.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::{CreateError, LinkService};
use crate::cache::links::ChangingLink;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName, NewLink, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::service::run_to_completion::RunToCompletion;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

/// Further ids that are drawn for each link. Where there are a billion links, one new id in 3,500 was used before.
pub(super) const SPARE_IDS: usize = 3;

/// The place of a bulk creation among those at work.
pub type BulkPermit = Arc<OwnedSemaphorePermit>;

/// The outcome of links that were to be created together.
#[derive(Debug)]
pub struct CreatedLinks {
    /// In the order of the call.
    pub links: Vec<Result<Link, CreateError>>,
    /// The key's count of the month at the end, if it is known.
    pub links_created: Option<u64>,
    pub limit: MonthlyLimit,
}

impl CreatedLinks {
    /// Whether any link was created.
    pub fn has_any(&self) -> bool {
        self.links.iter().any(Result::is_ok)
    }
}

impl LinkService {
    /// Waits until a bulk creation may begin, whose links and answer take memory.
    ///
    /// # Errors
    /// Never: the number of calls is never closed.
    pub async fn acquire_bulk_permit(&self) -> Result<BulkPermit, StoreError> {
        let closed = |_| StoreError::Unavailable("closed".into());
        Arc::clone(&self.bulks).acquire_owned().await.map(Arc::new).map_err(closed)
    }

    /// Creates links for `caller`, or refuses them, each by itself. `known_created` is as for [`create`](Self::create).
    ///
    /// What has begun goes on to its end, also if its caller is gone.
    pub async fn create_all(
        &self,
        caller: &Arc<ApiKey>,
        new: Vec<NewLink>,
        known_created: Option<u64>,
        place: BulkPermit,
    ) -> Result<CreatedLinks, CreateError> {
        let limit = self.plans.of(caller).links_per_month;
        if let (Some(limit), Some(current)) = (limit, known_created)
            && current >= limit
        {
            let refused = || Err(CreateError::QuotaExceeded { limit, current });
            let links = new.iter().map(|_| refused()).collect();
            return Ok(CreatedLinks { links, links_created: known_created, limit: Some(limit) });
        }
        if new.is_empty() {
            return Ok(CreatedLinks { links: Vec::new(), links_created: known_created, limit });
        }
        let (service, caller) = (self.clone(), Arc::clone(caller));
        RunToCompletion::writes_while_waiting(async move {
            // Until the work is done.
            let _place = place;
            service.create_some(&caller, &new).await
        })
        .await
    }

    async fn create_some(&self, caller: &ApiKey, new: &[NewLink]) -> Result<CreatedLinks, CreateError> {
        let changing: Vec<_> = names_of(new.iter()).into_iter().map(|name| self.cache.begin_change(name)).collect();
        let generation = self.cache.generation();
        let created = self.create_in_store(caller, new.iter()).await;
        end_changes(changing, created.as_ref().map(|created| &created.links[..]));
        let created = created?;
        for link in created.links.iter().flatten().filter(|link| link.slug.is_none()) {
            self.cache.insert(link, generation)?;
        }
        Ok(created)
    }

    /// The root key gets names that are kept for other keys, too.
    pub(super) async fn create_in_store(
        &self,
        caller: &ApiKey,
        new: impl Iterator<Item = &NewLink>,
    ) -> Result<CreatedLinks, CreateError> {
        let now = self.clock.now();
        let limit = self.plans.of(caller).links_per_month;
        let draw = || ShortId::generate(&self.random).map_err(|_| CreateError::NoRandomness);
        let links = new.map(|new| Ok(new.made(draw()?, caller.id, now))).collect::<Result<Vec<Link>, CreateError>>()?;
        let spare = |_: &Link| (0..SPARE_IDS).map(|_| draw()).collect();
        let spare_ids = links.iter().map(spare).collect::<Result<_, CreateError>>()?;
        let new_links = NewLinks { links: links.clone(), spare_ids, takes_kept_names: caller.is_root };
        let made = self.store.create_links(new_links, limit).await?;
        self.note_created(caller, now, made.used);
        Ok(CreatedLinks { links: results_of(&links, &made), links_created: Some(made.used), limit })
    }
}

/// Ends the changes of names. Where a link may be made later, its name is watched.
pub(super) fn end_changes(changing: Vec<ChangingLink>, created: Result<&[Result<Link, CreateError>], &CreateError>) {
    let may_come = |error: &CreateError| matches!(error, CreateError::Store(StoreError::Unavailable(_)));
    let is_open = match created {
        Ok(links) => links.iter().any(|link| link.as_ref().is_err_and(may_come)),
        Err(error) => may_come(error),
    };
    for name in changing {
        if is_open { name.outcome_unknown() } else { name.done() }
    }
}

/// The outcome of each link.
pub(super) fn results_of(links: &[Link], made: &MadeLinks) -> Vec<Result<Link, CreateError>> {
    let results = links.iter().zip(&made.links).map(|(link, made)| match made {
        Ok(id) => Ok(Link { id: *id, ..link.clone() }),
        Err(CreateLinkError::QuotaExceeded { limit, current }) => {
            Err(CreateError::QuotaExceeded { limit: *limit, current: *current })
        }
        Err(CreateLinkError::NameTaken) if link.slug.is_some() => Err(CreateError::SlugTaken),
        Err(CreateLinkError::NameTaken) => {
            Err(StoreError::Unavailable("every generated short id was taken".into()).into())
        }
        Err(CreateLinkError::Store(error)) => Err(error.clone().into()),
    });
    results.collect()
}

/// The slugs of new links, each once.
pub(super) fn names_of<'a>(new: impl Iterator<Item = &'a NewLink>) -> Vec<LinkName> {
    let mut names: Vec<LinkName> = new.filter_map(|new| new.slug).collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    names
}

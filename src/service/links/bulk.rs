//! Links that are created together.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::OwnedSemaphorePermit;

use super::{CreateError, LinkService};
use crate::cache::links::ChangingLink;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName, NewLink, ShortId};
use crate::domain::quota::MonthlyLimit;
use crate::service::to_the_end::ToTheEnd;
use crate::store::{CreateLinkError, MadeLinks, NewLinks, StoreError};

/// Further ids that are drawn for each link. Where there are a billion links, one new id in 3,500 was used before.
pub(super) const SPARE_IDS: usize = 3;
/// Names that are asked for at once.
const NAMES_AT_ONCE: usize = 32;

/// What became of links that were to be created together.
#[derive(Debug)]
pub struct CreatedLinks {
    /// In the order of the call.
    pub links: Vec<Result<Link, CreateError>>,
    /// The key's count of the month at the end, if it is known.
    pub links_created: Option<u64>,
    pub limit: MonthlyLimit,
}

impl LinkService {
    /// Waits until a call of [`create_all`](Self::create_all) may begin, whose body takes memory.
    ///
    /// # Errors
    /// Never: the number of calls is never closed.
    pub async fn enter_bulk(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let closed = |_| StoreError::Unavailable("closed".into());
        Arc::clone(&self.bulks).acquire_owned().await.map_err(closed)
    }

    /// Creates links for `caller`, or refuses them, each by itself. `known_created` is as for [`create`](Self::create).
    ///
    /// It goes on to its end, also if its caller is gone.
    pub async fn create_all(
        &self,
        caller: &Arc<ApiKey>,
        new: Vec<NewLink>,
        known_created: Option<u64>,
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
        ToTheEnd::new(async move { service.create_some(&caller, &new).await }).await
    }

    async fn create_some(&self, caller: &ApiKey, new: &[NewLink]) -> Result<CreatedLinks, CreateError> {
        let changing: Vec<_> = names_of(new.iter()).into_iter().map(|name| self.cache.changing(name)).collect();
        let mut created = self.create_in_store(caller, new.iter()).await?;
        if caller.is_root {
            self.create_with_kept_names(caller, new, &mut created).await?;
        }
        changing.into_iter().for_each(ChangingLink::done);
        for link in created.links.iter().flatten().filter(|link| link.slug.is_none()) {
            self.cache.insert(link)?;
        }
        Ok(created)
    }

    async fn create_in_store(
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
        let made = self.store.create_links(NewLinks { links: links.clone(), spare_ids }, limit).await?;
        self.note_created(caller, now, made.used);
        Ok(CreatedLinks { links: results(&links, &made), links_created: Some(made.used), limit })
    }

    /// The root key gets names that are kept for other keys, too.
    async fn create_with_kept_names(
        &self,
        caller: &ApiKey,
        new: &[NewLink],
        created: &mut CreatedLinks,
    ) -> Result<(), CreateError> {
        let is_taken = |link: &Result<Link, CreateError>| matches!(link, Err(CreateError::SlugTaken));
        let taken = new.iter().zip(&created.links).filter(|(_, link)| is_taken(link)).map(|(new, _)| new);
        let mut asking = Vec::new();
        for name in names_of(taken) {
            asking.push(async move { Ok((name, self.store.keep_name_for(name, caller.id).await?)) });
        }
        let answers: Vec<Result<(LinkName, bool), StoreError>> =
            stream::iter(asking).buffered(NAMES_AT_ONCE).collect().await;
        let mut kept = Vec::new();
        for answer in answers {
            let (name, is_kept) = answer?;
            kept.extend(is_kept.then_some(name));
        }
        let again: Vec<usize> = (0..new.len())
            .filter(|place| {
                is_taken(&created.links[*place]) && new[*place].slug.is_some_and(|slug| kept.contains(&slug))
            })
            .collect();
        if again.is_empty() {
            return Ok(());
        }
        let second = self.create_in_store(caller, again.iter().map(|place| &new[*place])).await?;
        created.links_created = second.links_created;
        for (place, link) in again.into_iter().zip(second.links) {
            created.links[place] = link;
        }
        Ok(())
    }
}

/// What became of each link.
pub(super) fn results(links: &[Link], made: &MadeLinks) -> Vec<Result<Link, CreateError>> {
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

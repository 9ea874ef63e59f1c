//! Creation, reading and change of short links.

mod bulk;
mod changes;
mod once;

use std::sync::Arc;

use ring::rand::SystemRandom;
use thiserror::Error;
use tokio::sync::Semaphore;

pub use self::bulk::{BulkPermit, CreatedLinks};
pub(super) use self::changes::write;
pub use self::changes::{ChangeError, Changed, Put, PutLink};
pub use self::once::RespondToLinks;
use super::run_to_completion::RunToCompletion;
use super::striped_locks::StripedLocks;
use super::{AccessError, owned_link};
use crate::actors::key_shard::{KeyShards, NoteLinksCreated};
use crate::cache::links::LinkCache;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName, NewLink, ShortId};
use crate::domain::plan::Plans;
use crate::domain::quota::MonthlyLimit;
use crate::store::{CreateLinkError, LinkStore, OnceStore, StoreError};

/// Why a link was not created. No quota was used.
#[derive(Debug, Error)]
pub enum CreateError {
    /// The key's monthly quota is used up.
    #[error("monthly link creation limit reached")]
    QuotaExceeded { limit: u64, current: u64 },
    /// The name that the link was to have is another link's, or is kept for another key.
    #[error("the name is taken")]
    SlugTaken,
    #[error("the operating system's random generator failed")]
    NoRandomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A link that was just created, and the use of its key's monthly quota.
#[derive(Debug)]
pub struct CreatedLink {
    pub link: Link,
    pub links_created: u64,
    pub limit: MonthlyLimit,
}

/// Attempts to generate a short id that is not taken: of 62^7 ids, a second attempt is rare, and ten indicate an
/// error.
const ID_ATTEMPTS: usize = 10;
/// The same for a link with a slug: the second attempt tells whether the slug is taken, or the first id was.
const ID_ATTEMPTS_OF_SLUGS: usize = 2;

/// Bulk creations at once; further ones wait with their bodies. Each takes some MiB.
const BULKS_AT_ONCE: usize = 32;

/// Creates, reads and changes links.
#[derive(Clone)]
pub struct LinkService {
    store: Arc<dyn LinkStore>,
    once: Arc<dyn OnceStore>,
    cache: Arc<LinkCache>,
    shards: Arc<KeyShards>,
    plans: Plans,
    clock: Clock,
    random: SystemRandom,
    changes: Arc<StripedLocks>,
    /// Bounds the memory of bulk creations.
    bulks: Arc<Semaphore>,
}

impl LinkService {
    pub fn new(
        store: Arc<dyn LinkStore>,
        once: Arc<dyn OnceStore>,
        cache: Arc<LinkCache>,
        shards: Arc<KeyShards>,
        plans: Plans,
        clock: Clock,
    ) -> Self {
        let bulks = Arc::new(Semaphore::new(BULKS_AT_ONCE));
        let changes = Arc::default();
        Self { store, once, cache, shards, plans, clock, random: SystemRandom::new(), changes, bulks }
    }

    /// Creates a link for `caller`. `known_created` is the key's count of this month as far as its shard knows. If
    /// that count has reached the quota, the store is not asked: the count of a month never decreases.
    pub async fn create(
        &self,
        caller: &Arc<ApiKey>,
        new: NewLink,
        known_created: Option<u64>,
    ) -> Result<CreatedLink, CreateError> {
        let limit = self.plans.of(caller).links_per_month;
        if let (Some(limit), Some(current)) = (limit, known_created)
            && current >= limit
        {
            return Err(CreateError::QuotaExceeded { limit, current });
        }
        if let Some(name) = new.slug {
            let (service, caller) = (self.clone(), Arc::clone(caller));
            let work = async move { service.create_named(&caller, &new, name).await };
            return RunToCompletion::writes_while_waiting(work).await;
        }
        let generation = self.cache.generation();
        let created = self.create_with_generated_id(caller, &new, ID_ATTEMPTS).await?;
        let created = created.ok_or_else(|| StoreError::Unavailable("every generated short id was taken".into()))?;
        self.cache.insert(&created.link, generation)?;
        Ok(created)
    }

    /// Creates a link with a slug. It is not inserted into the cache: the store settles its id and its revision.
    async fn create_named(&self, caller: &ApiKey, new: &NewLink, name: LinkName) -> Result<CreatedLink, CreateError> {
        let changing = self.cache.begin_change(name);
        let created = self.create_named_with_generated_id(caller, new).await;
        match created {
            // It may be made later.
            Err(CreateError::Store(StoreError::Unavailable(_))) => changing.outcome_unknown(),
            _ => changing.done(),
        }
        created?.ok_or(CreateError::SlugTaken)
    }

    async fn create_named_with_generated_id(
        &self,
        caller: &ApiKey,
        new: &NewLink,
    ) -> Result<Option<CreatedLink>, CreateError> {
        if !caller.is_root {
            return self.create_with_generated_id(caller, new, ID_ATTEMPTS_OF_SLUGS).await;
        }
        // Together with others: the root key gets names that are kept for other keys, too.
        let CreatedLinks { mut links, links_created, limit } =
            self.create_in_store(caller, std::iter::once(new)).await?;
        match links.pop() {
            // The store was asked, so the count is known.
            Some(Ok(link)) => Ok(Some(CreatedLink { link, links_created: links_created.unwrap_or_default(), limit })),
            Some(Err(CreateError::SlugTaken)) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// Creates a link with one of `attempts` generated ids; `None` if all of them, or its name, are taken.
    async fn create_with_generated_id(
        &self,
        caller: &ApiKey,
        new: &NewLink,
        attempts: usize,
    ) -> Result<Option<CreatedLink>, CreateError> {
        let now = self.clock.now();
        let limit = self.plans.of(caller).links_per_month;
        for _ in 0..attempts {
            let id = ShortId::generate(&self.random).map_err(|_| CreateError::NoRandomness)?;
            let link = new.made(id, caller.id, now);
            match self.store.create_link(link.clone(), limit).await {
                Ok(links_created) => {
                    self.note_created(caller, now, links_created);
                    return Ok(Some(CreatedLink { link, links_created, limit }));
                }
                Err(CreateLinkError::NameTaken) => {}
                Err(CreateLinkError::QuotaExceeded { limit, current }) => {
                    self.note_created(caller, now, current);
                    return Err(CreateError::QuotaExceeded { limit, current });
                }
                Err(CreateLinkError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// How many links a key may create in a month.
    pub fn monthly_limit(&self, caller: &ApiKey) -> MonthlyLimit {
        self.plans.of(caller).links_per_month
    }

    fn note_created(&self, caller: &ApiKey, now: Timestamp, current: u64) {
        self.shards.note_links_created(NoteLinksCreated { key: caller.id, month: now.month(), current, now });
    }

    /// A link, whoever asks.
    pub async fn find(&self, name: LinkName) -> Result<Option<Link>, StoreError> {
        self.store.link(name).await
    }

    /// A link of `caller`. The root key may read all links.
    pub async fn get(&self, caller: &ApiKey, name: Option<LinkName>) -> Result<Link, AccessError> {
        owned_link(&*self.store, caller, name).await
    }
}

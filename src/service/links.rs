//! Creation and reading of short links.

use std::sync::Arc;

use ring::rand::SystemRandom;
use thiserror::Error;

use super::{AccessError, owned_link};
use crate::actors::key_shard::{KeyShards, NoteLinksCreated};
use crate::cache::links::LinkCache;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::ApiKey;
use crate::domain::link::{Link, LinkName, NewLink, ShortId};
use crate::domain::plan::Plans;
use crate::domain::quota::MonthlyLimit;
use crate::store::{CreateLinkError, LinkStore, StoreError};

/// Why a link was not created. No quota was used.
#[derive(Debug, Error)]
pub enum CreateError {
    /// The key's monthly quota is used up.
    #[error("monthly link creation limit reached")]
    QuotaExceeded { limit: u64, current: u64 },
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
const ID_DRAWS: usize = 10;

/// Creates and reads links.
pub struct LinkService {
    store: Arc<dyn LinkStore>,
    cache: Arc<LinkCache>,
    shards: Arc<KeyShards>,
    plans: Plans,
    clock: Clock,
    random: SystemRandom,
}

impl LinkService {
    pub fn new(
        store: Arc<dyn LinkStore>,
        cache: Arc<LinkCache>,
        shards: Arc<KeyShards>,
        plans: Plans,
        clock: Clock,
    ) -> Self {
        Self { store, cache, shards, plans, clock, random: SystemRandom::new() }
    }

    /// Creates a link for `caller`. `known_created` is the key's count of this month as far as its shard knows. If
    /// that count has reached the quota, the store is not asked: the count of a month never decreases.
    pub async fn create(
        &self,
        caller: &ApiKey,
        new: NewLink,
        known_created: Option<u64>,
    ) -> Result<CreatedLink, CreateError> {
        let now = self.clock.now();
        let limit = self.plans.of(caller).links_per_month;
        if let (Some(limit), Some(current)) = (limit, known_created)
            && current >= limit
        {
            return Err(CreateError::QuotaExceeded { limit, current });
        }
        for _ in 0..ID_DRAWS {
            let id = ShortId::generate(&self.random).map_err(|_| CreateError::NoRandomness)?;
            let link = new.made(id, caller.id, now);
            match self.store.create_link(link.clone(), limit).await {
                Ok(links_created) => {
                    self.note_created(caller, now, links_created);
                    self.cache.insert(&link)?;
                    return Ok(CreatedLink { link, links_created, limit });
                }
                Err(CreateLinkError::NameTaken) => {}
                Err(CreateLinkError::QuotaExceeded { limit, current }) => {
                    self.note_created(caller, now, current);
                    return Err(CreateError::QuotaExceeded { limit, current });
                }
                Err(CreateLinkError::Store(error)) => return Err(error.into()),
            }
        }
        Err(StoreError::Unavailable("every generated short id was taken".into()).into())
    }

    fn note_created(&self, caller: &ApiKey, now: Timestamp, current: u64) {
        self.shards.note_links_created(NoteLinksCreated { key: caller.id, month: now.month(), current, now });
    }

    /// A link, whoever asks.
    pub async fn find(&self, name: LinkName) -> Result<Option<Link>, StoreError> {
        self.store.link(name).await
    }

    /// A link of `caller`. The root key may read all links.
    pub async fn get(&self, caller: &ApiKey, id: Option<ShortId>) -> Result<Link, AccessError> {
        owned_link(&*self.store, caller, id).await
    }
}

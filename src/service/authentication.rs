//! Authentication: finds the key of a presented secret.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moka::future::Cache;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::locks::lock;
use crate::store::{KeyStore, StoreError};

/// Why a request is not authenticated. Missing, unknown, expired and revoked keys are not distinguished.
#[derive(Debug, Error)]
pub enum AuthenticationError {
    #[error("no valid key")]
    Unauthorized,
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

/// Maximum number of cached secrets, known and unknown ones.
const CAPACITY: u64 = 100_000;

/// Concurrent look-ups for clients that have sent too many invalid keys: so few that the store is not affected.
const LIMITED_LOOK_UPS: usize = 4;
/// The minimum length of a secret. Secrets that operators choose are the shortest.
const SHORTEST_SECRET: usize = 32;

/// How a secret that is not cached is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    AtOnce,
    /// A few at a time, for clients that have sent too many invalid keys.
    Limited,
}

/// Finds the key of a request's secret.
pub struct AuthenticationService {
    store: Arc<dyn KeyStore>,
    clock: Clock,
    keys: Cache<SecretHash, Option<Arc<ApiKey>>>,
    limited_look_ups: Semaphore,
    /// The minimum revision of each key that was changed on this node. Entries are kept longer than `keys` can have
    /// an older revision (a look-up that began before a change may end after it).
    changed: Cache<KeyId, u64>,
    /// When keys were used since the last flush.
    uses: Mutex<HashMap<KeyId, Timestamp>>,
}

impl AuthenticationService {
    /// `cached_for` is the longest time until a change on another node takes effect here.
    pub fn new(store: Arc<dyn KeyStore>, clock: Clock, cached_for: Duration) -> Self {
        Self {
            store,
            clock,
            keys: Cache::builder().max_capacity(CAPACITY).time_to_live(cached_for).build(),
            limited_look_ups: Semaphore::new(LIMITED_LOOK_UPS),
            changed: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(cached_for * 2 + Duration::from_mins(1))
                .build(),
            uses: Mutex::default(),
        }
    }

    /// Returns the key whose secret is `presented`, and notes its use. Secrets of an impossible length are not looked
    /// up.
    pub async fn authenticate(&self, presented: &[u8], trust: Trust) -> Result<Arc<ApiKey>, AuthenticationError> {
        if presented.len() < SHORTEST_SECRET {
            return Err(AuthenticationError::Unauthorized);
        }
        let now = self.clock.now();
        let hash = SecretHash::of(presented);
        let key = match self.look_up(hash, trust).await? {
            Some(key) if self.is_outdated(&key).await => {
                self.keys.invalidate(&hash).await;
                self.look_up(hash, trust).await?
            }
            key => key,
        };
        let key = key.filter(|key| key.accepts(&hash, now)).ok_or(AuthenticationError::Unauthorized)?;
        self.uses().insert(key.id, now);
        Ok(key)
    }

    /// From now on, cached copies of `key` from before its change are not used.
    pub async fn key_changed(&self, key: &ApiKey) {
        self.changed.insert(key.id, key.revision).await;
    }

    /// The last use of `key` that is not flushed yet.
    pub fn unflushed_use(&self, key: KeyId) -> Option<Timestamp> {
        self.uses().get(&key).copied()
    }

    /// Writes the uses since the last flush to the store.
    ///
    /// # Errors
    /// The error of the store. The uses remain for the next flush.
    pub async fn flush_uses(&self) -> Result<(), StoreError> {
        let uses: Vec<_> = self.uses().iter().map(|(key, at)| (*key, *at)).collect();
        if uses.is_empty() {
            return Ok(());
        }
        self.store.note_key_use(uses.clone()).await?;
        let mut unflushed = self.uses();
        for (key, at) in uses {
            if unflushed.get(&key) == Some(&at) {
                unflushed.remove(&key);
            }
        }
        Ok(())
    }

    async fn look_up(&self, hash: SecretHash, trust: Trust) -> Result<Option<Arc<ApiKey>>, Arc<StoreError>> {
        let load = async {
            // The semaphore is never closed.
            let _permit = if trust == Trust::Limited { self.limited_look_ups.acquire().await.ok() } else { None };
            self.store.key_by_secret(hash).await.map(|key| key.map(Arc::new))
        };
        self.keys.try_get_with(hash, load).await
    }

    async fn is_outdated(&self, key: &ApiKey) -> bool {
        self.changed.get(&key.id).await.is_some_and(|revision| key.revision < revision)
    }

    fn uses(&self) -> std::sync::MutexGuard<'_, HashMap<KeyId, Timestamp>> {
        lock(&self.uses)
    }
}

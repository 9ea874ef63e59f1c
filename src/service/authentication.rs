//! From a presented secret to the key it proves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::future::Cache;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::store::{KeyStore, StoreError};

/// Why a request may not go on. Missing, unknown, expired and revoked are one answer.
#[derive(Debug, Error)]
pub enum AuthenticationError {
    #[error("no valid key")]
    Unauthorized,
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

/// Secrets looked up at the most at a time, known and unknown ones.
const CAPACITY: u64 = 100_000;

/// Look-ups at a time for clients that have sent too many invalid keys: so few that the store does not notice them.
const IN_TURN: usize = 4;
/// The shortest secret there can be: one that the operator chose.
const SHORTEST_SECRET: usize = 32;

/// How a secret that is not known yet is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    AtOnce,
    /// A few at a time, for clients that have sent too many that were invalid.
    InTurn,
}

/// Tells whose secret a request carries.
pub struct Authentication {
    store: Arc<dyn KeyStore>,
    clock: Clock,
    keys: Cache<SecretHash, Option<Arc<ApiKey>>>,
    turns: Semaphore,
    /// The revision that each key changed on this node has at least, kept for longer than `keys` can hold an older one
    /// (a look-up begun before a change may end after it).
    changed: Cache<KeyId, u64>,
    /// When keys were used since the last flush.
    uses: Mutex<HashMap<KeyId, Timestamp>>,
}

impl Authentication {
    /// `cached_for` bounds how long a change made on another node goes unnoticed.
    pub fn new(store: Arc<dyn KeyStore>, clock: Clock, cached_for: Duration) -> Self {
        Self {
            store,
            clock,
            keys: Cache::builder().max_capacity(CAPACITY).time_to_live(cached_for).build(),
            turns: Semaphore::new(IN_TURN),
            changed: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(cached_for * 2 + Duration::from_mins(1))
                .build(),
            uses: Mutex::default(),
        }
    }

    /// The key whose secret is `presented`, and notes its use. What can be nobody's secret is not looked up.
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

    /// Forgets what is cached of `key` as it was before; the change is seen from now on.
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
    /// What the store answered; the uses are kept for the next flush.
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
            // It is never closed.
            let _turn = if trust == Trust::InTurn { self.turns.acquire().await.ok() } else { None };
            self.store.key_by_secret(hash).await.map(|key| key.map(Arc::new))
        };
        self.keys.try_get_with(hash, load).await
    }

    async fn is_outdated(&self, key: &ApiKey) -> bool {
        self.changed.get(&key.id).await.is_some_and(|revision| key.revision < revision)
    }

    fn uses(&self) -> std::sync::MutexGuard<'_, HashMap<KeyId, Timestamp>> {
        // Nothing panics while this lock is held.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

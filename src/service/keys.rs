//! API keys: create, list, revoke, rotate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::rand::SystemRandom;
use thiserror::Error;
use uuid::{ContextV7, Timestamp as UuidTime, Uuid};

use super::authentication::Authentication;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, KeySecret, Retiring, Scope, ScopeSet, SealedSecret, SecretHash, Tier};
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::{Vault, VaultError};
use crate::store::{Store, StoreError, UpdateKeyError};

/// Why a key was not created, revoked or rotated.
#[derive(Debug, Error)]
pub enum KeyError {
    /// Not there, or outside the caller's view.
    #[error("no such key")]
    NotFound,
    #[error("the key is not allowed to do this: {0}")]
    Forbidden(&'static str),
    #[error("the system gave no randomness")]
    NoRandomness,
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    pub tier: Tier,
    /// `None`: all that the creator has but `keys:manage`.
    pub scopes: Option<ScopeSet>,
    pub expires_at: Option<Timestamp>,
}

/// How to rotate a key.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// How long the old secrets go on working.
    pub grace: Duration,
    pub webhook_secret_too: bool,
}

/// A key with the secrets that are shown this one time.
#[derive(Debug)]
pub struct IssuedKey {
    pub key: ApiKey,
    pub secret: Option<KeySecret>,
    pub webhook_secret: Option<WebhookSecret>,
}

/// A key and when it was last used.
#[derive(Debug)]
pub struct ListedKey {
    pub key: ApiKey,
    pub last_used_at: Option<Timestamp>,
}

/// A page of keys, newest first.
#[derive(Debug)]
pub struct KeyPage {
    pub keys: Vec<ListedKey>,
    /// Where the next page begins, if there is one.
    pub next: Option<KeyId>,
}

/// Times that a change is tried again because another one came first.
const CONFLICT_RETRIES: usize = 16;

/// Manages API keys.
pub struct Keys {
    store: Arc<dyn Store>,
    authentication: Arc<Authentication>,
    vault: Arc<Vault>,
    clock: Clock,
    random: SystemRandom,
    /// Keeps ids of one millisecond apart, and in order.
    ids: Mutex<ContextV7>,
    /// The operator sets the root key's secret from outside: it can't be rotated here.
    root_is_chosen: bool,
}

impl Keys {
    pub fn new(
        store: Arc<dyn Store>,
        authentication: Arc<Authentication>,
        vault: Arc<Vault>,
        clock: Clock,
        root_is_chosen: bool,
    ) -> Self {
        Self { store, authentication, vault, clock, random: SystemRandom::new(), ids: Mutex::default(), root_is_chosen }
    }

    /// Makes a key below `creator`.
    pub async fn create(&self, creator: &ApiKey, new: NewKey) -> Result<IssuedKey, KeyError> {
        if new.tier > creator.tier {
            return Err(KeyError::Forbidden("a key can't make one of a higher tier than its own"));
        }
        let scopes = new.scopes.unwrap_or(creator.scopes.without(Scope::KeysManage));
        if !scopes.is_subset_of(creator.scopes) {
            return Err(KeyError::Forbidden("a key can't give a scope that it lacks"));
        }
        if creator.ancestors.len() >= ApiKey::MAX_DEPTH {
            return Err(KeyError::Forbidden("keys can be made at most 16 levels below the root"));
        }
        let now = self.clock.now();
        let id = self.new_id(now);
        let secret = KeySecret::generate(&self.random).map_err(|_| KeyError::NoRandomness)?;
        let (webhook_secret, sealed) = new_webhook_secret(&self.vault, &self.random, id)?;
        let key = ApiKey {
            id,
            name: new.name,
            tier: new.tier,
            scopes,
            is_root: false,
            prefix: secret.prefix(),
            secret_hash: secret.hash(),
            retiring_secret: None,
            webhook_secret: sealed,
            retiring_webhook_secret: None,
            created_at: now,
            expires_at: new.expires_at,
            rotated_at: None,
            revoked_at: None,
            ancestors: creator.lineage(),
            revision: 1,
        };
        self.store.create_key(key.clone()).await?;
        // Its secret may have been looked up, in vain, before it was given out: never in earnest, but the cache is not asked.
        self.authentication.key_changed(&key).await;
        Ok(IssuedKey { key, secret: Some(secret), webhook_secret: Some(webhook_secret) })
    }

    /// The keys that `viewer` sees, newest first, revoked ones left out.
    pub async fn list(&self, viewer: &ApiKey, after: Option<KeyId>, limit: usize) -> Result<KeyPage, KeyError> {
        let mut keys = self.store.keys_seen_by(viewer.id, after, limit + 1).await?;
        let more = keys.len() > limit;
        keys.truncate(limit);
        let next = keys.last().filter(|_| more).map(|key| key.id);
        let flushed = self.store.last_uses(keys.iter().map(|key| key.id).collect()).await?;
        let keys = keys
            .into_iter()
            .zip(flushed)
            .map(|(key, flushed)| ListedKey {
                last_used_at: flushed.max(self.authentication.unflushed_use(key.id)),
                key,
            })
            .collect();
        Ok(KeyPage { keys, next })
    }

    /// When `key` was last used.
    pub async fn last_used_at(&self, key: KeyId) -> Result<Option<Timestamp>, KeyError> {
        let flushed = self.store.last_uses(vec![key]).await?.into_iter().next().flatten();
        Ok(flushed.max(self.authentication.unflushed_use(key)))
    }

    /// Ends a key for good. Its links go on redirecting, and keys that it made go on working.
    pub async fn revoke(&self, caller: &ApiKey, id: KeyId) -> Result<(), KeyError> {
        let now = self.clock.now();
        self.change(caller, id, |key| {
            if key.is_root {
                return Err(KeyError::Forbidden("the root key can't be revoked"));
            }
            key.revoked_at = Some(now);
            key.retiring_secret = None;
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Gives a key a new secret; the old one works until the grace has passed.
    ///
    /// `presented` is the hash of the caller's secret. A key may rotate itself by its current secret alone: whoever has only the
    /// one before, in its grace, could take the key over.
    pub async fn rotate(
        &self,
        caller: &ApiKey,
        presented: SecretHash,
        id: KeyId,
        rotation: Rotation,
    ) -> Result<IssuedKey, KeyError> {
        let now = self.clock.now();
        let until = now.plus(rotation.grace);
        let secret = KeySecret::generate(&self.random).map_err(|_| KeyError::NoRandomness)?;
        let webhook =
            if rotation.webhook_secret_too { Some(new_webhook_secret(&self.vault, &self.random, id)?) } else { None };
        let key = self
            .change(caller, id, |key| {
                if key.id == caller.id && !key.secret_hash.matches(&presented) {
                    return Err(KeyError::Forbidden(
                        "a key can be rotated by its current secret alone, not by the one before",
                    ));
                }
                if !self.is_chosen(key) {
                    key.retiring_secret = retiring(&mut key.secret_hash, secret.hash(), now, until);
                    key.prefix = secret.prefix();
                } else if webhook.is_none() {
                    return Err(KeyError::Forbidden(
                        "the root key's secret is set by SIGNPOST_ROOT_KEY: change it there",
                    ));
                }
                if let Some((_, sealed)) = &webhook {
                    key.retiring_webhook_secret = retiring(&mut key.webhook_secret, sealed.clone(), now, until);
                }
                key.rotated_at = Some(now);
                Ok(())
            })
            .await?;
        let secret = (!self.is_chosen(&key)).then_some(secret);
        Ok(IssuedKey { key, secret, webhook_secret: webhook.map(|(secret, _)| secret) })
    }

    fn is_chosen(&self, key: &ApiKey) -> bool {
        key.is_root && self.root_is_chosen
    }

    /// Applies `change` to the newest revision of a key that `caller` sees.
    async fn change(
        &self,
        caller: &ApiKey,
        id: KeyId,
        change: impl Fn(&mut ApiKey) -> Result<(), KeyError>,
    ) -> Result<ApiKey, KeyError> {
        for _ in 0..CONFLICT_RETRIES {
            let stored = self.store.key(id).await?;
            let seen = stored.filter(|key| key.revoked_at.is_none() && caller.sees(key));
            let mut key = seen.ok_or(KeyError::NotFound)?;
            change(&mut key)?;
            key.revision += 1;
            match self.store.update_key(key.clone()).await {
                Ok(()) => {
                    self.authentication.key_changed(&key).await;
                    return Ok(key);
                }
                Err(UpdateKeyError::Conflict) => {}
                Err(UpdateKeyError::Store(error)) => return Err(error.into()),
            }
        }
        Err(StoreError::Unavailable("a key was changed again and again".into()).into())
    }

    fn new_id(&self, now: Timestamp) -> KeyId {
        // A counter has no state that a panic could leave half done.
        new_key_id(&self.ids.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// The id of a key made at `now`: keys are listed in the order of their ids.
pub(super) fn new_key_id(ids: &ContextV7, now: Timestamp) -> KeyId {
    let nanos = u32::try_from(now.0 % 1000).unwrap_or(0) * 1_000_000;
    KeyId(Uuid::new_v7(UuidTime::from_unix(ids, now.seconds(), nanos)))
}

/// Draws a webhook secret and seals it for the key `id`.
pub(super) fn new_webhook_secret(
    vault: &Vault,
    random: &SystemRandom,
    id: KeyId,
) -> Result<(WebhookSecret, SealedSecret), KeyError> {
    let secret = WebhookSecret::generate(random).map_err(|_| KeyError::NoRandomness)?;
    let sealed = vault.seal(random, id.0.as_bytes(), secret.reveal())?;
    Ok((secret, sealed))
}

/// Puts `new` in the place of `current`, which goes on until the grace has passed. An older one ends at once.
fn retiring<T>(current: &mut T, new: T, now: Timestamp, until: Timestamp) -> Option<Retiring<T>> {
    let old = std::mem::replace(current, new);
    (until > now).then_some(Retiring { secret: old, until })
}

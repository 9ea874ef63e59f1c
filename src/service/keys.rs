//! API keys: create, list, change, revoke, rotate.

mod changes;
mod once;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use ring::rand::SystemRandom;
use thiserror::Error;
use uuid::{ContextV7, Timestamp as UuidTime, Uuid};

pub use self::changes::KeyChange;
pub use self::once::RespondToKey;
use super::authentication::AuthenticationService;
use super::striped_locks::StripedLocks;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, KeySecret, Retiring, ScopeSet, SealedSecret, SecretHash, Tier};
use crate::domain::plan::Plans;
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::{Vault, VaultError};
use crate::locks::lock;
use crate::store::{CreateKeyError, KeyStore, OnceStore, StoreError, UpdateKeyError};

/// Why a key was not created, changed, revoked or rotated.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The key does not exist, or the caller may not see it.
    #[error("no such key")]
    NotFound,
    #[error("the key is not allowed to do this: {0}")]
    Forbidden(&'static str),
    /// The key has created as many live keys as its tier allows.
    #[error("{current} of {limit} live keys are used")]
    QuotaExceeded { limit: u64, current: u64 },
    /// A key can't live longer: the key that created it has as many other live keys as its tier allows.
    #[error("{current} of {limit} live keys of the key's creator are used")]
    CreatorQuotaExceeded { limit: u64, current: u64 },
    #[error("the operating system's random generator failed")]
    NoRandomness,
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<CreateKeyError> for KeyError {
    fn from(error: CreateKeyError) -> Self {
        match error {
            CreateKeyError::QuotaExceeded { limit, current } => Self::QuotaExceeded { limit, current },
            CreateKeyError::MakerEnded => Self::Forbidden("this key is being revoked and can't create keys"),
            CreateKeyError::Store(error) => error.into(),
        }
    }
}

/// The properties of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    pub tier: Tier,
    /// `None`: all of the creator's scopes except `keys:manage`.
    pub scopes: Option<ScopeSet>,
    /// `None`: when the creator expires.
    pub expires_at: Option<Timestamp>,
}

/// What happens to the keys below a revoked key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Descendants {
    /// They remain valid.
    #[default]
    Keep,
    /// They are revoked too.
    Revoke,
}

impl Descendants {
    pub const ALL: [Self; 2] = [Self::Keep, Self::Revoke];

    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Revoke => "revoke",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|descendants| descendants.name() == text)
    }
}

/// How to rotate a key.
#[derive(Clone, Copy, Debug)]
pub struct RotationRequest {
    /// How long the old secrets remain valid.
    pub grace: Duration,
    pub webhook_secret_too: bool,
}

/// A key with its secrets, which are shown only once.
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
    /// The key after which the next page begins, if there is one.
    pub next: Option<KeyId>,
}

const ROOT_NOT_REVOCABLE: KeyError = KeyError::Forbidden("the root key can't be revoked");

/// How often a change is retried after a conflict with another change.
const CONFLICT_RETRIES: usize = 16;
/// The page size of the keys to revoke.
const REVOKED_PAGE: usize = 256;
/// How many keys are revoked concurrently.
const REVOKED_AT_ONCE: usize = 32;

/// Manages API keys.
pub struct KeyService {
    store: Arc<dyn KeyStore>,
    once: Arc<dyn OnceStore>,
    authentication: Arc<AuthenticationService>,
    plans: Plans,
    vault: Arc<Vault>,
    clock: Clock,
    random: SystemRandom,
    /// Orders ids of the same millisecond, and keeps them unique.
    ids: Mutex<ContextV7>,
    /// The operator sets the root key's secret in the environment: it can't be rotated here.
    root_is_chosen: bool,
    changes: StripedLocks,
}

impl KeyService {
    pub fn new(
        store: Arc<dyn KeyStore>,
        once: Arc<dyn OnceStore>,
        authentication: Arc<AuthenticationService>,
        plans: Plans,
        vault: Arc<Vault>,
        clock: Clock,
        root_is_chosen: bool,
    ) -> Self {
        let (random, ids) = (SystemRandom::new(), Mutex::default());
        let changes = StripedLocks::default();
        Self { store, once, authentication, plans, vault, clock, random, ids, root_is_chosen, changes }
    }

    /// Creates a key below `creator`.
    pub async fn create(&self, creator: &ApiKey, new: NewKey) -> Result<IssuedKey, KeyError> {
        let now = self.clock.now();
        let issued = self.generate_key(creator, new, self.new_id(now), now)?;
        self.store.create_key(issued.key.clone(), self.plans.of(creator).child_keys).await?;
        // A look-up of its secret before this moment may have cached that it is unknown.
        self.authentication.key_changed(&issued.key).await;
        Ok(issued)
    }

    /// A new key below `creator`, with new secrets.
    fn generate_key(&self, creator: &ApiKey, new: NewKey, id: KeyId, now: Timestamp) -> Result<IssuedKey, KeyError> {
        let scopes = new.scopes.unwrap_or(creator.default_scopes());
        let given = KeyChange { tier: Some(new.tier), scopes: Some(scopes), ..KeyChange::default() };
        require_grantable(creator, &given)?;
        if creator.ancestors.len() >= ApiKey::MAX_DEPTH {
            return Err(KeyError::Forbidden("keys can be created at most 16 levels below the root key"));
        }
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
            // An expiry after the creator's was refused before; in any case no key outlives its creator.
            expires_at: new.expires_at.into_iter().chain(creator.expires_at).min(),
            rotated_at: None,
            revoked_at: None,
            ancestors: creator.ancestors_of_child(),
            revision: 1,
        };
        Ok(IssuedKey { key, secret: Some(secret), webhook_secret: Some(webhook_secret) })
    }

    /// The keys that `viewer` may see, newest first, without revoked ones.
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

    /// The record of `caller`. It is read from the store: another node may have changed the key.
    pub async fn own(&self, caller: &ApiKey) -> Result<ListedKey, KeyError> {
        let key = self.visible_key(caller, caller.id).await?;
        Ok(ListedKey { last_used_at: self.last_used_at(key.id).await?, key })
    }

    /// Revokes a key. Its links remain. Keys below it remain valid, or are revoked before it.
    pub async fn revoke(&self, caller: &ApiKey, id: KeyId, descendants: Descendants) -> Result<(), KeyError> {
        if descendants == Descendants::Revoke {
            self.revoke_below(caller, id).await?;
        }
        self.revoke_one(caller, id).await
    }

    /// Revokes all keys below a key. The key itself stays valid, so that an interrupted revocation can be repeated,
    /// but it can't create keys.
    async fn revoke_below(&self, caller: &ApiKey, id: KeyId) -> Result<(), KeyError> {
        if self.visible_key(caller, id).await?.is_root {
            return Err(ROOT_NOT_REVOCABLE);
        }
        self.store.stop_key_creation(id).await?;
        // A key that its creator was creating while being revoked may appear in a part of the list that was read
        // already. So the list is read again until it is empty: then no key is left that could create one.
        loop {
            let (mut after, mut found) = (None, false);
            loop {
                let page = self.store.keys_seen_by(id, after, REVOKED_PAGE).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                let below: Vec<KeyId> = page.iter().map(|key| key.id).filter(|below| *below != id).collect();
                found |= !below.is_empty();
                let ending = stream::iter(below).map(|below| self.revoke_one(caller, below));
                let ended = ending.buffer_unordered(REVOKED_AT_ONCE).map(|ended| match ended {
                    // Another request has revoked it.
                    Err(KeyError::NotFound) => Ok(()),
                    ended => ended,
                });
                ended.try_collect::<()>().await?;
            }
            if !found {
                return Ok(());
            }
        }
    }

    async fn revoke_one(&self, caller: &ApiKey, id: KeyId) -> Result<(), KeyError> {
        let now = self.clock.now();
        self.change(caller, id, |key| {
            if key.is_root {
                return Err(ROOT_NOT_REVOCABLE);
            }
            key.revoked_at = Some(now);
            key.retiring_secret = None;
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Gives a key a new secret. The old one remains valid for the grace period.
    ///
    /// `presented` is the hash of the caller's secret. A key may rotate itself only with its current secret:
    /// otherwise a client that has only the previous secret, during its grace period, could take over the key.
    pub async fn rotate(
        &self,
        caller: &ApiKey,
        presented: SecretHash,
        id: KeyId,
        rotation: RotationRequest,
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
                        "a key can rotate itself only with its current secret, not with the previous one",
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

    /// The key of a caller with this secret as it is now; `None` if it is not valid any more.
    pub async fn valid_now(&self, caller: &ApiKey, presented: &SecretHash) -> Result<Option<ApiKey>, KeyError> {
        let stored = self.store.key(caller.id).await?;
        Ok(stored.filter(|key| key.accepts(presented, self.clock.now())))
    }

    /// A key that is not revoked and that `caller` may see.
    pub async fn visible_key(&self, caller: &ApiKey, id: KeyId) -> Result<ApiKey, KeyError> {
        let stored = self.store.key(id).await?;
        stored.filter(|key| key.revoked_at.is_none() && caller.sees(key)).ok_or(KeyError::NotFound)
    }

    fn is_chosen(&self, key: &ApiKey) -> bool {
        key.is_root && self.root_is_chosen
    }

    /// Applies `change` to the newest revision of a key that `caller` may see.
    async fn change(
        &self,
        caller: &ApiKey,
        id: KeyId,
        change: impl Fn(&mut ApiKey) -> Result<(), KeyError>,
    ) -> Result<ApiKey, KeyError> {
        for _ in 0..CONFLICT_RETRIES {
            let mut key = self.visible_key(caller, id).await?;
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
        Err(too_many_conflicts())
    }

    fn new_id(&self, now: Timestamp) -> KeyId {
        // The counter is valid even after a panic.
        new_key_id(&lock(&self.ids), now)
    }
}

/// Checks that `giver` could create a key with what is given.
fn require_grantable(giver: &ApiKey, change: &KeyChange) -> Result<(), KeyError> {
    if change.tier.is_some_and(|tier| tier > giver.tier) {
        return Err(KeyError::Forbidden("a key can't give a key a higher tier than its own"));
    }
    if change.scopes.is_some_and(|scopes| !scopes.is_subset_of(giver.scopes)) {
        return Err(KeyError::Forbidden("a key can't grant a scope that it lacks"));
    }
    if change.expires_at.is_some_and(|end| giver.is_outlived_by(end)) {
        return Err(KeyError::Forbidden("a key can't give a key a later expiry than its own"));
    }
    Ok(())
}

fn too_many_conflicts() -> KeyError {
    StoreError::Unavailable("a key was changed concurrently too often".into()).into()
}

/// The id of a key created at `now`. Keys are listed in the order of their ids.
pub(super) fn new_key_id(ids: &ContextV7, now: Timestamp) -> KeyId {
    let nanos = u32::try_from(now.0 % 1000).unwrap_or(0) * 1_000_000;
    KeyId(Uuid::new_v7(UuidTime::from_unix(ids, now.seconds(), nanos)))
}

/// Generates a webhook secret and encrypts it for the key `id`.
pub(super) fn new_webhook_secret(
    vault: &Vault,
    random: &SystemRandom,
    id: KeyId,
) -> Result<(WebhookSecret, SealedSecret), KeyError> {
    let secret = WebhookSecret::generate(random).map_err(|_| KeyError::NoRandomness)?;
    let sealed = vault.seal(random, id.0.as_bytes(), secret.reveal())?;
    Ok((secret, sealed))
}

/// Replaces `current` by `new`. The old secret remains valid until `until`; an even older one ends at once.
fn retiring<T>(current: &mut T, new: T, now: Timestamp, until: Timestamp) -> Option<Retiring<T>> {
    let old = std::mem::replace(current, new);
    (until > now).then_some(Retiring { secret: old, until })
}

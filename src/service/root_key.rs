//! The operator's key: there from the first start on.

use std::io;

use ring::rand::SystemRandom;
use thiserror::Error;
use uuid::{ContextV7, Uuid};

use super::keys::{KeyError, new_key_id, new_webhook_secret};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, KeySecret, ScopeSet, SealedSecret, Tier};
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::Vault;
use crate::store::transfer::{MASTER_KEY_CHECK, ROOT_KEY};
use crate::store::{CreateKeyError, KeyStore, SharedNode, Store, StoreError, UpdateKeyError};

/// Why the root key could not be set up.
#[derive(Debug, Error)]
pub enum RootKeyError {
    #[error(
        "the master key is not the one that this store was created with. Restore the original SIGNPOST_MASTER_KEY, the same on all nodes"
    )]
    WrongMasterKey,
    #[error("can't print the secrets of the first start: {0}")]
    NotShown(#[source] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the operator is to be told at a first start.
#[derive(Clone, Copy, Debug)]
pub enum FirstStartSecrets<'a> {
    /// Secrets that are not shown again. They open nothing yet.
    Made {
        /// None where the operator chose it.
        secret: Option<&'a KeySecret>,
        webhook_secret: &'a WebhookSecret,
    },
    /// Another node has made the key meanwhile, or a start whose end nobody saw: what was told now is of no use.
    MadeBefore,
    /// It is not known whether what was told is kept.
    Uncertain,
}

/// Tells the operator, and has done so for certain when it returns.
pub type Tell<'a> = &'a dyn Fn(FirstStartSecrets<'_>) -> io::Result<()>;

/// Makes the root key where there is none, and gives it the secret that the operator chose, if one was.
///
/// Safe where several nodes start at once: the first that names the key wins. And where the process ends in the middle: the
/// key is kept only once its secrets were told, so that there is never one that nobody knows.
pub async fn set_up(
    store: &dyn Store,
    vault: &Vault,
    chosen: Option<KeySecret>,
    now: Timestamp,
    tell: Tell<'_>,
) -> Result<(), RootKeyError> {
    check_master_key(store, vault).await?;
    let proposed = new_key_id(&ContextV7::new(), now).0.as_bytes().to_vec();
    let id = store.put_if_absent(ROOT_KEY, proposed).await?;
    let id = Uuid::from_slice(&id).map(KeyId).map_err(|error| corrupt(&error))?;
    let Some(mut key) = store.key(id).await? else {
        return create(store, vault, id, chosen, now, tell).await;
    };
    if let Some(chosen) = chosen
        && !key.secret_hash.matches(&chosen.hash())
    {
        key.secret_hash = chosen.hash();
        key.retiring_secret = None;
        key.prefix = chosen.prefix();
        key.revision += 1;
        match store.update_key(key).await {
            // Another node has set it meanwhile, from the same setting.
            Ok(()) | Err(UpdateKeyError::Conflict) => {}
            Err(UpdateKeyError::Store(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn create(
    store: &dyn KeyStore,
    vault: &Vault,
    id: KeyId,
    chosen: Option<KeySecret>,
    now: Timestamp,
    tell: Tell<'_>,
) -> Result<(), RootKeyError> {
    let random = SystemRandom::new();
    let is_chosen = chosen.is_some();
    let secret = match chosen {
        Some(chosen) => chosen,
        None => KeySecret::generate(&random).map_err(|_| KeyError::NoRandomness)?,
    };
    let (webhook_secret, sealed) = new_webhook_secret(vault, &random, id)?;
    let made = FirstStartSecrets::Made { secret: (!is_chosen).then_some(&secret), webhook_secret: &webhook_secret };
    tell(made).map_err(RootKeyError::NotShown)?;
    let key = ApiKey {
        id,
        name: "root".into(),
        tier: Tier::Pro,
        scopes: ScopeSet::ALL,
        is_root: true,
        prefix: secret.prefix(),
        secret_hash: secret.hash(),
        retiring_secret: None,
        webhook_secret: sealed,
        retiring_webhook_secret: None,
        created_at: now,
        expires_at: None,
        rotated_at: None,
        revoked_at: None,
        ancestors: Vec::new(),
        revision: 1,
    };
    let (hash, webhook_secret) = (key.secret_hash, key.webhook_secret.clone());
    match keep(store, key).await {
        // The first one is kept.
        Ok(kept) if kept.secret_hash == hash && kept.webhook_secret == webhook_secret => Ok(()),
        Ok(_) => tell(FirstStartSecrets::MadeBefore).map_err(RootKeyError::NotShown),
        Err(error) => {
            tell(FirstStartSecrets::Uncertain).map_err(RootKeyError::NotShown)?;
            Err(error.into())
        }
    }
}

/// Keeps the key unless there is one already; answers the one that is there then.
async fn keep(store: &dyn KeyStore, key: ApiKey) -> Result<ApiKey, StoreError> {
    let id = key.id;
    match store.create_key(key, None).await {
        Ok(()) => {}
        Err(CreateKeyError::Store(error)) => return Err(error),
        Err(refused) => return Err(corrupt(&refused)),
    }
    store.key(id).await?.ok_or_else(|| corrupt(&"the root key is not there"))
}

/// What the check of the master key is sealed for.
const CHECK_CONTEXT: &[u8] = b"master key check";

/// Whether this vault has the master key of the store that keeps this [check](MASTER_KEY_CHECK).
pub fn has_key_of(vault: &Vault, check: &SealedSecret) -> bool {
    vault.open(CHECK_CONTEXT, check).is_ok()
}

/// A wrong master key is noticed at the start, not at the first webhook.
async fn check_master_key(store: &dyn SharedNode, vault: &Vault) -> Result<(), RootKeyError> {
    let check = vault.seal(&SystemRandom::new(), CHECK_CONTEXT, "signpost").map_err(KeyError::from)?;
    let kept = store.put_if_absent(MASTER_KEY_CHECK, check.0).await?;
    if has_key_of(vault, &SealedSecret(kept)) { Ok(()) } else { Err(RootKeyError::WrongMasterKey) }
}

fn corrupt(reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt { table: "meta", reason: reason.to_string() }
}

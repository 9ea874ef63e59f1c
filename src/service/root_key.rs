//! The operator's key, which is created at the first start.

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

/// The secrets that a first start shows to the operator.
#[derive(Clone, Copy, Debug)]
pub enum FirstStartSecrets<'a> {
    /// Secrets that are shown once. They are not valid yet.
    Created {
        /// `None` if the operator has set it.
        secret: Option<&'a KeySecret>,
        webhook_secret: &'a WebhookSecret,
    },
    /// Another node, or an earlier interrupted start, has created the key: the secrets just shown are invalid.
    Superseded,
    /// It is unknown whether the secrets just shown were stored.
    Uncertain,
}

/// Shows the secrets to the operator. When it returns `Ok`, they were written.
pub type ShowKey<'a> = &'a dyn Fn(FirstStartSecrets<'_>) -> io::Result<()>;

/// Creates the root key if it is missing, and sets the secret that the operator has chosen, if any.
///
/// Safe if several nodes start at once: the first one to write the key's id wins. Safe if the process is interrupted:
/// the key is stored only after its secrets were shown, so a stored key always has known secrets.
pub async fn set_up(
    store: &dyn Store,
    vault: &Vault,
    chosen: Option<KeySecret>,
    now: Timestamp,
    show: ShowKey<'_>,
) -> Result<(), RootKeyError> {
    check_master_key(store, vault).await?;
    let proposed = new_key_id(&ContextV7::new(), now).0.as_bytes().to_vec();
    let id = store.put_if_absent(ROOT_KEY, proposed).await?;
    let id = Uuid::from_slice(&id).map(KeyId).map_err(|error| corrupt(&error))?;
    let Some(mut key) = store.key(id).await? else {
        return create(store, vault, id, chosen, now, show).await;
    };
    if let Some(chosen) = chosen
        && !key.secret_hash.matches(&chosen.hash())
    {
        key.secret_hash = chosen.hash();
        key.retiring_secret = None;
        key.prefix = chosen.prefix();
        key.revision += 1;
        match store.update_key(key).await {
            // Another node has set it, from the same setting.
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
    show: ShowKey<'_>,
) -> Result<(), RootKeyError> {
    let random = SystemRandom::new();
    let is_chosen = chosen.is_some();
    let secret = match chosen {
        Some(chosen) => chosen,
        None => KeySecret::generate(&random).map_err(|_| KeyError::NoRandomness)?,
    };
    let (webhook_secret, sealed) = new_webhook_secret(vault, &random, id)?;
    let created =
        FirstStartSecrets::Created { secret: (!is_chosen).then_some(&secret), webhook_secret: &webhook_secret };
    show(created).map_err(RootKeyError::NotShown)?;
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
    match store_first(store, key).await {
        // The first key is stored.
        Ok(kept) if kept.secret_hash == hash && kept.webhook_secret == webhook_secret => Ok(()),
        Ok(_) => show(FirstStartSecrets::Superseded).map_err(RootKeyError::NotShown),
        Err(error) => {
            show(FirstStartSecrets::Uncertain).map_err(RootKeyError::NotShown)?;
            Err(error.into())
        }
    }
}

/// Stores the key if there is none, and returns the stored one.
async fn store_first(store: &dyn KeyStore, key: ApiKey) -> Result<ApiKey, StoreError> {
    let id = key.id;
    match store.create_key(key, None).await {
        Ok(()) => {}
        Err(CreateKeyError::Store(error)) => return Err(error),
        Err(refused) => return Err(corrupt(&refused)),
    }
    store.key(id).await?.ok_or_else(|| corrupt(&"the root key is missing"))
}

/// The context under which the check of the master key is encrypted.
const CHECK_CONTEXT: &[u8] = b"master key check";

/// Whether this vault has the master key of the store with this [check](MASTER_KEY_CHECK).
pub fn has_key_of(vault: &Vault, check: &SealedSecret) -> bool {
    vault.open(CHECK_CONTEXT, check).is_ok()
}

/// Checks the master key at the start, before any webhook needs it.
async fn check_master_key(store: &dyn SharedNode, vault: &Vault) -> Result<(), RootKeyError> {
    let check = vault.seal(&SystemRandom::new(), CHECK_CONTEXT, "signpost").map_err(KeyError::from)?;
    let kept = store.put_if_absent(MASTER_KEY_CHECK, check.0).await?;
    if has_key_of(vault, &SealedSecret(kept)) { Ok(()) } else { Err(RootKeyError::WrongMasterKey) }
}

fn corrupt(reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt { table: "meta", reason: reason.to_string() }
}

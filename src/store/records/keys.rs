//! An API key: its row in the embedded store, its line in an export, its `record` on the cluster.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{RecordFault, Time, require, split_version, unknown_version};
use crate::domain::key::{ApiKey, KeyId, Retiring, ScopeSet, SealedSecret, SecretHash, Tier, fault_of_name};
use crate::store::StoreError;

pub const TABLE: &str = "keys";
const VERSION: u8 = 1;

/// A nonce and a tag, and what they seal.
const SEALED_BYTES: std::ops::RangeInclusive<usize> = 29..=1_024;
const PREFIX_CHARACTERS: usize = 8;
const MAX_REVISION: u64 = i64::MAX.unsigned_abs();

written_enum! {
    TierV1 for Tier { Free, Pro }
}

/// A key in rows, columns and exports. Secrets are hashed or sealed; still, it has no `Debug`.
#[derive(Serialize, Deserialize)]
pub struct KeyV1<'a> {
    id: Uuid,
    name: Cow<'a, str>,
    tier: TierV1,
    /// One bit for each scope.
    scopes: u8,
    is_root: bool,
    prefix: Cow<'a, str>,
    secret_hash: [u8; 32],
    retiring_secret: Option<RetiringV1<[u8; 32]>>,
    webhook_secret: Cow<'a, [u8]>,
    retiring_webhook_secret: Option<RetiringV1<Cow<'a, [u8]>>>,
    created_at: Time,
    expires_at: Option<Time>,
    rotated_at: Option<Time>,
    revoked_at: Option<Time>,
    ancestors: Vec<Uuid>,
    revision: u64,
}

/// A secret that works until a time.
#[derive(Serialize, Deserialize)]
struct RetiringV1<T> {
    secret: T,
    until: Time,
}

impl<'a> From<&'a ApiKey> for KeyV1<'a> {
    fn from(key: &'a ApiKey) -> Self {
        let ApiKey {
            id,
            name,
            tier,
            scopes,
            is_root,
            prefix,
            secret_hash,
            retiring_secret,
            webhook_secret,
            retiring_webhook_secret,
            created_at,
            expires_at,
            rotated_at,
            revoked_at,
            ancestors,
            revision,
        } = key;
        let hash = |old: &Retiring<SecretHash>| {
            let Retiring { secret, until } = old;
            RetiringV1 { secret: secret.0, until: Time(*until) }
        };
        let sealed = |old: &'a Retiring<SealedSecret>| {
            let Retiring { secret, until } = old;
            RetiringV1 { secret: Cow::Borrowed(secret.0.as_slice()), until: Time(*until) }
        };
        Self {
            id: id.0,
            name: name.into(),
            tier: (*tier).into(),
            scopes: scopes.bits(),
            is_root: *is_root,
            prefix: prefix.into(),
            secret_hash: secret_hash.0,
            retiring_secret: retiring_secret.as_ref().map(hash),
            webhook_secret: Cow::Borrowed(&webhook_secret.0),
            retiring_webhook_secret: retiring_webhook_secret.as_ref().map(sealed),
            created_at: Time(*created_at),
            expires_at: expires_at.map(Time),
            rotated_at: rotated_at.map(Time),
            revoked_at: revoked_at.map(Time),
            ancestors: ancestors.iter().map(|key| key.0).collect(),
            revision: *revision,
        }
    }
}

/// For records from this service's own store: they were checked before they were written.
impl From<KeyV1<'_>> for ApiKey {
    fn from(record: KeyV1<'_>) -> Self {
        let KeyV1 {
            id,
            name,
            tier,
            scopes,
            is_root,
            prefix,
            secret_hash,
            retiring_secret,
            webhook_secret,
            retiring_webhook_secret,
            created_at,
            expires_at,
            rotated_at,
            revoked_at,
            ancestors,
            revision,
        } = record;
        Self {
            id: KeyId(id),
            name: name.into_owned(),
            tier: tier.into(),
            // The root key has every scope, also those that its release did not know.
            scopes: if is_root { ScopeSet::ALL } else { ScopeSet::from_bits(scopes) },
            is_root,
            prefix: prefix.into_owned(),
            secret_hash: SecretHash(secret_hash),
            retiring_secret: retiring_secret
                .map(|RetiringV1 { secret, until }| Retiring { secret: SecretHash(secret), until: until.0 }),
            webhook_secret: SealedSecret(webhook_secret.into_owned()),
            retiring_webhook_secret: retiring_webhook_secret.map(|RetiringV1 { secret, until }| Retiring {
                secret: SealedSecret(secret.into_owned()),
                until: until.0,
            }),
            created_at: created_at.0,
            expires_at: expires_at.map(|time| time.0),
            rotated_at: rotated_at.map(|time| time.0),
            revoked_at: revoked_at.map(|time| time.0),
            ancestors: ancestors.into_iter().map(KeyId).collect(),
            revision,
        }
    }
}

impl KeyV1<'_> {
    /// The key of a record from a file, if this service could have written it.
    ///
    /// `root_key` is the one that the file's first line names. Times need no check: their text has been parsed.
    pub fn checked(self, root_key: Option<&[u8]>) -> Result<ApiKey, RecordFault> {
        let Self {
            id,
            name,
            tier: _,
            scopes,
            is_root,
            prefix,
            secret_hash: _,
            retiring_secret: _,
            webhook_secret,
            retiring_webhook_secret,
            created_at: _,
            expires_at: _,
            rotated_at: _,
            revoked_at: _,
            ancestors,
            revision,
        } = &self;
        if let Some(fault) = fault_of_name(name) {
            return Err(format!("name: {fault}"));
        }
        require(ScopeSet::from_bits(*scopes).is_subset_of(ScopeSet::ALL), "scopes: there are no such ones")?;
        let is_the_root = root_key == Some(id.as_bytes().as_slice());
        require(!is_root || is_the_root, "is_root: the file's first line names another root key")?;
        let is_shown = prefix.chars().count() <= PREFIX_CHARACTERS && prefix.chars().all(|c| c.is_ascii_graphic());
        require(is_shown, "prefix: must be at most 8 visible ASCII characters")?;
        require(ancestors.len() <= ApiKey::MAX_DEPTH, "ancestors: must be at most 16")?;
        let distinct: HashSet<_> = ancestors.iter().chain([id]).collect();
        require(distinct.len() == ancestors.len() + 1, "ancestors: must be distinct, and not the key itself")?;
        require(is_sealed(webhook_secret), "webhook_secret: is not an encrypted secret")?;
        let retiring = retiring_webhook_secret.as_ref().is_none_or(|old| is_sealed(&old.secret));
        require(retiring, "retiring_webhook_secret: is not an encrypted secret")?;
        require(*revision <= MAX_REVISION, "revision: must be at most 2^63-1")?;
        Ok(self.into())
    }
}

/// Whether bytes may be a secret that is sealed under the master key.
pub fn is_sealed(secret: &[u8]) -> bool {
    SEALED_BYTES.contains(&secret.len())
}

pub fn encode(key: &ApiKey) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &KeyV1::from(key))
}

pub fn decode(row: &[u8]) -> Result<ApiKey, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => super::decode::<KeyV1<'_>>(TABLE, record).map(ApiKey::from),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

pub const CHILDREN_TABLE: &str = "children of keys";
const CHILDREN_VERSION: u8 = 1;

/// The keys that one key has created.
#[derive(Default)]
pub struct Children {
    /// The key creates no more keys.
    pub is_closed: bool,
    pub keys: Vec<KeyId>,
}

/// The list of created keys in the embedded store. The cluster has columns for it.
#[derive(Serialize, Deserialize)]
struct ChildrenV1 {
    is_closed: bool,
    keys: Vec<Uuid>,
}

pub fn encode_children(children: &Children) -> Result<Vec<u8>, StoreError> {
    let Children { is_closed, keys } = children;
    let record = ChildrenV1 { is_closed: *is_closed, keys: keys.iter().map(|key| key.0).collect() };
    super::encode(CHILDREN_TABLE, CHILDREN_VERSION, &record)
}

pub fn decode_children(row: &[u8]) -> Result<Children, StoreError> {
    match split_version(CHILDREN_TABLE, row)? {
        (CHILDREN_VERSION, record) => {
            let ChildrenV1 { is_closed, keys } = super::decode(CHILDREN_TABLE, record)?;
            Ok(Children { is_closed, keys: keys.into_iter().map(KeyId).collect() })
        }
        (later, _) => Err(unknown_version(CHILDREN_TABLE, later, CHILDREN_VERSION)),
    }
}

/// The column `record`.
pub fn to_json(key: &ApiKey) -> Result<String, StoreError> {
    super::to_json(TABLE, &KeyV1::from(key))
}

pub fn from_json(record: &str) -> Result<ApiKey, StoreError> {
    super::from_json::<KeyV1<'_>>(TABLE, record).map(ApiKey::from)
}

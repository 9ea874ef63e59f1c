//! The bodies of requests and answers about API keys, with the examples of the API reference.

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use uuid::{Uuid, uuid};

use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, Scope, Tier};
use crate::http::openapi::schemas::{DescendantsName, ScopeName, TierName};
use crate::http::times;
use crate::service::keys::IssuedKey;

/// An API key, without its secrets.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyRecord {
    /// Id of the key. Rotation does not change it.
    #[schema(value_type = String, format = "uuid")]
    pub key_id: Uuid,
    /// The name for people.
    pub name: String,
    /// The first 8 characters of the key, to distinguish keys.
    pub prefix: String,
    /// The tier, which sets rate limits and quotas.
    #[schema(value_type = TierName)]
    pub tier: &'static str,
    /// The scopes of the key.
    #[schema(value_type = Vec<ScopeName>)]
    pub scopes: Vec<&'static str>,
    /// Creation time, UTC.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub created_at: Timestamp,
    /// When the key expires; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub expires_at: Option<Timestamp>,
    /// When the key was last used, at most 10 s old; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub last_used_at: Option<Timestamp>,
    /// When the key, or its webhook secret, was last rotated; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub rotated_at: Option<Timestamp>,
    /// The `key_id` of the key that created this one, which may be a key that you can't see; `null` for the root key.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub created_by: Option<Uuid>,
}

/// An API key with its secrets, which are shown only once; so it has no `Debug`.
#[derive(Serialize, ToSchema)]
pub struct IssuedKeyRecord {
    /// The key: `sp_` and 43 letters and digits. Shown only once; only its hash is stored. `null` in an answer to a repeated
    /// request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^sp_[0-9A-Za-z]{43}$")]
    pub key: Option<String>,
    /// Signs the webhook requests of all links that the key creates: `whsec_` and the base64 of 32 bytes. Shown only
    /// once; `null` in an answer to a repeated request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^whsec_[0-9A-Za-z+/]{43}=$")]
    pub webhook_secret: Option<String>,
    #[serde(flatten)]
    pub record: KeyRecord,
}

/// An API key as a repeated request is answered with it: without its secrets, which are not stored.
#[derive(Serialize)]
pub struct ReplayedKeyRecord {
    key: (),
    webhook_secret: (),
    #[serde(flatten)]
    record: KeyRecord,
}

impl ReplayedKeyRecord {
    pub fn of(key: &ApiKey) -> Self {
        Self { key: (), webhook_secret: (), record: KeyRecord::of(key, None) }
    }
}

/// A page of API keys, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyList {
    /// The keys of this page.
    pub api_keys: Vec<KeyRecord>,
    /// Send it as `cursor` for the next page; `null` on the last page.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// Parameters of the list of keys.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct ListKeysParameters {
    /// Maximum number of keys on the page.
    #[param(minimum = 1, maximum = 100, default = 50)]
    limit: Option<u8>,
    /// `next_cursor` of the previous page. Omit it for the first page.
    cursor: Option<String>,
}

/// Parameters of a revocation.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct Revocation {
    /// What happens to all keys below this one: `keep` leaves them valid, `revoke` revokes them too.
    #[param(default = "keep")]
    descendants: Option<DescendantsName>,
}

/// A new key. A field that is `null` counts as missing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct NewApiKey {
    /// A name for people: 1 to 100 characters, without control characters, and not only white space.
    #[schema(min_length = 1, max_length = 100, pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$")]
    name: String,
    /// The tier, which sets rate limits and quotas, at most that of the key that creates it. Default: `Free`.
    tier: Option<TierName>,
    /// The scopes, a subset of the scopes of the key that creates it. Default: all of these except `keys:manage`.
    scopes: Option<Vec<ScopeName>>,
    /// When the key expires: in the future, and not later than the key that creates it. Default: when that key
    /// expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// What to change of a key (JSON Merge Patch). A field that is not sent stays as it is; `null` sets it to its default.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct KeyPatch {
    /// A name for people: 1 to 100 characters, without control characters, and not only white space. It has no default.
    #[schema(min_length = 1, max_length = 100, pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$", nullable = false)]
    name: Option<String>,
    /// The tier, at most that of the key that sends the request. Default: `Free`.
    tier: Option<TierName>,
    /// The scopes, which replace all scopes of the key: a subset of those of the key that sends the request. Default:
    /// all of these except `keys:manage`.
    scopes: Option<Vec<ScopeName>>,
    /// When the key expires: in the future, and not later than the key that sends the request. Default: when that key
    /// expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// Options of a rotation. A field that is `null` counts as missing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct KeyRotation {
    /// How long the old secrets remain valid, in seconds: at most a week. A second rotation within that time ends the
    /// older secret at once.
    #[schema(minimum = 0, maximum = 604_800, default = 0)]
    grace_seconds: Option<u32>,
    /// Whether to replace the webhook secret too. During the grace period webhooks have signatures of both.
    #[schema(default = false)]
    rotate_webhook_secret: Option<bool>,
}

impl KeyRecord {
    pub fn of(key: &ApiKey, last_used_at: Option<Timestamp>) -> Self {
        Self {
            key_id: key.id.0,
            name: key.name.clone(),
            prefix: key.prefix.clone(),
            tier: key.tier.name(),
            scopes: key.scopes.iter().map(Scope::name).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at,
            rotated_at: key.rotated_at,
            created_by: key.created_by().map(|id| id.0),
        }
    }

    fn example() -> Self {
        let scopes = Scope::ALL.into_iter().filter(|scope| *scope != Scope::KeysManage);
        Self {
            key_id: uuid!("019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57"),
            name: "web shop".into(),
            prefix: "sp_4kQmV".into(),
            tier: Tier::Free.name(),
            scopes: scopes.map(Scope::name).collect(),
            // 2026-11-21T07:49:42.028Z
            created_at: Timestamp(1_795_247_382_028),
            expires_at: None,
            last_used_at: None,
            rotated_at: None,
            created_by: Some(uuid!("019aa3f0-6a11-7d42-8c1e-5b7a90d2e3f4")),
        }
    }

    /// The same, 15 minutes later.
    pub fn used_example() -> Self {
        let made = Self::example();
        Self { last_used_at: Some(Timestamp(made.created_at.0 + 749_512)), ..made }
    }
}

impl IssuedKeyRecord {
    pub fn of(issued: &IssuedKey, last_used_at: Option<Timestamp>) -> Self {
        Self {
            key: issued.secret.as_ref().map(|secret| secret.reveal().to_owned()),
            webhook_secret: issued.webhook_secret.as_ref().map(|secret| secret.reveal().to_owned()),
            record: KeyRecord::of(&issued.key, last_used_at),
        }
    }

    pub fn example() -> Self {
        Self {
            key: Some("sp_4kQmVYx0eQpT7bS2wZ9LrC6uJd1HfN8gXa3KiM5oEyR".into()),
            webhook_secret: Some("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".into()),
            record: KeyRecord::example(),
        }
    }

    pub fn rotated_example() -> Self {
        let used = KeyRecord::used_example();
        let rotated_at = used.last_used_at.map(|used_at| Timestamp(used_at.0 + 437));
        Self {
            key: Some("sp_9fTzP2rWcK7yLmB4vHs0QeXj6NdUa1GoE8iZ3kRtYqV".into()),
            webhook_secret: None,
            record: KeyRecord { prefix: "sp_9fTzP".into(), rotated_at, ..used },
        }
    }
}

impl KeyList {
    pub fn example() -> Self {
        Self { api_keys: vec![KeyRecord::used_example()], next_cursor: None }
    }
}

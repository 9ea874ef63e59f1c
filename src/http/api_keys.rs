//! `/api-keys`: create, list, revoke, rotate.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, Responder, web};
use serde::Serialize;
use uuid::Uuid;

use super::Api;
use super::body::{Fields, read_json};
use super::gate::Caller;
use super::problem::{Kind, Problem};
use super::query::Query;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, Scope, ScopeSet, Tier};
use crate::service::keys::{IssuedKey, NewKey, Rotation};

/// Keys on a page when no `limit` is given.
const DEFAULT_PAGE: usize = 50;
/// The longest name, in characters.
const MAX_NAME: usize = 100;
/// The longest grace of a rotation: a week.
const MAX_GRACE_SECONDS: u64 = 604_800;

/// An API key, without its secrets.
#[derive(Debug, Serialize)]
pub struct KeyRecord {
    pub key_id: Uuid,
    pub name: String,
    /// The first 8 characters of the key, for people to tell keys apart.
    pub prefix: String,
    pub tier: Tier,
    pub scopes: Vec<&'static str>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
}

/// An API key with the secrets that are shown this one time.
#[derive(Debug, Serialize)]
pub struct IssuedKeyRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
    #[serde(flatten)]
    pub record: KeyRecord,
}

/// A page of API keys, newest first.
#[derive(Debug, Serialize)]
pub struct KeyList {
    pub api_keys: Vec<KeyRecord>,
    /// Give it as `cursor` for the next page.
    pub next_cursor: Option<String>,
}

fn record(key: &ApiKey, last_used_at: Option<Timestamp>) -> KeyRecord {
    KeyRecord {
        key_id: key.id.0,
        name: key.name.clone(),
        prefix: key.prefix.clone(),
        tier: key.tier,
        scopes: key.scopes.iter().map(Scope::name).collect(),
        created_at: key.created_at,
        expires_at: key.expires_at,
        last_used_at,
        rotated_at: key.rotated_at,
    }
}

fn issued(issued: &IssuedKey, last_used_at: Option<Timestamp>) -> IssuedKeyRecord {
    IssuedKeyRecord {
        key: issued.secret.as_ref().map(|secret| secret.reveal().to_owned()),
        webhook_secret: issued.webhook_secret.as_ref().map(|secret| secret.reveal().to_owned()),
        record: record(&issued.key, last_used_at),
    }
}

/// `POST /api-keys`
pub async fn create(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = Fields::parse(&body)?;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let new = new_key(fields, api.clock.now())?;
    let key = api.keys.create(&caller.key, new).await?;
    Ok(HttpResponse::Created().json(issued(&key, None)))
}

fn new_key(mut fields: Fields<'_>, now: Timestamp) -> Result<NewKey, Problem> {
    let name = fields.take_required_string("name").inspect(|name| {
        if !(1..=MAX_NAME).contains(&name.chars().count()) {
            fields.faults.at("/name", "must have 1 to 100 characters");
        }
    });
    let tier = match fields.take_string("tier").map(|tier| Tier::parse(&tier)) {
        None => Tier::Free,
        Some(Some(tier)) => tier,
        Some(None) => {
            fields.faults.at("/tier", "must be Free or Pro");
            Tier::Free
        }
    };
    let scopes = scopes(&mut fields);
    let expires_at = match fields.take_string("expires_at").map(|time| Timestamp::parse(&time)) {
        None => None,
        Some(Some(time)) if time > now => Some(time),
        Some(Some(_)) => {
            fields.faults.at("/expires_at", "must be in the future");
            None
        }
        Some(None) => {
            fields.faults.at("/expires_at", "must be an ISO 8601 time such as 2027-01-31T12:00:00Z");
            None
        }
    };
    fields.finish()?;
    // `finish` has told of a name that is missing or malformed.
    let name = name.ok_or_else(Problem::internal)?;
    Ok(NewKey { name, tier, scopes, expires_at })
}

fn scopes(fields: &mut Fields<'_>) -> Option<ScopeSet> {
    let values = fields.take_array("scopes")?;
    let mut scopes = ScopeSet::EMPTY;
    for (index, value) in values.into_iter().enumerate() {
        let name: Option<String> = serde_json::from_str(value.get()).ok();
        if let Some(scope) = name.as_deref().and_then(Scope::parse) {
            scopes = scopes.with(scope);
        } else {
            let known = Scope::ALL.map(Scope::name).join(", ");
            fields.faults.at(format!("/scopes/{index}"), format!("must be one of {known}"));
        }
    }
    Some(scopes)
}

/// `GET /api-keys`
pub async fn list(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let limit = query.page_limit(DEFAULT_PAGE);
    let parse = |text: &str| Uuid::try_parse(text).map(KeyId).map_err(|_| "must be a next_cursor of this list");
    let after = query.parse("cursor", parse);
    query.finish()?;
    let page = api.keys.list(&caller.key, after, limit).await?;
    Ok(web::Json(KeyList {
        api_keys: page.keys.iter().map(|listed| record(&listed.key, listed.last_used_at)).collect(),
        next_cursor: page.next.map(|next| next.0.simple().to_string()),
    }))
}

/// `DELETE /api-keys/{key_id}`
pub async fn revoke(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    api.keys.revoke(&caller.key, key_id(&path)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api-keys/{key_id}/rotate`
pub async fn rotate(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = if body.is_empty() { Fields::none() } else { Fields::parse(&body)? };
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let rotation = rotation(fields)?;
    let key = api.keys.rotate(&caller.key, key_id(&path)?, rotation).await?;
    let last_used_at = api.keys.last_used_at(key.key.id).await?;
    Ok(web::Json(issued(&key, last_used_at)))
}

fn rotation(mut fields: Fields<'_>) -> Result<Rotation, Problem> {
    let grace = fields.take("grace_seconds").and_then(|value| {
        let seconds = serde_json::from_str(value.get()).ok().filter(|seconds| *seconds <= MAX_GRACE_SECONDS);
        if seconds.is_none() {
            fields.faults.at("/grace_seconds", "must be an integer from 0 to 604800");
        }
        seconds
    });
    let webhook_secret_too = fields.take_bool("rotate_webhook_secret").unwrap_or(false);
    fields.finish()?;
    Ok(Rotation { grace: Duration::from_secs(grace.unwrap_or(0)), webhook_secret_too })
}

/// Text that is no UUID is the id of no key.
fn key_id(text: &str) -> Result<KeyId, Problem> {
    let id = Uuid::try_parse(text).map(KeyId);
    id.map_err(|_| Problem::new(Kind::NotFound, "There is no API key with this id."))
}

//! `/api-keys`: create, list, change, revoke, rotate, and the caller's own.

mod change;
mod records;

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, Responder, web};
use serde_json::json;
use uuid::Uuid;

pub use self::change::CHANGE;
use self::records::{
    IssuedKeyRecord, KeyList, KeyRecord, KeyRotation, ListKeysParameters, NewApiKey, ReplayedKeyRecord, Revocation,
};
use super::links::refused_once;
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{OnceEndpoint, OnceRequest};
use crate::domain::key::{ApiKey, KeyId, Scope, ScopeSet, Tier, fault_of_name};
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{self, Access, Caller};
use crate::http::body::{BodyFields, read_json};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, Tag, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::idempotency;
use crate::http::openapi::schemas::{DescendantsName, IdempotencyHeader, KeyIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::keys::{Descendants, KeyError, NewKey, RespondToKey, RotationRequest};
use crate::service::run_to_completion::RunToCompletion;

/// The rate limit of the endpoints under `/api-keys`, counted together.
pub static API_KEYS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(6), name: "api_keys", setting: "api_keys_per_minute" };

static API_KEYS: Tag =
    Tag { name: "API keys", description: "Create, list, change, revoke and rotate keys. All share one rate limit." };
const KEYS: Access = Access { scope: Scope::KeysManage, rate_limit: &API_KEYS_RATE, or_self: false };
const KEYS_OR_SELF: Access = Access { or_self: true, ..KEYS };

/// The tier of a key that is created without one.
const DEFAULT_TIER: Tier = Tier::Free;
/// The default number of keys on a page.
const DEFAULT_PAGE: usize = 50;
/// The maximum grace period of a rotation: a week.
const MAX_GRACE: Duration = Duration::from_hours(7 * 24);

pub static CREATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/api-keys",
    requires: Requirement::Key(KEYS),
    handler: || web::route().to(create),
    docs: Docs {
        id: "createApiKey",
        summary: "Create an API key",
        description: "\
Creates a key below the caller's key and returns it with its secrets, **which are shown only once**. A key can't have a
higher tier, a scope or a later expiry than its creator, and is at most 16 levels below the root key.

The tier limits how many live keys a key may have created. Revoked and expired keys do not count, nor do keys that other
keys created. Above the limit: 403 `key-quota-exceeded`. The root key has no limit.",
        tag: &API_KEYS,
        parameters: &[parameters::<IdempotencyHeader>()],
        body: Some(Body {
            description: "The key to create.",
            shape: shape::<NewApiKey>(),
            required: true,
            examples: &[
                Example {
                    name: "all",
                    summary: "A key that can only create links and expires",
                    value: || {
                        json!({
                            "name": "summer campaign",
                            "tier": Tier::Pro.name(),
                            "scopes": [Scope::LinksWrite.name()],
                            "expires_at": "2027-09-30T22:00:00Z",
                        })
                    },
                },
                Example {
                    name: "name",
                    summary: "A Free key with the default scopes",
                    value: || json!({"name": "web shop"}),
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 201,
            description: "The key is created.",
            content: &[json_body::<IssuedKeyRecord>(|| json!(IssuedKeyRecord::example()))],
            headers: &["Idempotent-Replayed"],
            names: Some("key_id"),
        }],
        problems: &[
            problem(ProblemKind::IdempotencyInProgress),
            problem(ProblemKind::IdempotencyKeyReused),
            problem_like(ProblemKind::Forbidden, || {
                KeyError::Forbidden("a key can't give a key a higher tier than its own").into()
            }),
            problem(ProblemKind::KeyQuotaExceeded),
            problem_like(ProblemKind::Validation, || fault_at("/name", "is required")),
        ],
    },
};

pub async fn create(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let fields = BodyFields::parse(&body)?;
    let once = idempotency::once(&api, &caller, OnceEndpoint::ApiKeys, &request, &body)?;
    let creator = auth::caller_now(&api, KEYS, &caller, &request).await?;
    let judged = |mut fields: BodyFields<'_>, now| {
        fields.faults = Query::of(&request).into_faults().and(fields.faults);
        new_key(fields, &creator, now)
    };
    if let Some(once) = once {
        let mut new = judged(fields, once.now);
        if new.is_err()
            && let Some(begun_at) = api.links.cut_off_once(once.clone()).await?
        {
            new = judged(BodyFields::parse(&body)?, begun_at);
        }
        return create_once(&api, creator, once, new).await;
    }
    let new = judged(fields, api.clock.now())?;
    let key = api.keys.create(&creator, new).await.inspect_err(|error| count_refusal(&api, error))?;
    Ok(HttpResponse::Created().json(IssuedKeyRecord::of(&key, None)))
}

/// Creates the key of a request with an `Idempotency-Key`.
async fn create_once(
    api: &web::Data<Api>,
    creator: ApiKey,
    once: OnceRequest,
    new: Result<NewKey, Problem>,
) -> Result<HttpResponse, Problem> {
    let new = match new {
        Ok(new) => new,
        Err(problem) => return refused_once(api, once, problem).await,
    };
    let respond: RespondToKey = Arc::new(|key| idempotency::kept(StatusCode::CREATED, &ReplayedKeyRecord::of(key)));
    let service = api.clone();
    let create = async move { service.keys.create_once(&creator, once, new, respond).await };
    let created = RunToCompletion::writes_while_waiting(create).await;
    let created = created.inspect_err(|error| count_refusal(api, error))?;
    Ok(match idempotency::done(api, created, |_| true)? {
        Ok(key) => HttpResponse::Created().json(IssuedKeyRecord::of(&key, None)),
        Err(replayed) => replayed,
    })
}

/// Counts a refusal for the number of live keys.
fn count_refusal(api: &Api, error: &KeyError) {
    if let KeyError::QuotaExceeded { .. } | KeyError::CreatorQuotaExceeded { .. } = error {
        api.metrics.refusals.keys_quota.increment(1);
    }
}

fn new_key(mut fields: BodyFields<'_>, creator: &ApiKey, now: Timestamp) -> Result<NewKey, Problem> {
    let name = fields.take_required_string("name");
    check_name(&mut fields, name.as_deref());
    let tier = tier(&mut fields).unwrap_or(DEFAULT_TIER);
    let scopes = scopes(&mut fields);
    let expires_at = expires_at(&mut fields, creator, now);
    fields.finish()?;
    // `finish` has reported a missing or malformed name.
    let name = name.ok_or_else(Problem::internal)?;
    Ok(NewKey { name, tier, scopes, expires_at })
}

fn check_name(fields: &mut BodyFields<'_>, name: Option<&str>) {
    if let Some(fault) = name.and_then(fault_of_name) {
        fields.faults.at("/name", fault);
    }
}

fn tier(fields: &mut BodyFields<'_>) -> Option<Tier> {
    let name = fields.take_string("tier")?;
    let tier = Tier::parse(&name);
    if tier.is_none() {
        fields.faults.at("/tier", "must be Free or Pro");
    }
    tier
}

/// When a key that `caller` creates or changes expires.
fn expires_at(fields: &mut BodyFields<'_>, caller: &ApiKey, now: Timestamp) -> Option<Timestamp> {
    let time = Timestamp::parse(&fields.take_string("expires_at")?);
    let fault = match time {
        None => "must be an ISO 8601 time such as 2027-01-31T12:00:00Z",
        Some(time) if time <= now => "must be in the future",
        Some(time) if caller.is_outlived_by(Some(time)) => {
            "must not be later than the expiry of the key that sends this request"
        }
        Some(_) => return time,
    };
    fields.faults.at("/expires_at", fault);
    None
}

fn scopes(fields: &mut BodyFields<'_>) -> Option<ScopeSet> {
    let values = fields.take_array("scopes")?;
    let mut scopes = ScopeSet::EMPTY;
    for (index, value) in values.into_iter().enumerate() {
        let name: Option<String> = serde_json::from_str(value.get()).ok();
        if fields.faults.is_full() {
            break;
        }
        if let Some(scope) = name.as_deref().and_then(Scope::parse) {
            scopes = scopes.with(scope);
        } else {
            let known = Scope::ALL.map(Scope::name).join(", ");
            fields.faults.at(format!("/scopes/{index}"), format!("must be one of {known}"));
        }
    }
    Some(scopes)
}

pub static LIST: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/api-keys",
    requires: Requirement::Key(KEYS),
    handler: || web::route().to(list),
    docs: Docs {
        id: "listApiKeys",
        summary: "List API keys",
        description: "\
Lists the caller's key and all keys below it, newest first, without secrets; for the root key, all keys. Revoked keys are
not listed; expired keys are.",
        tag: &API_KEYS,
        parameters: &[parameters::<ListKeysParameters>()],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "A page of keys.",
            content: &[json_body::<KeyList>(|| json!(KeyList::example()))],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation)],
    },
};

pub async fn list(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let limit = query.page_limit(DEFAULT_PAGE);
    let parse = |text: &str| Uuid::try_parse(text).map(KeyId).map_err(|_| "must be a next_cursor of this list");
    let after = query.parse("cursor", parse);
    query.finish()?;
    let page = api.keys.list(&caller.key, after, limit).await?;
    Ok(web::Json(KeyList {
        api_keys: page.keys.iter().map(|listed| KeyRecord::of(&listed.key, listed.last_used_at)).collect(),
        next_cursor: page.next.map(|next| next.0.simple().to_string()),
    }))
}

pub static SELF: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/api-keys/self",
    requires: Requirement::AnyKey(&API_KEYS_RATE),
    handler: || web::route().to(own),
    docs: Docs {
        id: "getOwnApiKey",
        summary: "Get the key of the request",
        description: "\
Returns the record of the key that sends the request: its tier, scopes and expiry. Every valid key may call it, whatever
its scopes.",
        tag: &API_KEYS,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The key.",
            content: &[json_body::<KeyRecord>(|| json!(KeyRecord::used_example()))],
            names: Some("key_id"),
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation)],
    },
};

pub async fn own(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<impl Responder, Problem> {
    Query::of(&request).finish()?;
    match api.keys.own(&caller.key).await {
        Ok(own) => Ok(web::Json(KeyRecord::of(&own.key, own.last_used_at))),
        // It has been revoked since it was authenticated.
        Err(KeyError::NotFound) => Err(Problem::unauthorized()),
        Err(error) => Err(error.into()),
    }
}

pub static REVOKE: Endpoint = Endpoint {
    methods: endpoint::DELETE,
    path: "/api-keys/{key_id}",
    requires: Requirement::Key(KEYS),
    handler: || web::route().to(revoke),
    docs: Docs {
        id: "revokeApiKey",
        summary: "Revoke an API key",
        description: "\
Revokes a key permanently. The node that answers refuses the key at once, all other nodes within 5 s. Its links still
redirect. A revoked key is unknown: a second request is answered 404. The root key can't be revoked.

With `descendants=revoke` all keys below it are revoked too: those that it created, those that they created, and so on.
They are revoked first, and the key itself last. If the answer is 503 or is missing, some keys may be revoked; repeat the
request to revoke the rest.",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyIdPath>(), parameters::<Revocation>().with_schemas(&[shape::<DescendantsName>()])],
        body: None,
        answers: &[ResponseDoc {
            status: 204,
            description: "The key is revoked, and with `descendants=revoke` all keys below it.",
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Forbidden), problem(ProblemKind::Validation), problem(ProblemKind::NotFound)],
    },
};

pub async fn revoke(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let parse = |text: &str| Descendants::parse(text).ok_or("must be keep or revoke");
    let descendants = query.parse("descendants", parse).unwrap_or_default();
    // Before the faults of the query: only who may revoke the key is told of them.
    let id = api.keys.visible_key(&caller.key, key_id(&path)?).await?.id;
    query.finish()?;
    api.keys.revoke(&caller.key, id, descendants).await?;
    Ok(HttpResponse::NoContent().finish())
}

pub static ROTATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/api-keys/{key_id}/rotate",
    requires: Requirement::Key(KEYS_OR_SELF),
    handler: || web::route().to(rotate),
    docs: Docs {
        id: "rotateApiKey",
        summary: "Rotate an API key",
        description: "\
Replaces the secret of a key and, if requested, its webhook secret. `key_id`, tier, scopes, links, usage and counts do not
change. A key may rotate itself without the scope, but only with its current secret: a previous secret in its grace period
is answered 403.

The old secret is valid until `grace_seconds` have passed, by default not at all. If the root key is set in the server's
environment, only its webhook secret can be rotated, with `rotate_webhook_secret`; the answer then has no `key`.",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyIdPath>()],
        body: Some(Body {
            description: "How to rotate. The body is optional.",
            shape: shape::<KeyRotation>(),
            required: false,
            examples: &[
                Example {
                    name: "both",
                    summary: "Also the webhook secret",
                    value: || json!({"grace_seconds": 86400, "rotate_webhook_secret": true}),
                },
                Example {
                    name: "grace",
                    summary: "The old key remains valid for an hour",
                    value: || json!({"grace_seconds": 3600}),
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The key has a new secret, which is shown only once. `webhook_secret` is present if it was rotated too.",
            content: &[json_body::<IssuedKeyRecord>(|| json!(IssuedKeyRecord::rotated_example()))],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::Forbidden),
            problem(ProblemKind::NotFound),
            problem_like(ProblemKind::Validation, || fault_at("/grace_seconds", "must be an integer from 0 to 604800")),
        ],
    },
};

pub async fn rotate(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = BodyFields::parse_optional(&body)?;
    let caller = auth::caller_now(&api, KEYS_OR_SELF, &caller, &request).await?;
    // Before the fields: only who may rotate the key is told what is wrong with them.
    let id = api.keys.visible_key(&caller, key_id(&path)?).await?.id;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let rotation = rotation(fields)?;
    let key = api.keys.rotate(&caller, auth::presented_hash(&request), id, rotation).await?;
    let last_used_at = api.keys.last_used_at(key.key.id).await?;
    Ok(web::Json(IssuedKeyRecord::of(&key, last_used_at)))
}

fn rotation(mut fields: BodyFields<'_>) -> Result<RotationRequest, Problem> {
    let grace = fields.take("grace_seconds").and_then(|value| {
        // `60.0` is an integer in JSON, and some clients have only floating-point numbers.
        let seconds = serde_json::from_str(value.get()).ok().filter(|seconds: &f64| seconds.fract() == 0.0);
        let grace = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let grace = grace.filter(|grace| *grace <= MAX_GRACE);
        if grace.is_none() {
            fields.faults.at("/grace_seconds", "must be an integer from 0 to 604800");
        }
        grace
    });
    let webhook_secret_too = fields.take_bool("rotate_webhook_secret").unwrap_or(false);
    fields.finish()?;
    Ok(RotationRequest { grace: grace.unwrap_or_default(), webhook_secret_too })
}

/// Text that is not a UUID matches no key.
fn key_id(text: &str) -> Result<KeyId, Problem> {
    let id = Uuid::try_parse(text).map(KeyId);
    id.map_err(|_| Problem::new(ProblemKind::NotFound, "Unknown API key."))
}

//! `/api-keys`: create, list, revoke, rotate.

mod records;

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, Responder, web};
use serde_json::json;
use uuid::Uuid;

use self::records::{IssuedKeyRecord, KeyList, KeyPage, KeyRecord, KeyRotation, NewApiKey, Revocation};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, Scope, ScopeSet, SecretHash, Tier, fault_of_name};
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller, presented_secret};
use crate::http::body::{Fields, read_json};
use crate::http::endpoint::{
    self, Answer, Asks, Body, Docs, Endpoint, Example, Tag, fault_at, json_body, parameters, problem, problem_like,
    shape,
};
use crate::http::openapi::schemas::{DescendantsName, KeyIdPath};
use crate::http::problem::{Kind, Problem};
use crate::http::query::Query;
use crate::service::keys::{Descendants, KeyError, NewKey, Rotation};

/// Of the four endpoints under `/api-keys`, counted together.
pub static API_KEYS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(6), name: "api_keys", setting: "api_keys_per_minute" };

static API_KEYS: Tag =
    Tag { name: "API keys", description: "Make, list, revoke and rotate keys. All four share one rate limit." };
const KEYS: Access = Access { scope: Scope::KeysManage, rate_limit: &API_KEYS_RATE, or_self: false };

/// Keys on a page when no `limit` is given.
const DEFAULT_PAGE: usize = 50;
/// The longest grace of a rotation: a week.
const MAX_GRACE: Duration = Duration::from_hours(7 * 24);

pub static CREATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/api-keys",
    asks: Asks::Key(KEYS),
    handler: || web::route().to(create),
    docs: Docs {
        id: "createApiKey",
        summary: "Create an API key",
        description: "\
Creates a key below the one that asks, and answers it with its secrets: **the only time that they are shown**. A key can
neither be of a higher tier nor have a scope that its creator lacks, nor expire later, and it is at most 16 levels below
the root key.

How many live keys a key may have created depends on its tier; keys that are revoked or expired do not count, nor do keys
that other keys created. The next one is refused, 403 `key-quota-exceeded`. The root key has no such limit.",
        tag: &API_KEYS,
        parameters: &[],
        body: Some(Body {
            description: "The key to make.",
            shape: shape::<NewApiKey>(),
            required: true,
            examples: &[
                Example {
                    name: "all",
                    summary: "A key that can only make links, for a time",
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
                    summary: "A Free key with the usual scopes",
                    value: || json!({"name": "web shop"}),
                },
            ],
        }),
        answers: &[Answer {
            status: 201,
            description: "The key is made.",
            content: &[json_body::<IssuedKeyRecord>(|| json!(IssuedKeyRecord::example()))],
            names: Some("key_id"),
            ..Answer::NONE
        }],
        problems: &[
            problem_like(Kind::Forbidden, || {
                KeyError::Forbidden("a key can't make one of a higher tier than its own").into()
            }),
            problem(Kind::KeyQuotaExceeded),
            problem_like(Kind::Validation, || fault_at("/name", "is required")),
        ],
    },
};

pub async fn create(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = Fields::parse(&body)?;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let new = new_key(fields, &caller.key, api.clock.now())?;
    let key = api.keys.create(&caller.key, new).await.inspect_err(|error| {
        if let KeyError::QuotaExceeded { .. } = error {
            api.metrics.refusals.keys_quota.increment(1);
        }
    })?;
    Ok(HttpResponse::Created().json(IssuedKeyRecord::of(&key, None)))
}

fn new_key(mut fields: Fields<'_>, creator: &ApiKey, now: Timestamp) -> Result<NewKey, Problem> {
    let name = fields.take_required_string("name");
    if let Some(fault) = name.as_deref().and_then(fault_of_name) {
        fields.faults.at("/name", fault);
    }
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
        Some(Some(time)) if time > now => {
            if creator.expires_before(time) {
                fields.faults.at("/expires_at", "must not be later than the expiry of the key that creates this one");
            }
            Some(time)
        }
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
    asks: Asks::Key(KEYS),
    handler: || web::route().to(list),
    docs: Docs {
        id: "listApiKeys",
        summary: "List API keys",
        description: "\
Newest first, without secrets: the key that asks and all those below it, to the root key all there are. Keys that were
revoked are not listed; keys that have expired are.",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyPage>()],
        body: None,
        answers: &[Answer {
            status: 200,
            description: "A page of keys.",
            content: &[json_body::<KeyList>(|| json!(KeyList::example()))],
            ..Answer::NONE
        }],
        problems: &[problem(Kind::Validation)],
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

pub static REVOKE: Endpoint = Endpoint {
    methods: endpoint::DELETE,
    path: "/api-keys/{key_id}",
    asks: Asks::Key(KEYS),
    handler: || web::route().to(revoke),
    docs: Docs {
        id: "revokeApiKey",
        summary: "Revoke an API key",
        description: "\
Ends a key for good: it is refused at once by the node that answered, and within 5 s by all others. Its links go on
redirecting. A second time, the key is unknown: 404. The root key can't be revoked.

With `descendants=revoke` all keys below it are revoked too: those that it created, those that they created, and so on.
They are revoked first, and the key itself last: where the answer is 503 or none at all, some may be revoked, and the same
request again revokes the rest.",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyIdPath>(), parameters::<Revocation>().with_schemas(&[shape::<DescendantsName>()])],
        body: None,
        answers: &[Answer {
            status: 204,
            description: "The key is revoked, and with `descendants=revoke` all keys below it.",
            ..Answer::NONE
        }],
        problems: &[problem(Kind::Forbidden), problem(Kind::Validation), problem(Kind::NotFound)],
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
    query.finish()?;
    api.keys.revoke(&caller.key, key_id(&path)?, descendants).await?;
    Ok(HttpResponse::NoContent().finish())
}

pub static ROTATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/api-keys/{key_id}/rotate",
    asks: Asks::Key(Access { or_self: true, ..KEYS }),
    handler: || web::route().to(rotate),
    docs: Docs {
        id: "rotateApiKey",
        summary: "Rotate an API key",
        description: "\
Gives a key a new secret, and its webhooks too where asked for. Its `key_id`, tier, scopes, links, usage and counters
stay. A key may rotate itself without the scope, by its current secret alone: with the old one, in its grace, it is 403.

The old secret ends at once, or after `grace_seconds`. While the root key comes from the server's settings, only its
webhook secret can be rotated here: with `rotate_webhook_secret`, and the answer has no `key`.",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyIdPath>()],
        body: Some(Body {
            description: "How to rotate; an empty body is fine.",
            shape: shape::<KeyRotation>(),
            required: false,
            examples: &[
                Example {
                    name: "both",
                    summary: "The webhook secret too",
                    value: || json!({"grace_seconds": 86400, "rotate_webhook_secret": true}),
                },
                Example {
                    name: "grace",
                    summary: "The old key works for an hour more",
                    value: || json!({"grace_seconds": 3600}),
                },
            ],
        }),
        answers: &[Answer {
            status: 200,
            description: "The key has a new secret, shown this once; `webhook_secret` only where it was rotated too.",
            content: &[json_body::<IssuedKeyRecord>(|| json!(IssuedKeyRecord::rotated_example()))],
            ..Answer::NONE
        }],
        problems: &[
            problem(Kind::Forbidden),
            problem(Kind::NotFound),
            problem_like(Kind::Validation, || fault_at("/grace_seconds", "must be an integer from 0 to 604800")),
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
    let mut fields = if body.is_empty() { Fields::none() } else { Fields::parse(&body)? };
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let rotation = rotation(fields)?;
    let presented = SecretHash::of(presented_secret(request.headers()).unwrap_or_default());
    let key = api.keys.rotate(&caller.key, presented, key_id(&path)?, rotation).await?;
    let last_used_at = api.keys.last_used_at(key.key.id).await?;
    Ok(web::Json(IssuedKeyRecord::of(&key, last_used_at)))
}

fn rotation(mut fields: Fields<'_>) -> Result<Rotation, Problem> {
    let grace = fields.take("grace_seconds").and_then(|value| {
        // `60.0` is an integer in JSON, and some clients have no other numbers.
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
    Ok(Rotation { grace: grace.unwrap_or_default(), webhook_secret_too })
}

/// Text that is no UUID is the id of no key.
fn key_id(text: &str) -> Result<KeyId, Problem> {
    let id = Uuid::try_parse(text).map(KeyId);
    id.map_err(|_| Problem::new(Kind::NotFound, "Unknown API key."))
}

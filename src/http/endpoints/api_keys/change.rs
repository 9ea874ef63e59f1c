//! `PATCH /api-keys/{key_id}`.

use actix_web::{HttpRequest, Responder, web};
use serde_json::json;

use super::records::{KeyPatch, KeyRecord};
use super::{API_KEYS, DEFAULT_TIER, KEYS, check_name, count_refusal, expires_at, key_id, scopes, tier};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, Scope};
use crate::http::Api;
use crate::http::auth::{self, Caller};
use crate::http::body::BodyFields;
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::merge_patch::{self, take_patched, take_patched_required};
use crate::http::openapi::schemas::KeyIdPath;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::keys::{KeyChange, KeyError};

pub static CHANGE: Endpoint = Endpoint {
    methods: endpoint::PATCH,
    path: "/api-keys/{key_id}",
    requires: Requirement::Key(KEYS),
    handler: || web::route().to(change),
    docs: Docs {
        id: "updateApiKey",
        summary: "Change an API key",
        description: "\
Changes the name, tier, scopes or expiry of the caller's key, or of a key below it. The body is a JSON Merge Patch (RFC 7396): a
field that is not sent stays as it is, and `null` sets a field to the default that it has when the caller creates a key.
The secrets, `key_id`, links, usage and counts of the key do not change.

What is sent is checked as if the caller created the key: no tier above its own and no scope that it lacks (403
`forbidden`), no expiry later than its own (422). So no key can widen itself. The root key can't be changed (403
`forbidden`).

The node that answers applies the change at once, all other nodes within 5 s. Two changes at once are both applied, one
after the other. If the answer is 503 or is missing, the change may be applied.

**An expired key** works again once it has a later `expires_at`. It then counts among the live keys of the key that
created it, also if that key is revoked. If those are as many as the tier allows, the answer is 403
`key-quota-exceeded`. A key that is still live keeps its place, even if the limit is lower now.

**Keys below the key** stay as they are, also those that have more scopes, a higher tier or a later expiry than the
changed key has now. To take away their access, change or revoke them too. `descendants=revoke` of a revocation revokes
all of them.

Requests are checked in this order: key (401), scope (403), rate limit (429), body (415, 413, 400), existence (404),
root key (403), fields (422), tier and scopes (403), live keys (403).",
        tag: &API_KEYS,
        parameters: &[parameters::<KeyIdPath>()],
        body: Some(Body {
            description: "What to change.",
            shape: shape::<KeyPatch>(),
            required: true,
            examples: &[
                Example {
                    name: "narrow",
                    summary: "Only create links, and expire",
                    value: || json!({"scopes": [Scope::LinksWrite.name()], "expires_at": "2027-09-30T22:00:00Z"}),
                },
                Example {
                    name: "defaults",
                    summary: "Another name, and the default expiry: that of the caller",
                    value: || json!({"name": "web shop 2", "expires_at": null}),
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The key as it is now.",
            content: &[json_body::<KeyRecord>(|| json!(KeyRecord::used_example()))],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem_like(ProblemKind::Forbidden, || {
                KeyError::Forbidden("a key can't grant a scope that it lacks").into()
            }),
            problem_like(ProblemKind::KeyQuotaExceeded, || {
                KeyError::CreatorQuotaExceeded { limit: 10, current: 10 }.into()
            }),
            problem(ProblemKind::NotFound),
            problem_like(ProblemKind::Validation, || fault_at("/expires_at", "must be in the future")),
        ],
    },
};

pub async fn change(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = merge_patch::read(&request, payload, api.request_timeout).await?;
    let mut fields = BodyFields::parse(&body)?;
    let caller = auth::caller_now(&api, KEYS, &caller, &request).await?;
    // Before the fields: only who may change the key is told what is wrong with them.
    let id = api.keys.changeable(&caller, key_id(&path)?).await?.id;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let change = key_change(fields, &caller, api.clock.now())?;
    let changed = api.keys.update(&caller, id, &change).await.inspect_err(|error| count_refusal(&api, error))?;
    Ok(web::Json(KeyRecord::of(&changed.key, changed.last_used_at)))
}

fn key_change(mut fields: BodyFields<'_>, caller: &ApiKey, now: Timestamp) -> Result<KeyChange, Problem> {
    let name = take_patched_required(&mut fields, "name", |fields| fields.take_string("name"));
    check_name(&mut fields, name.as_deref());
    let tier = take_patched(&mut fields, "tier", tier).or(DEFAULT_TIER);
    let scopes = take_patched(&mut fields, "scopes", scopes).or(caller.default_scopes());
    let end = take_patched(&mut fields, "expires_at", |fields| expires_at(fields, caller, now).map(Some));
    fields.finish()?;
    Ok(KeyChange { name, tier, scopes, expires_at: end.or(caller.expires_at) })
}

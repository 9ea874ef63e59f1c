//! `PATCH /links/{short_id}`.

use std::mem;

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::fields::{CANT_BE_CHANGED, LinkEdit};
use super::records::{ShortlinkPatch, StoredLink};
use super::{CHANGES, ChangeAnswer, LINKS, changed, counted};
use crate::domain::link::LinkName;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::BodyFields;
use crate::http::conditions::Conditions;
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::merge_patch;
use crate::http::openapi::schemas::{IfUnchanged, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;

/// The fields of a record that stay as they are.
const FIXED: [&str; 9] =
    ["short_id", "short_url", "created_at", "slug", "tracked", "block_reason", "updated_at", "revision", "state"];

pub static CHANGE: Endpoint = Endpoint {
    methods: endpoint::PATCH,
    path: "/links/{short_id}",
    requires: Requirement::Key(CHANGES),
    handler: || web::route().to(change),
    docs: Docs {
        id: "updateShortlink",
        summary: "Change a shortlink",
        description: "\
Changes fields of a link for its owner or the root key. The body is a JSON Merge Patch (RFC 7396): a field that is not sent
stays as it is, `null` sets a field to its default, `data` is merged, and `webhooks`, `tags` and all others are replaced. The
name of a link, `tracked` and the fields that the service sets can't be changed (422).

The change is in force on the node that answers before it answers, and within 2 s on all others. The webhooks of a hit are those that the link had at the time of the hit, with the `redirect_url` and `data` of that time, however late they are sent.

Without `If-Match` the change applies to the newest revision: two changes at once are both applied, one after the other. A
change that changes nothing keeps `revision` and `updated_at`. If the answer is 503 or is missing, the change may have been
made: `revision` tells.

A link with webhooks can be changed 1,000 times in 33 days; then the answer is 429 with `Retry-After: 86400`.

Requests are checked in this order: key (401), scope (403), rate limit (429), body (415, 413, 400), existence (404), owner
(403), conditions (412), fields (422).",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>(), parameters::<IfUnchanged>()],
        body: Some(Body {
            description: "What to change.",
            shape: shape::<ShortlinkPatch>(),
            required: true,
            examples: &[
                Example {
                    name: "target",
                    summary: "Another target, and a member of the data removed",
                    value: || json!({"redirect_url": "https://example.com/autumn", "data": {"channel": null}}),
                },
                Example {
                    name: "defaults",
                    summary: "A link without an end and without webhooks",
                    value: || json!({"expires_at": null, "webhooks": []}),
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The link as it is now.",
            content: &[json_body::<StoredLink>(|| {
                StoredLink::example_with(&json!({
                    "redirect_url": "https://example.com/autumn",
                    "data": {"campaign": "summer"},
                    "updated_at": "2026-11-21T08:02:12.052Z",
                    "revision": 2,
                }))
            })],
            headers: &["ETag"],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::PreconditionFailed),
            problem_like(ProblemKind::Validation, || fault_at("/slug", CANT_BE_CHANGED)),
        ],
    },
};

pub async fn change(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    counted(&api, answer(&api, &caller, &request, &path, payload)).await
}

async fn answer(api: &Api, caller: &Caller, request: &HttpRequest, path: &str, payload: web::Payload) -> ChangeAnswer {
    let body = merge_patch::read(request, payload, api.request_timeout).await?;
    let mut fields = BodyFields::parse(&body)?;
    fields.faults = Query::of(request).into_faults().and(fields.faults);
    for name in FIXED {
        fields.refuse(name, CANT_BE_CHANGED);
    }
    let edit = LinkEdit::take(api, &mut fields);
    let (conditions, mut faults) = (Conditions::of(request.headers()), fields.into_faults());
    let apply = move |link: &_| {
        conditions.check(Some(link))?;
        let changed = edit.applied_to(link, &mut faults);
        // If it is called again, there were none.
        mem::take(&mut faults).into_result()?;
        Ok(changed)
    };
    changed(api, api.links.change(&caller.key, LinkName::parse(path), apply).await?)
}

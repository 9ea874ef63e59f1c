//! `POST /links/{short_id}/block` and `…/unblock`.

use std::mem;

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;
use utoipa::ToSchema;

use super::records::{Block, StoredLink};
use super::{CHANGES, ChangeAnswer, LINKS, changed, counted};
use crate::domain::link::{Link, LinkName};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::{BodyFields, optional_fields, read_json};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::{FieldErrors, Problem, ProblemKind};
use crate::http::query::Query;

/// The maximum length of a reason, in characters.
const MAX_REASON: usize = 500;

pub static BLOCK: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/links/{short_id}/block",
    requires: Requirement::Key(CHANGES),
    handler: || web::route().to(block),
    docs: Docs {
        id: "blockShortlink",
        summary: "Block a shortlink",
        description: "\
Blocks a link: it is answered 410 `link-blocked` from then on. Only the root key can block links. The owner of the link reads
the reason in `block_reason`, and can still change and delete the link; no change of it unblocks it.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: Some(Body {
            description: "Why the link is blocked.",
            shape: shape::<Block>(),
            required: true,
            examples: &[Example {
                name: "reason",
                summary: "A reason",
                value: || json!({"reason": "It leads to a phishing page."}),
            }],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The link is blocked.",
            content: &[json_body::<StoredLink>(|| {
                StoredLink::example_with(&json!({
                    "block_reason": "It leads to a phishing page.",
                    "updated_at": "2026-11-21T08:02:12.052Z",
                    "revision": 2,
                    "state": "blocked",
                }))
            })],
            headers: &["ETag"],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem_like(ProblemKind::Forbidden, root_only),
            problem(ProblemKind::NotFound),
            problem_like(ProblemKind::Validation, || fault_at("/reason", BAD_REASON)),
        ],
    },
};

const BAD_REASON: &str = "must be 1 to 500 characters long";

fn root_only() -> Problem {
    Problem::new(ProblemKind::Forbidden, "Only the root key can block and unblock links.")
}

pub async fn block(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let answer = async {
        let body = read_json(&request, payload, api.request_timeout).await?;
        let mut fields = BodyFields::parse(&body)?;
        fields.faults = Query::of(&request).into_faults().and(fields.faults);
        let reason = fields.take_required_string("reason");
        if reason.as_ref().is_some_and(|reason| !(1..=MAX_REASON).contains(&reason.chars().count())) {
            fields.faults.at("/reason", BAD_REASON);
        }
        // Without a reason there are faults.
        set_reason(&api, &caller, &path, Some(reason.unwrap_or_default()), fields.into_faults()).await
    };
    counted(&api, answer).await
}

/// A body without fields.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

pub static UNBLOCK: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/links/{short_id}/unblock",
    requires: Requirement::Key(CHANGES),
    handler: || web::route().to(unblock),
    docs: Docs {
        id: "unblockShortlink",
        summary: "Unblock a shortlink",
        description: "\
Ends the block of a link: it redirects again. Only the root key can unblock links. A link that is not blocked stays as it is.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: Some(Body {
            description: "The body is optional, and has no fields.",
            shape: shape::<NoFields>(),
            required: false,
            examples: &[Example { name: "empty", summary: "Without fields", value: || json!({}) }],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The link is not blocked.",
            content: &[json_body::<StoredLink>(|| {
                StoredLink::example_with(&json!({"updated_at": "2026-11-21T08:05:40.700Z", "revision": 3}))
            })],
            headers: &["ETag"],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem_like(ProblemKind::Forbidden, root_only),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::Validation),
        ],
    },
};

pub async fn unblock(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let answer = async {
        // It has no fields, but clients send an empty object.
        let body = read_json(&request, payload, api.request_timeout).await?;
        let faults = optional_fields(&request, &body)?.into_faults();
        set_reason(&api, &caller, &path, None, faults).await
    };
    counted(&api, answer).await
}

async fn set_reason(
    api: &Api,
    caller: &Caller,
    path: &str,
    block_reason: Option<String>,
    mut faults: FieldErrors,
) -> ChangeAnswer {
    if !caller.key.is_root {
        return Err(root_only());
    }
    let apply = move |link: &Link| {
        mem::take(&mut faults).into_result()?;
        Ok(Link { block_reason: block_reason.clone(), ..link.clone() })
    };
    changed(api, api.links.change(&caller.key, LinkName::parse(path), apply).await?)
}

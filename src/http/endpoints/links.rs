//! `POST /shorten` and `GET /links/{short_id}`; changes of links are in the files of `links/`.

pub mod block;
pub mod bulk;
pub mod change;
mod fields;
pub mod list;
pub(super) mod records;
pub mod removal;
pub mod replacement;

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use self::fields::WholeLink;
use self::records::{NewShortlink, Shortlink, StoredLink};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{OnceEndpoint, OnceRequest};
use crate::domain::key::Scope;
use crate::domain::link::{LinkName, NewLink};
use crate::domain::quota::MonthlyLimit;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::body::{BodyFields, read_json};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, Tag, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::idempotency;
use crate::http::openapi::schemas::{IdempotencyHeader, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::links::{Changed, CreateError, CreatedLinks, RespondToLinks};
use crate::telemetry::metrics::link_changes::LinkChangeOutcome;

pub static LINKS: Tag = Tag { name: "Links", description: "Short links, their redirects and their QR codes." };

/// The rate limit of `POST /shorten`.
pub static SHORTEN_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(0), name: "shorten", setting: "shorten_per_minute" };

/// The rate limit of `GET /links/{short_id}`.
pub static LINK_RATE: RateLimit = RateLimit { id: RateLimitId::new(1), name: "link", setting: "link_per_minute" };

/// The rate limit of all changes of links, counted together.
pub static LINK_CHANGES_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(7), name: "link_changes", setting: "link_changes_per_minute" };

/// What a change of a link requires.
const CHANGES: Access = Access { scope: Scope::LinksWrite, rate_limit: &LINK_CHANGES_RATE, or_self: false };

const LINKS_CREATED: HeaderName = HeaderName::from_static("x-usage-links-created");
const LINKS_LIMIT: HeaderName = HeaderName::from_static("x-usage-links-limit");

pub static CREATE: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/shorten",
    requires: Requirement::Key(Access { scope: Scope::LinksWrite, rate_limit: &SHORTEN_RATE, or_self: false }),
    handler: || web::route().to(create),
    docs: Docs {
        id: "createShortlink",
        summary: "Create a shortlink",
        description: "\
Creates a short link to `redirect_url`. Its `short_id` is `slug`, or a generated id. The link is stored durably before it is returned.

A name belongs to one link. A `slug` that another link has is refused: 409 `slug-taken`. The name of a deleted link is kept
for the key that had it, and can be used again by that key and by the root key: what is made then is another link, without
the hits and webhooks of the old one.

Uses one link of the key's monthly quota; a request that fails uses none. Above the quota: 403 `link-quota-exceeded`, with
`limit` and `current`.",
        tag: &LINKS,
        parameters: &[parameters::<IdempotencyHeader>()],
        body: Some(Body {
            description: "The link to create.",
            shape: shape::<NewShortlink>(),
            required: true,
            examples: &[
                Example {
                    name: "target",
                    summary: "A link",
                    value: || json!({"redirect_url": "https://example.com/summer?ref=mail"}),
                },
                Example {
                    name: "webhooks",
                    summary: "With data and a webhook",
                    value: || {
                        json!({
                            "redirect_url": "https://example.com/summer?ref=mail",
                            "data": {"campaign": "summer", "channel": "mail"},
                            "webhooks": ["https://hooks.example.com/clicks"],
                        })
                    },
                },
                Example {
                    name: "slug",
                    summary: "With a name of its own, for two months",
                    value: || {
                        json!({
                            "redirect_url": "https://example.com/summer?ref=mail",
                            "slug": "summer-sale",
                            "title": "Summer sale",
                            "tags": ["summer", "mail"],
                            "not_before": "2027-07-01T00:00:00Z",
                            "expires_at": "2027-09-01T00:00:00Z",
                            "fallback_url": "https://example.com/over",
                        })
                    },
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The link is created.",
            content: &[json_body::<Shortlink>(Shortlink::example)],
            headers: &["X-Usage-Links-Created", "X-Usage-Links-Limit", "Idempotent-Replayed"],
            names: Some("short_id"),
        }],
        problems: &[
            problem(ProblemKind::LinkQuotaExceeded),
            problem(ProblemKind::SlugTaken),
            problem(ProblemKind::IdempotencyInProgress),
            problem(ProblemKind::IdempotencyKeyReused),
            problem_like(ProblemKind::Validation, || {
                fault_at("/webhooks/2", "must be an absolute http or https URL with a host")
            }),
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
    let once = idempotency::once(&api, &caller, OnceEndpoint::Shorten, &request, &body)?;
    let judged = |mut fields: BodyFields<'_>, now| {
        fields.faults = Query::of(&request).into_faults().and(fields.faults);
        new_link(&api, fields, now)
    };
    if let Some(once) = once {
        let mut new = judged(fields, once.now);
        if new.is_err()
            && let Some(begun_at) = api.links.cut_off_once(once.clone()).await?
        {
            new = judged(BodyFields::parse(&body)?, begun_at);
        }
        return create_once(&api, &caller, once, new).await;
    }
    let new = judged(fields, api.clock.now())?;
    let created = api.links.create(&caller.key, new, caller.links_created).await;
    let created = created.map_err(|error| creation_refused(&api, error))?;
    let mut response = HttpResponse::Ok().json(Shortlink::of(&api, &created.link));
    add_usage(&mut response, &caller, created.links_created, created.limit);
    Ok(response)
}

/// Creates the link of a request with an `Idempotency-Key`.
async fn create_once(
    api: &web::Data<Api>,
    caller: &Caller,
    once: OnceRequest,
    new: Result<NewLink, Problem>,
) -> Result<HttpResponse, Problem> {
    let new = match new {
        Ok(new) => new,
        Err(problem) => {
            let replayed = refused_once(api, once, problem).await?;
            return Ok(with_usage_of_now(api, caller, replayed).await);
        }
    };
    let shown = api.clone();
    let respond: RespondToLinks = Arc::new(move |links| {
        let link = links.iter().flatten().next().map(|link| Shortlink::of(&shown, link));
        idempotency::kept(StatusCode::OK, &link)
    });
    let created = api.links.create_all_once(&caller.key, once, vec![(0, new)], respond, None).await?;
    let created = match idempotency::done(api, created, CreatedLinks::has_any)? {
        Ok(created) => created,
        Err(replayed) => return Ok(with_usage_of_now(api, caller, replayed).await),
    };
    let link = created.links.into_iter().next().ok_or_else(Problem::internal)?;
    let link = link.map_err(|error| creation_refused(api, error))?;
    let mut response = HttpResponse::Ok().json(Shortlink::of(api, &link));
    if let Some(links_created) = created.links_created {
        add_usage(&mut response, caller, links_created, created.limit);
    }
    Ok(response)
}

/// The answer to an invalid request with an `Idempotency-Key`: what the key stands for goes first.
pub(super) async fn refused_once(api: &Api, once: OnceRequest, problem: Problem) -> Result<HttpResponse, Problem> {
    match api.links.look_up_once::<()>(once).await? {
        None => Err(problem),
        Some(known) => match idempotency::done(api, known, |()| false)? {
            Ok(()) => Err(problem),
            Err(replayed) => Ok(replayed),
        },
    }
}

/// Tells scoped keys their use of the month as it is now: as this node knows it, or else as the store has it.
async fn with_usage_of_now(api: &Api, caller: &Caller, mut response: HttpResponse) -> HttpResponse {
    let links_created = match caller.links_created {
        None if !caller.key.is_root => api.usage.of(&caller.key).await.ok().map(|usage| usage.counts.links_created),
        known => known,
    };
    if let Some(links_created) = links_created {
        add_usage(&mut response, caller, links_created, api.links.monthly_limit(&caller.key));
    }
    response
}

/// Tells scoped keys their use of the month.
fn add_usage(response: &mut HttpResponse, caller: &Caller, links_created: u64, limit: MonthlyLimit) {
    if !caller.key.is_root {
        for (name, value) in usage_headers(links_created, limit) {
            response.headers_mut().insert(name, value);
        }
    }
}

/// The answer to a creation that was refused, with the use of the month if that is why.
fn creation_refused(api: &Api, error: CreateError) -> Problem {
    let usage = match &error {
        CreateError::QuotaExceeded { limit, current } => {
            api.metrics.refusals.links_quota.increment(1);
            Some(usage_headers(*current, Some(*limit)))
        }
        _ => None,
    };
    let with_usage = |problem: Problem, (name, value)| problem.with_header(name, value);
    usage.into_iter().flatten().fold(error.into(), with_usage)
}

fn usage_headers(created: u64, limit: MonthlyLimit) -> [(HeaderName, HeaderValue); 2] {
    let limit = limit.map_or(HeaderValue::from_static("unlimited"), HeaderValue::from);
    [(LINKS_CREATED, HeaderValue::from(created)), (LINKS_LIMIT, limit)]
}

/// Parses the body, judges it by the time `now` and reports all of its errors.
fn new_link(api: &Api, mut fields: BodyFields<'_>, now: Timestamp) -> Result<NewLink, Problem> {
    let whole = WholeLink::take(api, &mut fields, now);
    let slug = fields.take_string("slug").and_then(|text| {
        let parsed = LinkName::parse_slug(&text);
        parsed.map_err(|error| fields.faults.at("/slug", error.to_string())).ok()
    });
    fields.finish()?;
    // `finish` has reported a missing or malformed target.
    let new = whole.as_new().ok_or_else(Problem::internal)?;
    Ok(NewLink { slug, ..new })
}

/// The answer to a change of a link, with what has become of it.
type ChangeAnswer = Result<(LinkChangeOutcome, HttpResponse), Problem>;

/// Counts a change of a link when it is dropped: also if the request ends before its answer.
struct CountedChange<'a> {
    api: &'a Api,
    outcome: LinkChangeOutcome,
}

impl Drop for CountedChange<'_> {
    fn drop(&mut self) {
        self.api.metrics.link_changes.count(self.outcome);
    }
}

/// Counts a change of a link by its outcome.
async fn counted(api: &Api, answer: impl Future<Output = ChangeAnswer>) -> Result<HttpResponse, Problem> {
    let mut counted = CountedChange { api, outcome: LinkChangeOutcome::Failed };
    let answer = answer.await;
    counted.outcome = match &answer {
        Ok((outcome, _)) => *outcome,
        Err(problem) if problem.kind() == ProblemKind::PreconditionFailed => LinkChangeOutcome::Conflict,
        Err(problem) if problem.kind().status().is_server_error() => LinkChangeOutcome::Failed,
        Err(_) => LinkChangeOutcome::Refused,
    };
    answer.map(|(_, response)| response)
}

/// The answer with a link after a change.
fn changed(api: &Api, changed: Changed) -> ChangeAnswer {
    let outcome = if changed.is_new { LinkChangeOutcome::Changed } else { LinkChangeOutcome::Unchanged };
    Ok((outcome, StoredLink::answer(api, StatusCode::OK, changed.link)?))
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}",
    requires: Requirement::Key(Access { scope: Scope::LinksRead, rate_limit: &LINK_RATE, or_self: false }),
    handler: || web::route().to(get),
    docs: Docs {
        id: "getShortlink",
        summary: "Get a shortlink",
        description: "\
Returns a link with all of its fields to its owner, the key that created it, and to the root key. The `ETag` is the link's
`revision`, for `If-Match` of a change. `state` changes by itself, so there is no 304.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The link.",
            content: &[json_body::<StoredLink>(StoredLink::example)],
            headers: &["ETag"],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation), problem(ProblemKind::NotFound), problem(ProblemKind::NotOwner)],
    },
};

pub async fn get(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    Query::of(&request).finish()?;
    let link = api.links.get(&caller.key, LinkName::parse(&path)).await?;
    StoredLink::answer(&api, StatusCode::OK, link)
}

//! `POST /shorten/bulk`: many links in one request.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::records::{NewShortlink, Shortlink};
use super::{LINKS, add_usage, new_link, refused_once, with_usage_of_now};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{OnceEndpoint, OnceRequest};
use crate::domain::key::Scope;
use crate::domain::link::{Link, NewLink};
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::body::{BodyBounds, BodyFields, read_json_within};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::idempotency;
use crate::http::openapi::schemas::{IdempotencyHeader, ProblemDocument};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::links::{BulkPermit, CreateError, CreatedLinks, RespondToLinks};
use crate::telemetry::metrics::bulk::BulkLinkOutcome;

/// The rate limit of `POST /shorten/bulk`.
pub static BULK_RATE: RateLimit = RateLimit { id: RateLimitId::new(8), name: "bulk", setting: "bulk_per_minute" };

/// How many links a request may have.
const MOST_LINKS: usize = 500;
/// A link may nest as deep as in a creation of its own.
const BOUNDS: BodyBounds = BodyBounds { bytes: 1 << 20, depth: BodyBounds::USUAL.depth + 2 };
/// The thread serves other requests after so many links were parsed.
const PARSED_AT_ONCE: usize = 16;
/// How many bytes of errors an answer may have before each further link has only its first error.
const MOST_FAULT_BYTES: usize = 1 << 20;

pub static CREATE_ALL: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/shorten/bulk",
    requires: Requirement::Key(Access { scope: Scope::LinksWrite, rate_limit: &BULK_RATE, or_self: false }),
    handler: || web::route().to(create_all),
    docs: Docs {
        id: "createShortlinks",
        summary: "Create many shortlinks",
        description: "\
Creates up to 500 links, each as `POST /shorten` does, and answers with the outcome of each, in the order of the request. A link is
created or refused by itself: one that is refused does not affect the others. Its `problem` is what `POST /shorten` would
answer, with pointers into its own object. The created links are stored durably before the request is answered.

The monthly quota is taken in order: once it refuses a link, no link behind it is created. Of two links with the same `slug`,
the first gets it. The requests count in `bulk_per_minute`, and their links not in `shorten_per_minute`. An answer of 503
may have created links.",
        tag: &LINKS,
        parameters: &[parameters::<IdempotencyHeader>()],
        body: Some(Body {
            description: "The links to create, at most 1,048,576 bytes.",
            shape: shape::<NewShortlinks>(),
            required: true,
            examples: &[Example {
                name: "links",
                summary: "Two links",
                value: || {
                    json!({"links": [
                        {"redirect_url": "https://example.com/summer?ref=mail"},
                        {"redirect_url": "https://example.com/winter", "slug": "winter", "tags": ["winter"]},
                    ]})
                },
            }],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The outcome of each link.",
            content: &[json_body::<BulkResults>(BulkResults::example)],
            headers: &["X-Usage-Links-Created", "X-Usage-Links-Limit", "Idempotent-Replayed"],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::IdempotencyInProgress),
            problem(ProblemKind::IdempotencyKeyReused),
            problem_like(ProblemKind::Validation, || fault_at("/links", COUNT_FAULT)),
            problem_like(ProblemKind::PayloadTooLarge, || BOUNDS.too_large()),
        ],
    },
};

const COUNT_FAULT: &str = "must have 1 to 500 entries";

/// Links to create.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct NewShortlinks {
    /// The links, each as in `POST /shorten`.
    #[schema(min_items = 1, max_items = 500)]
    links: Vec<NewShortlink>,
}

/// The outcome of the links of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct BulkResults {
    /// How many links were created.
    created: usize,
    /// How many were not.
    failed: usize,
    /// For each link, in the order of the request.
    results: Vec<BulkResult>,
}

/// The outcome of a link: `link`, or else `problem`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BulkResult {
    /// The status that `POST /shorten` would have answered.
    #[schema(minimum = 200, maximum = 599)]
    status: u16,
    /// With the status 200: the link.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Shortlink>,
    /// With any other status: why the link was not created.
    #[schema(value_type = Option<ProblemDocument>, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Box<RawValue>>,
}

impl BulkResult {
    fn refused(problem: &Problem) -> Self {
        // It is JSON.
        let document = RawValue::from_string(problem.to_json()).ok();
        Self { status: problem.kind().status().as_u16(), link: None, problem: document }
    }
}

impl BulkResults {
    /// `refused` are links that were not to be created; `links` is the outcome of those at `places`.
    fn of(api: &Api, places: &[usize], links: &[Result<Link, CreateError>], refused: &[(usize, BulkResult)]) -> Self {
        let mut results = refused.to_vec();
        for (place, link) in places.iter().zip(links) {
            let result = match link {
                Ok(link) => BulkResult { status: 200, link: Some(Shortlink::of(api, link)), problem: None },
                Err(error) => BulkResult::refused(&Problem::from(error)),
            };
            results.push((*place, result));
        }
        results.sort_unstable_by_key(|(place, _)| *place);
        let results: Vec<BulkResult> = results.into_iter().map(|(_, result)| result).collect();
        let created = results.iter().filter(|result| result.link.is_some()).count();
        Self { created, failed: results.len() - created, results }
    }

    /// The example of the API reference.
    fn example() -> Value {
        let taken: Value = serde_json::from_str(&Problem::slug_taken().to_json()).unwrap_or_default();
        json!({
            "created": 1,
            "failed": 1,
            "results": [{"status": 200, "link": Shortlink::example()}, {"status": 409, "problem": taken}],
        })
    }
}

pub async fn create_all(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let body = read_json_within(&request, payload, api.request_timeout, BOUNDS).await?;
    let place = api.links.acquire_bulk_permit().await?;
    let mut fields = BodyFields::parse_around(&body, "links")?;
    let once = idempotency::once(&api, &caller, OnceEndpoint::Bulk, &request, &body)?;
    fields.faults = Query::of(&request).into_faults().and(fields.faults);
    let bodies = bodies(&mut fields);
    if let Err(problem) = fields.finish() {
        let Some(once) = once else { return Err(problem) };
        let replayed = refused_once(&api, once, problem).await?;
        return Ok(with_usage_of_now(&api, &caller, replayed).await);
    }
    let now = once.as_ref().map_or_else(|| api.clock.now(), |once| once.now);
    let mut parsed = parsed_links(&api, &bodies, now).await;
    if let Some(once) = &once
        && !parsed.refused.is_empty()
        && let Some(begun_at) = api.links.cut_off_once(once.clone()).await?
    {
        parsed = parsed_links(&api, &bodies, begun_at).await;
    }
    match once {
        Some(once) => create_all_once(&api, &caller, once, parsed, place).await,
        None => create_all_parsed(&api, &caller, parsed, place).await,
    }
}

async fn create_all_parsed(
    api: &Api,
    caller: &Caller,
    parsed: ParsedLinks,
    place: BulkPermit,
) -> Result<HttpResponse, Problem> {
    let ParsedLinks { places, new, refused } = parsed;
    // Also of the memory that the answer takes.
    let _place = BulkPermit::clone(&place);
    let created = api.links.create_all(&caller.key, new, caller.links_created, place).await?;
    let results = BulkResults::of(api, &places, &created.links, &refused);
    Ok(answer(api, caller, &created, results).await)
}

/// Creates the links of a request with an `Idempotency-Key`.
async fn create_all_once(
    api: &web::Data<Api>,
    caller: &Caller,
    once: OnceRequest,
    parsed: ParsedLinks,
    place: BulkPermit,
) -> Result<HttpResponse, Problem> {
    if parsed.new.is_empty() {
        return match api.links.look_up_once::<()>(once).await? {
            Some(known) => match idempotency::done(api, known, |()| false)? {
                Ok(()) => create_all_parsed(api, caller, parsed, place).await,
                Err(replayed) => Ok(with_usage_of_now(api, caller, replayed).await),
            },
            None => create_all_parsed(api, caller, parsed, place).await,
        };
    }
    let ParsedLinks { places, new, refused } = parsed;
    let shown = (api.clone(), places.clone(), refused.clone());
    let respond: RespondToLinks = Arc::new(move |links| {
        let (api, places, refused) = &shown;
        idempotency::kept(StatusCode::OK, &BulkResults::of(api, places, links, refused))
    });
    let new = places.iter().copied().zip(new).collect();
    let _place = BulkPermit::clone(&place);
    let created = api.links.create_all_once(&caller.key, once, new, respond, Some(place)).await?;
    match idempotency::done(api, created, CreatedLinks::has_any)? {
        Ok(created) => {
            let results = BulkResults::of(api, &places, &created.links, &refused);
            Ok(answer(api, caller, &created, results).await)
        }
        Err(replayed) => Ok(with_usage_of_now(api, caller, replayed).await),
    }
}

/// The links of a request.
struct ParsedLinks {
    /// The places of the valid ones, and what they are to be.
    places: Vec<usize>,
    new: Vec<NewLink>,
    /// The others, with their places.
    refused: Vec<(usize, BulkResult)>,
}

/// Parses the links, and judges each by the time `now`.
async fn parsed_links(api: &Api, bodies: &[&RawValue], now: Timestamp) -> ParsedLinks {
    let mut parsed = ParsedLinks { places: Vec::new(), new: Vec::new(), refused: Vec::new() };
    let mut fault_bytes = 0;
    for (place, body) in bodies.iter().enumerate() {
        if place % PARSED_AT_ONCE == PARSED_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let link = BodyFields::parse(body.get()).and_then(|fields| new_link(api, fields, now));
        match link {
            Ok(link) => {
                parsed.places.push(place);
                parsed.new.push(link);
            }
            Err(problem) => {
                let problem = if fault_bytes < MOST_FAULT_BYTES { problem } else { problem.with_first_fault() };
                let result = BulkResult::refused(&problem);
                fault_bytes += result.problem.as_ref().map_or(0, |document| document.get().len());
                parsed.refused.push((place, result));
            }
        }
    }
    parsed
}

/// The bodies of the links. Errors are collected.
fn bodies<'a>(fields: &mut BodyFields<'a>) -> Vec<&'a RawValue> {
    let Some(bodies) = fields.take_required_array("links") else { return Vec::new() };
    if !(1..=MOST_LINKS).contains(&bodies.len()) {
        fields.faults.at("/links", COUNT_FAULT);
    }
    bodies
}

async fn answer(api: &Api, caller: &Caller, created: &CreatedLinks, results: BulkResults) -> HttpResponse {
    count(api, &created.links, &results.results);
    let mut response = HttpResponse::Ok().json(results);
    match created.links_created {
        Some(links_created) => {
            add_usage(&mut response, caller, links_created, created.limit);
            response
        }
        None => with_usage_of_now(api, caller, response).await,
    }
}

fn count(api: &Api, links: &[Result<Link, CreateError>], results: &[BulkResult]) {
    let refused_by_quota = links.iter().filter(|link| matches!(link, Err(CreateError::QuotaExceeded { .. })));
    api.metrics.refusals.links_quota.increment(refused_by_quota.count() as u64);
    api.metrics.bulk.count(results.iter().map(|result| match result.status {
        200 => BulkLinkOutcome::Created,
        400..500 => BulkLinkOutcome::Refused,
        _ => BulkLinkOutcome::Failed,
    }));
}

//! `GET /{short_id}/webhooks/status`; what can be done with webhooks is in the files of `webhooks/`.

pub mod replay;
pub mod testing;

use actix_web::{HttpRequest, Responder, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::domain::calendar::Timestamp;
use crate::domain::key::Scope;
use crate::domain::link::{Link, LinkName};
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, UrlSummary};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{
    self, Docs, Endpoint, Requirement, ResponseDoc, Tag, json_body, parameters, problem, shape,
};
use crate::http::openapi::schemas::{DeliveryStatusName, ShortIdPath};
use crate::http::problem::{FieldErrors, Problem, ProblemKind};
use crate::http::query::Query;
use crate::http::times;
use crate::service::webhook_status::{StatusQuery, UrlStatus};

static WEBHOOKS: Tag =
    Tag { name: "Webhooks", description: "State of deliveries. The requests are described under *The webhook*." };

/// The rate limit of `GET /{short_id}/webhooks/status`.
pub static STATUS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(5), name: "webhook_status", setting: "status_per_minute" };

/// The rate limit of all that is done with webhooks, counted together.
pub static WEBHOOK_ACTIONS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(12), name: "webhook_actions", setting: "webhook_actions_per_minute" };

/// What an action on webhooks requires.
const ACTIONS: Access = Access { scope: Scope::WebhooksWrite, rate_limit: &WEBHOOK_ACTIONS_RATE, or_self: false };

/// The default number of deliveries on a page.
const DEFAULT_PAGE: usize = 50;

/// The state of the webhooks of a link.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookStatusRecord {
    /// The name of the link, as in paths.
    #[schema(pattern = "^[0-9A-Za-z_]([0-9A-Za-z_-]{0,62}[0-9A-Za-z_])?$")]
    pub short_id: String,
    /// In the order of the link's webhooks. Counts are of the last 30 days.
    pub webhooks: Vec<WebhookSummary>,
    /// Deliveries of the last 30 days, newest first.
    pub deliveries: Vec<DeliveryRecord>,
    /// Send it as `cursor` for the next page; `null` on the last page.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// The state of one webhook of a link.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookSummary {
    /// The webhook's URL, as sent.
    pub url: String,
    /// Deliveries that wait for their first or next attempt.
    pub pending: u64,
    /// Deliveries that succeeded.
    pub delivered: u64,
    /// Deliveries that failed permanently.
    pub failed: u64,
    /// When a delivery was last attempted; `null`: never.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub last_attempt_at: Option<Timestamp>,
    /// HTTP status of the answer to that attempt; `null`: no answer.
    #[schema(required = true)]
    pub last_status: Option<u16>,
    /// The error of that attempt, or `quota exceeded` or `suspended` if a later delivery was not attempted; `null`:
    /// neither.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// Since when the webhook is suspended: its deliveries fail with the error `suspended` and are not sent. Missing if it
    /// is not suspended.
    #[schema(value_type = String, format = DateTime, required = false)]
    #[serde(serialize_with = "times::option::serialize", skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
}

/// One delivery: one hit × one URL.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryRecord {
    /// The hit that is delivered.
    #[schema(value_type = String, format = "uuid")]
    pub hit_id: Uuid,
    /// The webhook's URL, as sent.
    pub url: String,
    /// The status of the delivery.
    #[schema(value_type = DeliveryStatusName)]
    pub status: &'static str,
    /// Attempts made so far.
    pub attempts: u32,
    /// HTTP status of the last answer; `null`: no answer.
    #[schema(required = true)]
    pub response_status: Option<u16>,
    /// The error of the last attempt, such as `http 500` or `timed out`, or why there was none: `quota exceeded`,
    /// `suspended`; `null`: no error.
    #[schema(required = true)]
    pub error: Option<String>,
    /// Time of the hit, UTC.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub created_at: Timestamp,
    /// When the delivery last changed, UTC.
    #[schema(value_type = String, format = DateTime)]
    #[serde(serialize_with = "times::serialize")]
    pub updated_at: Timestamp,
    /// When the next attempt is due; `null`: there is none.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    #[serde(serialize_with = "times::option::serialize")]
    pub next_attempt_at: Option<Timestamp>,
}

/// Parameters of the list of deliveries.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct DeliveryPage {
    /// Maximum number of deliveries on the page.
    #[param(minimum = 1, maximum = 100, default = 50)]
    limit: Option<u8>,
    /// `next_cursor` of the previous page. Omit it for the first page.
    cursor: Option<String>,
    /// Only deliveries with this status.
    status: Option<DeliveryStatusName>,
}

fn summary(url: String, UrlStatus { summary, suspended_at }: UrlStatus) -> WebhookSummary {
    let UrlSummary { pending, delivered, failed, last_attempt_at, last_status, last_error } = summary;
    WebhookSummary { url, pending, delivered, failed, last_attempt_at, last_status, last_error, suspended_at }
}

fn delivery(link: &Link, (id, state): (DeliveryId, DeliveryState)) -> DeliveryRecord {
    DeliveryRecord {
        hit_id: id.hit.id.0,
        url: link.webhooks.at(id.url_index).unwrap_or_default().to_owned(),
        status: state.status.name(),
        attempts: state.attempts,
        response_status: state.response_status,
        error: state.error,
        created_at: state.created_at,
        updated_at: state.updated_at,
        next_attempt_at: state.next_attempt_at,
    }
}

pub static STATUS: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/{short_id}/webhooks/status",
    requires: Requirement::Key(Access { scope: Scope::WebhooksRead, rate_limit: &STATUS_RATE, or_self: false }),
    handler: || web::route().to(status),
    docs: Docs {
        id: "getWebhookStatus",
        summary: "Webhook delivery status",
        description: "\
Returns the state of a link's webhooks to the link's owner and to the root key: counts and last attempt of each webhook,
and single deliveries, newest first. Deliveries are kept for 30 days.

A webhook with `suspended_at` is suspended, because its deliveries have failed for at least a day. They go on once
`POST /{short_id}/webhooks/test` has succeeded for it, or the link was changed.",
        tag: &WEBHOOKS,
        parameters: &[
            parameters::<ShortIdPath>(),
            parameters::<DeliveryPage>().with_schemas(&[shape::<DeliveryStatusName>()]),
        ],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The webhooks, and a page of deliveries.",
            content: &[json_body::<WebhookStatusRecord>(|| {
                json!({
                    "short_id": "aB3xY9z",
                    "webhooks": [{
                        "url": "https://hooks.example.com/clicks",
                        "pending": 1,
                        "delivered": 80,
                        "failed": 0,
                        "last_attempt_at": "2026-11-21T08:02:12.310Z",
                        "last_status": 500,
                        "last_error": "http 500",
                    }],
                    "deliveries": [{
                        "hit_id": "019aa557-9f54-7d1e-8a5b-20c4a79e1f36",
                        "url": "https://hooks.example.com/clicks",
                        "status": "pending",
                        "attempts": 1,
                        "response_status": 500,
                        "error": "http 500",
                        "created_at": "2026-11-21T08:02:12.052Z",
                        "updated_at": "2026-11-21T08:02:12.310Z",
                        "next_attempt_at": "2026-11-21T08:02:13.310Z",
                    }],
                    "next_cursor": null,
                })
            })],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation), problem(ProblemKind::NotFound), problem(ProblemKind::NotOwner)],
    },
};

pub async fn status(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let limit = query.page_limit(DEFAULT_PAGE);
    let cursor_fault = "must be a next_cursor of this list";
    let after = query.parse("cursor", |text| {
        URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| DeliveryId::from_bytes(&bytes)).ok_or(cursor_fault)
    });
    let parse = |text: &str| DeliveryStatus::parse(text).ok_or("must be pending, delivered or failed");
    let status = query.parse("status", parse);
    query.finish()?;
    let link = api.links.get(&caller.key, LinkName::parse(&path)).await?;
    if after.is_some_and(|after| after.link != link.id) {
        // The cursor of another link would start this link's list from the beginning.
        let mut faults = FieldErrors::default();
        faults.parameter("cursor", cursor_fault);
        faults.into_result()?;
    }
    let found = api.webhook_statuses.of(link, StatusQuery { status, after, limit }).await?;
    Ok(web::Json(WebhookStatusRecord {
        short_id: found.link.name().to_string(),
        webhooks: found
            .link
            .webhooks
            .active()
            .map(str::to_owned)
            .zip(found.urls)
            .map(|(url, of)| summary(url, of))
            .collect(),
        deliveries: found.deliveries.into_iter().map(|of| delivery(&found.link, of)).collect(),
        next_cursor: found.next.map(|next| URL_SAFE_NO_PAD.encode(next.to_bytes())),
    }))
}

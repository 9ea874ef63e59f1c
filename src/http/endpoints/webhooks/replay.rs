//! `POST /{short_id}/webhooks/replay`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, Responder, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{ACTIONS, WEBHOOKS};
use crate::domain::calendar::Timestamp;
use crate::domain::hit::HitId;
use crate::domain::link::{Link, LinkName};
use crate::domain::webhook::{DeliveryId, DeliveryStatus};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::{BodyFields, optional_fields, read_json};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::list_cursor::{self, ListFingerprint};
use crate::http::openapi::schemas::{ReplayedStatusName, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::service::webhook_actions::ReplayQuery;

const NO_SUCH_URL: &str = "is not a webhook that this link has or had";

/// Which deliveries to replay. All fields are optional; a field that is `null` counts as missing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct WebhookReplay {
    /// Only deliveries of hits from this time on.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Only deliveries of hits before this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// Only deliveries with this status. Default: `failed`, but `any` with a `hit_id`. Pending ones are never replayed.
    #[schema(value_type = Option<ReplayedStatusName>)]
    status: Option<String>,
    /// Only deliveries to this URL, which the link has or had. Default: to all webhooks that the link has now.
    url: Option<String>,
    /// Only deliveries of this hit.
    #[schema(value_type = Option<String>, format = "uuid")]
    hit_id: Option<Uuid>,
    /// `next_cursor` of the request before, with the same other fields.
    cursor: Option<String>,
}

/// What was replayed.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookReplayed {
    /// Deliveries that this request has queued again.
    #[schema(minimum = 0, maximum = 1_000)]
    pub queued: u64,
    /// Send it as `cursor`, with the same other fields, to go on; `null` at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

pub static REPLAY: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/{short_id}/webhooks/replay",
    requires: Requirement::Key(ACTIONS),
    handler: || web::route().to(replay),
    docs: Docs {
        id: "replayWebhooks",
        summary: "Replay webhook deliveries",
        description: "\
Queues deliveries of a link again that were delivered or have failed in the last 30 days, oldest hits first. For the link's
owner and the root key.

They are sent as they were, with the same `hit_id`, `webhook-id` and body, and a new timestamp and signature. Each has all
attempts anew; its `attempts` goes on. It counts in the monthly quota of deliveries once more, or for the first time if the
quota has refused it. Pending deliveries are left alone, so the same request again replays nothing twice at once. While a
webhook is suspended, its replayed deliveries fail again with the error `suspended`, and do not count.

A request queues at most 1,000 deliveries and looks at some thousands. So `queued` may be small, even 0, while there are more:
only `next_cursor: null` is the end.",
        tag: &WEBHOOKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: Some(Body {
            description: "Which deliveries to replay. The body is optional: without it, all that have failed.",
            shape: shape::<WebhookReplay>(),
            required: false,
            examples: &[
                Example {
                    name: "outage",
                    summary: "What has failed in two hours",
                    value: || json!({"since": "2026-11-21T08:00:00Z", "until": "2026-11-21T10:00:00Z"}),
                },
                Example {
                    name: "hit",
                    summary: "One hit, whatever the outcome of its deliveries",
                    value: || json!({"hit_id": "019aa557-9f54-7d1e-8a5b-20c4a79e1f36"}),
                },
            ],
        }),
        answers: &[ResponseDoc {
            status: 202,
            description: "The deliveries are queued.",
            content: &[json_body::<WebhookReplayed>(|| json!({"queued": 214, "next_cursor": null}))],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem_like(ProblemKind::Validation, || fault_at("/status", "must be failed, delivered or any")),
        ],
    },
};

pub async fn replay(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = optional_fields(&request, &body)?;
    let link = api.links.get(&caller.key, LinkName::parse(&path)).await?;
    let query = replay_query(&link, &mut fields);
    fields.finish()?;
    let replayed = api.webhook_actions.replay(&link, query).await?;
    api.metrics.webhooks.replayed(replayed.queued);
    let next_cursor = replayed.next.map(|next| list_cursor::sealed(&next.to_bytes(), fingerprint(&link, &query)));
    Ok((web::Json(WebhookReplayed { queued: replayed.queued, next_cursor }), StatusCode::ACCEPTED))
}

fn replay_query(link: &Link, fields: &mut BodyFields<'_>) -> ReplayQuery {
    let is_time = "must be an ISO 8601 time such as 2027-01-31T12:00:00Z";
    let since = parsed(fields, "since", is_time, Timestamp::parse);
    let until = parsed(fields, "until", is_time, Timestamp::parse);
    if let (Some(since), Some(until)) = (since, until)
        && since >= until
    {
        fields.faults.at("/until", "must be after since");
    }
    let status = parsed(fields, "status", "must be failed, delivered or any", replayed_status);
    let hit = parsed(fields, "hit_id", "must be a UUID", |text| Uuid::try_parse(text).ok().map(HitId));
    let place = parsed(fields, "url", NO_SUCH_URL, |url| {
        let place = link.webhooks.all().iter().position(|known| known == url);
        place.and_then(|place| u8::try_from(place).ok())
    });
    let default = if hit.is_some() { None } else { Some(DeliveryStatus::Failed) };
    let first = ReplayQuery { status: status.unwrap_or(default), since, until, place, hit, after: None };
    let after = parsed(fields, "cursor", "must be a next_cursor of this link and the same other fields", |text| {
        place_in(text, fingerprint(link, &first))
    });
    ReplayQuery { after, ..first }
}

/// What a request replays, but for the place at which it goes on.
fn fingerprint(link: &Link, query: &ReplayQuery) -> ListFingerprint {
    let ReplayQuery { status, since, until, place, hit, after: _ } = query;
    let filters = [
        Some("replay".to_owned()),
        Some(link.id.as_str().to_owned()),
        status.map(|status| status.name().to_owned()),
        since.map(|since| since.0.to_string()),
        until.map(|until| until.0.to_string()),
        place.map(|place| place.to_string()),
        hit.map(|hit| hit.0.to_string()),
    ];
    ListFingerprint::of(filters.iter().map(Option::as_deref))
}

/// The delivery that a cursor names: the text is what its sealing makes again.
fn place_in(cursor: &str, of: ListFingerprint) -> Option<DeliveryId> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let id = DeliveryId::from_bytes(bytes.get(bytes.len().checked_sub(DeliveryId::BYTES)?..)?)?;
    (list_cursor::sealed(&id.to_bytes(), of) == cursor).then_some(id)
}

/// `Some(None)`: any status.
#[expect(clippy::option_option, reason = "any status is a choice of its own, beside a missing field")]
fn replayed_status(text: &str) -> Option<Option<DeliveryStatus>> {
    match text {
        "any" => Some(None),
        _ => DeliveryStatus::parse(text).filter(|status| *status != DeliveryStatus::Pending).map(Some),
    }
}

/// A field whose text `parse` understands, else `fault`.
fn parsed<T>(
    fields: &mut BodyFields<'_>,
    name: &str,
    fault: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let value = parse(&fields.take_string(name)?);
    if value.is_none() {
        fields.faults.at(format!("/{name}"), fault);
    }
    value
}

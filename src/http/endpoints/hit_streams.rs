//! `GET /hits/stream` and `GET /links/{short_id}/hits/stream`: hits as they come, as server-sent events.

use std::convert::Infallible;

use actix_web::http::Method;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Serialize;
use serde_json::json;
use utoipa::IntoParams;

use super::analytics::ANALYTICS;
use crate::domain::key::Scope;
use crate::domain::link::LinkName;
use crate::domain::live_hit::LiveHit;
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::feed::{RingEntry, StreamEvent, StreamEventKind, StreamPlace};
use crate::http::Api;
use crate::http::auth::{Access, Caller, presented_hash};
use crate::http::edge::handlers::Handlers;
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Parameters, Requirement, ResponseDoc, inline_shape, parameters, problem,
};
use crate::http::field_errors::FieldErrors;
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::http::streamed::{head_of_streamed, streamed};
use crate::service::hit_streams::{HitStream, StreamError, StreamOf, StreamStep};

const LAST_EVENT_ID: &str = "Last-Event-ID";
/// Asks nginx, and what follows it, to pass on each event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// After how many milliseconds a client comes back.
const RETRY_MILLIS: u32 = 3_000;
const COMMENT: &[u8] = b": keep-alive\n\n";
/// `Retry-After` where a key has too many streams, in seconds.
const LATER_SECONDS: u32 = 3;

/// The rate limit of streams that begin.
pub static STREAMS_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(15), name: "streams", setting: "streams_per_minute" };

/// The place at which an earlier stream ended.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header that is taken apart by hand")]
pub struct LastEventIdHeader {
    /// The `id` of the last event that the client has: hits of the last 60 s that came after it are sent first.
    #[param(rename = "Last-Event-ID", nullable = false)]
    last_event_id: Option<String>,
}

const LAST_EVENT_ID_HEADER: Parameters = parameters::<LastEventIdHeader>();

static ANSWERS: [ResponseDoc; 1] = [ResponseDoc {
    status: 200,
    description: "The stream, until it ends.",
    content: &[Content { media_type: "text/event-stream", shape: inline_shape::<String>(), example: Some(example) }],
    headers: &["X-Accel-Buffering"],
    ..ResponseDoc::NONE
}];

pub static OF_KEY: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/hits/stream",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &STREAMS_RATE, or_self: false }),
    handler: || web::route().to(of_key),
    docs: Docs {
        id: "streamHits",
        summary: "Stream hits",
        description: "\
The hits of all tracked links of the calling key as they come, as server-sent events. Browsers read them with `fetch`:
`EventSource` sends no key.

An `event: hit` has an `id`, which is opaque, and `data` with `hit_id`, `hit_at`, `short_id`, `device`, `browser`, `os`,
`country`, `language`, `referrer`, `destination` and `bot`. The labels are those of breakdowns, `null` where there is none;
for a visitor who asks not to be tracked, only `device`, `destination` and `bot` are set. An `event: skipped` with `{\"count\": 12}` says
how many hits were left out, `null` if that is not known: a stream has at most 100 hits a second, and a client that reads
too slowly gets less. A comment comes every 15 s.

The stream is complete from 2 s after its first byte on, whichever node a hit met. It ends after 1 hour, when the service
stops, and within 5 s after the key is revoked. A client that reconnects within 60 s with `Last-Event-ID` gets all hits that it missed, or an `event: skipped` for them.

How many streams a key may have at once depends on its tier: see [Limits](#limits). One more is answered 429. A stream whose client is no longer there counts until that is noticed: at once if the connection is closed, else within 25 s.",
        tag: &ANALYTICS,
        parameters: &[LAST_EVENT_ID_HEADER],
        body: None,
        answers: &ANSWERS,
        problems: &[problem(ProblemKind::Validation)],
    },
};

pub static OF_LINK: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links/{short_id}/hits/stream",
    requires: Requirement::Key(Access { scope: Scope::AnalyticsRead, rate_limit: &STREAMS_RATE, or_self: false }),
    handler: || web::route().to(of_link),
    docs: Docs {
        id: "streamLinkHits",
        summary: "Stream hits of a link",
        description: "\
The hits of one link as they come, as in `GET /hits/stream`, to its owner and to the root key.

For a link that was created with `tracked: false`: 403 `untracked-link`.",
        tag: &ANALYTICS,
        parameters: &[parameters::<ShortIdPath>(), LAST_EVENT_ID_HEADER],
        body: None,
        answers: &ANSWERS,
        problems: &[
            problem(ProblemKind::Validation),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::UntrackedLink),
        ],
    },
};

fn example() -> serde_json::Value {
    let hit = json!({
        "hit_id": "019aa54c-3f1c-7a60-9f43-6d1b0c8e2a57",
        "hit_at": "2026-11-21T07:49:42.028Z",
        "short_id": "aB3xY9z",
        "device": "mobile",
        "browser": "safari",
        "os": "ios",
        "country": "DE",
        "language": "de",
        "referrer": "news.example.com",
        "destination": "default",
        "bot": null,
    });
    json!(format!("retry: {RETRY_MILLIS}\n\nid: AX9k\nevent: hit\ndata: {hit}\n\n"))
}

async fn of_key(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    begin(api, caller, &request, StreamOf::Caller).await
}

async fn of_link(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    begin(api, caller, &request, StreamOf::Link(LinkName::parse(&path))).await
}

impl From<StreamError> for Problem {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Access(error) => error.into(),
            StreamError::Untracked => {
                Self::new(ProblemKind::UntrackedLink, "This link is untracked: it has no stream of hits.")
            }
            StreamError::TooMany => {
                let detail =
                    "The key has as many streams at once as its tier allows; retry when one of them has ended.";
                Self::new(ProblemKind::RateLimited, detail).with_header(RETRY_AFTER, HeaderValue::from(LATER_SECONDS))
            }
            StreamError::KeyEnded => Self::unauthorized(),
            StreamError::ScopeMissing => Self::scope_missing(Scope::AnalyticsRead),
        }
    }
}

async fn begin(
    api: web::Data<Api>,
    caller: Caller,
    request: &HttpRequest,
    of: StreamOf,
) -> Result<HttpResponse, Problem> {
    let mut faults = Query::of(request).into_faults();
    let after = last_event_id(request, &mut faults);
    faults.into_result()?;
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream"));
    response.insert_header((X_ACCEL_BUFFERING, HeaderValue::from_static("no")));
    if request.method() == Method::HEAD {
        api.hit_streams.check(&caller.key, of).await?;
        return Ok(head_of_streamed(response));
    }
    let secret = presented_hash(request);
    let stream = api.hit_streams.open(&caller.key, secret, of, after).await?;
    let client = request.conn_data::<Handlers>().cloned();
    client.iter().for_each(Handlers::begin_long_answer);
    let begin = format!("retry: {RETRY_MILLIS}\nid: {}\n\n", stream.place());
    Ok(streamed(request, response, events(EventStream { api, stream, client, begin: Some(begin.into()) })))
}

/// The place in `Last-Event-ID`. A client that has no event yet may send an empty one.
fn last_event_id(request: &HttpRequest, faults: &mut FieldErrors) -> Option<StreamPlace> {
    let id = request.headers().get(LAST_EVENT_ID).filter(|id| !id.is_empty())?;
    let place = StreamPlace::parse(id.as_bytes());
    if place.is_none() {
        faults.header(LAST_EVENT_ID, "must be the id of an event of a stream of hits");
    }
    place
}

/// An answer that goes on.
struct EventStream {
    api: web::Data<Api>,
    stream: HitStream,
    /// Tells when the client closes the connection.
    client: Option<Handlers>,
    /// What is sent first.
    begin: Option<Bytes>,
}

fn events(events: EventStream) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(events, |mut events| async move {
        let part = events.next_part().await?;
        Some((Ok(part), events))
    })
}

impl EventStream {
    /// The next part of the answer. Each is made when the one before is sent, so that a client that reads slowly takes no
    /// memory.
    async fn next_part(&mut self) -> Option<Bytes> {
        if let Some(begin) = self.begin.take() {
            return Some(begin);
        }
        let Self { api, stream, client, .. } = self;
        let step = match client {
            Some(client) => tokio::select! {
                biased;
                () = client.until_client_leaves() => StreamStep::End,
                step = stream.next() => step,
            },
            None => stream.next().await,
        };
        match step {
            StreamStep::Events(events) => Some(text_of(api, &events).await.into()),
            StreamStep::Comment => Some(Bytes::from_static(COMMENT)),
            StreamStep::End => None,
        }
    }
}

async fn text_of(api: &Api, events: &[StreamEvent]) -> Vec<u8> {
    let without_text = events.iter().filter_map(|event| match &event.kind {
        StreamEventKind::Hit(entry) if entry.text.get().is_none() => entry.hit(),
        _ => None,
    });
    api.hit_streams.learn_names(without_text).await;
    let mut text = Vec::new();
    for StreamEvent { kind, id } in events {
        text.extend_from_slice(format!("id: {id}\n").as_bytes());
        match kind {
            StreamEventKind::Hit(entry) => text.extend_from_slice(&hit_text(api, entry)),
            StreamEventKind::LeftOut(count) => {
                text.extend_from_slice(format!("event: skipped\ndata: {}\n\n", json!({"count": count})).as_bytes());
            }
        }
    }
    text
}

/// The event of a hit without its id. All streams share it, once the name of the link is known.
fn hit_text(api: &Api, entry: &RingEntry) -> Bytes {
    if let Some(text) = entry.text.get() {
        return text.clone();
    }
    let Some(hit) = entry.hit() else { return Bytes::new() };
    let text_with = |name: &str| format!("event: hit\ndata: {}\n\n", HitData::of(hit, name).to_json()).into();
    match api.hit_streams.name_of(hit) {
        Some(name) => entry.text.get_or_init(|| text_with(&name.to_string())).clone(),
        None => text_with(hit.link.as_str()),
    }
}

/// The data of a hit's event.
#[derive(Serialize)]
struct HitData<'a> {
    hit_id: String,
    hit_at: String,
    short_id: &'a str,
    device: Option<&'a str>,
    browser: Option<&'a str>,
    os: Option<&'a str>,
    country: Option<&'a str>,
    language: Option<&'a str>,
    referrer: Option<&'a str>,
    destination: Option<&'a str>,
    bot: Option<&'a str>,
}

impl<'a> HitData<'a> {
    fn of(hit: &'a LiveHit, short_id: &'a str) -> Self {
        Self {
            hit_id: hit.id.to_string(),
            hit_at: hit.id.at().to_string(),
            short_id,
            device: hit.device.as_deref(),
            browser: hit.browser.as_deref(),
            os: hit.system.as_deref(),
            country: hit.country.as_deref(),
            language: hit.language.as_deref(),
            referrer: hit.referrer.as_deref(),
            destination: hit.destination.as_deref(),
            bot: hit.bot.as_deref(),
        }
    }

    fn to_json(&self) -> String {
        // Texts and nothing else: that never fails.
        serde_json::to_string(self).unwrap_or_default()
    }
}

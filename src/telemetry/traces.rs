//! Traces for an OpenTelemetry collector: requests, what they asked of the store, and the tries of webhooks.
//!
//! A span is made when what it tells of has ended. The trace of a hit has the hit's id: so the redirect and each try of its
//! webhooks, however much later and on whichever node, are one trace, and nothing has to be kept with the hit for it.

mod caller;
mod export;
mod store_calls;

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

pub use self::caller::Caller;
use self::export::Exporter;
pub use self::export::{TraceSettings, TracesError};
pub use self::store_calls::{StoreCalls, note_store_call};
use super::metrics::traces::TraceMeters;

/// Bits of a trace's id that are random in each kind of it: those that the W3C's flag for random ids speaks of.
const RANDOM_BITS: u32 = 56;

/// A request that was answered.
pub struct Answered<'a> {
    pub method: &'a str,
    /// The pattern of its route.
    pub route: Option<&'static str>,
    pub status: u16,
    /// Its `X-Request-Id`.
    pub id: &'a str,
    /// The id of the hit that it was.
    pub hit: Option<u128>,
    pub caller: Option<&'a Caller>,
    pub began: Instant,
    pub calls: &'a StoreCalls,
}

/// A try of a webhook that has ended.
pub struct Tried<'a> {
    /// The id of the hit that it tells of.
    pub hit: u128,
    /// The receiver.
    pub host: &'a str,
    pub port: u16,
    /// From 1 on.
    pub attempt: u32,
    pub url_index: u8,
    pub status: Option<u16>,
    /// By OpenTelemetry's conventions a status that is an error, or what went wrong.
    pub error: Option<String>,
    pub took: Duration,
}

/// Tells a collector.
pub struct Traces {
    exporter: Exporter,
    scope: InstrumentationScope,
    ids: RandomIdGenerator,
    /// Traces whose random bits are at least this are told.
    threshold: u128,
}

impl Traces {
    /// Begins to export, on a thread of its own.
    ///
    /// # Errors
    /// When the HTTP client or the thread can't be made.
    pub fn start(settings: &TraceSettings, meters: TraceMeters) -> Result<Self, TracesError> {
        let exporter = Exporter::start(settings, meters)?;
        let scope = InstrumentationScope::builder("signpost").with_version(env!("CARGO_PKG_VERSION")).build();
        let threshold = threshold_of(settings.sample_ratio);
        Ok(Self { exporter, scope, ids: RandomIdGenerator::default(), threshold })
    }

    /// Tells of a request and its calls of the store.
    pub fn answered(&self, request: &Answered<'_>) {
        // The trace of a hit goes on where its caller is not concerned: it only refers to the caller's.
        let of_its_own = request.hit.map_or_else(|| self.ids.new_trace_id(), TraceId::from);
        let callers = request.caller.filter(|_| request.hit.is_none());
        // A caller's id is what it likes, so it is not left to decide.
        if !self.is_sampled(of_its_own) || callers.is_some_and(|caller| !caller.is_sampled()) {
            return;
        }
        let trace = callers.map_or(of_its_own, Caller::trace);
        // In this order: its calls of the store may seem to begin later than they did, so it may only seem to begin earlier.
        let ended = SystemTime::now();
        let took = request.began.elapsed();
        let id = request.hit.map_or_else(|| self.ids.new_span_id(), redirect_span);
        for call in request.calls.take() {
            let name = format!("store {}", call.operation);
            let mut span = self.span(trace, self.ids.new_span_id(), name, call.ended, call.took);
            span.parent_span_id = id;
            span.attributes = vec![KeyValue::new("signpost.store.outcome", call.outcome)];
            if call.is_failure {
                span.status = Status::error("");
            }
            self.exporter.export(span);
        }

        let method = known_method(request.method);
        let name = method.unwrap_or("HTTP");
        let name = request.route.map_or_else(|| name.to_owned(), |route| format!("{name} {route}"));
        let mut span = self.span(trace, id, name, ended, took);
        span.span_kind = SpanKind::Server;
        span.attributes = vec![
            KeyValue::new("http.request.method", method.unwrap_or("_OTHER")),
            KeyValue::new("http.response.status_code", i64::from(request.status)),
            KeyValue::new("signpost.request_id", request.id.to_owned()),
        ];
        span.attributes.extend(request.route.map(|route| KeyValue::new("http.route", route)));
        if request.status >= 500 {
            span.attributes.push(KeyValue::new("error.type", request.status.to_string()));
            span.status = Status::error("");
        }
        match request.caller {
            Some(caller) if request.hit.is_some() => span.links.links.push(Link::with_context(caller.context())),
            Some(caller) => (span.parent_span_id, span.parent_span_is_remote) = (caller.span(), true),
            None => {}
        }
        self.exporter.export(span);
    }

    /// Tells of a try of a webhook.
    pub fn tried(&self, attempt: Tried<'_>) {
        let trace = TraceId::from(attempt.hit);
        if !self.is_sampled(trace) {
            return;
        }
        let name = "webhook attempt".to_owned();
        let mut span = self.span(trace, self.ids.new_span_id(), name, SystemTime::now(), attempt.took);
        span.parent_span_id = redirect_span(attempt.hit);
        span.span_kind = SpanKind::Client;
        // Host and port alone: the rest of an URL may be its receiver's secret.
        span.attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("server.address", attempt.host.to_owned()),
            KeyValue::new("server.port", i64::from(attempt.port)),
            KeyValue::new("signpost.webhook.url_index", i64::from(attempt.url_index)),
        ];
        if attempt.attempt > 1 {
            span.attributes.push(KeyValue::new("http.request.resend_count", i64::from(attempt.attempt) - 1));
        }
        span.attributes
            .extend(attempt.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status))));
        if let Some(error) = attempt.error {
            span.attributes.push(KeyValue::new("error.type", error));
            span.status = Status::error("");
        }
        self.exporter.export(span);
    }

    /// Sends what waits. Later spans are dropped.
    pub async fn stop(&self) {
        self.exporter.stop().await;
    }

    fn is_sampled(&self, trace: TraceId) -> bool {
        u128::from_be_bytes(trace.to_bytes()) % (1 << RANDOM_BITS) >= self.threshold
    }

    fn span(&self, trace: TraceId, id: SpanId, name: String, ended: SystemTime, took: Duration) -> SpanData {
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: ended.checked_sub(took).unwrap_or(ended),
            end_time: ended,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The id of a redirect's span: the random end of the hit's id, so that whoever tries its webhooks knows it.
fn redirect_span(hit: u128) -> SpanId {
    let bytes = hit.to_be_bytes();
    SpanId::from_bytes(std::array::from_fn(|place| bytes[8 + place]))
}

/// A client may send any word as its method.
fn known_method(method: &str) -> Option<&'static str> {
    let known = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.into_iter().find(|known| *known == method)
}
/// What a trace's random bits must be at least for `ratio` of all traces to be sampled.
fn threshold_of(ratio: f64) -> u128 {
    let all = 1_u128 << RANDOM_BITS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^56, which f64 has exactly")]
    let sampled = (ratio * 2_f64.powi(RANDOM_BITS.cast_signed())) as u128;
    all - sampled.min(all)
}

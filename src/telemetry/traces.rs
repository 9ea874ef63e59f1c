//! Traces for an OpenTelemetry collector: requests, their calls of the store, and attempts of webhooks.
//!
//! A span is created when its operation has ended. The trace id of a hit is the hit's id. So the redirect and all
//! attempts of its webhooks are one trace, on any node and at any later time, and no trace id is stored with the hit.

mod export;
mod store_calls;
mod trace_parent;

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

use self::export::Exporter;
pub use self::export::{TraceSettings, TracesError};
pub use self::store_calls::{StoreCalls, note_store_call};
pub use self::trace_parent::TraceParent;
use super::metrics::traces::TraceMeters;

/// The bits that are random in every trace id here: the bits to which the W3C's random-trace-id flag refers.
const RANDOM_BITS: u32 = 56;

/// An answered request.
pub struct Answered<'a> {
    pub method: &'a str,
    /// The pattern of the route.
    pub route: Option<&'static str>,
    pub status: u16,
    /// The `X-Request-Id`.
    pub id: &'a str,
    /// The id of the hit, if the request was a redirect that is counted.
    pub hit: Option<u128>,
    pub caller: Option<&'a TraceParent>,
    pub began: Instant,
    pub calls: &'a StoreCalls,
}

/// An attempt of a webhook delivery that has ended.
pub struct Tried<'a> {
    /// The id of the delivered hit.
    pub hit: u128,
    /// The receiver.
    pub host: &'a str,
    pub port: u16,
    /// Counted from 1.
    pub attempt: u32,
    pub url_index: u8,
    pub status: Option<u16>,
    /// The `error.type` of the OpenTelemetry conventions: an error status, or the kind of failure.
    pub error: Option<String>,
    pub took: Duration,
}

/// Creates spans and exports them to a collector.
pub struct Traces {
    exporter: Exporter,
    scope: InstrumentationScope,
    ids: RandomIdGenerator,
    /// Traces whose random bits are at least this value are sampled.
    threshold: u128,
}

impl Traces {
    /// Starts to export, on a separate thread.
    ///
    /// # Errors
    /// If the HTTP client or the thread can't be created.
    pub fn start(settings: &TraceSettings, meters: TraceMeters) -> Result<Self, TracesError> {
        let exporter = Exporter::start(settings, meters)?;
        let scope = InstrumentationScope::builder("signpost").with_version(env!("CARGO_PKG_VERSION")).build();
        let threshold = threshold_of(settings.sample_ratio);
        Ok(Self { exporter, scope, ids: RandomIdGenerator::default(), threshold })
    }

    /// Exports the spans of a request and of its calls of the store.
    pub fn answered(&self, request: &Answered<'_>) {
        // A hit has a trace of its own, which outlives the caller's. It only links to the caller's trace.
        let of_its_own = request.hit.map_or_else(|| self.ids.new_trace_id(), TraceId::from);
        let callers = request.caller.filter(|_| request.hit.is_none());
        // Sampling is decided by an id of our own, because clients can choose theirs.
        if !self.is_sampled(of_its_own) || callers.is_some_and(|caller| !caller.is_sampled()) {
            return;
        }
        let trace = callers.map_or(of_its_own, TraceParent::trace);
        // Read in this order, the request seems to begin earlier rather than later, so that its calls of the store
        // lie within it.
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

    /// Exports the span of an attempt of a webhook.
    pub fn tried(&self, attempt: Tried<'_>) {
        let trace = TraceId::from(attempt.hit);
        if !self.is_sampled(trace) {
            return;
        }
        let name = "webhook attempt".to_owned();
        let mut span = self.span(trace, self.ids.new_span_id(), name, SystemTime::now(), attempt.took);
        span.parent_span_id = redirect_span(attempt.hit);
        span.span_kind = SpanKind::Client;
        // Host and port only: the rest of a URL may contain a secret of its receiver.
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

    /// Sends the queued spans. Later spans are dropped.
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

/// The span id of a redirect: the random end of the hit's id, so that attempts of its webhooks can refer to it.
fn redirect_span(hit: u128) -> SpanId {
    let bytes = hit.to_be_bytes();
    SpanId::from_bytes(std::array::from_fn(|place| bytes[8 + place]))
}

/// Only known methods become attributes: clients can send any word.
fn known_method(method: &str) -> Option<&'static str> {
    let known = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.into_iter().find(|known| *known == method)
}
/// The threshold of a trace's random bits at which `ratio` of all traces are sampled.
fn threshold_of(ratio: f64) -> u128 {
    let all = 1_u128 << RANDOM_BITS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^56, which f64 has exactly")]
    let sampled = (ratio * 2_f64.powi(RANDOM_BITS.cast_signed())) as u128;
    all - sampled.min(all)
}

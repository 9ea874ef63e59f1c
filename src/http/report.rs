//! The log line and the trace of a request. Without both, a request has no report.

use std::sync::Arc;
use std::time::Instant;

use actix_http::RequestHead;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use futures_util::future::Either;
use tracing::Span;

use crate::domain::hit::HitId;
use crate::telemetry::traces::{Answered, StoreCalls, TraceParent, Traces};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Which reports are enabled.
#[derive(Clone, Default)]
pub struct Reporting {
    /// Whether each request is logged.
    pub log: bool,
    pub traces: Option<Arc<Traces>>,
}

impl Reporting {
    pub fn is_on(&self) -> bool {
        self.log || self.traces.is_some()
    }

    /// Starts the report of a request.
    pub fn begin(&self, head: &RequestHead, id: &HeaderValue) -> Option<Report> {
        if !self.is_on() {
            return None;
        }
        let caller =
            self.traces.is_some().then(|| head.headers.get(TRACEPARENT)?.to_str().ok().and_then(TraceParent::parse));
        Some(Report {
            to: self.clone(),
            method: head.method.clone(),
            id: id.clone(),
            caller: caller.flatten(),
            calls: StoreCalls::default(),
            began: Instant::now(),
        })
    }
}

/// The report of one request.
pub struct Report {
    to: Reporting,
    method: Method,
    id: HeaderValue,
    caller: Option<TraceParent>,
    calls: StoreCalls,
    began: Instant,
}

impl Report {
    /// Logs and traces the answer. `route` is a pattern, never a path: ids of links and keys are not in logs and
    /// traces.
    pub fn answered(self, route: Option<&'static str>, status: StatusCode, hit: Option<HitId>) {
        let took = self.began.elapsed();
        if let Some(traces) = &self.to.traces {
            traces.answered(&Answered {
                method: shown_method(&self.method),
                route,
                status: status.as_u16(),
                id: self.id.to_str().unwrap_or_default(),
                hit: hit.map(|hit| hit.0.as_u128()),
                caller: self.caller.as_ref(),
                began: self.began,
                calls: &self.calls,
            });
        }
        if self.to.log {
            let _in_span = span_of(&self.id).entered();
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let (method, hit) = (shown_method(&self.method), hit.map(|hit| tracing::field::display(hit.0)));
            tracing::info!(method, route, status = status.as_u16(), hit, micros, "request");
        }
    }
}

/// A method as logs and traces show it. A client may send any token, of any length; OpenTelemetry calls those `_OTHER`.
fn shown_method(method: &Method) -> &str {
    const DEFINED: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    if DEFINED.contains(method) { method.as_str() } else { "_OTHER" }
}

/// Runs `work`. If the request is traced, its calls of the store are recorded.
pub fn watched<F: Future>(report: Option<&Report>, work: F) -> impl Future<Output = F::Output> {
    match report.filter(|report| report.to.traces.is_some()) {
        Some(report) => Either::Left(report.calls.during(work)),
        None => Either::Right(work),
    }
}

/// The span of a request, so that its log lines have its id. It has the highest level, so that it exists at every log
/// level.
pub fn span_of(id: &HeaderValue) -> Span {
    tracing::error_span!("request", id = id.to_str().unwrap_or_default())
}

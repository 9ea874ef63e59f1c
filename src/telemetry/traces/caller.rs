//! Whose trace a request belongs to, as its `traceparent` tells (W3C Trace Context).

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// The span of a caller.
pub struct Caller(SpanContext);

impl Caller {
    /// Of the value of a `traceparent`; `None` where that is not one.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Header(traceparent));
        let context = context.span().span_context().clone();
        context.is_valid().then_some(Self(context))
    }

    pub(super) fn context(&self) -> SpanContext {
        self.0.clone()
    }

    pub(super) fn trace(&self) -> TraceId {
        self.0.trace_id()
    }

    pub(super) fn span(&self) -> SpanId {
        self.0.span_id()
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.0.is_sampled()
    }
}

/// The one field that is looked at. What `tracestate` would add is for vendors, and as long as a client likes.
struct Header<'a>(&'a str);

impl Extractor for Header<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

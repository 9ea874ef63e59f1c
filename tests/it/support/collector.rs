//! A collector of traces: what an OTLP exporter sends, read by the protocol's own definitions.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;

use super::receiver::Receiver;

pub use opentelemetry_proto::tonic::trace::v1::Span;
pub use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
pub use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

/// Takes all that comes.
pub struct Collector(pub Receiver);

impl Collector {
    pub async fn start() -> Self {
        Self(Receiver::start().await)
    }

    /// The value of `SIGNPOST_TELEMETRY__OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// All bytes that came.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.received().into_iter().flat_map(|request| request.body).collect()
    }

    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let requests = self.0.received().into_iter().inspect(|request| {
            assert_eq!(request.path, "/v1/traces");
            assert_eq!(request.header("content-type"), "application/x-protobuf");
        });
        requests.map(|request| ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap()).collect()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }
}

/// Attributes as text, by their keys.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &AnyValue| match value.value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|pair| (pair.key.as_str(), text(pair.value.as_ref().unwrap()))).collect()
}

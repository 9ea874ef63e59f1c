//! The way of spans to the collector: a bounded queue, and a thread that sends what is in it, many at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanProcessor};
use reqwest::blocking::Client;
use thiserror::Error;

use crate::telemetry::metrics::traces::TraceMeters;
use crate::tls;

/// Spans that wait at the most, some 8 MiB of them; more are dropped, and counted.
const QUEUE: usize = 8192;
/// For one request to the collector, with the tries that it takes.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// For the last ones, when the process ends: less than a part of it may take.
const STOP_WITHIN: Duration = Duration::from_millis(1200);

/// Where traces go.
pub struct TraceSettings {
    /// The collector's base URL.
    pub endpoint: String,
    /// Of this many traces one is sent.
    pub one_in: NonZeroU32,
    /// Tells this process from others.
    pub instance: String,
}

/// Why traces can't be sent.
#[derive(Debug, Error)]
pub enum TracesError {
    #[error("TLS can't be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client can't be made: {0}")]
    Client(#[from] reqwest::Error),
    #[error("{0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("a thread can't be started: {0}")]
    Thread(#[from] std::io::Error),
}

pub(super) struct Exporter {
    processor: BatchSpanProcessor,
    meters: TraceMeters,
    waiting: Arc<AtomicUsize>,
}

impl Exporter {
    pub(super) fn start(settings: &TraceSettings, meters: TraceMeters) -> Result<Self, TracesError> {
        let TraceSettings { endpoint, instance, .. } = settings;
        let to_collector = SpanExporter::builder()
            .with_http()
            .with_http_client(client()?)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_timeout(SEND_WITHIN)
            .build()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Counted {
            to_collector,
            meters: meters.clone(),
            waiting: Arc::clone(&waiting),
            has_failed: AtomicBool::new(false),
        };
        let batches = BatchConfigBuilder::default().with_max_queue_size(QUEUE).build();
        let mut processor = BatchSpanProcessor::builder(counted).with_batch_config(batches).build();
        processor.set_resource(&resource(instance));
        Ok(Self { processor, meters, waiting })
    }

    /// Never waits: where the queue is full, the span is dropped.
    pub(super) fn export(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return self.meters.dropped.increment(1);
        }
        self.processor.on_end(span);
    }

    pub(super) fn stop(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(STOP_WITHIN) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Made on a thread of its own, for it makes a runtime of its own, which no other runtime's thread may.
fn client() -> Result<Client, TracesError> {
    let tls = tls::client_config(tls::system_roots())?;
    let make = move || {
        Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(SEND_WITHIN)
            .build()
    };
    let thread = thread::Builder::new().name("traces-client".into()).spawn(make)?;
    Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

/// Who sends: what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say, the usual variables for it, and what they don't.
fn resource(instance: &str) -> Resource {
    let unnamed = |name: &Value| name.as_str().starts_with("unknown_service");
    let is_named =
        Resource::builder().build().get(&Key::from_static_str("service.name")).is_some_and(|name| !unnamed(&name));
    let builder = Resource::builder().with_attributes([
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ]);
    if is_named { builder.build() } else { builder.with_service_name("signpost").build() }
}

/// Counts what is sent, and warns where nothing gets there.
#[derive(Debug)]
struct Counted {
    to_collector: SpanExporter,
    meters: TraceMeters,
    waiting: Arc<AtomicUsize>,
    has_failed: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let sent = self.to_collector.export(batch).await;
        let outcome = if sent.is_ok() { &self.meters.exported } else { &self.meters.failed };
        outcome.increment(u64::try_from(count).unwrap_or(u64::MAX));
        // Once for each time that the collector is out of reach.
        match (&sent, self.has_failed.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => tracing::warn!(%error, "traces can't be sent to telemetry.otlp_endpoint"),
            (Ok(()), true) => tracing::info!("traces are sent again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to_collector.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.to_collector.set_resource(resource);
    }
}

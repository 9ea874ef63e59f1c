//! Export of spans to the collector: a bounded queue, and a thread that sends batches.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanProcessor};
use reqwest::blocking::Client;
use tokio::sync::oneshot;

use crate::locks::lock;
use crate::telemetry::metrics::traces::TraceMeters;
use crate::tls;

/// The maximum number of queued spans, some 8 MiB. Further spans are dropped and counted.
const QUEUE: usize = 8192;
/// The time limit of an attempt to send a batch. Retries take the same time in total.
const SEND_WITHIN: Duration = Duration::from_secs(5);
/// The time limit for the last batch when the process stops: less than the limit for closing a part.
const STOP_WITHIN: Duration = Duration::from_millis(1200);

/// Where traces are sent.
pub struct TraceSettings {
    /// The collector's base URL.
    pub endpoint: String,
    /// The share of traces that are sent, from 0 to 1.
    pub sample_ratio: f64,
    /// Distinguishes this process from others.
    pub instance: String,
}

/// Why traces can't be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("can't set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("can't create the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    #[error("{0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("can't start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

pub(super) struct Exporter {
    processor: Arc<BatchSpanProcessor>,
    meters: TraceMeters,
    waiting: Arc<AtomicUsize>,
    has_stopped: AtomicBool,
}

impl Exporter {
    pub(super) fn start(settings: &TraceSettings, meters: TraceMeters) -> Result<Self, TracesError> {
        let TraceSettings { endpoint, instance, .. } = settings;
        let cause = Arc::<Mutex<Option<String>>>::default();
        let to_collector = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient { client: client()?, cause: Arc::clone(&cause) })
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_timeout(SEND_WITHIN)
            .build()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = CountedSpans {
            to_collector,
            meters: meters.clone(),
            waiting: Arc::clone(&waiting),
            has_failed: AtomicBool::new(false),
            cause,
        };
        let batches = BatchConfigBuilder::default().with_max_queue_size(QUEUE).build();
        let mut processor = BatchSpanProcessor::builder(counted).with_batch_config(batches).build();
        processor.set_resource(&resource(instance));
        Ok(Self { processor: Arc::new(processor), meters, waiting, has_stopped: AtomicBool::new(false) })
    }

    /// Queues a span without blocking. If the queue is full, the span is dropped.
    pub(super) fn export(&self, span: SpanData) {
        if self.has_stopped.load(Ordering::Relaxed) {
            return self.meters.dropped.increment(1);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return self.meters.dropped.increment(1);
        }
        self.processor.on_end(span);
    }

    /// Stops on a separate thread, because it joins threads that may hang in a DNS look-up. The caller limits the
    /// time.
    pub(super) async fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
        let processor = Arc::clone(&self.processor);
        let (stopped, has_stopped) = oneshot::channel();
        let stop = move || {
            if let Err(error) = processor.shutdown_with_timeout(STOP_WITHIN) {
                tracing::warn!(%error, "can't send the last traces");
            }
            // The receiver may be gone.
            let _ = stopped.send(());
        };
        if thread::Builder::new().name("traces-stop".into()).spawn(stop).is_ok() {
            let _ = has_stopped.await;
        }
    }
}

/// Creates the client on a separate thread: it creates a runtime, which is not allowed on a thread of another
/// runtime.
fn client() -> Result<Client, TracesError> {
    let tls = tls::client_config(tls::web_roots())?;
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

/// The resource attributes: those of `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, and ours where these have
/// none.
fn resource(instance: &str) -> Resource {
    let said = Resource::builder().build();
    let is_said = |key| {
        let value = said.get(&Key::from_static_str(key));
        value.is_some_and(|value| !value.as_str().starts_with("unknown_service"))
    };
    let ours = [
        ("service.name", "signpost"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
    ];
    let missing = ours.into_iter().filter(|(key, _)| !is_said(*key));
    let missing = missing.map(|(key, value)| KeyValue::new(key, value.to_owned()));
    Resource::builder().with_attributes(missing).build()
}

/// Keeps the reason of a failed request, which the exporter does not report.
#[derive(Debug)]
struct CollectorClient {
    client: Client,
    cause: Arc<Mutex<Option<String>>>,
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.client.send_bytes(request).await;
        *lock(&self.cause) = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status())),
            Err(error) => Some(with_sources(&**error)),
        };
        answer
    }
}

/// An error with its chain of causes.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Counts exported spans, and logs failures.
#[derive(Debug)]
struct CountedSpans {
    to_collector: SpanExporter,
    meters: TraceMeters,
    waiting: Arc<AtomicUsize>,
    has_failed: AtomicBool,
    cause: Arc<Mutex<Option<String>>>,
}

impl opentelemetry_sdk::trace::SpanExporter for CountedSpans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let sent = self.to_collector.export(batch).await;
        let outcome = if sent.is_ok() { &self.meters.exported } else { &self.meters.failed };
        outcome.increment(u64::try_from(count).unwrap_or(u64::MAX));
        // One warning for each outage of the collector.
        match (&sent, self.has_failed.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => {
                let cause = lock(&self.cause).take();
                let error = cause.unwrap_or_else(|| error.to_string());
                tracing::warn!(error, "can't send traces to telemetry.otlp_endpoint");
            }
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

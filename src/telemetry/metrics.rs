//! The metrics of a process (in tests: of a server). [`catalogue`] defines each. Handles are atomics: counting takes
//! no lock and no look-up.

pub mod actors;
pub mod bulk;
pub mod catalogue;
mod histogram;
pub mod hits;
pub mod link_changes;
pub mod link_lists;
pub mod once;
pub mod requests;
pub mod store;
pub mod traces;
pub mod webhooks;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metrics::{Counter, Gauge, Label, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use self::actors::ActorMeters;
use self::bulk::BulkMeters;
use self::catalogue::{
    BUILD_INFO, Definition, HTTP_REQUESTS, LINK_LOOKUPS, REDIRECT_DURATION, REDIRECTS, REDIRECTS_DISPATCHED,
    WEBHOOK_DELIVERY_DELAY, WEBHOOK_FIRST_ATTEMPT_DELAY,
};
use self::hits::CountingMeters;
use self::link_changes::LinkChangeMeters;
use self::link_lists::LinkListMeters;
use self::once::OnceMeters;
use self::requests::{CLASSES, RedirectMeters, RefusalMeters, RefusedLink, RequestMeters};
use self::store::OperationMeters;
use self::traces::TraceMeters;
use self::webhooks::WebhookMeters;
use crate::locks::lock;

/// Buckets of durations in seconds, from an idle machine to an overloaded store.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0];

type Labels<'a> = &'a [(&'static str, &'static str)];

/// All metrics.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub redirects: Arc<RedirectMeters>,
    pub requests: Arc<RequestMeters>,
    pub refusals: RefusalMeters,
    pub bulk: BulkMeters,
    pub once: OnceMeters,
    pub link_changes: LinkChangeMeters,
    pub link_lists: LinkListMeters,
    pub counting: CountingMeters,
    pub webhooks: WebhookMeters,
    pub traces: TraceMeters,
    /// Values that are read when the metrics are rendered.
    reads: Mutex<Vec<Box<dyn Fn() + Send>>>,
    process: metrics_process::Collector,
}

impl Metrics {
    /// `routes` are the route patterns by which requests are counted; `redirect` is the pattern of redirects.
    /// `client_limits` are the names of the client limits of single endpoints.
    pub fn new(
        routes: impl Iterator<Item = &'static str>,
        redirect: &'static str,
        client_limits: impl Iterator<Item = &'static str>,
    ) -> Self {
        let delays = [WEBHOOK_FIRST_ATTEMPT_DELAY, WEBHOOK_DELIVERY_DELAY];
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("the buckets are not empty");
        let builder = delays.iter().fold(builder, |builder, delay| {
            let matcher = Matcher::Full(delay.name.to_owned());
            builder.set_buckets_for_metric(matcher, &webhooks::DELAY_BUCKETS).expect("the buckets are not empty")
        });
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let process = metrics_process::Collector::default();
        let (requests, refusals, bulk, once, link_changes, link_lists, counting, webhooks, traces) =
            with_local_recorder(&recorder, || {
                catalogue::describe();
                process.describe();
                metrics::gauge!(BUILD_INFO.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
                (
                    RequestMeters::register(routes),
                    RefusalMeters::register(client_limits),
                    BulkMeters::register(),
                    OnceMeters::register(),
                    LinkChangeMeters::register(),
                    LinkListMeters::register(),
                    CountingMeters::register(),
                    WebhookMeters::register(),
                    TraceMeters::register(),
                )
            });
        let metrics = Self {
            recorder,
            handle,
            redirects: Arc::default(),
            requests: Arc::new(requests),
            refusals,
            bulk,
            once,
            link_changes,
            link_lists,
            counting,
            webhooks,
            traces,
            reads: Mutex::default(),
            process,
        };
        metrics.show_redirects();
        metrics.show_requests(redirect);
        metrics
    }

    /// A counter with this definition.
    pub fn counter(&self, definition: &Definition, labels: Labels<'_>) -> Counter {
        with_local_recorder(&self.recorder, || metrics::counter!(definition.name, labels_of(labels)))
    }

    /// The meters of one operation of the store.
    pub fn store_operation(&self, operation: &'static str) -> OperationMeters {
        with_local_recorder(&self.recorder, || OperationMeters::register(operation))
    }

    /// The meters of one kind of actor.
    pub fn actor(&self, actor: &'static str) -> ActorMeters {
        with_local_recorder(&self.recorder, || ActorMeters::register(actor))
    }

    /// Registers a gauge whose value is read when the metrics are rendered.
    pub fn gauge_of(&self, definition: &Definition, labels: Labels<'_>, read: impl Fn() -> u64 + Send + 'static) {
        let gauge = self.gauge(definition, labels);
        // Prometheus values are floating-point; sizes beyond 2^53 do not occur.
        #[allow(clippy::cast_precision_loss, reason = "a metric need not be exact beyond 2^53")]
        self.reads().push(Box::new(move || gauge.set(read() as f64)));
    }

    /// Registers a gauge of a duration that is read when the metrics are rendered.
    pub fn seconds_of(&self, definition: &Definition, read: impl Fn() -> Duration + Send + 'static) {
        let gauge = self.gauge(definition, &[]);
        self.reads().push(Box::new(move || gauge.set(read().as_secs_f64())));
    }

    /// Registers a counter whose value another part keeps.
    pub fn count_of(&self, definition: &Definition, labels: Labels<'_>, read: impl Fn() -> u64 + Send + 'static) {
        let counter = self.counter(definition, labels);
        self.reads().push(Box::new(move || counter.absolute(read())));
    }

    /// Sorts observed values into buckets. Until then, or until the metrics are rendered, each observation takes
    /// memory.
    pub fn tidy(&self) {
        self.handle.run_upkeep();
    }

    /// All metrics, as Prometheus text.
    pub fn render(&self) -> String {
        with_local_recorder(&self.recorder, || self.process.collect());
        self.reads().iter().for_each(|read| read());
        self.handle.render() + &self.redirects.render_times(&REDIRECT_DURATION)
    }

    fn gauge(&self, definition: &Definition, labels: Labels<'_>) -> Gauge {
        with_local_recorder(&self.recorder, || metrics::gauge!(definition.name, labels_of(labels)))
    }

    fn show_redirects(&self) {
        let redirects = |sum: fn(&RedirectMeters) -> u64| {
            let redirects = Arc::clone(&self.redirects);
            move || sum(&redirects)
        };
        let outcome = |outcome, sum| self.count_of(&REDIRECTS, &[("outcome", outcome)], redirects(sum));
        outcome("found", RedirectMeters::all_found);
        outcome("not_found", RedirectMeters::all_unknown);
        outcome("scheduled", |meters| meters.all_refused(RefusedLink::Scheduled));
        outcome("expired", |meters| meters.all_refused(RefusedLink::Expired));
        outcome("blocked", |meters| meters.all_refused(RefusedLink::Blocked));
        outcome("limited", RedirectMeters::all_limited);
        outcome("unavailable", RedirectMeters::all_unavailable);
        outcome("failed", RedirectMeters::all_failed);
        self.count_of(&REDIRECTS_DISPATCHED, &[], redirects(RedirectMeters::all_dispatched));
        let result = |result, sum| self.count_of(&LINK_LOOKUPS, &[("result", result)], redirects(sum));
        result("hit", RedirectMeters::hits);
        result("negative", RedirectMeters::negatives);
        result("miss", RedirectMeters::misses);
        self.count_of(
            &catalogue::REQUESTS_LIMITED,
            &[("limit", "redirect")],
            redirects(RedirectMeters::refused_by_limit),
        );
    }

    /// Redirects are counted separately, and added to the other requests of their route.
    fn show_requests(&self, redirect: &'static str) {
        for (index, route) in self.requests.patterns().enumerate() {
            for (class, status) in CLASSES.into_iter().enumerate() {
                let (requests, redirects) = (Arc::clone(&self.requests), Arc::clone(&self.redirects));
                let redirects = (route == redirect).then_some(redirects);
                let read = move || {
                    let redirects = redirects.as_ref().map_or(0, |redirects| redirects.of_class(class));
                    requests.of_class(index, class) + redirects
                };
                self.count_of(&HTTP_REQUESTS, &[("route", route), ("status", status)], read);
            }
        }
    }

    fn reads(&self) -> MutexGuard<'_, Vec<Box<dyn Fn() + Send>>> {
        lock(&self.reads)
    }
}

fn labels_of(labels: Labels<'_>) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(*name, *value)).collect()
}

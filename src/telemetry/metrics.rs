//! Every metric, its name and its help, once. Handles are plain atomics: counting costs no lock and no look-up.

pub mod webhooks;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Label, Unit, describe_counter, describe_gauge, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use self::webhooks::WebhookMeters;

/// The metrics of one process (in tests: of one server).
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub redirects: Redirects,
    pub webhooks: WebhookMeters,
    /// Numbers that are read when asked for.
    gauges: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

/// Redirect look-ups by outcome.
pub struct Redirects {
    pub found: Counter,
    pub not_found: Counter,
    pub limited: Counter,
    pub unavailable: Counter,
}

impl Metrics {
    pub fn new() -> Self {
        let delays = [webhooks::FIRST_ATTEMPT_DELAY, webhooks::DELIVERY_DELAY];
        let builder = delays.iter().fold(PrometheusBuilder::new(), |builder, name| {
            let matcher = Matcher::Full((*name).to_owned());
            builder.set_buckets_for_metric(matcher, &webhooks::DELAY_BUCKETS).expect("the buckets are not empty")
        });
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let webhooks = with_local_recorder(&recorder, WebhookMeters::register);
        let redirects = with_local_recorder(&recorder, || {
            describe();
            let outcome = |outcome: &'static str| metrics::counter!("signpost_redirects_total", "outcome" => outcome);
            metrics::gauge!("signpost_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Redirects {
                found: outcome("found"),
                not_found: outcome("not_found"),
                limited: outcome("limited"),
                unavailable: outcome("unavailable"),
            }
        });
        Self { recorder, handle, redirects, webhooks, gauges: Mutex::default() }
    }

    /// A counter with one label.
    pub fn counter(&self, name: &'static str, label: &'static str, value: &'static str) -> Counter {
        with_local_recorder(&self.recorder, || metrics::counter!(name, vec![Label::new(label, value)]))
    }

    /// Shows a size that is read whenever the metrics are asked for.
    pub fn gauge_of(&self, name: &'static str, read: impl Fn() -> u64 + Send + 'static) {
        let gauge: Gauge = with_local_recorder(&self.recorder, || metrics::gauge!(name));
        // Prometheus' numbers are floating-point; sizes beyond 2^53 do not occur.
        #[allow(clippy::cast_precision_loss, reason = "a metric need not be exact beyond 2^53")]
        self.gauges().push(Box::new(move || gauge.set(read() as f64)));
    }

    /// Shows a time that is read whenever the metrics are asked for.
    pub fn seconds_of(&self, name: &'static str, read: impl Fn() -> Duration + Send + 'static) {
        let gauge: Gauge = with_local_recorder(&self.recorder, || metrics::gauge!(name));
        self.gauges().push(Box::new(move || gauge.set(read().as_secs_f64())));
    }

    /// Sorts what was observed into its buckets. Until then, or until the metrics are asked for, each observation takes
    /// memory.
    pub fn tidy(&self) {
        self.handle.run_upkeep();
    }

    /// Shows a count that something else keeps.
    pub fn count_of(&self, name: &'static str, read: impl Fn() -> u64 + Send + 'static) {
        let counter: Counter = with_local_recorder(&self.recorder, || metrics::counter!(name));
        self.gauges().push(Box::new(move || counter.absolute(read())));
    }

    /// All metrics, as Prometheus text.
    pub fn render(&self) -> String {
        self.gauges().iter().for_each(|read| read());
        self.handle.render()
    }

    fn gauges(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Fn() + Send>>> {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

pub const ACTOR_RESTARTS: &str = "signpost_actor_restarts_total";
pub const HITS_APPENDED: &str = "signpost_journal_hits_appended_total";
pub const HITS_NOT_RECORDED: &str = "signpost_journal_hits_not_recorded_total";
pub const JOURNAL_BYTES: &str = "signpost_journal_bytes";
pub const JOURNAL_UNREAD_BYTES: &str = "signpost_journal_unread_bytes";
pub const CACHED_LINKS: &str = "signpost_cached_links";

fn describe() {
    describe_counter!("signpost_redirects_total", "Look-ups of short ids by outcome.");
    describe_gauge!("signpost_build_info", "Always 1; the label tells the version.");
    describe_counter!(ACTOR_RESTARTS, "Actors started anew after they ended.");
    describe_counter!(HITS_APPENDED, "Hits written to the journal.");
    describe_counter!(HITS_NOT_RECORDED, "Hits that the journal had no room for: they are in no counter.");
    describe_gauge!(JOURNAL_BYTES, Unit::Bytes, "Disk space that the hit journal takes.");
    describe_gauge!(JOURNAL_UNREAD_BYTES, Unit::Bytes, "Journal bytes that are yet to be counted.");
    describe_gauge!(CACHED_LINKS, "Look-ups kept in memory, unknown ids among them.");
}

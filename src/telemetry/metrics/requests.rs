//! Metrics of HTTP requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{HTTP_REQUEST_DURATION, QUOTAS_REFUSED, REQUESTS_LIMITED};
use super::histogram::AtomicHistogram;

/// Where a redirect's link was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    Memory,
    Store,
}

/// Counts redirects by outcome. Each takes one atomic add, when the answer is created.
#[derive(Debug, Default)]
pub struct RedirectMeters {
    found_in_memory: AtomicU64,
    found_in_store: AtomicU64,
    unknown_in_memory: AtomicU64,
    unknown_in_store: AtomicU64,
    /// Of the unknown ones: those that were redirected nevertheless.
    fallbacks: AtomicU64,
    limited: AtomicU64,
    limited_previews: AtomicU64,
    unavailable: AtomicU64,
    failed: AtomicU64,
    dispatched: AtomicU64,
    pub times: AtomicHistogram,
}

impl RedirectMeters {
    pub fn found(&self, by: LookUp) {
        count(match by {
            LookUp::Memory => &self.found_in_memory,
            LookUp::Store => &self.found_in_store,
        });
    }

    /// `has_fallback`: whether it was redirected nevertheless.
    pub fn unknown(&self, by: LookUp, has_fallback: bool) {
        if has_fallback {
            // Before the other, so that a sum of answers 404 is at no time too high: shown counts never fall.
            count(&self.fallbacks);
        }
        count(match by {
            LookUp::Memory => &self.unknown_in_memory,
            LookUp::Store => &self.unknown_in_store,
        });
    }

    pub fn limited(&self) {
        count(&self.limited);
    }

    /// The preview of a link was refused by the limit of redirects. It is no redirect.
    pub fn preview_limited(&self) {
        count(&self.limited_previews);
    }

    /// The store did not answer.
    pub fn unavailable(&self) {
        count(&self.unavailable);
    }

    /// A handler panicked.
    pub fn failed(&self) {
        count(&self.failed);
    }

    /// Answered by the dispatcher, not on the fast path.
    pub fn dispatched(&self, took: Duration) {
        count(&self.dispatched);
        self.times.observe(took);
    }
}

/// The values that are shown.
impl RedirectMeters {
    pub(super) fn all_found(&self) -> u64 {
        read(&self.found_in_memory) + read(&self.found_in_store)
    }

    pub(super) fn all_unknown(&self) -> u64 {
        read(&self.unknown_in_memory) + read(&self.unknown_in_store)
    }

    pub(super) fn all_limited(&self) -> u64 {
        read(&self.limited)
    }

    /// Including previews.
    pub(super) fn refused_by_limit(&self) -> u64 {
        read(&self.limited) + read(&self.limited_previews)
    }

    pub(super) fn all_unavailable(&self) -> u64 {
        read(&self.unavailable)
    }

    pub(super) fn all_failed(&self) -> u64 {
        read(&self.failed)
    }

    pub(super) fn all_dispatched(&self) -> u64 {
        read(&self.dispatched)
    }

    pub(super) fn hits(&self) -> u64 {
        read(&self.found_in_memory)
    }

    pub(super) fn negatives(&self) -> u64 {
        read(&self.unknown_in_memory)
    }

    pub(super) fn misses(&self) -> u64 {
        read(&self.found_in_store) + read(&self.unknown_in_store) + read(&self.unavailable)
    }

    /// Answers with a status of the class at this index of [`CLASSES`].
    pub(super) fn of_class(&self, class: usize) -> u64 {
        match CLASSES[class] {
            "3xx" => self.all_found() + read(&self.fallbacks),
            "4xx" => self.all_unknown().saturating_sub(read(&self.fallbacks)) + self.all_limited(),
            "5xx" => self.all_unavailable() + self.all_failed(),
            _ => 0,
        }
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Classes of statuses, 1xx first.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counts all other requests by route.
#[derive(Default)]
pub struct RequestMeters {
    routes: Vec<RouteMeters>,
}

struct RouteMeters {
    pattern: &'static str,
    statuses: [AtomicU64; CLASSES.len()],
    time: Histogram,
}

/// The route name of requests that match no route.
const NO_ROUTE: &str = "none";

impl RequestMeters {
    /// Must run with the recorder that shows the metrics.
    pub(super) fn register(patterns: impl Iterator<Item = &'static str>) -> Self {
        let route = |pattern| RouteMeters {
            pattern,
            statuses: Default::default(),
            time: metrics::histogram!(HTTP_REQUEST_DURATION.name, "route" => pattern),
        };
        Self { routes: patterns.chain([NO_ROUTE]).map(route).collect() }
    }

    pub(super) fn patterns(&self) -> impl Iterator<Item = &'static str> {
        self.routes.iter().map(|route| route.pattern)
    }

    /// Answers of the route at `index` with a status of the class at this index of [`CLASSES`].
    pub(super) fn of_class(&self, index: usize, class: usize) -> u64 {
        read(&self.routes[index].statuses[class])
    }

    /// A request of the route with this pattern was answered.
    pub fn answered(&self, pattern: Option<&'static str>, status: u16, time: Duration) {
        let pattern = pattern.unwrap_or(NO_ROUTE);
        let Some(route) = self.routes.iter().find(|route| route.pattern == pattern) else { return };
        if let Some(class) = usize::from(status / 100).checked_sub(1).and_then(|class| route.statuses.get(class)) {
            count(class);
        }
        route.time.record(time);
    }
}

/// Requests refused because of a limit or a quota, except redirects and deliveries.
pub struct RefusalMeters {
    /// Refusals by the client limits of single endpoints, by name.
    limited_clients: Vec<(&'static str, Counter)>,
    pub limited_keys: Counter,
    pub limited_unauthorized: Counter,
    pub links_quota: Counter,
    pub keys_quota: Counter,
}

impl RefusalMeters {
    /// Must run with the recorder that shows the metrics. `client_limits` are the names of the client limits of
    /// single endpoints.
    pub(super) fn register(client_limits: impl Iterator<Item = &'static str>) -> Self {
        let limit = |limit: &'static str| metrics::counter!(REQUESTS_LIMITED.name, "limit" => limit);
        Self {
            limited_clients: client_limits.map(|name| (name, limit(name))).collect(),
            limited_keys: limit("key"),
            limited_unauthorized: limit("unauthorized"),
            links_quota: metrics::counter!(QUOTAS_REFUSED.name, "quota" => "links"),
            keys_quota: metrics::counter!(QUOTAS_REFUSED.name, "quota" => "keys"),
        }
    }

    /// A request was refused because of the client limit with this name.
    pub fn client_limited(&self, name: &str) {
        if let Some((_, counter)) = self.limited_clients.iter().find(|(limit, _)| *limit == name) {
            counter.increment(1);
        }
    }
}

//! Metrics of HTTP requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::catalogue::{Definition, HTTP_REQUEST_DURATION, QUOTAS_REFUSED, REQUESTS_LIMITED};
use super::histogram::AtomicHistogram;
use crate::threads::PerThread;

/// Where a redirect's link was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    Memory,
    Store,
}

/// Why a link that exists was not followed to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedLink {
    /// It does not redirect yet: answered as an unknown link.
    Scheduled,
    Expired,
    Blocked,
}

/// Links that exist and were not followed to their target, for one reason.
#[derive(Debug, Default)]
struct RefusedMeters {
    in_memory: AtomicU64,
    in_store: AtomicU64,
    /// Those that were redirected to a fallback.
    fallbacks_in_memory: AtomicU64,
    fallbacks_in_store: AtomicU64,
}

/// Counts redirects by outcome. Each takes one atomic add, when the answer is created.
#[derive(Debug, Default)]
pub struct RedirectMeters(PerThread<ThreadRedirects>);

/// What one thread has answered.
#[derive(Debug, Default)]
struct ThreadRedirects {
    found_in_memory: AtomicU64,
    found_in_store: AtomicU64,
    unknown_in_memory: AtomicU64,
    unknown_in_store: AtomicU64,
    /// Unknown ones that were redirected nevertheless.
    fallbacks_in_memory: AtomicU64,
    fallbacks_in_store: AtomicU64,
    /// By [`RefusedLink`].
    refused: [RefusedMeters; 3],
    limited: AtomicU64,
    limited_previews: AtomicU64,
    unavailable: AtomicU64,
    failed: AtomicU64,
    dispatched: AtomicU64,
    times: AtomicHistogram,
}

impl RedirectMeters {
    pub fn found(&self, by: LookUp) {
        let own = self.0.own();
        count(match by {
            LookUp::Memory => &own.found_in_memory,
            LookUp::Store => &own.found_in_store,
        });
    }

    /// No link has the name. `has_fallback`: the request was redirected nevertheless.
    pub fn unknown(&self, by: LookUp, has_fallback: bool) {
        let own = self.0.own();
        count(match (by, has_fallback) {
            (LookUp::Memory, false) => &own.unknown_in_memory,
            (LookUp::Store, false) => &own.unknown_in_store,
            (LookUp::Memory, true) => &own.fallbacks_in_memory,
            (LookUp::Store, true) => &own.fallbacks_in_store,
        });
    }

    /// The link leads nowhere. `has_fallback`: the request was redirected nevertheless.
    pub fn refused(&self, why: RefusedLink, by: LookUp, has_fallback: bool) {
        let meters = &self.0.own().refused[why as usize];
        count(match (by, has_fallback) {
            (LookUp::Memory, false) => &meters.in_memory,
            (LookUp::Store, false) => &meters.in_store,
            (LookUp::Memory, true) => &meters.fallbacks_in_memory,
            (LookUp::Store, true) => &meters.fallbacks_in_store,
        });
    }

    pub fn limited(&self) {
        count(&self.0.own().limited);
    }

    /// The preview of a link was refused by the limit of redirects. It is no redirect.
    pub fn preview_limited(&self) {
        count(&self.0.own().limited_previews);
    }

    /// The store did not answer.
    pub fn unavailable(&self) {
        count(&self.0.own().unavailable);
    }

    /// A handler panicked.
    pub fn failed(&self) {
        count(&self.0.own().failed);
    }

    /// Notes how long an answer took, on the fast path or by the dispatcher.
    pub fn answered(&self, took: Duration) {
        self.0.own().times.observe(took);
    }

    /// Answered by the dispatcher, not on the fast path.
    pub fn dispatched(&self, took: Duration) {
        count(&self.0.own().dispatched);
        self.answered(took);
    }
}

/// The values that are shown.
impl RedirectMeters {
    fn sum(&self, of: impl Fn(&ThreadRedirects) -> &AtomicU64) -> u64 {
        self.0.all().map(|thread| of(thread).load(Ordering::Relaxed)).sum()
    }

    pub(super) fn all_found(&self) -> u64 {
        self.sum(|it| &it.found_in_memory) + self.sum(|it| &it.found_in_store)
    }

    pub(super) fn all_unknown(&self) -> u64 {
        self.negatives() + self.unknown_to_store()
    }

    pub(super) fn all_refused(&self, why: RefusedLink) -> u64 {
        let of = |meters: &RefusedMeters| {
            read(&meters.in_memory)
                + read(&meters.in_store)
                + read(&meters.fallbacks_in_memory)
                + read(&meters.fallbacks_in_store)
        };
        self.0.all().map(|thread| of(&thread.refused[why as usize])).sum()
    }

    /// For all reasons.
    fn sum_refused(&self, of: impl Fn(&RefusedMeters) -> u64) -> u64 {
        self.0.all().flat_map(|thread| &thread.refused).map(of).sum()
    }

    pub(super) fn all_limited(&self) -> u64 {
        self.sum(|it| &it.limited)
    }

    /// Including previews.
    pub(super) fn refused_by_limit(&self) -> u64 {
        self.all_limited() + self.sum(|it| &it.limited_previews)
    }

    pub(super) fn all_unavailable(&self) -> u64 {
        self.sum(|it| &it.unavailable)
    }

    pub(super) fn all_failed(&self) -> u64 {
        self.sum(|it| &it.failed)
    }

    pub(super) fn all_dispatched(&self) -> u64 {
        self.sum(|it| &it.dispatched)
    }

    pub(super) fn hits(&self) -> u64 {
        let refused = self.sum_refused(|meters| read(&meters.in_memory) + read(&meters.fallbacks_in_memory));
        self.sum(|it| &it.found_in_memory) + refused
    }

    pub(super) fn negatives(&self) -> u64 {
        self.sum(|it| &it.unknown_in_memory) + self.sum(|it| &it.fallbacks_in_memory)
    }

    pub(super) fn misses(&self) -> u64 {
        let refused = self.sum_refused(|meters| read(&meters.in_store) + read(&meters.fallbacks_in_store));
        self.sum(|it| &it.found_in_store) + self.unknown_to_store() + refused + self.all_unavailable()
    }

    fn unknown_to_store(&self) -> u64 {
        self.sum(|it| &it.unknown_in_store) + self.sum(|it| &it.fallbacks_in_store)
    }

    fn fallbacks(&self) -> u64 {
        self.sum(|it| &it.fallbacks_in_memory) + self.sum(|it| &it.fallbacks_in_store)
    }

    /// Their times, as Prometheus text.
    pub(super) fn render_times(&self, definition: &Definition) -> String {
        AtomicHistogram::render(&self.0.all().map(|thread| &thread.times), definition)
    }

    /// Answers with a status of the class at this index of [`CLASSES`].
    pub(super) fn of_class(&self, class: usize) -> u64 {
        match CLASSES[class] {
            "3xx" => {
                let refused =
                    self.sum_refused(|meters| read(&meters.fallbacks_in_memory) + read(&meters.fallbacks_in_store));
                self.all_found() + self.fallbacks() + refused
            }
            "4xx" => {
                let unknown = self.sum(|it| &it.unknown_in_memory) + self.sum(|it| &it.unknown_in_store);
                let refused = self.sum_refused(|meters| read(&meters.in_memory) + read(&meters.in_store));
                unknown + refused + self.all_limited()
            }
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

//! The definitions of all metrics: name, kind, labels and help. `docs/metrics.md` is generated from them.

use std::fmt::Write;

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases; starts at 0 with the process.
    Counter,
    Gauge,
    /// Durations, counted by bucket.
    Histogram,
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    pub kind: MetricKind,
    /// Their values are few and known in advance: never a key, a link, a host or an address.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: Definition =
                Definition { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// All metrics, in the order of their parts.
        pub const ALL: &[Definition] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO: Gauge "signpost_build_info" ["version"]
        "Always 1; the version is a label."
    SERVING: Gauge "signpost_serving" []
        "1 while requests are served, 0 while the process starts or drains."

    REDIRECTS: Counter "signpost_redirects_total" ["outcome"]
        "Look-ups of short ids: found (redirected), not_found (404, or 302 to fallbacks.not_found), scheduled (before not_before; likewise), expired (410, or 302 to a fallback), blocked (410), limited (429), unavailable (503), failed (500)."
    REDIRECTS_DISPATCHED: Counter "signpost_redirects_dispatched_total" []
        "Look-ups of short ids that were answered behind the HTTP dispatcher and not on the fast path, which takes less CPU: the request's head came in pieces or is unusual, or requests are logged or traced."
    LINK_LOOKUPS: Counter "signpost_link_lookups_total" ["result"]
        "Look-ups of links for redirects: hit (cached link), negative (cached as unknown), miss (read from the store or its file of links)."
    REDIRECT_DURATION: Histogram "signpost_redirect_duration_seconds" []
        "Time from reading a request for a short id to its answer, including requests that asked the store."
    CACHED_LINKS: Gauge "signpost_cached_links" []
        "Entries in the shared cache of links, including unknown ids."

    HTTP_REQUESTS: Counter "signpost_http_requests_total" ["route", "status"]
        "HTTP requests by route pattern and class of the status. Input that is not HTTP, or that breaks off, is excluded."
    HTTP_REQUEST_DURATION: Histogram "signpost_http_request_duration_seconds" ["route"]
        "Time from a request's head to its answer. Redirects are excluded; they have their own histogram."
    REQUESTS_LIMITED: Counter "signpost_requests_limited_total" ["limit"]
        "Requests that a rate limit refused, by limit: of an IP address (redirect with previews, qr, unauthorized: too many 401s) or of an API key (key)."
    QUOTAS_REFUSED: Counter "signpost_quotas_refused_total" ["quota"]
        "Requests and deliveries refused because a quota is used up: links or webhook_deliveries of the month, or keys (live keys of a creator)."

    BULK_CREATIONS: Counter "signpost_bulk_creations_total" ["links"]
        "Requests to POST /shorten/bulk with a valid body, by how many links they have: up to 10, 50, 200 or 500."
    BULK_LINKS: Counter "signpost_bulk_links_total" ["outcome"]
        "Links of POST /shorten/bulk by outcome: created, refused (4xx), failed (5xx)."
    IDEMPOTENT_REQUESTS: Counter "signpost_idempotent_requests_total" ["outcome"]
        "Requests with an Idempotency-Key by outcome: done, replayed (answered as before), in_progress (409), reused (422: the key is another request's). Those that are refused for another reason are not counted."
    LINK_CHANGES: Counter "signpost_link_changes_total" ["outcome"]
        "Requests with PATCH, PUT or DELETE of links and to block and unblock them, by outcome: created, changed, unchanged (the link was as requested), deleted, conflict (412), refused (other 4xx after the rate limit), failed (5xx)."

    LISTED_LINKS: Counter "signpost_listed_links_total" ["kind"]
        "Links of lists and exports: examined (looked at), returned."

    HITS_APPENDED: Counter "signpost_journal_hits_appended_total" []
        "Hits written to the journal."
    HITS_NOT_RECORDED: Counter "signpost_journal_hits_not_recorded_total" []
        "Hits that are not counted because the journal was full."
    HITS_CONSUMED: Counter "signpost_journal_hits_consumed_total" []
        "Hits read from the journal for counting, including those read again after a failure."
    HITS_COUNTED: Counter "signpost_hits_counted_total" []
        "Hits that the store has counted."
    BOT_HITS_COUNTED: Counter "signpost_bot_hits_counted_total" ["kind"]
        "Counted hits that no person made, by kind: prefetch, preview, crawler, monitor, scanner, tool. Those of untracked links without webhooks are not told apart."
    COUNTING_DURATION: Histogram "signpost_hit_batch_duration_seconds" []
        "Time to count a batch of hits and write it to the store."
    JOURNAL_BYTES: Gauge "signpost_journal_bytes" []
        "Disk space used by the hit journal."
    JOURNAL_BUDGET_BYTES: Gauge "signpost_journal_budget_bytes" []
        "Limit of the hit journal's disk space."
    JOURNAL_SEGMENTS: Gauge "signpost_journal_segments" []
        "Files of the hit journal."
    JOURNAL_UNREAD_BYTES: Gauge "signpost_journal_unread_bytes" []
        "Bytes of the hit journal that are not read yet."
    JOURNAL_OLDEST: Gauge "signpost_journal_oldest_hit_age_seconds" []
        "Upper bound on the age of the oldest uncounted hit; 0 if there is none."

    HIT_STREAMS: Gauge "signpost_hit_streams" []
        "Live streams of hits that are open on this node."
    STREAMED_HITS: Counter "signpost_streamed_hits_total" ["outcome"]
        "Hits of live streams, of all streams together: sent, skipped (left out, because there were more than 100 a second, or the client read too slowly)."

    STORE_OPERATIONS: Counter "signpost_store_operations_total" ["operation", "outcome"]
        "Calls of the store by outcome: ok, refused (id taken, quota used up, key changed concurrently), unavailable, corrupt."
    STORE_OPERATION_DURATION: Histogram "signpost_store_operation_duration_seconds" ["operation"]
        "Duration of a call of the store, whatever its outcome."
    STORE_REACHABLE: Gauge "signpost_store_reachable" []
        "0 while the store is known to be unreachable and requests that need it are refused at once, else 1. Always 1 on the embedded store."
    LINK_FEED_AGE: Gauge "signpost_link_feed_age_seconds" []
        "How long ago this node last knew of all changes of links on other nodes. Until it knows of them, it answers from memory for at most cache.links_ttl. Always 0 on the embedded store."
    LINK_LISTS_FILLED: Gauge "signpost_link_lists_filled_percent" []
        "How many percent of the links that an earlier release has made are in the indexes of lists. Below 100, lists are answered 503."
    CQL_QUERIES: Counter "signpost_cql_queries_total" []
        "Queries sent to the cluster. Always 0 on the embedded store."
    CQL_ERRORS: Counter "signpost_cql_errors_total" []
        "Queries to the cluster that failed."
    CQL_RETRIES: Counter "signpost_cql_retries_total" []
        "Queries to the cluster that the driver retried."
    CQL_TIMEOUTS: Counter "signpost_cql_timeouts_total" ["what"]
        "Timeouts of the cluster: of a request, or of a connection."
    CQL_CONNECTIONS: Gauge "signpost_cql_connections" []
        "Connections to the cluster."

    WEBHOOK_DELIVERIES: Counter "signpost_webhook_deliveries_total" ["outcome"]
        "Finished webhook deliveries by outcome: delivered, failed, quota_exceeded, unsendable, suspended (not sent, because their URL is suspended)."
    WEBHOOK_ATTEMPTS: Counter "signpost_webhook_attempts_total" ["result"]
        "Attempts of webhook deliveries by outcome: success, failure."
    WEBHOOK_TESTS: Counter "signpost_webhook_tests_total" ["outcome"]
        "Tests of webhooks by outcome: delivered, failed, quota_exceeded. They are not among the deliveries and attempts."
    WEBHOOK_REPLAYS: Counter "signpost_webhook_replays_total" []
        "Settled webhook deliveries that were queued again on request."
    WEBHOOK_SUSPENSIONS: Counter "signpost_webhook_suspensions_total" []
        "URLs of links that were suspended because their deliveries have failed, see webhooks.suspend_after."
    WEBHOOK_FIRST_ATTEMPT_DELAY: Histogram "signpost_webhook_first_attempt_delay_seconds" []
        "Time from a hit to the first attempt of a delivery."
    WEBHOOK_DELIVERY_DELAY: Histogram "signpost_webhook_delivery_delay_seconds" []
        "Time from a hit to the success of a delivery, but for replayed ones."
    WEBHOOK_PENDING: Gauge "signpost_webhook_pending" []
        "Webhook deliveries in the queue, including those in flight."
    WEBHOOK_IN_FLIGHT: Gauge "signpost_webhook_in_flight" []
        "Attempts of webhook deliveries in flight."
    WEBHOOK_OVERDUE: Gauge "signpost_webhook_overdue_seconds" []
        "Age of the most overdue webhook delivery."

    ACTOR_RESTARTS: Counter "signpost_actor_restarts_total" ["actor"]
        "Restarts of actors, by actor."
    ACTOR_WAITING: Gauge "signpost_actor_messages_waiting" ["actor"]
        "Messages to the key shards that are not answered yet."
    ACTOR_MESSAGE_DURATION: Histogram "signpost_actor_message_duration_seconds" ["actor"]
        "Time from sending a message to a key shard to its answer."

    TRACE_SPANS: Counter "signpost_trace_spans_total" ["outcome"]
        "Spans by outcome: exported (the collector answered 2xx), failed (it was unreachable or answered otherwise), dropped (the queue was full, or the process stopped)."
}

/// Registers the help texts with the current recorder.
pub(super) fn describe() {
    for Definition { name, kind, help, .. } in ALL {
        match kind {
            MetricKind::Counter => describe_counter!(*name, *help),
            MetricKind::Gauge => describe_gauge!(*name, *help),
            MetricKind::Histogram => describe_histogram!(*name, *help),
        }
    }
}

/// `docs/metrics.md`.
pub fn table() -> String {
    let mut text = "# Metrics\n\n\
        `GET /metrics` on the operator's listener (`admin.listen`) returns the metrics as Prometheus text. This table is generated from \
        `src/telemetry/metrics/catalogue.rs`; `process_*` metrics (CPU time, memory, files, threads, start) are the standard \
        ones.\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
        .to_owned();
    for Definition { name, kind, labels, help } in ALL {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {} | {} | {help} |", kind.name(), labels.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_prometheus_conventions() {
        for Definition { name, kind, .. } in ALL {
            assert!(name.starts_with("signpost_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            if *kind == MetricKind::Histogram {
                assert!(name.ends_with("_seconds"), "{name}");
            }
        }
        let mut names: Vec<_> = ALL.iter().map(|definition| definition.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}

//! Every metric: its name, what it is, its labels and its help, once. `docs/metrics.md` is made from this.

use std::fmt::Write;

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// What a metric's number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows; starts at 0 with the process.
    Counter,
    Gauge,
    /// Sorted into the buckets of the name.
    Histogram,
}

impl Kind {
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
    pub kind: Kind,
    /// Their values are few and known in advance: never a key, a link, a host or an address.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: Definition =
                Definition { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// All of them, in the order of their parts.
        pub const ALL: &[Definition] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO: Gauge "signpost_build_info" ["version"]
        "Always 1; the label tells the version."
    SERVING: Gauge "signpost_serving" []
        "1 while requests are served, 0 while the process starts or drains."

    REDIRECTS: Counter "signpost_redirects_total" ["outcome"]
        "Look-ups of short ids: found (302), not_found (404), limited (429), unavailable (503), failed (500)."
    REDIRECTS_DISPATCHED: Counter "signpost_redirects_dispatched_total" []
        "Look-ups of short ids that were answered behind the HTTP dispatcher and not on the fast path, which takes less CPU: the request's head came in pieces or is out of the ordinary, or requests are logged or traced."
    LINK_LOOKUPS: Counter "signpost_link_lookups_total" ["result"]
        "Look-ups of links for redirects: hit and negative (a link, and that there is none, known from memory), or miss (the store was asked, its file of links included)."
    REDIRECT_DURATION: Histogram "signpost_redirect_duration_seconds" []
        "Time from reading a request for a short id to its answer, those that asked the store among them."
    CACHED_LINKS: Gauge "signpost_cached_links" []
        "Look-ups kept in memory, unknown ids among them."

    HTTP_REQUESTS: Counter "signpost_http_requests_total" ["route", "status"]
        "Requests answered by a route or by none, by its pattern and the class of the status; what is no HTTP is not among them."
    HTTP_REQUEST_DURATION: Histogram "signpost_http_request_duration_seconds" ["route"]
        "Time from a request's head to its answer, redirects apart: they have a histogram of their own."
    REQUESTS_LIMITED: Counter "signpost_requests_limited_total" ["limit"]
        "Requests answered 429, by the limit: of a client (redirect, qr, unauthorized: too many 401) or of a key (key)."
    QUOTAS_REFUSED: Counter "signpost_quotas_refused_total" ["quota"]
        "Refusals for a quota that is used up: links (of POST /shorten) and webhook_deliveries of the month, and live keys (of POST /api-keys)."

    HITS_APPENDED: Counter "signpost_journal_hits_appended_total" []
        "Hits written to the journal."
    HITS_NOT_RECORDED: Counter "signpost_journal_hits_not_recorded_total" []
        "Hits that the journal had no room for: they are in no counter."
    HITS_CONSUMED: Counter "signpost_journal_hits_consumed_total" []
        "Hits read from the journal to be counted, those read again after a failure among them."
    HITS_COUNTED: Counter "signpost_hits_counted_total" []
        "Hits that the store has counted."
    COUNTING_DURATION: Histogram "signpost_hit_batch_duration_seconds" []
        "Time to read a batch of hits and have the store count it."
    JOURNAL_BYTES: Gauge "signpost_journal_bytes" []
        "Disk space that the hit journal takes."
    JOURNAL_BUDGET_BYTES: Gauge "signpost_journal_budget_bytes" []
        "Disk space that the hit journal may take."
    JOURNAL_SEGMENTS: Gauge "signpost_journal_segments" []
        "Files of the hit journal."
    JOURNAL_UNREAD_BYTES: Gauge "signpost_journal_unread_bytes" []
        "Journal bytes that are yet to be read."
    JOURNAL_OLDEST: Gauge "signpost_journal_oldest_hit_age_seconds" []
        "How long the oldest hit waits at the most that is yet to be counted; 0 where none waits."

    STORE_OPERATIONS: Counter "signpost_store_operations_total" ["operation", "outcome"]
        "Calls of the store: ok, refused (an id is taken, a quota used up, a key changed meanwhile), unavailable, corrupt."
    STORE_OPERATION_DURATION: Histogram "signpost_store_operation_duration_seconds" ["operation"]
        "Time that the store took for a call, whatever its outcome."
    STORE_REACHABLE: Gauge "signpost_store_reachable" []
        "0 while the store is known to be out of reach, and what needs it is refused at once; else 1, on the embedded store always."
    CQL_QUERIES: Counter "signpost_cql_queries_total" []
        "Queries that the driver has sent to the cluster; none on the embedded store."
    CQL_ERRORS: Counter "signpost_cql_errors_total" []
        "Queries to the cluster that failed."
    CQL_RETRIES: Counter "signpost_cql_retries_total" []
        "Queries to the cluster that the driver sent again."
    CQL_TIMEOUTS: Counter "signpost_cql_timeouts_total" ["what"]
        "Time-outs at the cluster: of a request, or of a connection."
    CQL_CONNECTIONS: Gauge "signpost_cql_connections" []
        "Connections to the cluster."

    WEBHOOK_DELIVERIES: Counter "signpost_webhook_deliveries_total" ["outcome"]
        "Webhook deliveries that have ended: delivered, failed, quota_exceeded, unsendable."
    WEBHOOK_ATTEMPTS: Counter "signpost_webhook_attempts_total" ["result"]
        "Tries of webhook deliveries: success, failure."
    WEBHOOK_FIRST_ATTEMPT_DELAY: Histogram "signpost_webhook_first_attempt_delay_seconds" []
        "Time from a hit to the first try of a delivery."
    WEBHOOK_DELIVERY_DELAY: Histogram "signpost_webhook_delivery_delay_seconds" []
        "Time from a hit to the success of a delivery."
    WEBHOOK_PENDING: Gauge "signpost_webhook_pending" []
        "Webhook deliveries in the queue, those under way among them."
    WEBHOOK_IN_FLIGHT: Gauge "signpost_webhook_in_flight" []
        "Tries of webhook deliveries under way."
    WEBHOOK_OVERDUE: Gauge "signpost_webhook_overdue_seconds" []
        "How long the webhook delivery that is overdue longest is overdue."

    ACTOR_RESTARTS: Counter "signpost_actor_restarts_total" ["actor"]
        "Actors started anew after they ended, by what they do."
    ACTOR_WAITING: Gauge "signpost_actor_messages_waiting" ["actor"]
        "Messages to the key shards that are not answered yet: in a mailbox, or being handled."
    ACTOR_MESSAGE_DURATION: Histogram "signpost_actor_message_duration_seconds" ["actor"]
        "Time from sending a message to a key shard to its answer."

    TRACE_SPANS: Counter "signpost_trace_spans_total" ["outcome"]
        "Spans for the collector of traces: exported (it answered 2xx), failed (it was out of reach, or answered otherwise), dropped (too many waited, or the process ends)."
}

/// Hands the helps to the recorder in place.
pub(super) fn describe() {
    for Definition { name, kind, help, .. } in ALL {
        match kind {
            Kind::Counter => describe_counter!(*name, *help),
            Kind::Gauge => describe_gauge!(*name, *help),
            Kind::Histogram => describe_histogram!(*name, *help),
        }
    }
}

/// `docs/metrics.md`.
pub fn table() -> String {
    let mut text = "# Metrics\n\n\
        `GET /metrics` on the operator's listener (`admin.listen`) answers them as Prometheus text. This table is made from \
        `src/telemetry/metrics/catalogue.rs`; `process_*` metrics (CPU time, memory, files, threads, start) are the usual \
        ones.\n\n| Metric | Kind | Labels | What it tells |\n|---|---|---|---|\n"
        .to_owned();
    for Definition { name, kind, labels, help } in ALL {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a string can't fail.
        let _ = writeln!(text, "| `{name}` | {} | {} | {help} |", kind.name(), labels.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_field() {
        for Definition { name, kind, .. } in ALL {
            assert!(name.starts_with("signpost_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            if *kind == Kind::Histogram {
                assert!(name.ends_with("_seconds"), "{name}");
            }
        }
        let mut names: Vec<_> = ALL.iter().map(|definition| definition.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}

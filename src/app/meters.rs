//! Registers metrics whose values are read from the parts.

use std::sync::Arc;

use crate::actors::supervisor::RestartHook;
use crate::cache::links::LinkCache;
use crate::clock::Clock;
use crate::feed::HitFeed;
use crate::journal::{JournalStats, JournalWriter};
use crate::readiness::Readiness;
use crate::store::reach::Reach;
use crate::store::{DriverCounts, Lifecycle, LinkStore};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::actors::ActorMeters;
use crate::telemetry::metrics::catalogue as of;

/// The actors that are restarted after a panic.
const ACTORS: [&str; 4] = ["hit_counter", "key_shard", "webhook_dispatcher", "webhook_worker"];

/// Counts and logs restarts of actors.
pub fn count_restarts(metrics: &Metrics) -> RestartHook {
    // All from the start: a counter that appears with its first increment has no rate.
    let counters = ACTORS.map(|actor| (actor, metrics.counter(&of::ACTOR_RESTARTS, &[("actor", actor)])));
    Arc::new(move |restart| {
        if let Some((_, counter)) = counters.iter().find(|(actor, _)| *actor == restart.actor) {
            counter.increment(1);
        }
        tracing::error!(actor = restart.actor, panicked = restart.panicked, "actor restarted");
    })
}

/// Registers and returns the meters of the key shards.
pub fn of_shards(metrics: &Metrics) -> ActorMeters {
    let meters = metrics.actor("key_shard");
    let waiting = meters.clone();
    metrics.gauge_of(&of::ACTOR_WAITING, &[("actor", "key_shard")], move || waiting.waiting());
    meters
}

/// Registers the metrics of webhook deliveries. `under_way` returns how many are being attempted.
pub fn show_webhooks(metrics: &Metrics, under_way: impl Fn() -> u64 + Send + 'static, clock: &Clock) {
    let (pending, overdue, clock) = (metrics.webhooks.clone(), metrics.webhooks.clone(), clock.clone());
    metrics.gauge_of(&of::WEBHOOK_IN_FLIGHT, &[], under_way);
    metrics.gauge_of(&of::WEBHOOK_PENDING, &[], move || pending.pending());
    metrics.seconds_of(&of::WEBHOOK_OVERDUE, move || overdue.overdue(clock.now().0));
}

/// Registers whether requests are served.
pub fn show_readiness(metrics: &Metrics, readiness: &Readiness) {
    let readiness = readiness.clone();
    metrics.gauge_of(&of::SERVING, &[], move || u64::from(readiness.is_serving()));
}

/// Registers whether the store is reachable. The embedded store always is.
pub fn show_reach(metrics: &Metrics, reach: Option<Arc<Reach>>) {
    metrics.gauge_of(&of::STORE_REACHABLE, &[], move || u64::from(!reach.as_ref().is_some_and(|reach| reach.is_out())));
}

/// Registers how much of other nodes' changes is known (the embedded store has no other nodes), and how many of the links are
/// in the lists.
pub fn show_links(metrics: &Metrics, links: Arc<dyn LinkStore>) {
    let listed = Arc::clone(&links);
    metrics.gauge_of(&of::LINK_LISTS_FILLED, &[], move || listed.link_lists_percent().into());
    metrics.seconds_of(&of::LINK_FEED_AGE, move || links.link_changes_age().unwrap_or_default());
}

/// Registers the metrics of live streams.
pub fn show_streams(metrics: &Metrics, feed: &Arc<HitFeed>) {
    let [open, hits, left_out] = [(); 3].map(|()| Arc::clone(feed));
    metrics.gauge_of(&of::HIT_STREAMS, &[], move || open.open_streams());
    metrics.count_of(&of::STREAMED_HITS, &[("outcome", "sent")], move || hits.counts().hits());
    metrics.count_of(&of::STREAMED_HITS, &[("outcome", "skipped")], move || left_out.counts().left_out());
}

/// Registers the metrics of journal, cache and database driver.
pub fn show(
    metrics: &Metrics,
    journal: &JournalWriter,
    cache: &Arc<LinkCache>,
    store: &Arc<dyn Lifecycle>,
    clock: &Clock,
) {
    let stats = |read: fn(&JournalStats) -> u64| {
        let journal = journal.clone();
        move || read(&journal.stats())
    };
    metrics.count_of(&of::HITS_APPENDED, &[], stats(|stats| stats.appended));
    metrics.count_of(&of::HITS_NOT_RECORDED, &[], stats(|stats| stats.not_recorded));
    metrics.gauge_of(&of::JOURNAL_BYTES, &[], stats(|stats| stats.bytes_on_disk));
    metrics.gauge_of(&of::JOURNAL_BUDGET_BYTES, &[], stats(|stats| stats.disk_budget));
    metrics.gauge_of(&of::JOURNAL_SEGMENTS, &[], stats(|stats| stats.segments));
    metrics.gauge_of(&of::JOURNAL_UNREAD_BYTES, &[], stats(|stats| stats.unread_bytes));
    let (counting, journal, clock) = (metrics.counting.clone(), journal.clone(), clock.clone());
    let unread = move || journal.stats().unread_bytes > 0;
    metrics.seconds_of(&of::JOURNAL_OLDEST, move || counting.oldest_age(unread(), clock.now().0));

    let cache = Arc::clone(cache);
    metrics.gauge_of(&of::CACHED_LINKS, &[], move || cache.len());

    let driver = |read: fn(DriverCounts) -> u64| {
        let store = Arc::clone(store);
        move || read(store.driver_counts().unwrap_or_default())
    };
    metrics.count_of(&of::CQL_QUERIES, &[], driver(|counts| counts.queries));
    metrics.count_of(&of::CQL_ERRORS, &[], driver(|counts| counts.errors));
    metrics.count_of(&of::CQL_RETRIES, &[], driver(|counts| counts.retries));
    metrics.count_of(&of::CQL_TIMEOUTS, &[("what", "request")], driver(|counts| counts.request_timeouts));
    metrics.count_of(&of::CQL_TIMEOUTS, &[("what", "connection")], driver(|counts| counts.connection_timeouts));
    metrics.gauge_of(&of::CQL_CONNECTIONS, &[], driver(|counts| counts.connections));
}

//! Builds the parts and connects them, one step after the other.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;

use super::around_store::guarded_and_metered;
use super::limits::{client_limits, plans, rates, redirect_limiter, streams, unauthorized_limit};
use super::listeners::{Listeners, OperatorServer, serve_public};
use super::named_files::NamedFiles;
use super::opening::{self, OpenedNode};
use super::{App, Parts, ShowSecrets, StartError, files, meters, removal_time};
use crate::actors::hit_counter::{CounterWakes, CountingState, HitCounter};
use crate::actors::key_shard::exchange::Sharing;
use crate::actors::key_shard::{DEFAULT_SHARDS, KeyShards};
use crate::actors::supervisor::{RestartHook, Supervisor};
use crate::actors::wake::DispatcherWake;
use crate::cache::clock::CacheClock;
use crate::cache::links::{LinkCache, LinkCacheSettings};
use crate::clock::Clock;
use crate::clock::removal::RemovalClock;
use crate::config::{Config, PrivacyRespect};
use crate::counting::aggregator::HitAggregator;
use crate::counting::enrich::Enricher;
use crate::counting::places::PlaceDatabase;
use crate::dns::{Resolver, ResolverSettings};
use crate::domain::blocked_hosts::BlockedHosts;
use crate::domain::bots::{BotRules, SharedBotRules};
use crate::domain::guard::AddressGuard;
use crate::domain::hit::NodeId;
use crate::domain::key::KeySecret;
use crate::domain::link::BaseUrl;
use crate::domain::plan::Plans;
use crate::domain::privacy::RespectedSignals;
use crate::domain::referrer::OwnHost;
use crate::domain::retry::RetrySchedule;
use crate::domain::vault::Vault;
use crate::feed::HitFeed;
use crate::http::Api;
use crate::http::client::TrustedProxies;
use crate::http::console::ConsoleFiles;
use crate::http::endpoints;
use crate::http::notices::Notices;
use crate::http::openapi::{Facts, Reference};
use crate::http::pages::{Fallbacks, Pages};
use crate::http::report::Reporting;
use crate::journal::notifier::Notifier;
use crate::journal::upkeep::UpkeepHandle;
use crate::journal::{Journal, JournalSettings, JournalWriter, LockedDirectory};
use crate::readiness::Readiness;
use crate::service::analytics::AnalyticsService;
use crate::service::authentication::AuthenticationService;
use crate::service::hit_streams::HitStreamService;
use crate::service::keys::KeyService;
use crate::service::link_lists::LinkListService;
use crate::service::link_upkeep::{LinkUpkeep, UpkeepSettings};
use crate::service::links::LinkService;
use crate::service::redirects::{Recording, RedirectService};
use crate::service::root_key;
use crate::service::usage::UsageService;
use crate::service::webhook_actions::WebhookActions;
use crate::service::webhook_status::WebhookStatusService;
use crate::store::notes_on_disk::NotesOnDisk;
use crate::store::{HitStreamStore, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{TraceSettings, Traces};
use crate::threads::lower_priority;
use crate::webhooks::dispatcher::{DispatcherParts, WebhookPool};
use crate::webhooks::sender::{SenderSettings, WebhookSender};

/// The random part of a retry's delay: plus or minus this share.
const JITTER: f64 = 0.1;

/// Replacements for tests.
#[doc(hidden)]
#[derive(Default)]
pub struct TestSeams {
    pub clock: Clock,
    /// Wraps the store.
    pub wrap_store: Option<WrapStore>,
}

/// Wraps a store in another.
#[doc(hidden)]
pub type WrapStore = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

pub(super) async fn build(
    config: &Config,
    show: ShowSecrets<'_>,
    seams: TestSeams,
    drain_idle_timeout: Duration,
) -> Result<App, StartError> {
    // First, so that a second process that was started by mistake changes nothing.
    let Listeners { public, admin, address, admin_address, base_url } = Listeners::bind(config)?;
    // Before the slow steps, so that a process manager sees that the process is alive and starting.
    let OperatorServer { metrics, readiness, server: admin } = OperatorServer::start(admin).await?;

    // Before anything is changed: a start that is refused must not create a store, nor print its secrets.
    let NamedFiles { places, bots, blocked_hosts, pages, fallbacks } = NamedFiles::read(config, &base_url)?;

    let (core, journal) = NodeCore::open(config, seams, base_url, metrics, places, bots).await?;
    let shards = start_shards(&core)?;
    // Before any delivery: with a wrong master key every delivery would fail for good.
    set_up_root_key(config, &core, show).await?;

    let wake = DispatcherWake::default();
    let webhooks = WebhookDelivery::start(config, &core, &wake)?;
    let counting = HitCounting::start(config, &core, journal, wake.clone()).await?;
    let cache = build_cache(config, &core.store, &blocked_hosts);
    let settings = UpkeepSettings {
        delete_expired_after: config.links.delete_expired_after,
        sheet_days: config.analytics.sheet_days,
    };
    let link_upkeep = LinkUpkeep::new(
        core.store.clone(),
        Arc::clone(&cache),
        core.clock.clone(),
        Arc::clone(&core.removal_clock),
        settings,
    );
    let tester = webhooks.pool.tester();
    let webhook_actions = WebhookActions::new(tester, core.store.clone(), wake, core.clock.clone());
    let api = ApiParts {
        shards: Arc::clone(&shards),
        cache,
        blocked_hosts,
        pages,
        fallbacks,
        webhook_actions,
        readiness: readiness.clone(),
    };
    let api = Arc::new(build_api(config, &core, &counting, api)?);

    admin.set_store(core.store.clone());
    let parts = Parts {
        public: serve_public(config, public, &api, drain_idle_timeout)?,
        admin,
        readiness,
        store: core.store,
        authentication: Arc::clone(&api.authentication),
        shards,
        link_upkeep,
        counter: counting.counter,
        webhooks: Arc::new(webhooks.pool),
        journal: counting.upkeep,
        arbiters: vec![webhooks.arbiter, counting.arbiter],
        api,
        removal_clock: core.removal_clock,
        removal_time: files::removal_time(config),
        traces: core.traces,
        blocked_hosts: config.abuse.blocked_hosts.clone(),
        bot_networks: config.bots.networks.clone().map(|path| (path, core.bots)),
    };
    Ok(App { parts, address, admin_address, base_url: core.base_url.as_str().to_owned() })
}

/// The open store and what all later steps use.
struct NodeCore {
    node: NodeId,
    store: Arc<dyn Store>,
    vault: Arc<Vault>,
    places: Option<Arc<PlaceDatabase>>,
    bots: SharedBotRules,
    traces: Option<Arc<Traces>>,
    metrics: Arc<Metrics>,
    on_restart: RestartHook,
    base_url: BaseUrl,
    plans: Plans,
    guard: AddressGuard,
    clock: Clock,
    removal_clock: Arc<RemovalClock>,
}

impl NodeCore {
    /// Opens the node's files and its store, and starts the trace exporter.
    async fn open(
        config: &Config,
        seams: TestSeams,
        base_url: BaseUrl,
        metrics: Arc<Metrics>,
        places: Option<Arc<PlaceDatabase>>,
        bots: BotRules,
    ) -> Result<(Self, LockedDirectory), StartError> {
        let OpenedNode { vault, node, journal, store, reach } = opening::open(config, &seams.clock).await?;
        let store = match seams.wrap_store {
            Some(wrap) => wrap(store),
            None => store,
        };
        // An export that was interrupted before this start does not resume after it.
        store.note_start(seams.clock.now()).await?;
        let core = Self {
            node,
            store: guarded_and_metered(store, reach, &metrics),
            vault,
            places,
            bots: SharedBotRules::new(bots),
            traces: start_traces(config, node, &metrics)?,
            on_restart: meters::count_restarts(&metrics),
            metrics,
            base_url,
            plans: plans(config),
            guard: AddressGuard::new(config.webhooks.allowed_networks.clone()),
            removal_clock: Arc::new(removal_time::open(&files::removal_time(config), seams.clock.clone())),
            clock: seams.clock,
        };
        Ok((core, journal))
    }
}

fn start_traces(config: &Config, node: NodeId, metrics: &Metrics) -> Result<Option<Arc<Traces>>, StartError> {
    let Some(endpoint) = &config.telemetry.otlp_endpoint else { return Ok(None) };
    let settings = TraceSettings {
        endpoint: endpoint.as_str().to_owned(),
        sample_ratio: config.telemetry.trace_sample_ratio,
        instance: node.0.to_string(),
    };
    Ok(Some(Arc::new(Traces::start(&settings, metrics.traces.clone())?)))
}

fn start_shards(core: &NodeCore) -> Result<Arc<KeyShards>, StartError> {
    let sharing = Sharing::through(core.store.clone(), &core.clock);
    let shards = KeyShards::start(DEFAULT_SHARDS, sharing, &core.on_restart)?;
    Ok(Arc::new(shards.with_meters(meters::of_shards(&core.metrics))))
}

async fn set_up_root_key(config: &Config, core: &NodeCore, show: ShowSecrets<'_>) -> Result<(), StartError> {
    let chosen = config.secrets.root_key.as_ref().map(|key| KeySecret::chosen(key.expose().to_owned()));
    let show = |secrets: root_key::FirstStartSecrets<'_>| show(secrets, core.base_url.as_str());
    Ok(root_key::set_up(&*core.store, &core.vault, chosen, core.clock.now(), &show).await?)
}

/// The running webhook dispatcher with its workers.
struct WebhookDelivery {
    pool: WebhookPool,
    arbiter: Arbiter,
}

impl WebhookDelivery {
    fn start(config: &Config, core: &NodeCore, wake: &DispatcherWake) -> Result<Self, StartError> {
        let resolver = Resolver::new(ResolverSettings::new(&config.webhooks.resolv_conf));
        let mut sender = SenderSettings::new(core.guard.clone(), Arc::new(resolver));
        sender.timeout = config.webhooks.timeout;
        sender.max_idle_per_host = config.webhooks.in_flight_per_host;
        sender.max_idle = config.webhooks.workers;
        let parts = DispatcherParts {
            store: core.store.clone(),
            vault: Arc::clone(&core.vault),
            plans: core.plans,
            clock: core.clock.clone(),
            sender: WebhookSender::new(sender)?,
            retries: RetrySchedule::new(config.webhooks.retry_delays.clone(), JITTER),
            workers: NonZeroUsize::new(config.webhooks.workers).unwrap_or(NonZeroUsize::MIN),
            in_flight_per_host: config.webhooks.in_flight_per_host,
            buffer: config.webhooks.buffer,
            suspend_after: config.webhooks.suspend_after,
            wake: wake.clone(),
            meters: core.metrics.webhooks.clone(),
            traces: core.traces.clone(),
        };
        let wake = wake.clone();
        core.store.on_adoption(Box::new(move |earliest| wake.wake(earliest)));
        let arbiter = Arbiter::try_new().map_err(StartError::Thread)?;
        let pool = WebhookPool::start(&arbiter.handle(), parts, &core.on_restart);
        meters::show_webhooks(&core.metrics, pool.under_way(), &core.clock);
        Ok(Self { pool, arbiter })
    }
}

/// The open hit journal and the running hit counter.
struct HitCounting {
    counter: Supervisor<HitCounter>,
    feed: Arc<HitFeed>,
    writer: JournalWriter,
    notifier: Notifier,
    upkeep: UpkeepHandle,
    arbiter: Arbiter,
}

impl HitCounting {
    async fn start(
        config: &Config,
        core: &NodeCore,
        journal: LockedDirectory,
        dispatcher: DispatcherWake,
    ) -> Result<Self, StartError> {
        let cursor = core.store.hit_cursor(core.node).await?;
        let settings = JournalSettings {
            segment_bytes: config.journal.segment_bytes,
            disk_budget: config.journal.disk_budget_bytes,
            sync_interval: config.journal.sync_interval,
            ..JournalSettings::default()
        };
        let Journal { writer, reader, upkeep } = journal.open(&settings, core.node, cursor)?;
        let upkeep = upkeep.start().map_err(StartError::Thread)?;
        let arbiter = Arbiter::try_new().map_err(StartError::Thread)?;
        arbiter.spawn_fn(lower_priority);
        let notifier = Notifier::default();
        let wakes = CounterWakes { notifier: notifier.clone(), dispatcher };
        let own_host = OwnHost::of_base_url(core.base_url.as_str());
        let enricher = Enricher::new(own_host, core.places.clone(), core.bots.clone());
        let aggregator = HitAggregator::new(core.node, enricher);
        let counting = CountingState::new(core.store.clone(), reader, aggregator, cursor, wakes);
        let counting = counting.with_meters(core.metrics.counting.clone(), core.clock.clone());
        // A node alone notes hits for itself: it may start again.
        let notes: Arc<dyn HitStreamStore> = if core.store.is_shared() {
            core.store.clone()
        } else {
            Arc::new(NotesOnDisk::open(files::streams(config)))
        };
        let feed = Arc::new(HitFeed::new(notes, core.node));
        let mut counting = counting.with_streams(Arc::clone(&feed));
        if core.store.is_shared() {
            counting = counting.with_bot_rules_file(files::bot_rules(config));
        }
        let counter = HitCounter::start(&arbiter.handle(), counting, &core.on_restart);
        Ok(Self { counter, feed, writer, notifier, upkeep, arbiter })
    }
}

/// Parts that handlers of requests use, beside those of the node.
struct ApiParts {
    shards: Arc<KeyShards>,
    cache: Arc<LinkCache>,
    blocked_hosts: BlockedHosts,
    pages: Arc<Pages>,
    fallbacks: Fallbacks,
    webhook_actions: WebhookActions,
    readiness: Readiness,
}

/// What the handlers of requests use.
fn build_api(config: &Config, core: &NodeCore, counting: &HitCounting, parts: ApiParts) -> Result<Api, StartError> {
    let NodeCore { store, plans, clock, .. } = core;
    let ApiParts { shards, cache, .. } = parts;
    let authentication = Arc::new(AuthenticationService::new(store.clone(), clock.clone(), config.cache.keys_ttl));
    meters::show(&core.metrics, &counting.writer, &cache, &(store.clone() as _), clock);
    meters::show_links(&core.metrics, store.clone());
    meters::show_streams(&core.metrics, &counting.feed);
    let root_is_chosen = config.secrets.root_key.is_some();
    let recording = Recording {
        journal: counting.writer.clone(),
        notifier: counting.notifier.clone(),
        respected: match config.privacy.respect {
            PrivacyRespect::None => RespectedSignals::None,
            PrivacyRespect::Gpc => RespectedSignals::Gpc,
            PrivacyRespect::GpcAndDnt => RespectedSignals::GpcAndDnt,
        },
        bots: core.bots.clone(),
    };
    let link_lists =
        LinkListService::new(store.clone(), store.clone(), store.clone(), parts.blocked_hosts.clone(), clock.clone());
    Ok(Api {
        blocked_hosts: parts.blocked_hosts,
        link_lists,
        shards: Arc::clone(&shards),
        rates: rates(config),
        links: LinkService::new(store.clone(), store.clone(), Arc::clone(&cache), shards, *plans, clock.clone()),
        keys: KeyService::new(
            store.clone(),
            store.clone(),
            Arc::clone(&authentication),
            *plans,
            Arc::clone(&core.vault),
            clock.clone(),
            root_is_chosen,
        ),
        analytics: AnalyticsService::new(store.clone(), store.clone(), clock.clone(), config.analytics.sheet_days),
        hit_streams: Arc::new(HitStreamService::new(Arc::clone(&counting.feed), store, streams(config), clock.clone())),
        usage: UsageService::new(store.clone(), *plans, clock.clone()),
        webhook_statuses: WebhookStatusService::new(
            store.clone(),
            clock.clone(),
            config.webhooks.suspend_after.is_some(),
        ),
        webhook_actions: parts.webhook_actions,
        redirects: RedirectService::new(cache, redirect_limiter(config)?, recording, clock.clone()),
        authentication,
        client_limits: client_limits(config)?,
        unauthorized_limit: unauthorized_limit(config)?,
        trusted_proxies: TrustedProxies::new(config.http.trusted_proxies.clone()),
        notices: Notices::default(),
        base_url: core.base_url.clone(),
        webhook_guard: core.guard.clone(),
        clock: clock.clone(),
        metrics: Arc::clone(&core.metrics),
        reference: reference(config, &core.base_url),
        console: config.console.enabled.then(ConsoleFiles::default),
        pages: parts.pages,
        fallbacks: parts.fallbacks,
        request_timeout: config.http.request_timeout,
        readiness: parts.readiness,
        reporting: Reporting { log: config.log.requests, traces: core.traces.clone() },
    })
}

/// The shared cache of links, which follows changes on other nodes.
fn build_cache(config: &Config, store: &Arc<dyn Store>, blocked_hosts: &BlockedHosts) -> Arc<LinkCache> {
    let settings = LinkCacheSettings {
        capacity: config.cache.links,
        found_for: config.cache.links_ttl,
        missing_for: config.cache.missing_ttl,
        is_shared: store.is_shared(),
        clock: CacheClock::default(),
        noindex: config.redirect.noindex,
    };
    let cache = Arc::new(LinkCache::new(store.clone(), blocked_hosts.clone(), settings));
    let follows = Arc::downgrade(&cache);
    store.on_link_change(Box::new(move |change| {
        if let Some(cache) = follows.upgrade() {
            cache.note_change(change);
        }
    }));
    cache
}

/// The API reference of a service with these settings.
pub(super) fn reference(config: &Config, base_url: &BaseUrl) -> Reference {
    Reference::new(Facts {
        base_url: base_url.as_str().to_owned(),
        plans: plans(config),
        rates: rates(config),
        redirect_per_minute: config.limits.redirect_per_minute,
        by_client: endpoints::client_limits()
            .map(|(endpoint, limit)| (endpoint, config.limits.per_minute(limit.setting)))
            .collect(),
        unauthorized_per_minute: config.limits.unauthorized_per_minute,
        streams: [config.tiers.free.streams, config.tiers.pro.streams],
        webhook_timeout: config.webhooks.timeout,
        retry_delays: config.webhooks.retry_delays.clone(),
        suspend_after: config.webhooks.suspend_after,
    })
}

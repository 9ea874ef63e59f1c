//! Builds the parts and puts them together.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use actix_web::dev::Server;
use actix_web::{App as Router, web};

use super::around_store::guarded_and_metered;
use super::limits::{client_limits, plans, rates, redirect_limiter, unauthorized_limit};
use super::opening::{self, OpenedNode};
use super::{App, Parts, StartError, Tell, meters, refused};
use crate::actors::hit_counter::{CounterWakes, CountingState, HitCounter};
use crate::actors::key_shard::exchange::Sharing;
use crate::actors::key_shard::{DEFAULT_SHARDS, KeyShards};
use crate::actors::supervisor::RestartHook;
use crate::actors::wake::DispatcherWake;
use crate::cache::links::{LinkCache, LinkCacheSettings};
use crate::clock::Clock;
use crate::config::Config;
use crate::counting::aggregator::HitAggregator;
use crate::counting::enrich::Enricher;
use crate::counting::places::PlaceDatabase;
use crate::dns::{Resolver, ResolverSettings};
use crate::domain::guard::AddressGuard;
use crate::domain::hit::NodeId;
use crate::domain::key::KeySecret;
use crate::domain::link::BaseUrl;
use crate::domain::plan::Plans;
use crate::domain::referrer::OwnHost;
use crate::domain::retry::RetrySchedule;
use crate::domain::vault::Vault;
use crate::http::client::TrustedProxies;
use crate::http::edge::service::EdgeFactory;
use crate::http::notices::Notices;
use crate::http::openapi::{Facts, Reference};
use crate::http::report::Reporting;
use crate::http::{Api, admin, endpoints, routes, server};
use crate::journal::notifier::Notifier;
use crate::journal::{HeldDirectory, Journal, JournalSettings, JournalWriter};
use crate::readiness::Readiness;
use crate::service::analytics::Analytics;
use crate::service::authentication::Authentication;
use crate::service::keys::Keys;
use crate::service::links::Links;
use crate::service::redirects::Redirects;
use crate::service::root_key;
use crate::service::usage::Usage;
use crate::service::webhook_status::WebhookStatuses;
use crate::store::{CountStore, SharedNode, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::hits::CountingMeters;
use crate::telemetry::traces::{TraceSettings, Traces};
use crate::threads::stand_back;
use crate::webhooks::dispatcher::{DispatcherParts, WebhookPool};
use crate::webhooks::sender::{SenderSettings, WebhookSender};

/// How much a retry's delay is spread, either way.
const JITTER: f64 = 0.1;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// What is sent and not yet taken by the client is at most this much, and as much again for the kernel's own use.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// How long actix lets requests go on after it was told to stop, in seconds.
const SHUTDOWN_SECONDS: u64 = 10;

/// What tests put in the place of the real thing.
#[doc(hidden)]
#[derive(Default)]
pub struct TestSeams {
    pub clock: Clock,
    /// Put around the store.
    pub wrap_store: Option<WrapStore>,
}

/// Puts something around the store.
#[doc(hidden)]
pub type WrapStore = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

pub(super) async fn build(
    config: &Config,
    tell: Tell<'_>,
    seams: TestSeams,
    farewell: Duration,
) -> Result<App, StartError> {
    let clock = seams.clock;
    // First, so that a second process that was started by mistake touches nothing.
    let public_socket = listen(config, "http.listen", config.http.listen)?;
    let admin_socket = listen(config, "admin.listen", config.admin.listen)?;
    let (address, admin_address) = (bound(&public_socket)?, bound(&admin_socket)?);
    let base_url = BaseUrl::new(config.http.base_url_at(address).as_url().clone());

    // Before anything that may take its time: whoever looks after the process learns that it lives and starts.
    let (metrics, readiness, admin) = serve_operators(admin_socket).await?;

    let OpenedNode { vault, node, journal, store, reach } = opening::open(config).await?;
    let store = match seams.wrap_store {
        Some(wrap) => wrap(store),
        None => store,
    };
    let store = guarded_and_metered(store, reach, &metrics);
    let places = open_places(config)?;

    let traces = start_traces(config, node, &metrics)?;
    let on_restart = meters::count_restarts(&metrics);
    let shards = start_shards(store.clone(), &clock, &metrics, &on_restart)?;
    let (guard, plans) = (AddressGuard::new(config.webhooks.allowed_networks.clone()), plans(config));

    // Before anything is delivered: under a wrong master key every delivery would fail for good.
    let chosen = config.secrets.root_key.as_ref().map(|key| KeySecret::chosen(key.expose().to_owned()));
    let root_is_chosen = chosen.is_some();
    root_key::set_up(&*store, &vault, chosen, clock.now(), &|news| tell(news, base_url.as_str())).await?;

    let wake = DispatcherWake::default();
    let (webhooks, webhook_arbiter) = start_webhooks(
        config,
        &on_restart,
        DispatcherContext {
            store: &store,
            vault: &vault,
            plans,
            clock: &clock,
            guard: &guard,
            wake: &wake,
            metrics: &metrics,
            traces: traces.as_ref(),
        },
    )?;

    let notifier = Notifier::default();
    let (counter, journal_writer, journal_keeper, counter_arbiter) = start_counting(
        config,
        store.clone(),
        journal,
        HitAggregator::new(node, Enricher::new(OwnHost::of_base_url(base_url.as_str()), places)),
        CounterWakes { notifier: notifier.clone(), dispatcher: wake },
        (&metrics.counting, &clock),
        &on_restart,
    )
    .await?;

    let authentication = Arc::new(Authentication::new(store.clone(), clock.clone(), config.cache.keys_ttl));
    let cache = Arc::new(LinkCache::new(store.clone(), cache_settings(config)));
    meters::show(&metrics, &journal_writer, &cache, &(store.clone() as _), &clock);
    let api = Arc::new(Api {
        authentication: Arc::clone(&authentication),
        shards: Arc::clone(&shards),
        rates: rates(config),
        links: Links::new(store.clone(), Arc::clone(&cache), Arc::clone(&shards), plans, clock.clone()),
        keys: Keys::new(store.clone(), Arc::clone(&authentication), plans, vault, clock.clone(), root_is_chosen),
        analytics: Analytics::new(store.clone(), store.clone(), clock.clone()),
        usage: Usage::new(store.clone(), plans, clock.clone()),
        webhook_statuses: WebhookStatuses::new(store.clone(), store.clone(), clock.clone()),
        redirects: Redirects::new(cache, redirect_limiter(config)?, journal_writer, notifier, clock.clone()),
        client_limits: client_limits(config)?,
        unauthorized_limit: unauthorized_limit(config)?,
        trusted_proxies: TrustedProxies::new(config.http.trusted_proxies.clone()),
        notices: Notices::default(),
        base_url: base_url.clone(),
        webhook_guard: guard,
        clock: clock.clone(),
        metrics,
        reference: reference(config, &base_url),
        request_timeout: config.http.request_timeout,
        readiness: readiness.clone(),
        reporting: Reporting { log: config.log.requests, traces: traces.clone() },
    });
    admin.tell_of(store.clone());
    let parts = Parts {
        public: serve_public(config, public_socket, Arc::clone(&api), farewell)?,
        admin,
        readiness,
        store,
        authentication,
        shards,
        counter,
        webhooks: Arc::new(webhooks),
        journal: journal_keeper,
        arbiters: vec![webhook_arbiter, counter_arbiter],
        api,
        clock,
        traces,
    };
    Ok(App { parts, address, admin_address, base_url: base_url.as_str().to_owned() })
}

/// What the operator's listener tells, and the listener.
async fn serve_operators(socket: TcpListener) -> Result<(Arc<Metrics>, Readiness, admin::Serving), StartError> {
    let address = bound(&socket)?;
    let metrics = Arc::new(Metrics::new(
        routes::PATTERNS.iter().copied(),
        routes::REDIRECT,
        endpoints::client_limits().map(|(_, limit)| limit.name),
    ));
    let readiness = Readiness::default();
    meters::show_readiness(&metrics, &readiness);
    let serving = admin::serve(socket, readiness.clone(), Arc::clone(&metrics)).await;
    let serving = serving.map_err(|source| StartError::Bind { address, source })?;
    Ok((metrics, readiness, serving))
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

fn start_shards(
    store: Arc<dyn SharedNode>,
    clock: &Clock,
    metrics: &Metrics,
    on_restart: &RestartHook,
) -> Result<Arc<KeyShards>, StartError> {
    let shards = KeyShards::start(DEFAULT_SHARDS, Sharing::through(store, clock), on_restart)?;
    Ok(Arc::new(shards.shown_by(meters::of_shards(metrics))))
}

/// What the webhooks share with the rest.
#[derive(Clone, Copy)]
struct DispatcherContext<'a> {
    store: &'a Arc<dyn Store>,
    vault: &'a Arc<Vault>,
    plans: Plans,
    clock: &'a Clock,
    guard: &'a AddressGuard,
    wake: &'a DispatcherWake,
    metrics: &'a Metrics,
    traces: Option<&'a Arc<Traces>>,
}

fn start_webhooks(
    config: &Config,
    on_restart: &RestartHook,
    context: DispatcherContext<'_>,
) -> Result<(WebhookPool, Arbiter), StartError> {
    let resolver = Resolver::new(ResolverSettings::new(&config.webhooks.resolv_conf));
    let mut sender = SenderSettings::new(context.guard.clone(), Arc::new(resolver));
    sender.timeout = config.webhooks.timeout;
    sender.max_idle_per_host = config.webhooks.in_flight_per_host;
    let parts = DispatcherParts {
        store: Arc::clone(context.store),
        vault: Arc::clone(context.vault),
        plans: context.plans,
        clock: context.clock.clone(),
        sender: WebhookSender::new(sender)?,
        retries: RetrySchedule::new(config.webhooks.retry_delays.clone(), JITTER),
        workers: NonZeroUsize::new(config.webhooks.workers).unwrap_or(NonZeroUsize::MIN),
        in_flight_per_host: config.webhooks.in_flight_per_host,
        buffer: config.webhooks.buffer,
        wake: context.wake.clone(),
        meters: context.metrics.webhooks.clone(),
        traces: context.traces.cloned(),
    };
    let wake = context.wake.clone();
    context.store.on_adoption(Box::new(move |earliest| wake.wake(earliest)));
    let arbiter = Arbiter::try_new().map_err(StartError::Thread)?;
    let pool = WebhookPool::start(&arbiter.handle(), parts, on_restart);
    meters::show_webhooks(context.metrics, pool.under_way(), context.clock);
    Ok((pool, arbiter))
}

type CountingParts =
    (crate::actors::supervisor::Supervisor<HitCounter>, JournalWriter, crate::journal::upkeep::UpkeepHandle, Arbiter);

async fn start_counting(
    config: &Config,
    store: Arc<dyn CountStore>,
    journal: HeldDirectory,
    tally: HitAggregator,
    wakes: CounterWakes,
    (meters, clock): (&CountingMeters, &Clock),
    on_restart: &RestartHook,
) -> Result<CountingParts, StartError> {
    let node = tally.node();
    let cursor = store.hit_cursor(node).await?;
    let settings = JournalSettings {
        segment_bytes: config.journal.segment_bytes,
        disk_budget: config.journal.disk_budget_bytes,
        sync_interval: config.journal.sync_interval,
        ..JournalSettings::default()
    };
    let Journal { writer, reader, upkeep } = journal.open(&settings, node, cursor)?;
    let upkeep = upkeep.start().map_err(StartError::Thread)?;
    let arbiter = Arbiter::try_new().map_err(StartError::Thread)?;
    arbiter.spawn_fn(stand_back);
    let counting = CountingState::new(store, reader, tally, cursor, wakes);
    let counting = counting.shown_by(meters.clone(), clock.clone());
    Ok((HitCounter::start(&arbiter.handle(), counting, on_restart), writer, upkeep, arbiter))
}

fn serve_public(config: &Config, socket: TcpListener, api: Arc<Api>, farewell: Duration) -> Result<Server, StartError> {
    let address = config.http.listen;
    let workers =
        config.http.workers.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let settings = server::Settings {
        workers: workers.min(server::MAX_WORKERS),
        max_connections: config.http.max_connections,
        keep_alive: Some(config.http.keep_alive).filter(|time| !time.is_zero()),
        head_timeout: config.http.request_timeout,
        send_timeout: config.http.send_timeout,
        disconnect_timeout: Duration::from_secs(1),
        farewell,
        shutdown_seconds: SHUTDOWN_SECONDS,
    };
    let server = server::serve(socket, settings, Arc::clone(&api), move || {
        let router = Router::new().app_data(web::Data::from(Arc::clone(&api))).configure(routes::configure);
        EdgeFactory::new(Arc::clone(&api), router)
    });
    server.map_err(|source| StartError::Bind { address, source })
}

fn listen(config: &Config, setting: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    };
    let listener = socket.and_then(|socket| {
        // A restart need not wait for the connections of the process before.
        socket.set_reuseaddr(true)?;
        // Connections inherit it. A client that takes none of its answer costs this much of the kernel's memory.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    });
    listener.map_err(|error| refused(config, setting, format!("{address} can't be listened on: {error}")))
}

fn bound(socket: &TcpListener) -> Result<SocketAddr, StartError> {
    socket.local_addr().map_err(StartError::Thread)
}

fn cache_settings(config: &Config) -> LinkCacheSettings {
    LinkCacheSettings {
        capacity: config.cache.links,
        found_for: config.cache.links_ttl,
        missing_for: config.cache.missing_ttl,
    }
}

pub(super) fn open_places(config: &Config) -> Result<Option<Arc<PlaceDatabase>>, StartError> {
    let Some(path) = &config.geo.database else { return Ok(None) };
    let places = PlaceDatabase::open(path).map_err(|error| refused(config, "geo.database", error.to_string()))?;
    Ok(Some(Arc::new(places)))
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
        webhook_timeout: config.webhooks.timeout,
        retry_delays: config.webhooks.retry_delays.clone(),
    })
}

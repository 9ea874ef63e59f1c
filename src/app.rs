//! The composition root: builds every part, binds, runs and drains. The only module that uses all parts.
//!
//! Its public futures are boxed. The code of a plain future is compiled in each program that awaits it, and with it all that it
//! calls which is generic: the whole service again for the program, for the tests and for each load test.

mod around_store;
mod blocked_hosts;
mod bots;
mod build;
mod cluster;
mod files;
mod keys_on_disk;
mod limits;
mod listeners;
mod master_key;
mod meters;
mod named_files;
mod open_files;
mod opening;
mod pages;
mod probe;
mod removal_time;
mod store_state;
mod transfer;
mod watched_file;
mod writable;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use futures_util::future::LocalBoxFuture;
use thiserror::Error;

use self::named_files::NamedFiles;
use crate::actors::hit_counter::{CountAll, HitCounter};
use crate::actors::key_shard::{KeyShards, ShardStartError};
use crate::actors::supervisor::{Handle, Supervisor};
use crate::clock::removal::RemovalClock;
use crate::config::{Config, SettingError, StoreKind};
use crate::domain::bots::SharedBotRules;
use crate::domain::link::BaseUrl;
use crate::domain::webhook::first_stored_day;
use crate::http::Api;
use crate::http::admin::AdminServer;
use crate::http::server::PublicServer;
use crate::journal::JournalError;
use crate::journal::upkeep::UpkeepHandle;
use crate::readiness::Readiness;
use crate::service::authentication::AuthenticationService;
use crate::service::hit_streams::HitStreamService;
use crate::service::link_upkeep::LinkUpkeep;
use crate::service::root_key::RootKeyError;
use crate::store::cql::OpenError;
use crate::store::cql::migrate::MigrateError;
use crate::store::cql::session::ConnectError;
use crate::store::{DeliveryStore, Store, StoreError};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{Traces, TracesError};
use crate::transfer::TransferError;
use crate::webhooks::dispatcher::WebhookPool;
use crate::webhooks::sender::SenderError;

pub use self::bots::describe_agent;
pub use self::build::TestSeams;
pub use self::master_key::{KeyPlace, MasterKeyError, Remedy, StorePlace};
pub use self::probe::{ServerReadiness, readiness_of_server};
pub use self::transfer::{Exported, export, import};
pub use crate::service::root_key::FirstStartSecrets;

/// Shows the operator the secrets of a first start, which are never shown again. The second argument is the base URL,
/// without a trailing slash.
pub type ShowSecrets<'a> = &'a dyn Fn(FirstStartSecrets<'_>, &str) -> io::Result<()>;

/// Why the service did not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("can't listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("{path}: {reason}")]
    DamagedFile { path: String, reason: &'static str },
    #[error("{} can't be written: {source}", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{} is a directory, but must be a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    #[error("the import into {0} is unfinished. Nothing was changed. Run the import again: it resumes")]
    UnfinishedImport(StorePlace),
    #[error("the store in {} can't be opened: {reason}", path.display())]
    StoreDirectory { path: PathBuf, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("can't use the cluster: {0}")]
    Cluster(#[from] ConnectError),
    #[error(transparent)]
    Schema(#[from] MigrateError),
    #[error("can't open the store on the cluster: {0}")]
    ClusterStore(#[from] OpenError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error("--lost-node is for clusters: the store is embedded")]
    LostNodeOfEmbeddedStore,
    #[error(transparent)]
    RootKey(#[from] RootKeyError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("can't create the webhook sender: {0}")]
    Sender(#[from] SenderError),
    #[error("can't send traces: {0}")]
    Traces(#[from] TracesError),
    #[error(transparent)]
    Shards(#[from] ShardStartError),
    #[error("can't start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("the operating system's random generator failed")]
    NoRandomness,
}

/// The error of a setting whose value turns out to be unusable.
fn refused(config: &Config, setting: &'static str, reason: String) -> StartError {
    config.refuse(setting, reason).into()
}

/// Time limits of a drain. All of it takes less than 30 s: requests and webhooks end in parallel, then hits are
/// counted, then the store and five more parts are closed one after the other.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(12);
const WEBHOOKS_END_WITHIN: Duration = Duration::from_secs(11);
const HITS_COUNTED_WITHIN: Duration = Duration::from_secs(5);
const PART_CLOSED_WITHIN: Duration = Duration::from_millis(1500);
/// Longer, because the embedded store writes its index of links, 10 bytes for each link. Otherwise the next start
/// reads all links.
const STORE_CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may stay idle in a drain before it is closed. The client may be about to send a request; the
/// answer then has `Connection: close`.
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_millis(800);
/// The delay before the hit counter is asked again after it did not answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often uses of keys are written: `last_used_at` is at most 10 s old.
const FLUSH_USES_EVERY: Duration = Duration::from_secs(5);
/// How often observed values are sorted into histograms, so that they take no memory if the metrics are not scraped.
const TIDY_METRICS_EVERY: Duration = Duration::from_secs(5);
/// How often deliveries past their retention are deleted.
const DROP_DELIVERIES_EVERY: Duration = Duration::from_mins(10);

/// A service that is built, bound and answering. [`run`](Self::run) serves until its argument completes.
pub struct App {
    parts: Parts,
    /// The address of the public listener.
    pub address: SocketAddr,
    /// The address of the operator's listener.
    pub admin_address: SocketAddr,
    /// The base URL of the service, without a trailing slash.
    pub base_url: String,
}

/// The parts that are stopped, in order, when the service ends.
struct Parts {
    readiness: Readiness,
    store: Arc<dyn Store>,
    authentication: Arc<AuthenticationService>,
    shards: Arc<KeyShards>,
    link_upkeep: LinkUpkeep,
    counter: Supervisor<HitCounter>,
    webhooks: Arc<WebhookPool>,
    journal: UpkeepHandle,
    arbiters: Vec<Arbiter>,
    public: PublicServer,
    admin: AdminServer,
    api: Arc<Api>,
    removal_clock: Arc<RemovalClock>,
    /// The file with its time.
    removal_time: PathBuf,
    traces: Option<Arc<Traces>>,
    /// The file with the list of blocked hosts.
    blocked_hosts: Option<PathBuf>,
    /// The file with the networks of bots, and the rules that have them.
    bot_networks: Option<(PathBuf, SharedBotRules)>,
}

/// The `OpenAPI` document of a service with these settings, as JSON.
pub fn api_document(config: &Config) -> String {
    let base_url = BaseUrl::new(config.http.base_url_at(config.http.listen).as_url().clone());
    build::reference(config, &base_url).document_text()
}

/// Checks what a start would refuse, as far as that changes nothing and opens no store.
///
/// # Errors
/// The error of the start.
pub fn check(config: &Config) -> Result<(), StartError> {
    let base_url = BaseUrl::new(config.http.base_url_at(config.http.listen).as_url().clone());
    NamedFiles::read(config, &base_url).map(drop)
}

/// Migrates the store's schema and returns the names of the applied files. The embedded store has no schema.
pub fn migrate(config: &Config) -> LocalBoxFuture<'_, Result<Vec<&'static str>, StartError>> {
    Box::pin(async {
        match config.store.kind {
            StoreKind::Embedded => Ok(Vec::new()),
            StoreKind::Scylla => Ok(opening::migrate_cluster(config).await?.iter().map(|file| file.name).collect()),
        }
    })
}

impl App {
    /// Builds every part, recovers what an earlier process left, and binds both listeners.
    ///
    /// Must run inside an actix system.
    ///
    /// # Errors
    /// See [`StartError`]; its text is one line for the operator.
    pub fn build<'a>(config: &'a Config, show: ShowSecrets<'a>) -> LocalBoxFuture<'a, Result<Self, StartError>> {
        Box::pin(build::build(config, show, TestSeams::default(), DRAIN_IDLE_TIMEOUT))
    }

    /// As [`build`](Self::build), with a clock and a store from a test. At the end, idle connections are closed at
    /// once.
    #[doc(hidden)]
    pub fn build_with<'a>(
        config: &'a Config,
        show: ShowSecrets<'a>,
        seams: TestSeams,
    ) -> LocalBoxFuture<'a, Result<Self, StartError>> {
        Box::pin(build::build(config, show, seams, Duration::ZERO))
    }

    /// The handlers' state, for measurements without a network.
    #[doc(hidden)]
    pub fn api(&self) -> Arc<Api> {
        Arc::clone(&self.parts.api)
    }

    /// Handles that make actors panic, for tests.
    #[doc(hidden)]
    pub fn test_handles(&self) -> (Arc<KeyShards>, Arc<WebhookPool>) {
        (Arc::clone(&self.parts.shards), Arc::clone(&self.parts.webhooks))
    }

    /// Serves until `end` completes, then drains: reports not ready, refuses new connections, finishes requests,
    /// returns deliveries to the store, counts hits, flushes everything. Takes less than 30 s.
    ///
    /// # Errors
    /// If a listener fails.
    pub fn run(self, end: LocalBoxFuture<'_, ()>) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(self.run_until(end))
    }

    async fn run_until(self, end: LocalBoxFuture<'_, ()>) -> io::Result<()> {
        let Parts {
            readiness,
            store,
            authentication,
            shards,
            link_upkeep,
            counter,
            webhooks,
            journal,
            arbiters,
            mut public,
            admin,
            api,
            removal_clock,
            removal_time,
            traces,
            blocked_hosts,
            bot_networks,
        } = self.parts;
        let mut chores = vec![
            tokio::spawn(flush_uses(Arc::clone(&authentication))),
            tokio::spawn(removal_time::keep(removal_time, Arc::clone(&removal_clock))),
            tokio::spawn(drop_old_deliveries(store.clone(), removal_clock)),
            tokio::spawn(link_upkeep.run()),
            tokio::spawn(tidy_metrics(Arc::clone(&api.metrics))),
            tokio::spawn(keep_streams(Arc::clone(&api.hit_streams))),
        ];
        if let Some(path) = blocked_hosts {
            let of_links = Arc::clone(&api);
            chores.push(blocked_hosts::watch(path, api.blocked_hosts.clone(), move || of_links.redirects.forget_all()));
        }
        chores.extend(bot_networks.map(|(path, rules)| bots::watch_networks(path, rules)));
        readiness.set_serving(true);
        let (version, base_url) = (env!("CARGO_PKG_VERSION"), &self.base_url);
        tracing::info!(version, address = %self.address, admin = %self.admin_address, %base_url, "serving");

        end.await;
        tracing::info!("shutting down");
        readiness.set_serving(false);
        api.hit_streams.end_all();
        // In parallel: neither needs the other. Deliveries of the last requests wait in the store.
        let (listener, ()) = tokio::join!(stop_listener(&mut public), webhooks.stop(WEBHOOKS_END_WITHIN));
        for chore in chores {
            chore.abort();
        }
        if !count_all(&counter.handle()).await {
            tracing::warn!("hits remain in the journal: the next start counts them");
        }
        closed("the hit counter", counter.stop()).await;
        closed("the key shards", shards.stop()).await;
        closed("the last uses of keys", async {
            if let Err(error) = authentication.flush_uses().await {
                tracing::warn!(%error, "can't write the last use of API keys");
            }
        })
        .await;
        // Blocking: it joins the journal's thread, which may be in an msync.
        closed("the journal", async { drop(tokio::task::spawn_blocking(|| journal.stop()).await) }).await;
        closed_within(STORE_CLOSED_WITHIN, "the store", store.close()).await;
        if let Some(traces) = traces {
            closed("the traces", traces.stop()).await;
        }
        for arbiter in arbiters {
            arbiter.stop();
        }
        let admin = admin.stop().await;
        tracing::info!("stopped");
        listener.and(admin)
    }
}

async fn stop_listener(listener: &mut PublicServer) -> io::Result<()> {
    // Each worker ends by its own timeout; this is the outer bound.
    tokio::time::timeout(REQUESTS_END_WITHIN, listener.stop()).await.unwrap_or_else(|_| {
        tracing::warn!("some requests did not end within the shutdown timeout");
        Ok(())
    })
}

/// Counts the hits in the journal. Returns whether all are counted before the time limit; the rest stays in the
/// journal.
async fn count_all(counter: &Handle<HitCounter>) -> bool {
    let counting = async {
        loop {
            // If the answer takes longer than the mailbox's time limit, it is asked for again; counting continues
            // meanwhile.
            match counter.ask_once(CountAll).await {
                Ok(all) => return all,
                Err(_) => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            }
        }
    };
    tokio::time::timeout(HITS_COUNTED_WITHIN, counting).await.unwrap_or(false)
}

async fn closed(part: &'static str, closing: impl Future<Output = ()>) {
    closed_within(PART_CLOSED_WITHIN, part, closing).await;
}

/// Waits for a part to close, up to `patience`. After that the data of the part is safe on disk anyway.
async fn closed_within(patience: Duration, part: &'static str, closing: impl Future<Output = ()>) {
    if tokio::time::timeout(patience, closing).await.is_err() {
        tracing::warn!(part, "not stopped within the shutdown timeout");
    }
}

async fn flush_uses(authentication: Arc<AuthenticationService>) {
    loop {
        tokio::time::sleep(FLUSH_USES_EVERY).await;
        if let Err(error) = authentication.flush_uses().await {
            tracing::warn!(%error, "can't write the last use of API keys: retrying");
        }
    }
}

async fn drop_old_deliveries(store: Arc<dyn DeliveryStore>, clock: Arc<RemovalClock>) {
    loop {
        match store.drop_deliveries(first_stored_day(clock.now())).await {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => tokio::time::sleep(DROP_DELIVERIES_EVERY).await,
            Err(error) => {
                tracing::warn!(%error, "can't delete old deliveries: retrying");
                tokio::time::sleep(DROP_DELIVERIES_EVERY).await;
            }
        }
    }
}

async fn keep_streams(streams: Arc<HitStreamService>) {
    streams.run().await;
}

async fn tidy_metrics(metrics: Arc<Metrics>) {
    loop {
        tokio::time::sleep(TIDY_METRICS_EVERY).await;
        metrics.tidy();
    }
}

//! The composition root: builds every part, binds, runs, drains. The only place that knows all of them.

mod around_store;
mod build;
mod cluster;
mod files;
mod kept;
mod keys_on_disk;
mod limits;
mod master_key;
mod meters;
mod opening;
mod probe;
mod transfer;
mod writable;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use actix_web::dev::{Server, ServerHandle};
use thiserror::Error;

use crate::actors::hit_counter::{CountAll, HitCounter};
use crate::actors::key_shard::{KeyShards, ShardStartError};
use crate::actors::supervisor::{Handle, Supervisor};
use crate::clock::Clock;
use crate::config::{Config, SettingError, StoreKind};
use crate::domain::link::BaseUrl;
use crate::domain::webhook::first_kept_day;
use crate::http::Api;
use crate::http::admin::Serving;
use crate::journal::JournalError;
use crate::journal::upkeep::UpkeepHandle;
use crate::readiness::Readiness;
use crate::service::authentication::Authentication;
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

pub use self::build::TestSeams;
pub use self::master_key::{KeyPlace, MasterKeyError, Remedy, StorePlace};
pub use self::probe::{ServerReadiness, readiness_of_server};
pub use self::transfer::{Exported, export, import};
pub use crate::service::root_key::FirstStartSecrets;

/// Tells the operator of a first start what is not shown again, and how the service is reached, without a trailing slash.
pub type Tell<'a> = &'a dyn Fn(FirstStartSecrets<'_>, &str) -> io::Result<()>;

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
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    #[error("the import into {0} has not ended. Nothing was changed. Run the import again: it goes on where it was")]
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

/// A setting that turned out to be unusable.
fn refused(config: &Config, setting: &'static str, reason: String) -> StartError {
    SettingError::new(setting, reason, config.origin(setting)).into()
}

/// What each part of a drain may take, so that all of it takes less than 30 s: requests and webhooks end side by side,
/// then hits are counted, then the store and five more parts are closed one after the other.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(12);
const WEBHOOKS_END_WITHIN: Duration = Duration::from_secs(11);
const HITS_COUNTED_WITHIN: Duration = Duration::from_secs(5);
const PART_CLOSED_WITHIN: Duration = Duration::from_millis(1500);
/// Longer, for it writes down what the next start would have to read from all links: 10 bytes for each.
const STORE_CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may stay idle in a drain before it is closed: its client may be about to ask something, and
/// learns from the answer that it is the last.
const FAREWELL: Duration = Duration::from_millis(800);
/// How long to leave a counter alone that gave no answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Uses of keys are written this often: `last_used_at` is at most 10 s old.
const FLUSH_USES_EVERY: Duration = Duration::from_secs(5);
/// What metrics have observed is sorted this often, so that it takes no memory where nobody asks for them.
const TIDY_METRICS_EVERY: Duration = Duration::from_secs(5);
/// Deliveries past their retention are looked for this often.
const DROP_DELIVERIES_EVERY: Duration = Duration::from_mins(10);

/// A service that is built, bound and answering, until [`run`](Self::run) is told to end it.
pub struct App {
    parts: Parts,
    /// Where the public listener is bound.
    pub address: SocketAddr,
    /// Where the operator's listener is bound.
    pub admin_address: SocketAddr,
    /// How the service is reached, without a trailing slash.
    pub base_url: String,
}

/// All that has to be ended in order.
struct Parts {
    readiness: Readiness,
    store: Arc<dyn Store>,
    authentication: Arc<Authentication>,
    shards: Arc<KeyShards>,
    counter: Supervisor<HitCounter>,
    webhooks: Arc<WebhookPool>,
    journal: UpkeepHandle,
    arbiters: Vec<Arbiter>,
    public: Server,
    admin: Serving,
    api: Arc<Api>,
    clock: Clock,
    traces: Option<Arc<Traces>>,
}

/// The description of the API that a service with these settings has, as JSON text.
pub fn api_document(config: &Config) -> String {
    let base_url = BaseUrl::new(config.http.base_url_at(config.http.listen).as_url().clone());
    build::reference(config, &base_url).document_text()
}

/// Looks into what settings name and a start would refuse, as far as that touches nothing.
///
/// # Errors
/// That of the start.
pub fn check(config: &Config) -> Result<(), StartError> {
    build::open_places(config).map(drop)
}

/// Brings the store's schema up to date, and answers the names of the files that were applied to it. The embedded store has
/// none.
pub async fn migrate(config: &Config) -> Result<Vec<&'static str>, StartError> {
    match config.store.kind {
        StoreKind::Embedded => Ok(Vec::new()),
        StoreKind::Scylla => Ok(opening::migrate_cluster(config).await?.iter().map(|file| file.name).collect()),
    }
}

impl App {
    /// Builds every part, recovers what an earlier life left, and binds both listeners.
    ///
    /// Must run inside an actix system.
    ///
    /// # Errors
    /// See [`StartError`]; its text is one line for the operator.
    pub async fn build(config: &Config, tell: Tell<'_>) -> Result<Self, StartError> {
        build::build(config, tell, TestSeams::default(), FAREWELL).await
    }

    /// As [`build`](Self::build), with the clock and the store that a test brings, and at its end without a wait for
    /// what its clients may still have to ask.
    #[doc(hidden)]
    pub async fn build_with(config: &Config, tell: Tell<'_>, seams: TestSeams) -> Result<Self, StartError> {
        build::build(config, tell, seams, Duration::ZERO).await
    }

    /// What handlers call, for measuring it without a network.
    #[doc(hidden)]
    pub fn api(&self) -> Arc<Api> {
        Arc::clone(&self.parts.api)
    }

    /// Ways to make parts panic, for tests.
    #[doc(hidden)]
    pub fn test_handles(&self) -> (Arc<KeyShards>, Arc<WebhookPool>) {
        (Arc::clone(&self.parts.shards), Arc::clone(&self.parts.webhooks))
    }

    /// Serves until `end` comes, then drains: not ready, no new connections, requests finished, deliveries handed back,
    /// hits counted, everything flushed. Less than 30 s in all.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(self, end: impl Future<Output = ()>) -> io::Result<()> {
        let Parts {
            readiness,
            store,
            authentication,
            shards,
            counter,
            webhooks,
            journal,
            arbiters,
            public,
            admin,
            api,
            clock,
            traces,
        } = self.parts;
        let (public_handle, public) = (public.handle(), tokio::spawn(public));
        let chores = [
            tokio::spawn(flush_uses(Arc::clone(&authentication))),
            tokio::spawn(drop_old_deliveries(store.clone(), clock)),
            tokio::spawn(tidy_metrics(Arc::clone(&api.metrics))),
        ];
        readiness.set_serving(true);
        let (version, base_url) = (env!("CARGO_PKG_VERSION"), &self.base_url);
        tracing::info!(version, address = %self.address, admin = %self.admin_address, %base_url, "serving");

        end.await;
        tracing::info!("shutting down");
        readiness.set_serving(false);
        // Side by side: neither needs the other. What the last requests add to the queue waits in the store.
        tokio::join!(stop_listener(&public_handle), webhooks.stop(WEBHOOKS_END_WITHIN));
        for chore in chores {
            chore.abort();
        }
        if !count_all(&counter.handle()).await {
            tracing::warn!("some hits are still in the journal: the next start counts them");
        }
        closed("the hit counter", counter.stop()).await;
        closed("the key shards", shards.stop()).await;
        closed("the last uses of keys", async {
            if let Err(error) = authentication.flush_uses().await {
                tracing::warn!(%error, "can't write the last use of API keys");
            }
        })
        .await;
        // Blocking: it joins the journal's thread, which is at most one msync away.
        closed("the journal", async { drop(tokio::task::spawn_blocking(|| journal.stop()).await) }).await;
        closed_within(STORE_CLOSED_WITHIN, "the store", store.close()).await;
        if let Some(traces) = traces {
            closed("the traces", traces.stop()).await;
        }
        for arbiter in arbiters {
            arbiter.stop();
        }
        let listeners = [admin.stop().await, public.await.unwrap_or_else(|error| Err(io::Error::other(error)))];
        tracing::info!("stopped");
        listeners.into_iter().collect()
    }
}

async fn stop_listener(listener: &ServerHandle) {
    // actix ends keep-alive connections as they fall idle and gives up after its own time-out; this is the outer bound.
    if tokio::time::timeout(REQUESTS_END_WITHIN, listener.stop(true)).await.is_err() {
        tracing::warn!("some requests did not end within the shutdown timeout");
    }
}

/// Counts what the journal holds, as far as there is time. The rest is safe where it is.
async fn count_all(counter: &Handle<HitCounter>) -> bool {
    let counting = async {
        loop {
            // An answer that takes longer than a question may wait is asked for again; the counting goes on meanwhile.
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

/// Waits for a part to close, but not for ever: what it holds is safe by then.
async fn closed_within(patience: Duration, part: &'static str, closing: impl Future<Output = ()>) {
    if tokio::time::timeout(patience, closing).await.is_err() {
        tracing::warn!(part, "not stopped within the shutdown timeout");
    }
}

async fn flush_uses(authentication: Arc<Authentication>) {
    loop {
        tokio::time::sleep(FLUSH_USES_EVERY).await;
        if let Err(error) = authentication.flush_uses().await {
            tracing::warn!(%error, "can't write the last use of API keys: retrying");
        }
    }
}

async fn drop_old_deliveries(store: Arc<dyn DeliveryStore>, clock: Clock) {
    loop {
        match store.drop_deliveries(first_kept_day(clock.now())).await {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => tokio::time::sleep(DROP_DELIVERIES_EVERY).await,
            Err(error) => {
                tracing::warn!(%error, "can't delete old deliveries: retrying");
                tokio::time::sleep(DROP_DELIVERIES_EVERY).await;
            }
        }
    }
}

async fn tidy_metrics(metrics: Arc<Metrics>) {
    loop {
        tokio::time::sleep(TIDY_METRICS_EVERY).await;
        metrics.tidy();
    }
}

//! The composition root: builds every part, binds, runs, drains. The only place that knows all of them.

mod build;
mod keys_on_disk;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Arbiter;
use actix_web::dev::{Server, ServerHandle};
use thiserror::Error;

use crate::actors::hit_counter::{CountAll, HitCounter};
use crate::actors::keeper::Keeper;
use crate::actors::key_shard::{KeyShards, StartError as ShardError};
use crate::actors::webhook_dispatcher::WebhookPool;
use crate::actors::webhook_sender::SenderError;
use crate::clock::Clock;
use crate::config::{Config, SettingError};
use crate::domain::webhook::first_kept_day;
use crate::hits::journal::JournalError;
use crate::hits::keeper::KeeperHandle;
use crate::readiness::Readiness;
use crate::service::authentication::Authentication;
use crate::service::root_key::{FirstStart, RootKeyError};
use crate::store::{Store, StoreError};

pub use self::build::TestSeams;

/// Why the service did not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{address} can't be listened on: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("{path}: {reason}")]
    DamagedFile { path: String, reason: &'static str },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    RootKey(#[from] RootKeyError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the webhook sender could not be made: {0}")]
    Sender(#[from] SenderError),
    #[error(transparent)]
    Shards(#[from] ShardError),
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
    #[error("the system gave no randomness")]
    NoRandomness,
}

/// How long a drain may take in all is 30 s; what each part of it may take.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(12);
const WEBHOOKS_END_WITHIN: Duration = Duration::from_secs(11);
/// Uses of keys are written this often: `last_used_at` is at most 10 s old.
const FLUSH_USES_EVERY: Duration = Duration::from_secs(5);
/// Deliveries past their retention are looked for this often.
const DROP_DELIVERIES_EVERY: Duration = Duration::from_mins(10);

/// A service that is built, bound and answering, until [`run`](Self::run) is told to end it.
pub struct App {
    parts: Parts,
    /// What the first start made, to be shown once.
    pub first_start: FirstStart,
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
    counter: Keeper<HitCounter>,
    webhooks: Arc<WebhookPool>,
    journal: KeeperHandle,
    arbiters: Vec<Arbiter>,
    public: Server,
    admin: Server,
    clock: Clock,
}

impl App {
    /// Builds every part, recovers what an earlier life left, and binds both listeners.
    ///
    /// Must run inside an actix system.
    ///
    /// # Errors
    /// See [`StartError`]; its text is one line for the operator.
    pub async fn build(config: &Config) -> Result<Self, StartError> {
        build::build(config, TestSeams::default()).await
    }

    /// As [`build`](Self::build), with the clock and the store that a test brings.
    #[doc(hidden)]
    pub async fn build_with(config: &Config, seams: TestSeams) -> Result<Self, StartError> {
        build::build(config, seams).await
    }

    /// Ways to make parts panic, for tests.
    #[doc(hidden)]
    pub fn test_handles(&self) -> (Arc<KeyShards>, Arc<WebhookPool>) {
        (Arc::clone(&self.parts.shards), Arc::clone(&self.parts.webhooks))
    }

    /// Serves until `end` comes, then drains: not ready, no new connections, requests finished, hits counted, deliveries
    /// handed back, everything flushed.
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
            clock,
        } = self.parts;
        let (public_handle, admin_handle) = (public.handle(), admin.handle());
        let (public, admin) = (tokio::spawn(public), tokio::spawn(admin));
        let chores = [
            tokio::spawn(flush_uses(Arc::clone(&authentication))),
            tokio::spawn(drop_old_deliveries(Arc::clone(&store), clock)),
        ];
        readiness.set_serving(true);
        tracing::info!(address = %self.address, admin = %self.admin_address, "serving");

        end.await;
        tracing::info!("draining");
        readiness.set_serving(false);
        stop_listener(&public_handle).await;
        for chore in chores {
            chore.abort();
        }
        // The hits first: they may make new deliveries, which then wait in the store.
        if counter.kept().ask_once(CountAll).await != Ok(true) {
            tracing::warn!("some hits are left in the journal; the next start counts them");
        }
        counter.stop().await;
        webhooks.stop(WEBHOOKS_END_WITHIN).await;
        shards.stop().await;
        if let Err(error) = authentication.flush_uses().await {
            tracing::warn!(%error, "the last uses of keys were not written");
        }
        // Blocking: it joins the journal's thread, which is at most one msync away.
        drop(tokio::task::spawn_blocking(|| journal.stop()).await);
        store.close().await;
        for arbiter in arbiters {
            arbiter.stop();
        }
        admin_handle.stop(true).await;
        let listeners = [public.await, admin.await];
        tracing::info!("stopped");
        listeners.into_iter().try_for_each(|ended| ended.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

async fn stop_listener(listener: &ServerHandle) {
    // actix ends keep-alive connections as they fall idle and gives up after its own time-out; this is the outer bound.
    if tokio::time::timeout(REQUESTS_END_WITHIN, listener.stop(true)).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

async fn flush_uses(authentication: Arc<Authentication>) {
    loop {
        tokio::time::sleep(FLUSH_USES_EVERY).await;
        if let Err(error) = authentication.flush_uses().await {
            tracing::warn!(%error, "the last uses of keys wait in memory");
        }
    }
}

async fn drop_old_deliveries(store: Arc<dyn Store>, clock: Clock) {
    loop {
        match store.drop_deliveries(first_kept_day(clock.now())).await {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => tokio::time::sleep(DROP_DELIVERIES_EVERY).await,
            Err(error) => {
                tracing::warn!(%error, "old deliveries stay for now");
                tokio::time::sleep(DROP_DELIVERIES_EVERY).await;
            }
        }
    }
}

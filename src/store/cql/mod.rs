//! The store on a CQL cluster: `ScyllaDB`, or Cassandra. Many nodes of the service share it.
//!
//! What decides between nodes is written by LWTs, whose outcome is settled by reading where it is not known. All other
//! writes are the same however often they are made, and carry timestamps that come from what they write, not from a
//! clock: a position in the journal, a hit's time and the number of tries, a key's revision.

mod adoption;
mod children;
mod deliveries;
mod delivery_lists;
mod delivery_quota;
mod delivery_sums;
mod due;
mod hits;
mod keys;
mod labels;
mod lease;
mod link_quota;
mod links;
pub mod migrate;
mod names;
mod outcome;
mod queue;
mod reconnect;
mod retries;
pub mod session;
mod statements;
pub mod transfer;
mod watch;
mod windows;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use futures_util::future::try_join3;
use futures_util::stream;
use moka::sync::Cache;
use scylla::errors::PrepareError;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use thiserror::Error;
use tokio::sync::{Notify, RwLock, Semaphore};
use tokio::task::JoinHandle;
use uuid::Uuid;

use self::children::Makers;
use self::delivery_quota::DeliveryQuotas;
use self::delivery_sums::DeliverySums;
use self::hits::HitRows;
use self::link_quota::LinkQuotas;
use self::outcome::CqlError;
use self::queue::Queues;
use self::session::{Cql, OpenSessionError, ScyllaSettings};
use self::statements::Statements;
use super::reach::Reach;
use super::{
    AdoptionHook, CreateKeyError, CreateLinkError, DeliveryQuery, DriverCounts, DueDelivery, QuotaClaim, Settlement,
    Store, StoreError, UpdateKeyError,
};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, LinkHits, NodeId};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Link, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};

/// Requests of one operation that are under way at once: enough to keep a cluster busy, and not to flood it.
const AT_ONCE: usize = 128;
/// Creations of links that are under way at once.
const MOST_CREATIONS: usize = 1_024;
/// Days of links that are remembered as noted; a row takes some 50 bytes.
const DELIVERY_DAYS_KEPT: u64 = 100_000;
/// How long closing waits for creations under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a start, once it is connected, waits to open its queue on a cluster that can't do its part at the moment, because a
/// node of it has just died: it takes some 20 s until the others no longer count on that one.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Rows, none of which is there, that are read to see whether the cluster answers.
const READY_ROWS: u32 = 16;
/// How long to wait before the cluster is asked again that did not answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Why the store can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Session(#[from] OpenSessionError),
    #[error("the schema is not what this release needs: {0}")]
    Schema(#[from] PrepareError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store on a cluster, as one node of the service has it open.
pub struct ScyllaStore {
    tables: Arc<Tables>,
    /// Keep the queues; they end when the store closes.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// The tables, and what this process knows of its own rows in them.
struct Tables {
    cql: Cql,
    statements: Statements,
    /// This life of this node: who claims and publishes.
    process: Uuid,
    /// The number of this process' last claim, of links or of deliveries.
    last_claim: AtomicI32,
    link_quotas: LinkQuotas,
    creations: Arc<Semaphore>,
    makers: Makers,
    hit_rows: HitRows,
    queues: Queues,
    /// Held by whoever changes what is pending, and alone by whoever counts it.
    changing: RwLock<()>,
    /// Wakes whoever counts what is doubtful.
    doubts: Arc<Notify>,
    beating: tokio::sync::Mutex<()>,
    delivery_quotas: tokio::sync::Mutex<DeliveryQuotas>,
    delivery_sums: DeliverySums,
    /// Days of links that are known to be noted as having deliveries.
    delivery_days: Cache<(ShortId, Day), ()>,
    /// The first day whose deliveries are shown.
    kept_from: AtomicU32,
    /// Later publications of windows win over earlier ones that are late, whatever becomes of the clock.
    window_timestamps: MonotonicTimestampGenerator,
    closing: AtomicBool,
    /// Which row was read last to see whether the cluster answers.
    last_ready: AtomicU32,
}

impl ScyllaStore {
    /// Opens the store for a node. Its schema has to be there.
    pub async fn open(settings: &ScyllaSettings, node: NodeId) -> Result<Self, OpenError> {
        let tables = Arc::new(Tables::connect(settings, node).await?);
        let began = Instant::now();
        while let Err(error) = tables.begin().await {
            match error {
                StoreError::Unavailable(_) if began.elapsed() < START_PATIENCE => {
                    tracing::warn!(%error, "the start waits for the cluster");
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
                error => return Err(error.into()),
            }
        }
        let tasks = tables.keep_queues();
        Ok(Self { tables, tasks: Mutex::new(tasks) })
    }

    /// What is known of the way to the cluster, by every answer.
    pub fn reach(&self) -> Arc<Reach> {
        Arc::clone(&self.tables.cql.reach)
    }

    /// Does something to its end, also where its caller gives up in the middle: what is known here of what is there must
    /// not fall behind.
    async fn to_the_end<R, F>(&self, work: impl FnOnce(Arc<Tables>) -> F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, StoreError>> + Send + 'static,
    {
        let working = tokio::spawn(work(Arc::clone(self.open_tables()?)));
        working.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    /// The tables, unless the store is closed.
    fn open_tables(&self) -> Result<&Arc<Tables>, StoreError> {
        self.tables.check_open()?;
        Ok(&self.tables)
    }
}

impl Tables {
    async fn connect(settings: &ScyllaSettings, node: NodeId) -> Result<Self, OpenError> {
        let cql = Cql::connect(settings).await?;
        let statements = Box::pin(Statements::prepare(&cql)).await?;
        Ok(Self {
            cql,
            statements,
            process: Uuid::new_v4(),
            last_claim: AtomicI32::new(0),
            link_quotas: LinkQuotas::default(),
            creations: Arc::new(Semaphore::new(MOST_CREATIONS)),
            makers: Makers::default(),
            hit_rows: HitRows::default(),
            queues: Queues::new(node.0),
            changing: RwLock::default(),
            doubts: Arc::default(),
            beating: tokio::sync::Mutex::default(),
            delivery_quotas: tokio::sync::Mutex::default(),
            delivery_sums: DeliverySums::default(),
            delivery_days: Cache::new(DELIVERY_DAYS_KEPT),
            kept_from: AtomicU32::new(0),
            window_timestamps: MonotonicTimestampGenerator::new(),
            closing: AtomicBool::new(false),
            last_ready: AtomicU32::new(0),
        })
    }

    /// What has to be there before the first request; may be called again where it failed.
    async fn begin(&self) -> Result<(), StoreError> {
        self.read_first_kept_day().await?;
        self.begin_queues().await
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closing.load(Ordering::Acquire) {
            Err(StoreError::Unavailable("the store is closed".into()))
        } else {
            Ok(())
        }
    }

    /// Does something with each of `items`, many at a time; stops at the first that fails.
    async fn all<T, F>(&self, items: impl IntoIterator<Item = T>, each: impl FnMut(T) -> F) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        stream::iter(items.into_iter().map(Ok)).try_for_each_concurrent(AT_ONCE, each).await
    }

    /// A number for a claim that this process has given to none before.
    fn next_claim(&self) -> i32 {
        self.last_claim.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Asks until the cluster answers, or the store closes: for what must not be left half done.
    async fn until_closed<R, F>(&self, ask: impl Fn() -> F + Send) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, CqlError>> + Send,
    {
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error @ CqlError::Unusable(_)) => return Err(error.into()),
                Err(CqlError::NotApplied(_) | CqlError::Unknown(_)) => {}
            }
            self.check_open()?;
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }
}

#[async_trait]
impl Store for ScyllaStore {
    fn driver_counts(&self) -> Option<DriverCounts> {
        Some(self.tables.cql.driver_counts())
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let tables = self.open_tables()?;
        // Another row each time: where some partitions are out of reach, the cluster as a whole is not.
        let number = tables.last_ready.fetch_add(1, Ordering::Relaxed) % READY_ROWS;
        tables.cql.read_one::<(Option<i64>,)>(&tables.statements.ready, (format!("ready {number}"),)).await?;
        Ok(())
    }

    async fn close(&self) {
        let was_closed = self.tables.closing.swap(true, Ordering::AcqRel);
        let creations = u32::try_from(MOST_CREATIONS).unwrap_or(u32::MAX);
        let ended = tokio::time::timeout(CLOSE_PATIENCE, self.tables.creations.acquire_many(creations)).await;
        if ended.is_err() {
            tracing::warn!("creations of links were cut short; none of them was answered");
        }
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // It was cut off, or had ended.
            let _ = task.await;
        }
        if !was_closed {
            let handed_back = tokio::time::timeout(CLOSE_PATIENCE, self.tables.hand_back()).await;
            if !matches!(handed_back, Ok(Ok(()))) {
                tracing::warn!("this node's queue was not handed back; another node adopts it soon");
            }
        }
    }

    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        self.open_tables()?.put_name(name, value).await
    }

    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        self.open_tables()?.make_link(link, limit).await
    }

    async fn link(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        self.open_tables()?.read_link(id).await
    }

    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError> {
        self.open_tables()?.make_key(&key, limit).await
    }

    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError> {
        self.open_tables()?.close_list(maker).await
    }

    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError> {
        self.open_tables()?.put_changed_key(&key).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.open_tables()?.read_key(id).await
    }

    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError> {
        self.open_tables()?.read_key_by_secret(hash).await
    }

    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.open_tables()?.read_keys_seen_by(viewer, after, limit).await
    }

    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.open_tables()?.write_key_uses(uses).await
    }

    async fn last_uses(&self, keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.open_tables()?.read_last_uses(keys).await
    }

    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        self.open_tables()?.known_cursor(writer).await
    }

    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<(), StoreError> {
        self.to_the_end(|tables| async move { tables.count_batch(&batch).await }).await
    }

    async fn link_hits(&self, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
        self.open_tables()?.read_link_hits(id, with_labels).await
    }

    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
        let tables = self.open_tables()?;
        let (links, hits) = (tables.links_used(key, month), tables.hits_served(key, month));
        let (links_created, hits_served, webhook_deliveries) =
            try_join3(links, hits, tables.deliveries_used(key, month)).await?;
        Ok(MonthlyCounts { links_created, hits_served, webhook_deliveries })
    }

    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DueDelivery>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        self.open_tables()?.read_due(now, after, limit).await
    }

    async fn pending_deliveries(&self) -> Result<u64, StoreError> {
        let tables = self.open_tables()?;
        loop {
            if let Some(pending) = tables.queues.pending(tables.first_kept_day()) {
                return Ok(pending);
            }
            // Adopted queues are being counted.
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
            tables.check_open()?;
        }
    }

    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        self.open_tables()?.read_states(ids).await
    }

    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        self.to_the_end(|tables| async move { tables.claim_deliveries(claims).await }).await
    }

    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        self.to_the_end(|tables| async move { tables.settle(settlements).await }).await
    }

    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        self.open_tables()?.read_summaries(link, since).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        self.open_tables()?.list_deliveries(query).await
    }

    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError> {
        self.open_tables()?.drop_deliveries_before(before).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn on_adoption(&self, tell: AdoptionHook) {
        self.tables.queues.on_adoption(tell);
    }

    async fn share_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        self.open_tables()?.exchange_windows(own).await
    }

    async fn windows_elsewhere(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        self.open_tables()?.read_windows(windows).await
    }
}

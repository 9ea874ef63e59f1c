//! The embedded store: everything on this machine's disk, nothing else to run.
//!
//! Writes go through one thread that commits them in groups (`writer.rs`); reads run on threads of the store's own
//! (`readers.rs`), so that no event loop ever waits for the disk. What memory has of links is told at once (`known_links.rs`).

mod children;
mod counts;
mod creation;
mod days;
mod deliveries;
mod engine;
mod hits;
mod keys;
mod known_links;
mod labels;
mod links;
mod look_ups;
mod overflow;
mod readers;
mod tables;
mod transaction;
mod transfer;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

pub use self::engine::Opened;
use self::engine::{Engine, Gone};
use self::known_links::KnownLinks;
use self::look_ups::LookUps;
use self::readers::Readers;
use self::transaction::{Rows, Transaction};
use self::writer::{Writer, closed};
use super::records::row_keys;
use super::{
    CountStore, CreateKeyError, CreateLinkError, DeliveryQuery, DeliveryStore, DueDelivery, KeyStore, Lifecycle,
    LinkStore, QuotaClaim, Settlement, SharedNode, StoreError, UpdateKeyError,
};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, LinkHits, NodeId};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Destination, Link, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};

/// How long readiness waits for its turn among the writes.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// How long closing waits for reads and writes under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// A store in a directory of this machine. One process at a time may have it open.
pub struct EmbeddedStore {
    open: Mutex<Option<Open>>,
    look_ups: LookUps,
    readers: Readers,
    known_links: Arc<KnownLinks>,
}

struct Open {
    engine: Arc<Engine>,
    writer: Writer,
    gone: Gone,
}

impl EmbeddedStore {
    /// Opens or creates the store in `directory`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where the directory can't be used or another process has it open.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        Self::of(Opened::in_directory(directory, cache_bytes)?)
    }

    /// The store of a database that is opened already, for use.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where the database can't be used.
    pub fn of(opened: Opened) -> Result<Self, StoreError> {
        let (engine, gone) = opened.into_engine()?;
        let engine = Arc::new(engine);
        known_links::complete(&engine);
        let known_links = Arc::clone(&engine.known_links);
        let no_thread = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        let readers = Readers::start().map_err(no_thread)?;
        let writer = Writer::start(Arc::clone(&engine)).map_err(no_thread)?;
        let look_ups = LookUps::new(readers.look_ups().clone());
        Ok(Self { open: Mutex::new(Some(Open { engine, writer, gone })), look_ups, readers, known_links })
    }

    /// The files that are kept beside the store's directory.
    pub fn files_beside(directory: &Path) -> [PathBuf; 2] {
        known_links::files(directory)
    }

    fn with_open<R>(&self, get: impl FnOnce(&Open) -> R) -> Result<R, StoreError> {
        // Nothing panics while this lock is held.
        let open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        open.as_ref().map(get).ok_or_else(closed)
    }

    async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let engine = self.with_open(|open| Arc::clone(&open.engine))?;
        self.readers.reads().read(move || read(&engine)).await
    }

    async fn write<R, E, W>(&self, write: W) -> Result<Result<R, E>, StoreError>
    where
        R: Send + 'static,
        E: Send + 'static,
        W: FnMut(&Engine, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send + 'static,
    {
        let writer = self.with_open(|open| open.writer.clone())?;
        writer.run(write).await
    }

    /// A write that is never refused.
    async fn put<R: Send + 'static>(
        &self,
        mut write: impl FnMut(&Engine, &mut Transaction<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let outcome =
            self.write(move |engine, transaction| write(engine, transaction).map(Ok::<R, std::convert::Infallible>));
        outcome.await.map(|Ok(answer)| answer)
    }
}

#[async_trait]
impl Lifecycle for EmbeddedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        // On the writing thread: a probe that gets through shows that writes do, and one that is stuck costs no thread.
        let probed = self.put(|engine, _| engine.probe());
        let late = |_| Err(StoreError::Unavailable("no write gets through".into()));
        tokio::time::timeout(PROBE_PATIENCE, probed).await.unwrap_or_else(late)
    }

    async fn close(&self) {
        let open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(Open { engine, writer, gone }) = open else { return };
        // The writing thread still has the engine: it ends with what was asked of it, so nothing is closed here.
        drop((engine, writer));
        let ended = async {
            drop(gone.await);
            self.readers.end().await;
        };
        if tokio::time::timeout(CLOSE_PATIENCE, ended).await.is_err() {
            tracing::error!("store: not closed within the shutdown timeout; all answered writes are durable");
        }
    }
}

#[async_trait]
impl SharedNode for EmbeddedStore {
    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        self.put(move |engine, transaction| {
            let key = row_keys::name(name);
            if let Some(kept) = transaction.row(&engine.tables.meta, &key)? {
                return Ok(kept.to_vec());
            }
            transaction.insert(&engine.tables.meta, key, value.as_slice())?;
            Ok(value.clone())
        })
        .await
    }
}

#[async_trait]
impl LinkStore for EmbeddedStore {
    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        self.write(move |engine, transaction| links::create(engine, transaction, &link, limit)).await?
    }

    async fn link(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let engine = self.with_open(|open| Arc::clone(&open.engine))?;
        self.look_ups.link(engine, id).await
    }

    fn definitely_absent(&self, id: ShortId) -> bool {
        self.known_links.lacks(id)
    }

    fn peek(&self, id: ShortId) -> Option<Destination> {
        self.known_links.get(id)
    }
}

#[async_trait]
impl KeyStore for EmbeddedStore {
    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError> {
        self.write(move |engine, transaction| keys::create(engine, transaction, &key, limit)).await?
    }

    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError> {
        self.put(move |engine, transaction| children::close(engine, transaction, maker)).await
    }

    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError> {
        self.write(move |engine, transaction| keys::update(engine, transaction, &key)).await?
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |engine| keys::get(engine, id)).await
    }

    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |engine| keys::by_secret(engine, &hash)).await
    }

    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |engine| keys::seen_by(engine, viewer, after, limit)).await
    }

    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.put(move |engine, transaction| keys::note_uses(engine, transaction, &uses)).await
    }

    async fn last_uses(&self, ids: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.read(move |engine| keys::last_uses(engine, &ids)).await
    }
}

#[async_trait]
impl CountStore for EmbeddedStore {
    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        // A batch is counted in one transaction: none is ever begun and not counted.
        self.read(move |engine| hits::cursor(engine, writer)).await.map(HitCursor::from)
    }

    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<(), StoreError> {
        self.put(move |engine, transaction| hits::apply(engine, transaction, &batch)).await
    }

    async fn link_hits(&self, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
        self.read(move |engine| hits::of_link(engine, id, with_labels)).await
    }

    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
        self.read(move |engine| links::monthly_counts(engine, key, month)).await
    }
}

#[async_trait]
impl DeliveryStore for EmbeddedStore {
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DueDelivery>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        self.read(move |engine| deliveries::due(engine, now, after.as_ref(), limit)).await
    }

    async fn pending_deliveries(&self) -> Result<u64, StoreError> {
        self.read(|engine| deliveries::pending(engine, &engine.database.snapshot())).await
    }

    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        self.read(move |engine| deliveries::states(engine, &ids)).await
    }

    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        self.put(move |engine, transaction| deliveries::claim_quota(engine, transaction, &claims)).await
    }

    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        self.put(move |engine, transaction| deliveries::settle(engine, transaction, &settlements)).await
    }

    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        self.read(move |engine| deliveries::summaries(engine, link, since)).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        self.read(move |engine| deliveries::list(engine, &query)).await
    }

    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError> {
        self.put(move |engine, transaction| deliveries::drop_before(engine, transaction, before)).await
    }
}

//! The embedded store: everything on this machine's disk, without another service.
//!
//! One thread commits writes in groups (`writer.rs`); reads run on the store's own threads (`readers.rs`), so that no
//! event loop waits for the disk. Links in memory are answered without a thread (`known_links.rs`).
//!
//! From bottom to top: the engine and its keyspaces (`engine.rs`, `keyspaces.rs`), transactions, one small type for
//! each table, all of them (`tables.rs`), the threads, the store.

mod analytics;
mod children;
mod count_store;
mod counts;
mod creation;
mod database;
mod days;
mod deliveries;
mod delivery_lists;
mod delivery_replays;
mod delivery_store;
mod delivery_sums;
mod engine;
mod failure_runs;
mod first_tries;
mod hits;
mod idle;
mod key_uses;
mod keys;
mod keyspaces;
mod known_links;
mod labels;
mod lifecycle;
mod link_index;
mod link_lists;
mod link_names;
mod link_remains;
mod link_revisions;
mod links;
mod list_fill;
mod look_ups;
mod names;
mod once;
mod overflow;
mod readers;
mod sheets;
mod snapshots;
mod tables;
mod transaction;
mod transfer;
mod usage;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fjall::Snapshot;

use self::database::closed;
use self::engine::Gone;
pub use self::engine::Opened;
use self::known_links::KnownLinks;
use self::list_fill::ListProgress;
use self::look_ups::{LinkKey, LookUps};
use self::once::OnceUnderWay;
use self::readers::Readers;
use self::tables::EmbeddedTables;
use self::transaction::Transaction;
#[doc(hidden)]
pub use self::writer::ManualWriter;
use self::writer::Writer;
use super::once::{AnswerOfKey, AnswerOfLinks, OnceDone, OnceState, OnceTicket};
use super::transfer::LAST_START;
use super::{
    CreateKeyError, CreateLinkError, ExpiredLink, ExtendKeyError, KeyStore, LinkListPage, LinkListQuery, LinkStore,
    MadeLinks, NewLinks, OnceStore, SharedNode, StoreError, UpdateKeyError, UpdateLinkError,
};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::OnceRequest;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Destination, Link, LinkName, Revision, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyLimit};
use crate::locks::lock;

/// A store in a directory of this machine. One process at a time may have it open.
pub struct EmbeddedStore {
    open: Mutex<Option<OpenStore>>,
    look_ups: LookUps,
    readers: Readers,
    known_links: Arc<KnownLinks>,
    once_under_way: Arc<OnceUnderWay>,
    listed: Arc<ListProgress>,
}

struct OpenStore {
    tables: Arc<EmbeddedTables>,
    writer: Writer,
    gone: Gone,
}

impl EmbeddedStore {
    /// Opens or creates the store in `directory`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the directory can't be used or another process has it open.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        Self::of(Opened::in_directory(directory, cache_bytes)?)
    }

    /// The store of an open database.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the database can't be used.
    pub fn of(opened: Opened) -> Result<Self, StoreError> {
        Ok(Self::with_writer(opened, |tables| Ok((Writer::start(tables)?, ())))?.0)
    }

    /// The same, with writes that are committed by [`ManualWriter::commit`].
    #[doc(hidden)]
    pub fn with_manual_writer(opened: Opened) -> Result<(Self, ManualWriter), StoreError> {
        Self::with_writer(opened, |tables| Ok(Writer::manual(tables)))
    }

    fn with_writer<B>(
        opened: Opened,
        writer: impl FnOnce(Arc<EmbeddedTables>) -> std::io::Result<(Writer, B)>,
    ) -> Result<(Self, B), StoreError> {
        let (engine, gone) = opened.into_engine()?;
        let tables = Arc::new(EmbeddedTables::new(engine));
        tables.deliveries.queue_left(&tables.engine)?;
        link_index::rebuild(&tables.engine);
        let listed = list_fill::fill(&tables);
        let known_links = Arc::clone(&tables.engine.known_links);
        let no_thread = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        let readers = Readers::start().map_err(no_thread)?;
        let (writer, beside) = writer(Arc::clone(&tables)).map_err(no_thread)?;
        let look_ups = LookUps::new(readers.look_ups().clone());
        let store = Self {
            open: Mutex::new(Some(OpenStore { tables, writer, gone })),
            look_ups,
            readers,
            known_links,
            once_under_way: Arc::default(),
            listed,
        };
        Ok((store, beside))
    }

    /// The files beside the store's directory.
    pub fn files_beside(directory: &Path) -> [PathBuf; 2] {
        known_links::files(directory)
    }

    fn with_open<R>(&self, get: impl FnOnce(&OpenStore) -> R) -> Result<R, StoreError> {
        let open = lock(&self.open);
        open.as_ref().map(get).ok_or_else(closed)
    }

    async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&EmbeddedTables, &Snapshot) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.read_with(|_| (), move |tables, snapshot, ()| read(tables, snapshot)).await
    }

    /// As [`read`](Self::read), with what is in memory before the snapshot is taken.
    async fn read_with<M, R: Send + 'static>(
        &self,
        in_memory: impl FnOnce(&EmbeddedTables) -> M + Send + 'static,
        read: impl FnOnce(&EmbeddedTables, &Snapshot, M) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let tables = self.with_open(|open| Arc::clone(&open.tables))?;
        let read = move || {
            let in_memory = in_memory(&tables);
            read(&tables, &tables.snapshot(), in_memory)
        };
        self.readers.reads().read(read).await
    }

    async fn write<R, E, W>(&self, write: W) -> Result<Result<R, E>, StoreError>
    where
        R: Send + 'static,
        E: Send + 'static,
        W: FnMut(&EmbeddedTables, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send + 'static,
    {
        let writer = self.with_open(|open| open.writer.clone())?;
        writer.run(write).await
    }

    /// A write that is never refused.
    async fn put<R: Send + 'static>(
        &self,
        mut write: impl FnMut(&EmbeddedTables, &mut Transaction<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let outcome =
            self.write(move |tables, transaction| write(tables, transaction).map(Ok::<R, std::convert::Infallible>));
        outcome.await.map(|Ok(answer)| answer)
    }
}

#[async_trait]
impl SharedNode for EmbeddedStore {
    async fn note_start(&self, now: Timestamp) -> Result<(), StoreError> {
        self.put(move |tables, transaction| tables.names.raise(transaction, LAST_START, now.0)).await
    }

    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        self.put(move |tables, transaction| tables.names.put_if_absent(transaction, name, &value)).await
    }
}

#[async_trait]
impl LinkStore for EmbeddedStore {
    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        self.write(move |tables, transaction| tables.links.create(transaction, &link, limit)).await?
    }

    async fn create_links(&self, new: NewLinks, limit: MonthlyLimit) -> Result<MadeLinks, StoreError> {
        self.put(move |tables, transaction| tables.links.create_all(transaction, &new, limit)).await
    }

    async fn link(&self, name: LinkName) -> Result<Option<Link>, StoreError> {
        let tables = self.with_open(|open| Arc::clone(&open.tables))?;
        self.look_ups.link(tables, LinkKey::Name(name)).await
    }

    async fn link_by_id(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        let tables = self.with_open(|open| Arc::clone(&open.tables))?;
        self.look_ups.link(tables, LinkKey::Id(id)).await
    }

    async fn link_at(&self, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError> {
        let tables = self.with_open(|open| Arc::clone(&open.tables))?;
        self.look_ups.link(tables, LinkKey::Revision(id, revision)).await
    }

    async fn update_link(&self, link: Link) -> Result<(), UpdateLinkError> {
        self.write(move |tables, transaction| tables.links.update(transaction, &link)).await?
    }

    async fn delete_link(&self, link: Link) -> Result<(), UpdateLinkError> {
        self.write(move |tables, transaction| tables.links.delete(transaction, &link)).await?
    }

    async fn remove_counts_of_deleted(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.put(move |tables, transaction| tables.link_remains.remove(transaction, before)).await
    }

    async fn expired_links(
        &self,
        before: Timestamp,
        after: Option<ExpiredLink>,
        limit: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError> {
        self.read(move |tables, snapshot| tables.links.expired(snapshot, before, after, limit)).await
    }

    async fn forget_expiry(&self, _: ExpiredLink) -> Result<(), StoreError> {
        // It changes in one transaction with the link.
        Ok(())
    }

    async fn list_links(&self, query: LinkListQuery) -> Result<LinkListPage, StoreError> {
        self.read(move |tables, snapshot| tables.links.list(snapshot, &query)).await
    }

    fn link_lists_percent(&self) -> u8 {
        self.listed.percent()
    }

    fn definitely_absent(&self, name: &LinkName) -> bool {
        self.known_links.lacks(name)
    }

    fn peek(&self, name: &LinkName) -> Option<Destination> {
        self.known_links.get(name)
    }
}

#[async_trait]
impl OnceStore for EmbeddedStore {
    async fn begin_once(&self, request: OnceRequest) -> Result<OnceState, StoreError> {
        let begun = self.once_under_way.begin(&request);
        let asked = request.clone();
        // Also if another one is registered, which may only be about to look up the same answer.
        let stored = self.read(move |tables, snapshot| tables.once.state(snapshot, &asked)).await?;
        Ok(stored
            .unwrap_or_else(|| begun.map_or_else(|state| *state, |guard| OnceState::Begun(guard.into_ticket(request)))))
    }

    async fn look_up_once(&self, request: OnceRequest) -> Result<Option<OnceState>, StoreError> {
        // First: whoever is registered no longer has written its answer.
        let under_way = self.once_under_way.look_up(&request);
        let stored = self.read(move |tables, snapshot| tables.once.state(snapshot, &request)).await?;
        Ok(stored.or(under_way))
    }

    async fn cut_off_once(&self, _: OnceRequest) -> Result<Option<Timestamp>, StoreError> {
        // An attempt that was cut off has made all or nothing.
        Ok(None)
    }

    async fn end_once(&self, ticket: OnceTicket) -> Result<(), StoreError> {
        // Nothing is written before it is done.
        drop(ticket);
        Ok(())
    }

    async fn create_links_once(
        &self,
        ticket: OnceTicket,
        new: NewLinks,
        limit: MonthlyLimit,
        answer: AnswerOfLinks,
    ) -> Result<OnceDone<MadeLinks>, StoreError> {
        self.put(move |tables, transaction| {
            let made = tables.links.create_all(transaction, &new, limit)?;
            if made.links.iter().any(Result::is_ok) {
                tables.once.put(transaction, &ticket, answer(&made))?;
            }
            Ok(OnceDone::Done(made))
        })
        .await
    }

    async fn create_key_once(
        &self,
        ticket: OnceTicket,
        key: ApiKey,
        limit: KeyLimit,
        answer: AnswerOfKey,
    ) -> Result<OnceDone<ApiKey>, CreateKeyError> {
        self.write(move |tables, transaction| {
            let created = tables.children.create_key(transaction, &key, limit)?;
            if created.is_ok() {
                tables.once.put(transaction, &ticket, answer(&key))?;
            }
            Ok(created.map(|()| OnceDone::Done(key.clone())))
        })
        .await?
    }

    async fn drop_answers(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.put(move |tables, transaction| tables.once.remove(transaction, before)).await
    }
}

#[async_trait]
impl KeyStore for EmbeddedStore {
    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError> {
        self.write(move |tables, transaction| tables.children.create_key(transaction, &key, limit)).await?
    }

    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError> {
        self.put(move |tables, transaction| tables.children.close(transaction, maker)).await
    }

    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError> {
        self.write(move |tables, transaction| tables.keys.update(transaction, &key)).await?
    }

    async fn extend_key(&self, key: ApiKey, limit: KeyLimit, now: Timestamp) -> Result<(), ExtendKeyError> {
        self.write(move |tables, transaction| tables.children.extend_key(transaction, &key, limit, now)).await?
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |tables, snapshot| tables.keys.get(snapshot, id)).await
    }

    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError> {
        self.read(move |tables, snapshot| tables.keys.by_secret(snapshot, &hash)).await
    }

    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |tables, snapshot| tables.keys.seen_by(snapshot, viewer, after, limit)).await
    }

    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.put(move |tables, transaction| tables.key_uses.note(transaction, &uses)).await
    }

    async fn last_uses(&self, ids: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.read(move |tables, snapshot| tables.key_uses.last_uses(snapshot, &ids)).await
    }
}

//! The store on a CQL cluster: `ScyllaDB`, or Cassandra. Many nodes of the service share it.
//!
//! What nodes compete for is written by LWTs; an unknown outcome is settled by reading. All other writes are
//! idempotent: their timestamps are derived from their content and not from a clock (a position in the journal, a hit's
//! time and the number of attempts, a key's revision).

mod adoption;
mod children;
mod cluster;
mod count_store;
mod datacenters;
mod days;
mod deliveries;
mod delivery_lists;
mod delivery_outcomes;
mod delivery_quota;
mod delivery_replays;
mod delivery_sums;
mod delivery_timestamps;
mod driver_counts;
mod due;
mod enqueue;
mod failure_runs;
mod hit_streams;
mod hits;
mod in_use;
mod keys;
mod label_rows;
mod lease;
mod link_batches;
mod link_changes;
mod link_feed;
mod link_list_fill;
mod link_list_gather;
mod link_list_reads;
mod link_list_slugs;
mod link_list_times;
mod link_lists;
mod link_names;
mod link_once;
mod link_quota;
mod link_quota_once;
mod link_remains;
mod link_times;
mod links;
mod lwt_quota;
pub mod migrate;
mod names;
mod once;
mod outcome;
mod own_rows;
mod pause;
mod placed;
mod queue;
mod reconnect;
mod replay_turns;
mod retries;
pub mod session;
mod sheet_reads;
mod sheet_rows;
mod sheets;
mod statements;
mod tables;
pub mod transfer;
mod watch;
mod windows;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinHandle;

use self::cluster::ASK_AGAIN_AFTER;
pub use self::cluster::OpenError;
use self::session::ScyllaSettings;
use self::tables::CqlTables;
use super::once::{AnswerOfKey, AnswerOfLinks, OnceDone, OnceState, OnceTicket};
use super::reach::Reach;
use super::transfer::LAST_START;
use super::{
    AdoptionHook, CreateKeyError, CreateLinkError, DeliveryQuery, DeliveryStore, DriverCounts, DueDelivery, DuePlace,
    ExpiredLink, ExtendKeyError, KeyStore, Lifecycle, LinkChangeHook, LinkListPage, LinkListQuery, LinkStore,
    MadeLinks, NewLinks, OnceStore, QuotaClaim, Replay, SettledPage, SettledQuery, Settlement, SharedNode, StoreError,
    TestClaim, UpdateKeyError, UpdateLinkError,
};
use crate::domain::calendar::{Day, Timestamp};
use crate::domain::hit::NodeId;
use crate::domain::idempotency::OnceRequest;
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Link, LinkName, Revision, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyLimit};
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};
use crate::locks::lock;

/// How long closing waits for creations under way, and then until the queue is released. The drain has 5 s for both.
const CREATIONS_END_WITHIN: Duration = Duration::from_millis(2_500);
const QUEUE_RELEASED_WITHIN: Duration = Duration::from_secs(2);
/// How long a start waits after it is connected until it can open its queue. If a node of the cluster has just died, it
/// takes some 20 s until the others treat it as down.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// A store on a cluster, as one node of the service has it open.
pub struct ScyllaStore {
    tables: Arc<CqlTables>,
    /// Keep the queues; aborted when the store closes.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl ScyllaStore {
    /// Opens the store for a node. Its schema must exist.
    pub async fn open(settings: &ScyllaSettings, node: NodeId) -> Result<Self, OpenError> {
        let tables = Arc::new(CqlTables::connect(settings, node).await?);
        // Queues of ended processes are taken over at once, and their last changes appended again.
        let appending = tables.start_appending();
        let began = Instant::now();
        while let Err(error) = tables.begin().await {
            match error {
                StoreError::Unavailable(_) if began.elapsed() < START_PATIENCE => {
                    tracing::warn!(%error, "waiting for the cluster");
                    tokio::time::sleep(ASK_AGAIN_AFTER).await;
                }
                error => return Err(error.into()),
            }
        }
        let mut tasks = tables.start_tasks();
        tasks.push(appending);
        Ok(Self { tables, tasks: Mutex::new(tasks) })
    }

    /// Whether the cluster is reachable, updated by every answer.
    pub fn reach(&self) -> Arc<Reach> {
        Arc::clone(&self.tables.cluster.cql.reach)
    }

    /// Completes an operation even if its caller is cancelled: the state in memory must not differ from the cluster's.
    async fn run_to_completion<R, F>(&self, work: impl FnOnce(Arc<CqlTables>) -> F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, StoreError>> + Send + 'static,
    {
        let working = tokio::spawn(work(Arc::clone(self.open_tables()?)));
        working.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    /// The tables, unless the store is closed.
    fn open_tables(&self) -> Result<&Arc<CqlTables>, StoreError> {
        self.tables.cluster.check_open()?;
        Ok(&self.tables)
    }
}

#[async_trait]
impl Lifecycle for ScyllaStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.open_tables()?.cluster.ready().await
    }

    async fn close(&self) {
        let was_closed = self.tables.cluster.close();
        let have_ended = tokio::time::timeout(CREATIONS_END_WITHIN, self.tables.links.end()).await.is_ok();
        if !have_ended {
            tracing::warn!("some creations and changes of links were aborted; none of them was answered");
        }
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            task.abort();
            // It was aborted, or had ended.
            let _ = task.await;
        }
        // Who takes over the queue of a process that did not release it also reports the changes that it has begun.
        if !was_closed && have_ended {
            let released = tokio::time::timeout(QUEUE_RELEASED_WITHIN, self.tables.leases.release_queues()).await;
            if !matches!(released, Ok(Ok(()))) {
                tracing::warn!("can't release this node's webhook queue; another node takes it over soon");
            }
        }
    }

    fn driver_counts(&self) -> Option<DriverCounts> {
        Some(self.tables.cluster.cql.driver_counts())
    }
}

#[async_trait]
impl SharedNode for ScyllaStore {
    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        self.open_tables()?.names.put_name(name, value).await
    }

    async fn note_start(&self, now: Timestamp) -> Result<(), StoreError> {
        let names = &self.open_tables()?.names;
        // Also if the clock was set back since the last start.
        let number = now.0.max(names.mark(LAST_START).await? + 1);
        names.raise_mark(LAST_START, number).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn share_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        self.open_tables()?.windows.exchange_windows(own).await
    }

    async fn windows_elsewhere(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        self.open_tables()?.windows.read_windows(windows).await
    }
}

#[async_trait]
impl LinkStore for ScyllaStore {
    async fn create_links(&self, new: NewLinks, limit: MonthlyLimit) -> Result<MadeLinks, StoreError> {
        self.open_tables()?.links.make_links(new, limit).await
    }

    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError> {
        self.open_tables()?.links.make_link(link, limit).await
    }

    async fn link(&self, name: LinkName) -> Result<Option<Link>, StoreError> {
        self.open_tables()?.links.read_link(&name).await
    }

    async fn link_by_id(&self, id: ShortId) -> Result<Option<Link>, StoreError> {
        self.open_tables()?.links.read_by_id(id).await
    }

    async fn link_at(&self, id: ShortId, revision: Revision) -> Result<Option<Link>, StoreError> {
        self.open_tables()?.links.read_at(id, revision).await
    }

    async fn update_link(&self, link: Link) -> Result<(), UpdateLinkError> {
        self.open_tables()?.links.update(link).await
    }

    async fn delete_link(&self, link: Link) -> Result<(), UpdateLinkError> {
        self.open_tables()?.links.delete(link).await
    }

    async fn remove_counts_of_deleted(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.open_tables()?.links.times.remove_counts(before).await
    }

    async fn expired_links(
        &self,
        before: Timestamp,
        after: Option<ExpiredLink>,
        limit: usize,
    ) -> Result<Vec<ExpiredLink>, StoreError> {
        self.open_tables()?.links.times.expired(before, after, limit).await
    }

    async fn forget_expiry(&self, expired: ExpiredLink) -> Result<(), StoreError> {
        self.open_tables()?.links.forget_expiry(expired).await
    }

    async fn list_links(&self, query: LinkListQuery) -> Result<LinkListPage, StoreError> {
        let tables = self.open_tables()?;
        tables.list_fill.check_done()?;
        tables.links.list(&query).await
    }

    fn link_lists_percent(&self) -> u8 {
        self.tables.list_fill.percent()
    }

    fn on_link_change(&self, hook: LinkChangeHook) {
        self.tables.link_feed.set_hook(hook);
    }

    fn link_changes_age(&self) -> Option<Duration> {
        Some(self.tables.link_feed.age())
    }
}

#[async_trait]
impl OnceStore for ScyllaStore {
    async fn begin_once(&self, request: OnceRequest) -> Result<OnceState, StoreError> {
        self.open_tables()?.once.begin(request).await
    }

    async fn look_up_once(&self, request: OnceRequest) -> Result<Option<OnceState>, StoreError> {
        self.open_tables()?.once.look_up(&request).await
    }

    async fn cut_off_once(&self, request: OnceRequest) -> Result<Option<Timestamp>, StoreError> {
        self.open_tables()?.once.cut_off(&request).await
    }

    async fn end_once(&self, ticket: OnceTicket) -> Result<(), StoreError> {
        self.open_tables()?.once.give_up(&ticket).await
    }

    async fn create_links_once(
        &self,
        ticket: OnceTicket,
        new: NewLinks,
        limit: MonthlyLimit,
        answer: AnswerOfLinks,
    ) -> Result<OnceDone<MadeLinks>, StoreError> {
        let tables = self.open_tables()?;
        tables.links.make_links_once(&tables.once, ticket, new, limit, answer).await
    }

    async fn create_key_once(
        &self,
        ticket: OnceTicket,
        key: ApiKey,
        limit: KeyLimit,
        answer: AnswerOfKey,
    ) -> Result<OnceDone<ApiKey>, CreateKeyError> {
        let tables = self.open_tables()?;
        tables.once.make_key(&tables.keys, &ticket, &key, limit, &answer).await
    }

    async fn drop_answers(&self, _: Timestamp) -> Result<bool, StoreError> {
        // They expire by themselves.
        Ok(false)
    }
}

#[async_trait]
impl KeyStore for ScyllaStore {
    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError> {
        self.open_tables()?.keys.make_key(&key, limit).await
    }

    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError> {
        self.open_tables()?.keys.close_list(maker).await
    }

    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError> {
        self.open_tables()?.keys.put_changed_key(&key).await
    }

    async fn extend_key(&self, key: ApiKey, limit: KeyLimit, now: Timestamp) -> Result<(), ExtendKeyError> {
        self.open_tables()?.keys.put_extended_key(&key, limit, now).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        self.open_tables()?.keys.read_key(id).await
    }

    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError> {
        self.open_tables()?.keys.read_key_by_secret(hash).await
    }

    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError> {
        self.open_tables()?.keys.read_keys_seen_by(viewer, after, limit).await
    }

    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.open_tables()?.keys.write_key_uses(uses).await
    }

    async fn last_uses(&self, keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.open_tables()?.keys.read_last_uses(keys).await
    }
}

#[async_trait]
impl DeliveryStore for ScyllaStore {
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        self.open_tables()?.deliveries.read_due(now, after, limit).await
    }

    async fn pending_deliveries(&self) -> Result<u64, StoreError> {
        let tables = self.open_tables()?;
        loop {
            if let Some(pending) = tables.leases.queues.pending(tables.deliveries.first_kept_day()) {
                return Ok(pending);
            }
            // Adopted queues are being counted.
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
            tables.cluster.check_open()?;
        }
    }

    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        self.open_tables()?.deliveries.read_states(ids).await
    }

    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        self.run_to_completion(|tables| async move { tables.delivery_quotas.claim_deliveries(claims).await }).await
    }

    async fn claim_test_quota(&self, claim: TestClaim) -> Result<u64, StoreError> {
        self.run_to_completion(|tables| async move { tables.delivery_quotas.claim_tests(claim).await }).await
    }

    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        self.run_to_completion(|tables| async move { tables.deliveries.settle(settlements).await }).await
    }

    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        self.open_tables()?.deliveries.read_summaries(link, since).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        self.open_tables()?.deliveries.list_deliveries(query).await
    }

    async fn settled_deliveries(&self, query: SettledQuery) -> Result<SettledPage, StoreError> {
        self.open_tables()?.deliveries.read_settled(query).await
    }

    async fn replay_deliveries(&self, replay: Replay) -> Result<u64, StoreError> {
        // A node of 0.1.0 knows no rounds.
        let replay = |tables: Arc<CqlTables>| async move {
            tables.link_feed.check_all_nodes_know_changes()?;
            tables.deliveries.replay(replay).await
        };
        self.run_to_completion(replay).await
    }

    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError> {
        self.open_tables()?.deliveries.drop_deliveries_before(before).await
    }

    fn on_adoption(&self, hook: AdoptionHook) {
        self.tables.leases.queues.on_adoption(hook);
    }
}

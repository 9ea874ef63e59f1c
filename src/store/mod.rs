//! Stores of links, keys, counters and deliveries: a trait for each user, one conformance suite for all stores.

#[macro_use]
mod methods;

pub mod cql;
pub mod embedded;
pub mod faulty;
pub mod hit_streams;
pub mod links;
pub mod metered;
pub mod notes_on_disk;
pub mod once;
pub mod reach;
pub mod records;
pub mod suspensions;
pub mod transfer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

pub use self::hit_streams::HitStreamStore;
pub use self::links::{
    CreateLinkError, ExpiredLink, LinkChange, LinkChangeHook, LinkListPage, LinkListQuery, LinkStore, MAX_REVISIONS,
    MadeLinks, NewLinks, REVISIONS_KEPT_DAYS, UpdateLinkError,
};
pub use self::once::OnceStore;
pub use self::suspensions::{Suspension, SuspensionHook, SuspensionRule, SuspensionStore};
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, HitSubject, LinkHits, NodeId};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Revision, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::series::{SeriesAnswer, SeriesRange};
use crate::domain::tally::BotFilter;
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus, NewDelivery, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};

/// Why the store did not do what was requested.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// Unreachable, overloaded or closed. A write may or may not have been applied.
    #[error("the store is unreachable: {0}")]
    Unavailable(String),
    /// A row that this release can't read, or must not write.
    #[error("unreadable row in {table}: {reason}")]
    Corrupt { table: &'static str, reason: String },
}

/// Why a key was not created.
#[derive(Debug, Error)]
pub enum CreateKeyError {
    /// The key that creates it has as many live keys as it may have.
    #[error("{current} of {limit} live keys are used")]
    QuotaExceeded { limit: u64, current: u64 },
    /// The key that creates it is revoked, or its revocation has begun.
    #[error("the creating key can't create keys any more")]
    MakerEnded,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a key was not changed.
#[derive(Debug, Error)]
pub enum UpdateKeyError {
    /// The key changed since it was read: read it again.
    #[error("the key changed concurrently")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a key was not changed so that it lives longer.
#[derive(Debug, Error)]
pub enum ExtendKeyError {
    /// The key that created it has as many other live keys as it may have.
    #[error("{current} of {limit} live keys are used")]
    QuotaExceeded { limit: u64, current: u64 },
    /// The key changed since it was read: read it again.
    #[error("the key changed concurrently")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<UpdateKeyError> for ExtendKeyError {
    fn from(error: UpdateKeyError) -> Self {
        match error {
            UpdateKeyError::Conflict => Self::Conflict,
            UpdateKeyError::Store(error) => Self::Store(error),
        }
    }
}

/// A pending delivery that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    pub due_at: Timestamp,
    pub id: DeliveryId,
    /// The revision of the link that the hit met.
    pub revision: Revision,
    /// The round of the delivery.
    pub round: u32,
}

impl DueDelivery {
    /// The first try of a new delivery.
    pub fn first_of(delivery: &NewDelivery) -> Self {
        Self { due_at: delivery.id.hit.at, id: delivery.id, revision: delivery.revision, round: 0 }
    }

    pub fn place(&self) -> DuePlace {
        DuePlace { due_at: self.due_at, id: self.id }
    }
}

/// The place of a delivery in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuePlace {
    pub due_at: Timestamp,
    pub id: DeliveryId,
}

/// A request to count a delivery in its owner's month before its first attempt.
#[derive(Clone, Copy, Debug)]
pub struct QuotaClaim {
    pub id: DeliveryId,
    /// The round to count. A delivery that is in another round is not counted.
    pub round: u32,
    pub month: Month,
    pub limit: MonthlyLimit,
}

/// A request to count tests of webhooks in their owner's month before they are sent. They are no deliveries.
#[derive(Clone, Copy, Debug)]
pub struct TestClaim {
    pub owner: KeyId,
    pub month: Month,
    pub limit: MonthlyLimit,
    pub count: u64,
}

/// The outcome of an attempt, to be written.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: DeliveryId,
    /// The round of the attempt. A delivery that is in another round stays as it is.
    pub round: u32,
    /// The number of the attempt in all rounds, from 1 on; 0 if the quota allowed none. An attempt that is written
    /// already changes nothing, nor does a 0 if the quota has counted the delivery since.
    pub attempt: u32,
    pub outcome: AttemptOutcome,
    pub at: Timestamp,
}

impl Settlement {
    /// When the next attempt is due, if there is one.
    pub fn retry_at(&self) -> Option<Timestamp> {
        match self.outcome {
            AttemptOutcome::Failed { retry_in: Some(delay), .. } => Some(self.at.plus(delay)),
            _ => None,
        }
    }
}

/// Which deliveries of a link to list.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryQuery {
    pub link: ShortId,
    pub status: Option<DeliveryStatus>,
    /// Only those after this one in the order of the list.
    pub after: Option<DeliveryId>,
    /// Only hits from this day on.
    pub since: Day,
    pub limit: usize,
}

/// Which settled deliveries of a link to look for.
#[derive(Clone, Copy, Debug)]
pub struct SettledQuery {
    pub link: ShortId,
    /// `None`: delivered and failed ones.
    pub status: Option<DeliveryStatus>,
    /// Only hits from this time on.
    pub from: Timestamp,
    /// Only hits before this time.
    pub until: Timestamp,
    /// Only those after this one, oldest first.
    pub after: Option<DeliveryId>,
    /// The largest number of deliveries to look at.
    pub limit: usize,
}

/// Settled deliveries, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledPage {
    pub found: Vec<DeliveryId>,
    /// The delivery after which the next page begins; `None`: there are no more.
    pub next: Option<DeliveryId>,
}

/// Settled deliveries of a link to be queued again.
#[derive(Clone, Debug)]
pub struct Replay {
    pub link: ShortId,
    /// In the order in which they are to begin.
    pub ids: Vec<DeliveryId>,
    pub at: Timestamp,
}

impl Replay {
    /// When each of them is due: by their order, and all of them by now.
    pub fn due_times(&self) -> impl Iterator<Item = (DeliveryId, Timestamp)> {
        let due = (0..self.ids.len() as u64).rev().map(|later| Timestamp(self.at.0.saturating_sub(later)));
        self.ids.iter().copied().zip(due)
    }
}

/// Deliveries that are kept for their first try and are to be in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstTriesToQueue {
    All,
    /// Those that are kept for so long.
    OlderThan(Duration),
    These(Vec<DeliveryId>),
}

/// The counts of a store's driver since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounts {
    pub queries: u64,
    pub errors: u64,
    pub retries: u64,
    pub request_timeouts: u64,
    pub connection_timeouts: u64,
    /// Open now.
    pub connections: u64,
}

/// Called when deliveries were adopted, with the earliest due time.
pub type AdoptionHook = Box<dyn Fn(Timestamp) + Send + Sync>;

/// Stores everything that must outlive the process: the traits below together.
///
/// Every write that returns `Ok` is durable. Reads see every write that returned before them.
pub trait Store:
    Lifecycle + SharedNode + LinkStore + OnceStore + KeyStore + CountStore + DeliveryStore + HitStreamStore
{
}

impl<S> Store for S where
    S: Lifecycle + SharedNode + LinkStore + OnceStore + KeyStore + CountStore + DeliveryStore + HitStreamStore
{
}

/// Readiness and closing.
#[async_trait]
pub trait Lifecycle: Send + Sync + 'static {
    /// Whether the store can serve requests now.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Flushes and closes; later calls return [`StoreError::Unavailable`].
    async fn close(&self);

    /// The counts of the driver, if the store has one.
    fn driver_counts(&self) -> Option<DriverCounts> {
        None
    }
}

/// What the nodes of a service share.
#[async_trait]
pub trait SharedNode: Send + Sync + 'static {
    /// Stores `value` under `name` unless the name has a value; returns the value that it has then.
    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError>;

    /// Notes that a node serves from the store from now on: raises [`LAST_START`](transfer::LAST_START).
    async fn note_start(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Whether other nodes may serve from the same store: then this node must publish what they need from its memory.
    fn is_shared(&self) -> bool {
        false
    }

    /// Publishes the requests that this node has recently admitted, which replaces its last publication for each key and endpoint. Returns the
    /// logs of the other nodes for the same keys and endpoints: one for each process that has any. A publication expires once no window can
    /// contain it any more. After an error it may be visible all the same.
    async fn share_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        drop(own);
        Ok(Vec::new())
    }

    /// Returns what the other nodes have published for these windows: a log for each process that has any. Publishes nothing.
    async fn windows_elsewhere(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        drop(windows);
        Ok(Vec::new())
    }
}

/// API keys.
#[async_trait]
pub trait KeyStore: Send + Sync + 'static {
    /// Stores a new key. An existing one with the same id stays as it is.
    ///
    /// `limit` is how many keys created by the same key may be live: not revoked, and not expired when this one is
    /// created. A key has a limit for all keys that it creates or, like the root key, for none. Imported keys count.
    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError>;

    /// From now on `maker` creates no key with a limit. Creations under way are refused, or their keys exist already.
    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError>;

    /// Replaces the previous revision of `key`; secrets that `key` does not have any more stop working. It does not
    /// expire later than before: that is [`extend_key`](Self::extend_key). A revoked key creates no more keys, as after
    /// [`stop_key_creation`](Self::stop_key_creation).
    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError>;

    /// Replaces the previous revision of `key`, like [`update_key`](Self::update_key), by one that expires later or
    /// never. It keeps its place among the live keys of the key that created it, or takes one again: another key may
    /// have the place of a key that has expired.
    ///
    /// `limit` is that of a creation. A key that is live at `now` and has its place keeps it, also above the limit. Keys
    /// of a key that creates no more keys can be extended, too.
    async fn extend_key(&self, key: ApiKey, limit: KeyLimit, now: Timestamp) -> Result<(), ExtendKeyError>;

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError>;

    /// The key that has this secret, current or retiring. The caller checks whether it may still be used.
    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError>;

    /// The keys that `viewer` sees and that are not revoked, newest first, after `after`.
    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError>;

    /// Notes when keys were last used; a time earlier than the known one changes nothing.
    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;

    /// When each of `keys` was last used.
    async fn last_uses(&self, keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError>;
}

/// Counts of hits and of monthly use.
#[async_trait]
pub trait CountStore: Send + Sync + 'static {
    /// The position up to which a node's journal is counted.
    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError>;

    /// Adds a batch to the counters and its deliveries to the queue, exactly once however often it is called with the
    /// same batch.
    ///
    /// A batch that does not begin at the writer's cursor changes nothing, nor does one with another end than a batch
    /// that was begun. After an unknown outcome the same batch must be applied again before another.
    ///
    /// Returns when the first of the deliveries in the queue is due; `None` if there are none, or all are kept for their
    /// first try.
    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<Option<Timestamp>, StoreError>;

    /// All hits of a link by day, and the top labels of its lists by the hits that `labels` means, if it is given.
    async fn link_hits(&self, id: ShortId, labels: Option<BotFilter>) -> Result<LinkHits, StoreError>;

    /// The hits of a link or key by interval.
    async fn series(&self, of: HitSubject, range: SeriesRange, bots: BotFilter) -> Result<SeriesAnswer, StoreError>;

    /// The hits of a link or key by one dimension.
    async fn breakdown(
        &self,
        of: HitSubject,
        dimension: Dimension,
        range: BreakdownRange,
    ) -> Result<Breakdown, StoreError>;

    /// Removes sheets of days before `before`, some at a time; `false` when none is left, and of stores whose sheets
    /// expire by themselves.
    async fn drop_sheets(&self, before: Day) -> Result<bool, StoreError>;

    /// What a key has used in a month.
    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError>;
}

/// Deliveries of webhooks.
#[async_trait]
pub trait DeliveryStore: SuspensionStore {
    /// Pending deliveries due at `now` or before, by due time, after `after`.
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DuePlace>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError>;

    /// How many deliveries are pending. It takes constant time.
    async fn pending_deliveries(&self) -> Result<u64, StoreError>;

    /// Reads deliveries; `None` for those that do not exist.
    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError>;

    /// Counts deliveries in their owners' months, each at most once. `false` if the quota is used up.
    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError>;

    /// Counts tests of webhooks like deliveries. Returns how many of them the quota admits; after an error they may be
    /// counted all the same.
    async fn claim_test_quota(&self, claim: TestClaim) -> Result<u64, StoreError>;

    /// Writes outcomes of attempts. A delivery that is no longer pending stays as it is, and so does one whose attempt
    /// of that number is written already.
    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError>;

    /// Sums of a link's deliveries by the index of their URL, for hits from the day `since` on.
    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError>;

    /// Deliveries of a link, newest first.
    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError>;

    /// Looks for settled deliveries of a link, oldest first.
    async fn settled_deliveries(&self, query: SettledQuery) -> Result<SettledPage, StoreError>;

    /// Puts settled deliveries into the queue again, each in its next round. Pending ones stay as they are. Returns how
    /// many were queued; after an error some may be.
    async fn replay_deliveries(&self, replay: Replay) -> Result<u64, StoreError>;

    /// Removes deliveries of hits before the day `before`, settled or not, some at a time; `false` when none is left.
    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError>;

    /// From now on the store may keep so many new deliveries in memory for their first try, instead of in the queue. They
    /// outlive the process all the same, and are in the queue of the next one. With 0 it keeps no more. Not every store
    /// does.
    fn keep_first_tries(&self, room: usize) {
        let _ = room;
    }

    /// The deliveries that the store keeps for their first try, each once.
    fn take_first_tries(&self) -> Vec<DueDelivery> {
        Vec::new()
    }

    /// Puts deliveries that are kept for their first try into the queue, whoever has taken them. Returns when the first of
    /// them is due; after an error some may be in the queue.
    async fn queue_first_tries(&self, which: FirstTriesToQueue) -> Result<Option<Timestamp>, StoreError> {
        drop(which);
        Ok(None)
    }

    /// Calls `hook` with the earliest due time whenever this node takes over deliveries that another one had queued.
    fn on_adoption(&self, hook: AdoptionHook) {
        drop(hook);
    }
}

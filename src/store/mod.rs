//! Where links, keys, counters and deliveries are kept: a trait for each user, one conformance suite, any number of stores.

#[macro_use]
mod methods;

pub mod cql;
pub mod embedded;
pub mod faulty;
pub mod metered;
pub mod reach;
pub mod records;
pub mod transfer;

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, LinkHits, NodeId};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Destination, Link, ShortId};
use crate::domain::quota::{KeyLimit, MonthlyCounts, MonthlyLimit};
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus, UrlSummary};
use crate::domain::window::{WindowId, WindowLog};

/// The store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Out of reach, overloaded or closed. What a write was to change may or may not have changed.
    #[error("the store is unreachable: {0}")]
    Unavailable(String),
    /// A row that this release can't read, or must not write.
    #[error("unreadable row in {table}: {reason}")]
    Corrupt { table: &'static str, reason: String },
}

/// Why a link was not created. Nothing was counted.
#[derive(Debug, Error)]
pub enum CreateLinkError {
    /// Another link has this id: draw a new one.
    #[error("the short id is taken")]
    IdTaken,
    /// The key has used up its month.
    #[error("{current} of {limit} links of the month are used")]
    QuotaExceeded { limit: u64, current: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a key was not created.
#[derive(Debug, Error)]
pub enum CreateKeyError {
    /// The key that makes it has made as many live keys as it may.
    #[error("{current} of {limit} live keys are used")]
    QuotaExceeded { limit: u64, current: u64 },
    /// The key that makes it is revoked, or its revocation has begun.
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

/// A pending delivery whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    pub due_at: Timestamp,
    pub id: DeliveryId,
}

/// Asks that the owner's month counts a delivery before its first try.
#[derive(Clone, Copy, Debug)]
pub struct QuotaClaim {
    pub id: DeliveryId,
    pub month: Month,
    pub limit: MonthlyLimit,
}

/// What became of a try, to be written down.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: DeliveryId,
    /// Which try it was, from 1 on; 0 where the quota allowed none. One that is written down already changes nothing
    /// again, nor does a 0 where the quota has counted the delivery since.
    pub attempt: u32,
    pub outcome: AttemptOutcome,
    pub at: Timestamp,
}

impl Settlement {
    /// When the delivery is tried again, if it is.
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
    /// Only those older than this one in the list's order.
    pub after: Option<DeliveryId>,
    /// Only hits from this day on.
    pub since: Day,
    pub limit: usize,
}

/// What a store's driver has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounts {
    pub queries: u64,
    pub errors: u64,
    pub retries: u64,
    pub request_timeouts: u64,
    pub connection_timeouts: u64,
    /// Now.
    pub connections: u64,
}

/// Is told that deliveries were adopted, the earliest of them due then.
pub type AdoptionHook = Box<dyn Fn(Timestamp) + Send + Sync>;

/// Keeps everything that must outlive the process: what the parts below keep, together.
///
/// Every write that is answered with `Ok` is durable. Reads see every write answered before them.
pub trait Store: Lifecycle + SharedNode + LinkStore + KeyStore + CountStore + DeliveryStore {}

impl<S: Lifecycle + SharedNode + LinkStore + KeyStore + CountStore + DeliveryStore> Store for S {}

/// Whether the store serves, and its end.
#[async_trait]
pub trait Lifecycle: Send + Sync + 'static {
    /// Whether the store can serve now.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Flushes and closes; later calls answer [`StoreError::Unavailable`].
    async fn close(&self);

    /// What the driver has counted, of a store that has one.
    fn driver_counts(&self) -> Option<DriverCounts> {
        None
    }
}

/// What the nodes of a service have in common.
#[async_trait]
pub trait SharedNode: Send + Sync + 'static {
    /// Keeps `value` under `name` unless something is there already; answers what is there then.
    async fn put_if_absent(&self, name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError>;

    /// Whether other nodes may serve from the same store: then they have to be told of what is in this node's memory.
    fn is_shared(&self) -> bool {
        false
    }

    /// Publishes what this node has let in of late, for each key and endpoint in the place of what it published of that one
    /// before, and answers what the other nodes have of the same: a log for each process that has something. It is forgotten
    /// by itself once no window can hold it any more. After an error what was published may be seen all the same.
    async fn share_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        drop(own);
        Ok(Vec::new())
    }

    /// What the other nodes have published of these windows: a log for each process that has something. Publishes nothing.
    async fn windows_elsewhere(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        drop(windows);
        Ok(Vec::new())
    }
}

/// Short links.
#[async_trait]
pub trait LinkStore: Send + Sync + 'static {
    /// Creates a link and counts it in its owner's month, both or neither. Answers the month's count, this one included.
    async fn create_link(&self, link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError>;

    async fn link(&self, id: ShortId) -> Result<Option<Link>, StoreError>;

    /// Whether there is certainly no link with this id, told from memory; `false` where that takes a look.
    fn definitely_absent(&self, id: ShortId) -> bool {
        // Where others make links too, nobody knows without asking.
        let _ = id;
        false
    }

    /// What a redirect needs of a link, where that is told without waiting; `None` says nothing.
    fn peek(&self, id: ShortId) -> Option<Destination> {
        let _ = id;
        None
    }
}

/// API keys.
#[async_trait]
pub trait KeyStore: Send + Sync + 'static {
    /// Keeps a new key. One with the same id already there stays as it is.
    ///
    /// `limit` is how many keys made by the same one may live: neither revoked nor, when this one is created, expired. A key
    /// either has a limit for all that it makes or, as the root has, for none; those that were carried from another store count.
    async fn create_key(&self, key: ApiKey, limit: KeyLimit) -> Result<(), CreateKeyError>;

    /// From now on `maker` makes no key with a limit. Creations under way are refused, or their keys are there already.
    async fn stop_key_creation(&self, maker: KeyId) -> Result<(), StoreError>;

    /// Puts `key` in the place of its revision before; its old secrets stop working where `key` has them no more. A key that is
    /// revoked makes no more keys, as after [`stop_key_creation`](Self::stop_key_creation).
    async fn update_key(&self, key: ApiKey) -> Result<(), UpdateKeyError>;

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError>;

    /// The key that has this secret, current or retiring. Whether it may still be used is for the caller to say.
    async fn key_by_secret(&self, hash: SecretHash) -> Result<Option<ApiKey>, StoreError>;

    /// The keys that `viewer` sees and that are not revoked, newest first, from after `after` on.
    async fn keys_seen_by(&self, viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError>;

    /// Notes when keys were last used; an earlier time than the one known changes nothing.
    async fn note_key_use(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;

    /// When each of `keys` was last used.
    async fn last_uses(&self, keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError>;
}

/// What is counted of hits and of monthly use.
#[async_trait]
pub trait CountStore: Send + Sync + 'static {
    /// Up to where this node's journal is counted.
    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError>;

    /// Adds a batch to the counters and its deliveries to the queue, exactly once however often the same batch comes.
    ///
    /// A batch that does not begin at the writer's cursor changes nothing, nor does one that ends elsewhere than the batch
    /// that was begun. After an unknown outcome the same batch has
    /// to be offered again before another.
    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<(), StoreError>;

    /// What is counted of a link; the label lists only where asked for.
    async fn link_hits(&self, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError>;

    /// What a key has used in a month.
    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError>;
}

/// Deliveries of webhooks.
#[async_trait]
pub trait DeliveryStore: Send + Sync + 'static {
    /// Pending deliveries due at `now` or before, by due time, from after `after` on.
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<DueDelivery>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError>;

    /// How many deliveries are pending. That is a look-up, however many there are.
    async fn pending_deliveries(&self) -> Result<u64, StoreError>;

    /// Reads deliveries; `None` for those that are not there.
    async fn delivery_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError>;

    /// Counts deliveries in their owners' months, each at most once. `false` where the quota is used up.
    async fn claim_delivery_quota(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError>;

    /// Writes down what became of tries. A delivery that is no longer pending stays as it is, and so does one whose try of
    /// that number is written down already.
    async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError>;

    /// Deliveries of a link by the place of their URL, over hits from the day `since` on.
    async fn delivery_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError>;

    /// Deliveries of a link, newest first.
    async fn deliveries(&self, query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError>;

    /// Drops settled and unsettled deliveries of hits before the day `before`, some at a time; `false` when none is left.
    async fn drop_deliveries(&self, before: Day) -> Result<bool, StoreError>;

    /// Has `tell` called with the earliest due time whenever deliveries fall to this node that another one had queued.
    fn on_adoption(&self, tell: AdoptionHook) {
        drop(tell);
    }
}

//! The cache of redirect look-ups in front of the store: links, ids without a link, and one load at a time for each id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::http::HeaderValue;
use foldhash::quality::RandomState;
use moka::Expiry;
use moka::sync::Cache;
use tokio::sync::OnceCell;

use crate::domain::key::KeyId;
use crate::domain::link::{Destination, LinkName, ShortId};
use crate::store::{LinkStore, StoreError};

/// What a redirect needs of a link.
#[derive(Clone, Debug)]
pub struct CachedLink {
    pub id: ShortId,
    pub owner: KeyId,
    /// The link's revision.
    pub revision: u32,
    pub tracked: bool,
    /// How many webhooks a hit fires.
    pub webhooks: u8,
    /// The `Location` header, built once for each load and shared by all answers.
    pub location: HeaderValue,
}

impl CachedLink {
    /// The weight of an entry: 1, plus 1 for every 256 bytes of its target.
    fn weight(&self) -> u32 {
        u32::try_from(1 + self.location.len() / 256).unwrap_or(u32::MAX)
    }

    /// Whether the target has less than 256 bytes.
    pub(super) fn is_short(&self) -> bool {
        self.weight() == 1
    }
}

impl TryFrom<Destination> for CachedLink {
    type Error = StoreError;

    fn try_from(link: Destination) -> Result<Self, StoreError> {
        let Destination { id, owner, revision, tracked, webhooks, target, .. } = link;
        let location = HeaderValue::try_from(target)
            .map_err(|error| StoreError::Corrupt { table: "links", reason: error.to_string() })?;
        Ok(Self { id, owner, revision: revision.0, tracked, webhooks: webhooks.count(), location })
    }
}

/// One of this many links that the store returned from memory is inserted into the cache.
const INSERT_ONE_IN: u64 = 8;

/// A link; `None` if the id has no link.
pub type Entry = Option<Arc<CachedLink>>;
type Load = Arc<OnceCell<Result<Entry, Arc<StoreError>>>>;

/// How long entries are valid. Links never change, so the bound matters only for ids of which another node makes a link
/// later.
#[derive(Clone, Copy, Debug)]
pub struct LinkCacheSettings {
    /// The largest number of entries; a target adds one more for every 256 bytes.
    pub capacity: u64,
    pub found_for: Duration,
    pub missing_for: Duration,
}

/// The cache of redirect look-ups.
///
/// Its hashes have a random key, and clients can't measure a look-up in nanoseconds, so that no client can choose ids
/// that share a slot. The hashes of the standard library took 2 % of a redirect that is not in the cache.
pub struct LinkCache {
    entries: Cache<ShortId, Entry, RandomState>,
    /// Loads in progress. The lock is held for operations on the map only, never across a load.
    loads: Mutex<HashMap<ShortId, Load, RandomState>>,
    /// How many links the store returned from memory.
    peeked: AtomicU64,
    store: Arc<dyn LinkStore>,
}

impl LinkCache {
    pub fn new(store: Arc<dyn LinkStore>, settings: LinkCacheSettings) -> Self {
        let entries = Cache::builder()
            .max_capacity(settings.capacity)
            .weigher(|_, entry: &Entry| entry.as_ref().map_or(1, |link| link.weight()))
            .expire_after(EntryExpiry(settings))
            .build_with_hasher(RandomState::default());
        Self { entries, loads: Mutex::default(), peeked: AtomicU64::new(0), store }
    }

    /// The entry of `id`, without a call of the store; the outer `None` is an id that is not cached.
    ///
    /// An id that is known to be absent takes no entry, so that a flood of such ids replaces no other entry.
    pub fn get(&self, id: ShortId) -> Option<Entry> {
        if self.store.definitely_absent(&id.into()) { Some(None) } else { self.entries.get(&id) }
    }

    /// A link that the store has in memory.
    ///
    /// One in eight is inserted: popular links soon are in the cache, and all others, which the store returns again,
    /// don't cost an insertion and an eviction.
    pub fn take_known(&self, id: ShortId) -> Option<Arc<CachedLink>> {
        // `load` returns an error for a link that can't be answered.
        let link = CachedLink::try_from(self.store.peek(&id.into())?).ok().map(Arc::new)?;
        if self.peeked.fetch_add(1, Ordering::Relaxed).is_multiple_of(INSERT_ONE_IN) {
            self.insert(Arc::clone(&link));
        }
        Some(link)
    }

    /// Asks the store, once for all concurrent callers.
    ///
    /// # Errors
    /// The error of the store, for all callers.
    pub async fn load(&self, id: ShortId) -> Result<Entry, Arc<StoreError>> {
        let load = Arc::clone(self.loads().entry(id).or_default());
        // If this caller is dropped, the others still hold the load.
        let shared = SharedLoad { cache: self, id, load };
        shared.load.get_or_init(|| self.ask_store(id)).await.clone()
    }

    /// Inserts a link that was just created.
    pub fn insert(&self, link: Arc<CachedLink>) {
        self.entries.insert(link.id, Some(link));
    }

    /// Begins a change of the link with this name. What is cached of it is dropped now and when the change has ended.
    pub fn changing(&self, name: &LinkName) -> LinkChanging<'_> {
        self.forget(name);
        LinkChanging { cache: self, name: *name }
    }

    fn forget(&self, name: &LinkName) {
        if let Some(id) = name.as_id() {
            self.entries.invalidate(&id);
        }
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn ask_store(&self, id: ShortId) -> Result<Entry, Arc<StoreError>> {
        let link = self.store.link(id.into()).await.map_err(Arc::new)?;
        let entry = link
            .map(|link| CachedLink::try_from(Destination::from(&link)))
            .transpose()
            .map_err(Arc::new)?
            .map(Arc::new);
        self.entries.insert(id, entry.clone());
        Ok(entry)
    }

    fn loads(&self) -> std::sync::MutexGuard<'_, HashMap<ShortId, Load, RandomState>> {
        // No code panics while it holds this lock.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of a link that is not written yet.
pub struct LinkChanging<'a> {
    cache: &'a LinkCache,
    name: LinkName,
}

impl LinkChanging<'_> {
    /// The change is written, or was refused.
    pub fn done(self) {
        drop(self);
    }
}

impl Drop for LinkChanging<'_> {
    fn drop(&mut self) {
        self.cache.forget(&self.name);
    }
}

/// A load in progress. Its drop removes it from the map, so that later callers find the entry or ask again.
struct SharedLoad<'a> {
    cache: &'a LinkCache,
    id: ShortId,
    load: Load,
}

impl Drop for SharedLoad<'_> {
    fn drop(&mut self) {
        let mut loads = self.cache.loads();
        if loads.get(&self.id).is_some_and(|current| Arc::ptr_eq(current, &self.load)) {
            loads.remove(&self.id);
        }
    }
}

struct EntryExpiry(LinkCacheSettings);

impl EntryExpiry {
    fn of(&self, entry: &Entry) -> Duration {
        if entry.is_some() { self.0.found_for } else { self.0.missing_for }
    }
}

impl Expiry<ShortId, Entry> for EntryExpiry {
    fn expire_after_create(&self, _: &ShortId, entry: &Entry, _: Instant) -> Option<Duration> {
        Some(self.of(entry))
    }

    fn expire_after_update(&self, _: &ShortId, entry: &Entry, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(self.of(entry))
    }
}

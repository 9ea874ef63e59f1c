//! Redirect look-ups in front of the store: found links, ids that are not there, and one load an id.

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
use crate::domain::link::{Destination, ShortId};
use crate::store::{LinkStore, StoreError};

/// What a redirect needs of a link, ready to be answered.
#[derive(Clone, Debug)]
pub struct CachedLink {
    pub id: ShortId,
    pub owner: KeyId,
    pub tracked: bool,
    /// How many webhooks a hit fires.
    pub webhooks: u8,
    /// `Location`, made once a load and shared by every answer.
    pub location: HeaderValue,
}

impl CachedLink {
    /// Weight of an entry in the cache: 1, and 1 more for every 256 bytes of its target.
    fn weight(&self) -> u32 {
        u32::try_from(1 + self.location.len() / 256).unwrap_or(u32::MAX)
    }

    /// Whether its target is of ordinary length.
    pub(super) fn is_short(&self) -> bool {
        self.weight() == 1
    }
}

impl TryFrom<Destination> for CachedLink {
    type Error = StoreError;

    fn try_from(link: Destination) -> Result<Self, StoreError> {
        let Destination { id, owner, tracked, webhooks, target } = link;
        let location = HeaderValue::try_from(target)
            .map_err(|error| StoreError::Corrupt { table: "links", reason: error.to_string() })?;
        Ok(Self { id, owner, tracked, webhooks, location })
    }
}

/// Of so many links that the store has told without waiting, one is kept.
const KNOWN_FOR_ONE_KEPT: u64 = 8;

/// A link, or the knowledge that there is none.
pub type Entry = Option<Arc<CachedLink>>;
type Load = Arc<OnceCell<Result<Entry, Arc<StoreError>>>>;

/// How long entries live. Links never change, so the bound matters only for ids that are yet to be made elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct LinkCacheSettings {
    /// Entries kept at the most; a target counts one more for every 256 bytes it has.
    pub capacity: u64,
    pub found_for: Duration,
    pub missing_for: Duration,
}

/// The cache of redirect look-ups.
///
/// Its hashes are keyed by chance, and nobody outside sees what a look-up takes by the nanosecond: nobody can choose ids that
/// share a slot. The standard library's were 2 % of a redirect that is not in cache.
pub struct LinkCache {
    entries: Cache<ShortId, Entry, RandomState>,
    /// Loads under way. The lock is held for map operations only, never across a load.
    loads: Mutex<HashMap<ShortId, Load, RandomState>>,
    /// How many links the store has told without waiting.
    taken: AtomicU64,
    store: Arc<dyn LinkStore>,
}

impl LinkCache {
    pub fn new(store: Arc<dyn LinkStore>, settings: LinkCacheSettings) -> Self {
        let entries = Cache::builder()
            .max_capacity(settings.capacity)
            .weigher(|_, entry: &Entry| entry.as_ref().map_or(1, |link| link.weight()))
            .expire_after(Lifetimes(settings))
            .build_with_hasher(RandomState::default());
        Self { entries, loads: Mutex::default(), taken: AtomicU64::new(0), store }
    }

    /// What is known of `id` without waiting for the store; outer `None` is nothing.
    ///
    /// An id that the store knows not to be there takes no room here: a flood of such ids costs others nothing.
    pub fn get(&self, id: ShortId) -> Option<Entry> {
        if self.store.definitely_absent(id) { Some(None) } else { self.entries.get(&id) }
    }

    /// What the store tells of a link without waiting.
    ///
    /// One in eight is kept: that soon has those that are asked for over and over, and the others, which the
    /// store tells again, do not cost what it takes to keep and to drop them.
    pub fn take_known(&self, id: ShortId) -> Option<Arc<CachedLink>> {
        // One that no answer can be made of is told as an error by `load`.
        let link = CachedLink::try_from(self.store.peek(id)?).ok().map(Arc::new)?;
        if self.taken.fetch_add(1, Ordering::Relaxed).is_multiple_of(KNOWN_FOR_ONE_KEPT) {
            self.insert(Arc::clone(&link));
        }
        Some(link)
    }

    /// Asks the store, once however many ask at the same time.
    ///
    /// # Errors
    /// What the store answered, to all who asked.
    pub async fn load(&self, id: ShortId) -> Result<Entry, Arc<StoreError>> {
        let load = Arc::clone(self.loads().entry(id).or_default());
        // Also when the caller goes away in the middle: whoever still waits holds the load itself.
        let shared = SharedLoad { cache: self, id, load };
        shared.load.get_or_init(|| self.ask_store(id)).await.clone()
    }

    /// Knows a link that was just created.
    pub fn insert(&self, link: Arc<CachedLink>) {
        self.entries.insert(link.id, Some(link));
    }

    /// Entries kept now.
    pub fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Whether nothing is kept now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn ask_store(&self, id: ShortId) -> Result<Entry, Arc<StoreError>> {
        let link = self.store.link(id).await.map_err(Arc::new)?;
        let entry = link
            .map(|link| CachedLink::try_from(Destination::from(&link)))
            .transpose()
            .map_err(Arc::new)?
            .map(Arc::new);
        self.entries.insert(id, entry.clone());
        Ok(entry)
    }

    fn loads(&self) -> std::sync::MutexGuard<'_, HashMap<ShortId, Load, RandomState>> {
        // Nothing panics while this lock is held.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A load under way; its end takes it off the list, so that whoever comes then finds the entry or asks anew.
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

struct Lifetimes(LinkCacheSettings);

impl Lifetimes {
    fn of(&self, entry: &Entry) -> Duration {
        if entry.is_some() { self.0.found_for } else { self.0.missing_for }
    }
}

impl Expiry<ShortId, Entry> for Lifetimes {
    fn expire_after_create(&self, _: &ShortId, entry: &Entry, _: Instant) -> Option<Duration> {
        Some(self.of(entry))
    }

    fn expire_after_update(&self, _: &ShortId, entry: &Entry, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(self.of(entry))
    }
}

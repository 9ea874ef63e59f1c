//! The cache of redirect look-ups in front of the store: links, names without a link, and one load at a time for each
//! name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use moka::Expiry;
use moka::sync::Cache;

use super::changes::{Changes, Keep, LookUpStamp};
use super::clock::CacheClock;
use super::link::{CachedLink, Entry};
use super::loads::{Load, Loaded, Loads};
use crate::domain::blocked_hosts::BlockedHosts;
use crate::domain::link::{Destination, Link, LinkName};
use crate::store::{LinkChange, LinkStore, StoreError};

/// One of this many links that the store returned from memory is inserted into the cache.
const INSERT_ONE_IN: u64 = 8;

/// How long a link is kept that another node is about to change, in milliseconds.
const KEPT_BRIEFLY: u64 = 500;

/// How often a load is repeated because the link changed during it.
const MAX_LOADS: usize = 1_000;

/// How long entries are valid.
#[derive(Clone, Debug)]
pub struct LinkCacheSettings {
    /// The largest number of entries; a target adds one more for every 256 bytes.
    pub capacity: u64,
    /// How long a link may be answered from memory while the store can't be reached.
    pub found_for: Duration,
    pub missing_for: Duration,
    /// Whether other nodes change links, too.
    pub is_shared: bool,
    pub clock: CacheClock,
    /// Whether redirects have `X-Robots-Tag: noindex`.
    pub noindex: bool,
}

/// What a name leads to, and until when that is valid.
#[derive(Clone)]
struct CacheEntry {
    entry: Entry,
    /// When its look-up began. It is not used once the link has changed since, also if it was inserted after that.
    stamp: LookUpStamp,
    valid_until: Option<u64>,
}

/// The cache of redirect look-ups.
///
/// Its hashes have a random key, and clients can't measure a look-up in nanoseconds, so that no client can choose names
/// that share a slot. The hashes of the standard library took 2 % of a redirect that is not in the cache.
pub struct LinkCache {
    entries: Cache<LinkName, CacheEntry, RandomState>,
    loads: Loads,
    changes: Arc<Changes>,
    /// How many links the store returned from memory.
    peeked: AtomicU64,
    store: Arc<dyn LinkStore>,
    blocked: BlockedHosts,
    settings: LinkCacheSettings,
}

impl LinkCache {
    pub fn new(store: Arc<dyn LinkStore>, blocked: BlockedHosts, settings: LinkCacheSettings) -> Self {
        let entries = Cache::builder()
            .max_capacity(settings.capacity)
            .weigher(|_, kept: &CacheEntry| kept.entry.as_ref().map_or(1, |link| link.weight()));
        let entries = if settings.is_shared {
            entries.expire_after(EntryExpiry { found_for: settings.found_for, missing_for: settings.missing_for })
        } else {
            // Only this process changes links, so entries need no end. With one, each look-up would read the clock.
            entries
        };
        let entries = entries.build_with_hasher(RandomState::default());
        Self {
            entries,
            loads: Loads::default(),
            changes: Arc::default(),
            peeked: AtomicU64::new(0),
            store,
            blocked,
            settings,
        }
    }

    /// The entry of `name`, without a call of the store; the outer `None` is a name that is not cached.
    ///
    /// A name that is known to be absent takes no entry, so that a flood of such names replaces no other entry.
    pub fn get(&self, name: &LinkName) -> Option<Entry> {
        if self.store.definitely_absent(name) {
            return Some(None);
        }
        let CacheEntry { entry, stamp, valid_until } = self.entries.get(name)?;
        let is_valid = self.changes.is_current(stamp) && valid_until.is_none_or(|end| self.settings.clock.now() < end);
        is_valid.then_some(entry)
    }

    /// A link that the store has in memory.
    ///
    /// One in eight is inserted: popular links soon are in the cache, and all others, which the store returns again,
    /// don't cost an insertion and an eviction.
    pub fn take_known(&self, name: &LinkName) -> Option<Arc<CachedLink>> {
        let generation = self.changes.generation();
        // `load` returns an error for a link that can't be answered.
        let link = self.cached(self.store.peek(name)?, self.settings.clock.now()).ok().map(Arc::new)?;
        if self.peeked.fetch_add(1, Ordering::Relaxed).is_multiple_of(INSERT_ONE_IN)
            && self.changes.is_settled(name, &self.settings.clock)
        {
            self.keep(name, Some(Arc::clone(&link)), self.changes.stamp_at(name, generation), link.valid_until);
        }
        Some(link)
    }

    /// Asks the store, once for all concurrent callers. What a caller gets is never older than its call, nor older than what
    /// another caller got before.
    ///
    /// # Errors
    /// The error of the store, for all callers.
    pub async fn load(&self, name: &LinkName) -> Loaded {
        for _ in 0..MAX_LOADS {
            // If this caller is dropped, the others still hold the load.
            let shared = self.loads.join(*name, &self.changes, &self.settings.clock);
            let load = &shared.load;
            let loaded = load.result.get_or_init(|| self.ask_store(name, load.began)).await.clone();
            let entry = loaded?;
            let revision = entry.as_ref().map(|link| link.revision);
            let keep = self.changes.keep(name, revision, &self.settings.clock);
            if keep == Keep::Outdated {
                shared.discard();
                continue;
            }
            let entry = self.kept(name, entry, keep, load);
            if self.changes.is_current(load.stamp) {
                return Ok(entry);
            }
        }
        Err(Arc::new(StoreError::Unavailable("the link changes all the time".into())))
    }

    /// The number of changes so far, for [`insert`](Self::insert).
    pub fn generation(&self) -> u64 {
        self.changes.generation()
    }

    /// Inserts a link with a new id that was just created. `generation` is from before the store had it: others may find the link in a
    /// list, and change it, before this is called.
    pub fn insert(&self, link: &Link, generation: u64) -> Result<(), StoreError> {
        let name = link.name();
        let stamp = self.changes.stamp_at(&name, generation);
        let link = self.cached(Destination::from(link), self.settings.clock.now())?;
        if self.changes.is_settled(&name, &self.settings.clock) {
            let valid_until = link.valid_until;
            self.keep(&name, Some(Arc::new(link)), stamp, valid_until);
        }
        Ok(())
    }

    /// Begins a change of this name. Call it before the store is told.
    pub fn begin_change(self: &Arc<Self>, name: LinkName) -> ChangingLink {
        self.changes.begin(name);
        self.forget(&name);
        ChangingLink { cache: Arc::clone(self), name }
    }

    /// Notes a change on another node.
    pub fn note_change(&self, change: LinkChange) {
        match change {
            LinkChange::Link { name, id } => {
                let of_id = LinkName::from(id);
                for name in [Some(name), Some(of_id).filter(|of_id| *of_id != name)].into_iter().flatten() {
                    self.watch(name);
                    self.forget(&name);
                }
            }
            LinkChange::Unknown => self.forget_all(),
        }
    }

    /// Keeps what is loaded for the name only for a moment from now on, and nothing that is older than what is known.
    fn watch(&self, name: LinkName) {
        let known = self.entries.get(&name).and_then(|kept| kept.entry);
        self.changes.watch(name, known.map_or(0, |link| link.revision), &self.settings.clock);
    }

    /// Forgets everything, in all caches.
    pub fn forget_all(&self) {
        self.changes.announce_all();
        self.entries.invalidate_all();
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    pub(super) fn clock(&self) -> &CacheClock {
        &self.settings.clock
    }

    /// Forgets what was looked up for a name, in all caches and by the loads in progress: whatever began before the
    /// announcement is out of date. The removal of the entry only frees its memory.
    fn forget(&self, name: &LinkName) {
        self.changes.announce(name);
        self.entries.invalidate(name);
    }

    async fn ask_store(&self, name: &LinkName, began: u64) -> Loaded {
        let link = self.store.link(*name).await.map_err(Arc::new)?;
        let cached = link.map(|link| self.cached(Destination::from(&link), began)).transpose().map_err(Arc::new)?;
        Ok(cached.map(Arc::new))
    }

    /// A link as the store had it at `read_at` or later.
    fn cached(&self, link: Destination, read_at: u64) -> Result<CachedLink, StoreError> {
        let mut link = CachedLink::new(link, &self.blocked.list(), self.settings.noindex)?;
        if self.settings.is_shared {
            link.valid_until = Some(read_at + millis(self.settings.found_for));
        }
        Ok(link)
    }

    /// Inserts what was loaded as far as it may be kept, and returns it.
    fn kept(&self, name: &LinkName, mut entry: Entry, keep: Keep, load: &Load) -> Entry {
        let mut valid_until = entry.as_ref().and_then(|link| link.valid_until);
        if keep != Keep::Settled {
            let end = load.began + KEPT_BRIEFLY;
            valid_until = Some(end);
            entry = entry.map(|link| Arc::new(link.kept_until(end)));
        } else if entry.is_none() && self.settings.is_shared {
            valid_until = Some(load.began + millis(self.settings.missing_for));
        }
        if keep != Keep::No {
            self.keep(name, entry.clone(), load.stamp, valid_until);
        }
        entry
    }

    fn keep(&self, name: &LinkName, entry: Entry, stamp: LookUpStamp, valid_until: Option<u64>) {
        self.entries.insert(*name, CacheEntry { entry, stamp, valid_until });
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A change of a link on this node. While it exists, nothing that is loaded for the link's name is kept. Its drop forgets
/// what was looked up before the change.
pub struct ChangingLink {
    cache: Arc<LinkCache>,
    name: LinkName,
}

impl ChangingLink {
    /// The change is in the store, or will not be. Call it before the request is answered.
    pub fn done(self) {
        drop(self);
    }

    /// The store may make the change later. So the link is watched, as one that another node changes.
    pub fn outcome_unknown(self) {
        self.cache.watch(self.name);
    }
}

impl Drop for ChangingLink {
    fn drop(&mut self) {
        self.cache.forget(&self.name);
        self.cache.changes.end(&self.name);
    }
}

struct EntryExpiry {
    found_for: Duration,
    missing_for: Duration,
}

impl EntryExpiry {
    fn of(&self, kept: &CacheEntry) -> Duration {
        if kept.entry.is_some() { self.found_for } else { self.missing_for }
    }
}

impl Expiry<LinkName, CacheEntry> for EntryExpiry {
    fn expire_after_create(&self, _: &LinkName, kept: &CacheEntry, _: Instant) -> Option<Duration> {
        Some(self.of(kept))
    }

    fn expire_after_update(
        &self,
        _: &LinkName,
        kept: &CacheEntry,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(self.of(kept))
    }
}

//! Redirects: client limit, look-up, hit journal. All three run on the worker's thread. If the link is cached,
//! nothing is sent, spawned or awaited.

use std::net::IpAddr;
use std::sync::Arc;

use crate::cache::link::{CachedLink, Entry};
use crate::cache::links::LinkCache;
use crate::cache::near::NearLinks;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, Position};
use crate::domain::link::LinkName;
use crate::journal::JournalWriter;
use crate::journal::notifier::Notifier;
use crate::journal::record::HitRecord;
pub use crate::journal::record::MAX_HEADER_BYTES;
use crate::limits::client::{ClientKey, ClientLimiter, RetryAfter};
use crate::store::StoreError;

/// The visitor of a link, as far as the request says.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    pub client: IpAddr,
    pub user_agent: &'a [u8],
    pub referer: &'a [u8],
    /// `Sec-CH-UA-Mobile`.
    pub ch_ua_mobile: Option<bool>,
}

/// Resolves short links.
pub struct RedirectService {
    cache: Arc<LinkCache>,
    limiter: ClientLimiter,
    journal: JournalWriter,
    /// Notified of hits that fire webhooks.
    notifier: Notifier,
    clock: Clock,
}

impl RedirectService {
    pub fn new(
        cache: Arc<LinkCache>,
        limiter: ClientLimiter,
        journal: JournalWriter,
        notifier: Notifier,
        clock: Clock,
    ) -> Self {
        Self { cache, limiter, journal, notifier, clock }
    }

    /// Admits a request of a client and returns the time of the request.
    ///
    /// # Errors
    /// If the client has reached its limit. The refused request does not count.
    pub fn admit(&self, client: IpAddr) -> Result<Timestamp, RetryAfter> {
        let now = self.clock.now();
        self.limiter.admit(ClientKey::from(client), now.0)?;
        Ok(now)
    }

    /// Forgets all links that are in memory.
    pub fn forget_all(&self) {
        self.cache.forget_all();
    }

    /// The cached entry; `None` if nothing is cached.
    pub fn cached(&self, name: &LinkName) -> Option<Entry> {
        self.cache.get(name)
    }

    /// The cache of a worker in front of the shared one.
    pub fn near_links(&self) -> NearLinks {
        NearLinks::new(&self.cache)
    }

    /// What the store can answer from memory.
    pub fn known(&self, name: &LinkName) -> Option<Entry> {
        self.cache.take_known(name).map(Some)
    }

    /// Loads the link from the store into the cache.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn load(&self, name: &LinkName) -> Result<Entry, Arc<StoreError>> {
        self.cache.load(name).await
    }

    /// Appends a hit to the journal, where it survives the end of this process, and returns its position. If the
    /// journal is full, it counts and logs the lost hit; the redirect is answered anyway.
    pub fn record(&self, link: &CachedLink, visit: &Visit<'_>, at: Timestamp) -> Option<Position> {
        let hit = HitRecord {
            at_ms: at.0,
            short_id: link.id.0,
            revision: link.revision,
            route: 0,
            tracked: link.tracked,
            webhooks: link.webhooks.count(),
            webhook_places: link.webhooks.places().unwrap_or_default(),
            ch_ua_mobile: visit.ch_ua_mobile,
            owner: link.owner.0.into_bytes(),
            address: visit.client,
            user_agent: visit.user_agent,
            referer: visit.referer,
            skips_bots: false,
            is_prefetch: false,
            private: None,
            language: b"",
            utm: Default::default(),
        };
        // The journal counts and logs refused hits.
        let position = self.journal.append(&hit).ok();
        if !link.webhooks.is_empty() {
            self.notifier.notify();
        }
        position
    }

    /// The id of the hit at this position, as in analytics and webhooks.
    pub fn hit_id(&self, position: Position, at: Timestamp) -> HitId {
        self.journal.hit_id(position, at.0)
    }
}

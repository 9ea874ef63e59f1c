//! The redirect's way: client limit, look-up, hit journal. All three run in the worker's own thread; nothing is sent,
//! spawned or awaited when the link is in the cache.

use std::net::IpAddr;
use std::sync::Arc;

use crate::cache::links::{CachedLink, Entry, LinkCache};
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, Position};
use crate::domain::link::ShortId;
use crate::journal::JournalWriter;
use crate::journal::notifier::Notifier;
use crate::journal::record::HitRecord;
pub use crate::journal::record::MAX_HEADER_BYTES;
use crate::limits::client::{ClientKey, ClientLimiter, RetryAfter};
use crate::store::StoreError;

/// Who resolves a link, as far as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    pub client: IpAddr,
    pub user_agent: &'a [u8],
    pub referer: &'a [u8],
    /// `Sec-CH-UA-Mobile`.
    pub ch_ua_mobile: Option<bool>,
}

/// Resolves short links.
pub struct Redirects {
    cache: Arc<LinkCache>,
    limiter: ClientLimiter,
    journal: JournalWriter,
    /// Told of hits that fire webhooks.
    notifier: Notifier,
    clock: Clock,
}

impl Redirects {
    pub fn new(
        cache: Arc<LinkCache>,
        limiter: ClientLimiter,
        journal: JournalWriter,
        notifier: Notifier,
        clock: Clock,
    ) -> Self {
        Self { cache, limiter, journal, notifier, clock }
    }

    /// Lets a client's request in, whatever it asks for. Answers the time of the request.
    ///
    /// # Errors
    /// When the client is over its limit; the request takes nothing from it.
    pub fn admit(&self, client: IpAddr) -> Result<Timestamp, RetryAfter> {
        let now = self.clock.now();
        self.limiter.admit(ClientKey::from(client), now.0)?;
        Ok(now)
    }

    /// What the cache knows; `None` is nothing.
    pub fn cached(&self, id: ShortId) -> Option<Entry> {
        self.cache.get(id)
    }

    /// What the store tells without waiting.
    pub fn known(&self, id: ShortId) -> Option<Entry> {
        self.cache.take_known(id).map(Some)
    }

    /// Asks the store, and has the cache know.
    ///
    /// # Errors
    /// What the store answered.
    pub async fn load(&self, id: ShortId) -> Result<Entry, Arc<StoreError>> {
        self.cache.load(id).await
    }

    /// Puts a hit into the journal, where it outlives this process, and answers where it is. Where the journal has no room,
    /// it counts and logs what it does not record; the redirect goes on.
    pub fn record(&self, link: &CachedLink, visit: &Visit<'_>, at: Timestamp) -> Option<Position> {
        let hit = HitRecord {
            at_ms: at.0,
            short_id: link.id.0,
            tracked: link.tracked,
            webhooks: link.webhooks,
            ch_ua_mobile: visit.ch_ua_mobile,
            owner: link.owner.0.into_bytes(),
            address: visit.client,
            user_agent: visit.user_agent,
            referer: visit.referer,
        };
        // The journal counts and logs what it refuses.
        let position = self.journal.append(&hit).ok();
        if link.webhooks > 0 {
            self.notifier.tell();
        }
        position
    }

    /// The id of a hit that was recorded there: analytics and webhooks know it by this.
    pub fn hit_id(&self, position: Position, at: Timestamp) -> HitId {
        self.journal.hit_id(position, at.0)
    }
}

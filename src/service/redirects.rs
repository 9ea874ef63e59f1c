//! Redirects: client limit, look-up, hit journal. All three run on the worker's thread. If the link is cached,
//! nothing is sent, spawned or awaited.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::cache::link::{CachedLink, Entry};
use crate::cache::links::LinkCache;
use crate::cache::worker_cache::WorkerCache;
use crate::clock::Clock;
use crate::domain::bots::SharedBotRules;
use crate::domain::calendar::Timestamp;
use crate::domain::device;
use crate::domain::hit::{HitId, Position};
use crate::domain::language::{Language, LanguageText};
use crate::domain::link::LinkName;
use crate::domain::privacy::{PrivacySignals, PrivateVisitor, RespectedSignals};
use crate::domain::utm::{UTM_COUNT, UtmOfQuery, may_have_utm};
use crate::journal::JournalWriter;
use crate::journal::notifier::Notifier;
use crate::journal::record::HitRecord;
pub use crate::journal::record::MAX_HEADER_BYTES;
use crate::limits::client::{ClientKey, ClientLimiter, ClientPlace, RetryAfter};
use crate::store::StoreError;

/// The visitor of a link, as far as the request says.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    pub client: IpAddr,
    pub user_agent: &'a [u8],
    pub referer: &'a [u8],
    /// `Sec-CH-UA-Mobile`.
    pub ch_ua_mobile: Option<bool>,
    pub accept_language: &'a [u8],
    /// The query of the request, without its `?`.
    pub query: &'a str,
    pub is_prefetch: bool,
    pub privacy: PrivacySignals,
}

/// How hits are recorded.
pub struct Recording {
    pub journal: JournalWriter,
    /// Notified of hits that fire webhooks.
    pub notifier: Notifier,
    /// For visitors with these signals, only the device and the kind of bot are recorded.
    pub respected: RespectedSignals,
    /// Tell the bots among these.
    pub bots: SharedBotRules,
}

/// Resolves short links.
pub struct RedirectService {
    cache: Arc<LinkCache>,
    limiter: ClientLimiter,
    recording: Recording,
    clock: Clock,
}

impl RedirectService {
    pub fn new(cache: Arc<LinkCache>, limiter: ClientLimiter, recording: Recording, clock: Clock) -> Self {
        Self { cache, limiter, recording, clock }
    }

    /// The place of a client in the limit's table, prefetched for [`admit`](Self::admit).
    pub fn place_of(&self, client: IpAddr) -> ClientPlace<'_> {
        self.limiter.prefetched(ClientKey::from(client))
    }

    /// Admits a request of a client and returns the time of the request.
    ///
    /// # Errors
    /// If the client has reached its limit. The refused request does not count.
    pub fn admit(&self, client: ClientPlace<'_>) -> Result<Timestamp, RetryAfter> {
        let now = self.clock.now();
        client.admit(now.0)?;
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
    pub fn worker_cache(&self) -> WorkerCache {
        WorkerCache::new(&self.cache)
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
        // All that does not tell of the visitor.
        let hit = HitRecord {
            at_ms: at.0,
            short_id: link.id.0,
            revision: link.revision,
            route: 0,
            tracked: link.tracked,
            webhooks: link.webhooks.count(),
            webhook_places: link.webhooks.places().unwrap_or_default(),
            skips_bots: link.skips_bots,
            owner: link.owner.0.into_bytes(),
            is_prefetch: false,
            private: None,
            ch_ua_mobile: None,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            user_agent: b"",
            referer: b"",
            language: b"",
            utm: [b""; UTM_COUNT],
        };
        let Recording { journal, notifier, respected, .. } = &self.recording;
        // The journal counts and logs refused hits.
        let position = if respected.forbid(visit.privacy) {
            journal.append(&HitRecord { private: Some(self.private(visit)), ..hit }).ok()
        } else {
            let language = Language::first_of(visit.accept_language).map(Language::text);
            let utm_of_query = may_have_utm(visit.query).then(|| UtmOfQuery::read(visit.query));
            let utm_of_target = link.utm();
            let hit = HitRecord {
                is_prefetch: visit.is_prefetch,
                ch_ua_mobile: visit.ch_ua_mobile,
                address: visit.client,
                user_agent: visit.user_agent,
                referer: visit.referer,
                language: language.as_ref().map_or(&[], LanguageText::as_bytes),
                utm: utm_of_query.as_ref().map_or(utm_of_target, |utm| utm.or(utm_of_target)),
                ..hit
            };
            journal.append(&hit).ok()
        };
        if !link.webhooks.is_empty() {
            notifier.notify();
        }
        position
    }

    /// What is recorded of a visitor who wants no tracking, from as much of the user agent as is recorded of others.
    fn private(&self, visit: &Visit<'_>) -> PrivateVisitor {
        let user_agent = &visit.user_agent[..visit.user_agent.len().min(MAX_HEADER_BYTES)];
        let rules = self.recording.bots.current();
        PrivateVisitor {
            device: device::classify(&String::from_utf8_lossy(user_agent), visit.ch_ua_mobile),
            bot: rules.verdict(visit.is_prefetch, user_agent, visit.client).map(|verdict| verdict.kind),
        }
    }

    /// The id of the hit at this position, as in analytics and webhooks.
    pub fn hit_id(&self, position: Position, at: Timestamp) -> HitId {
        self.recording.journal.hit_id(position, at.0)
    }
}

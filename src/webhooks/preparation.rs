//! Makes the signed request of a delivery.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldhash::quality::RandomState;
use hyper::header::InvalidHeaderValue;
use moka::future::Cache;
use thiserror::Error;

use super::client::Destination;
use super::flow::{Flow, Host};
use super::sender::{SignedBody, SignedRequest};
use crate::clock::Clock;
use crate::domain::bots::BotKind;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::HitId;
use crate::domain::key::{ApiKey, KeyId, SealedSecret};
use crate::domain::link::{Link, Revision, ShortId};
use crate::domain::plan::Plans;
use crate::domain::quota::MonthlyLimit;
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::Vault;
use crate::domain::webhook::{AttemptNumber, DeliveryId, DeliveryState};
use crate::domain::webhook_event::hit_event_body;
use crate::domain::webhook_url::WebhookUrl;
use crate::locks::lock;
use crate::store::{DueDelivery, KeyStore, LinkStore, Store, StoreError};

/// The size of the cache of links, in bytes. A link at a revision never changes.
const LINK_CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// How long secrets may be used after they were read: the owner may rotate them while a delivery waits.
const SECRETS_TRUSTED: Duration = Duration::from_secs(1);

/// Why a delivery can't be sent as it is stored.
#[derive(Debug, Error)]
pub enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Unsendable(&'static str),
}

/// A link at a revision, with its parsed webhook URLs.
struct CachedWebhookLink {
    link: Link,
    /// By the place of the webhook; `None` for a URL that this release can't parse.
    urls: Vec<Option<(Arc<Destination>, Host)>>,
}

impl CachedWebhookLink {
    fn flow(&self, id: DeliveryId) -> Option<Flow> {
        let (_, host) = self.urls.get(usize::from(id.url_index))?.as_ref()?;
        Some(Flow { owner: self.link.owner, host: Arc::clone(host) })
    }

    /// The approximate memory use.
    fn bytes(&self) -> u32 {
        let urls: usize = self.link.webhooks.all().iter().map(|url| 3 * url.len() + 256).sum();
        let texts = self.link.target.as_str().len() + self.link.data.as_json().len();
        u32::try_from(512 + texts + urls).unwrap_or(u32::MAX)
    }
}

/// The secrets that sign a key's deliveries, and its quota.
struct Owner {
    secret: WebhookSecret,
    /// The secret before the last rotation, which also signs until this time.
    retiring: Option<(WebhookSecret, Timestamp)>,
    deliveries_per_month: MonthlyLimit,
    read_at: Timestamp,
}

/// The owners of deliveries that are prepared together. They are read again for each group, so that a rotated webhook
/// secret is used at once.
#[derive(Default)]
pub struct Owners(HashMap<KeyId, Option<Arc<Owner>>>);

/// A delivery that can be signed and sent.
pub struct Draft {
    id: DeliveryId,
    round: u32,
    attempts_before: u32,
    /// Those of them that were in rounds before.
    earlier_attempts: u32,
    owner_id: KeyId,
    bot: Option<BotKind>,
    link: Arc<CachedWebhookLink>,
    destination: Arc<Destination>,
    flow: Flow,
    owner: Arc<Owner>,
}

impl Draft {
    pub fn id(&self) -> DeliveryId {
        self.id
    }

    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The number of earlier attempts, in all rounds.
    pub fn attempts_before(&self) -> u32 {
        self.attempts_before
    }

    /// The attempt that is made now.
    pub fn attempt(&self) -> AttemptNumber {
        let in_all = self.attempts_before + 1;
        AttemptNumber { round: self.round, in_all, in_round: in_all.saturating_sub(self.earlier_attempts) }
    }

    /// The owner's monthly quota.
    pub fn limit(&self) -> MonthlyLimit {
        self.owner.deliveries_per_month
    }
}

/// Makes requests from deliveries.
pub struct Preparation {
    link_store: Arc<dyn LinkStore>,
    keys: Arc<dyn KeyStore>,
    vault: Arc<Vault>,
    plans: Plans,
    clock: Clock,
    links: Cache<(ShortId, Revision), Arc<CachedWebhookLink>, RandomState>,
    last_body: Mutex<Option<HitBody>>,
}

/// The body that was made last: the deliveries of a hit to several URLs follow each other.
struct HitBody {
    hit: HitId,
    link: Arc<CachedWebhookLink>,
    owner: Arc<Owner>,
    signed: SignedBody,
}

impl Preparation {
    pub fn new(store: &Arc<dyn Store>, vault: Arc<Vault>, plans: Plans, clock: Clock) -> Self {
        let links = Cache::builder()
            .max_capacity(LINK_CACHE_BYTES)
            .weigher(|_, link: &Arc<CachedWebhookLink>| link.bytes())
            .build_with_hasher(RandomState::default());
        let (keys, last_body) = (store.clone(), Mutex::default());
        Self { link_store: store.clone(), keys, vault, plans, clock, links, last_body }
    }

    /// The flow of a delivery: its key and receiver.
    pub async fn flow(&self, due: &DueDelivery) -> Result<Flow, StoreError> {
        let link = self.link(due.id.link, due.revision).await?;
        let flow = link.as_deref().and_then(|link| link.flow(due.id));
        Ok(flow.unwrap_or_else(Flow::without_receiver))
    }

    /// Reads everything needed to send a delivery.
    pub async fn draft(
        &self,
        id: DeliveryId,
        state: &DeliveryState,
        owners: &mut Owners,
    ) -> Result<Draft, PrepareError> {
        let link = self.link(id.link, state.revision).await?.ok_or(PrepareError::Unsendable("link not found"))?;
        if let Entry::Vacant(unread) = owners.0.entry(state.owner) {
            unread.insert(self.owner(state.owner).await?);
        }
        let owner = owners.0.get(&state.owner).and_then(Option::as_ref).map(Arc::clone);
        let owner = owner.ok_or(PrepareError::Unsendable("webhook secret unreadable"))?;
        let url = link.urls.get(usize::from(id.url_index)).and_then(Option::as_ref);
        let (destination, host) = url.cloned().ok_or(PrepareError::Unsendable("malformed url"))?;
        let flow = Flow { owner: link.link.owner, host };
        Ok(Draft {
            id,
            round: state.round,
            attempts_before: state.attempts,
            earlier_attempts: state.earlier_attempts,
            owner_id: state.owner,
            bot: state.bot,
            link,
            destination,
            flow,
            owner,
        })
    }

    /// Signs the request of an attempt that is made now.
    ///
    /// # Errors
    /// If a header can't carry the delivery's id.
    pub async fn request(&self, draft: &Draft) -> Result<SignedRequest, InvalidHeaderValue> {
        let now = self.clock.now();
        let mut owner = Arc::clone(&draft.owner);
        if owner.read_at.plus(SECRETS_TRUSTED) < now
            && let Ok(Some(newer)) = self.owner(draft.owner_id).await
        {
            owner = newer;
        }
        let body = self.body(draft, &owner)?;
        let seconds = i64::try_from(now.seconds()).unwrap_or(i64::MAX);
        let retiring = owner.retiring.as_ref().filter(|(_, until)| now < *until).map(|(secret, _)| secret);
        let (destination, id) = (Arc::clone(&draft.destination), draft.id.to_string());
        let signed = SignedRequest::sign(destination, body, &id, seconds, &owner.secret, retiring)?;
        Ok(signed.of_bot(draft.bot))
    }

    fn body(&self, draft: &Draft, owner: &Arc<Owner>) -> Result<SignedBody, InvalidHeaderValue> {
        let mut last = lock(&self.last_body);
        let (link, hit) = (&draft.link.link, draft.id.hit);
        let is_last = |last: &&HitBody| {
            last.hit == hit.id && Arc::ptr_eq(&last.link, &draft.link) && Arc::ptr_eq(&last.owner, owner)
        };
        if let Some(last) = last.as_ref().filter(is_last) {
            return Ok(last.signed.clone());
        }
        let body = hit_event_body(
            link.name().as_str(),
            link.target.as_str(),
            &hit.id.to_string(),
            &hit.at.to_string(),
            link.data.as_json(),
        );
        let signed = SignedBody::sign(body.into(), &owner.secret)?;
        if draft.link.urls.len() > 1 {
            let (link, owner) = (Arc::clone(&draft.link), Arc::clone(owner));
            *last = Some(HitBody { hit: hit.id, link, owner, signed: signed.clone() });
        }
        Ok(signed)
    }

    /// Reads a key and decrypts its secrets; `None` if the key does not exist or its secrets can't be decrypted.
    async fn owner(&self, id: KeyId) -> Result<Option<Arc<Owner>>, StoreError> {
        let Some(key) = readable(self.keys.key(id).await)? else { return Ok(None) };
        let Some(secret) = self.open(&key, &key.webhook_secret) else { return Ok(None) };
        let retiring = key.retiring_webhook_secret.as_ref();
        let retiring = retiring.and_then(|old| Some((self.open(&key, &old.secret)?, old.until)));
        let deliveries_per_month = self.plans.of(&key).webhook_deliveries_per_month;
        Ok(Some(Arc::new(Owner { secret, retiring, deliveries_per_month, read_at: self.clock.now() })))
    }

    fn open(&self, owner: &ApiKey, sealed: &SealedSecret) -> Option<WebhookSecret> {
        let text = self.vault.open(owner.id.0.as_bytes(), sealed).ok()?;
        WebhookSecret::parse(&text).ok()
    }

    /// The link as it was when the hit met it. After a change or a deletion the store keeps that for long enough.
    async fn link(&self, id: ShortId, revision: Revision) -> Result<Option<Arc<CachedWebhookLink>>, StoreError> {
        let key = (id, revision);
        if let Some(link) = self.links.get(&key).await {
            return Ok(Some(link));
        }
        let Some(link) = readable(self.link_store.link_at(id, revision).await)? else { return Ok(None) };
        let parse = |url: &String| {
            let url = WebhookUrl::parse_stored(url).ok()?;
            let host = host_of(&url);
            Some((Arc::new(Destination::of(&url)?), host))
        };
        let link = Arc::new(CachedWebhookLink { urls: link.webhooks.all().iter().map(parse).collect(), link });
        self.links.insert(key, Arc::clone(&link)).await;
        Ok(Some(link))
    }
}

/// Treats an unreadable row as absent: it must not stop all other deliveries.
fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::error!(%error, "a webhook can't be sent");
            Ok(None)
        }
        read => read,
    }
}

/// Host and port, which identify a receiver.
fn host_of(url: &WebhookUrl) -> Host {
    let target = url.target();
    format!("{}:{}", target.host_str().unwrap_or_default(), target.port_or_known_default().unwrap_or_default()).into()
}

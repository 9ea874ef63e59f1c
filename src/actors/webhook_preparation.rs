//! From a delivery to the signed request that makes it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use moka::future::Cache;
use thiserror::Error;

use super::webhook_queue::Host;
use super::webhook_sender::SignedRequest;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, SealedSecret};
use crate::domain::link::{Link, ShortId};
use crate::domain::plan::Plans;
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::Vault;
use crate::domain::webhook::{DeliveryId, DeliveryState};
use crate::domain::webhook_event::hit_event_body;
use crate::domain::webhook_url::WebhookUrl;
use crate::store::{QuotaClaim, Store, StoreError};

/// Links kept at hand, in bytes; they never change.
const LINKS_AT_HAND: u64 = 32 * 1024 * 1024;

/// Why a delivery can't be sent as it is stored.
#[derive(Debug, Error)]
pub enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Unsendable(&'static str),
}

/// The owners of the deliveries that begin together. They are read anew for each such group, so that a webhook secret
/// that was just rotated signs at once.
pub type Owners = HashMap<KeyId, Option<ApiKey>>;

/// A link and where its webhooks go.
struct LinkAtHand {
    link: Link,
    /// In the order of the link's webhooks; `None` where this release can't parse one.
    urls: Vec<Option<(WebhookUrl, Host)>>,
}

impl LinkAtHand {
    /// About how much memory it takes.
    fn bytes(&self) -> u32 {
        let urls: usize = self.link.webhooks.iter().map(|url| 3 * url.len() + 256).sum();
        let texts = self.link.target.as_str().len() + self.link.data.as_json().len();
        u32::try_from(512 + texts + urls).unwrap_or(u32::MAX)
    }
}

/// Makes requests of deliveries.
pub struct Preparation {
    store: Arc<dyn Store>,
    vault: Arc<Vault>,
    plans: Plans,
    links: Cache<ShortId, Arc<LinkAtHand>>,
    /// The receiver of deliveries that have none: they are not sent, but taken from the queue.
    nowhere: Host,
}

impl Preparation {
    pub fn new(store: Arc<dyn Store>, vault: Arc<Vault>, plans: Plans) -> Self {
        let links =
            Cache::builder().max_capacity(LINKS_AT_HAND).weigher(|_, link: &Arc<LinkAtHand>| link.bytes()).build();
        Self { store, vault, plans, links, nowhere: "".into() }
    }

    /// Who receives a delivery.
    pub async fn host(&self, id: DeliveryId) -> Result<Host, StoreError> {
        let link = self.link(id.link).await?;
        let url = link.as_deref().and_then(|link| link.urls.get(usize::from(id.url_index))?.as_ref());
        Ok(url.map_or_else(|| Arc::clone(&self.nowhere), |(_, host)| Arc::clone(host)))
    }

    /// The request of a delivery, and its claim on the owner's quota.
    pub async fn prepare(
        &self,
        id: DeliveryId,
        state: &DeliveryState,
        now: Timestamp,
        owners: &mut Owners,
    ) -> Result<(SignedRequest, QuotaClaim), PrepareError> {
        let at_hand = self.link(id.link).await?.ok_or(PrepareError::Unsendable("link not found"))?;
        if let Entry::Vacant(unread) = owners.entry(state.owner) {
            unread.insert(readable(self.store.key(state.owner).await)?);
        }
        let owner = owners.get(&state.owner).and_then(Option::as_ref);
        let owner = owner.ok_or(PrepareError::Unsendable("key not found"))?;
        let url = at_hand.urls.get(usize::from(id.url_index)).and_then(Option::as_ref);
        let (url, _) = url.ok_or(PrepareError::Unsendable("malformed url"))?;
        let secret = self.open(owner, &owner.webhook_secret)?;
        let retiring = owner.retiring_webhook_secret.as_ref().filter(|old| now < old.until);
        let retiring = retiring.map(|old| self.open(owner, &old.secret)).transpose()?;
        let link = &at_hand.link;
        let body = hit_event_body(
            link.id.as_str(),
            link.target.as_str(),
            &id.hit.id.to_string(),
            &id.hit.at.to_string(),
            link.data.as_json(),
        );
        let seconds = i64::try_from(now.seconds()).unwrap_or(i64::MAX);
        let request =
            SignedRequest::sign(url.clone(), body.into(), &id.to_string(), seconds, &secret, retiring.as_ref())
                .map_err(|_| PrepareError::Unsendable("malformed id"))?;
        let limit = self.plans.of(owner).webhook_deliveries_per_month;
        Ok((request, QuotaClaim { id, month: now.month(), limit }))
    }

    fn open(&self, owner: &ApiKey, sealed: &SealedSecret) -> Result<WebhookSecret, PrepareError> {
        let opened = self.vault.open(owner.id.0.as_bytes(), sealed);
        let text = opened.map_err(|_| PrepareError::Unsendable("webhook secret unreadable"))?;
        WebhookSecret::parse(&text).map_err(|_| PrepareError::Unsendable("webhook secret unreadable"))
    }

    async fn link(&self, id: ShortId) -> Result<Option<Arc<LinkAtHand>>, StoreError> {
        if let Some(link) = self.links.get(&id).await {
            return Ok(Some(link));
        }
        let Some(link) = readable(self.store.link(id).await)? else { return Ok(None) };
        let parse = |url: &String| {
            let url = WebhookUrl::parse_stored(url).ok()?;
            let host = host_of(&url);
            Some((url, host))
        };
        let link = Arc::new(LinkAtHand { urls: link.webhooks.iter().map(parse).collect(), link });
        self.links.insert(id, Arc::clone(&link)).await;
        Ok(Some(link))
    }
}

/// A row that can't be read is as if it were not there: one such must not hold up all other deliveries.
fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::error!(%error, "a webhook can't be sent");
            Ok(None)
        }
        read => read,
    }
}

/// Host and port: what a receiver is told apart by.
fn host_of(url: &WebhookUrl) -> Host {
    let target = url.target();
    format!("{}:{}", target.host_str().unwrap_or_default(), target.port_or_known_default().unwrap_or_default()).into()
}

//! Deliveries of suspended URLs: they are settled as failed and not sent.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::suspensions::LinkUrl;
use crate::store::{DeliveryStore, StoreError, Suspension, SuspensionRule};
use crate::telemetry::log_limit::LogLimit;
use crate::telemetry::metrics::webhooks::WebhookMeters;

/// The error of a delivery whose URL is suspended.
pub const SUSPENDED: &str = "suspended";
/// The largest number of URLs that are known to be suspended.
const MOST_KNOWN: usize = 10_000;
/// The shortest time between two lines: an outage of a host suspends many URLs.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// How long to wait after a failed call of the store.
const FORGET_AGAIN_AFTER: Duration = Duration::from_secs(1);

static BEGUN_LOG: LogLimit = LogLimit::new(LOG_EVERY);

/// Has the store suspend URLs whose deliveries fail.
pub fn suspend_failing(store: &dyn DeliveryStore, failures: NonZeroU32, meters: WebhookMeters) {
    let hook = Box::new(move |Suspension { link, place, failures, .. }: Suspension| {
        meters.suspended();
        if let Some(urls) = BEGUN_LOG.admit() {
            let link = link.as_str();
            tracing::warn!(
                link,
                url = place,
                failures,
                urls,
                "a webhook is suspended: its deliveries have failed for a day"
            );
        }
    });
    store.suspend_failing(SuspensionRule { failures, hook });
}

/// Has the store forget the failures that it counted when it was to suspend URLs: those to come do not follow them.
pub async fn forget_failures(store: Arc<dyn DeliveryStore>) {
    while let Err(error) = store.forget_failures().await {
        tracing::debug!(%error, "failed deliveries in a row are not forgotten yet");
        tokio::time::sleep(FORGET_AGAIN_AFTER).await;
    }
}

fn url_of(id: DeliveryId) -> LinkUrl {
    (id.link, id.url_index)
}

/// The suspended URLs of some links.
pub struct SuspendedUrls(HashSet<LinkUrl>);

impl SuspendedUrls {
    pub fn has(&self, id: DeliveryId) -> bool {
        self.0.contains(&url_of(id))
    }
}

/// Finds suspended URLs. The store decides; what is remembered only shows which deliveries need no slot.
pub struct SuspensionCheck {
    store: Arc<dyn DeliveryStore>,
    /// Whether URLs are suspended at all.
    is_on: bool,
    known: HashSet<LinkUrl>,
}

impl SuspensionCheck {
    pub fn new(store: Arc<dyn DeliveryStore>, is_on: bool) -> Self {
        Self { store, is_on, known: HashSet::new() }
    }

    /// Whether the URL of a delivery was suspended when it was last seen.
    pub fn expects(&self, id: DeliveryId) -> bool {
        self.known.contains(&url_of(id))
    }

    /// Remembers that the URL of a delivery is suspended, or is not; returns whether it is and that was not known.
    pub fn note(&mut self, id: DeliveryId, is_suspended: bool) -> bool {
        if !is_suspended {
            self.known.remove(&url_of(id));
            return false;
        }
        if self.known.len() >= MOST_KNOWN && !self.expects(id) {
            // Each is found again with its next delivery.
            self.known.clear();
        }
        self.known.insert(url_of(id))
    }

    /// The suspended URLs of the links of these deliveries.
    pub async fn look_up(&self, ids: impl Iterator<Item = DeliveryId>) -> Result<SuspendedUrls, StoreError> {
        let links: HashSet<ShortId> = if self.is_on { ids.map(|id| id.link).collect() } else { HashSet::new() };
        if links.is_empty() {
            return Ok(SuspendedUrls(HashSet::new()));
        }
        let found = self.store.suspensions(links.into_iter().collect()).await?;
        Ok(SuspendedUrls(found.into_iter().map(|suspension| (suspension.link, suspension.place)).collect()))
    }
}

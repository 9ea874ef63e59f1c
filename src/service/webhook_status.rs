//! The state of a link's webhooks, for its owner.

use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::link::Link;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, UrlSummary, first_kept_day};
use crate::store::{DeliveryQuery, DeliveryStore, StoreError};

/// Which deliveries to list.
#[derive(Clone, Copy, Debug)]
pub struct StatusQuery {
    pub status: Option<DeliveryStatus>,
    /// A delivery of the same link.
    pub after: Option<DeliveryId>,
    pub limit: usize,
}

/// The state of a link's webhooks.
#[derive(Debug)]
pub struct WebhookStatus {
    pub link: Link,
    /// In the order of the link's active webhooks.
    pub urls: Vec<UrlSummary>,
    /// Newest first.
    pub deliveries: Vec<(DeliveryId, DeliveryState)>,
    /// The delivery after which the next page begins, if there is one.
    pub next: Option<DeliveryId>,
}

/// Reads the state of webhooks.
pub struct WebhookStatusService {
    deliveries: Arc<dyn DeliveryStore>,
    clock: Clock,
}

impl WebhookStatusService {
    pub fn new(deliveries: Arc<dyn DeliveryStore>, clock: Clock) -> Self {
        Self { deliveries, clock }
    }

    /// The state of the webhooks of a link.
    pub async fn of(&self, link: Link, query: StatusQuery) -> Result<WebhookStatus, StoreError> {
        let since = first_kept_day(self.clock.now());
        let StatusQuery { status, after, limit } = query;
        let query = DeliveryQuery { link: link.id, status, after, since, limit: limit + 1 };
        let mut deliveries = self.deliveries.deliveries(query).await?;
        let more = deliveries.len() > limit;
        deliveries.truncate(limit);
        let next = deliveries.last().filter(|_| more).map(|(id, _)| *id);
        let places = link.webhooks.places();
        let mut urls = vec![UrlSummary::default(); places.len()];
        for (place, summary) in self.deliveries.delivery_summaries(link.id, since).await? {
            if let Some(index) = places.iter().position(|active| *active == place) {
                urls[index] = summary;
            }
        }
        Ok(WebhookStatus { link, urls, deliveries, next })
    }
}

//! The state of a link's webhooks, for its owner.

use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
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

/// The state of one webhook.
#[derive(Clone, Debug, Default)]
pub struct UrlStatus {
    pub summary: UrlSummary,
    /// Since when it is suspended.
    pub suspended_at: Option<Timestamp>,
}

/// The state of a link's webhooks.
#[derive(Debug)]
pub struct WebhookStatus {
    pub link: Link,
    /// In the order of the link's active webhooks.
    pub urls: Vec<UrlStatus>,
    /// Newest first.
    pub deliveries: Vec<(DeliveryId, DeliveryState)>,
    /// The delivery after which the next page begins, if there is one.
    pub next: Option<DeliveryId>,
}

/// Reads the state of webhooks.
pub struct WebhookStatusService {
    deliveries: Arc<dyn DeliveryStore>,
    clock: Clock,
    /// Whether URLs whose deliveries fail are suspended.
    suspends: bool,
}

impl WebhookStatusService {
    pub fn new(deliveries: Arc<dyn DeliveryStore>, clock: Clock, suspends: bool) -> Self {
        Self { deliveries, clock, suspends }
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
        let index_of = |place: u8| places.iter().position(|active| *active == place);
        let mut urls = vec![UrlStatus::default(); places.len()];
        for (place, summary) in self.deliveries.delivery_summaries(link.id, since).await? {
            if let Some(index) = index_of(place) {
                urls[index].summary = summary;
            }
        }
        let suspensions = if self.suspends { self.deliveries.suspensions(vec![link.id]).await? } else { Vec::new() };
        for suspension in suspensions {
            if let Some(index) = index_of(suspension.place) {
                urls[index].suspended_at = Some(suspension.since);
            }
        }
        Ok(WebhookStatus { link, urls, deliveries, next })
    }
}

//! What owners do with the webhooks of their links: tests and replays.

use std::sync::Arc;

use super::run_to_completion::RunToCompletion;
use crate::actors::wake::DispatcherWake;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::HitId;
use crate::domain::link::Link;
use crate::domain::webhook::{DeliveryId, DeliveryStatus, first_kept_day};
use crate::store::{DeliveryStore, Replay, SettledQuery, StoreError};
use crate::webhooks::tester::WebhookTester;
pub use crate::webhooks::tester::{TestError, TestResult, TestedWebhook};

/// The largest number of deliveries that a request queues again.
pub const MAX_REPLAYED: usize = 1_000;
/// The largest number of deliveries that a request looks at, also of other webhooks and statuses.
const MAX_EXAMINED: usize = 5_000;
/// Deliveries that are looked at together.
const PAGE: usize = 500;

/// Which settled deliveries of a link to queue again.
#[derive(Clone, Copy, Debug)]
pub struct ReplayQuery {
    /// `None`: delivered and failed ones.
    pub status: Option<DeliveryStatus>,
    /// Only hits from this time on.
    pub since: Option<Timestamp>,
    /// Only hits before this time.
    pub until: Option<Timestamp>,
    /// Only those to the URL at this place; `None`: to all webhooks that the link has now.
    pub place: Option<u8>,
    pub hit: Option<HitId>,
    /// Only those after this one, a delivery of the same link.
    pub after: Option<DeliveryId>,
}

impl ReplayQuery {
    /// The part of the query that the store answers.
    fn of_store(&self, link: &Link, now: Timestamp) -> SettledQuery {
        let kept = first_kept_day(now).start();
        let (mut from, mut until) = (self.since.unwrap_or(kept).max(kept), self.until.unwrap_or(Timestamp(u64::MAX)));
        if let Some(hit) = self.hit {
            // The id tells the time, so that one delivery is found without a search.
            from = from.max(hit.at());
            until = until.min(Timestamp(hit.at().0.saturating_add(1)));
        }
        SettledQuery { link: link.id, status: self.status, from, until, after: self.after, limit: PAGE }
    }

    fn wants(&self, link: &Link, id: DeliveryId) -> bool {
        let is_place =
            self.place.map_or_else(|| link.webhooks.places().contains(&id.url_index), |at| at == id.url_index);
        is_place && self.hit.is_none_or(|hit| hit == id.hit.id)
    }
}

/// What a request has queued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub queued: u64,
    /// The delivery after which the next request goes on; `None`: there are no more.
    pub next: Option<DeliveryId>,
}

/// Tests webhooks, and replays deliveries.
pub struct WebhookActions {
    tester: WebhookTester,
    deliveries: Arc<dyn DeliveryStore>,
    wake: DispatcherWake,
    clock: Clock,
}

impl WebhookActions {
    pub fn new(tester: WebhookTester, deliveries: Arc<dyn DeliveryStore>, wake: DispatcherWake, clock: Clock) -> Self {
        Self { tester, deliveries, wake, clock }
    }

    /// Tests the webhooks of a link at these places, in this order.
    pub async fn test(&self, link: &Link, places: &[u8]) -> Result<Vec<TestedWebhook>, TestError> {
        self.tester.test(link, places).await
    }

    /// Queues settled deliveries of a link again, oldest first. After an error some may be queued.
    pub async fn replay(&self, link: &Link, query: ReplayQuery) -> Result<Replayed, StoreError> {
        let (ids, next) = self.find(link, &query).await?;
        if ids.is_empty() {
            return Ok(Replayed { queued: 0, next });
        }
        let replay = Replay { link: link.id, ids, at: self.clock.now() };
        let earliest = replay.due_times().next().map_or(replay.at, |(_, due_at)| due_at);
        let (deliveries, wake) = (Arc::clone(&self.deliveries), self.wake.clone());
        // The dispatcher does not find what is queued unless it is told of it.
        let replaying = RunToCompletion::new(|_| async move {
            let queued = deliveries.replay_deliveries(replay).await;
            wake.wake(earliest);
            queued
        });
        Ok(Replayed { queued: replaying.await?, next })
    }

    /// The deliveries to queue, and the one after which the next request goes on.
    async fn find(
        &self,
        link: &Link,
        query: &ReplayQuery,
    ) -> Result<(Vec<DeliveryId>, Option<DeliveryId>), StoreError> {
        let mut pages = query.of_store(link, self.clock.now());
        let mut found = Vec::new();
        for _ in 0..MAX_EXAMINED / PAGE {
            let page = self.deliveries.settled_deliveries(pages).await?;
            for id in page.found.into_iter().filter(|id| query.wants(link, *id)) {
                if found.len() == MAX_REPLAYED {
                    // There is at least one more.
                    let last = found.last().copied();
                    return Ok((found, last));
                }
                found.push(id);
            }
            pages.after = page.next;
            if page.next.is_none() {
                break;
            }
        }
        Ok((found, pages.after))
    }
}

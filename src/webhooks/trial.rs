//! Tests of webhooks: one attempt each, at once. They pass by the queue, and nothing is stored of them but their count
//! in the month.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::ArbiterHandle;
use futures_util::future::join_all;
use thiserror::Error;
use tokio::sync::{Semaphore, oneshot};
use uuid::{NoContext, Timestamp as UuidTime, Uuid};

use super::preparation::{Draft, Owners, Preparation, PrepareError};
use super::refusals::QUOTA_EXCEEDED;
use super::sender::{SendFailure, WebhookSender};
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::link::{Link, ShortId};
use crate::domain::webhook::{DeliveryId, DeliveryState};
use crate::store::{DeliveryStore, StoreError, TestClaim};
use crate::telemetry::metrics::webhooks::{TestOutcome, WebhookMeters};

/// The time limit of a test of all webhooks of a link, from the request to the last answer.
const TESTED_WITHIN: Duration = Duration::from_secs(10);
/// The largest number of tested webhooks at once. They have no place in the in-flight table.
const MOST_AT_ONCE: usize = 256;

/// Why webhooks were not tested.
#[derive(Debug, Error)]
pub enum TestError {
    #[error("too many webhooks are being tested")]
    Busy,
    /// A quota may be used all the same.
    #[error("the service is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestEnd {
    /// The receiver answered with this status 2xx.
    Delivered(u16),
    Failed(SendFailure),
    /// Nothing was sent, for this reason.
    NeverSent(&'static str),
}

/// A webhook after its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestedWebhook {
    /// The place of its URL.
    pub place: u8,
    pub end: TestEnd,
    pub took: Duration,
}

impl TestedWebhook {
    fn never_sent(place: u8, reason: &'static str) -> Self {
        Self { place, end: TestEnd::NeverSent(reason), took: Duration::ZERO }
    }
}

/// What a tester is made of.
pub struct TesterParts {
    pub store: Arc<dyn DeliveryStore>,
    pub preparation: Arc<Preparation>,
    pub sender: WebhookSender,
    /// The runtime that the sender's connections belong to.
    pub runtime: ArbiterHandle,
    pub clock: Clock,
    /// Whether URLs whose deliveries fail are suspended.
    pub suspends: bool,
    pub meters: WebhookMeters,
}

/// Tests webhooks.
#[derive(Clone)]
pub struct WebhookTester {
    parts: Arc<TesterParts>,
    slots: Arc<Semaphore>,
}

impl WebhookTester {
    pub fn new(parts: TesterParts) -> Self {
        Self { parts: Arc::new(parts), slots: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }

    /// Tests the webhooks of a link at these places, in this order; each counts in the quota of the link's owner.
    pub async fn test(&self, link: &Link, places: &[u8]) -> Result<Vec<TestedWebhook>, TestError> {
        let until = Instant::now() + TESTED_WITHIN;
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let slots = Arc::clone(&self.slots).try_acquire_many_owned(count).map_err(|_| TestError::Busy)?;
        let (drafts, mut tested) = self.drafts(link, places).await?;
        let (drafts, refused) = self.within_quota(link, drafts).await?;
        tested.extend(refused);
        let (report, reported) = oneshot::channel();
        let (parts, id) = (Arc::clone(&self.parts), link.id);
        // The connections belong to that runtime. The tests come to their end there also if the client has gone.
        self.parts.runtime.spawn(async move {
            let attempts = drafts.into_iter().map(|draft| attempt(&parts, draft, until));
            let attempted = join_all(attempts).await;
            let ended = end_suspensions(&parts, id, &attempted).await;
            // If the client has gone, nobody waits for it.
            drop(report.send(ended.map(|()| attempted)));
            drop(slots);
        });
        tested.extend(reported.await.map_err(|_| TestError::Stopping)??);
        tested.sort_by_key(|tested| places.iter().position(|place| *place == tested.place));
        for webhook in &tested {
            self.parts.meters.tested(match webhook.end {
                TestEnd::Delivered(_) => TestOutcome::Delivered,
                TestEnd::NeverSent(QUOTA_EXCEEDED) => TestOutcome::QuotaExceeded,
                TestEnd::Failed(_) | TestEnd::NeverSent(_) => TestOutcome::Failed,
            });
        }
        Ok(tested)
    }

    /// What can be sent, each with a hit of its own, and what can't.
    async fn drafts(&self, link: &Link, places: &[u8]) -> Result<(Vec<Draft>, Vec<TestedWebhook>), StoreError> {
        let (mut drafts, mut unsendable) = (Vec::new(), Vec::new());
        let (now, mut owners) = (self.parts.clock.now(), Owners::default());
        let state = DeliveryState::new(link.owner, link.revision, now);
        for place in places {
            let id = DeliveryId { link: link.id, hit: HitStamp { id: hit_id(now), at: now }, url_index: *place };
            match self.parts.preparation.draft(id, &state, &mut owners).await {
                Ok(draft) => drafts.push(draft),
                Err(PrepareError::Unsendable(reason)) => unsendable.push(TestedWebhook::never_sent(*place, reason)),
                Err(PrepareError::Store(error)) => return Err(error),
            }
        }
        Ok((drafts, unsendable))
    }

    /// Counts tests in the quota; splits off those that it does not admit.
    async fn within_quota(
        &self,
        link: &Link,
        mut drafts: Vec<Draft>,
    ) -> Result<(Vec<Draft>, Vec<TestedWebhook>), StoreError> {
        let Some(first) = drafts.first() else { return Ok((drafts, Vec::new())) };
        let claim = TestClaim {
            owner: link.owner,
            month: self.parts.clock.now().month(),
            limit: first.limit(),
            count: drafts.len() as u64,
        };
        let admitted = self.parts.store.claim_test_quota(claim).await?;
        let refused = drafts.split_off(usize::try_from(admitted).unwrap_or(usize::MAX).min(drafts.len()));
        let refused = refused.iter().map(|draft| TestedWebhook::never_sent(draft.id().url_index, QUOTA_EXCEEDED));
        Ok((drafts, refused.collect()))
    }
}

async fn attempt(parts: &TesterParts, draft: Draft, until: Instant) -> TestedWebhook {
    let began = Instant::now();
    let end = match parts.preparation.request(&draft).await {
        Ok(request) => {
            let sent =
                parts.sender.send_within(request.into_test(), until.saturating_duration_since(Instant::now())).await;
            sent.map_or_else(TestEnd::Failed, TestEnd::Delivered)
        }
        Err(_) => TestEnd::Failed(SendFailure::Other),
    };
    TestedWebhook { place: draft.id().url_index, end, took: began.elapsed() }
}

/// Deliveries of webhooks that were tested with success are sent again.
async fn end_suspensions(parts: &TesterParts, link: ShortId, tested: &[TestedWebhook]) -> Result<(), StoreError> {
    if !parts.suspends {
        return Ok(());
    }
    for webhook in tested {
        if let TestEnd::Delivered(_) = webhook.end {
            parts.store.end_suspension(link, webhook.place).await?;
        }
    }
    Ok(())
}

/// The id of a hit that a test stands for; random but for its time.
fn hit_id(now: Timestamp) -> HitId {
    let nanos = u32::try_from(now.0 % 1000).unwrap_or(0) * 1_000_000;
    HitId(Uuid::new_v7(UuidTime::from_unix(NoContext, now.seconds(), nanos)))
}

//! Tests of webhooks: one attempt each, at once. They bypass the queue, and nothing is stored of them but their count
//! in the month.

use std::sync::Arc;
use std::time::Duration;

use actix::ArbiterHandle;
use futures_util::future::join_all;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use uuid::{NoContext, Timestamp as UuidTime, Uuid};

use super::preparation::{Draft, Owners, Preparation, PrepareError};
use super::refusals::QUOTA_EXCEEDED;
use super::sender::{SendFailure, WebhookSender};
use super::test_slots::{TakenSlots, TestSlots};
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitId, HitStamp};
use crate::domain::link::{Link, ShortId};
use crate::domain::webhook::{DeliveryId, DeliveryState};
use crate::store::{DeliveryStore, StoreError, TestClaim};
use crate::telemetry::metrics::webhooks::{TestOutcome, WebhookMeters};

/// The time limit of a test of all webhooks of a link, from the request to the last answer.
const TESTED_WITHIN: Duration = Duration::from_secs(10);
/// How long a test waits for a slot of its host. What is left is its receiver's.
const SLOT_WITHIN: Duration = Duration::from_secs(5);
/// The error of a test that found no slot of its host in time.
const HOST_BUSY: &str = "too many tests of this host at once";

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

/// The outcome of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestResult {
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
    pub end: TestResult,
    pub took: Duration,
}

impl TestedWebhook {
    fn never_sent(place: u8, reason: &'static str) -> Self {
        Self { place, end: TestResult::NeverSent(reason), took: Duration::ZERO }
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

impl TesterParts {
    /// Counts tests by their outcomes.
    fn count(&self, tested: &[TestedWebhook]) {
        for webhook in tested {
            self.meters.tested(match webhook.end {
                TestResult::Delivered(_) => TestOutcome::Delivered,
                TestResult::NeverSent(QUOTA_EXCEEDED) => TestOutcome::QuotaExceeded,
                TestResult::Failed(_) | TestResult::NeverSent(_) => TestOutcome::Failed,
            });
        }
    }
}

/// Tests webhooks.
#[derive(Clone)]
pub struct WebhookTester {
    parts: Arc<TesterParts>,
    slots: Arc<TestSlots>,
}

impl WebhookTester {
    pub fn new(parts: TesterParts) -> Self {
        Self { parts: Arc::new(parts), slots: Arc::default() }
    }

    /// Tests the webhooks of a link at these places, in this order; each counts in the quota of the link's owner.
    pub async fn test(&self, link: &Link, places: &[u8]) -> Result<Vec<TestedWebhook>, TestError> {
        let begun = Instant::now();
        let until = begun + TESTED_WITHIN;
        let slots = self.slots.take(link.owner, places.len()).ok_or(TestError::Busy)?;
        let admitted = timeout_at(until, self.admitted(link, places)).await;
        let too_late = |_| StoreError::Unavailable("no test began in time".into());
        let (drafts, mut tested) = admitted.map_err(too_late)??;
        self.parts.count(&tested);
        let (report, reported) = oneshot::channel();
        let parts = Arc::clone(&self.parts);
        // The connections belong to that runtime. The tests come to their end there also if the client has gone.
        self.parts.runtime.spawn(async move {
            let attempts = drafts.into_iter().map(|draft| attempt(&parts, &slots, draft, begun));
            let tested = join_all(attempts).await;
            parts.count(&tested);
            // If the client has gone, nobody waits for it.
            drop(report.send(tested));
        });
        tested.extend(reported.await.map_err(|_| TestError::Stopping)?);
        tested.sort_by_key(|tested| places.iter().position(|place| *place == tested.place));
        Ok(tested)
    }

    /// What is to be sent, and what is not.
    async fn admitted(&self, link: &Link, places: &[u8]) -> Result<(Vec<Draft>, Vec<TestedWebhook>), StoreError> {
        let (drafts, mut never_sent) = self.drafts(link, places).await?;
        let (drafts, refused) = self.within_quota(link, drafts).await?;
        never_sent.extend(refused);
        Ok((drafts, never_sent))
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

/// Sends a test once there is a slot of its host.
async fn attempt(parts: &TesterParts, slots: &TakenSlots, draft: Draft, begun: Instant) -> TestedWebhook {
    let until = begun + TESTED_WITHIN;
    let place = draft.id().url_index;
    let of_host = slots.of_host(&draft.flow().host);
    // The semaphore is never closed.
    let Ok(_slot) = timeout_at(begun + SLOT_WITHIN, of_host.acquire()).await else {
        return TestedWebhook::never_sent(place, HOST_BUSY);
    };
    let (end, took) = match timeout_at(until, parts.preparation.request(&draft)).await {
        Ok(Ok(request)) => {
            let left = until.saturating_duration_since(Instant::now());
            let sent = parts.sender.send_within(request.into_test(), left).await;
            (sent.outcome.map_or_else(TestResult::Failed, TestResult::Delivered), sent.took)
        }
        Ok(Err(_)) => (TestResult::Failed(SendFailure::Other), Duration::ZERO),
        Err(_) => (TestResult::Failed(SendFailure::TimedOut), Duration::ZERO),
    };
    if parts.suspends && matches!(end, TestResult::Delivered(_)) {
        end_suspension(parts, draft.id().link, place, until).await;
    }
    TestedWebhook { place, end, took }
}

/// Deliveries of a webhook that was tested with success are sent again. Whatever becomes of that, the test has its
/// result.
async fn end_suspension(parts: &TesterParts, link: ShortId, place: u8, until: Instant) {
    let too_late = |_| Err(StoreError::Unavailable("no answer in time".into()));
    let ended = timeout_at(until, parts.store.end_suspension(link, place)).await.unwrap_or_else(too_late);
    if let Err(error) = ended {
        tracing::warn!(%error, link = link.as_str(), url = place, "a test of a webhook may not have ended its suspension");
    }
}

/// The id of a hit that a test stands for; random but for its time.
fn hit_id(now: Timestamp) -> HitId {
    let nanos = u32::try_from(now.0 % 1000).unwrap_or(0) * 1_000_000;
    HitId(Uuid::new_v7(UuidTime::from_unix(NoContext, now.seconds(), nanos)))
}

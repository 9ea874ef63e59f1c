//! Writes down what became of tries, many at a time.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use super::webhook_desk::{AttemptEnd, Desk, EndedAttempt};
use crate::domain::retry::RetrySchedule;
use crate::domain::webhook::{AttemptOutcome, DeliveryId};
use crate::store::{DeliveryStore, Settlement, StoreError};
use crate::telemetry::metrics::webhooks::{AttemptResult, WebhookMeters};

/// How long to wait for more once a try has ended: they share one write. Nobody waits for it, but a crash meanwhile has
/// these tries repeated.
const GATHER: Duration = Duration::from_millis(3);
/// How long to wait where the store does not answer.
const REST: Duration = Duration::from_millis(250);

pub struct Ledger {
    store: Arc<dyn DeliveryStore>,
    desk: Arc<Desk>,
    retries: RetrySchedule,
    random: SystemRandom,
    meters: WebhookMeters,
    /// What is being written down. It outlives a write whose answer did not come: writing it again changes nothing.
    writing: Vec<Settlement>,
}

impl Ledger {
    pub fn new(store: Arc<dyn DeliveryStore>, desk: Arc<Desk>, retries: RetrySchedule, meters: WebhookMeters) -> Self {
        Self { store, desk, retries, random: SystemRandom::new(), meters, writing: Vec::new() }
    }

    /// What is not known to be written down.
    pub fn open_entries(&self) -> impl Iterator<Item = DeliveryId> {
        self.writing.iter().map(|settlement| settlement.id)
    }

    /// Writes down what ends, for ever. It may be dropped at any await, and then begun anew.
    pub async fn run(&mut self) {
        loop {
            self.write_all().await;
            self.desk.ended.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Waits for the tries under way, and writes down what becomes of them.
    pub async fn finish(&mut self) {
        loop {
            self.write_all().await;
            if self.desk.under_way() == 0 {
                // What has ended since is written down too.
                return self.write_all().await;
            }
            self.desk.ended.notified().await;
        }
    }

    async fn write_all(&mut self) {
        loop {
            if self.writing.is_empty() {
                self.writing = self.desk.take_ended().iter().map(|ended| self.settlement(ended)).collect();
            }
            if self.writing.is_empty() {
                return;
            }
            if let Err(error) = self.write().await {
                tracing::warn!(%error, "webhooks: what became of tries is not written down yet");
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        self.store.settle_deliveries(self.writing.clone()).await?;
        for settlement in &self.writing {
            let (id, attempt, outcome) = (settlement.id, settlement.attempt, &settlement.outcome);
            tracing::debug!(hit = %id.hit.id.0, url = id.url_index, attempt, ?outcome, "webhook tried");
            self.meters.attempted(match settlement.outcome {
                AttemptOutcome::Delivered { .. } => AttemptResult::Delivered(settlement.at.since(settlement.id.hit.at)),
                AttemptOutcome::Failed { retry_in: Some(_), .. } => AttemptResult::FailedForNow,
                AttemptOutcome::Failed { .. } | AttemptOutcome::NeverSent { .. } => AttemptResult::FailedForGood,
            });
        }
        self.desk.settled(&self.writing);
        self.writing.clear();
        Ok(())
    }

    fn settlement(&self, ended: &EndedAttempt) -> Settlement {
        let failed = |response_status, error: String| AttemptOutcome::Failed {
            response_status,
            error,
            retry_in: self.retries.next(ended.attempt, self.random_unit()),
        };
        let outcome = match ended.end {
            AttemptEnd::Answered(response_status) => AttemptOutcome::Delivered { response_status },
            AttemptEnd::Failed(failure) => failed(failure.response_status(), failure.to_string()),
            AttemptEnd::WorkerLost => failed(None, "interrupted".into()),
        };
        Settlement { id: ended.id, attempt: ended.attempt, outcome, at: ended.at }
    }

    /// A draw from 0 to 1 for the jitter; without randomness there is none.
    fn random_unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_or(0.5, |()| f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
    }
}

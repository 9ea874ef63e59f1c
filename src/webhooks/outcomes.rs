//! Writes the outcomes of attempts to the store, many in one write, and logs failures.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use super::failures::FailureLog;
use super::flow::Flow;
use super::in_flight::{AttemptEnd, EndedAttempt, InFlightTable};
use crate::domain::retry::RetrySchedule;
use crate::domain::webhook::{AttemptNumber, AttemptOutcome, DeliveryId};
use crate::store::{DeliveryStore, Settlement, StoreError};
use crate::telemetry::metrics::webhooks::{AttemptResult, WebhookMeters};
use crate::telemetry::outage_log::OutageLog;

/// How long to wait after an attempt ends, so that several outcomes share one write. Nothing waits for the write; a
/// crash within this time repeats the attempts.
pub const GATHER: Duration = Duration::from_millis(3);
/// How long to wait after a failed call of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(250);

pub struct OutcomeWriter {
    store: Arc<dyn DeliveryStore>,
    in_flight: Arc<InFlightTable>,
    retries: RetrySchedule,
    random: SystemRandom,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
    /// The outcomes being written. They are kept after a write without an answer: writing them again changes nothing.
    writing: Vec<PendingOutcome>,
    outage: OutageLog,
}

/// The outcome of an attempt, and its key and receiver.
struct PendingOutcome {
    settlement: Settlement,
    flow: Flow,
}

impl OutcomeWriter {
    pub fn new(
        store: Arc<dyn DeliveryStore>,
        in_flight: Arc<InFlightTable>,
        retries: RetrySchedule,
        meters: WebhookMeters,
        failures: Arc<FailureLog>,
    ) -> Self {
        let outage = OutageLog::new(
            "the store did not take outcomes of webhook attempts: retrying",
            "outcomes of webhook attempts are written to the store again",
        );
        Self { store, in_flight, retries, random: SystemRandom::new(), meters, failures, writing: Vec::new(), outage }
    }

    /// The deliveries whose outcomes may not be written yet.
    pub fn unwritten_ids(&self) -> impl Iterator<Item = DeliveryId> {
        self.writing.iter().map(|entry| entry.settlement.id)
    }

    /// Writes outcomes, for ever. The future may be dropped at any await and started again.
    pub async fn run(&mut self) {
        loop {
            self.write_all().await;
            self.in_flight.ended.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Waits for the attempts in flight, and writes their outcomes.
    pub async fn finish(&mut self) {
        loop {
            self.write_all().await;
            if self.in_flight.under_way() == 0 {
                // Attempts may have ended since the last write.
                return self.write_all().await;
            }
            self.in_flight.ended.notified().await;
        }
    }

    async fn write_all(&mut self) {
        loop {
            if self.writing.is_empty() {
                self.writing = self.in_flight.take_ended().into_iter().map(|ended| self.entry(ended)).collect();
            }
            if self.writing.is_empty() {
                return;
            }
            match self.write().await {
                Ok(()) => self.outage.succeeded(),
                Err(error) => {
                    self.outage.failed(&error);
                    tokio::time::sleep(STORE_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        self.store.settle_deliveries(self.writing.iter().map(|entry| entry.settlement.clone()).collect()).await?;
        for PendingOutcome { settlement, flow } in &self.writing {
            let (id, attempt, outcome) = (settlement.id, settlement.attempt, &settlement.outcome);
            tracing::debug!(hit = %id.hit.id.0, url = id.url_index, attempt, ?outcome, "webhook attempt ended");
            if let AttemptOutcome::Failed { error, .. } = outcome {
                self.failures.failed(flow, error);
            }
            self.meters.attempted(match settlement.outcome {
                AttemptOutcome::Delivered { .. } => {
                    // The time between a hit and a replay says nothing of the service.
                    let delay = settlement.at.since(settlement.id.hit.at);
                    AttemptResult::Delivered((settlement.round == 0).then_some(delay))
                }
                AttemptOutcome::Failed { retry_in: Some(_), .. } => AttemptResult::FailedForNow,
                AttemptOutcome::Failed { .. } | AttemptOutcome::NeverSent { .. } => AttemptResult::FailedForGood,
            });
        }
        self.in_flight.settled(self.writing.iter().map(|entry| &entry.settlement));
        self.writing.clear();
        Ok(())
    }

    fn entry(&self, ended: EndedAttempt) -> PendingOutcome {
        let failed = |response_status, error: String| AttemptOutcome::Failed {
            response_status,
            error,
            retry_in: self.retries.next(ended.attempt.in_round, self.random_unit()),
        };
        let outcome = match ended.end {
            AttemptEnd::Answered(response_status) => AttemptOutcome::Delivered { response_status },
            AttemptEnd::Failed(failure) => failed(failure.response_status(), failure.to_string()),
            AttemptEnd::WorkerLost => failed(None, "interrupted".into()),
        };
        let AttemptNumber { round, in_all, .. } = ended.attempt;
        let settlement = Settlement { id: ended.id, round, attempt: in_all, outcome, at: ended.at };
        PendingOutcome { settlement, flow: ended.flow }
    }

    /// A random number from 0 to 1 for the jitter; 0.5 if the random generator fails.
    fn random_unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_or(0.5, |()| f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
    }
}

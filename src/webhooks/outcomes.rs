//! Writes down what became of tries, many at a time, and has failures told.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use super::failures::FailureLog;
use super::flow::Flow;
use super::in_flight::{AttemptEnd, EndedAttempt, InFlightTable};
use crate::domain::retry::RetrySchedule;
use crate::domain::webhook::{AttemptOutcome, DeliveryId};
use crate::store::{DeliveryStore, Settlement, StoreError};
use crate::telemetry::metrics::webhooks::{AttemptResult, WebhookMeters};
use crate::telemetry::outage_log::OutageLog;

/// How long to wait for more once a try has ended: they share one write. Nobody waits for it, but a crash meanwhile has
/// these tries repeated.
const GATHER: Duration = Duration::from_millis(3);
/// How long to wait where the store does not answer.
const REST: Duration = Duration::from_millis(250);

pub struct OutcomeWriter {
    store: Arc<dyn DeliveryStore>,
    in_flight: Arc<InFlightTable>,
    retries: RetrySchedule,
    random: SystemRandom,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
    /// What is being written down. It outlives a write whose answer did not come: writing it again changes nothing.
    writing: Vec<Entry>,
    outage: OutageLog,
}

/// What became of a try, and whom it was made to.
struct Entry {
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

    /// What is not known to be written down.
    pub fn open_entries(&self) -> impl Iterator<Item = DeliveryId> {
        self.writing.iter().map(|entry| entry.settlement.id)
    }

    /// Writes down what ends, for ever. It may be dropped at any await, and then begun anew.
    pub async fn run(&mut self) {
        loop {
            self.write_all().await;
            self.in_flight.ended.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Waits for the tries under way, and writes down what becomes of them.
    pub async fn finish(&mut self) {
        loop {
            self.write_all().await;
            if self.in_flight.under_way() == 0 {
                // What has ended since is written down too.
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
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        self.store.settle_deliveries(self.writing.iter().map(|entry| entry.settlement.clone()).collect()).await?;
        for Entry { settlement, flow } in &self.writing {
            let (id, attempt, outcome) = (settlement.id, settlement.attempt, &settlement.outcome);
            tracing::debug!(hit = %id.hit.id.0, url = id.url_index, attempt, ?outcome, "webhook tried");
            if let AttemptOutcome::Failed { error, .. } = outcome {
                self.failures.failed(flow, error);
            }
            self.meters.attempted(match settlement.outcome {
                AttemptOutcome::Delivered { .. } => AttemptResult::Delivered(settlement.at.since(settlement.id.hit.at)),
                AttemptOutcome::Failed { retry_in: Some(_), .. } => AttemptResult::FailedForNow,
                AttemptOutcome::Failed { .. } | AttemptOutcome::NeverSent { .. } => AttemptResult::FailedForGood,
            });
        }
        self.in_flight.settled(self.writing.iter().map(|entry| &entry.settlement));
        self.writing.clear();
        Ok(())
    }

    fn entry(&self, ended: EndedAttempt) -> Entry {
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
        let settlement = Settlement { id: ended.id, attempt: ended.attempt, outcome, at: ended.at };
        Entry { settlement, flow: ended.flow }
    }

    /// A draw from 0 to 1 for the jitter; without randomness there is none.
    fn random_unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_or(0.5, |()| f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
    }
}

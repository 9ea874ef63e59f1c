//! Writes the outcomes of attempts to the store, many in one write, and logs failures.
//!
//! A write that fails is repeated in parts, one for each link: rows of one link that can't be written do not delay the
//! outcomes of others.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;

use super::failures::FailureLog;
use super::flow::Flow;
use super::in_flight::{AttemptEnd, EndedAttempt, InFlightTable};
use crate::domain::link::ShortId;
use crate::domain::retry::RetrySchedule;
use crate::domain::webhook::{AttemptNumber, AttemptOutcome, DeliveryId};
use crate::store::{DeliveryStore, Settlement, StoreError};
use crate::telemetry::metrics::webhooks::{AttemptResult, WebhookMeters};
use crate::telemetry::outage_log::OutageLog;

/// How long to wait after an attempt ends, so that several outcomes share one write. Nothing waits for the write; a
/// crash within this time repeats the attempts.
pub const GATHER: Duration = Duration::from_millis(3);
/// How long to wait before a failed write is repeated.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(250);

/// Writes that are repeated at once: a store that comes back is not flooded.
const REPEATS_AT_ONCE: usize = 32;

/// A write, which returns its number.
type OutcomeWrite = Pin<Box<dyn Future<Output = (u64, Result<(), StoreError>)> + Send>>;

pub struct OutcomeWriter {
    store: Arc<dyn DeliveryStore>,
    in_flight: Arc<InFlightTable>,
    retries: RetrySchedule,
    random: SystemRandom,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
    /// The outcomes of each write, by its number. They are kept until the store has them: writing them again changes nothing.
    writing: HashMap<u64, Vec<PendingOutcome>>,
    writes: FuturesUnordered<OutcomeWrite>,
    /// A permit for each write that may be repeated at once.
    repeats: Arc<Semaphore>,
    /// The write of the outcomes that have not been written before. There is one at a time, so that many outcomes share it.
    first_write: Option<u64>,
    /// How many writes were begun.
    begun: u64,
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
            "the store takes outcomes of webhook attempts again",
        );
        Self {
            store,
            in_flight,
            retries,
            random: SystemRandom::new(),
            meters,
            failures,
            writing: HashMap::new(),
            writes: FuturesUnordered::new(),
            repeats: Arc::new(Semaphore::new(REPEATS_AT_ONCE)),
            first_write: None,
            begun: 0,
            outage,
        }
    }

    /// The deliveries whose outcomes may not be written yet.
    pub fn unwritten_ids(&self) -> impl Iterator<Item = DeliveryId> {
        self.writing.values().flatten().map(|entry| entry.settlement.id)
    }

    /// Writes outcomes, for ever. The future may be dropped at any await and started again.
    pub async fn run(&mut self) {
        self.begin_again();
        loop {
            self.write_all().await;
            self.in_flight.ended.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Waits for the attempts in flight, and writes their outcomes.
    pub async fn finish(&mut self) {
        self.begin_again();
        loop {
            self.write_all().await;
            if self.in_flight.under_way() == 0 {
                // Attempts may have ended since the last write.
                return self.write_all().await;
            }
            self.in_flight.ended.notified().await;
        }
    }

    /// Begins all writes anew: a panic may have dropped one.
    fn begin_again(&mut self) {
        self.abandon();
        for outcomes in std::mem::take(&mut self.writing).into_values() {
            self.begin(outcomes, None);
        }
    }

    /// Drops the writes under way, and what they hold in the store.
    pub fn abandon(&mut self) {
        self.writes = FuturesUnordered::new();
        self.first_write = None;
    }

    /// Writes the outcomes of all attempts that have ended.
    async fn write_all(&mut self) {
        loop {
            if self.first_write.is_none() {
                let ended: Vec<_> = self.in_flight.take_ended().into_iter().map(|ended| self.entry(ended)).collect();
                if !ended.is_empty() {
                    self.first_write = Some(self.begin(ended, None));
                }
            }
            tokio::select! {
                biased;
                written = self.writes.next() => match written {
                    Some((number, written)) => self.end(number, written),
                    None => return,
                },
                () = self.in_flight.ended.notified(), if self.first_write.is_none() => tokio::time::sleep(GATHER).await,
            }
        }
    }

    /// Begins a write, and returns its number. A repeated write waits before.
    fn begin(&mut self, outcomes: Vec<PendingOutcome>, repeated_after: Option<Duration>) -> u64 {
        self.begun += 1;
        let (number, store, repeats) = (self.begun, Arc::clone(&self.store), Arc::clone(&self.repeats));
        let settlements = outcomes.iter().map(|entry| entry.settlement.clone()).collect();
        self.writing.insert(number, outcomes);
        self.writes.push(Box::pin(async move {
            let mut _permit = None;
            if let Some(delay) = repeated_after {
                tokio::time::sleep(delay).await;
                // The semaphore is never closed.
                _permit = repeats.acquire().await.ok();
            }
            (number, store.settle_deliveries(settlements).await)
        }));
        number
    }

    fn end(&mut self, number: u64, written: Result<(), StoreError>) {
        let outcomes = self.writing.remove(&number).unwrap_or_default();
        self.first_write = self.first_write.filter(|first| *first != number);
        match written {
            Ok(()) => {
                self.settled(&outcomes);
                if self.writing.keys().all(|number| Some(*number) == self.first_write) {
                    self.outage.succeeded();
                }
            }
            Err(error) => {
                self.outage.failed(&error);
                let mut of_links: HashMap<ShortId, Vec<PendingOutcome>> = HashMap::new();
                for entry in outcomes {
                    of_links.entry(entry.settlement.id.link).or_default().push(entry);
                }
                for outcomes in of_links.into_values() {
                    self.begin(outcomes, Some(STORE_RETRY_DELAY));
                }
            }
        }
    }

    /// The store has these outcomes.
    fn settled(&self, outcomes: &[PendingOutcome]) {
        for PendingOutcome { settlement, flow } in outcomes {
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
        self.in_flight.settled(outcomes.iter().map(|entry| &entry.settlement));
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

//! Takes due deliveries from the store's queue, gives them to workers, and writes down what became of them.
//!
//! The queue is in the store; here are only the tries under way, at most one a worker. A delivery that is not settled
//! when the process ends is still due at the next start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Mutex, mpsc, watch};

use super::keeper::{Keeper, KeeperOptions, Kept, RestartHook};
use super::webhook_preparation::{Owners, Preparation, PrepareError};
pub use super::webhook_queue::DispatcherWake;
use super::webhook_queue::{Found, Host, QueueScan};
use super::webhook_sender::{SignedRequest, WebhookSender};
use super::webhook_worker::{AttemptDelivery, AttemptEnd, AttemptTicket, FinishedAttempt, WebhookWorker};
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::plan::Plans;
use crate::domain::retry::RetrySchedule;
use crate::domain::vault::Vault;
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus};
use crate::store::{Settlement, Store, StoreError};

/// How long the dispatcher sleeps when nothing wakes it; retries due sooner wake it in time.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait where the store does not answer, or where a worker is just being started anew.
const REST: Duration = Duration::from_millis(250);
/// Due deliveries looked at in one round: bounds how long ended tries wait to be written down. The next round goes on
/// behind them.
const LOOK_AHEAD: usize = 5_000;
/// Due deliveries read at a time.
const PAGE: usize = 500;

/// What a dispatcher needs to know.
pub struct DispatcherParts {
    pub store: Arc<dyn Store>,
    pub vault: Arc<Vault>,
    pub plans: Plans,
    pub clock: Clock,
    pub sender: WebhookSender,
    pub retries: RetrySchedule,
    /// Tries under way at the most.
    pub workers: NonZeroUsize,
    /// Tries under way to one host and port at the most, so that a slow one does not hold all workers.
    pub in_flight_per_host: usize,
    pub wake: DispatcherWake,
}

/// The running pool.
pub struct WebhookPool {
    dispatcher: Keeper<WebhookDispatcher>,
    workers: Vec<Keeper<WebhookWorker>>,
    dispatching: Arc<Mutex<Dispatching>>,
    stop: watch::Sender<bool>,
}

impl WebhookPool {
    /// Starts the dispatcher and its workers on `arbiter`.
    pub fn start(arbiter: &ArbiterHandle, parts: DispatcherParts, on_restart: &RestartHook) -> Self {
        let start_worker = |_| WebhookWorker::start(arbiter, parts.sender.clone(), on_restart);
        let workers: Vec<_> = (0..parts.workers.get()).map(start_worker).collect();
        let wake = parts.wake.clone();
        let dispatching = Arc::new(Mutex::new(Dispatching::new(parts, workers.iter().map(Keeper::kept).collect())));
        let stop = watch::Sender::new(false);
        let options = KeeperOptions {
            actor: "webhook_dispatcher",
            // Nothing is ever sent to it: it is woken.
            mailbox_capacity: NonZeroUsize::MIN,
            on_restart: Arc::clone(on_restart),
        };
        let (state, stopping) = (Arc::clone(&dispatching), stop.subscribe());
        let dispatcher = Keeper::start(arbiter, options, move |_| WebhookDispatcher {
            dispatching: Arc::clone(&state),
            wake: wake.clone(),
            stopping: stopping.clone(),
        });
        Self { dispatcher, workers, dispatching, stop }
    }

    /// Begins no new try, waits for those under way for at most `patience`, and writes down what became of them. The
    /// others stay due in the store.
    pub async fn stop(&self, patience: Duration) {
        self.stop.send_replace(true);
        self.dispatcher.stop().await;
        let finish = async { self.dispatching.lock().await.finish().await };
        if tokio::time::timeout(patience, finish).await.is_err() {
            tracing::info!("webhooks: tries that took too long are made again at the next start");
        }
    }

    /// A worker, for tests that make it panic.
    #[doc(hidden)]
    pub fn worker(&self, index: usize) -> Kept<WebhookWorker> {
        self.workers[index].kept()
    }
}

/// The actor: one round after another.
struct WebhookDispatcher {
    dispatching: Arc<Mutex<Dispatching>>,
    wake: DispatcherWake,
    stopping: watch::Receiver<bool>,
}

impl Actor for WebhookDispatcher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (dispatching, wake, stopping) = (Arc::clone(&self.dispatching), self.wake.clone(), self.stopping.clone());
        context.spawn(actix::fut::wrap_future::<_, Self>(async move {
            // Nobody else wants the lock before this actor has ended.
            let mut state = dispatching.lock().await;
            // An earlier life may have taken deliveries from the queue and not begun them.
            state.scan.reset();
            while !*stopping.borrow() {
                if let Some(earliest) = wake.take_earliest() {
                    state.scan.queued_from(earliest);
                }
                let pause = state.round().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "webhooks wait: the store did not answer");
                    state.scan.reset();
                    REST
                });
                let finished = tokio::select! {
                    finished = state.finished.recv() => finished,
                    () = wake.woken() => None,
                    () = tokio::time::sleep(pause) => None,
                };
                let was_not_begun = finished.is_some_and(|finished| finished.end == AttemptEnd::NotBegun);
                state.ended.extend(finished);
                if was_not_begun {
                    tokio::time::sleep(REST).await;
                }
            }
        }));
    }
}

/// A try under way.
struct Attempt {
    host: Host,
    worker: usize,
    attempts_before: u32,
}

/// Where the dispatching stands. It outlives a panic of the actor.
struct Dispatching {
    parts: DispatcherParts,
    preparation: Preparation,
    random: SystemRandom,
    scan: QueueScan,
    workers: Vec<Kept<WebhookWorker>>,
    /// Workers without a try; the one that was busy longest ago comes first.
    idle: VecDeque<usize>,
    under_way: HashMap<DeliveryId, Attempt>,
    per_host: HashMap<Host, usize>,
    finished: mpsc::UnboundedReceiver<FinishedAttempt>,
    finished_sender: mpsc::UnboundedSender<FinishedAttempt>,
    /// Ended tries that are not yet written down.
    ended: Vec<FinishedAttempt>,
}

impl Dispatching {
    fn new(parts: DispatcherParts, workers: Vec<Kept<WebhookWorker>>) -> Self {
        let (finished_sender, finished) = mpsc::unbounded_channel();
        Self {
            preparation: Preparation::new(Arc::clone(&parts.store), Arc::clone(&parts.vault), parts.plans),
            parts,
            random: SystemRandom::new(),
            scan: QueueScan::default(),
            idle: (0..workers.len()).collect(),
            workers,
            under_way: HashMap::new(),
            per_host: HashMap::new(),
            finished,
            finished_sender,
            ended: Vec::new(),
        }
    }

    /// Writes down what has ended and begins what is due. Answers how long nothing needs to be done.
    ///
    /// It may be dropped at any await, and then begun anew after a [`QueueScan::reset`]: what it did not come to is
    /// still due in the store.
    async fn round(&mut self) -> Result<Duration, StoreError> {
        self.settle_ended().await?;
        if self.idle.is_empty() {
            return Ok(PAUSE);
        }
        let (chosen, pause) = self.choose().await?;
        self.begin(chosen).await?;
        Ok(if self.scan.has_recalled() && !self.idle.is_empty() { Duration::ZERO } else { pause })
    }

    /// Takes from the queue what idle workers can begin now; answers also how long until there may be more.
    async fn choose(&mut self) -> Result<(Vec<(DeliveryId, Host)>, Duration), StoreError> {
        let now = self.parts.clock.now();
        let (mut chosen, mut pause) = (Vec::new(), Duration::ZERO);
        let mut chosen_per_host: HashMap<Host, usize> = HashMap::new();
        let (mut looked_at, mut is_at_end) = (0, false);
        self.scan.begin_round();
        'pages: while looked_at < LOOK_AHEAD && !is_at_end {
            let page = self.parts.store.due_deliveries(now.plus(PAUSE), self.scan.next_page(), PAGE).await?;
            if page.len() < PAGE {
                (is_at_end, pause) = (true, PAUSE);
            }
            looked_at += page.len();
            for due in page {
                if due.due_at > now {
                    (is_at_end, pause) = (true, PAUSE.min(Duration::from_millis(due.due_at.0 - now.0)));
                    break 'pages;
                }
                if chosen.len() == self.idle.len() {
                    (is_at_end, pause) = (false, Duration::ZERO);
                    break 'pages;
                }
                if !self.under_way.contains_key(&due.id) {
                    let host = self.preparation.host(due.id).await?;
                    if self.scan.look_at(&due, &host) == Found::Consider {
                        let busy = self.per_host.get(&host).copied().unwrap_or(0);
                        let taken = chosen_per_host.entry(Arc::clone(&host)).or_default();
                        if busy + *taken < self.parts.in_flight_per_host {
                            *taken += 1;
                            chosen.push((due.id, host));
                        } else {
                            self.scan.passed_over(&host);
                        }
                    }
                }
                self.scan.step(&due);
                if self.scan.skips_on() {
                    (is_at_end, pause) = (false, Duration::ZERO);
                    continue 'pages;
                }
            }
        }
        self.scan.end_round(is_at_end);
        Ok((chosen, pause))
    }

    /// Waits for the tries under way and writes down what became of them.
    async fn finish(&mut self) {
        while let Err(error) = self.settle_ended().await {
            tracing::warn!(%error, "webhooks: what became of tries is not written down yet");
            tokio::time::sleep(REST).await;
        }
        while !self.under_way.is_empty() {
            let Some(finished) = self.finished.recv().await else { return };
            self.ended.push(finished);
            if let Err(error) = self.settle_ended().await {
                tracing::warn!(%error, "webhooks: what became of tries is not written down yet");
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn settle_ended(&mut self) -> Result<(), StoreError> {
        while let Ok(finished) = self.finished.try_recv() {
            self.ended.push(finished);
        }
        if self.ended.is_empty() {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let settlements: Vec<_> = self.ended.iter().filter_map(|finished| self.settlement(finished, now)).collect();
        if !settlements.is_empty() {
            self.parts.store.settle_deliveries(settlements).await?;
            // Retries may be due at once, and nothing that is due from now on was looked at.
            self.scan.queued_from(now);
        }
        let settled: HashSet<FinishedAttempt> = self.ended.drain(..).collect();
        for finished in settled {
            let Some(attempt) = self.under_way.remove(&finished.id) else { continue };
            self.idle.push_back(attempt.worker);
            if let Some(count) = self.per_host.get_mut(&attempt.host) {
                *count -= 1;
                if *count == 0 {
                    self.per_host.remove(&attempt.host);
                }
            }
            self.scan.has_room(&attempt.host);
            if finished.end == AttemptEnd::NotBegun {
                // It is still due where it was.
                self.scan.reset();
            }
        }
        Ok(())
    }

    /// What to write down of a try that has ended; nothing of one that was not begun.
    fn settlement(&self, finished: &FinishedAttempt, now: Timestamp) -> Option<Settlement> {
        let attempts = self.under_way.get(&finished.id).map_or(0, |attempt| attempt.attempts_before) + 1;
        let failed = |response_status, error: String| AttemptOutcome::Failed {
            response_status,
            error,
            retry_in: self.parts.retries.next(attempts, self.random_unit()),
        };
        let outcome = match finished.end {
            AttemptEnd::Answered(response_status) => AttemptOutcome::Delivered { response_status },
            AttemptEnd::Failed(failure) => failed(failure.response_status(), failure.to_string()),
            AttemptEnd::WorkerLost => failed(None, "interrupted".into()),
            AttemptEnd::NotBegun => return None,
        };
        Some(Settlement { id: finished.id, attempt: attempts, outcome, at: now })
    }

    /// Gives the chosen deliveries to idle workers; those past their quota fail instead.
    async fn begin(&mut self, chosen: Vec<(DeliveryId, Host)>) -> Result<(), StoreError> {
        if chosen.is_empty() {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let ids: Vec<DeliveryId> = chosen.iter().map(|(id, _)| *id).collect();
        let states = self.parts.store.delivery_states(ids).await?;
        let (mut ready, mut refused, mut owners) = (Vec::new(), Vec::new(), Owners::new());
        for ((id, host), state) in chosen.into_iter().zip(states) {
            let Some(state) = state.filter(|state| state.status == DeliveryStatus::Pending) else {
                self.scan.has_room(&host);
                continue;
            };
            match self.preparation.prepare(id, &state, now, &mut owners).await {
                Ok((request, claim)) => ready.push((id, host, state, request, claim)),
                Err(PrepareError::Unsendable(reason)) => refused.push((id, host, reason)),
                Err(PrepareError::Store(error)) => return Err(error),
            }
        }
        let claims = ready.iter().filter(|(_, _, state, ..)| !state.counted).map(|(.., claim)| *claim).collect();
        let mut granted = self.parts.store.claim_delivery_quota(claims).await?.into_iter();
        for (id, host, state, request, _) in ready {
            if state.counted || granted.next() == Some(true) {
                self.hand_over(id, host, &state, request);
            } else {
                refused.push((id, host, "quota exceeded"));
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let never_sent = refused.iter().map(|(id, _, reason)| {
            let outcome = AttemptOutcome::NeverSent { error: (*reason).to_owned() };
            Settlement { id: *id, attempt: 0, outcome, at: now }
        });
        self.parts.store.settle_deliveries(never_sent.collect()).await?;
        // None of them has taken the place that was kept for it.
        for (_, host, _) in &refused {
            self.scan.has_room(host);
        }
        Ok(())
    }

    fn hand_over(&mut self, id: DeliveryId, host: Host, state: &DeliveryState, request: SignedRequest) {
        // As many were chosen as workers were idle.
        let Some(worker) = self.idle.pop_front() else { return };
        *self.per_host.entry(Arc::clone(&host)).or_default() += 1;
        self.under_way.insert(id, Attempt { host, worker, attempts_before: state.attempts });
        let ticket = AttemptTicket::new(self.finished_sender.clone(), id);
        // A worker that is just being started anew drops the ticket, which tells that no try was begun.
        let _ = self.workers[worker].try_send(AttemptDelivery { request, ticket });
    }

    /// A draw from 0 to 1 for the jitter; without randomness there is none.
    fn random_unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_or(0.5, |()| f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
    }
}

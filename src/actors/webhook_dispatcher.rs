//! Takes due deliveries from the store's queue, gives them to workers, and writes down what became of them.
//!
//! The queue is in the store; here are only the tries under way, at most one a worker. A delivery that is not settled
//! when the process ends is still due at the next start.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context};
use moka::future::Cache;
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use tokio::sync::{Mutex, Notify, mpsc, watch};

use super::keeper::{Keeper, KeeperOptions, Kept, RestartHook};
use super::webhook_sender::{SignedRequest, WebhookSender};
use super::webhook_worker::{AttemptDelivery, AttemptEnd, AttemptTicket, FinishedAttempt, WebhookWorker};
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, SealedSecret};
use crate::domain::link::{Link, ShortId};
use crate::domain::plan::Plans;
use crate::domain::retry::RetrySchedule;
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::Vault;
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus};
use crate::domain::webhook_event::hit_event_body;
use crate::domain::webhook_url::WebhookUrl;
use crate::store::{DueDelivery, QuotaClaim, Settlement, Store, StoreError};

/// How long the dispatcher sleeps when nothing wakes it; retries due sooner wake it in time.
const PAUSE: Duration = Duration::from_millis(100);
/// Due deliveries looked at in one round, those of busy hosts included: bounds what a round reads.
const LOOK_AHEAD: usize = 5_000;
/// Due deliveries read at a time.
const PAGE: usize = 500;
/// Links and keys kept at hand. Links never change; keys are read again after this time.
const AT_HAND: u64 = 10_000;
const KEYS_FOR: Duration = Duration::from_secs(4);

/// Wakes the dispatcher: there are new deliveries.
#[derive(Clone, Debug, Default)]
pub struct DispatcherWake(Arc<Notify>);

impl DispatcherWake {
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

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
        for worker in &self.workers {
            // Dropping ends a worker in the middle of a try; its `stop` would wait for it.
            drop(worker.kept());
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
            while !*stopping.borrow() {
                let mut state = dispatching.lock().await;
                let pause = state.round().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "webhooks wait: the store did not answer");
                    PAUSE
                });
                let finished = state.finished.recv();
                tokio::select! {
                    one = finished => if let Some(one) = one { state.ended.push(one) },
                    () = wake.0.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }));
    }
}

/// Why a delivery can't be sent as it is stored.
#[derive(Debug, Error)]
enum PrepareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Unsendable(&'static str),
}

/// A try under way.
struct Attempt {
    host: String,
    worker: usize,
    attempts_before: u32,
}

/// Where the dispatching stands. It outlives a panic of the actor.
struct Dispatching {
    parts: DispatcherParts,
    random: SystemRandom,
    links: Cache<ShortId, Arc<Link>>,
    keys: Cache<KeyId, Arc<ApiKey>>,
    workers: Vec<Kept<WebhookWorker>>,
    /// Workers without a try.
    idle: Vec<usize>,
    under_way: HashMap<DeliveryId, Attempt>,
    per_host: HashMap<String, usize>,
    finished: mpsc::UnboundedReceiver<FinishedAttempt>,
    finished_sender: mpsc::UnboundedSender<FinishedAttempt>,
    /// Ended tries that are not yet written down.
    ended: Vec<FinishedAttempt>,
}

impl Dispatching {
    fn new(parts: DispatcherParts, workers: Vec<Kept<WebhookWorker>>) -> Self {
        let (finished_sender, finished) = mpsc::unbounded_channel();
        Self {
            parts,
            random: SystemRandom::new(),
            links: Cache::new(AT_HAND),
            keys: Cache::builder().max_capacity(AT_HAND).time_to_live(KEYS_FOR).build(),
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
    async fn round(&mut self) -> Result<Duration, StoreError> {
        self.settle_ended().await?;
        if self.idle.is_empty() {
            return Ok(PAUSE);
        }
        let now = self.parts.clock.now();
        let (mut chosen, mut pause) = (Vec::new(), PAUSE);
        let mut chosen_per_host: HashMap<String, usize> = HashMap::new();
        let mut after: Option<DueDelivery> = None;
        let mut looked_at = 0;
        'pages: while looked_at < LOOK_AHEAD {
            let page = self.parts.store.due_deliveries(now.plus(PAUSE), after.take(), PAGE).await?;
            let is_last = page.len() < PAGE;
            looked_at += page.len();
            after = page.last().cloned();
            for due in page {
                if chosen.len() == self.idle.len() {
                    break 'pages;
                }
                if due.due_at > now {
                    pause = pause.min(Duration::from_millis(due.due_at.0 - now.0));
                    break 'pages;
                }
                if self.under_way.contains_key(&due.id) {
                    continue;
                }
                let link = self.link(due.id.link).await?;
                let host = link.as_deref().and_then(|link| link.webhooks.get(usize::from(due.id.url_index)));
                let host = host.and_then(|url| WebhookUrl::parse_stored(url).ok()).map(|url| host_of(&url));
                let host = host.unwrap_or_default();
                let busy = self.per_host.get(&host).copied().unwrap_or(0);
                let taken = chosen_per_host.entry(host.clone()).or_default();
                if busy + *taken < self.parts.in_flight_per_host {
                    *taken += 1;
                    chosen.push((due.id, host));
                }
            }
            if is_last {
                break;
            }
        }
        let begun = !chosen.is_empty();
        self.begin(chosen).await?;
        // Where workers are left and something was begun, more may be due behind it.
        Ok(if begun && !self.idle.is_empty() && looked_at >= PAGE { Duration::ZERO } else { pause })
    }

    /// Waits for the tries under way and writes down what became of them.
    async fn finish(&mut self) {
        while let Err(error) = self.settle_ended().await {
            tracing::warn!(%error, "webhooks: what became of tries is not written down yet");
            tokio::time::sleep(PAUSE).await;
        }
        while !self.under_way.is_empty() {
            let Some(finished) = self.finished.recv().await else { return };
            self.ended.push(finished);
            if let Err(error) = self.settle_ended().await {
                tracing::warn!(%error, "webhooks: what became of tries is not written down yet");
                tokio::time::sleep(PAUSE).await;
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
        let settlements = self.ended.iter().map(|finished| self.settlement(finished, now)).collect();
        self.parts.store.settle_deliveries(settlements).await?;
        let settled: HashSet<DeliveryId> = self.ended.drain(..).map(|finished| finished.id).collect();
        for id in settled {
            let Some(attempt) = self.under_way.remove(&id) else { continue };
            self.idle.push(attempt.worker);
            if let Some(count) = self.per_host.get_mut(&attempt.host) {
                *count -= 1;
                if *count == 0 {
                    self.per_host.remove(&attempt.host);
                }
            }
        }
        Ok(())
    }

    fn settlement(&self, finished: &FinishedAttempt, now: Timestamp) -> Settlement {
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
        };
        Settlement { id: finished.id, attempt: attempts, outcome, at: now }
    }

    /// Gives the chosen deliveries to idle workers; those past their quota fail instead.
    async fn begin(&mut self, chosen: Vec<(DeliveryId, String)>) -> Result<(), StoreError> {
        if chosen.is_empty() {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let ids: Vec<DeliveryId> = chosen.iter().map(|(id, _)| *id).collect();
        let states = self.parts.store.delivery_states(ids).await?;
        let mut ready = Vec::new();
        let mut never_sent = Vec::new();
        let mut refuse = |id, error: &str| {
            let outcome = AttemptOutcome::NeverSent { error: error.to_owned() };
            never_sent.push(Settlement { id, attempt: 0, outcome, at: now });
        };
        for ((id, host), state) in chosen.into_iter().zip(states) {
            let Some(state) = state.filter(|state| state.status == DeliveryStatus::Pending) else { continue };
            match self.prepare(id, &state, now).await {
                Ok((request, claim)) => ready.push((id, host, state, request, claim)),
                Err(PrepareError::Unsendable(reason)) => refuse(id, reason),
                Err(PrepareError::Store(error)) => return Err(error),
            }
        }
        let claims = ready.iter().filter(|(_, _, state, ..)| !state.counted).map(|(.., claim)| *claim).collect();
        let mut granted = self.parts.store.claim_delivery_quota(claims).await?.into_iter();
        for (id, host, state, request, _) in ready {
            if state.counted || granted.next() == Some(true) {
                self.hand_over(id, host, &state, request);
            } else {
                refuse(id, "quota exceeded");
            }
        }
        if never_sent.is_empty() { Ok(()) } else { self.parts.store.settle_deliveries(never_sent).await }
    }

    fn hand_over(&mut self, id: DeliveryId, host: String, state: &DeliveryState, request: SignedRequest) {
        // As many were chosen as workers were idle.
        let Some(worker) = self.idle.pop() else { return };
        *self.per_host.entry(host.clone()).or_default() += 1;
        self.under_way.insert(id, Attempt { host, worker, attempts_before: state.attempts });
        let ticket = AttemptTicket::new(self.finished_sender.clone(), id);
        // A worker that is just being started anew drops the ticket, which tells that the try was lost.
        let _ = self.workers[worker].try_send(AttemptDelivery { request, ticket });
    }

    async fn prepare(
        &self,
        id: DeliveryId,
        state: &DeliveryState,
        now: Timestamp,
    ) -> Result<(SignedRequest, QuotaClaim), PrepareError> {
        let link = self.link(id.link).await?.ok_or(PrepareError::Unsendable("link not found"))?;
        let owner = self.owner(state.owner).await?.ok_or(PrepareError::Unsendable("key not found"))?;
        let url = link.webhooks.get(usize::from(id.url_index)).and_then(|url| WebhookUrl::parse_stored(url).ok());
        let url = url.ok_or(PrepareError::Unsendable("malformed url"))?;
        let secret = self.open(&owner, &owner.webhook_secret)?;
        let retiring = owner.retiring_webhook_secret.as_ref().filter(|old| now < old.until);
        let retiring = retiring.map(|old| self.open(&owner, &old.secret)).transpose()?;
        let body = hit_event_body(
            link.id.as_str(),
            link.target.as_str(),
            &id.hit.id.to_string(),
            &id.hit.at.to_string(),
            link.data.as_json(),
        );
        let seconds = i64::try_from(now.seconds()).unwrap_or(i64::MAX);
        let request = SignedRequest::sign(url, body.into(), &id.to_string(), seconds, &secret, retiring.as_ref())
            .map_err(|_| PrepareError::Unsendable("malformed id"))?;
        let limit = self.parts.plans.of(&owner).webhook_deliveries_per_month;
        Ok((request, QuotaClaim { id, month: now.month(), limit }))
    }

    fn open(&self, owner: &ApiKey, sealed: &SealedSecret) -> Result<WebhookSecret, PrepareError> {
        let opened = self.parts.vault.open(owner.id.0.as_bytes(), sealed);
        let text = opened.map_err(|_| PrepareError::Unsendable("webhook secret unreadable"))?;
        WebhookSecret::parse(&text).map_err(|_| PrepareError::Unsendable("webhook secret unreadable"))
    }

    async fn link(&self, id: ShortId) -> Result<Option<Arc<Link>>, StoreError> {
        if let Some(link) = self.links.get(&id).await {
            return Ok(Some(link));
        }
        let link = self.parts.store.link(id).await?.map(Arc::new);
        if let Some(link) = &link {
            self.links.insert(id, Arc::clone(link)).await;
        }
        Ok(link)
    }

    async fn owner(&self, id: KeyId) -> Result<Option<Arc<ApiKey>>, StoreError> {
        if let Some(key) = self.keys.get(&id).await {
            return Ok(Some(key));
        }
        let key = self.parts.store.key(id).await?.map(Arc::new);
        if let Some(key) = &key {
            self.keys.insert(id, Arc::clone(key)).await;
        }
        Ok(key)
    }

    /// A draw from 0 to 1 for the jitter; without randomness there is none.
    fn random_unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_or(0.5, |()| f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
    }
}

/// Host and port: what a receiver is told apart by.
fn host_of(url: &WebhookUrl) -> String {
    let target = url.target();
    format!("{}:{}", target.host_str().unwrap_or_default(), target.port_or_known_default().unwrap_or_default())
}

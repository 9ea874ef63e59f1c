//! Delivers webhooks. The poller takes due deliveries from the store's queue, workers make the attempts, and the
//! outcome writer writes their outcomes to the store.
//!
//! The queue is in the store; memory has a bounded number of deliveries. A delivery that is not settled when the
//! process ends is still due at the next start.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context};
use tokio::sync::{Mutex, watch};

use super::failures::FailureLog;
use super::in_flight::{AttemptWorker, InFlightTable};
use super::outcomes::OutcomeWriter;
use super::poller::{Poller, PollerParts};
use super::preparation::Preparation;
use super::sender::WebhookSender;
use super::suspended::{forget_failures, suspend_failing};
use super::tester::{TesterParts, WebhookTester};
use super::worker::WebhookWorker;
use crate::actors::supervisor::{Handle, RestartHook, Supervisor, SupervisorOptions};
use crate::actors::wake::DispatcherWake;
use crate::clock::Clock;
use crate::domain::plan::Plans;
use crate::domain::retry::RetrySchedule;
use crate::domain::vault::Vault;
use crate::store::{DeliveryStore, Store};
use crate::telemetry::metrics::webhooks::WebhookMeters;
use crate::telemetry::traces::Traces;

/// How often to read the length of the queue for the metrics.
const WATCH_QUEUE_EVERY: Duration = Duration::from_secs(1);

/// The settings and parts of a dispatcher.
pub struct DispatcherParts {
    pub store: Arc<dyn Store>,
    pub vault: Arc<Vault>,
    pub plans: Plans,
    pub clock: Clock,
    pub sender: WebhookSender,
    pub retries: RetrySchedule,
    /// The largest number of attempts in flight.
    pub workers: NonZeroUsize,
    /// The largest number of attempts in flight to one host and port, so that a slow host does not occupy all workers.
    pub in_flight_per_host: usize,
    /// The largest number of deliveries in memory.
    pub buffer: usize,
    /// How many deliveries in a row, over at least a day, fail until a URL is suspended; `None`: it never is.
    pub suspend_after: Option<NonZeroU32>,
    pub wake: DispatcherWake,
    pub meters: WebhookMeters,
    /// Exports a span for each attempt.
    pub traces: Option<Arc<Traces>>,
}

/// The running dispatcher with its workers.
pub struct WebhookPool {
    dispatcher: Supervisor<WebhookDispatcher>,
    workers: Vec<Supervisor<WebhookWorker>>,
    state: Arc<Mutex<DispatcherState>>,
    in_flight: Arc<InFlightTable>,
    store: Arc<dyn DeliveryStore>,
    failures: Arc<FailureLog>,
    tester: WebhookTester,
    stop: watch::Sender<bool>,
}

impl WebhookPool {
    /// Starts the dispatcher and its workers on `arbiter`.
    pub fn start(arbiter: &ArbiterHandle, parts: DispatcherParts, on_restart: &RestartHook) -> Self {
        let DispatcherParts { store, vault, plans, clock, sender, retries, workers, traces, .. } = parts;
        let workers = workers.get();
        let (meters, suspends) = (parts.meters, parts.suspend_after.is_some());
        if let Some(failures) = parts.suspend_after {
            suspend_failing(&*store, failures, meters.clone());
        } else {
            arbiter.spawn(forget_failures(store.clone()));
        }
        let in_flight = Arc::new(InFlightTable::new(
            workers,
            parts.in_flight_per_host,
            parts.buffer,
            clock.clone(),
            meters.clone(),
        ));
        let preparation = Arc::new(Preparation::new(&store, vault, plans, clock.clone()));
        let tester = WebhookTester::new(TesterParts {
            store: store.clone(),
            preparation: Arc::clone(&preparation),
            sender: sender.clone(),
            runtime: arbiter.clone(),
            clock: clock.clone(),
            suspends,
            meters: meters.clone(),
        });
        let start_worker =
            |_| WebhookWorker::start(arbiter, sender.clone(), Arc::clone(&preparation), traces.clone(), on_restart);
        let workers: Vec<_> = (0..workers).map(start_worker).collect();
        let attempt_workers = workers.iter().map(|worker| -> Box<dyn AttemptWorker> { Box::new(worker.handle()) });
        in_flight.set_workers(attempt_workers.collect());
        let failures = Arc::<FailureLog>::default();
        let delivery_store: Arc<dyn DeliveryStore> = store.clone();
        let state = Arc::new(Mutex::new(DispatcherState {
            poller: Poller::new(PollerParts {
                store: store.clone(),
                preparation,
                clock,
                in_flight: Arc::clone(&in_flight),
                wake: parts.wake,
                longest_wait: retries.longest(),
                suspends,
                meters: meters.clone(),
            }),
            outcomes: OutcomeWriter::new(
                store.clone(),
                Arc::clone(&in_flight),
                retries,
                meters.clone(),
                Arc::clone(&failures),
            ),
            in_flight: Arc::clone(&in_flight),
            store,
            meters,
            failures: Arc::clone(&failures),
        }));
        let stop = watch::Sender::new(false);
        let options = SupervisorOptions {
            actor: "webhook_dispatcher",
            // The actor receives no messages: `DispatcherWake` wakes it.
            mailbox_capacity: NonZeroUsize::MIN,
            on_restart: Arc::clone(on_restart),
        };
        let (actor_state, stopping) = (Arc::clone(&state), stop.subscribe());
        let dispatcher = Supervisor::start(arbiter, options, move |_| WebhookDispatcher {
            state: Arc::clone(&actor_state),
            stopping: stopping.clone(),
        });
        Self { dispatcher, workers, state, in_flight, store: delivery_store, failures, tester, stop }
    }

    /// Stops new attempts, waits for those in flight for at most `patience`, and writes their outcomes. All other
    /// deliveries stay due in the store.
    pub async fn stop(&self, patience: Duration) {
        self.in_flight.close();
        self.store.keep_first_tries(0);
        self.stop.send_replace(true);
        self.dispatcher.stop().await;
        let finish = async { self.state.lock().await.outcomes.finish().await };
        if tokio::time::timeout(patience, finish).await.is_err() {
            self.state.lock().await.outcomes.abandon();
            tracing::info!("webhook attempts did not end in time: they are repeated at the next start");
        }
        self.failures.write_all_lines();
    }

    /// Tests webhooks outside the queue.
    pub fn tester(&self) -> WebhookTester {
        self.tester.clone()
    }

    /// The number of attempts in flight, for the metrics.
    pub fn under_way(&self) -> impl Fn() -> u64 + Send + 'static {
        let in_flight = Arc::clone(&self.in_flight);
        move || u64::try_from(in_flight.under_way()).unwrap_or(u64::MAX)
    }

    /// A worker, for tests that make it panic.
    #[doc(hidden)]
    pub fn worker(&self, index: usize) -> Handle<WebhookWorker> {
        self.workers[index].handle()
    }
}

/// The actor runs the poller and the outcome writer concurrently.
struct WebhookDispatcher {
    state: Arc<Mutex<DispatcherState>>,
    stopping: watch::Receiver<bool>,
}

impl Actor for WebhookDispatcher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (state, mut stopping) = (Arc::clone(&self.state), self.stopping.clone());
        context.spawn(actix::fut::wrap_future::<_, Self>(async move {
            // The lock is free: only the actor before this one held it, and that has ended.
            let mut state = state.lock().await;
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = state.run() => {}
            }
        }));
    }
}

/// The dispatcher's state. It survives a panic of the actor.
struct DispatcherState {
    poller: Poller,
    outcomes: OutcomeWriter,
    in_flight: Arc<InFlightTable>,
    store: Arc<dyn DeliveryStore>,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
}

impl DispatcherState {
    /// Runs for ever. The future may be dropped at any await and started again.
    async fn run(&mut self) {
        let Self { poller, outcomes, in_flight, store, meters, failures } = self;
        // An earlier actor may have taken deliveries from the queue without starting their attempts.
        in_flight.clear_waiting(outcomes.unwritten_ids());
        tokio::join!(poller.run(), outcomes.run(), watch_queue(&**store, meters), failures.write_due_lines());
    }
}

/// Reports the number of pending deliveries to the metrics.
async fn watch_queue(store: &dyn DeliveryStore, meters: &WebhookMeters) {
    loop {
        // If the store is out of reach, the metric keeps its last value; the poller logs the outage.
        if let Ok(pending) = store.pending_deliveries().await {
            meters.set_pending(pending);
        }
        tokio::time::sleep(WATCH_QUEUE_EVERY).await;
    }
}

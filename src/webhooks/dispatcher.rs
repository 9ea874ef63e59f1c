//! The pool that delivers webhooks: an poller that takes due deliveries from the store's queue, workers that make the
//! tries, and a outcomes that writes down what became of them.
//!
//! The queue is in the store; in memory is only a bounded number of deliveries at hand. One that is not settled when the
//! process ends is still due at the next start.

use std::num::NonZeroUsize;
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
use super::worker::WebhookWorker;
use crate::actors::supervisor::{Handle, KeeperOptions, RestartHook, Supervisor};
use crate::actors::wake::DispatcherWake;
use crate::clock::Clock;
use crate::domain::plan::Plans;
use crate::domain::retry::RetrySchedule;
use crate::domain::vault::Vault;
use crate::store::{DeliveryStore, Store};
use crate::telemetry::metrics::webhooks::WebhookMeters;
use crate::telemetry::traces::Traces;

/// How often the queue is asked for how much waits there.
const LOOK_AT_QUEUE_EVERY: Duration = Duration::from_secs(1);

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
    /// Deliveries in memory at the most.
    pub buffer: usize,
    pub wake: DispatcherWake,
    pub meters: WebhookMeters,
    /// Told of each try.
    pub traces: Option<Arc<Traces>>,
}

/// The running pool.
pub struct WebhookPool {
    dispatcher: Supervisor<WebhookDispatcher>,
    workers: Vec<Supervisor<WebhookWorker>>,
    dispatching: Arc<Mutex<Dispatching>>,
    in_flight: Arc<InFlightTable>,
    failures: Arc<FailureLog>,
    stop: watch::Sender<bool>,
}

impl WebhookPool {
    /// Starts the dispatcher and its workers on `arbiter`.
    pub fn start(arbiter: &ArbiterHandle, parts: DispatcherParts, on_restart: &RestartHook) -> Self {
        let DispatcherParts { store, vault, plans, clock, sender, retries, workers, traces, .. } = parts;
        let workers = workers.get();
        let meters = parts.meters;
        let in_flight = Arc::new(InFlightTable::new(
            workers,
            parts.in_flight_per_host,
            parts.buffer,
            clock.clone(),
            meters.clone(),
        ));
        let preparation = Arc::new(Preparation::new(&store, vault, plans, clock.clone()));
        let start_worker =
            |_| WebhookWorker::start(arbiter, sender.clone(), Arc::clone(&preparation), traces.clone(), on_restart);
        let workers: Vec<_> = (0..workers).map(start_worker).collect();
        let attempt_workers = workers.iter().map(|worker| -> Box<dyn AttemptWorker> { Box::new(worker.handle()) });
        in_flight.set_workers(attempt_workers.collect());
        let failures = Arc::<FailureLog>::default();
        let dispatching = Arc::new(Mutex::new(Dispatching {
            poller: Poller::new(PollerParts {
                store: store.clone(),
                preparation,
                clock,
                in_flight: Arc::clone(&in_flight),
                wake: parts.wake,
                longest_wait: retries.longest(),
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
        let options = KeeperOptions {
            actor: "webhook_dispatcher",
            // Nothing is ever sent to it: it is woken.
            mailbox_capacity: NonZeroUsize::MIN,
            on_restart: Arc::clone(on_restart),
        };
        let (state, stopping) = (Arc::clone(&dispatching), stop.subscribe());
        let dispatcher = Supervisor::start(arbiter, options, move |_| WebhookDispatcher {
            dispatching: Arc::clone(&state),
            stopping: stopping.clone(),
        });
        Self { dispatcher, workers, dispatching, in_flight, failures, stop }
    }

    /// Begins no new try, waits for those under way for at most `patience`, and writes down what became of them. The
    /// others stay due in the store.
    pub async fn stop(&self, patience: Duration) {
        self.in_flight.close();
        self.stop.send_replace(true);
        self.dispatcher.stop().await;
        let finish = async { self.dispatching.lock().await.outcomes.finish().await };
        if tokio::time::timeout(patience, finish).await.is_err() {
            tracing::info!("webhooks: tries that took too long are made again at the next start");
        }
        self.failures.write_all_lines();
    }

    /// Tries under way, for the metrics.
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

/// The actor: poller and outcomes, side by side.
struct WebhookDispatcher {
    dispatching: Arc<Mutex<Dispatching>>,
    stopping: watch::Receiver<bool>,
}

impl Actor for WebhookDispatcher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (dispatching, mut stopping) = (Arc::clone(&self.dispatching), self.stopping.clone());
        context.spawn(actix::fut::wrap_future::<_, Self>(async move {
            // Nobody else wants the lock before this actor has ended.
            let mut dispatching = dispatching.lock().await;
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = dispatching.run() => {}
            }
        }));
    }
}

/// Where the dispatching stands. It outlives a panic of the actor.
struct Dispatching {
    poller: Poller,
    outcomes: OutcomeWriter,
    in_flight: Arc<InFlightTable>,
    store: Arc<dyn DeliveryStore>,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
}

impl Dispatching {
    /// For ever; it may be dropped at any await, and then begun anew.
    async fn run(&mut self) {
        let Self { poller, outcomes, in_flight, store, meters, failures } = self;
        // An earlier life may have taken deliveries from the queue and not come to begin them.
        in_flight.clear_waiting(outcomes.open_entries());
        tokio::join!(poller.run(), outcomes.run(), look_at_queue(&**store, meters), failures.write_due_lines());
    }
}

/// Shows how much waits.
async fn look_at_queue(store: &dyn DeliveryStore, meters: &WebhookMeters) {
    loop {
        // Where the store is out of reach, the last number stays; that it is, others tell.
        if let Ok(pending) = store.pending_deliveries().await {
            meters.pending_are(pending);
        }
        tokio::time::sleep(LOOK_AT_QUEUE_EVERY).await;
    }
}

//! The pool that delivers webhooks: an intake that takes due deliveries from the store's queue, workers that make the
//! tries, and a ledger that writes down what became of them.
//!
//! The queue is in the store; in memory is only a bounded number of deliveries at hand. One that is not settled when the
//! process ends is still due at the next start.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context};
use tokio::sync::{Mutex, watch};

use super::keeper::{Keeper, KeeperOptions, Kept, RestartHook};
use super::webhook_desk::Desk;
use super::webhook_failures::FailureLog;
use super::webhook_intake::{Intake, IntakeParts};
use super::webhook_ledger::Ledger;
use super::webhook_preparation::Preparation;
pub use super::webhook_queue::DispatcherWake;
use super::webhook_sender::WebhookSender;
use super::webhook_worker::WebhookWorker;
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
    dispatcher: Keeper<WebhookDispatcher>,
    workers: Vec<Keeper<WebhookWorker>>,
    dispatching: Arc<Mutex<Dispatching>>,
    desk: Arc<Desk>,
    failures: Arc<FailureLog>,
    stop: watch::Sender<bool>,
}

impl WebhookPool {
    /// Starts the dispatcher and its workers on `arbiter`.
    pub fn start(arbiter: &ArbiterHandle, parts: DispatcherParts, on_restart: &RestartHook) -> Self {
        let DispatcherParts { store, vault, plans, clock, sender, retries, workers, traces, .. } = parts;
        let workers = workers.get();
        let meters = parts.meters;
        let desk = Arc::new(Desk::new(workers, parts.in_flight_per_host, parts.buffer, clock.clone(), meters.clone()));
        let preparation = Arc::new(Preparation::new(&store, vault, plans, clock.clone()));
        let start_worker =
            |_| WebhookWorker::start(arbiter, sender.clone(), Arc::clone(&preparation), traces.clone(), on_restart);
        let workers: Vec<_> = (0..workers).map(start_worker).collect();
        desk.staff(workers.iter().map(Keeper::kept).collect());
        let failures = Arc::<FailureLog>::default();
        let dispatching = Arc::new(Mutex::new(Dispatching {
            intake: Intake::new(IntakeParts {
                store: store.clone(),
                preparation,
                clock,
                desk: Arc::clone(&desk),
                wake: parts.wake,
                longest_wait: retries.longest(),
                meters: meters.clone(),
            }),
            ledger: Ledger::new(store.clone(), Arc::clone(&desk), retries, meters.clone(), Arc::clone(&failures)),
            desk: Arc::clone(&desk),
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
        let dispatcher = Keeper::start(arbiter, options, move |_| WebhookDispatcher {
            dispatching: Arc::clone(&state),
            stopping: stopping.clone(),
        });
        Self { dispatcher, workers, dispatching, desk, failures, stop }
    }

    /// Begins no new try, waits for those under way for at most `patience`, and writes down what became of them. The
    /// others stay due in the store.
    pub async fn stop(&self, patience: Duration) {
        self.desk.close();
        self.stop.send_replace(true);
        self.dispatcher.stop().await;
        let finish = async { self.dispatching.lock().await.ledger.finish().await };
        if tokio::time::timeout(patience, finish).await.is_err() {
            tracing::info!("webhooks: tries that took too long are made again at the next start");
        }
        self.failures.tell_all();
    }

    /// Tries under way, for the metrics.
    pub fn under_way(&self) -> impl Fn() -> u64 + Send + 'static {
        let desk = Arc::clone(&self.desk);
        move || u64::try_from(desk.under_way()).unwrap_or(u64::MAX)
    }

    /// A worker, for tests that make it panic.
    #[doc(hidden)]
    pub fn worker(&self, index: usize) -> Kept<WebhookWorker> {
        self.workers[index].kept()
    }
}

/// The actor: intake and ledger, side by side.
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
    intake: Intake,
    ledger: Ledger,
    desk: Arc<Desk>,
    store: Arc<dyn DeliveryStore>,
    meters: WebhookMeters,
    failures: Arc<FailureLog>,
}

impl Dispatching {
    /// For ever; it may be dropped at any await, and then begun anew.
    async fn run(&mut self) {
        let Self { intake, ledger, desk, store, meters, failures } = self;
        // An earlier life may have taken deliveries from the queue and not come to begin them.
        desk.clear_waiting(ledger.open_entries());
        tokio::join!(intake.run(), ledger.run(), look_at_queue(&**store, meters), failures.keep_telling());
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

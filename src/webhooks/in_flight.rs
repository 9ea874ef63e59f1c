//! The deliveries at hand: taken from the queue, under way, or ended and not yet written down.
//!
//! The poller puts deliveries here, workers are given them as soon as their receivers have room, and the outcomes takes away
//! what has ended. All three run on one thread; the lock is for the tests' and the metrics' sake, and is never held across
//! an await.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::preparation::Draft;
use super::scheduler::{Bounds, Flow, Full, Roomy, Scheduler};
use super::sender::SendFailure;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::webhook::DeliveryId;
use crate::store::{DueDelivery, Settlement};
use crate::telemetry::metrics::webhooks::WebhookMeters;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    Answered(u16),
    Failed(SendFailure),
    /// The worker was lost in the middle. Whether the request went out is not known; it counts as a try.
    WorkerLost,
}

/// An attempt for a worker to make.
pub struct AttemptDelivery {
    pub draft: Draft,
    pub ticket: AttemptTicket,
}

/// A worker makes one attempt at a time.
pub trait AttemptWorker: Send + Sync {
    /// Whether the worker can take an attempt now.
    fn is_running(&self) -> bool;

    /// Gives the worker an attempt. A worker that can't take it drops its ticket.
    fn begin(&self, attempt: AttemptDelivery);
}

/// A try that has ended, to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    /// The key that owns the delivery, and the receiver.
    pub flow: Flow,
    pub id: DeliveryId,
    /// Which try it was, from 1 on.
    pub attempt: u32,
    pub end: AttemptEnd,
    pub at: Timestamp,
}

/// Why a delivery is not taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is here already.
    AtHand,
    Full(Full),
}

/// What the poller should know.
#[derive(Debug, Default)]
pub struct Events {
    /// Who may have room.
    pub roomy: Roomy,
    /// When the earliest is due of those that were put into the queue, or left there.
    pub queued_from: Option<Timestamp>,
}

impl Events {
    /// Deliveries are in the queue that are due at these times.
    fn queued(&mut self, times: impl IntoIterator<Item = Timestamp>) {
        self.queued_from = self.queued_from.into_iter().chain(times).min();
    }
}

/// A try under way.
struct Attempt {
    flow: Flow,
    worker: usize,
    number: u32,
}

struct TableState {
    scheduler: Scheduler<Draft>,
    /// All deliveries at hand, and when they are due.
    taken: HashMap<DeliveryId, Timestamp>,
    under_way: HashMap<DeliveryId, Attempt>,
    /// Workers without a try; the one that was busy longest ago comes first.
    idle: VecDeque<usize>,
    ended: Vec<EndedAttempt>,
    news: Events,
    /// No more tries are begun.
    closed: bool,
}

/// The deliveries at hand.
pub struct InFlightTable {
    state: Mutex<TableState>,
    workers: OnceLock<Vec<Box<dyn AttemptWorker>>>,
    /// Most deliveries at hand.
    capacity: usize,
    clock: Clock,
    meters: WebhookMeters,
    /// Told when tries have ended.
    pub ended: Notify,
    /// Told when there may be room for more deliveries.
    pub room: Notify,
}

impl InFlightTable {
    /// For at most `capacity` deliveries, `workers` of them under way, `per_host` of these to one receiver.
    pub fn new(workers: usize, per_host: usize, capacity: usize, clock: Clock, meters: WebhookMeters) -> Self {
        // The rest of the capacity is for what has ended while the store is slow to write it down.
        let bounds = Bounds { workers, per_host, waiting: capacity / 2 };
        let state = TableState {
            scheduler: Scheduler::new(bounds),
            taken: HashMap::new(),
            under_way: HashMap::new(),
            idle: (0..workers).collect(),
            ended: Vec::new(),
            news: Events::default(),
            closed: false,
        };
        let (ended, room) = (Notify::new(), Notify::new());
        Self { state: Mutex::new(state), workers: OnceLock::new(), capacity, clock, meters, ended, room }
    }

    /// Sets the workers, once, before any attempt begins.
    pub fn set_workers(&self, workers: Vec<Box<dyn AttemptWorker>>) {
        // The dispatcher calls this once; a second call would change nothing.
        drop(self.workers.set(workers));
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        // Nothing in here is left half-done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a delivery, if there is room: [`put`](Self::put) or [`give_back`](Self::give_back) has to follow.
    pub fn take(&self, due: &DueDelivery, flow: &Flow) -> Result<(), NotTaken> {
        let mut state = self.state();
        if state.taken.contains_key(&due.id) {
            return Err(NotTaken::AtHand);
        }
        if state.taken.len() >= self.capacity {
            return Err(NotTaken::Full(Full::All));
        }
        state.scheduler.promise(flow).map_err(NotTaken::Full)?;
        state.taken.insert(due.id, due.due_at);
        Ok(())
    }

    /// Whether a delivery is at hand.
    pub fn has(&self, id: DeliveryId) -> bool {
        self.state().taken.contains_key(&id)
    }

    /// A delivery that was taken can begin.
    pub fn put(&self, draft: Draft) {
        let mut state = self.state();
        let flow = draft.flow().clone();
        state.scheduler.put(&flow, draft);
    }

    /// A delivery that was taken does not begin.
    pub fn give_back(&self, id: DeliveryId, flow: &Flow) {
        let mut state = self.state();
        state.taken.remove(&id);
        state.scheduler.give_back(flow);
    }

    /// Gives idle workers what may begin.
    pub fn dispatch(self: &Arc<Self>) {
        let Some(workers) = self.workers.get() else { return };
        let mut begun = Vec::new();
        {
            let state = &mut *self.state();
            while !state.closed
                && let Some(at) = state.idle.iter().position(|worker| workers[*worker].is_running())
                && let Some((flow, draft)) = state.scheduler.next()
                && let Some(worker) = state.idle.remove(at)
            {
                let (id, number) = (draft.id(), draft.attempts_before() + 1);
                state.under_way.insert(id, Attempt { flow, worker, number });
                let ticket =
                    AttemptTicket { in_flight: Arc::clone(self), id, is_first: number == 1, begun: false, told: false };
                begun.push((worker, AttemptDelivery { draft, ticket }));
            }
        }
        for (worker, attempt) in begun {
            // A worker that was lost just now drops the ticket, which tells that no try was begun. The lock is free for it.
            workers[worker].begin(attempt);
        }
    }

    /// A try has ended; `end` is nothing where the worker was lost before it came to the request, so that none was made.
    fn end(self: &Arc<Self>, id: DeliveryId, end: Option<AttemptEnd>) {
        let at = self.clock.now();
        {
            let state = &mut *self.state();
            let Some(Attempt { flow, worker, number }) = state.under_way.remove(&id) else { return };
            state.idle.push_back(worker);
            let succeeded = match end {
                Some(AttemptEnd::Answered(_)) => Some(true),
                Some(AttemptEnd::Failed(_)) => Some(false),
                // That is no fault of the receiver.
                Some(AttemptEnd::WorkerLost) | None => None,
            };
            state.scheduler.ended(&flow, succeeded);
            if let Some(end) = end {
                state.ended.push(EndedAttempt { flow, id, attempt: number, end, at });
            } else {
                // It is still due where it was.
                let due_at = state.taken.remove(&id);
                state.news.queued(due_at);
            }
        }
        self.ended.notify_one();
        self.room.notify_one();
        // A worker that was lost just now would lose the next one too. The poller comes by in a moment.
        if end.is_some() {
            self.dispatch();
        }
    }

    /// The tries that have ended; [`settled`](Self::settled) has to follow for each.
    pub fn take_ended(&self) -> Vec<EndedAttempt> {
        std::mem::take(&mut self.state().ended)
    }

    /// What became of these is written down.
    pub fn settled<'s>(&self, settlements: impl Iterator<Item = &'s Settlement> + Clone) {
        {
            let state = &mut *self.state();
            for settlement in settlements.clone() {
                state.taken.remove(&settlement.id);
            }
            state.news.queued(settlements.filter_map(Settlement::retry_at));
        }
        self.room.notify_one();
    }

    /// What has happened since this was last asked.
    pub fn take_news(&self) -> Events {
        let state = &mut *self.state();
        state.news.roomy = state.scheduler.take_roomy();
        std::mem::take(&mut state.news)
    }

    /// Whether any delivery can be taken.
    pub fn has_room(&self) -> bool {
        let state = self.state();
        state.taken.len() < self.capacity && state.scheduler.has_room()
    }

    /// Gives back all that has not begun, but for what is `kept`.
    pub fn clear_waiting(&self, kept: impl IntoIterator<Item = DeliveryId>) {
        let state = &mut *self.state();
        state.scheduler.clear_waiting();
        let ended = state.ended.iter().map(|ended| ended.id);
        let kept: HashSet<_> = state.under_way.keys().copied().chain(ended).chain(kept).collect();
        state.taken.retain(|id, _| kept.contains(id));
    }

    /// Begins no more tries.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// When the delivery at hand was due that is overdue longest.
    pub fn first_due(&self) -> Option<Timestamp> {
        self.state().taken.values().min().copied()
    }

    /// How many tries are under way.
    pub fn under_way(&self) -> usize {
        self.state().scheduler.in_flight()
    }
}

/// Tells how a try ended, also when its worker panics or its mailbox goes: then dropping it tells.
pub struct AttemptTicket {
    in_flight: Arc<InFlightTable>,
    id: DeliveryId,
    is_first: bool,
    begun: bool,
    told: bool,
}

impl AttemptTicket {
    /// From here on the request may have gone out.
    pub fn begin(&mut self) {
        self.begun = true;
        if self.is_first {
            self.in_flight.meters.first_tried(self.in_flight.clock.now().since(self.id.hit.at));
        }
    }

    pub fn tell(mut self, end: AttemptEnd) {
        self.told = true;
        self.in_flight.end(self.id, Some(end));
    }
}

impl Drop for AttemptTicket {
    fn drop(&mut self) {
        if !self.told {
            self.in_flight.end(self.id, self.begun.then_some(AttemptEnd::WorkerLost));
        }
    }
}

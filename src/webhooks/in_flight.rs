//! The in-flight table: deliveries in memory, from the queue until their outcomes are written.
//!
//! The poller adds deliveries, idle workers get them as soon as their receivers may have another attempt, and the
//! outcome writer removes them. All three run on one thread. The lock is needed for the metrics and for tests, and is
//! never held across an await.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::Notify;

use super::maps::{Map, Set};
use super::preparation::Draft;
use super::scheduler::{Bounds, Flow, FreedCapacity, NoCapacity, Scheduler};
use super::sender::SendFailure;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::domain::webhook::{AttemptNumber, DeliveryId};
use crate::locks::lock;
use crate::store::{DueDelivery, Settlement};
use crate::telemetry::metrics::webhooks::WebhookMeters;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    Answered(u16),
    Failed(SendFailure),
    /// The worker ended during the attempt. Whether the request was sent is not known, so the attempt counts.
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

/// An attempt that has ended; its outcome is not written yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    /// The key that owns the delivery, and the receiver.
    pub flow: Flow,
    pub id: DeliveryId,
    pub attempt: AttemptNumber,
    pub end: AttemptEnd,
    pub at: Timestamp,
}

/// Why a delivery is not taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The delivery is in the table already.
    AlreadyTaken,
    NoCapacity(NoCapacity),
}

/// Changes that the poller has to know.
#[derive(Debug, Default)]
pub struct TableEvents {
    /// Flows and keys that may have free slots.
    pub freed: FreedCapacity,
    /// The earliest due time of deliveries that were put into the queue, or left in it.
    pub queued_from: Option<Timestamp>,
    /// Deliveries whose attempt did not begin, because their worker was lost.
    pub not_begun: Vec<DeliveryId>,
}

impl TableEvents {
    /// Adds the due times of deliveries that are in the queue.
    fn queued(&mut self, times: impl IntoIterator<Item = Timestamp>) {
        self.queued_from = self.queued_from.into_iter().chain(times).min();
    }
}

/// A delivery in the table.
struct Taken {
    due_at: Timestamp,
    round: u32,
    /// When it is due in its next round: it was replayed after its outcome was written, and read from the queue before
    /// that was known here. The poller has passed it by.
    replayed_for: Option<Timestamp>,
}

impl Taken {
    fn see_again(&mut self, due: &DueDelivery) {
        if due.round > self.round {
            self.replayed_for = Some(due.due_at);
        }
    }
}

/// An attempt in flight.
struct Attempt {
    flow: Flow,
    worker: usize,
    number: AttemptNumber,
}

struct TableState {
    scheduler: Scheduler<Draft>,
    /// All deliveries in the table, with their due times.
    taken: Map<DeliveryId, Taken>,
    under_way: Map<DeliveryId, Attempt>,
    /// Workers without an attempt, the least recently busy one first.
    idle: VecDeque<usize>,
    ended: Vec<EndedAttempt>,
    events: TableEvents,
    /// Whether new attempts are stopped.
    closed: bool,
}

/// The deliveries in memory.
pub struct InFlightTable {
    state: Mutex<TableState>,
    workers: OnceLock<Vec<Box<dyn AttemptWorker>>>,
    /// The largest number of deliveries.
    capacity: usize,
    clock: Clock,
    meters: WebhookMeters,
    /// Notified when attempts have ended.
    pub ended: Notify,
    /// Notified when there may be slots for more deliveries.
    pub capacity_freed: Notify,
}

impl InFlightTable {
    /// A table of at most `capacity` deliveries, with `workers` attempts in flight, `per_host` of them to one receiver.
    pub fn new(workers: usize, per_host: usize, capacity: usize, clock: Clock, meters: WebhookMeters) -> Self {
        // The rest of the capacity is for ended attempts whose outcomes wait for a slow store.
        let bounds = Bounds { workers, per_host, waiting: capacity / 2 };
        let state = TableState {
            scheduler: Scheduler::new(bounds),
            taken: Map::default(),
            under_way: Map::default(),
            idle: (0..workers).collect(),
            ended: Vec::new(),
            events: TableEvents::default(),
            closed: false,
        };
        let (ended, capacity_freed) = (Notify::new(), Notify::new());
        Self { state: Mutex::new(state), workers: OnceLock::new(), capacity, clock, meters, ended, capacity_freed }
    }

    /// Sets the workers, once, before any attempt begins.
    pub fn set_workers(&self, workers: Vec<Box<dyn AttemptWorker>>) {
        // The dispatcher calls this once; a second call would change nothing.
        drop(self.workers.set(workers));
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        lock(&self.state)
    }

    /// Takes a delivery, if there is a free slot: [`put`](Self::put) or [`remove_taken`](Self::remove_taken) must follow.
    pub fn take(&self, due: &DueDelivery, flow: &Flow) -> Result<(), NotTaken> {
        let mut state = self.state();
        if let Some(taken) = state.taken.get_mut(&due.id) {
            taken.see_again(due);
            return Err(NotTaken::AlreadyTaken);
        }
        if state.taken.len() >= self.capacity {
            return Err(NotTaken::NoCapacity(NoCapacity::All));
        }
        state.scheduler.reserve(flow).map_err(NotTaken::NoCapacity)?;
        state.taken.insert(due.id, Taken { due_at: due.due_at, round: due.round, replayed_for: None });
        Ok(())
    }

    /// Whether a delivery is in the table. It is seen again then: the poller passes it by.
    pub fn has(&self, due: &DueDelivery) -> bool {
        self.state().taken.get_mut(&due.id).map(|taken| taken.see_again(due)).is_some()
    }

    /// Makes a taken delivery ready to begin.
    pub fn put(&self, draft: Draft) {
        let mut state = self.state();
        let flow = draft.flow().clone();
        state.scheduler.put(&flow, draft);
    }

    /// Removes a taken delivery that does not begin.
    pub fn remove_taken(&self, id: DeliveryId, flow: &Flow) {
        let state = &mut *self.state();
        let taken = state.taken.remove(&id);
        state.events.queued(taken.and_then(|taken| taken.replayed_for));
        state.scheduler.release_slot(flow);
    }

    /// Gives ready deliveries to idle workers.
    pub fn dispatch(self: &Arc<Self>) {
        let Some(workers) = self.workers.get() else { return };
        let mut started = Vec::new();
        {
            let state = &mut *self.state();
            while !state.closed
                && let Some(at) = state.idle.iter().position(|worker| workers[*worker].is_running())
                && let Some((flow, draft)) = state.scheduler.next()
                && let Some(worker) = state.idle.remove(at)
            {
                let (id, number) = (draft.id(), draft.attempt());
                state.under_way.insert(id, Attempt { flow, worker, number });
                let ticket = AttemptTicket {
                    in_flight: Arc::clone(self),
                    id,
                    is_first: number.is_first(),
                    has_begun: false,
                    reported: false,
                };
                started.push((worker, AttemptDelivery { draft, ticket }));
            }
        }
        for (worker, attempt) in started {
            // A worker that was just lost drops the ticket, which reports that no attempt began. The lock must be free
            // for that.
            workers[worker].begin(attempt);
        }
    }

    /// Ends an attempt; `end` is `None` if the worker was lost before it sent the request, so that no attempt was made.
    fn end(self: &Arc<Self>, id: DeliveryId, end: Option<AttemptEnd>) {
        let at = self.clock.now();
        {
            let state = &mut *self.state();
            let Some(Attempt { flow, worker, number }) = state.under_way.remove(&id) else { return };
            state.idle.push_back(worker);
            let succeeded = match end {
                Some(AttemptEnd::Answered(_)) => Some(true),
                Some(AttemptEnd::Failed(_)) => Some(false),
                // The receiver is not at fault.
                Some(AttemptEnd::WorkerLost) | None => None,
            };
            state.scheduler.ended(&flow, succeeded);
            if let Some(end) = end {
                state.ended.push(EndedAttempt { flow, id, attempt: number, end, at });
            } else {
                // The delivery is still due.
                let taken = state.taken.remove(&id);
                state.events.not_begun.push(id);
                state
                    .events
                    .queued(taken.into_iter().flat_map(|taken| [taken.due_at].into_iter().chain(taken.replayed_for)));
            }
        }
        self.ended.notify_one();
        self.capacity_freed.notify_one();
        // A worker that was just lost would lose the next delivery too. The poller dispatches again after its next
        // round.
        if end.is_some() {
            self.dispatch();
        }
    }

    /// The attempts that have ended; [`settled`](Self::settled) must follow for each.
    pub fn take_ended(&self) -> Vec<EndedAttempt> {
        std::mem::take(&mut self.state().ended)
    }

    /// The outcomes of these attempts are written.
    pub fn settled<'s>(&self, settlements: impl Iterator<Item = &'s Settlement> + Clone) {
        {
            let state = &mut *self.state();
            for settlement in settlements.clone() {
                let taken = state.taken.remove(&settlement.id);
                state.events.queued(taken.and_then(|taken| taken.replayed_for));
            }
            state.events.queued(settlements.filter_map(Settlement::retry_at));
        }
        self.capacity_freed.notify_one();
    }

    /// The changes since the last call.
    pub fn take_events(&self) -> TableEvents {
        let state = &mut *self.state();
        state.events.freed = state.scheduler.take_freed();
        std::mem::take(&mut state.events)
    }

    /// Whether the table can take any delivery.
    pub fn has_capacity(&self) -> bool {
        let state = self.state();
        state.taken.len() < self.capacity && state.scheduler.has_capacity()
    }

    /// Removes all deliveries that are not started, except `kept`.
    pub fn clear_waiting(&self, kept: impl IntoIterator<Item = DeliveryId>) {
        let state = &mut *self.state();
        state.scheduler.clear_waiting();
        let ended = state.ended.iter().map(|ended| ended.id);
        let kept: Set<_> = state.under_way.keys().copied().chain(ended).chain(kept).collect();
        state.taken.retain(|id, _| kept.contains(id));
    }

    /// Stops new attempts.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// The earliest due time of the deliveries in the table.
    pub fn first_due(&self) -> Option<Timestamp> {
        self.state().taken.values().map(|taken| taken.due_at).min()
    }

    /// The number of attempts in flight.
    pub fn under_way(&self) -> usize {
        self.state().scheduler.in_flight()
    }
}

/// Reports how an attempt ended. If the worker panics or its mailbox is dropped, dropping the ticket reports that.
pub struct AttemptTicket {
    in_flight: Arc<InFlightTable>,
    id: DeliveryId,
    is_first: bool,
    has_begun: bool,
    reported: bool,
}

impl AttemptTicket {
    /// The request may be sent from here on.
    pub fn begin(&mut self) {
        self.has_begun = true;
        if self.is_first {
            self.in_flight.meters.first_tried(self.in_flight.clock.now().since(self.id.hit.at));
        }
    }

    pub fn report(mut self, end: AttemptEnd) {
        self.reported = true;
        self.in_flight.end(self.id, Some(end));
    }
}

impl Drop for AttemptTicket {
    fn drop(&mut self) {
        if !self.reported {
            self.in_flight.end(self.id, self.has_begun.then_some(AttemptEnd::WorkerLost));
        }
    }
}

//! Takes due deliveries from the store's queue, prepares them for the workers and counts them in the quotas of their
//! keys.

mod first_tries;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::first_tries::FirstTries;
use super::in_flight::{InFlightTable, NotTaken, TableEvents};
use super::preparation::{Owners, Preparation, PrepareError};
use super::queue::{FoundDelivery, QueueScan, behind_all_until};
use super::refusals::{RefusalQueue, Refusals, Refused, is_still_due};
use super::scheduler::{Flow, FreedCapacity, NoCapacity};
use super::suspended::SuspensionCheck;
use crate::actors::wake::DispatcherWake;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::store::{DeliveryStore, DueDelivery, DuePlace, QuotaClaim, StoreError};
use crate::telemetry::metrics::webhooks::WebhookMeters;
use crate::telemetry::outage_log::OutageLog;

/// How long to wait if nothing wakes the poller; an earlier retry ends the wait in time.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait after a slot becomes free, so that several deliveries share one read of the queue. As long as the
/// outcome writer waits, so that the writes of both are in one transaction.
const GATHER: Duration = super::outcomes::GATHER;
/// How long to wait after a failed call of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(250);
/// How often to update the metric of the most overdue delivery.
const NOTE_OVERDUE_EVERY: Duration = Duration::from_millis(500);
/// How often to look for stranded deliveries while none are found.
const LOOK_FOR_STRANDED_EVERY: Duration = Duration::from_secs(1);
/// How many due deliveries a round reads: bounds how long the deliveries found by it wait to begin. The next round goes
/// on behind them.
const LOOK_AHEAD: usize = 5_000;
/// Due deliveries read at a time: few at first, because few slots are free under load, then more.
const FIRST_PAGE: usize = 64;
const LONGEST_PAGE: usize = 1_024;

/// What the poller does after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// Start the next round: more may be due now.
    Continue,
    /// Wait for at most this long: nothing is due, or no due delivery has a free slot.
    Wait(Duration),
}

/// A due delivery with a slot of the in-flight table.
struct TakenDelivery {
    due: DueDelivery,
    flow: Flow,
}

/// The parts of a poller.
pub struct PollerParts {
    pub store: Arc<dyn DeliveryStore>,
    pub preparation: Arc<Preparation>,
    pub clock: Clock,
    pub in_flight: Arc<InFlightTable>,
    pub wake: DispatcherWake,
    /// The longest delay before a retry.
    pub longest_wait: Duration,
    /// Whether URLs whose deliveries fail are suspended.
    pub suspends: bool,
    pub meters: WebhookMeters,
}

pub struct Poller {
    parts: PollerParts,
    scan: QueueScan,
    /// When to read the queue again; earlier if slots are freed or deliveries are queued.
    next_scan: Instant,
    first_tries: FirstTries,
    refusals: Refusals,
    /// Due deliveries that are likely to be refused. They take no slot of the in-flight table.
    refusal_queue: RefusalQueue,
    /// Whether a delivery with a slot was refused, so that its slot is free again.
    has_refused: bool,
    outage: OutageLog,
    /// Whether the last round ended because the in-flight table was full.
    was_full: bool,
    overdue_noted_at: Timestamp,
    /// The time of the last round.
    last_round: Timestamp,
    stranded: StrandedScan,
}

/// The scan for stranded deliveries. They are due later than any retry can be, because the clock was ahead when they
/// were queued and was set back since. They begin now instead of at their due time.
#[derive(Default)]
struct StrandedScan {
    /// The delivery behind which the next page begins; `None` for the first page.
    after: Option<DuePlace>,
    /// When to read the next page; `None` for at once.
    next_look: Option<Instant>,
    /// Whether any was found since the first page.
    found_any: bool,
}

impl Poller {
    pub fn new(parts: PollerParts) -> Self {
        let (overdue_noted_at, last_round) = (Timestamp(0), Timestamp(0));
        let (scan, stranded) = (QueueScan::default(), StrandedScan::default());
        let first_tries = FirstTries::kept_by(&*parts.store);
        let (store, preparation) = (Arc::clone(&parts.store), Arc::clone(&parts.preparation));
        let suspensions = SuspensionCheck::new(Arc::clone(&store), parts.suspends);
        let refusals = Refusals::new(store, preparation, parts.meters.clone(), suspensions);
        let outage = OutageLog::new(
            "the store did not answer: webhooks wait",
            "webhooks are delivered again: the store answers",
        );
        let (has_refused, was_full) = (false, false);
        let refusal_queue = RefusalQueue::default();
        Self {
            parts,
            scan,
            next_scan: Instant::now(),
            first_tries,
            refusals,
            refusal_queue,
            has_refused,
            outage,
            was_full,
            overdue_noted_at,
            last_round,
            stranded,
        }
    }

    /// Takes due deliveries, for ever.
    ///
    /// The future may be dropped at any await and started again: what it has not started is still due in the store.
    pub async fn run(&mut self) {
        // An earlier run may have taken deliveries without beginning them.
        self.restart();
        loop {
            let next_step = match self.round().await {
                Ok(next_step) => {
                    self.outage.succeeded();
                    next_step
                }
                Err(error) => {
                    self.outage.failed(&error);
                    self.restart();
                    tokio::time::sleep(STORE_RETRY_DELAY).await;
                    NextStep::Continue
                }
            };
            if let NextStep::Wait(pause) = next_step {
                // The wait ends when the next delivery is due.
                let _ = tokio::time::timeout(pause, self.wait_for_work()).await;
            }
        }
    }

    /// Waits for new deliveries, or for free slots for deliveries that were passed over.
    async fn wait_for_work(&mut self) {
        loop {
            tokio::select! {
                () = self.parts.wake.woken() => return,
                () = self.parts.in_flight.capacity_freed.notified() => {
                    let is_full_no_more = self.was_full && self.parts.in_flight.has_capacity();
                    if is_full_no_more {
                        self.scan_again();
                    }
                    if self.apply_events() || is_full_no_more {
                        // When one slot becomes free, others soon follow.
                        return tokio::time::sleep(GATHER).await;
                    }
                }
            }
        }
    }

    /// Applies the changes in the in-flight table; returns whether there is something to do.
    fn apply_events(&mut self) -> bool {
        let TableEvents { freed: FreedCapacity { flows, keys }, queued_from, not_begun } =
            self.parts.in_flight.take_events();
        if let Some(time) = queued_from {
            self.scan.queued_from(time);
        }
        let waiting = &mut self.first_tries.waiting;
        let waiting_flows = flows.iter().filter(|flow| waiting.flow_freed(flow)).count();
        let waiting_flows = waiting_flows + keys.iter().filter(|key| waiting.key_freed(**key)).count();
        self.first_tries.not_begun.extend(not_begun);
        let recalled = flows.iter().filter(|flow| self.scan.recall_flow(flow)).count();
        let recalled = recalled + keys.into_iter().filter(|key| self.scan.recall_key(*key)).count();
        let is_queue_changed =
            recalled > 0 || queued_from.is_some_and(|time| time < self.parts.clock.now().plus(PAUSE));
        if is_queue_changed {
            self.scan_again();
        }
        is_queue_changed || waiting_flows > 0 || !self.first_tries.not_begun.is_empty()
    }

    /// Reads the queue in the next round.
    fn scan_again(&mut self) {
        self.next_scan = Instant::now();
    }

    /// Reads the queue again from its head.
    fn restart_scan(&mut self) {
        self.scan.reset();
        self.refusal_queue.clear();
        self.scan_again();
    }

    /// Begins with what the store has.
    fn restart(&mut self) {
        self.restart_scan();
        self.first_tries.queue_all();
    }

    async fn round(&mut self) -> Result<NextStep, StoreError> {
        self.apply_events();
        if let Some(earliest) = self.parts.wake.take_earliest() {
            self.scan.queued_from(earliest);
            self.scan_again();
        }
        (self.has_refused, self.was_full) = (false, false);
        let mut taken = Vec::new();
        let made = self.choose_and_make_ready(&mut taken).await;
        for TakenDelivery { due, flow } in taken {
            self.parts.in_flight.remove_taken(due.id, &flow);
        }
        self.parts.in_flight.dispatch();
        self.note_overdue();
        let next_step = made?;
        if self.has_refused {
            self.scan_again();
            return Ok(NextStep::Continue);
        }
        Ok(next_step)
    }

    /// Leaves in `taken` the deliveries that do not begin.
    async fn choose_and_make_ready(&mut self, taken: &mut Vec<TakenDelivery>) -> Result<NextStep, StoreError> {
        self.queue_first_tries().await?;
        self.choose_first_tries(taken).await?;
        if self.next_scan <= Instant::now() {
            let next_step = self.choose(taken).await?;
            self.next_scan =
                Instant::now() + if let NextStep::Wait(pause) = next_step { pause } else { Duration::ZERO };
        }
        self.choose_stranded(taken).await?;
        self.make_ready(taken).await?;
        let next_step = match self.next_scan.checked_duration_since(Instant::now()) {
            Some(pause) => NextStep::Wait(pause),
            None => NextStep::Continue,
        };
        if !self.refusal_queue.is_due(next_step != NextStep::Continue) {
            return Ok(next_step);
        }
        // Deliveries that begin do not wait for those that are refused.
        self.parts.in_flight.dispatch();
        let (refusable, barred) = self.refusal_queue.take();
        let to_send = self.refusals.refuse_expected(refusable, self.parts.clock.now()).await?;
        for key in barred {
            self.scan.recall_key(key);
            self.first_tries.waiting.key_freed(key);
        }
        let mut taken_after_all = self.take_after_all(to_send);
        let made = self.make_ready(&mut taken_after_all).await;
        taken.append(&mut taken_after_all);
        made?;
        if self.scan.has_recalled() && !self.was_full {
            self.scan_again();
            return Ok(NextStep::Continue);
        }
        Ok(next_step)
    }

    /// Takes deliveries that were expected to be refused and are sent, if there are free slots.
    fn take_after_all(&mut self, to_send: Vec<(DueDelivery, Flow)>) -> Vec<TakenDelivery> {
        let mut taken = Vec::new();
        for (due, flow) in to_send {
            match self.parts.in_flight.take(&due, &flow) {
                Ok(()) => taken.push(TakenDelivery { due, flow }),
                Err(NotTaken::AlreadyTaken) => {}
                Err(NotTaken::NoCapacity(NoCapacity::Flow)) => self.scan.passed_over_at(&due, &flow),
                Err(NotTaken::NoCapacity(NoCapacity::Key)) => self.scan.barred_at(&due, flow.owner),
                Err(NotTaken::NoCapacity(NoCapacity::All)) => {
                    self.was_full = true;
                    self.scan.queued_from(due.due_at);
                }
            }
        }
        taken
    }

    /// Updates the metric of the most overdue delivery from time to time.
    fn note_overdue(&mut self) {
        let now = self.parts.clock.now();
        // The clock may have been set back.
        if now < self.overdue_noted_at || now.since(self.overdue_noted_at) >= NOTE_OVERDUE_EVERY {
            self.overdue_noted_at = now;
            let waiting = self.scan.first_passed_over().into_iter().chain(self.first_tries.waiting.first_due());
            let first = self.parts.in_flight.first_due().into_iter().chain(waiting).min();
            self.parts.meters.set_first_due(first.map(|due| due.0));
        }
    }

    /// Takes deliveries from the queue while the in-flight table has slots.
    async fn choose(&mut self, taken: &mut Vec<TakenDelivery>) -> Result<NextStep, StoreError> {
        let now = self.parts.clock.now();
        let (mut looked_at, mut page_size) = (0, FIRST_PAGE);
        let mut next_step = NextStep::Continue;
        let mut is_at_end = false;
        if now < std::mem::replace(&mut self.last_round, now) {
            // The clock was set back: deliveries that were read as due may not be due yet, and must be found again.
            self.restart_scan();
        }
        self.scan.begin_round();
        'pages: while looked_at < LOOK_AHEAD && !is_at_end {
            let page = self.parts.store.due_deliveries(now.plus(PAUSE), self.scan.next_page(), page_size).await?;
            if page.len() < page_size {
                (is_at_end, next_step) = (true, NextStep::Wait(PAUSE));
            }
            looked_at += page.len();
            page_size = (2 * page_size).min(LONGEST_PAGE);
            for due in page {
                if due.due_at > now {
                    let pause = Duration::from_millis(due.due_at.0 - now.0);
                    (is_at_end, next_step) = (true, NextStep::Wait(PAUSE.min(pause)));
                    break 'pages;
                }
                let flow = self.parts.preparation.flow(&due).await?;
                if self.scan.look_at(&due, &flow) == FoundDelivery::Consider {
                    if self.refusals.expects(due.id, &flow, now.month()) {
                        // A full list does not stop the scan: the key is barred until the list is empty again.
                        if !self.parts.in_flight.has(&due) && !self.refusal_queue.push(&due, flow.owner) {
                            self.scan.barred(flow.owner);
                        }
                    } else {
                        match self.parts.in_flight.take(&due, &flow) {
                            Ok(()) => taken.push(TakenDelivery { due: due.clone(), flow }),
                            Err(NotTaken::AlreadyTaken) => {}
                            Err(NotTaken::NoCapacity(NoCapacity::Flow)) => self.scan.passed_over(&flow),
                            Err(NotTaken::NoCapacity(NoCapacity::Key)) => self.scan.barred(flow.owner),
                            Err(NotTaken::NoCapacity(NoCapacity::All)) => {
                                self.was_full = true;
                                (is_at_end, next_step) = (false, NextStep::Wait(PAUSE));
                                break 'pages;
                            }
                        }
                    }
                }
                self.scan.step(&due);
                if self.scan.is_skipping() {
                    (is_at_end, next_step, page_size) = (false, NextStep::Continue, FIRST_PAGE);
                    continue 'pages;
                }
            }
        }
        self.scan.end_round(is_at_end);
        if self.scan.has_recalled() && !self.was_full {
            next_step = NextStep::Continue;
        }
        Ok(next_step)
    }

    /// Takes stranded deliveries while the in-flight table has slots, one page in a round.
    async fn choose_stranded(&mut self, taken: &mut Vec<TakenDelivery>) -> Result<(), StoreError> {
        if self.was_full || self.stranded.next_look.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let first = || behind_all_until(self.parts.clock.now().plus(self.parts.longest_wait).plus(PAUSE));
        let after = self.stranded.after.take().or_else(first);
        let ever = Timestamp(0).plus(Duration::MAX);
        let page = self.parts.store.due_deliveries(ever, after, LONGEST_PAGE).await?;
        self.stranded.found_any |= !page.is_empty();
        let is_last = page.len() < LONGEST_PAGE;
        for due in page {
            let flow = self.parts.preparation.flow(&due).await?;
            match self.parts.in_flight.take(&due, &flow) {
                Ok(()) => taken.push(TakenDelivery { due: due.clone(), flow }),
                Err(NotTaken::AlreadyTaken | NotTaken::NoCapacity(NoCapacity::Flow | NoCapacity::Key)) => {}
                // The next round goes on from here.
                Err(NotTaken::NoCapacity(NoCapacity::All)) => return Ok(()),
            }
            self.stranded.after = Some(due.place());
        }
        if is_last {
            let pause = if self.stranded.found_any { PAUSE } else { LOOK_FOR_STRANDED_EVERY };
            self.stranded = StrandedScan { next_look: Some(Instant::now() + pause), ..StrandedScan::default() };
        }
        Ok(())
    }

    /// Prepares the taken deliveries, counts them in the quotas of their keys, and puts them into the in-flight table.
    /// Leaves in `taken` those that do not begin.
    async fn make_ready(&mut self, taken: &mut Vec<TakenDelivery>) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let states = self.parts.store.delivery_states(taken.iter().map(|taken| taken.due.id).collect()).await?;
        let suspended = self.refusals.suspensions.look_up(taken.iter().map(|taken| taken.due.id)).await?;
        let (mut drafts, mut claims, mut refused, mut owners) = (Vec::new(), Vec::new(), Vec::new(), Owners::default());
        for (taken, state) in taken.iter().zip(states) {
            let id = taken.due.id;
            let Some(state) = state.filter(|state| is_still_due(&taken.due, state)) else { continue };
            if suspended.has(id) {
                refused.push(Refused::suspended(id, &state));
                if self.refusals.suspensions.note(id, true) {
                    // Deliveries of this URL that wait for a slot are refused without one.
                    self.scan.recall_flow(&taken.flow);
                }
                continue;
            }
            match self.parts.preparation.draft(id, &state, &mut owners).await {
                Ok(draft) => {
                    if !state.counted {
                        claims.push(QuotaClaim { id, round: state.round, month: now.month(), limit: draft.limit() });
                    }
                    drafts.push((draft, state.counted));
                }
                Err(PrepareError::Unsendable(reason)) => refused.push(Refused::unsendable(id, &state, reason)),
                Err(PrepareError::Store(error)) => return Err(error),
            }
        }
        let granted =
            if claims.is_empty() { Vec::new() } else { self.parts.store.claim_delivery_quota(claims).await? };
        let mut granted = granted.into_iter();
        let mut put = HashSet::with_capacity(drafts.len());
        for (draft, counted) in drafts {
            if counted || granted.next() == Some(true) {
                put.insert(draft.id());
                self.parts.in_flight.put(draft);
            } else {
                refused.push(Refused::quota_exceeded(draft.id(), draft.attempt().round));
                let (owner, limit) = (draft.flow().owner, draft.limit());
                if limit.is_some() && self.refusals.note_spent(owner, now.month(), limit) {
                    // Deliveries of this key that wait for a slot are refused without one.
                    self.scan.recall_all_of(owner);
                }
            }
        }
        taken.retain(|taken| !put.contains(&taken.due.id));
        self.has_refused |= !refused.is_empty();
        self.refusals.refuse(refused, now).await
    }
}

#[cfg(test)]
mod tests;

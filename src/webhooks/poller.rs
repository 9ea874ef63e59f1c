//! Takes due deliveries from the store's queue and makes them ready for a worker: prepared, and counted in their owners'
//! quotas.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::in_flight::{Events, InFlightTable, NotTaken};
use super::preparation::{Owners, Preparation, PrepareError};
use super::queue::{FoundDelivery, QueueScan, behind_all_until};
use super::refusals::{RefusalQueue, Refusals, Refused, is_still_due};
use super::scheduler::{Flow, Full, Roomy};
use crate::actors::wake::DispatcherWake;
use crate::clock::Clock;
use crate::domain::calendar::Timestamp;
use crate::store::{DeliveryStore, DueDelivery, QuotaClaim, StoreError};
use crate::telemetry::metrics::webhooks::WebhookMeters;
use crate::telemetry::outage_log::OutageLog;

/// How long to sleep when nothing wakes the poller; retries due sooner wake it in time.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for more room once there is some: what is taken from the queue together shares the price of that.
const GATHER: Duration = Duration::from_millis(2);
/// How long to wait where the store does not answer.
const REST: Duration = Duration::from_millis(250);
/// How often it is shown since when deliveries wait.
const NOTE_OVERDUE_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked for deliveries that were made due by a clock which was ahead, while none are found.
const LOOK_FOR_STRANDED_EVERY: Duration = Duration::from_secs(1);
/// Due deliveries looked at in one round: bounds how long those that were found wait to begin. The next round goes on
/// behind them.
const LOOK_AHEAD: usize = 5_000;
/// Due deliveries read at a time: few at first, as room for few is the rule under load, then more and more.
const FIRST_PAGE: usize = 64;
const LONGEST_PAGE: usize = 1_024;

/// What there is to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// There may be more that is due now.
    More,
    /// All receivers, or the in-flight table, have as many as they may have, or nothing is due; for this long.
    Nothing(Duration),
}

/// A due delivery that has a place in the in-flight table.
struct Taken {
    due: DueDelivery,
    flow: Flow,
}

/// What an poller works with.
pub struct PollerParts {
    pub store: Arc<dyn DeliveryStore>,
    pub preparation: Arc<Preparation>,
    pub clock: Clock,
    pub in_flight: Arc<InFlightTable>,
    pub wake: DispatcherWake,
    /// The longest that a delivery can have to wait before its next try.
    pub longest_wait: Duration,
    pub meters: WebhookMeters,
}

pub struct Poller {
    parts: PollerParts,
    scan: QueueScan,
    refusals: Refusals,
    /// Due deliveries that are likely to be refused. They take no slot of the in-flight table.
    refusal_queue: RefusalQueue,
    /// Whether any was refused that had taken a place, so that there is room for the next one.
    has_refused: bool,
    outage: OutageLog,
    /// Whether the last round ended because the in-flight table was full.
    was_full: bool,
    overdue_noted_at: Timestamp,
    /// The time of the last round.
    last_round: Timestamp,
    stranded: Stranded,
}

/// Where the look for stranded deliveries stands: those that are due later than any can be, for the clock was ahead when they
/// were put into the queue, and was set back. They are begun now and not when the clock comes there.
#[derive(Default)]
struct Stranded {
    /// Behind which of them the next look begins; at the first where there is none.
    after: Option<DueDelivery>,
    /// When there is to be another look; at once where there is none.
    next_look: Option<Instant>,
    /// Whether any was found since the look at the first one.
    found_any: bool,
}

impl Poller {
    pub fn new(parts: PollerParts) -> Self {
        let (overdue_noted_at, last_round) = (Timestamp(0), Timestamp(0));
        let (scan, stranded) = (QueueScan::default(), Stranded::default());
        let (store, preparation) = (Arc::clone(&parts.store), Arc::clone(&parts.preparation));
        let refusals = Refusals::new(store, preparation, parts.meters.clone());
        let outage = OutageLog::new(
            "the store did not answer: webhooks wait",
            "webhooks are delivered again: the store answers",
        );
        let (has_refused, was_full) = (false, false);
        let refusal_queue = RefusalQueue::default();
        Self {
            parts,
            scan,
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

    /// Takes what is due, for ever.
    ///
    /// It may be dropped at any await, and then begun anew: what it did not come to is still due in the store.
    pub async fn run(&mut self) {
        // An earlier run may have looked at deliveries and not come to begin them.
        self.restart_scan();
        loop {
            let outlook = match self.round().await {
                Ok(outlook) => {
                    self.outage.succeeded();
                    outlook
                }
                Err(error) => {
                    self.outage.failed(&error);
                    self.restart_scan();
                    tokio::time::sleep(REST).await;
                    Outlook::More
                }
            };
            if let Outlook::Nothing(pause) = outlook {
                // In time for the next that is due, whatever else wakes this.
                let _ = tokio::time::timeout(pause, self.something_new()).await;
            }
        }
    }

    /// Waits for new deliveries, or for room for those that were passed over.
    async fn something_new(&mut self) {
        loop {
            tokio::select! {
                () = self.parts.wake.woken() => return,
                () = self.parts.in_flight.room.notified() => {
                    if self.hear_news() || (self.was_full && self.parts.in_flight.has_room()) {
                        // Where one place falls free, more will.
                        return tokio::time::sleep(GATHER).await;
                    }
                }
            }
        }
    }

    /// Answers whether there is reason to look at the queue.
    fn hear_news(&mut self) -> bool {
        let Events { roomy: Roomy { flows, keys }, queued_from } = self.parts.in_flight.take_news();
        if let Some(time) = queued_from {
            self.scan.queued_from(time);
        }
        let recalled = flows.iter().filter(|flow| self.scan.has_room(flow)).count();
        let recalled = recalled + keys.into_iter().filter(|key| self.scan.key_has_room(*key)).count();
        recalled > 0 || queued_from.is_some_and(|time| time < self.parts.clock.now().plus(PAUSE))
    }

    /// Reads the queue again from its head.
    fn restart_scan(&mut self) {
        self.scan.reset();
        self.refusal_queue.clear();
    }

    async fn round(&mut self) -> Result<Outlook, StoreError> {
        self.hear_news();
        if let Some(earliest) = self.parts.wake.take_earliest() {
            self.scan.queued_from(earliest);
        }
        self.has_refused = false;
        let mut taken = Vec::new();
        let made = self.choose_and_make_ready(&mut taken).await;
        for Taken { due, flow } in taken {
            self.parts.in_flight.give_back(due.id, &flow);
        }
        self.parts.in_flight.dispatch();
        self.note_overdue();
        let outlook = made?;
        Ok(if self.has_refused { Outlook::More } else { outlook })
    }

    /// Leaves in `taken` what was taken and does not begin.
    async fn choose_and_make_ready(&mut self, taken: &mut Vec<Taken>) -> Result<Outlook, StoreError> {
        let outlook = self.choose(taken).await?;
        self.choose_stranded(taken).await?;
        self.make_ready(taken).await?;
        if !self.refusal_queue.is_due(outlook != Outlook::More) {
            return Ok(outlook);
        }
        // Deliveries that begin do not wait for those that are refused.
        self.parts.in_flight.dispatch();
        let (refusable, barred) = self.refusal_queue.take();
        let to_send = self.refusals.refuse_expected(refusable, self.parts.clock.now()).await?;
        for key in barred {
            self.scan.key_has_room(key);
        }
        let mut taken_after_all = self.take_after_all(to_send);
        let made = self.make_ready(&mut taken_after_all).await;
        taken.append(&mut taken_after_all);
        made?;
        Ok(if self.scan.has_recalled() && !self.was_full { Outlook::More } else { outlook })
    }

    /// Takes what was expected to be refused and is not, as far as there is room.
    fn take_after_all(&mut self, to_send: Vec<(DueDelivery, Flow)>) -> Vec<Taken> {
        let mut taken = Vec::new();
        for (due, flow) in to_send {
            match self.parts.in_flight.take(&due, &flow) {
                Ok(()) => taken.push(Taken { due, flow }),
                Err(NotTaken::AtHand) => {}
                Err(NotTaken::Full(Full::Flow)) => self.scan.passed_over_at(&due, &flow),
                Err(NotTaken::Full(Full::Key)) => self.scan.barred_at(&due, flow.owner),
                Err(NotTaken::Full(Full::All)) => {
                    self.was_full = true;
                    self.scan.queued_from(due.due_at);
                }
            }
        }
        taken
    }

    /// Shows since when deliveries wait, from time to time.
    fn note_overdue(&mut self) {
        let now = self.parts.clock.now();
        // The clock may have been set back since.
        if now < self.overdue_noted_at || now.since(self.overdue_noted_at) >= NOTE_OVERDUE_EVERY {
            self.overdue_noted_at = now;
            let first = self.parts.in_flight.first_due().into_iter().chain(self.scan.first_passed_over()).min();
            self.parts.meters.first_due_is(first.map(|due| due.0));
        }
    }

    /// Takes from the queue what the in-flight table has room for.
    async fn choose(&mut self, taken: &mut Vec<Taken>) -> Result<Outlook, StoreError> {
        let now = self.parts.clock.now();
        let (mut looked_at, mut page_size) = (0, FIRST_PAGE);
        let mut outlook = Outlook::More;
        let mut is_at_end = false;
        self.was_full = false;
        if now < std::mem::replace(&mut self.last_round, now) {
            // The clock was set back: what had been looked at as due may not be due yet, and must be found again.
            self.restart_scan();
        }
        self.scan.begin_round();
        'pages: while looked_at < LOOK_AHEAD && !is_at_end {
            let page = self.parts.store.due_deliveries(now.plus(PAUSE), self.scan.next_page(), page_size).await?;
            if page.len() < page_size {
                (is_at_end, outlook) = (true, Outlook::Nothing(PAUSE));
            }
            looked_at += page.len();
            page_size = (2 * page_size).min(LONGEST_PAGE);
            for due in page {
                if due.due_at > now {
                    let pause = Duration::from_millis(due.due_at.0 - now.0);
                    (is_at_end, outlook) = (true, Outlook::Nothing(PAUSE.min(pause)));
                    break 'pages;
                }
                let flow = self.parts.preparation.flow(due.id).await?;
                if self.scan.look_at(&due, &flow) == FoundDelivery::Consider {
                    if self.refusals.expects(&flow, now.month()) {
                        // A full list does not stop the scan: the key is passed over until the list has free slots.
                        if !self.parts.in_flight.has(due.id) && !self.refusal_queue.push(&due, flow.owner) {
                            self.scan.barred(flow.owner);
                        }
                    } else {
                        match self.parts.in_flight.take(&due, &flow) {
                            Ok(()) => taken.push(Taken { due: due.clone(), flow }),
                            Err(NotTaken::AtHand) => {}
                            Err(NotTaken::Full(Full::Flow)) => self.scan.passed_over(&flow),
                            Err(NotTaken::Full(Full::Key)) => self.scan.barred(flow.owner),
                            Err(NotTaken::Full(Full::All)) => {
                                self.was_full = true;
                                (is_at_end, outlook) = (false, Outlook::Nothing(PAUSE));
                                break 'pages;
                            }
                        }
                    }
                }
                self.scan.step(&due);
                if self.scan.skips_on() {
                    (is_at_end, outlook, page_size) = (false, Outlook::More, FIRST_PAGE);
                    continue 'pages;
                }
            }
        }
        self.scan.end_round(is_at_end);
        if self.scan.has_recalled() && !self.was_full {
            outlook = Outlook::More;
        }
        Ok(outlook)
    }

    /// Takes what is stranded, as far as the in-flight table has room; a page of it in a round.
    async fn choose_stranded(&mut self, taken: &mut Vec<Taken>) -> Result<(), StoreError> {
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
            let flow = self.parts.preparation.flow(due.id).await?;
            match self.parts.in_flight.take(&due, &flow) {
                Ok(()) => taken.push(Taken { due: due.clone(), flow }),
                Err(NotTaken::AtHand | NotTaken::Full(Full::Flow | Full::Key)) => {}
                // From here on in the next round.
                Err(NotTaken::Full(Full::All)) => return Ok(()),
            }
            self.stranded.after = Some(due);
        }
        if is_last {
            let pause = if self.stranded.found_any { PAUSE } else { LOOK_FOR_STRANDED_EVERY };
            self.stranded = Stranded { next_look: Some(Instant::now() + pause), ..Stranded::default() };
        }
        Ok(())
    }

    /// Prepares what was taken, counts it in its owners' quotas, and puts it into the in-flight table; leaves in `taken` what does not
    /// begin.
    async fn make_ready(&mut self, taken: &mut Vec<Taken>) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let states = self.parts.store.delivery_states(taken.iter().map(|taken| taken.due.id).collect()).await?;
        let (mut drafts, mut claims, mut refused, mut owners) = (Vec::new(), Vec::new(), Vec::new(), Owners::default());
        for (taken, state) in taken.iter().zip(states) {
            let id = taken.due.id;
            let Some(state) = state.filter(|state| is_still_due(&taken.due, state)) else { continue };
            match self.parts.preparation.draft(id, &state, &mut owners).await {
                Ok(draft) => {
                    if !state.counted {
                        claims.push(QuotaClaim { id, month: now.month(), limit: draft.limit() });
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
                refused.push(Refused::quota_exceeded(draft.id()));
                let (owner, limit) = (draft.flow().owner, draft.limit());
                if limit.is_some() && self.refusals.note_spent(owner, now.month(), limit) {
                    // All that wait for a place are refused without one.
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

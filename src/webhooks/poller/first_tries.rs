//! New deliveries go to the workers from memory, without the queue.

use std::time::{Duration, Instant};

use super::{Poller, TakenDelivery};
use crate::domain::webhook::DeliveryId;
use crate::store::{DeliveryStore, FirstTriesToQueue, StoreError};
use crate::webhooks::first_tries::WaitingFirstTries;
use crate::webhooks::in_flight::NotTaken;
use crate::webhooks::scheduler::NoCapacity;

/// New deliveries that are kept in memory for their first try.
const FIRST_TRIES: usize = 20_000;
/// How long they are kept there. Then they are put into the queue, so that a receiver that does not answer keeps no rows of
/// first tries in the store.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// How often to look for those that were kept for so long.
const LOOK_FOR_OLD_EVERY: Duration = Duration::from_millis(500);

/// The new deliveries that the store keeps in memory for the poller.
pub struct FirstTries {
    /// Those without a slot.
    pub waiting: WaitingFirstTries,
    /// Those to put into the queue, because their attempts did not begin.
    pub not_begun: Vec<DeliveryId>,
    /// Whether to put all into the queue: some may have been taken and not begun.
    queues_all: bool,
    /// When to look for old ones.
    next_look: Instant,
}

impl FirstTries {
    pub fn kept_by(store: &dyn DeliveryStore) -> Self {
        store.keep_first_tries(FIRST_TRIES);
        let (waiting, not_begun, queues_all) = Default::default();
        Self { waiting, not_begun, queues_all, next_look: Instant::now() }
    }

    /// Has all put into the queue.
    pub fn queue_all(&mut self) {
        self.waiting.clear();
        self.queues_all = true;
    }
}

impl Poller {
    /// Puts new deliveries into the queue that are not kept in memory any longer.
    pub(super) async fn queue_first_tries(&mut self) -> Result<(), StoreError> {
        // What is taken here need not be kept: after an error, all are put into the queue.
        let FirstTries { waiting, not_begun, queues_all, next_look } = &mut self.first_tries;
        let mut which = Vec::new();
        if std::mem::take(queues_all) {
            which.push(FirstTriesToQueue::All);
        }
        if !not_begun.is_empty() {
            which.push(FirstTriesToQueue::These(std::mem::take(not_begun)));
        }
        if *next_look <= Instant::now() {
            *next_look = Instant::now() + LOOK_FOR_OLD_EVERY;
            waiting.drop_older(KEPT_FOR);
            which.push(FirstTriesToQueue::OlderThan(KEPT_FOR));
        }
        for which in which {
            if let Some(earliest) = self.parts.store.queue_first_tries(which).await? {
                self.scan.queued_from(earliest);
                self.scan_again();
            }
        }
        Ok(())
    }

    /// Takes new deliveries from memory while the in-flight table has slots.
    pub(super) async fn choose_first_tries(&mut self, taken: &mut Vec<TakenDelivery>) -> Result<(), StoreError> {
        let (arrived, month) = (Instant::now(), self.parts.clock.now().month());
        for due in self.parts.store.take_first_tries() {
            let flow = self.parts.preparation.flow(&due).await?;
            self.first_tries.waiting.push(flow, due, arrived);
        }
        let waiting = &mut self.first_tries.waiting;
        let mut flows = waiting.take_flows().into_iter();
        'flows: while let Some(flow) = flows.next() {
            // Those of the flow that are in the queue are older.
            while !self.scan.has_passed_over(&flow)
                && let Some(due) = waiting.first_of(&flow)
            {
                if self.refusals.expects(due.id, &flow, month) {
                    if !self.parts.in_flight.has(due) && !self.refusal_queue.push(due, flow.owner) {
                        break;
                    }
                    waiting.pop(&flow);
                    continue;
                }
                match self.parts.in_flight.take(due, &flow) {
                    Ok(()) => taken.extend(waiting.pop(&flow).map(|due| TakenDelivery { due, flow: flow.clone() })),
                    Err(NotTaken::AlreadyTaken) => drop(waiting.pop(&flow)),
                    Err(NotTaken::NoCapacity(NoCapacity::Flow | NoCapacity::Key)) => break,
                    Err(NotTaken::NoCapacity(NoCapacity::All)) => {
                        self.was_full = true;
                        waiting.put_back(std::iter::once(flow).chain(flows));
                        break 'flows;
                    }
                }
            }
        }
        Ok(())
    }
}

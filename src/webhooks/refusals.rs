//! Deliveries that are never sent. They take no slot of the in-flight table and are settled a thousand at a time, so
//! that they delay no other delivery.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::flow::Flow;
use super::preparation::{Owners, Preparation, PrepareError};
use super::suspended::{SUSPENDED, SuspensionCheck};
use crate::domain::calendar::{Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus};
use crate::store::{DeliveryStore, DueDelivery, QuotaClaim, Settlement, StoreError};
use crate::telemetry::metrics::webhooks::{NeverSent, WebhookMeters};

/// How many deliveries are refused at once: bounds how long other deliveries wait meanwhile.
const REFUSED_AT_ONCE: usize = 1_024;
/// How many rounds the scan goes on while the list of deliveries to refuse is full. So a key that is over its quota
/// delays other keys' deliveries only by the time to read its own, and not by the time to settle them.
const ROUNDS_WHILE_FULL: u32 = 16;
/// The largest number of keys that are known to have used up their quotas.
const MOST_SPENT: usize = 10_000;

/// A delivery that is never sent.
pub struct Refused {
    pub id: DeliveryId,
    pub round: u32,
    pub attempt: u32,
    pub why: NeverSent,
    /// The error that the owner sees.
    pub reason: &'static str,
}

/// The error of a delivery that the quota does not admit.
pub const QUOTA_EXCEEDED: &str = "quota exceeded";

impl Refused {
    pub fn quota_exceeded(id: DeliveryId, round: u32) -> Self {
        Self { id, round, attempt: 0, why: NeverSent::QuotaExceeded, reason: QUOTA_EXCEEDED }
    }

    /// The delivery may have been counted, and attempted before.
    pub fn unsendable(id: DeliveryId, state: &DeliveryState, reason: &'static str) -> Self {
        Self { id, round: state.round, attempt: state.attempts + 1, why: NeverSent::Unsendable, reason }
    }

    /// The delivery may have been counted, and attempted before.
    pub fn suspended(id: DeliveryId, state: &DeliveryState) -> Self {
        Self { why: NeverSent::Suspended, ..Self::unsendable(id, state, SUSPENDED) }
    }
}

/// Whether a delivery is still due as read from the queue: the outcome of an earlier attempt may have been written
/// since.
pub fn is_still_due(due: &DueDelivery, state: &DeliveryState) -> bool {
    state.status == DeliveryStatus::Pending && state.round == due.round && state.next_attempt_at == Some(due.due_at)
}

/// Due deliveries that are likely to be refused, each once.
#[derive(Default)]
pub struct RefusalQueue {
    deliveries: Vec<DueDelivery>,
    ids: HashSet<DeliveryId>,
    /// Keys with further deliveries to refuse, which found the list full.
    barred: HashSet<KeyId>,
    /// Rounds of the scan since the list became full.
    rounds_while_full: u32,
}

impl RefusalQueue {
    /// Adds a delivery of the key `owner`; returns `false` if the list is full.
    pub fn push(&mut self, due: &DueDelivery, owner: KeyId) -> bool {
        if self.ids.contains(&due.id) {
            return true;
        }
        if self.deliveries.len() >= REFUSED_AT_ONCE {
            self.barred.insert(owner);
            return false;
        }
        self.ids.insert(due.id);
        self.deliveries.push(due.clone());
        true
    }

    /// Whether to refuse the listed deliveries after this round. If the list is full, the scan goes on first for some
    /// rounds, or until it `is_idle`: it has read all that is due, or the in-flight table is full.
    pub fn is_due(&mut self, is_idle: bool) -> bool {
        if self.barred.is_empty() || is_idle {
            return !self.deliveries.is_empty();
        }
        self.rounds_while_full += 1;
        self.rounds_while_full >= ROUNDS_WHILE_FULL
    }

    /// Empties the list; returns its deliveries, and the keys that found it full.
    pub fn take(&mut self) -> (Vec<DueDelivery>, HashSet<KeyId>) {
        let Self { deliveries, barred, .. } = std::mem::take(self);
        (deliveries, barred)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Refuses deliveries that are never sent.
pub struct Refusals {
    store: Arc<dyn DeliveryStore>,
    preparation: Arc<Preparation>,
    meters: WebhookMeters,
    /// By key: the month whose quota is used up, and that quota.
    ///
    /// Use only grows, so no further delivery of that month is admitted unless the quota is raised. The store still
    /// decides; this only shows which deliveries need no slot.
    spent: HashMap<KeyId, (Month, MonthlyLimit)>,
    pub suspensions: SuspensionCheck,
}

impl Refusals {
    pub fn new(
        store: Arc<dyn DeliveryStore>,
        preparation: Arc<Preparation>,
        meters: WebhookMeters,
        suspensions: SuspensionCheck,
    ) -> Self {
        Self { store, preparation, meters, spent: HashMap::new(), suspensions }
    }

    /// Whether a delivery is likely to be refused in this month.
    pub fn expects(&self, id: DeliveryId, flow: &Flow, month: Month) -> bool {
        flow.has_no_receiver()
            || self.suspensions.expects(id)
            || self.spent.get(&flow.owner).is_some_and(|(spent, _)| *spent == month)
    }

    /// Notes that a key's quota is used up; returns whether that was not known.
    pub fn note_spent(&mut self, key: KeyId, month: Month, limit: MonthlyLimit) -> bool {
        if self.spent.len() >= MOST_SPENT && !self.spent.contains_key(&key) {
            // Each key is found again with its next delivery.
            self.spent.clear();
        }
        self.spent.insert(key, (month, limit)).is_none_or(|known| known != (month, limit))
    }

    /// Refuses the deliveries that were expected to be refused. Returns those to send: they were counted before, or the
    /// quota admits them now.
    pub async fn refuse_expected(
        &mut self,
        expected: Vec<DueDelivery>,
        now: Timestamp,
    ) -> Result<Vec<(DueDelivery, Flow)>, StoreError> {
        if expected.is_empty() {
            return Ok(Vec::new());
        }
        let states = self.store.delivery_states(expected.iter().map(|due| due.id).collect()).await?;
        let (mut refused, mut claims, mut claiming, mut to_send) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let suspended = self.suspensions.look_up(expected.iter().map(|due| due.id)).await?;
        let mut owners = Owners::default();
        for (due, state) in expected.into_iter().zip(states) {
            let is_suspended = suspended.has(due.id);
            self.suspensions.note(due.id, is_suspended);
            let Some(state) = state.filter(|state| is_still_due(&due, state)) else { continue };
            if is_suspended {
                refused.push(Refused::suspended(due.id, &state));
                continue;
            }
            match self.preparation.draft(due.id, &state, &mut owners).await {
                Ok(draft) if state.counted => to_send.push((due, draft.flow().clone())),
                Ok(draft) => {
                    let (flow, limit) = (draft.flow().clone(), draft.limit());
                    if self.spent.get(&flow.owner) == Some(&(now.month(), limit)) {
                        claims.push(QuotaClaim { id: due.id, round: due.round, month: now.month(), limit });
                        claiming.push((due, flow));
                    } else {
                        self.spent.remove(&flow.owner);
                        to_send.push((due, flow));
                    }
                }
                Err(PrepareError::Unsendable(reason)) => refused.push(Refused::unsendable(due.id, &state, reason)),
                Err(PrepareError::Store(error)) => return Err(error),
            }
        }
        let granted = if claims.is_empty() { Vec::new() } else { self.store.claim_delivery_quota(claims).await? };
        for ((due, flow), is_granted) in claiming.into_iter().zip(granted) {
            if is_granted {
                self.spent.remove(&flow.owner);
                to_send.push((due, flow));
            } else {
                refused.push(Refused::quota_exceeded(due.id, due.round));
            }
        }
        self.refuse(refused, now).await?;
        Ok(to_send)
    }

    /// Writes refusals to the store.
    pub async fn refuse(&self, refused: Vec<Refused>, now: Timestamp) -> Result<(), StoreError> {
        if refused.is_empty() {
            return Ok(());
        }
        let settlements = refused.iter().map(|refused| {
            let outcome = AttemptOutcome::NeverSent { error: refused.reason.to_owned() };
            Settlement { id: refused.id, round: refused.round, attempt: refused.attempt, outcome, at: now }
        });
        self.store.settle_deliveries(settlements.collect()).await?;
        for refused in refused {
            self.meters.never_sent(refused.why);
        }
        Ok(())
    }
}

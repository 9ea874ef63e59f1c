//! The month's count of a key's deliveries: moved on by LWT, for all deliveries at once that are about to begin.
//!
//! A claim names the deliveries that it counts. They are marked as counted before the process makes its next claim of that
//! month; where it ended before it could, whoever has its queue finds the claim, and counts none of them again.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::Tables;
use super::outcome::CqlError;
use super::rows::{bigint, month as month_column, number};
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::domain::webhook::DeliveryId;
use crate::store::{QuotaClaim, StoreError};

/// Months that are known at once; where there are more, they are read anew.
const MOST_KNOWN: usize = 10_000;
const ID_BYTES: usize = 32;

/// What this process knows of the months in which it counts.
#[derive(Default)]
pub struct DeliveryQuotas {
    known: HashMap<(KeyId, Month), Known>,
    last_claim: i32,
    /// How many adoptions there were when the claims of others were read.
    adoptions: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    used: u64,
    /// The last claim of this process that is known to be applied.
    claim: Option<i32>,
    /// Counted, and not known to be marked as such.
    unmarked: HashSet<DeliveryId>,
}

/// A claim that was sent and may have been applied.
struct Sent {
    claim: i32,
    ids: Vec<DeliveryId>,
}

/// Process, count, number of its last claim, and the deliveries of that.
type QuotaRow = (Option<Uuid>, Option<i64>, Option<i32>, Option<Vec<u8>>);

/// A month as its rows say.
struct There {
    used: u64,
    /// The last claim of this process that was applied.
    claim: Option<i32>,
    /// What all processes have counted with their last claims.
    claimed: HashSet<DeliveryId>,
}

impl Tables {
    pub(super) async fn deliveries_used(&self, owner: KeyId, month: Month) -> Result<u64, StoreError> {
        let values = (owner.0, month_column(month));
        let row = self.cql.read_one::<(Option<i64>,)>(&self.statements.deliveries_used, values).await?;
        Ok(row.map_or(0, |(used,)| number(used)))
    }

    pub(super) async fn claim_deliveries(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        // One at a time: a claim overwrites this process' last one.
        let mut quotas = self.delivery_quotas.lock().await;
        let adoptions = self.queues.adoptions();
        if quotas.adoptions != adoptions || quotas.known.len() > MOST_KNOWN {
            // What has come to this process may be counted by claims that it has not seen. What it counted itself and could
            // not mark is in its own last claim.
            quotas.known.clear();
            quotas.adoptions = adoptions;
        }
        let states = self.read_states(claims.iter().map(|claim| claim.id).collect()).await?;
        let mut counted: HashMap<DeliveryId, bool> = HashMap::new();
        let mut open: HashMap<(KeyId, Month), Vec<QuotaClaim>> = HashMap::new();
        for (claim, state) in claims.iter().zip(states) {
            let Some(state) = state else { continue };
            if counted.insert(claim.id, state.counted).is_none() && !state.counted {
                open.entry((state.owner, claim.month)).or_default().push(*claim);
            }
        }
        for ((owner, month), open) in open {
            let granted = self.claim_of_month(&mut quotas, owner, month, &open).await?;
            counted.extend(granted.into_iter().map(|id| (id, true)));
        }
        Ok(claims.iter().map(|claim| counted.get(&claim.id).copied().unwrap_or(false)).collect())
    }

    /// Those of `open` that are counted then.
    async fn claim_of_month(
        &self,
        quotas: &mut DeliveryQuotas,
        owner: KeyId,
        month: Month,
        open: &[QuotaClaim],
    ) -> Result<Vec<DeliveryId>, StoreError> {
        let mut known = match quotas.known.remove(&(owner, month)) {
            Some(known) => known,
            None => self.know_month(owner, month).await?,
        };
        // What is in no claim that can be seen is counted by none.
        self.mark_counted(&known.unmarked.iter().copied().collect::<Vec<_>>()).await?;
        let mut granted: Vec<DeliveryId> =
            open.iter().map(|claim| claim.id).filter(|id| known.unmarked.contains(id)).collect();
        let rest: Vec<_> = open.iter().filter(|claim| !known.unmarked.contains(&claim.id)).copied().collect();
        known.unmarked.clear();
        let ids = self.move_on(quotas, &mut known, (owner, month), &rest).await?;
        known.unmarked.extend(&ids);
        quotas.known.insert((owner, month), known);
        self.mark_counted(&ids).await?;
        if let Some(known) = quotas.known.get_mut(&(owner, month)) {
            known.unmarked.clear();
        }
        granted.extend(ids);
        Ok(granted)
    }

    /// Reads a month for the first time: its count, and what was counted by processes that may not have marked it. A claim
    /// may be of the month before, when its delivery was about to begin.
    async fn know_month(&self, owner: KeyId, month: Month) -> Result<Known, StoreError> {
        let this = self.read_delivery_quota(owner, month).await?;
        let before = self.read_delivery_quota(owner, Month(month.0.saturating_sub(1))).await?;
        let claimed: Vec<_> = this.claimed.into_iter().chain(before.claimed).collect();
        // Only what this process works on: the others mark their own.
        let rows = self.read_rows(claimed.clone()).await?;
        let is_ours = |row: &super::deliveries::DeliveryRow| {
            !row.state.counted && row.queue.is_some_and(|queue| self.queues.has(queue))
        };
        let ours = claimed.into_iter().zip(rows).filter(|(_, row)| row.as_ref().is_some_and(is_ours));
        Ok(Known { used: this.used, claim: this.claim, unmarked: ours.map(|(id, _)| id).collect() })
    }

    /// Moves the month's count on by as many as fit. Answers which those are.
    async fn move_on(
        &self,
        quotas: &mut DeliveryQuotas,
        known: &mut Known,
        (owner, month): (KeyId, Month),
        open: &[QuotaClaim],
    ) -> Result<Vec<DeliveryId>, StoreError> {
        let mut pause = super::session::Pause::within(self.cql.patience());
        let mut sent: Vec<Sent> = Vec::new();
        loop {
            let ids = those_that_fit(known.used, open);
            if ids.is_empty() {
                return Ok(ids);
            }
            quotas.last_claim = quotas.last_claim.wrapping_add(1);
            let (claim, then) = (quotas.last_claim, known.used + ids.len() as u64);
            let blob: Vec<u8> = ids.iter().flat_map(|id| id.to_bytes()).collect();
            let before = (known.used > 0).then(|| bigint(known.used));
            let values = (bigint(then), claim, blob, owner.0, month_column(month), self.process, before);
            sent.push(Sent { claim, ids: ids.clone() });
            match self.cql.lwt(&self.statements.claim_deliveries, values).await {
                Ok(true) => {
                    (known.used, known.claim) = (then, Some(claim));
                    return Ok(ids);
                }
                Err(error @ CqlError::Unusable(_)) => return Err(error.into()),
                // Refused since the count has moved, or not known: what is there says which.
                Ok(false) | Err(_) => {}
            }
            match self.read_delivery_quota(owner, month).await {
                Ok(there) => {
                    known.used = there.used;
                    if let Some(applied) = sent.iter().position(|sent| there.claim == Some(sent.claim)) {
                        known.claim = there.claim;
                        return Ok(sent.swap_remove(applied).ids);
                    }
                    if there.claim != known.claim {
                        // One of an earlier call was applied after all: what it counted is found by reading all anew.
                        return Err(StoreError::Unavailable("a late claim was applied meanwhile".into()));
                    }
                }
                Err(error) if pause.wait().await.is_break() => return Err(error),
                Err(_) => {}
            }
        }
    }

    async fn read_delivery_quota(&self, owner: KeyId, month: Month) -> Result<There, StoreError> {
        let values = (owner.0, month_column(month));
        let rows: Vec<QuotaRow> = self.cql.read(&self.statements.delivery_quota, values).await?;
        let used = rows.first().map_or(0, |(_, used, ..)| number(*used));
        let own = rows.iter().find(|(process, ..)| *process == Some(self.process));
        let claim = own.and_then(|(_, _, claim, _)| *claim);
        let blobs = rows.iter().filter_map(|(.., blob)| blob.as_ref());
        let ids = blobs.flat_map(|blob| blob.chunks(ID_BYTES)).filter_map(DeliveryId::from_bytes);
        Ok(There { used, claim, claimed: ids.collect() })
    }
}

/// The first of `open` that find room.
fn those_that_fit(used: u64, open: &[QuotaClaim]) -> Vec<DeliveryId> {
    let mut count = used;
    let fits = |limit: MonthlyLimit, count: &mut u64| {
        let fits = limit.is_none_or(|limit| *count < limit);
        *count += u64::from(fits);
        fits
    };
    open.iter().filter(|claim| fits(claim.limit, &mut count)).map(|claim| claim.id).collect()
}

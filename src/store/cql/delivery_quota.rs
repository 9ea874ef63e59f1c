//! The month's count of a key's deliveries: moved on by LWT, for all deliveries at once that are about to begin.
//!
//! A claim names the deliveries that it counts. They are marked as counted before the process makes its next claim of that
//! month; where it ended before it could, whoever has its queue finds the claim, and counts none of them again.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use uuid::Uuid;

use super::Tables;
use super::outcome::CqlError;
use super::session::Pause;
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::domain::webhook::DeliveryId;
use crate::store::records::columns::{bigint, month as month_column, number};
use crate::store::{QuotaClaim, StoreError};

/// Months that are known at once; where there are more, they are read anew.
const MOST_KNOWN: usize = 10_000;
const ID_BYTES: usize = 32;

/// What this process knows of the months in which it counts.
#[derive(Default)]
pub struct DeliveryQuotas {
    known: HashMap<(KeyId, Month), Known>,
    /// How many adoptions there were when the claims of others were read.
    adoptions: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    used: u64,
    /// The last claim of this process that is known to be applied.
    claim: Option<i32>,
    /// Counted by claims that were found when the month was read, until they are marked as such.
    claimed: HashSet<DeliveryId>,
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
        let months = open.into_iter().map(|((owner, month), open)| {
            let known = quotas.known.remove(&(owner, month));
            async move { ((owner, month), self.claim_of_month(known, owner, month, open).await) }
        });
        let mut failed = None;
        for (month, claimed) in join_all(months).await {
            match claimed {
                Ok((known, granted)) => {
                    quotas.known.insert(month, known);
                    counted.extend(granted.into_iter().map(|id| (id, true)));
                }
                // What is known of that month is outdated: the next call reads it anew.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(claims.iter().map(|claim| counted.get(&claim.id).copied().unwrap_or(false)).collect())
    }

    /// Those of `open` that are counted then, and what is known of the month.
    async fn claim_of_month(
        &self,
        known: Option<Known>,
        owner: KeyId,
        month: Month,
        open: Vec<QuotaClaim>,
    ) -> Result<(Known, Vec<DeliveryId>), StoreError> {
        let mut known = match known {
            Some(known) => known,
            None => self.know_month(owner, month).await?,
        };
        // Before another claim takes the place of the one that names them.
        let claimed = std::mem::take(&mut known.claimed);
        self.mark_counted(&claimed.iter().copied().collect::<Vec<_>>()).await?;
        let (counted, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|claim| claimed.contains(&claim.id));
        let mut granted: Vec<DeliveryId> = counted.into_iter().map(|claim| claim.id).collect();
        let ids = self.move_on(&mut known, (owner, month), rest).await?;
        self.mark_counted(&ids).await?;
        granted.extend(ids);
        Ok((known, granted))
    }

    /// Reads a month for the first time: its count, and what was counted by processes that may not have marked it. A claim
    /// may be of the month before, when its delivery was about to begin.
    async fn know_month(&self, owner: KeyId, month: Month) -> Result<Known, StoreError> {
        let this = self.read_delivery_quota(owner, month).await?;
        let before = self.read_delivery_quota(owner, Month(month.0.saturating_sub(1))).await?;
        // A claim counts, whoever made it: this process where it lost the answer, an earlier life of this node, or a holder
        // of the queue that is gone. Whether it is marked is not asked: that may come while we look.
        let claimed = this.claimed.into_iter().chain(before.claimed).collect();
        Ok(Known { used: this.used, claim: this.claim, claimed })
    }

    /// Moves the month's count on by as many as fit. Answers those that are counted then, by this claim or by another's.
    async fn move_on(
        &self,
        known: &mut Known,
        (owner, month): (KeyId, Month),
        mut open: Vec<QuotaClaim>,
    ) -> Result<Vec<DeliveryId>, StoreError> {
        let mut pause = Pause::within(self.cql.patience());
        let mut sent: Vec<Sent> = Vec::new();
        let mut counted = Vec::new();
        loop {
            let ids = those_that_fit(known.used, &open);
            if ids.is_empty() {
                return Ok(counted);
            }
            // Another process that has taken the queue over counts them itself.
            self.queues.own()?;
            let (claim, then) = (self.next_claim(), known.used + ids.len() as u64);
            let blob: Vec<u8> = ids.iter().flat_map(|id| id.to_bytes()).collect();
            let before = (known.used > 0).then(|| bigint(known.used));
            let values = (bigint(then), claim, blob, owner.0, month_column(month), self.process, before);
            sent.push(Sent { claim, ids: ids.clone() });
            match self.cql.lwt(&self.statements.claim_deliveries, values).await {
                Ok(true) => {
                    (known.used, known.claim) = (then, Some(claim));
                    return Ok([counted, ids].concat());
                }
                Err(error @ CqlError::Unusable(_)) => return Err(error.into()),
                // Refused since the count has moved, or not known: what is there says which.
                Ok(false) | Err(_) => {}
            }
            let there = loop {
                match self.read_delivery_quota(owner, month).await {
                    Ok(there) => break there,
                    Err(error) if pause.wait().await.is_break() => return Err(error),
                    Err(_) => {}
                }
            };
            known.used = there.used;
            if let Some(applied) = sent.iter().position(|sent| there.claim == Some(sent.claim)) {
                known.claim = there.claim;
                return Ok([counted, sent.swap_remove(applied).ids].concat());
            }
            if there.claim != known.claim {
                // One of an earlier call was applied after all: what it counted is found by reading all anew.
                return Err(StoreError::Unavailable("a late claim was applied meanwhile".into()));
            }
            // Whoever moved the count may have counted some of these: an earlier life of this node, or a holder of their
            // queue that was gone for a while. After the count, so that a claim on it can't miss one.
            let states = self.read_states(open.iter().map(|claim| claim.id).collect()).await?;
            let mut states = states.into_iter();
            open.retain(|claim| {
                let is_marked = states.next().flatten().is_some_and(|state| state.counted);
                let is_counted = is_marked || there.claimed.contains(&claim.id);
                if is_counted {
                    counted.push(claim.id);
                }
                !is_counted
            });
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

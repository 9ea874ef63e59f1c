//! The monthly count of a key's deliveries: increased by LWT, for all deliveries that are about to begin at once.
//!
//! A claim names the deliveries that it counts. They are marked as counted before the process makes its next claim of
//! that month. If the process ended before it could mark them, the next holder of its queue finds the claim, and counts
//! none of them again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use uuid::Uuid;

use super::cluster::Cluster;
use super::deliveries::Deliveries;
use super::lwt_quota::{KnownMonth, LwtClaim, LwtQuota, raise_count};
use super::outcome::CqlError;
use super::pause::Pause;
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::domain::webhook::DeliveryId;
use crate::store::records::columns::{bigint, month as month_column, number};
use crate::store::records::deliveries::{DeliveryRound, decode_claimed, encode_claimed};
use crate::store::{QuotaClaim, StoreError, TestClaim};

/// Months in memory; beyond that number all are dropped, and read again.
const MOST_KNOWN: usize = 10_000;

/// The months' counts of keys' deliveries.
pub struct DeliveryQuotas {
    cluster: Arc<Cluster>,
    deliveries: Arc<Deliveries>,
    months: tokio::sync::Mutex<Months>,
}

/// The months in memory.
#[derive(Default)]
struct Months {
    known: HashMap<(KeyId, Month), Known>,
    /// The number of adoptions when the claims of others were read.
    adoptions: u64,
}

#[derive(Clone, Debug, Default)]
struct Known {
    month: KnownMonth,
    /// Deliveries that are counted by claims found when the month was read, until they are marked.
    claimed: Claimed,
}

/// Process, count, number of its last claim, and the deliveries of that.
type DeliveryQuotaRow = (Option<Uuid>, Option<i64>, Option<i32>, Option<Vec<u8>>);

/// The deliveries that all processes have counted with their last claims.
type Claimed = HashSet<DeliveryRound>;

impl DeliveryQuotas {
    pub fn new(cluster: &Arc<Cluster>, deliveries: &Arc<Deliveries>) -> Self {
        Self { cluster: Arc::clone(cluster), deliveries: Arc::clone(deliveries), months: tokio::sync::Mutex::default() }
    }

    pub(super) async fn deliveries_used(&self, owner: KeyId, month: Month) -> Result<u64, StoreError> {
        let values = (owner.0, month_column(month));
        let row = self.cluster.cql.read_one::<(Option<i64>,)>(&self.cluster.statements.deliveries_used, values).await?;
        Ok(row.map_or(0, |(used,)| number(used)))
    }

    pub(super) async fn claim_deliveries(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        // One at a time: a claim overwrites this process's last one.
        let mut quotas = self.months.lock().await;
        self.forget_outdated(&mut quotas);
        let states = self.deliveries.read_states(claims.iter().map(|claim| claim.id).collect()).await?;
        let mut counted: HashMap<DeliveryId, bool> = HashMap::new();
        let mut open: HashMap<(KeyId, Month), Vec<QuotaClaim>> = HashMap::new();
        for (claim, state) in claims.iter().zip(states) {
            let Some(state) = state.filter(|state| state.round == claim.round) else { continue };
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
                    counted.extend(granted.into_iter().map(|(id, _)| (id, true)));
                }
                // The month in memory is outdated: the next call reads it again.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(claims.iter().map(|claim| counted.get(&claim.id).copied().unwrap_or(false)).collect())
    }

    /// Counts tests of webhooks, which have no rows; returns how many the quota admits.
    pub(super) async fn claim_tests(&self, claim: TestClaim) -> Result<u64, StoreError> {
        let mut quotas = self.months.lock().await;
        self.forget_outdated(&mut quotas);
        // After a failure the next call reads the month again.
        let of_month = (claim.owner, claim.month);
        let known = quotas.known.remove(&of_month);
        let (mut known, _) = self.marked_month(known, claim.owner, claim.month).await?;
        let pause = Pause::within(self.cluster.cql.patience());
        let granted = raise_count(&mut TestClaims { quotas: self, claim, pause }, &mut known.month).await?;
        quotas.known.insert(of_month, known);
        Ok(granted)
    }

    /// Drops months in memory that may be outdated.
    fn forget_outdated(&self, quotas: &mut Months) {
        let adoptions = self.deliveries.leases.queues.adoptions();
        if quotas.adoptions != adoptions || quotas.known.len() > MOST_KNOWN {
            // Adopted deliveries may be counted by claims that this process has not seen. Those that it counted itself
            // and could not mark are in its own last claim.
            quotas.known.clear();
            quotas.adoptions = adoptions;
        }
    }

    /// A month, and the deliveries that were counted by claims found in it. They are marked, so that the next claim may
    /// replace the one that names them.
    async fn marked_month(
        &self,
        known: Option<Known>,
        owner: KeyId,
        month: Month,
    ) -> Result<(Known, Claimed), StoreError> {
        let mut known = match known {
            Some(known) => known,
            None => self.know_month(owner, month).await?,
        };
        let claimed = std::mem::take(&mut known.claimed);
        self.deliveries.mark_counted(&claimed.iter().copied().collect::<Vec<_>>()).await?;
        Ok((known, claimed))
    }

    /// The deliveries of `open` that are counted, and the month.
    async fn claim_of_month(
        &self,
        known: Option<Known>,
        owner: KeyId,
        month: Month,
        open: Vec<QuotaClaim>,
    ) -> Result<(Known, Vec<DeliveryRound>), StoreError> {
        let is_new = known.is_none();
        let (mut known, claimed) = self.marked_month(known, owner, month).await?;
        let pause = Pause::within(self.cluster.cql.patience());
        let mut claims = DeliveryClaims { quotas: self, owner, month, open, counted: Vec::new(), pause };
        if is_new {
            // Their states were read before the month: a process may have counted and marked some of them, and then
            // replaced the claim that named them.
            claims.leave_out_counted(&claimed).await?;
        }
        let ids = raise_count(&mut claims, &mut known.month).await?;
        let granted = [claims.counted, ids].concat();
        self.deliveries.mark_counted(&granted).await?;
        Ok((known, granted))
    }

    /// Reads a month for the first time: its count, and the deliveries counted by processes that may not have marked
    /// them. A claim may be of the month before, if its delivery was about to begin then.
    async fn know_month(&self, owner: KeyId, month: Month) -> Result<Known, StoreError> {
        let (this, claimed) = self.read_delivery_quota(owner, month).await?;
        let (_, claimed_before) = self.read_delivery_quota(owner, Month(month.0.saturating_sub(1))).await?;
        // Claims of all processes count: of this one if the answer was lost, of an earlier one of this node, or of a
        // previous holder of the queue. Marks are not checked here: they may be written at the same time.
        Ok(Known { month: this, claimed: claimed.into_iter().chain(claimed_before).collect() })
    }

    /// Reads a month, and retries while the cluster does not answer.
    async fn read_until_answered(
        &self,
        owner: KeyId,
        month: Month,
        pause: &mut Pause,
    ) -> Result<(KnownMonth, Claimed), StoreError> {
        loop {
            match self.read_delivery_quota(owner, month).await {
                Ok(there) => return Ok(there),
                Err(error) if pause.wait().await.is_break() => return Err(error),
                Err(_) => {}
            }
        }
    }

    async fn read_delivery_quota(&self, owner: KeyId, month: Month) -> Result<(KnownMonth, Claimed), StoreError> {
        let values = (owner.0, month_column(month));
        let rows: Vec<DeliveryQuotaRow> =
            self.cluster.cql.read(&self.cluster.statements.delivery_quota, values).await?;
        let used = rows.first().map_or(0, |(_, used, ..)| number(*used));
        let own = rows.iter().find(|(process, ..)| *process == Some(self.cluster.process));
        let claim = own.and_then(|(_, _, claim, _)| *claim);
        let claimed = rows.iter().filter_map(|(.., blob)| blob.as_ref()).flat_map(|blob| decode_claimed(blob));
        Ok((KnownMonth { used, claim }, claimed.collect()))
    }
}

/// Deliveries of one key that are counted together.
struct DeliveryClaims<'a> {
    quotas: &'a DeliveryQuotas,
    owner: KeyId,
    month: Month,
    open: Vec<QuotaClaim>,
    /// Those that were counted by a claim of another process.
    counted: Vec<DeliveryRound>,
    pause: Pause,
}

impl LwtQuota for DeliveryClaims<'_> {
    type Share = Vec<DeliveryRound>;
    type Rows = Claimed;

    fn share(&mut self, used: u64) -> (Vec<DeliveryRound>, u64) {
        let ids = within_limits(used, &self.open);
        let count = ids.len() as u64;
        (ids, count)
    }

    fn begin(&self) -> Result<i32, StoreError> {
        // Another process that has taken the queue over counts them itself.
        self.quotas.deliveries.leases.queues.own()?;
        Ok(self.quotas.cluster.next_claim())
    }

    async fn send(&self, claim: &LwtClaim<Vec<DeliveryRound>>) -> Result<bool, CqlError> {
        let cluster = &self.quotas.cluster;
        let blob = encode_claimed(&claim.share);
        let (owner, month) = (self.owner.0, month_column(self.month));
        let values = (bigint(claim.then), claim.number, blob, owner, month, cluster.process, claim.before());
        cluster.cql.lwt(&cluster.statements.claim_deliveries, values).await
    }

    async fn read(&mut self) -> Result<(KnownMonth, Claimed), StoreError> {
        self.quotas.read_until_answered(self.owner, self.month, &mut self.pause).await
    }

    async fn was_refused(&mut self, before: KnownMonth, now: KnownMonth, claimed: Claimed) -> Result<(), StoreError> {
        refuse_late_claim(before, now)?;
        // The process that changed the count may have counted some of these: an earlier process of this node, or a
        // holder of their queue that was suspended.
        self.leave_out_counted(&claimed).await
    }
}

impl DeliveryClaims<'_> {
    /// Leaves out those that are counted by a claim found in the month, or marked. Their states are read after the month, so that a
    /// claim based on its count can't miss one.
    async fn leave_out_counted(&mut self, claimed: &Claimed) -> Result<(), StoreError> {
        let states = self.quotas.deliveries.read_states(self.open.iter().map(|claim| claim.id).collect()).await?;
        let mut states = states.into_iter();
        self.open.retain(|claim| {
            let state = states.next().flatten().filter(|state| state.round == claim.round);
            let is_marked = state.as_ref().is_some_and(|state| state.counted);
            let is_counted = is_marked || claimed.contains(&round_of(claim));
            if is_counted {
                self.counted.push(round_of(claim));
            }
            state.is_some() && !is_counted
        });
        Ok(())
    }
}

/// Tests of webhooks of one key that are counted together.
struct TestClaims<'a> {
    quotas: &'a DeliveryQuotas,
    claim: TestClaim,
    pause: Pause,
}

impl LwtQuota for TestClaims<'_> {
    type Share = u64;
    type Rows = Claimed;

    fn share(&mut self, used: u64) -> (u64, u64) {
        let count = self.claim.count;
        let share = self.claim.limit.map_or(count, |limit| count.min(limit.saturating_sub(used)));
        (share, share)
    }

    fn begin(&self) -> Result<i32, StoreError> {
        // Like a claim of deliveries, it replaces what this process has claimed last.
        self.quotas.deliveries.leases.queues.own()?;
        Ok(self.quotas.cluster.next_claim())
    }

    async fn send(&self, claim: &LwtClaim<u64>) -> Result<bool, CqlError> {
        let cluster = &self.quotas.cluster;
        let (owner, month) = (self.claim.owner.0, month_column(self.claim.month));
        // It names no deliveries.
        let blob = Vec::<u8>::new();
        let values = (bigint(claim.then), claim.number, blob, owner, month, cluster.process, claim.before());
        cluster.cql.lwt(&cluster.statements.claim_deliveries, values).await
    }

    async fn read(&mut self) -> Result<(KnownMonth, Claimed), StoreError> {
        self.quotas.read_until_answered(self.claim.owner, self.claim.month, &mut self.pause).await
    }

    async fn was_refused(&mut self, before: KnownMonth, now: KnownMonth, _: Claimed) -> Result<(), StoreError> {
        refuse_late_claim(before, now)
    }
}

/// An error if a claim of an earlier call was applied late: the next call reads everything again and finds what it
/// counted.
fn refuse_late_claim(before: KnownMonth, now: KnownMonth) -> Result<(), StoreError> {
    if now.claim == before.claim {
        return Ok(());
    }
    Err(StoreError::Unavailable("a late claim was applied meanwhile".into()))
}

fn round_of(claim: &QuotaClaim) -> DeliveryRound {
    (claim.id, claim.round)
}

/// The first of `open` that their limits allow.
fn within_limits(used: u64, open: &[QuotaClaim]) -> Vec<DeliveryRound> {
    let mut count = used;
    let fits = |limit: MonthlyLimit, count: &mut u64| {
        let fits = limit.is_none_or(|limit| *count < limit);
        *count += u64::from(fits);
        fits
    };
    open.iter().filter(|claim| fits(claim.limit, &mut count)).map(round_of).collect()
}

//! Counts the links of requests that are done once in their month.
//!
//! The month says which such creation each process has counted last, and before the process counts another one, the
//! request's own row says that it is counted. So who reads the month and then the row knows whether it is counted, and a
//! claim that is based on the count that was read is refused if it was counted since.

use std::time::Duration;

use super::link_quota::{LinkQuota, LinkQuotas};
use super::once::{CqlOnce, OnceRow};
use crate::domain::quota::MonthlyLimit;
use crate::store::StoreError;
use crate::store::once::OnceTicket;
use crate::store::records::columns::{bigint, month as month_column, number};
use crate::store::records::once::{CountedOnce, counted_from_bytes, counted_to_bytes};

/// How long all creations of the month wait for the row of one request.
const ROW_PATIENCE: Duration = Duration::from_secs(2);

/// Count, and the creation with an `Idempotency-Key` that a process has counted last.
type OnceQuotaRow = (Option<i64>, Option<Vec<u8>>);

/// Links of a request that are to be counted.
#[derive(Clone, Copy)]
pub struct OnceCount<'a> {
    pub quota: &'a LinkQuota,
    pub links: u64,
    pub limit: MonthlyLimit,
    pub once: &'a CqlOnce,
    pub ticket: &'a OnceTicket,
}

/// What one try to count a request has come to.
enum CountStep {
    /// The month has counted it, which the request's row may not say yet.
    Claimed(CountedOnce),
    /// The request's row says it, or there is no room; `None`: another attempt has the request.
    Settled(Option<CountedOnce>),
    /// It was refused, or its outcome is unknown: the month shows it.
    Again,
    /// The request's row can't be read.
    RowOutOfReach,
}

impl LinkQuotas {
    /// Counts the links of a request that is done once; `None` if another attempt has the request.
    pub async fn count_once(&self, count: OnceCount<'_>) -> Result<Option<CountedOnce>, StoreError> {
        let OnceCount { quota, once, ticket, .. } = count;
        let _alone = quota.claiming_once.lock().await;
        // One that had the lock may have counted, and has not written that into its request's row if the store was closing: the next
        // claim would take the place of the only trace.
        self.cluster.check_open()?;
        // The count on which the claim with an unknown outcome is based.
        let mut sent_on = None;
        loop {
            match self.try_to_count(count, &mut sent_on).await? {
                CountStep::Claimed(counted) => {
                    once.put_counted(ticket, counted).await?;
                    return Ok(Some(counted));
                }
                CountStep::Settled(counted) => return Ok(counted),
                CountStep::Again => self.cluster.check_open()?,
                // Meanwhile other creations of the month go on.
                CountStep::RowOutOfReach => drop(self.cluster.until_closed(|| once.read(&ticket.id)).await?),
            }
        }
    }

    async fn try_to_count(&self, count: OnceCount<'_>, sent_on: &mut Option<u64>) -> Result<CountStep, StoreError> {
        let OnceCount { quota, links, limit, once, ticket } = count;
        let (cluster, claim) = (&self.cluster, ticket.seed.claim);
        // Else the month's count would change all the time between the reads and the claim.
        let _claiming = quota.claiming.lock().await;
        let month = (quota.owner.0, month_column(quota.month));
        let read = || cluster.cql.read::<OnceQuotaRow>(&cluster.statements.link_quota_once, month);
        let rows = cluster.until_closed(read).await?;
        let used = rows.first().map_or(0, |(used, _)| number(*used));
        quota.saw(used);
        for (_, counted) in rows {
            let counted = counted.map(|bytes| counted_from_bytes(&bytes)).transpose()?;
            if let Some(counted) = counted.filter(|counted| counted.claim == claim) {
                return Ok(CountStep::Claimed(counted));
            }
        }
        let Ok(Ok(row)) = tokio::time::timeout(ROW_PATIENCE, once.read(&ticket.id)).await else {
            return Ok(CountStep::RowOutOfReach);
        };
        let row = row.filter(|row| row.holder == Some(ticket.holder));
        if let Some(counted) = row.as_ref().and_then(OnceRow::counted) {
            return Ok(CountStep::Settled(Some(counted)));
        }
        // Not before a claim of ours can't be applied any more: the next one of this process could take its trace away
        // before the new holder sees it. To send it again does no harm: at most one on this count is applied.
        if row.is_none() && *sent_on != Some(used) {
            return Ok(CountStep::Settled(None));
        }
        let counted = limit.map_or(links, |limit| links.min(limit.saturating_sub(used)));
        let then = CountedOnce { claim, counted, used: used + counted };
        if counted == 0 {
            return Ok(CountStep::Settled(Some(then)));
        }
        let (owner, month) = month;
        let before = (used > 0).then(|| bigint(used));
        let number = cluster.next_claim();
        let values = (bigint(then.used), number, counted_to_bytes(then), owner, month, cluster.process, before);
        match cluster.cql.lwt(&cluster.statements.claim_links_once, values).await {
            Ok(true) => {
                quota.saw(then.used);
                Ok(CountStep::Claimed(then))
            }
            Err(error) if error.is_final() => Err(error.into()),
            Ok(false) => Ok(CountStep::Again),
            Err(_) => {
                *sent_on = Some(used);
                Ok(CountStep::Again)
            }
        }
    }
}

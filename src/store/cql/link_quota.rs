//! The monthly count of a key's links: increased by LWT, for all waiting creations of this process at once.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::cluster::Cluster;
use super::in_use::InUse;
use super::lwt_quota::{KnownMonth, LwtClaim, LwtQuota, raise_count};
use super::outcome::CqlError;
use crate::caller::CallerState;
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::locks::lock;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, month as month_column, number};

/// Idle months are dropped once more than this many are in memory.
const MAX_IDLE: usize = 10_000;

/// How long a claim waits for creations that are inserting their link.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Creations of one key at once: a key whose partition is unreachable does not use up the creations of all keys.
const MOST_UNDER_WAY: u64 = 256;

/// The months that creations are counted in.
pub struct LinkQuotas {
    pub(super) cluster: Arc<Cluster>,
    months: InUse<(KeyId, Month), LinkQuota, MAX_IDLE>,
}

/// One key's month, as this process knows it.
pub struct LinkQuota {
    pub(super) owner: KeyId,
    pub(super) month: Month,
    known: Mutex<KnownUse>,
    freed: Notify,
    /// Creations whose links are inserted and wait to be counted.
    waiting: Mutex<Vec<WaitingCreation>>,
    /// A creation that was inserting its link waits to be counted now, or has failed.
    inserted: Notify,
    /// Its holder counts for all that wait.
    pub(super) claiming: tokio::sync::Mutex<()>,
    /// Its holder counts a creation that is done once: until its own row says so, this process counts no other.
    pub(super) claiming_once: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct KnownUse {
    /// The count when this process last saw it. The count only grows.
    used: Option<u64>,
    /// Creations of this process that are under way.
    under_way: u64,
    /// Of these, single creations that are inserting their link.
    inserting: u64,
    /// How long the last claim took.
    claim_took: Duration,
}

struct WaitingCreation {
    /// How many links it has inserted.
    links: u64,
    limit: MonthlyLimit,
    caller: CallerState,
    counted: oneshot::Sender<CountedLinks>,
}

/// How the links of a creation were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedLinks {
    /// So many of them, the first ones: all, or as many as the limit allows. `used` are counted in the month then.
    First { counted: u64, used: u64 },
    /// Its caller got an error before they were counted.
    Abandoned,
}

/// A creation's place among those under way.
pub struct CreationPermit(Arc<LinkQuota>);

impl Drop for CreationPermit {
    fn drop(&mut self) {
        self.0.known().under_way -= 1;
        self.0.freed.notify_waiters();
    }
}

/// A creation that is inserting its link: a claim waits for it.
pub struct InsertingCreation(Arc<LinkQuota>);

impl Drop for InsertingCreation {
    fn drop(&mut self) {
        self.0.known().inserting -= 1;
        self.0.inserted.notify_one();
    }
}

impl LinkQuota {
    /// Notes a creation that is inserting its link.
    pub fn inserting(self: &Arc<Self>) -> InsertingCreation {
        self.known().inserting += 1;
        InsertingCreation(Arc::clone(self))
    }

    /// The count when this process last saw it.
    pub fn last_seen(&self) -> u64 {
        self.known().used.unwrap_or(0)
    }

    fn known(&self) -> MutexGuard<'_, KnownUse> {
        lock(&self.known)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingCreation>> {
        lock(&self.waiting)
    }

    /// Waits for the creations that are inserting their link, at most as long as the last claim took: a claim costs the cluster as much as
    /// the link itself, and one is enough for all of them.
    async fn wait_for_inserting(&self) {
        let longest = self.known().claim_took.min(LONGEST_WAIT);
        let all = async {
            while self.known().inserting > 0 {
                self.inserted.notified().await;
            }
        };
        // Those that are late are counted by the next claim.
        let _ = tokio::time::timeout(longest, all).await;
    }

    pub(super) fn saw(&self, used: u64) {
        let mut known = self.known();
        known.used = Some(known.used.map_or(used, |before| before.max(used)));
    }
}

impl LinkQuotas {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        Self { cluster: Arc::clone(cluster), months: InUse::default() }
    }

    /// A key's month. All creations of the month share it: two would overwrite each other's claims.
    pub fn of(&self, owner: KeyId, month: Month) -> Arc<LinkQuota> {
        let new = |_| LinkQuota {
            owner,
            month,
            known: Mutex::default(),
            freed: Notify::new(),
            waiting: Mutex::default(),
            inserted: Notify::new(),
            claiming: tokio::sync::Mutex::default(),
            claiming_once: tokio::sync::Mutex::default(),
        };
        self.months.of((owner, month), new)
    }

    /// Waits until the limit may allow one more creation, so that a creation that would be refused inserts no link.
    /// Returns the count if the limit is reached.
    pub async fn enter(
        &self,
        quota: &Arc<LinkQuota>,
        limit: MonthlyLimit,
    ) -> Result<Result<CreationPermit, u64>, StoreError> {
        loop {
            let freed = quota.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let knows_count = {
                let mut known = quota.known();
                if known.under_way >= MOST_UNDER_WAY {
                    return Err(too_many_under_way());
                }
                let fits = |used| limit.is_none_or(|limit| used + known.under_way < limit);
                match (known.used, limit) {
                    (None, Some(_)) => false,
                    (used, _) if fits(used.unwrap_or(0)) => {
                        known.under_way += 1;
                        return Ok(Ok(CreationPermit(Arc::clone(quota))));
                    }
                    (Some(used), Some(limit)) if used >= limit => return Ok(Err(used)),
                    _ => true,
                }
            };
            if knows_count {
                freed.await;
            } else {
                self.used_at_least(quota).await?;
            }
        }
    }

    /// Takes a place for a creation that an earlier attempt may have counted, so whatever room there is.
    pub fn acquire_again(quota: &Arc<LinkQuota>) -> Result<CreationPermit, StoreError> {
        let mut known = quota.known();
        if known.under_way >= MOST_UNDER_WAY {
            return Err(too_many_under_way());
        }
        known.under_way += 1;
        drop(known);
        Ok(CreationPermit(Arc::clone(quota)))
    }

    /// The count of a month, or what this process knows of it: it is no less than that.
    pub async fn used_at_least(&self, quota: &LinkQuota) -> Result<u64, StoreError> {
        let known = quota.known().used;
        if let Some(used) = known {
            return Ok(used);
        }
        let used = self.used(quota.owner, quota.month).await?;
        quota.saw(used);
        Ok(used)
    }

    pub async fn used(&self, owner: KeyId, month: Month) -> Result<u64, StoreError> {
        let values = (owner.0, month_column(month));
        let row = self.cluster.cql.read_one::<(Option<i64>,)>(&self.cluster.statements.links_used, values).await?;
        Ok(row.map_or(0, |(used,)| number(used)))
    }

    /// Counts a creation that has inserted so many links, and was noted as inserting if claims wait for it.
    pub async fn count(
        &self,
        quota: &LinkQuota,
        links: u64,
        limit: MonthlyLimit,
        caller: &CallerState,
        inserting: Option<InsertingCreation>,
    ) -> Result<CountedLinks, StoreError> {
        let (counted, mut answer) = oneshot::channel();
        let waiting = WaitingCreation { links, limit, caller: caller.clone(), counted };
        quota.waiting().push(waiting);
        drop(inserting);
        let _claiming = quota.claiming.lock().await;
        let not_counted = || StoreError::Unavailable("a link was not counted".into());
        match answer.try_recv() {
            Err(TryRecvError::Empty) => {}
            // A holder of the lock before has counted this one, or has failed to.
            done => return done.map_err(|_| not_counted()),
        }
        quota.wait_for_inserting().await;
        let waiting = std::mem::take(&mut *quota.waiting());
        let begun = Instant::now();
        let answers = self.claim(quota, &waiting).await?;
        if counted_in(&answers) > 0 {
            quota.known().claim_took = begun.elapsed();
        }
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            // A cancelled creation is counted too: its link exists.
            let _ = waiting.counted.send(answer);
        }
        answer.try_recv().map_err(|_| not_counted())
    }

    /// Adds as many creations as the limit allows to the month's count. Retries until the store closes.
    async fn claim(&self, quota: &LinkQuota, waiting: &[WaitingCreation]) -> Result<Vec<CountedLinks>, StoreError> {
        // If the count is unknown, the first claim is refused and the count is read.
        let mut known = KnownMonth { used: quota.known().used.unwrap_or(0), claim: None };
        let mut claims = LinkClaims { cluster: &self.cluster, quota, waiting, last: None };
        let answers = raise_count(&mut claims, &mut known).await?;
        quota.saw(known.used);
        Ok(answers)
    }
}

/// Creations that are counted together.
struct LinkClaims<'a> {
    cluster: &'a Cluster,
    quota: &'a LinkQuota,
    waiting: &'a [WaitingCreation],
    /// The answers of the last claim, and the count that it was based on.
    last: Option<(u64, Vec<CountedLinks>)>,
}

impl LwtQuota for LinkClaims<'_> {
    type Share = Vec<CountedLinks>;
    type Rows = ();

    fn share(&mut self, used: u64) -> (Vec<CountedLinks>, u64) {
        let answers = match self.last.take() {
            // A claim based on this count may have counted them already.
            Some((on, answers)) if on == used => answers,
            _ => share(used, self.waiting),
        };
        self.last = Some((used, answers.clone()));
        let count = counted_in(&answers);
        (answers, count)
    }

    fn begin(&self) -> Result<i32, StoreError> {
        Ok(self.cluster.next_claim())
    }

    async fn send(&self, claim: &LwtClaim<Vec<CountedLinks>>) -> Result<bool, CqlError> {
        let cluster = self.cluster;
        let (owner, month) = (self.quota.owner.0, month_column(self.quota.month));
        let values = (bigint(claim.then), claim.number, owner, month, cluster.process, claim.before());
        cluster.cql.lwt(&cluster.statements.claim_links, values).await
    }

    async fn read(&mut self) -> Result<(KnownMonth, ()), StoreError> {
        let cluster = self.cluster;
        let month = (self.quota.owner.0, month_column(self.quota.month));
        let read = || cluster.cql.read::<LinkQuotaRow>(&cluster.statements.link_quota, month);
        let rows = cluster.until_closed(read).await?;
        let used = rows.first().map_or(0, |(_, used, _)| number(*used));
        self.quota.saw(used);
        let own = rows.into_iter().find(|(process, ..)| *process == Some(cluster.process));
        Ok((KnownMonth { used, claim: own.and_then(|(.., claim)| claim) }, ()))
    }

    async fn was_refused(&mut self, _: KnownMonth, _: KnownMonth, (): ()) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Process, count, and number of its last claim.
type LinkQuotaRow = (Option<Uuid>, Option<i64>, Option<i32>);

fn too_many_under_way() -> StoreError {
    StoreError::Unavailable("too many creations of this key are under way".into())
}

/// How many links these answers count.
fn counted_in(answers: &[CountedLinks]) -> u64 {
    let counted = answers.iter().map(|answer| match answer {
        CountedLinks::First { counted, .. } => *counted,
        CountedLinks::Abandoned => 0,
    });
    counted.sum()
}

/// The answers to the waiting creations if `used` are counted.
fn share(used: u64, waiting: &[WaitingCreation]) -> Vec<CountedLinks> {
    let mut used = used;
    let answers = waiting.iter().map(|waiting| {
        if !waiting.caller.is_waiting() {
            return CountedLinks::Abandoned;
        }
        let counted = waiting.limit.map_or(waiting.links, |limit| waiting.links.min(limit.saturating_sub(used)));
        used += counted;
        CountedLinks::First { counted, used }
    });
    answers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::CallerGuard;

    #[test]
    fn creations_share_what_the_limit_allows_in_the_order_of_their_inserting() {
        let (_guard, waits) = CallerGuard::new();
        let (_, gave_up) = CallerGuard::new();
        let waiting = |links, limit, caller: &CallerState| {
            let (counted, _) = oneshot::channel();
            WaitingCreation { links, limit, caller: caller.clone(), counted }
        };
        let first = |counted, used| CountedLinks::First { counted, used };
        let all = [
            waiting(1, Some(10), &waits),
            waiting(5, Some(10), &waits),
            waiting(3, Some(10), &gave_up),
            waiting(5, Some(10), &waits),
            waiting(1, Some(10), &waits),
            waiting(2, None, &waits),
        ];
        let answers = share(3, &all);
        let expected = [first(1, 4), first(5, 9), CountedLinks::Abandoned, first(1, 10), first(0, 10), first(2, 12)];
        assert_eq!(answers, expected);
        assert_eq!(counted_in(&answers), 9);
        assert_eq!(share(12, &all[..1]), [first(0, 12)]);
    }
}

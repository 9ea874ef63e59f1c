//! The month's count of a key's links: moved on by LWT, for all creations at once that wait for it in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::links::Links;
use super::lwt_quota::{Claim, KnownMonth, LwtQuota, move_on};
use super::outcome::CqlError;
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyLimit;
use crate::store::StoreError;
use crate::store::records::columns::{bigint, month as month_column, number};

/// Idle months are forgotten once more than this many are known.
const MOST_IDLE: usize = 10_000;

/// Creations of one key that are under way at once: one whose partition is out of reach leaves room for the others.
const MOST_UNDER_WAY: u64 = 256;

/// The months that creations are counted in.
#[derive(Default)]
pub struct LinkQuotas(Mutex<HashMap<(KeyId, Month), Arc<LinkQuota>>>);

impl LinkQuotas {
    pub fn of(&self, owner: KeyId, month: Month) -> Arc<LinkQuota> {
        let mut quotas = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if quotas.len() > MOST_IDLE {
            // One that is in use is the only one of its month: two would overwrite each other's claims.
            quotas.retain(|_, quota| Arc::strong_count(quota) > 1);
        }
        Arc::clone(quotas.entry((owner, month)).or_insert_with(|| {
            Arc::new(LinkQuota {
                owner,
                month,
                room: Mutex::default(),
                freed: Notify::new(),
                waiting: Mutex::default(),
                claiming: tokio::sync::Mutex::new(()),
            })
        }))
    }
}

/// One key's month, as this process knows it.
pub struct LinkQuota {
    owner: KeyId,
    month: Month,
    room: Mutex<Room>,
    freed: Notify,
    /// Creations whose links are there and wait to be counted.
    waiting: Mutex<Vec<Waiting>>,
    /// Who holds it counts for all who wait.
    claiming: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Room {
    /// What was counted when this process last saw it. The count only grows.
    used: Option<u64>,
    /// Creations under way here.
    under_way: u64,
}

struct Waiting {
    limit: MonthlyLimit,
    is_awaited: Arc<AtomicBool>,
    counted: oneshot::Sender<Counted>,
}

/// What the month says of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It is the month's link of that number.
    As(u64),
    /// The limit was reached: so many are counted.
    Refused(u64),
    /// Its caller was told that it failed, before anything was counted.
    Abandoned,
}

/// A creation's place among those under way.
pub struct CreationPlace(Arc<LinkQuota>);

impl Drop for CreationPlace {
    fn drop(&mut self) {
        self.0.room().under_way -= 1;
        self.0.freed.notify_waiters();
    }
}

impl LinkQuota {
    fn room(&self) -> MutexGuard<'_, Room> {
        // Nothing panics while this lock is held.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, used: u64) {
        let mut room = self.room();
        room.used = Some(room.used.map_or(used, |known| known.max(used)));
    }
}

impl Links {
    /// Waits until there may be room under the limit for one more creation: those that would be refused make no link.
    /// Answers the count where there is none.
    pub(super) async fn enter(
        &self,
        quota: &Arc<LinkQuota>,
        limit: MonthlyLimit,
    ) -> Result<Result<CreationPlace, u64>, StoreError> {
        loop {
            let freed = quota.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let knows_count = {
                let mut room = quota.room();
                if room.under_way >= MOST_UNDER_WAY {
                    return Err(StoreError::Unavailable("too many creations of this key are under way".into()));
                }
                let fits = |used| limit.is_none_or(|limit| used + room.under_way < limit);
                match (room.used, limit) {
                    (None, Some(_)) => false,
                    (used, _) if fits(used.unwrap_or(0)) => {
                        room.under_way += 1;
                        return Ok(Ok(CreationPlace(Arc::clone(quota))));
                    }
                    (Some(used), Some(limit)) if used >= limit => return Ok(Err(used)),
                    _ => true,
                }
            };
            if knows_count {
                freed.await;
            } else {
                let used = self.links_used(quota.owner, quota.month).await?;
                quota.saw(used);
            }
        }
    }

    pub(super) async fn links_used(&self, owner: KeyId, month: Month) -> Result<u64, StoreError> {
        let values = (owner.0, month_column(month));
        let row = self.cluster.cql.read_one::<(Option<i64>,)>(&self.cluster.statements.links_used, values).await?;
        Ok(row.map_or(0, |(used,)| number(used)))
    }

    /// Counts a creation whose link is there.
    pub(super) async fn count_link(
        &self,
        quota: &LinkQuota,
        limit: MonthlyLimit,
        is_awaited: &Arc<AtomicBool>,
    ) -> Result<Counted, StoreError> {
        let (counted, mut told) = oneshot::channel();
        let waiting = Waiting { limit, is_awaited: Arc::clone(is_awaited), counted };
        quota.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
        let _claiming = quota.claiming.lock().await;
        // Whoever held the lock before may have counted this one.
        if let Ok(counted) = told.try_recv() {
            return Ok(counted);
        }
        let waiting = std::mem::take(&mut *quota.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let answers = self.claim_links(quota, &waiting).await?;
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            // One that is gone was counted all the same: its link is there.
            let _ = waiting.counted.send(answer);
        }
        told.try_recv().map_err(|_| StoreError::Unavailable("a link was not counted".into()))
    }

    /// Moves the month's count on by as many as fit, for certain: gives up only when the store closes.
    async fn claim_links(&self, quota: &LinkQuota, waiting: &[Waiting]) -> Result<Vec<Counted>, StoreError> {
        // Where it is not known yet, the first claim finds out.
        let mut known = KnownMonth { used: quota.room().used.unwrap_or(0), claim: None };
        let mut claiming = Claiming { links: self, quota, waiting, last: None };
        let answers = move_on(&mut claiming, &mut known).await?;
        quota.saw(known.used);
        Ok(answers)
    }
}

/// Creations that are counted together.
struct Claiming<'a> {
    links: &'a Links,
    quota: &'a LinkQuota,
    waiting: &'a [Waiting],
    /// What was to be answered on which count.
    last: Option<(u64, Vec<Counted>)>,
}

impl LwtQuota for Claiming<'_> {
    type Share = Vec<Counted>;
    type Rows = ();

    fn share(&mut self, used: u64) -> (Vec<Counted>, u64) {
        let answers = match self.last.take() {
            // A claim on this count may count them already.
            Some((on, answers)) if on == used => answers,
            _ => share(used, self.waiting),
        };
        self.last = Some((used, answers.clone()));
        let count = counted_in(&answers);
        (answers, count)
    }

    fn begin(&self) -> Result<i32, StoreError> {
        Ok(self.links.cluster.next_claim())
    }

    async fn send(&self, claim: &Claim<Vec<Counted>>) -> Result<bool, CqlError> {
        let cluster = &self.links.cluster;
        let (owner, month) = (self.quota.owner.0, month_column(self.quota.month));
        let values = (bigint(claim.then), claim.number, owner, month, cluster.process, claim.before());
        cluster.cql.lwt(&cluster.statements.claim_links, values).await
    }

    async fn read(&mut self) -> Result<(KnownMonth, ()), StoreError> {
        let cluster = &self.links.cluster;
        let month = (self.quota.owner.0, month_column(self.quota.month));
        let read = || cluster.cql.read::<QuotaRow>(&cluster.statements.link_quota, month);
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
type QuotaRow = (Option<Uuid>, Option<i64>, Option<i32>);

/// How many links these answers count.
fn counted_in(answers: &[Counted]) -> u64 {
    answers.iter().filter(|answer| matches!(answer, Counted::As(_))).count() as u64
}

/// What those who wait are told where `used` are counted.
fn share(used: u64, waiting: &[Waiting]) -> Vec<Counted> {
    let mut count = used;
    let answers = waiting.iter().map(|waiting| {
        if !waiting.is_awaited.load(Ordering::Acquire) {
            Counted::Abandoned
        } else if waiting.limit.is_none_or(|limit| count < limit) {
            count += 1;
            Counted::As(count)
        } else {
            Counted::Refused(count)
        }
    });
    answers.collect()
}

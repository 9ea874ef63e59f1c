//! A monthly count that is increased by LWT: the protocol of both quotas, of links and of deliveries.
//!
//! A month is a partition. Its count is shared, and each process has a row in it with the number of its last applied
//! claim. A claim increases the count that its process has seen, and is refused on any other. So of all claims on one
//! count at most one is ever applied, and the number in the process's own row shows which.
//!
//! The quota decides what a claim counts, and what happens to the rest.

use super::outcome::CqlError;
use crate::store::StoreError;
use crate::store::records::columns::bigint;

/// What a process knows of a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownMonth {
    pub used: u64,
    /// The last claim of this process that is known to be applied.
    pub claim: Option<i32>,
}

/// A claim to be sent.
pub struct LwtClaim<S> {
    /// A number that no claim of this process had before.
    pub number: i32,
    /// The count that it is based on, and the new count.
    pub used: u64,
    pub then: u64,
    pub share: S,
}

impl<S> LwtClaim<S> {
    /// The expected value of the column: a month in which nothing was counted has no row.
    pub fn before(&self) -> Option<i64> {
        (self.used > 0).then(|| bigint(self.used))
    }
}

/// A month of a quota, and what waits to be counted in it.
pub trait LwtQuota {
    /// What one claim counts.
    type Share: Clone + Send + Sync;
    /// What else is read from the rows of the month.
    type Rows: Send;

    /// What the limits allow if `used` are counted, and how many that are. If there are none, there is nothing to
    /// claim.
    fn share(&mut self, used: u64) -> (Self::Share, u64);

    /// The number of the next claim; an error if this process may begin none.
    fn begin(&self) -> Result<i32, StoreError>;

    /// Returns whether the claim was applied.
    fn send(&self, claim: &LwtClaim<Self::Share>) -> impl Future<Output = Result<bool, CqlError>> + Send;

    /// Reads the month as LWTs have settled it.
    fn read(&mut self) -> impl Future<Output = Result<(KnownMonth, Self::Rows), StoreError>> + Send;

    /// None of the claims has been applied so far. `before` is the month as it was known, `now` as it was read.
    fn was_refused(
        &mut self,
        before: KnownMonth,
        now: KnownMonth,
        rows: Self::Rows,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Increases a month's count by as many as the limits allow, and settles unknown outcomes. Returns what was counted.
pub async fn raise_count<Q: LwtQuota>(quota: &mut Q, known: &mut KnownMonth) -> Result<Q::Share, StoreError> {
    // Claims that may still be applied.
    let mut sent: Vec<(i32, Q::Share)> = Vec::new();
    loop {
        let (share, count) = quota.share(known.used);
        if count == 0 {
            return Ok(share);
        }
        let claim = LwtClaim { number: quota.begin()?, used: known.used, then: known.used + count, share };
        sent.push((claim.number, claim.share.clone()));
        match quota.send(&claim).await {
            Ok(true) => {
                *known = KnownMonth { used: claim.then, claim: Some(claim.number) };
                return Ok(claim.share);
            }
            Err(error) if error.is_final() => return Err(error.into()),
            // Refused because the count has changed, or unknown: the month shows which.
            Ok(false) | Err(_) => {}
        }
        let (there, rows) = quota.read().await?;
        if let Some(applied) = sent.iter().position(|(number, _)| there.claim == Some(*number)) {
            *known = there;
            return Ok(sent.swap_remove(applied).1);
        }
        if there.used != known.used {
            // The count never returns to an old value: none of them can be applied any more.
            sent.clear();
        }
        let before = *known;
        known.used = there.used;
        quota.was_refused(before, there, rows).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    /// What happens to a claim that is sent.
    #[derive(Clone, Copy)]
    enum ClaimOutcome {
        /// It is applied, and the answer is lost.
        Unanswered,
        Lost,
        /// It is applied only when the next one is sent.
        Late,
        /// Another process is first, and counts so many.
        Overtaken(u64),
    }

    #[derive(Default)]
    struct There {
        month: KnownMonth,
        outcomes: VecDeque<ClaimOutcome>,
        late: Option<KnownMonth>,
        claims: i32,
    }

    /// A month, and how many wait to be counted.
    struct QuotaMonth {
        there: Mutex<There>,
        wanted: u64,
        limit: u64,
    }

    impl LwtQuota for QuotaMonth {
        type Share = u64;
        type Rows = ();

        fn share(&mut self, used: u64) -> (u64, u64) {
            let fits = self.wanted.min(self.limit.saturating_sub(used));
            (fits, fits)
        }

        fn begin(&self) -> Result<i32, StoreError> {
            let mut there = self.there.lock().unwrap();
            there.claims += 1;
            Ok(there.claims)
        }

        async fn send(&self, claim: &LwtClaim<u64>) -> Result<bool, CqlError> {
            let mut there = self.there.lock().unwrap();
            if let Some(late) = there.late.take() {
                there.month = late;
            }
            let applied = KnownMonth { used: claim.then, claim: Some(claim.number) };
            let unknown = Err(CqlError::Unknown("no answer".into()));
            match there.outcomes.pop_front() {
                Some(ClaimOutcome::Lost) => return unknown,
                Some(ClaimOutcome::Late) => {
                    there.late = Some(applied);
                    return unknown;
                }
                Some(ClaimOutcome::Overtaken(by)) => there.month.used += by,
                Some(ClaimOutcome::Unanswered) => {
                    there.month = applied;
                    return unknown;
                }
                None => {}
            }
            let holds = there.month.used == claim.used;
            if holds {
                there.month = applied;
            }
            Ok(holds)
        }

        async fn read(&mut self) -> Result<(KnownMonth, ()), StoreError> {
            Ok((self.there.lock().unwrap().month, ()))
        }

        async fn was_refused(&mut self, _: KnownMonth, _: KnownMonth, (): ()) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// Three wait, with a limit of ten: how many were counted, and the count then.
    async fn raised_count(used: u64, outcomes: &[ClaimOutcome]) -> (u64, u64) {
        let known = KnownMonth { used, claim: None };
        let there = There { month: known, outcomes: outcomes.iter().copied().collect(), ..There::default() };
        let mut month = QuotaMonth { there: Mutex::new(there), wanted: 3, limit: 10 };
        let mut known = known;
        let share = raise_count(&mut month, &mut known).await.unwrap();
        let there = month.there.into_inner().unwrap().month;
        assert_eq!(known.used, there.used);
        (share, there.used)
    }

    #[tokio::test]
    async fn whatever_becomes_of_claims_each_is_counted_once() {
        assert_eq!(raised_count(0, &[]).await, (3, 3));
        assert_eq!(raised_count(0, &[ClaimOutcome::Unanswered]).await, (3, 3));
        assert_eq!(raised_count(0, &[ClaimOutcome::Lost, ClaimOutcome::Lost]).await, (3, 3));
        assert_eq!(raised_count(0, &[ClaimOutcome::Late]).await, (3, 3), "the first was applied, the second refused");
        assert_eq!(raised_count(0, &[ClaimOutcome::Late, ClaimOutcome::Lost]).await, (3, 3));
        assert_eq!(raised_count(0, &[ClaimOutcome::Overtaken(4), ClaimOutcome::Unanswered]).await, (3, 7));
    }

    #[tokio::test]
    async fn no_more_are_counted_than_fit() {
        assert_eq!(raised_count(8, &[]).await, (2, 10));
        assert_eq!(raised_count(5, &[ClaimOutcome::Overtaken(4)]).await, (1, 10));
        assert_eq!(raised_count(5, &[ClaimOutcome::Overtaken(5)]).await, (0, 10));
        assert_eq!(raised_count(10, &[]).await, (0, 10));
    }
}

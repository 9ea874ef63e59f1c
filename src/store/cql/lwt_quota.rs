//! A month's count, moved on by LWT: the one protocol of both quotas, of links and of deliveries.
//!
//! A month is a partition. Its count is one for all, and each process has a row in it with the number of its last claim that was
//! applied. A claim moves the count on from the one that its process has seen, and is refused on any other. So of all claims on
//! one count at most one is ever applied, and the number in the own row tells which.
//!
//! What a claim counts, and what becomes of what it does not, is for the quota to say.

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
    /// A number that this process has given to no claim before.
    pub number: i32,
    /// The count that it moves on, and the one that it makes of it.
    pub used: u64,
    pub then: u64,
    pub share: S,
}

impl<S> LwtClaim<S> {
    /// The column that a claim asks for: a month that nothing was counted in has no row.
    pub fn before(&self) -> Option<i64> {
        (self.used > 0).then(|| bigint(self.used))
    }
}

/// A quota's month, and those who wait to be counted in it.
pub trait LwtQuota {
    /// What one claim counts.
    type Share: Clone + Send + Sync;
    /// What the rows of the month say besides.
    type Rows: Send;

    /// What finds room where `used` are counted, and how many that are. With none there is nothing to claim.
    fn share(&mut self, used: u64) -> (Self::Share, u64);

    /// The number of the next claim; an error where this process may begin none.
    fn begin(&self) -> Result<i32, StoreError>;

    /// Answers whether the claim was applied.
    fn send(&self, claim: &LwtClaim<Self::Share>) -> impl Future<Output = Result<bool, CqlError>> + Send;

    /// Reads the month as LWTs have settled it.
    fn read(&mut self) -> impl Future<Output = Result<(KnownMonth, Self::Rows), StoreError>> + Send;

    /// None of the claims was applied so far. `before` is what was known, `now` what is there.
    fn was_refused(
        &mut self,
        before: KnownMonth,
        now: KnownMonth,
        rows: Self::Rows,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Moves a month's count on by as many as fit, for certain. Answers what is counted by that.
pub async fn move_on<Q: LwtQuota>(quota: &mut Q, known: &mut KnownMonth) -> Result<Q::Share, StoreError> {
    // Those that may be applied yet.
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
            Err(error @ CqlError::Unusable(_)) => return Err(error.into()),
            // Refused since the count has moved, or not known: what is there says which.
            Ok(false) | Err(_) => {}
        }
        let (there, rows) = quota.read().await?;
        if let Some(applied) = sent.iter().position(|(number, _)| there.claim == Some(*number)) {
            *known = there;
            return Ok(sent.swap_remove(applied).1);
        }
        if there.used != known.used {
            // The count never comes back: none of them can be applied any more.
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

    /// What becomes of a claim that is sent.
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
        fates: VecDeque<ClaimOutcome>,
        late: Option<KnownMonth>,
        claims: i32,
    }

    /// A month in which so many wait to be counted.
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
            match there.fates.pop_front() {
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

    /// Three wait where at most ten are counted: how many were, and what is there then.
    async fn moved_on(used: u64, fates: &[ClaimOutcome]) -> (u64, u64) {
        let known = KnownMonth { used, claim: None };
        let there = There { month: known, fates: fates.iter().copied().collect(), ..There::default() };
        let mut month = QuotaMonth { there: Mutex::new(there), wanted: 3, limit: 10 };
        let mut known = known;
        let share = move_on(&mut month, &mut known).await.unwrap();
        let there = month.there.into_inner().unwrap().month;
        assert_eq!(known.used, there.used);
        (share, there.used)
    }

    #[tokio::test]
    async fn whatever_becomes_of_claims_each_is_counted_once() {
        assert_eq!(moved_on(0, &[]).await, (3, 3));
        assert_eq!(moved_on(0, &[ClaimOutcome::Unanswered]).await, (3, 3));
        assert_eq!(moved_on(0, &[ClaimOutcome::Lost, ClaimOutcome::Lost]).await, (3, 3));
        assert_eq!(moved_on(0, &[ClaimOutcome::Late]).await, (3, 3), "the first was applied, the second refused");
        assert_eq!(moved_on(0, &[ClaimOutcome::Late, ClaimOutcome::Lost]).await, (3, 3));
        assert_eq!(moved_on(0, &[ClaimOutcome::Overtaken(4), ClaimOutcome::Unanswered]).await, (3, 7));
    }

    #[tokio::test]
    async fn no_more_are_counted_than_fit() {
        assert_eq!(moved_on(8, &[]).await, (2, 10));
        assert_eq!(moved_on(5, &[ClaimOutcome::Overtaken(4)]).await, (1, 10));
        assert_eq!(moved_on(5, &[ClaimOutcome::Overtaken(5)]).await, (0, 10));
        assert_eq!(moved_on(10, &[]).await, (0, 10));
    }
}

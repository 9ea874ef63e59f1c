//! The use of a key's monthly quotas.

use std::sync::Arc;

use crate::clock::Clock;
use crate::domain::calendar::Month;
use crate::domain::key::ApiKey;
use crate::domain::plan::{Plan, Plans};
use crate::domain::quota::MonthlyCounts;
use crate::store::{CountStore, StoreError};

/// A key's counts of the current month, and its quotas.
#[derive(Clone, Copy, Debug)]
pub struct MonthlyUsage {
    pub month: Month,
    pub counts: MonthlyCounts,
    pub plan: Plan,
}

/// Reads usage.
pub struct UsageService {
    store: Arc<dyn CountStore>,
    plans: Plans,
    clock: Clock,
}

impl UsageService {
    pub fn new(store: Arc<dyn CountStore>, plans: Plans, clock: Clock) -> Self {
        Self { store, plans, clock }
    }

    pub async fn of(&self, caller: &ApiKey) -> Result<MonthlyUsage, StoreError> {
        let month = self.clock.now().month();
        let counts = self.store.monthly_counts(caller.id, month).await?;
        Ok(MonthlyUsage { month, counts, plan: *self.plans.of(caller) })
    }
}

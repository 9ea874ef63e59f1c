//! What keys use in a month.

use fjall::Keyspace;

use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use crate::domain::calendar::Month;
use crate::domain::key::KeyId;
use crate::domain::quota::MonthlyCounts;
use crate::store::StoreError;
use crate::store::records::{counters, row_keys};
use crate::store::transfer::Metric;

const USAGE: &str = "usage";

/// Counts by key, month and metric.
#[derive(Clone)]
pub struct UsageTable {
    usage: Keyspace,
}

impl UsageTable {
    pub fn new(engine: &Engine) -> Self {
        Self { usage: engine.keyspaces.usage.clone() }
    }

    pub fn used(&self, from: &impl RowReader, key: KeyId, month: Month, metric: Metric) -> Result<u64, StoreError> {
        let row = from.row(&self.usage, row_keys::usage(key, month, metric))?;
        counters::decode::<1>(USAGE, row.as_deref()).map(|[count]| count)
    }

    pub fn set(
        &self,
        transaction: &mut Transaction<'_>,
        key: KeyId,
        month: Month,
        metric: Metric,
        count: u64,
    ) -> Result<(), StoreError> {
        transaction.insert(&self.usage, row_keys::usage(key, month, metric), counters::encode([count]))
    }

    pub fn monthly_counts(&self, from: &impl RowReader, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
        Ok(MonthlyCounts {
            links_created: self.used(from, key, month, Metric::LinksCreated)?,
            hits_served: self.used(from, key, month, Metric::HitsServed)?,
            webhook_deliveries: self.used(from, key, month, Metric::WebhookDeliveries)?,
        })
    }
}

//! A store that fails on demand, for tests of what the service does without its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::{CreateLinkError, DeliveryQuery, DueDelivery, QuotaClaim, Settlement, Store, StoreError, UpdateKeyError};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, LinkHits, NodeId, Position};
use crate::domain::key::{ApiKey, KeyId, SecretHash};
use crate::domain::link::{Link, ShortId};
use crate::domain::quota::{MonthlyCounts, MonthlyLimit};
use crate::domain::webhook::{DeliveryId, DeliveryState, UrlSummary};

/// Switches a [`FaultyStore`] off and on.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch {
    out_of_reach: Arc<AtomicBool>,
    loses_answers: Arc<AtomicBool>,
}

impl FaultSwitch {
    /// While set, nothing reaches the store behind.
    pub fn out_of_reach(&self, is: bool) {
        self.out_of_reach.store(is, Ordering::SeqCst);
    }

    /// While set, hit batches and settlements are done, but their answers are lost.
    pub fn loses_answers(&self, does: bool) {
        self.loses_answers.store(does, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), StoreError> {
        fail_if(&self.out_of_reach)
    }

    fn answer<R>(&self, done: Result<R, StoreError>) -> Result<R, StoreError> {
        fail_if(&self.loses_answers)?;
        done
    }
}

fn fail_if(switch: &AtomicBool) -> Result<(), StoreError> {
    if switch.load(Ordering::SeqCst) { Err(StoreError::Unavailable("switched off by a test".into())) } else { Ok(()) }
}

/// Passes everything to another store, as long as it is switched on.
pub struct FaultyStore {
    behind: Arc<dyn Store>,
    switch: FaultSwitch,
}

impl FaultyStore {
    pub fn new(behind: Arc<dyn Store>, switch: FaultSwitch) -> Self {
        Self { behind, switch }
    }
}

/// One method: checks the switch, passes the call on.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for FaultyStore {
            async fn close(&self) {
                self.behind.close().await;
            }

            async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<(), StoreError> {
                self.switch.check()?;
                self.switch.answer(self.behind.apply_hits(batch).await)
            }

            async fn settle_deliveries(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
                self.switch.check()?;
                self.switch.answer(self.behind.settle_deliveries(settlements).await)
            }

            $(async fn $name(&self, $($argument: $type),*) -> $answer {
                self.switch.check()?;
                self.behind.$name($($argument),*).await
            })*
        }
    };
}

pass_on! {
    ready() -> Result<(), StoreError>;
    put_if_absent(name: &'static str, value: Vec<u8>) -> Result<Vec<u8>, StoreError>;
    create_link(link: Link, limit: MonthlyLimit) -> Result<u64, CreateLinkError>;
    link(id: ShortId) -> Result<Option<Link>, StoreError>;
    create_key(key: ApiKey) -> Result<(), StoreError>;
    update_key(key: ApiKey) -> Result<(), UpdateKeyError>;
    key(id: KeyId) -> Result<Option<ApiKey>, StoreError>;
    key_by_secret(hash: SecretHash) -> Result<Option<ApiKey>, StoreError>;
    keys_seen_by(viewer: KeyId, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKey>, StoreError>;
    note_key_use(uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;
    last_uses(keys: Vec<KeyId>) -> Result<Vec<Option<Timestamp>>, StoreError>;
    hit_cursor(writer: NodeId) -> Result<Position, StoreError>;
    link_hits(id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError>;
    monthly_counts(key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError>;
    due_deliveries(now: Timestamp, after: Option<DueDelivery>, limit: usize) -> Result<Vec<DueDelivery>, StoreError>;
    delivery_states(ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError>;
    claim_delivery_quota(claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError>;
    delivery_summaries(link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError>;
    deliveries(query: DeliveryQuery) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError>;
    drop_deliveries(before: Day) -> Result<bool, StoreError>;
}

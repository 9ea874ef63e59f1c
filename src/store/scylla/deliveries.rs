//! Placeholder until the queue's part is merged.
use super::Tables;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::{DeliveryId, DeliveryState, NewDelivery, UrlSummary};
use crate::domain::window::WindowLog;
use crate::store::{AdoptionHook, DeliveryQuery, DueDelivery, QuotaClaim, Settlement, StoreError};

#[allow(clippy::unused_async, clippy::unused_self, clippy::unimplemented, unused_variables)]
impl Tables {
    pub(super) async fn enqueue(&self, deliveries: &[NewDelivery], is_replay: bool) -> Result<(), StoreError> {
        Ok(())
    }
    pub(super) async fn deliveries_used(&self, owner: KeyId, month: Month) -> Result<u64, StoreError> {
        Ok(0)
    }
    pub(super) async fn read_due(
        &self,
        now: Timestamp,
        after: Option<DueDelivery>,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        Ok(Vec::new())
    }
    pub(super) async fn count_pending(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
    pub(super) async fn read_states(&self, ids: Vec<DeliveryId>) -> Result<Vec<Option<DeliveryState>>, StoreError> {
        unimplemented!()
    }
    pub(super) async fn claim_deliveries(&self, claims: Vec<QuotaClaim>) -> Result<Vec<bool>, StoreError> {
        unimplemented!()
    }
    pub(super) async fn settle(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        unimplemented!()
    }
    pub(super) async fn read_summaries(&self, link: ShortId, since: Day) -> Result<Vec<(u8, UrlSummary)>, StoreError> {
        unimplemented!()
    }
    pub(super) async fn list_deliveries(
        &self,
        query: DeliveryQuery,
    ) -> Result<Vec<(DeliveryId, DeliveryState)>, StoreError> {
        unimplemented!()
    }
    pub(super) async fn drop_deliveries_before(&self, before: Day) -> Result<bool, StoreError> {
        Ok(false)
    }
    pub(super) fn on_adoption(&self, tell: AdoptionHook) {}
    pub(super) async fn exchange_windows(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        Ok(Vec::new())
    }
}

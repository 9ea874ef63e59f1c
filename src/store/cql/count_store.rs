//! The counts, as users of the store ask for them.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join3;

use super::ScyllaStore;
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{HitBatch, HitCursor, HitSubject, LinkHits, NodeId};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::quota::MonthlyCounts;
use crate::domain::series::{SeriesAnswer, SeriesRange};
use crate::domain::tally::BotFilter;
use crate::store::{CountStore, StoreError};

#[async_trait]
impl CountStore for ScyllaStore {
    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        self.open_tables()?.hits.known_cursor(writer).await
    }

    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<Option<Timestamp>, StoreError> {
        let earliest = batch.first_due();
        self.run_to_completion(|tables| async move { tables.hits.count_batch(&batch).await }).await.map(|()| earliest)
    }

    async fn link_hits(&self, id: ShortId, labels: Option<BotFilter>) -> Result<LinkHits, StoreError> {
        self.open_tables()?.hits.read_link_hits(id, labels).await
    }

    async fn series(&self, of: HitSubject, range: SeriesRange, bots: BotFilter) -> Result<SeriesAnswer, StoreError> {
        self.open_tables()?.hits.read_series(of, &range, bots).await
    }

    async fn breakdown(
        &self,
        of: HitSubject,
        dimension: Dimension,
        range: BreakdownRange,
    ) -> Result<Breakdown, StoreError> {
        self.open_tables()?.hits.read_breakdown(of, dimension, range).await
    }

    async fn drop_sheets(&self, _before: Day) -> Result<bool, StoreError> {
        // They expire.
        Ok(false)
    }

    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
        let tables = self.open_tables()?;
        let (links, hits) = (tables.links.quotas.used(key, month), tables.hits.hits_served(key, month));
        let (links_created, hits_served, webhook_deliveries) =
            try_join3(links, hits, tables.delivery_quotas.deliveries_used(key, month)).await?;
        Ok(MonthlyCounts { links_created, hits_served, webhook_deliveries })
    }
}

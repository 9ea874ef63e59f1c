//! Counts of the embedded store: hits are written in one transaction a batch, and read from one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use fjall::Snapshot;

use super::EmbeddedStore;
use super::analytics::CountReader;
use super::tables::EmbeddedTables;
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
impl CountStore for EmbeddedStore {
    async fn hit_cursor(&self, writer: NodeId) -> Result<HitCursor, StoreError> {
        // A batch is counted in one transaction: none is begun and not counted.
        self.read(move |tables, snapshot| tables.hits.cursor(snapshot, writer)).await.map(HitCursor::from)
    }

    async fn apply_hits(&self, batch: Arc<HitBatch>) -> Result<Option<Timestamp>, StoreError> {
        self.put(move |tables, transaction| tables.hits.apply(transaction, &batch)).await
    }

    async fn link_hits(&self, id: ShortId, labels: Option<BotFilter>) -> Result<LinkHits, StoreError> {
        self.read(move |tables, snapshot| CountReader::link_hits(&tables.counts, snapshot, id, labels)).await
    }

    async fn series(&self, of: HitSubject, range: SeriesRange, bots: BotFilter) -> Result<SeriesAnswer, StoreError> {
        self.read(move |tables, snapshot| CountReader { table: &tables.counts, snapshot, of }.series(&range, bots))
            .await
    }

    async fn breakdown(
        &self,
        of: HitSubject,
        dimension: Dimension,
        range: BreakdownRange,
    ) -> Result<Breakdown, StoreError> {
        let read = move |tables: &EmbeddedTables, snapshot: &Snapshot| {
            CountReader { table: &tables.counts, snapshot, of }.breakdown(dimension, range)
        };
        self.read(read).await
    }

    async fn drop_sheets(&self, before: Day) -> Result<bool, StoreError> {
        self.put(move |tables, transaction| tables.counts.sheets.remove(transaction, before)).await
    }

    async fn monthly_counts(&self, key: KeyId, month: Month) -> Result<MonthlyCounts, StoreError> {
        self.read(move |tables, snapshot| tables.usage.monthly_counts(snapshot, key, month)).await
    }
}

//! Batches of hits. One journal writes to an embedded store, so each counter is in one row, and the journal's cursor
//! moves in the same transaction: a batch is counted completely and once, or not at all.

use fjall::Keyspace;

use super::counts::CountTable;
use super::deliveries::DeliveryTable;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use super::usage::UsageTable;
use crate::domain::hit::{DayCount, HitBatch, LabelCount, NodeId, Position};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::{corrupt, counters, row_keys};
use crate::store::transfer::Metric;
use crate::threads::yield_periodically;

const CURSOR: &str = "journal cursor";

/// The journals' cursors, and the tables that a batch of hits changes.
pub struct HitTable {
    meta: Keyspace,
    counts: CountTable,
    usage: UsageTable,
    deliveries: DeliveryTable,
}

impl HitTable {
    pub fn new(engine: &Engine, counts: &CountTable, usage: &UsageTable, deliveries: &DeliveryTable) -> Self {
        Self {
            meta: engine.keyspaces.meta.clone(),
            counts: counts.clone(),
            usage: usage.clone(),
            deliveries: deliveries.clone(),
        }
    }

    pub fn cursor(&self, from: &impl RowReader, writer: NodeId) -> Result<Position, StoreError> {
        Self::read_cursor(from.row(&self.meta, row_keys::cursor(writer))?.as_deref())
    }

    pub fn set_cursor(
        &self,
        transaction: &mut Transaction<'_>,
        writer: NodeId,
        position: Position,
    ) -> Result<(), StoreError> {
        transaction.insert(&self.meta, row_keys::cursor(writer), counters::encode([position.0]))
    }

    /// Reads the row of a cursor.
    pub fn read_cursor(row: Option<&[u8]>) -> Result<Position, StoreError> {
        counters::decode::<1>(CURSOR, row).map(|[position]| Position(position))
    }

    pub fn apply(&self, transaction: &mut Transaction<'_>, batch: &HitBatch) -> Result<(), StoreError> {
        let cursor = self.cursor(transaction, batch.writer)?;
        if cursor >= batch.upto {
            return Ok(());
        }
        if cursor != batch.from {
            return Err(corrupt(CURSOR, &format_args!("a batch from {} at {}", batch.from.0, cursor.0)));
        }
        let mut counter = self.counts.count_batch(transaction);
        for (link, days, labels) in by_link(&batch.days, &batch.labels) {
            yield_periodically();
            counter.add(link, days, labels)?;
        }
        for row in &batch.served {
            let used = self.usage.used(transaction, row.key, row.month, Metric::HitsServed)?;
            self.usage.set(transaction, row.key, row.month, Metric::HitsServed, used + row.count)?;
        }
        self.deliveries.enqueue(transaction, &batch.deliveries)?;
        self.set_cursor(transaction, batch.writer, batch.upto)
    }
}

/// The rows of each link, which are adjacent in both lists.
pub(super) fn by_link<'a>(
    mut days: &'a [DayCount],
    mut labels: &'a [LabelCount],
) -> impl Iterator<Item = (ShortId, &'a [DayCount], &'a [LabelCount])> {
    std::iter::from_fn(move || {
        let first = [days.first().map(|row| row.link), labels.first().map(|row| row.link)];
        let link = first.into_iter().flatten().min()?;
        let of_link = days.iter().take_while(|row| row.link == link).count();
        let (its_days, other_days) = days.split_at(of_link);
        let of_link = labels.iter().take_while(|row| row.link == link).count();
        let (its_labels, other_labels) = labels.split_at(of_link);
        (days, labels) = (other_days, other_labels);
        Some((link, its_days, its_labels))
    })
}

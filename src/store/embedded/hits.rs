//! Batches of hits. One journal writes to an embedded store, so each counter is in one row, and the journal's cursor
//! moves in the same transaction: a batch is counted completely and once, or not at all.

use fjall::Keyspace;

use super::counts::CountTable;
use super::deliveries::DeliveryTable;
use super::engine::Engine;
use super::transaction::{RowReader, Transaction};
use super::usage::UsageTable;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitBatch, NodeId, Position};
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

    /// Returns when the first of the deliveries in the queue is due.
    pub fn apply(&self, transaction: &mut Transaction<'_>, batch: &HitBatch) -> Result<Option<Timestamp>, StoreError> {
        let cursor = self.cursor(transaction, batch.writer)?;
        if cursor >= batch.upto {
            return Ok(batch.first_due());
        }
        if cursor != batch.from {
            return Err(corrupt(CURSOR, &format_args!("a batch from {} at {}", batch.from.0, cursor.0)));
        }
        let mut counter = self.counts.count_batch(transaction);
        for days in batch.days.chunk_by(|a, b| a.of == b.of) {
            yield_periodically();
            counter.add(days[0].of, days)?;
        }
        for row in &batch.served {
            let used = self.usage.used(transaction, row.key, row.month, Metric::HitsServed)?;
            self.usage.set(transaction, row.key, row.month, Metric::HitsServed, used + row.count)?;
        }
        let are_queued = self.deliveries.add(transaction, &batch.deliveries)?;
        self.set_cursor(transaction, batch.writer, batch.upto)?;
        Ok(batch.first_due().filter(|_| are_queued))
    }
}

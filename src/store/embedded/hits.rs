//! Hit counters. One journal writes to an embedded store, so each counter is in one row, and the journal's cursor moves in
//! the same transaction: a batch is counted wholly and once, or not at all.

use super::counts::Counting;
use super::engine::Engine;
use super::transaction::{Rows, Transaction};
use super::{counts, deliveries, links};
use crate::domain::hit::{DayCount, HitBatch, LabelCount, LinkHits, NodeId, Position};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::{corrupt, counters, row_keys};
use crate::store::transfer::Metric;
use crate::threads::give_way;

const CURSOR: &str = "journal cursor";

pub fn read_cursor(engine: &Engine, from: &impl Rows, writer: NodeId) -> Result<Position, StoreError> {
    let row = from.row(&engine.tables.meta, row_keys::cursor(writer))?;
    counters::decode::<1>(CURSOR, row.as_deref()).map(|[position]| Position(position))
}

pub fn cursor(engine: &Engine, writer: NodeId) -> Result<Position, StoreError> {
    read_cursor(engine, &engine.database.snapshot(), writer)
}

pub fn apply(engine: &Engine, transaction: &mut Transaction<'_>, batch: &HitBatch) -> Result<(), StoreError> {
    let cursor = read_cursor(engine, transaction, batch.writer)?;
    if cursor >= batch.upto {
        return Ok(());
    }
    if cursor != batch.from {
        return Err(corrupt(CURSOR, &format_args!("a batch from {} at {}", batch.from.0, cursor.0)));
    }
    let mut counting = Counting::of_batch(engine, transaction);
    for (link, days, labels) in by_link(&batch.days, &batch.labels) {
        give_way();
        counting.add(link, days, labels)?;
    }
    for row in &batch.served {
        let used = links::used(engine, transaction, row.key, row.month, Metric::HitsServed)?;
        links::set_used(engine, transaction, row.key, row.month, Metric::HitsServed, used + row.count)?;
    }
    deliveries::enqueue(engine, transaction, &batch.deliveries)?;
    transaction.insert(&engine.tables.meta, row_keys::cursor(batch.writer), counters::encode([batch.upto.0]))
}

/// The rows of each link, which stand together in both lists.
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

pub fn of_link(engine: &Engine, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
    counts::of_link(engine, &engine.database.snapshot(), id, with_labels)
}

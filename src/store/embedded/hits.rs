//! Hit counters. One journal writes to an embedded store, so each counter is one row, and the journal's cursor moves in
//! the same transaction: a batch is counted wholly and once, or not at all.

use fjall::Readable;

use super::engine::{Engine, engine_error};
use super::rows::{Metric, corrupt, counters, counters_row, day_key};
use super::transaction::Transaction;
use super::{deliveries, labels, links};
use crate::domain::calendar::Day;
use crate::domain::hit::{Dimension, HitBatch, LinkHits, NodeId, Position};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::threads::give_way;

const DAYS: &str = "days";
const CURSOR: &str = "journal cursor";

pub fn cursor_key(writer: NodeId) -> Vec<u8> {
    [b"c", writer.0.as_bytes().as_slice()].concat()
}

pub fn read_cursor(engine: &Engine, from: &impl Readable, writer: NodeId) -> Result<Position, StoreError> {
    let row = from.get(&engine.meta, cursor_key(writer)).map_err(|e| engine_error(&e))?;
    counters::<1>(CURSOR, row).map(|[position]| Position(position))
}

pub fn cursor(engine: &Engine, writer: NodeId) -> Result<Position, StoreError> {
    read_cursor(engine, &engine.database.read_tx(), writer)
}

pub fn apply(engine: &Engine, transaction: &mut Transaction<'_>, batch: &HitBatch) -> Result<(), StoreError> {
    let cursor = read_cursor(engine, &**transaction, batch.writer)?;
    if cursor >= batch.upto {
        return Ok(());
    }
    if cursor != batch.from {
        return Err(corrupt(CURSOR, &format_args!("a batch from {} at {}", batch.from.0, cursor.0)));
    }
    for row in &batch.days {
        give_way();
        let key = day_key(row.link, row.day);
        let mut counts = counters::<3>(DAYS, transaction.get(&engine.days, &key).map_err(|e| engine_error(&e))?)?;
        for (count, added) in counts.iter_mut().zip(row.devices) {
            *count += added;
        }
        transaction.insert(&engine.days, key, counters_row(counts))?;
    }
    labels::add(engine, transaction, &batch.labels)?;
    for row in &batch.served {
        let used = links::used(engine, &**transaction, row.key, row.month, Metric::HitsServed)?;
        links::set_used(engine, transaction, row.key, row.month, Metric::HitsServed, used + row.count)?;
    }
    deliveries::enqueue(engine, transaction, &batch.deliveries)?;
    transaction.insert(&engine.meta, cursor_key(batch.writer), counters_row([batch.upto.0]))
}

pub fn of_link(engine: &Engine, id: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
    // One snapshot, so that days and labels are of the same moment.
    let snapshot = engine.database.read_tx();
    let mut days = Vec::new();
    for row in snapshot.prefix(&engine.days, id.0) {
        let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
        let day = key.get(ShortId::LENGTH..).and_then(|day| day.try_into().ok());
        let day = Day(u32::from_be_bytes(day.ok_or_else(|| corrupt(DAYS, &"not a day"))?));
        days.push((day, counters::<3>(DAYS, Some(value))?));
    }
    let mut labels = Vec::new();
    if with_labels {
        for dimension in Dimension::ALL {
            labels.push((dimension, labels::shown(engine, &snapshot, id, dimension)?));
        }
    }
    Ok(LinkHits { days, labels })
}

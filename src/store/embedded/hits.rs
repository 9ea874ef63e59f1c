//! Hit counters. One journal writes to an embedded store, so each counter is one row, and the journal's cursor moves in
//! the same transaction: a batch is counted wholly and once, or not at all.

use std::collections::HashMap;

use fjall::{Guard, Readable};

use super::deliveries;
use super::engine::{Engine, engine_error};
use super::links;
use super::rows::{LABEL_PREFIX, Metric, corrupt, counters, counters_row, day_key, label_list_key};
use super::transaction::Transaction;
use crate::domain::calendar::Day;
use crate::domain::hit::{Dimension, HitBatch, LabelCount, LinkHits, MAX_LABELS, NodeId, OTHER_LABEL, Position};
use crate::domain::link::ShortId;
use crate::store::StoreError;

const DAYS: &str = "days";
const LABELS: &str = "labels";
const CURSOR: &str = "journal cursor";

/// Hosts have at most 253 bytes; the names of places come from a file of the operator's and may have any length. A longer
/// one counts as [`OTHER_LABEL`] instead of standing in the way of the whole batch for ever.
const MAX_LABEL_BYTES: usize = 1_024;

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
        let key = day_key(row.link, row.day);
        let mut counts = counters::<3>(DAYS, transaction.get(&engine.days, &key).map_err(|e| engine_error(&e))?)?;
        for (count, added) in counts.iter_mut().zip(row.devices) {
            *count += added;
        }
        transaction.insert(&engine.days, key, counters_row(counts))?;
    }
    for row in &batch.labels {
        add_label(engine, transaction, row)?;
    }
    for row in &batch.served {
        let used = links::used(engine, &**transaction, row.key, row.month, Metric::HitsServed)?;
        links::set_used(engine, transaction, row.key, row.month, Metric::HitsServed, used + row.count)?;
    }
    deliveries::enqueue(engine, transaction, &batch.deliveries)?;
    transaction.insert(&engine.meta, cursor_key(batch.writer), counters_row([batch.upto.0]))
}

fn add_label(engine: &Engine, transaction: &mut Transaction<'_>, row: &LabelCount) -> Result<(), StoreError> {
    let list = label_list_key(row.link, row.dimension, row.month);
    let key_of = |label: &str| [list.as_slice(), label.as_bytes()].concat();
    let mut key = key_of(&row.label);
    // The bare list key is the list's size and no label.
    let is_label = (1..=MAX_LABEL_BYTES).contains(&row.label.len());
    let mut known = None;
    if is_label {
        known = transaction.get(&engine.labels, &key).map_err(|e| engine_error(&e))?;
    }
    if known.is_none() {
        let [size] = counters::<1>(LABELS, transaction.get(&engine.labels, &list).map_err(|e| engine_error(&e))?)?;
        if size < MAX_LABELS && is_label {
            transaction.insert(&engine.labels, list.as_slice(), counters_row([size + 1]))?;
        } else {
            key = key_of(OTHER_LABEL);
            known = transaction.get(&engine.labels, &key).map_err(|e| engine_error(&e))?;
        }
    }
    let [count] = counters::<1>(LABELS, known)?;
    transaction.insert(&engine.labels, key, counters_row([count + row.count]))
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
            labels.push((dimension, labels_of(engine, &snapshot, id, dimension)?));
        }
    }
    Ok(LinkHits { days, labels })
}

fn labels_of(
    engine: &Engine,
    from: &impl Readable,
    id: ShortId,
    dimension: Dimension,
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for row in from.prefix(&engine.labels, [id.0.as_slice(), &[dimension as u8]].concat()) {
        let (key, value) = Guard::into_inner(row).map_err(|e| engine_error(&e))?;
        // The bare list key holds the list's size.
        let Some(label) = key.get(LABEL_PREFIX..).filter(|label| !label.is_empty()) else { continue };
        let label = std::str::from_utf8(label).map_err(|error| corrupt(LABELS, &error))?;
        let [count] = counters::<1>(LABELS, Some(value))?;
        match sums.get_mut(label) {
            Some(sum) => *sum += count,
            None => drop(sums.insert(label.to_owned(), count)),
        }
    }
    Ok(sums.into_iter().collect())
}

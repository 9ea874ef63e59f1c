//! Taking all that is kept out of the store, and filling an empty one.

use std::fmt::Write;

use async_trait::async_trait;
use fjall::{Guard, Readable, SingleWriterTxKeyspace as Keyspace, Slice};
use uuid::Uuid;

use super::engine::{Engine, engine_error};
use super::rows::{corrupt, counters, counters_row, day_key, decode, timestamp_from};
use super::transaction::Transaction;
use super::{EmbeddedStore, deliveries, hits, keys, labels, links, parts, rows};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{LabelCount, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::{Link, ShortId};
use crate::store::StoreError;
use crate::store::transfer::{Metric, NAMES, Page, Record, Section, Sink, SinkError, Source};

/// Rows looked at for one page.
const PAGE: usize = 1_000;

#[async_trait]
impl Source for EmbeddedStore {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        let from = from.map(unhex).transpose()?;
        self.read(move |engine| read_page(engine, section, from)).await
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        self.read(|engine| Ok(deliveries::pending(engine, &engine.database.read_tx())? > 0)).await
    }
}

#[async_trait]
impl Sink for EmbeddedStore {
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = [b"n", name.as_bytes()].concat();
        self.read(move |engine| Ok(engine.meta.get(key).map_err(|e| engine_error(&e))?.map(|value| value.to_vec())))
            .await
    }

    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError> {
        let write = move |engine: &Engine, transaction: &mut Transaction<'_>| {
            for record in &records {
                match put(engine, transaction, record) {
                    Ok(()) => {}
                    Err(SinkError::Store(error)) => return Err(error),
                    Err(taken) => return Ok(Err(taken)),
                }
            }
            Ok(Ok(()))
        };
        EmbeddedStore::write(self, write).await?
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<Vec<u8>, StoreError> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = (0..text.len()).step_by(2).map(digits).collect::<Option<_>>();
    bytes.ok_or_else(|| corrupt("places", &"not a place of this store"))
}

fn read_page(engine: &Engine, section: Section, from: Option<Vec<u8>>) -> Result<Page, StoreError> {
    let (keyspace, prefix): (&Keyspace, &[u8]) = match section {
        Section::Keys => (&engine.keys, b"k"),
        Section::KeyUses => (&engine.meta, b"u"),
        Section::Links => (&engine.links, b""),
        Section::LinksCreated | Section::HitsServed | Section::WebhookDeliveries => (&engine.usage, b""),
        Section::Days => (&engine.days, b""),
        Section::Labels => (&engine.labels, b""),
        Section::Cursors => (&engine.meta, b"c"),
        Section::Names => (&engine.meta, b"n"),
    };
    let snapshot = engine.database.read_tx();
    let mut page = Page::default();
    for (number, row) in snapshot.range(keyspace, from.unwrap_or_else(|| prefix.to_vec())..).enumerate() {
        let (key, value) = Guard::into_inner(row).map_err(|e| engine_error(&e))?;
        if !key.starts_with(prefix) {
            break;
        }
        if number == PAGE {
            page.next = Some(hex(&key));
            break;
        }
        if section == Section::Labels {
            page.records.extend(labels::read(&key, &value)?.into_iter().map(label_record));
        } else {
            page.records.extend(record(engine, &snapshot, section, &key, value)?);
        }
    }
    Ok(page)
}

/// What a row holds; none where it only helps to find others.
fn record(
    engine: &Engine,
    from: &impl Readable,
    section: Section,
    key: &[u8],
    value: Slice,
) -> Result<Option<Record>, StoreError> {
    let usage = |metric: Metric, row: rows::Metric| match key {
        [owner @ .., a, b, c, d, metric_byte] if *metric_byte == row as u8 => {
            let [count] = counters::<1>("usage", Some(value.clone()))?;
            let month = Month(u32::from_be_bytes([*a, *b, *c, *d]));
            Ok::<_, StoreError>(Some(Record::Usage { metric, key: KeyId(uuid(owner)?), month, count }))
        }
        _ => Ok(None),
    };
    Ok(match section {
        Section::Keys => Some(Record::Key(Box::new(decode("keys", &value)?))),
        Section::KeyUses => {
            Some(Record::KeyUse { key: KeyId(uuid(&key[1..])?), at: timestamp_from("key uses", &value)? })
        }
        Section::Links => {
            // A longer key is that of a link's further parts.
            if key.len() != ShortId::LENGTH {
                return Ok(None);
            }
            let value = parts::get("links", from, &engine.links, key)?;
            value.map(|value| decode::<Link>("links", &value)).transpose()?.map(Record::Link)
        }
        Section::LinksCreated => usage(Metric::LinksCreated, rows::Metric::LinksCreated)?,
        Section::HitsServed => usage(Metric::HitsServed, rows::Metric::HitsServed)?,
        Section::WebhookDeliveries => usage(Metric::WebhookDeliveries, rows::Metric::WebhookDeliveries)?,
        Section::Days => {
            let (link, day) = key.split_at_checked(ShortId::LENGTH).ok_or_else(|| corrupt("days", &"a short key"))?;
            let day = day.try_into().map_err(|_| corrupt("days", &"not a day"))?;
            let devices = counters::<3>("days", Some(value))?;
            Some(Record::Day { link: short_id(link)?, day: Day(u32::from_be_bytes(day)), devices })
        }
        // A row holds many: see `labels::read`.
        Section::Labels => None,
        Section::Cursors => {
            let [counted] = counters::<1>("journal cursor", Some(value))?;
            Some(Record::Cursor { writer: NodeId(uuid(&key[1..])?), counted: Position(counted) })
        }
        Section::Names => {
            let name = NAMES.into_iter().find(|name| name.as_bytes() == &key[1..]);
            name.map(|name| Record::Name { name: name.to_owned(), value: value.to_vec() })
        }
    })
}

fn label_record(LabelCount { link, month, dimension, label, count }: LabelCount) -> Record {
    Record::Label { link, month, dimension, label: label.as_ref().to_owned(), count }
}

fn uuid(bytes: &[u8]) -> Result<Uuid, StoreError> {
    Uuid::from_slice(bytes).map_err(|error| corrupt("keys of rows", &error))
}

fn short_id(bytes: &[u8]) -> Result<ShortId, StoreError> {
    let id = std::str::from_utf8(bytes).ok().and_then(ShortId::parse);
    id.ok_or_else(|| corrupt("keys of rows", &"not a short id"))
}

fn put(engine: &Engine, transaction: &mut Transaction<'_>, record: &Record) -> Result<(), SinkError> {
    match record {
        Record::Key(key) => {
            keys::create(engine, transaction, key)?;
            // What stays where one is there already has to be the same.
            let there = transaction.get(&engine.keys, keys::id_key(key.id)).map_err(|e| engine_error(&e))?;
            if there.map(|row| decode("keys", &row)).transpose()?.as_ref() != Some(&**key) {
                return Err(SinkError::Taken(format!("key {}", key.id)));
            }
        }
        Record::KeyUse { key, at } => keys::note_uses(engine, transaction, &[(*key, *at)])?,
        Record::Link(link) => {
            // Nearly all are new, and known to be.
            let there = if engine.known_links.lacks(link.id) {
                None
            } else {
                parts::get("links", &**transaction, &engine.links, &link.id.0)?
            };
            match there {
                None => links::insert(engine, transaction, link)?,
                Some(there) if decode::<Link>("links", &there)? == *link => {}
                Some(_) => return Err(SinkError::Taken(format!("link {}", link.id))),
            }
        }
        Record::Usage { metric, key, month, count } => {
            let metric = match metric {
                Metric::LinksCreated => rows::Metric::LinksCreated,
                Metric::HitsServed => rows::Metric::HitsServed,
                Metric::WebhookDeliveries => rows::Metric::WebhookDeliveries,
            };
            links::set_used(engine, transaction, *key, *month, metric, *count)?;
        }
        Record::Day { link, day, devices } => {
            transaction.insert(&engine.days, day_key(*link, *day), counters_row(*devices))?;
        }
        Record::Label { link, month, dimension, label, count } => {
            labels::set(engine, transaction, (*link, *dimension), label, (*month, *count))?;
        }
        Record::Cursor { writer, counted } => {
            let there = hits::read_cursor(engine, &**transaction, *writer)?;
            let counted = counted.0.max(there.0);
            transaction.insert(&engine.meta, hits::cursor_key(*writer), counters_row([counted]))?;
        }
        Record::Name { name, value } => {
            let key = [b"n", name.as_bytes()].concat();
            match transaction.get(&engine.meta, &key).map_err(|e| engine_error(&e))? {
                None => transaction.insert(&engine.meta, key, value.as_slice())?,
                Some(there) if *there == **value => {}
                Some(_) => return Err(SinkError::Taken(name.clone())),
            }
        }
    }
    Ok(())
}

//! Taking all that is kept out of the store, and filling an empty one.

use async_trait::async_trait;
use fjall::{Guard, Keyspace, Readable};
use uuid::Uuid;

use super::counts::{self, Counting};
use super::engine::{Engine, engine_error};
use super::transaction::{Rows, Transaction};
use super::{EmbeddedStore, days, deliveries, hits, keys, labels, links, overflow};
use crate::domain::hit::{DayCount, LabelCount, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::row_keys::{self, short_id};
use crate::store::records::{self, corrupt, counters};
use crate::store::transfer::{Metric, NAMES, Page, Record, Section, Sink, SinkError, Source};

/// Rows looked at for one page.
const PAGE: usize = 1_000;

#[async_trait]
impl Source for EmbeddedStore {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        let from = from.map(RowPlace::read).transpose()?;
        self.read(move |engine| read_page(engine, section, from)).await
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        self.read(|engine| Ok(deliveries::pending(engine, &engine.database.snapshot())? > 0)).await
    }
}

#[async_trait]
impl Sink for EmbeddedStore {
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = row_keys::name(name);
        self.read(move |engine| {
            Ok(engine.tables.meta.get(key).map_err(|e| engine_error(&e))?.map(|value| value.to_vec()))
        })
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

/// The tables that have a section's rows, and how their keys begin there.
fn tables(engine: &Engine, section: Section) -> Vec<(&Keyspace, &'static [u8])> {
    match section {
        Section::Keys => vec![(&engine.tables.keys, b"k")],
        Section::KeyUses => vec![(&engine.tables.meta, b"u")],
        Section::Links => vec![(&engine.tables.links, b"")],
        Section::LinksCreated | Section::HitsServed | Section::WebhookDeliveries => vec![(&engine.tables.usage, b"")],
        Section::Days => vec![(&engine.tables.counts, b""), (&engine.tables.days, b"")],
        Section::Labels => vec![(&engine.tables.counts, b""), (&engine.tables.labels, b"")],
        Section::Cursors => vec![(&engine.tables.meta, row_keys::CURSORS)],
        Section::Names => vec![(&engine.tables.meta, row_keys::NAMES)],
    }
}

/// Where to go on in a section: at a key of one of its [`tables`].
struct RowPlace {
    table: usize,
    key: Vec<u8>,
}

impl RowPlace {
    /// The key; the table stands in front of it, unless it is the first.
    fn name(&self) -> String {
        let key = row_keys::hex(&self.key);
        if self.table == 0 { key } else { format!("{}:{key}", self.table) }
    }

    fn read(name: &str) -> Result<Self, StoreError> {
        let (table, key) = name.split_once(':').unwrap_or(("0", name));
        let table = table.parse().map_err(|error| corrupt("places", &error))?;
        let key = row_keys::unhex(key).ok_or_else(|| corrupt("places", &"not a place of this store"))?;
        Ok(Self { table, key })
    }
}

fn read_page(engine: &Engine, section: Section, place: Option<RowPlace>) -> Result<Page, StoreError> {
    let tables = tables(engine, section);
    let RowPlace { table: begun, key } = place.unwrap_or_else(|| RowPlace { table: 0, key: tables[0].1.to_vec() });
    if begun >= tables.len() {
        return Err(corrupt("places", &"not a place of this section"));
    }
    let mut from = Some(key);
    let snapshot = engine.database.snapshot();
    let mut page = Page::default();
    let mut looked_at = 0;
    for (table, (keyspace, prefix)) in tables.into_iter().enumerate().skip(begun) {
        for row in snapshot.range(keyspace, from.take().unwrap_or_else(|| prefix.to_vec())..) {
            let (key, value) = Guard::into_inner(row).map_err(|e| engine_error(&e))?;
            if !key.starts_with(prefix) {
                break;
            }
            if looked_at == PAGE {
                page.next = Some(RowPlace { table, key: key.to_vec() }.name());
                return Ok(page);
            }
            looked_at += 1;
            page.records.extend(records(engine, &snapshot, section, &key, &value)?);
        }
    }
    Ok(page)
}

/// What a row holds: of days and labels many may be in one. None where it only helps to find others.
fn records(
    engine: &Engine,
    from: &impl Rows,
    section: Section,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<Record>, StoreError> {
    // A key as long as an id is that of all counts of a link; those of its days and labels are longer.
    let is_whole = key.len() == ShortId::LENGTH;
    let usage = |metric: Metric| match row_keys::usage_of(key) {
        Some((owner, month, number)) if number == row_keys::metric_number(metric) => {
            let [count] = counters::decode("usage", Some(value))?;
            Ok::<_, StoreError>(vec![Record::Usage { metric, key: KeyId(uuid(owner)?), month, count }])
        }
        _ => Ok(Vec::new()),
    };
    Ok(match section {
        Section::Keys => vec![Record::Key(Box::new(records::keys::decode(value)?))],
        Section::KeyUses => {
            vec![Record::KeyUse { key: KeyId(uuid(&key[1..])?), at: counters::decode_time("key uses", value)? }]
        }
        // A longer key is that of a link's further parts.
        Section::Links if key.len() != ShortId::LENGTH => Vec::new(),
        Section::Links => {
            let value = overflow::get(records::links::TABLE, from, &engine.tables.links, key)?;
            let link = value.map(|value| records::links::decode(&value)).transpose()?;
            link.map(Record::Link).into_iter().collect()
        }
        Section::LinksCreated => usage(Metric::LinksCreated)?,
        Section::HitsServed => usage(Metric::HitsServed)?,
        Section::WebhookDeliveries => usage(Metric::WebhookDeliveries)?,
        Section::Days if is_whole => counts::read(short_id(key)?, value)?.0.into_iter().map(day_record).collect(),
        Section::Days => vec![day_record(days::read(key, value)?)],
        Section::Labels if is_whole => counts::read(short_id(key)?, value)?.1.into_iter().map(label_record).collect(),
        Section::Labels => labels::read(key, value)?.into_iter().map(label_record).collect(),
        Section::Cursors => {
            let [counted] = counters::decode("journal cursor", Some(value))?;
            vec![Record::Cursor { writer: NodeId(uuid(&key[1..])?), counted: Position(counted) }]
        }
        Section::Names => {
            let name = NAMES.into_iter().find(|name| name.as_bytes() == &key[1..]);
            let record = |name: &str| Record::Name { name: name.to_owned(), value: value.to_vec() };
            name.map(record).into_iter().collect()
        }
    })
}

fn day_record(DayCount { link, day, devices }: DayCount) -> Record {
    Record::Day { link, day, devices }
}

fn label_record(LabelCount { link, month, dimension, label, count }: LabelCount) -> Record {
    Record::Label { link, month, dimension, label: label.as_ref().to_owned(), count }
}

fn uuid(bytes: &[u8]) -> Result<Uuid, StoreError> {
    Uuid::from_slice(bytes).map_err(|error| corrupt("keys of rows", &error))
}

fn put(engine: &Engine, transaction: &mut Transaction<'_>, record: &Record) -> Result<(), SinkError> {
    match record {
        Record::Key(key) => {
            keys::put_if_absent(engine, transaction, key)?;
            // What stays where one is there already has to be the same.
            let there = transaction.row(&engine.tables.keys, keys::id_key(key.id))?;
            if there.map(|row| records::keys::decode(&row)).transpose()?.as_ref() != Some(&**key) {
                return Err(SinkError::Taken(format!("key {}", key.id)));
            }
        }
        Record::KeyUse { key, at } => keys::note_uses(engine, transaction, &[(*key, *at)])?,
        Record::Link(link) => {
            // Nearly all are new, and known to be.
            let there = if engine.known_links.lacks(link.id) {
                None
            } else {
                overflow::get(records::links::TABLE, transaction, &engine.tables.links, &link.id.0)?
            };
            match there {
                None => links::insert(engine, transaction, link)?,
                Some(there) if records::links::decode(&there)? == *link => {}
                Some(_) => return Err(SinkError::Taken(format!("link {}", link.id))),
            }
        }
        Record::Usage { metric, key, month, count } => {
            links::set_used(engine, transaction, *key, *month, *metric, *count)?;
        }
        Record::Day { link, day, devices } => {
            Counting::of_import(engine, transaction).set_day(&DayCount {
                link: *link,
                day: *day,
                devices: *devices,
            })?;
        }
        Record::Label { link, month, dimension, label, count } => {
            let label = label.as_str().into();
            let count = LabelCount { link: *link, month: *month, dimension: *dimension, label, count: *count };
            Counting::of_import(engine, transaction).set_label(&count)?;
        }
        Record::Cursor { writer, counted } => {
            let there = hits::read_cursor(engine, transaction, *writer)?;
            let counted = counted.0.max(there.0);
            transaction.insert(&engine.tables.meta, row_keys::cursor(*writer), counters::encode([counted]))?;
        }
        Record::Name { name, value } => {
            let key = row_keys::name(name);
            match transaction.row(&engine.tables.meta, &key)? {
                None => transaction.insert(&engine.tables.meta, key, value.as_slice())?,
                Some(there) if *there == **value => {}
                Some(_) => return Err(SinkError::Taken(name.clone())),
            }
        }
    }
    Ok(())
}

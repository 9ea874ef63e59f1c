//! Exports everything in the store except deliveries, and fills an empty store.

use async_trait::async_trait;
use fjall::{Guard, Keyspace, Readable, Snapshot};
use uuid::Uuid;

use super::EmbeddedStore;
use super::counts::{self, CountTable};
use super::database::engine_error;
use super::days::DayTable;
use super::hits::HitTable;
use super::key_uses::KeyUseTable;
use super::labels::LabelTable;
use super::tables::EmbeddedTables;
use super::transaction::Transaction;
use crate::domain::hit::{HitSubject, NodeId};
use crate::domain::key::KeyId;
use crate::domain::link::{LinkName, Revision, ShortId};
use crate::store::StoreError;
use crate::store::records::counts::Counts;
use crate::store::records::link_names::{self, NameState};
use crate::store::records::row_keys;
use crate::store::records::{self, corrupt, counters, sheets};
use crate::store::transfer::{ExportSource, LAST_START, Metric, NAMES, Page, Record, Section, Sink, SinkError};

/// Rows read for one page.
const PAGE: usize = 1_000;

#[async_trait]
impl ExportSource for EmbeddedStore {
    async fn read_page(&self, section: Section, from: Option<&str>) -> Result<Page, StoreError> {
        let from = from.map(RowPlace::read).transpose()?;
        self.read(move |tables, snapshot| SectionReader { tables, snapshot, section }.page(from)).await
    }

    async fn last_start(&self) -> Result<u64, StoreError> {
        self.read(|tables, snapshot| tables.names.number(snapshot, LAST_START)).await
    }

    async fn has_pending_deliveries(&self) -> Result<bool, StoreError> {
        self.read(|tables, snapshot| Ok(tables.deliveries.sums.pending(snapshot)? > 0)).await
    }
}

#[async_trait]
impl Sink for EmbeddedStore {
    async fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.read(move |tables, snapshot| tables.names.get(snapshot, &name)).await
    }

    async fn write(&self, records: Vec<Record>) -> Result<(), SinkError> {
        let write = move |tables: &EmbeddedTables, transaction: &mut Transaction<'_>| {
            let mut writer = RecordWriter { tables, transaction };
            for record in &records {
                match writer.put(record) {
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

/// The place in a section where the next page begins: a row key of one of the section's keyspaces.
struct RowPlace {
    keyspace: usize,
    key: Vec<u8>,
}

impl RowPlace {
    /// The key in hex, after the number of the keyspace unless it is the first.
    fn name(&self) -> String {
        let key = row_keys::hex(&self.key);
        if self.keyspace == 0 { key } else { format!("{}:{key}", self.keyspace) }
    }

    fn read(name: &str) -> Result<Self, StoreError> {
        let (keyspace, key) = name.split_once(':').unwrap_or(("0", name));
        let keyspace = keyspace.parse().map_err(|error| corrupt("places", &error))?;
        let key = row_keys::unhex(key).ok_or_else(|| corrupt("places", &"not a place of this store"))?;
        Ok(Self { keyspace, key })
    }
}

/// Reads a section.
struct SectionReader<'a> {
    tables: &'a EmbeddedTables,
    snapshot: &'a Snapshot,
    section: Section,
}

impl SectionReader<'_> {
    /// The keyspaces with the section's rows, and the prefix of their keys.
    fn keyspaces(&self) -> Vec<(&Keyspace, &'static [u8])> {
        let keyspaces = &self.tables.engine.keyspaces;
        match self.section {
            Section::Keys => vec![(&keyspaces.keys, row_keys::KEYS)],
            Section::KeyUses => vec![(&keyspaces.meta, row_keys::KEY_USES)],
            Section::Links => vec![(&keyspaces.links, b"")],
            Section::KeptNames => vec![(&keyspaces.link_names, b"")],
            Section::Revisions => vec![(&keyspaces.link_revisions, b"")],
            Section::Deletions => vec![(&keyspaces.link_times, row_keys::LINK_DELETIONS)],
            Section::LinksCreated | Section::HitsServed | Section::WebhookDeliveries => vec![(&keyspaces.usage, b"")],
            Section::Sheets => vec![(&keyspaces.counts, b""), (&keyspaces.sheets, b"")],
            Section::Days => vec![(&keyspaces.counts, b""), (&keyspaces.days, b"")],
            Section::Labels => vec![(&keyspaces.counts, b""), (&keyspaces.labels, b"")],
            Section::Cursors => vec![(&keyspaces.meta, row_keys::CURSORS)],
            Section::Names => vec![(&keyspaces.meta, row_keys::NAMES)],
        }
    }

    fn page(&self, place: Option<RowPlace>) -> Result<Page, StoreError> {
        let keyspaces = self.keyspaces();
        let RowPlace { keyspace: begin, key } =
            place.unwrap_or_else(|| RowPlace { keyspace: 0, key: keyspaces[0].1.to_vec() });
        if begin >= keyspaces.len() {
            return Err(corrupt("places", &"not a place of this section"));
        }
        let mut from = Some(key);
        let mut page = Page::default();
        let mut rows_read = 0;
        for (number, (keyspace, prefix)) in keyspaces.into_iter().enumerate().skip(begin) {
            for row in self.snapshot.range(keyspace, from.take().unwrap_or_else(|| prefix.to_vec())..) {
                let (key, value) = Guard::into_inner(row).map_err(|e| engine_error(&e))?;
                if !key.starts_with(prefix) {
                    break;
                }
                if rows_read == PAGE {
                    page.next = Some(RowPlace { keyspace: number, key: key.to_vec() }.name());
                    return Ok(page);
                }
                rows_read += 1;
                page.records.extend(self.records(&key, &value)?);
            }
        }
        Ok(page)
    }

    /// The records in a row: of days and labels there may be many. None in a row that only helps to find others.
    fn records(&self, key: &[u8], value: &[u8]) -> Result<Vec<Record>, StoreError> {
        Ok(match self.section {
            Section::Keys => vec![Record::Key(Box::new(records::keys::decode(value)?))],
            Section::KeyUses => {
                vec![Record::KeyUse { key: KeyId(uuid(&key[1..])?), at: KeyUseTable::read(value)? }]
            }
            // A longer key is that of an overflow row of a link.
            Section::Links if key.len() != ShortId::LENGTH => Vec::new(),
            Section::Links => self.tables.links.read(self.snapshot, key)?.map(Record::Link).into_iter().collect(),
            Section::KeptNames => kept_name(key, value)?,
            Section::Revisions => {
                let revision = self.tables.links.revisions.read(self.snapshot, key)?;
                revision.map(|(link, replaced_at)| Record::Revision { link, replaced_at }).into_iter().collect()
            }
            Section::Deletions => {
                let (at, link, _) = row_keys::link_at_of(key)?;
                vec![Record::Deletion { link, at }]
            }
            Section::LinksCreated => usage(Metric::LinksCreated, key, value)?,
            Section::HitsServed => usage(Metric::HitsServed, key, value)?,
            Section::WebhookDeliveries => usage(Metric::WebhookDeliveries, key, value)?,
            Section::Days => match whole(key) {
                Some(of) => CountTable::read(of, value)?.0.into_iter().map(Record::Day).collect(),
                None => vec![Record::Day(DayTable::read(key, value)?)],
            },
            Section::Labels => match whole(key) {
                Some(of) => CountTable::read(of, value)?.1.into_iter().map(Record::Label).collect(),
                None => LabelTable::read(key, value)?.into_iter().map(Record::Label).collect(),
            },
            Section::Sheets => match whole(key) {
                Some(of) => self.sheets_of_only_days(of, value)?,
                None => self.sheet(key)?.into_iter().collect(),
            },
            Section::Cursors => {
                let counted = HitTable::read_cursor(Some(value))?;
                vec![Record::Cursor { writer: NodeId(uuid(&key[1..])?), counted }]
            }
            Section::Names => {
                let name = NAMES.into_iter().find(|name| name.as_bytes() == &key[1..]);
                let record = |name: &str| Record::Name { name: name.to_owned(), value: value.to_vec() };
                name.map(record).into_iter().collect()
            }
        })
    }

    /// The sheets that have no rows of their own.
    fn sheets_of_only_days(&self, of: HitSubject, row: &[u8]) -> Result<Vec<Record>, StoreError> {
        if !self.tables.counts.sheets.is_kept() {
            return Ok(Vec::new());
        }
        let Counts::Inline(whole) = records::counts::decode(row)? else { return Ok(Vec::new()) };
        let sheets = whole.days.iter().filter_map(|known| Some((known.day, whole.sheet_of_only_day(known.day)?)));
        Ok(sheets.map(|(day, sheet)| Record::Sheet { of, day, sheet: sheet.to_shared() }).collect())
    }

    /// The sheet whose first row has this key.
    fn sheet(&self, key: &[u8]) -> Result<Option<Record>, StoreError> {
        let Some((day, of)) = row_keys::sheet_of(key)? else { return Ok(None) };
        let tables = &self.tables.counts;
        let row = tables.row(self.snapshot, of)?;
        if let Counts::Inline(whole) = counts::decode(row.as_ref())?
            && whole.only_day(day).is_some()
        {
            // It is exported with the row of all counts.
            return Ok(None);
        }
        let bytes = tables.sheets.bytes(self.snapshot, day, of)?.unwrap_or_default();
        Ok(Some(Record::Sheet { of, day, sheet: sheets::decode(&bytes)?.to_shared() }))
    }
}

/// Whose counts are all in the row of this key; those of days and labels are longer.
fn whole(key: &[u8]) -> Option<HitSubject> {
    row_keys::subject_of(key).ok().filter(|(_, rest)| rest.is_empty()).map(|(of, _)| of)
}

/// The record in a row of `usage`, if it is of this metric.
fn usage(metric: Metric, key: &[u8], value: &[u8]) -> Result<Vec<Record>, StoreError> {
    match row_keys::usage_of(key) {
        Some((owner, month, number)) if number == row_keys::metric_number(metric) => {
            let [count] = counters::decode("usage", Some(value))?;
            Ok(vec![Record::Usage { metric, key: KeyId(uuid(owner)?), month, count }])
        }
        _ => Ok(Vec::new()),
    }
}

/// The record of a name that no link has.
fn kept_name(key: &[u8], value: &[u8]) -> Result<Vec<Record>, StoreError> {
    let name = std::str::from_utf8(key).ok().and_then(LinkName::of_form);
    let name = name.ok_or_else(|| corrupt(link_names::TABLE, &"not a name"))?;
    Ok(match link_names::decode(value)? {
        NameState::Kept { owner, revision } => vec![Record::KeptName { name, owner: Some(owner), revision }],
        NameState::Used => vec![Record::KeptName { name, owner: None, revision: Revision::FIRST }],
        // Its link has it.
        NameState::Live(_) => Vec::new(),
    })
}

fn uuid(bytes: &[u8]) -> Result<Uuid, StoreError> {
    Uuid::from_slice(bytes).map_err(|error| corrupt("keys of rows", &error))
}

/// Writes records of an import.
struct RecordWriter<'a, 't> {
    tables: &'a EmbeddedTables,
    transaction: &'a mut Transaction<'t>,
}

impl RecordWriter<'_, '_> {
    /// Writes a record. One that exists already must be the same.
    fn put(&mut self, record: &Record) -> Result<(), SinkError> {
        let (tables, transaction) = (self.tables, &mut *self.transaction);
        match record {
            Record::Key(key) => {
                let existing = tables.keys.put_if_absent(transaction, key)?;
                same_or_taken(existing.is_none_or(|existing| existing == **key), || format!("key {}", key.id))?;
            }
            Record::KeyUse { key, at } => tables.key_uses.note(transaction, &[(*key, *at)])?,
            Record::Link(link) => {
                same_or_taken(tables.links.import(transaction, link)?, || format!("link {}", link.name()))?;
            }
            Record::KeptName { name, owner, revision } => {
                let state = owner.map_or(NameState::Used, |owner| NameState::Kept { owner, revision: *revision });
                same_or_taken(tables.links.import_name(transaction, name, state)?, || format!("link {name}"))?;
            }
            Record::Revision { link, replaced_at } => tables.links.revisions.put(transaction, link, *replaced_at)?,
            Record::Deletion { link, at } => tables.link_remains.put(transaction, *link, *at)?,
            Record::Usage { metric, key, month, count } => {
                tables.usage.set(transaction, *key, *month, *metric, *count)?;
            }
            Record::Day(count) => tables.counts.import(transaction).set_day(count)?,
            Record::Label(count) => tables.counts.import(transaction).set_label(count)?,
            Record::Sheet { of, day, sheet } => tables.counts.sheets.set(transaction, *of, *day, sheet)?,
            Record::Cursor { writer, counted } => {
                let existing = tables.hits.cursor(transaction, *writer)?;
                tables.hits.set_cursor(transaction, *writer, existing.max(*counted))?;
            }
            Record::Name { name, value } => {
                let kept = tables.names.put_if_absent(transaction, name, value)?;
                same_or_taken(kept == *value, || name.clone())?;
            }
        }
        Ok(())
    }
}

fn same_or_taken(is_same: bool, name: impl FnOnce() -> String) -> Result<(), SinkError> {
    if is_same { Ok(()) } else { Err(SinkError::Taken(name())) }
}

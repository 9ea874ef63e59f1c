//! A record of an export (`store/transfer.rs`) as a line of JSON.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::keys::{KeyV1, is_sealed};
use super::links::LinkRecord;
use super::{Base62Id, RecordFault, Time, require, sheets};
use crate::domain::breakdown::{Dimension, LabelList, Sheet, SheetEntry, SheetLabel, kept_text};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{DayCount, DeviceHits, HitSubject, LabelCount, NodeId, OTHER_LABEL, Position};
use crate::domain::key::KeyId;
use crate::domain::link::{LinkName, Revision};
use crate::domain::quarters::{QuarterHits, SLOTS};
use crate::domain::tally::Tally;
use crate::store::transfer::{Metric, NAMES, Record, Section};

/// Counts go up to 2^63-1.
const MAX_COUNT: u64 = i64::MAX.unsigned_abs();
/// The end of the year 9999: what is later cannot be written as a time.
const LAST: Timestamp = Timestamp(253_402_300_799_999);
/// A host of a referrer has at most 253 bytes, the longest names of places a few hundred.
const MAX_LABEL_BYTES: usize = 1_024;
/// The bytes of a key's id.
const KEY_ID_BYTES: usize = 16;

written_enum! {
    /// What is counted of a key in a month.
    #[serde(rename_all = "snake_case")]
    MetricV1 for Metric { LinksCreated, HitsServed, WebhookDeliveries }
}

written_enum! {
    /// The section that a place of an export is in.
    #[serde(rename_all = "snake_case")]
    SectionV1 for Section {
        Keys,
        KeyUses,
        Links,
        LinksCreated,
        HitsServed,
        WebhookDeliveries,
        Days,
        Labels,
        Cursors,
        Names,
        KeptNames,
        Revisions,
        Deletions,
        Sheets,
    }
}

/// One record of a store.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordV1<'a> {
    Key(Box<KeyV1<'a>>),
    KeyUse {
        key: Uuid,
        at: Time,
    },
    Link(LinkRecord<'a>),
    Usage {
        metric: MetricV1,
        key: Uuid,
        /// Year × 12 + month counted from 0.
        month: u32,
        count: u64,
    },
    /// Since format 2 with `key`, `bots` and `quarters`.
    Day {
        #[serde(flatten)]
        of: SubjectRecord,
        /// Since 1970-01-01.
        day: u32,
        /// All hits, those of bots among them.
        devices: [u64; 3],
        #[serde(default, skip_serializing_if = "is_zero")]
        bots: [u64; 3],
        /// Quarter of an hour, hits of persons, hits of bots.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        quarters: Vec<(u8, u64, u64)>,
    },
    /// Since format 2 with `key`, `bots` and more dimensions.
    Label {
        #[serde(flatten)]
        of: SubjectRecord,
        month: u32,
        dimension: ListV2,
        label: Cow<'a, str>,
        count: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        bots: u64,
    },
    Cursor {
        writer: Uuid,
        counted: u64,
    },
    Name {
        name: Cow<'a, str>,
        value: Cow<'a, [u8]>,
    },
    /// Since format 2, as all that follow.
    KeptName {
        name: Cow<'a, str>,
        owner: Option<Uuid>,
        revision: u32,
    },
    Revision {
        link: LinkRecord<'a>,
        replaced_at: Time,
    },
    Deletion {
        link: Base62Id,
        at: Time,
    },
    Sheet {
        #[serde(flatten)]
        of: SubjectRecord,
        day: u32,
        entries: Vec<SheetEntryV2<'a>>,
        /// Hits of persons and of bots that want no tracking.
        #[serde(default, skip_serializing_if = "is_zero")]
        private: (u64, u64),
    },
}

/// Whose hits are counted: one of the two is there.
#[derive(Serialize, Deserialize)]
pub struct SubjectRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<Base62Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Uuid>,
}

impl From<HitSubject> for SubjectRecord {
    fn from(of: HitSubject) -> Self {
        match of {
            HitSubject::Link(link) => Self { link: Some(Base62Id(link)), key: None },
            HitSubject::Key(key) => Self { link: None, key: Some(key.0) },
        }
    }
}

impl SubjectRecord {
    fn checked(self) -> Result<HitSubject, RecordFault> {
        match (self.link, self.key) {
            (Some(link), None) => Ok(HitSubject::Link(link.0)),
            (None, Some(key)) => Ok(HitSubject::Key(KeyId(key))),
            _ => Err("link, key: one of them must be there".to_owned()),
        }
    }
}

/// The name of a list of labels.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListV2(Cow<'static, str>);

/// The name of [`LabelList::Private`].
const PRIVATE: &str = "private";

impl From<LabelList> for ListV2 {
    fn from(list: LabelList) -> Self {
        Self(Cow::Borrowed(match list {
            LabelList::Of(dimension) => dimension.name(),
            LabelList::Private => PRIVATE,
        }))
    }
}

impl ListV2 {
    fn checked(&self) -> Result<LabelList, RecordFault> {
        if self.0 == PRIVATE {
            return Ok(LabelList::Private);
        }
        let dimension = Dimension::parse(&self.0).filter(|dimension| *dimension != Dimension::Device);
        dimension.map(LabelList::Of).ok_or_else(|| "dimension: is none that has a list".to_owned())
    }
}

/// Dimension, label (none: not known any more), hits of persons, hits of bots.
#[derive(Serialize, Deserialize)]
pub struct SheetEntryV2<'a>(Cow<'a, str>, Option<Cow<'a, str>>, u64, u64);

impl<'a> From<&'a SheetEntry<Arc<str>>> for SheetEntryV2<'a> {
    fn from(SheetEntry { dimension, label, tally }: &'a SheetEntry<Arc<str>>) -> Self {
        let label = label.text(*dimension).map(Cow::Borrowed);
        Self(dimension.name().into(), label, tally.persons, tally.bots)
    }
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

impl<'a> From<&'a Record> for RecordV1<'a> {
    fn from(record: &'a Record) -> Self {
        match record {
            Record::Key(key) => Self::Key(Box::new((&**key).into())),
            Record::KeyUse { key, at } => Self::KeyUse { key: key.0, at: Time(*at) },
            Record::Link(link) => Self::Link(link.into()),
            Record::Usage { metric, key, month, count } => {
                Self::Usage { metric: (*metric).into(), key: key.0, month: month.0, count: *count }
            }
            Record::Day(DayCount { of, day, devices, quarters }) => Self::Day {
                of: (*of).into(),
                day: day.0,
                devices: devices.0.map(Tally::all),
                bots: devices.0.map(|tally| tally.bots),
                quarters: quarters.slots().map(|(slot, tally)| (slot, tally.persons, tally.bots)).collect(),
            },
            Record::Label(LabelCount { of, month, list, label, tally }) => Self::Label {
                of: (*of).into(),
                month: month.0,
                dimension: (*list).into(),
                label: (&**label).into(),
                count: tally.all(),
                bots: tally.bots,
            },
            Record::Sheet { of, day, sheet } => Self::Sheet {
                of: (*of).into(),
                day: day.0,
                entries: sheet.entries().iter().map(SheetEntryV2::from).collect(),
                private: (sheet.private().persons, sheet.private().bots),
            },
            Record::Cursor { writer, counted } => Self::Cursor { writer: writer.0, counted: counted.0 },
            Record::Name { name, value } => Self::Name { name: name.into(), value: value.into() },
            Record::KeptName { name, owner, revision } => {
                Self::KeptName { name: name.as_str().into(), owner: owner.map(|owner| owner.0), revision: revision.0 }
            }
            Record::Revision { link, replaced_at } => {
                Self::Revision { link: link.into(), replaced_at: Time(*replaced_at) }
            }
            Record::Deletion { link, at } => Self::Deletion { link: Base62Id(*link), at: Time(*at) },
        }
    }
}

impl RecordV1<'_> {
    /// The record, if this service could have written it: a file may have been changed.
    ///
    /// `root_key` is the one that the file's first line names. Times need no check: their text has been parsed.
    pub fn checked(self, root_key: Option<&[u8]>) -> Result<Record, RecordFault> {
        Ok(match self {
            Self::Key(key) => Record::Key(Box::new(key.checked(root_key)?)),
            Self::KeyUse { key, at } => Record::KeyUse { key: KeyId(key), at: at.0 },
            Self::Link(link) => Record::Link(link.checked()?),
            Self::Usage { metric, key, month, count } => Record::Usage {
                metric: metric.into(),
                key: KeyId(key),
                month: checked_month(month)?,
                count: checked_count(count)?,
            },
            Self::Day { of, day, devices, bots, quarters } => {
                let mut checked = DeviceHits::default();
                for (tally, (all, bots)) in checked.0.iter_mut().zip(devices.into_iter().zip(bots)) {
                    *tally = checked_tally(all, bots)?;
                }
                let mut hits = QuarterHits::default();
                for (slot, persons, bots) in quarters {
                    require(slot < SLOTS, "quarters: must be from 0 to 95")?;
                    hits.add(slot, Tally { persons: checked_count(persons)?, bots: checked_count(bots)? });
                }
                Record::Day(DayCount { of: of.checked()?, day: checked_day(day)?, devices: checked, quarters: hits })
            }
            Self::Label { of, month, dimension, label, count, bots } => {
                let fits = (1..=MAX_LABEL_BYTES).contains(&label.len());
                require(fits, "label: must have 1 to 1024 bytes")?;
                let list = dimension.checked()?;
                Record::Label(LabelCount {
                    of: of.checked()?,
                    month: checked_month(month)?,
                    list,
                    label: known_label(list, &label).into(),
                    tally: checked_tally(count, bots)?,
                })
            }
            Self::Sheet { of, day, entries, private } => {
                let mut sheet = Sheet::default();
                for SheetEntryV2(dimension, label, persons, bots) in entries {
                    let dimension = Dimension::parse(&dimension).ok_or("dimension: unknown")?;
                    let label = label.map_or(Some(SheetLabel::Other), |label| {
                        SheetLabel::of_text(dimension, Arc::<str>::from(kept_text(&label)))
                    });
                    let label = label.ok_or("label: must not be empty")?;
                    sheet.add(dimension, label, Tally { persons: checked_count(persons)?, bots: checked_count(bots)? });
                }
                let (persons, bots) = private;
                sheet.add_private(Tally { persons: checked_count(persons)?, bots: checked_count(bots)? });
                // A sheet that no release could have written is not read again.
                let bytes = sheets::encode(&sheet);
                sheets::decode(&bytes).map_err(|error| error.to_string())?;
                Record::Sheet { of: of.checked()?, day: checked_day(day)?, sheet }
            }
            Self::Cursor { writer, counted } => {
                Record::Cursor { writer: NodeId(writer), counted: Position(checked_count(counted)?) }
            }
            Self::Name { name, value } => {
                check_name(&name, &value)?;
                Record::Name { name: name.into_owned(), value: value.into_owned() }
            }
            Self::KeptName { name, owner, revision } => Record::KeptName {
                name: LinkName::of_form(&name).ok_or("name: is not a valid link name")?,
                owner: owner.map(KeyId),
                revision: Revision(revision),
            },
            Self::Revision { link, replaced_at } => {
                Record::Revision { link: link.checked()?, replaced_at: replaced_at.0 }
            }
            Self::Deletion { link, at } => Record::Deletion { link: link.0, at: at.0 },
        })
    }
}

fn check_name(name: &str, value: &[u8]) -> Result<(), RecordFault> {
    match NAMES.iter().position(|known| *known == name) {
        Some(0) => require(value.len() == KEY_ID_BYTES, "root_key: is not a key id"),
        Some(_) => require(is_sealed(value), "master_key_check: is not an encrypted secret"),
        None => Err("name: unknown".to_owned()),
    }
}

fn checked_month(month: u32) -> Result<Month, RecordFault> {
    let month = Month(month);
    let is_known = (Timestamp(0).month()..=LAST.month()).contains(&month);
    require(is_known, "month: must be from 1970 to 9999").map(|()| month)
}

/// The label, or that of labels that are not known: 0.1.0 did not check the texts of countries.
fn known_label(list: LabelList, label: &str) -> &str {
    match list {
        LabelList::Of(dimension) if matches!(SheetLabel::of_text(dimension, label), Some(SheetLabel::Other)) => {
            OTHER_LABEL
        }
        _ => label,
    }
}

fn checked_day(day: u32) -> Result<Day, RecordFault> {
    let day = Day(day);
    require(day <= LAST.day(), "day: must be before the year 10000").map(|()| day)
}

/// `bots` of `all` hits.
fn checked_tally(all: u64, bots: u64) -> Result<Tally, RecordFault> {
    require(bots <= all, "bots: must not be more than all hits")?;
    Ok(Tally::of_total(checked_count(all)?, bots))
}

fn checked_count(count: u64) -> Result<u64, RecordFault> {
    require(count <= MAX_COUNT, "a count: must be at most 2^63-1").map(|()| count)
}

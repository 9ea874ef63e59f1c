//! A record of an export (`store/transfer.rs`) as a line of JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::counts::DimensionV1;
use super::keys::{KeyV1, is_sealed};
use super::links::LinkRecord;
use super::{Base62Id, RecordFault, Time, require};
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::{LinkName, Revision};
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
    Day {
        link: Base62Id,
        /// Since 1970-01-01.
        day: u32,
        devices: [u64; 3],
    },
    Label {
        link: Base62Id,
        month: u32,
        dimension: DimensionV1,
        label: Cow<'a, str>,
        count: u64,
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
            Record::Day { link, day, devices } => Self::Day { link: Base62Id(*link), day: day.0, devices: *devices },
            Record::Label { link, month, dimension, label, count } => Self::Label {
                link: Base62Id(*link),
                month: month.0,
                dimension: (*dimension).into(),
                label: label.into(),
                count: *count,
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
            Self::Day { link, day, devices } => {
                let day = Day(day);
                require(day <= LAST.day(), "day: must be before the year 10000")?;
                devices.into_iter().try_for_each(|count| checked_count(count).map(drop))?;
                Record::Day { link: link.0, day, devices }
            }
            Self::Label { link, month, dimension, label, count } => {
                let fits = (1..=MAX_LABEL_BYTES).contains(&label.len());
                require(fits, "label: must have 1 to 1024 bytes")?;
                Record::Label {
                    link: link.0,
                    month: checked_month(month)?,
                    dimension: dimension.into(),
                    label: label.into_owned(),
                    count: checked_count(count)?,
                }
            }
            Self::Cursor { writer, counted } => {
                Record::Cursor { writer: NodeId(writer), counted: Position(checked_count(counted)?) }
            }
            Self::Name { name, value } => {
                check_name(&name, &value)?;
                Record::Name { name: name.into_owned(), value: value.into_owned() }
            }
            Self::KeptName { name, owner, revision } => Record::KeptName {
                name: LinkName::parse(&name).ok_or("name: is no name of a link")?,
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
        Some(0) => require(value.len() == KEY_ID_BYTES, "root_key: is no id of a key"),
        Some(_) => require(is_sealed(value), "master_key_check: is no sealed secret"),
        None => Err("name: is none that is carried".to_owned()),
    }
}

fn checked_month(month: u32) -> Result<Month, RecordFault> {
    let month = Month(month);
    let is_known = (Timestamp(0).month()..=LAST.month()).contains(&month);
    require(is_known, "month: must be from 1970 to 9999").map(|()| month)
}

fn checked_count(count: u64) -> Result<u64, RecordFault> {
    require(count <= MAX_COUNT, "a count: must be at most 2^63-1").map(|()| count)
}

//! Rows of the lists of labels of spilled links (`embedded/labels.rs`). The store works on the records themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{split_version, unknown_version};
use crate::domain::analytics::Labelled;
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "label_lists";
const HEAD_VERSION: u8 = 2;
const MONTHS_VERSION: u8 = 2;

/// The first row of a list, as 0.1.0 wrote it.
#[derive(Debug, Serialize, Deserialize)]
enum HeadV1 {
    Inline(Vec<(String, MonthsV1)>),
    Split(TopV1),
}

/// The first row of a list.
#[derive(Debug, Serialize, Deserialize)]
pub enum HeadV2 {
    /// All labels, in the order of their first hits.
    Inline(Vec<(String, MonthsV2)>),
    /// The top labels; each label has a row of its own.
    Split(TopV1),
}

impl From<HeadV1> for HeadV2 {
    fn from(head: HeadV1) -> Self {
        match head {
            HeadV1::Inline(labels) => {
                Self::Inline(labels.into_iter().map(|(label, months)| (label, months.into())).collect())
            }
            HeadV1::Split(top) => Self::Split(top),
        }
    }
}

/// The shown labels of a list, by all of their hits.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopV1 {
    /// The first of its labels, in order.
    pub first: Vec<Labelled>,
    /// Hits under [`OTHER_LABEL`](crate::domain::hit::OTHER_LABEL).
    pub other: u64,
}

/// A label's hits by month (year × 12 + month counted from 0), as 0.1.0 wrote them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct MonthsV1(BTreeMap<u32, u64>);

/// A label's hits by month (year × 12 + month counted from 0): of persons, and of bots.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MonthsV2(pub BTreeMap<u32, (u64, u64)>);

impl From<MonthsV1> for MonthsV2 {
    fn from(MonthsV1(months): MonthsV1) -> Self {
        Self(months.into_iter().map(|(month, count)| (month, (count, 0))).collect())
    }
}

pub fn encode_head(head: &HeadV2) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, HEAD_VERSION, head)
}

pub fn decode_head(row: &[u8]) -> Result<HeadV2, StoreError> {
    match split_version(TABLE, row)? {
        (1, record) => super::decode::<HeadV1>(TABLE, record).map(HeadV2::from),
        (HEAD_VERSION, record) => super::decode(TABLE, record),
        (later, _) => Err(unknown_version(TABLE, later, HEAD_VERSION)),
    }
}

pub fn encode_months(months: &MonthsV2) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, MONTHS_VERSION, months)
}

pub fn decode_months(row: &[u8]) -> Result<MonthsV2, StoreError> {
    match split_version(TABLE, row)? {
        (1, record) => super::decode::<MonthsV1>(TABLE, record).map(MonthsV2::from),
        (MONTHS_VERSION, record) => super::decode(TABLE, record),
        (later, _) => Err(unknown_version(TABLE, later, MONTHS_VERSION)),
    }
}

//! Rows of the lists of labels of spilled links (`embedded/labels.rs`). The store works on the records themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{split_version, unknown_version};
use crate::domain::analytics::Labelled;
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "label_lists";
const HEAD_VERSION: u8 = 1;
const MONTHS_VERSION: u8 = 1;

/// The first row of a list.
#[derive(Debug, Serialize, Deserialize)]
pub enum HeadV1 {
    /// All labels, in the order of their first hits.
    Inline(Vec<(String, MonthsV1)>),
    /// The top labels; each label has a row of its own.
    Split(TopV1),
}

/// The shown labels of a list.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopV1 {
    /// The first of its labels, in order.
    pub first: Vec<Labelled>,
    /// Hits under [`OTHER_LABEL`](crate::domain::hit::OTHER_LABEL).
    pub other: u64,
}

/// A label's hits by month (year × 12 + month counted from 0).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MonthsV1(pub BTreeMap<u32, u64>);

pub fn encode_head(head: &HeadV1) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, HEAD_VERSION, head)
}

pub fn decode_head(row: &[u8]) -> Result<HeadV1, StoreError> {
    match split_version(TABLE, row)? {
        (HEAD_VERSION, record) => super::decode(TABLE, record),
        (later, _) => Err(unknown_version(TABLE, later, HEAD_VERSION)),
    }
}

pub fn encode_months(months: &MonthsV1) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, MONTHS_VERSION, months)
}

pub fn decode_months(row: &[u8]) -> Result<MonthsV1, StoreError> {
    match split_version(TABLE, row)? {
        (MONTHS_VERSION, record) => super::decode(TABLE, record),
        (later, _) => Err(unknown_version(TABLE, later, MONTHS_VERSION)),
    }
}

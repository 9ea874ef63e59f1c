//! How rows look on disk: big-endian keys, so that they sort by time, and values with a version in front.

use std::fmt::Write;

use fjall::Slice;
use serde::{Deserialize, Serialize};

use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::Dimension;
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::StoreError;

/// The version of every structured value; a release that changes a layout reads the older one too. Never 255, which marks
/// a value in parts.
const VERSION: u8 = 1;

/// A structured value: version, then postcard.
pub fn encode<T: Serialize>(table: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_extend(value, vec![VERSION]).map_err(|error| corrupt(table, &error))
}

/// The same in a room that is at hand; `None` where it is too short.
pub fn encode_into<'a, T: Serialize>(room: &'a mut [u8], value: &T) -> Option<&'a [u8]> {
    let (version, rest) = room.split_first_mut()?;
    *version = VERSION;
    let written = postcard::to_slice(value, rest).ok()?.len();
    room.get(..=written)
}

pub fn decode<'a, T: Deserialize<'a>>(table: &'static str, bytes: &'a [u8]) -> Result<T, StoreError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| corrupt(table, &error)),
        Some((version, _)) => Err(corrupt(table, &format_args!("layout version {version}"))),
        None => Err(corrupt(table, &"empty value")),
    }
}

pub fn corrupt(table: &'static str, reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt { table, reason: reason.to_string() }
}

pub fn short_id(bytes: &[u8]) -> Result<ShortId, StoreError> {
    let id = std::str::from_utf8(bytes).ok().and_then(ShortId::parse);
    id.ok_or_else(|| corrupt("keys of rows", &"not a short id"))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A row of `N` counters.
pub fn counters<const N: usize>(table: &'static str, row: Option<Slice>) -> Result<[u64; N], StoreError> {
    let mut counts = [0; N];
    let Some(row) = row else { return Ok(counts) };
    if row.len() != N * 8 {
        return Err(corrupt(table, &format_args!("{} bytes for {N} counters", row.len())));
    }
    for (count, bytes) in counts.iter_mut().zip(row.as_chunks::<8>().0) {
        *count = u64::from_be_bytes(*bytes);
    }
    Ok(counts)
}

pub fn counters_row<const N: usize>(counts: [u64; N]) -> Vec<u8> {
    counts.iter().flat_map(|count| count.to_be_bytes()).collect()
}

pub fn timestamp_from(table: &'static str, row: &[u8]) -> Result<Timestamp, StoreError> {
    let bytes = row.try_into().map_err(|_| corrupt(table, &"not a timestamp"))?;
    Ok(Timestamp(u64::from_be_bytes(bytes)))
}

/// What is counted of a key in a month.
#[derive(Clone, Copy)]
pub enum Metric {
    LinksCreated,
    HitsServed,
    WebhookDeliveries,
}

pub fn usage_key(key: KeyId, month: Month, metric: Metric) -> Vec<u8> {
    [key.0.as_bytes().as_slice(), &month.0.to_be_bytes(), &[metric as u8]].concat()
}

/// In the view of `viewer`; `Uuid::max` less the key's id would sort newest first, so scans go backwards instead.
pub fn view_key(viewer: KeyId, key: KeyId) -> Vec<u8> {
    [viewer.0.as_bytes().as_slice(), key.0.as_bytes()].concat()
}

pub fn day_key(link: ShortId, day: Day) -> Vec<u8> {
    [link.0.as_slice(), &day.0.to_be_bytes()].concat()
}

/// What a row says of a list of labels. All of a list stands together, in this order.
#[derive(Clone, Copy)]
pub enum LabelRow<'a> {
    Head,
    /// How many labels it has in a month.
    Size(Month),
    Label(&'a [u8]),
}

pub fn label_row_key(link: ShortId, dimension: Dimension, row: LabelRow<'_>) -> Vec<u8> {
    let key = |kind: u8, rest: &[u8]| [link.0.as_slice(), &[dimension as u8, kind], rest].concat();
    match row {
        LabelRow::Head => key(0, &[]),
        LabelRow::Size(month) => key(1, &month.0.to_be_bytes()),
        LabelRow::Label(label) => key(2, label),
    }
}

/// Link, dimension and what the row says; `None` for further parts of a head.
pub fn label_row_of(key: &[u8]) -> Option<(ShortId, u8, LabelRow<'_>)> {
    let (link, rest) = key.split_first_chunk()?;
    let (dimension, row) = match rest {
        [dimension, 0] => (*dimension, LabelRow::Head),
        [dimension, 1, month @ ..] => (*dimension, LabelRow::Size(Month(u32::from_be_bytes(month.try_into().ok()?)))),
        [dimension, 2, label @ ..] => (*dimension, LabelRow::Label(label)),
        _ => return None,
    };
    Some((ShortId(*link), dimension, row))
}

pub fn due_key(due_at: Timestamp, id: DeliveryId) -> Vec<u8> {
    [due_at.0.to_be_bytes().as_slice(), &id.to_bytes()].concat()
}

pub fn summary_key(link: ShortId, url_index: u8, day: Day) -> Vec<u8> {
    [link.0.as_slice(), &day.0.to_be_bytes(), &[url_index]].concat()
}

pub fn expiry_key(day: Day, link: ShortId) -> Vec<u8> {
    [day.0.to_be_bytes().as_slice(), &link.0].concat()
}

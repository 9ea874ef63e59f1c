//! Keys of the embedded store's rows. Numbers in them are big-endian, so that rows sort by them.

use std::fmt::Write;

use super::corrupt;
use super::counts::dimension_number;
use crate::domain::calendar::{Day, Month, Timestamp};
use crate::domain::hit::{Dimension, NodeId};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::webhook::DeliveryId;
use crate::store::StoreError;
use crate::store::transfer::Metric;

/// Rows of `meta` that are alone: how many deliveries are pending, the layout, which file of known links is the store's own.
pub const PENDING_DELIVERIES: &[u8] = b"d";
pub const LAYOUT: &[u8] = b"l";
pub const KNOWN_LINKS_STAMP: &[u8] = b"i";
/// How keys of `meta` begin that are followed by a node, or by a name.
pub const CURSORS: &[u8] = b"c";
pub const NAMES: &[u8] = b"n";

/// The row of `meta` that says up to where a node's journal is counted.
pub fn cursor(writer: NodeId) -> Vec<u8> {
    [CURSORS, writer.0.as_bytes().as_slice()].concat()
}

/// The row of `meta` for a value that has a name.
pub fn name(name: &str) -> Vec<u8> {
    [NAMES, name.as_bytes()].concat()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

pub fn short_id(bytes: &[u8]) -> Result<ShortId, StoreError> {
    let id = std::str::from_utf8(bytes).ok().and_then(ShortId::parse);
    id.ok_or_else(|| corrupt("keys of rows", &"not a short id"))
}

pub fn usage(key: KeyId, month: Month, metric: Metric) -> Vec<u8> {
    [key.0.as_bytes().as_slice(), &month.0.to_be_bytes(), &[metric_number(metric)]].concat()
}

/// What a row of `usage` counts, and whose and of which month it is.
pub fn usage_of(row_key: &[u8]) -> Option<(&[u8], Month, u8)> {
    let (metric, rest) = row_key.split_last()?;
    let (owner, month) = rest.split_last_chunk()?;
    Some((owner, Month(u32::from_be_bytes(*month)), *metric))
}

pub fn metric_number(metric: Metric) -> u8 {
    match metric {
        Metric::LinksCreated => 0,
        Metric::HitsServed => 1,
        Metric::WebhookDeliveries => 2,
    }
}

/// In the view of `viewer`; `Uuid::max` less the key's id would sort newest first, so scans go backwards instead.
pub fn view(viewer: KeyId, key: KeyId) -> Vec<u8> {
    [viewer.0.as_bytes().as_slice(), key.0.as_bytes()].concat()
}

pub fn day(link: ShortId, day: Day) -> Vec<u8> {
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

pub fn label_row(link: ShortId, dimension: Dimension, row: LabelRow<'_>) -> Vec<u8> {
    let key = |kind: u8, rest: &[u8]| [link.0.as_slice(), &[dimension_number(dimension), kind], rest].concat();
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

pub fn due(due_at: Timestamp, id: DeliveryId) -> Vec<u8> {
    [due_at.0.to_be_bytes().as_slice(), &id.to_bytes()].concat()
}

pub fn delivery_day(link: ShortId, url_index: u8, day: Day) -> Vec<u8> {
    [link.0.as_slice(), &day.0.to_be_bytes(), &[url_index]].concat()
}

/// That a link has deliveries on a day: found by the day, when they are to go.
pub fn expiry(day: Day, link: ShortId) -> Vec<u8> {
    [day.0.to_be_bytes().as_slice(), &link.0].concat()
}

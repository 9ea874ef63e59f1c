//! The row with all counts of one link or key (`embedded/counts.rs`).
//!
//! The version, and a byte that tells whether the counts are in the row; then the number of days, the days, the number of
//! months and the months. A day is its number, the hits of each device, and its quarters with their length before them;
//! a month is its number, and its sheet with its length. Numbers are [`varint`]s, hits as in [`sheets`].
//!
//! The row is read and written for each link of a batch: reading borrows the labels.

use serde::{Deserialize, Serialize};

use super::{corrupt, quarters, sheets, split_version, unknown_version, varint};
use crate::domain::breakdown::{Dimension, Sheet, SheetLabel, kept_text};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::DeviceHits;
use crate::domain::quarters::QuarterHits;
use crate::domain::tally::Tally;
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "counts";
const VERSION: u8 = 2;

/// The lists of labels of version 1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DimensionV1 {
    Referrer,
    Country,
    Region,
    City,
}

impl From<DimensionV1> for Dimension {
    fn from(dimension: DimensionV1) -> Self {
        match dimension {
            DimensionV1::Referrer => Self::Referrer,
            DimensionV1::Country => Self::Country,
            DimensionV1::Region => Self::Region,
            DimensionV1::City => Self::City,
        }
    }
}

/// The content of a row, as 0.1.0 wrote it.
#[derive(Serialize, Deserialize)]
enum CountsV1<'a> {
    #[serde(borrow)]
    Inline(WholeV1<'a>),
    Spilled,
}

/// All counts of a link.
#[derive(Default, Serialize, Deserialize)]
struct WholeV1<'a> {
    /// Hits by day (since 1970-01-01) and device, in the order in which they came.
    days: Vec<(u32, [u64; 3])>,
    /// Hits by list, month (year × 12 + month counted from 0) and label, in the order in which they came.
    #[serde(borrow)]
    labels: Vec<(DimensionV1, u32, &'a str, u64)>,
}

/// All counts of a link or key.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WholeCounts<'a> {
    /// In the order in which they came.
    pub days: Vec<WholeDay>,
    /// What is counted of each month beside its days, in the order in which they came.
    pub months: Vec<(Month, Sheet<&'a str>)>,
}

/// Hits of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeDay {
    pub day: Day,
    pub devices: DeviceHits,
    /// Empty once they are not kept any more.
    pub quarters: QuarterHits,
}

/// The content of a row.
pub enum Counts<'a> {
    Inline(WholeCounts<'a>),
    /// Days and labels have rows of their own.
    Spilled,
}

const INLINE: u8 = 0;
/// The row of counts that are [`Counts::Spilled`].
pub const SPILLED_ROW: [u8; 2] = [VERSION, 1];

/// Writes the row of counts that are [`Counts::Inline`].
pub fn encode(counts: &WholeCounts<'_>) -> Vec<u8> {
    let mut row = Vec::with_capacity(128);
    row.extend([VERSION, INLINE]);
    varint::push(&mut row, counts.days.len() as u64);
    for WholeDay { day, devices, quarters } in &counts.days {
        varint::push(&mut row, u64::from(day.0));
        devices.0.iter().for_each(|tally| sheets::push_tally(&mut row, *tally));
        push_bytes(&mut row, &quarters::encode(quarters));
    }
    varint::push(&mut row, counts.months.len() as u64);
    for (month, sheet) in &counts.months {
        varint::push(&mut row, u64::from(month.0));
        push_bytes(&mut row, &sheets::encode(sheet));
    }
    row
}

fn push_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    varint::push(row, bytes.len() as u64);
    row.extend_from_slice(bytes);
}

pub fn decode(row: &[u8]) -> Result<Counts<'_>, StoreError> {
    match split_version(TABLE, row)? {
        (1, record) => Ok(match super::decode(TABLE, record)? {
            CountsV1::Inline(whole) => Counts::Inline(whole.into()),
            CountsV1::Spilled => Counts::Spilled,
        }),
        (VERSION, record) => match record {
            [INLINE, whole @ ..] => decode_whole(whole).map(Counts::Inline),
            _ if *row == SPILLED_ROW => Ok(Counts::Spilled),
            _ => Err(corrupt(TABLE, &"neither counts nor spilled")),
        },
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

fn decode_whole(mut bytes: &[u8]) -> Result<WholeCounts<'_>, StoreError> {
    let mut counts = WholeCounts::default();
    // Each takes some bytes: a number that is too large ends with the bytes.
    for _ in 0..take_number(&mut bytes)? {
        let day = Day(take_u32(&mut bytes)?);
        let mut devices = DeviceHits::default();
        for tally in &mut devices.0 {
            *tally = sheets::take_tally(&mut bytes).ok_or_else(|| corrupt(TABLE, &"not a count"))?;
        }
        counts.days.push(WholeDay { day, devices, quarters: quarters::decode(take_bytes(&mut bytes)?)? });
    }
    for _ in 0..take_number(&mut bytes)? {
        let month = Month(take_u32(&mut bytes)?);
        counts.months.push((month, sheets::decode_month(take_bytes(&mut bytes)?)?));
    }
    if bytes.is_empty() { Ok(counts) } else { Err(corrupt(TABLE, &"more bytes than counts")) }
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, StoreError> {
    varint::take(bytes).ok_or_else(|| corrupt(TABLE, &"not a number"))
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, StoreError> {
    u32::try_from(take_number(bytes)?).map_err(|error| corrupt(TABLE, &error))
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], StoreError> {
    let length = usize::try_from(take_number(bytes)?).map_err(|error| corrupt(TABLE, &error))?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or_else(|| corrupt(TABLE, &"a length beyond the end"))?;
    *bytes = rest;
    Ok(taken)
}

/// Hits by device as 0.1.0 counted them, which did not tell bots.
pub fn devices_v1(counts: [u64; 3]) -> DeviceHits {
    DeviceHits(counts.map(|all| Tally::of_total(all, 0)))
}

impl<'a> From<WholeV1<'a>> for WholeCounts<'a> {
    fn from(WholeV1 { days, labels }: WholeV1<'a>) -> Self {
        let day =
            |(day, devices)| WholeDay { day: Day(day), devices: devices_v1(devices), quarters: QuarterHits::default() };
        let mut counts = Self { days: days.into_iter().map(day).collect(), months: Vec::new() };
        for (dimension, month, label, count) in labels {
            let dimension = dimension.into();
            if let Some(label) = SheetLabel::of_text(dimension, kept_text(label)) {
                counts.month(Month(month)).add(dimension, label, Tally::of_total(count, 0));
            }
        }
        counts
    }
}

impl<'a> WholeCounts<'a> {
    /// The sheet of a month.
    pub fn month(&mut self, month: Month) -> &mut Sheet<&'a str> {
        let at = self.months.iter().position(|(known, _)| *known == month).unwrap_or_else(|| {
            self.months.push((month, Sheet::default()));
            self.months.len() - 1
        });
        &mut self.months[at].1
    }

    /// A day.
    pub fn day(&mut self, day: Day) -> &mut WholeDay {
        let at = self.days.iter().position(|known| known.day == day).unwrap_or_else(|| {
            self.days.push(WholeDay { day, devices: DeviceHits::default(), quarters: QuarterHits::default() });
            self.days.len() - 1
        });
        &mut self.days[at]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_that_released_versions_wrote() {
        let mut counts = WholeCounts::default();
        counts.day(Day(20_000)).devices.0[1] = Tally { persons: 2, bots: 1 };
        counts.day(Day(20_000)).quarters.add(7, Tally { persons: 2, bots: 1 });
        let label = SheetLabel::of_text(Dimension::Country, "DE").unwrap();
        counts.month(Month(24_000)).add(Dimension::Country, label, Tally { persons: 3, bots: 0 });
        let days = [1, 0xa0, 0x9c, 1, 0, 5, 1, 0, 4, 7, 2, 135, 1];
        let months = [1, 0xc0, 0xbb, 1, 5, 1, 0x11, b'D', b'E', 6];
        let row = [&[2, 0][..], &days, &months].concat();
        assert_eq!(encode(&counts), row);
        let Counts::Inline(read) = decode(&row).unwrap() else { panic!("not inline") };
        assert_eq!(read, counts);
        assert!(matches!(decode(&[2, 1]).unwrap(), Counts::Spilled));
        assert!(matches!(decode(&[1, 1]).unwrap(), Counts::Spilled));
        for damaged in [&[2][..], &[2, 2], &[2, 1, 0], &[2, 0], &row[..row.len() - 1], &[&row[..], &[0]].concat()] {
            assert!(decode(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn a_row_of_0_1_0_has_hits_of_persons() {
        let labels = vec![
            (DimensionV1::Country, 24_000, "DE", 3),
            (DimensionV1::Referrer, 24_000, "a.example", 2),
            (DimensionV1::Country, 24_001, "DE", 4),
            (DimensionV1::City, 24_000, "(other)", 1),
        ];
        let record = CountsV1::Inline(WholeV1 { days: vec![(20_000, [1, 2, 0])], labels });
        let row = super::super::encode(TABLE, 1, &record).unwrap();
        let Counts::Inline(read) = decode(&row).unwrap() else { panic!("not inline") };
        let persons = |persons| Tally { persons, bots: 0 };
        assert_eq!(read.days[0].devices.0, [persons(1), persons(2), persons(0)]);
        let month = |at: usize| {
            let (month, sheet) = &read.months[at];
            let entries = sheet.entries().iter();
            (
                month.0,
                entries.map(|of| (of.dimension, of.label.text(of.dimension), of.tally.persons)).collect::<Vec<_>>(),
            )
        };
        let first = vec![
            (Dimension::Referrer, Some("a.example"), 2),
            (Dimension::Country, Some("DE"), 3),
            (Dimension::City, None, 1),
        ];
        assert_eq!([month(0), month(1)], [(24_000, first), (24_001, vec![(Dimension::Country, Some("DE"), 4)])]);
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..4], 0..80)) {
            for version in [1, 2] {
                let row = [&[version, INLINE], &bytes[..]].concat();
                if let Ok(Counts::Inline(counts)) = decode(&row) {
                    let again = encode(&counts);
                    let Ok(Counts::Inline(read)) = decode(&again) else { panic!("not inline") };
                    prop_assert_eq!(read.days, counts.days);
                }
            }
        }
    }
}

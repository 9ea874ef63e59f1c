//! The row with all counts of one link (`embedded/counts.rs`).
//!
//! It is read and written for each link of a batch. So the store works on the record itself: reading borrows the labels
//! from the row, and writing allocates nothing.

use serde::{Deserialize, Serialize};

use super::{split_version, unknown_version};
use crate::domain::hit::Dimension;
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "counts";
const VERSION: u8 = 1;

written_enum! {
    /// A list of labels; its number is also in keys of rows and in columns.
    #[derive(PartialOrd, Ord)]
    #[serde(rename_all = "snake_case")]
    DimensionV1 for Dimension { Referrer, Country, Region, City }
}

/// The number of a dimension, in keys of rows and in columns.
pub fn dimension_number(dimension: Dimension) -> u8 {
    DimensionV1::from(dimension) as u8
}

/// The dimension of a number; `None` if a later version has added it.
pub fn dimension_from_number(number: u8) -> Option<Dimension> {
    Dimension::ALL.into_iter().find(|dimension| dimension_number(*dimension) == number)
}

/// The content of a row. `W` is a [`WholeV1`] or a reference to one.
#[derive(Serialize, Deserialize)]
pub enum CountsV1<W> {
    Inline(W),
    /// Days and labels have rows of their own.
    Spilled,
}

/// All counts of a link.
#[derive(Default, Serialize, Deserialize)]
pub struct WholeV1<'a> {
    /// Hits by day (since 1970-01-01) and device, in the order in which they came.
    pub days: Vec<(u32, [u64; 3])>,
    /// Hits by list, month (year × 12 + month counted from 0) and label, in the order in which they came.
    #[serde(borrow)]
    pub labels: Vec<(DimensionV1, u32, &'a str, u64)>,
}

pub fn encode(counts: &CountsV1<&WholeV1<'_>>) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, counts)
}

/// Writes the row into `buffer`; `None` if the buffer is too short.
pub fn encode_into<'a>(buffer: &'a mut [u8], counts: &CountsV1<&WholeV1<'_>>) -> Option<&'a [u8]> {
    super::encode_into(buffer, VERSION, counts)
}

pub fn decode(row: &[u8]) -> Result<CountsV1<WholeV1<'_>>, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => super::decode(TABLE, record),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_have_the_numbers_that_released_versions_wrote() {
        assert_eq!(Dimension::ALL.map(dimension_number), [0, 1, 2, 3]);
        assert_eq!(Dimension::ALL.map(|it| dimension_from_number(dimension_number(it))), Dimension::ALL.map(Some));
        assert_eq!(dimension_from_number(4), None);
    }
}

//! The rows of a sheet: one, or more where some dimensions are long.
//!
//! So a breakdown by one dimension reads that one and what is short, however long the others are.

use uuid::Uuid;

use crate::domain::breakdown::{Dimension, Sheet};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::HitSubject;
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::columns::{day as day_column, month as month_column};
use crate::store::records::sheets;

/// A sheet up to this length is one row.
const WHOLE_BYTES: usize = 4_096;
/// Of a longer one, dimensions beyond this length have rows of their own: what is left is short, too.
const SHORT_BYTES: usize = 256;

/// The number of the row that tells which others there are.
pub const WHOLE: i8 = 0;

/// The time of a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SheetSpan {
    Month(Month),
    Day(Day),
}

impl SheetSpan {
    pub const MONTHS: i8 = 0;
    pub const DAYS: i8 = 1;

    /// The columns `span` and `at`.
    pub fn columns(self) -> (i8, i32) {
        match self {
            Self::Month(month) => (Self::MONTHS, month_column(month)),
            Self::Day(day) => (Self::DAYS, day_column(day)),
        }
    }
}

/// The column `subject`.
pub fn subject_column(of: HitSubject) -> String {
    match of {
        HitSubject::Link(link) => link.as_str().to_owned(),
        HitSubject::Key(key) => key.0.to_string(),
    }
}

/// Whose hits the column `subject` names.
pub fn subject_of(column: &str) -> Option<HitSubject> {
    let link = ShortId::parse(column).map(HitSubject::Link);
    link.or_else(|| Uuid::parse_str(column).ok().map(|key| HitSubject::Key(KeyId(key))))
}

/// The number of the row of a dimension.
pub fn part_of(dimension: Dimension) -> i8 {
    // There are fifteen.
    i8::try_from(dimension as u8 + 1).unwrap_or(i8::MAX)
}

/// The dimension of a row; `None` for a row of a later version, and for the row [`WHOLE`].
pub fn dimension_of(part: i8) -> Option<Dimension> {
    part.checked_sub(1).and_then(|number| u8::try_from(number).ok()).and_then(Dimension::from_number)
}

/// The content of all rows of a sheet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SheetRows {
    /// Empty if it has no hits.
    whole: Vec<u8>,
    /// Long dimensions, in order.
    parts: Vec<(Dimension, Vec<u8>)>,
}

impl SheetRows {
    /// The rows of a sheet. As long as counts only grow, a dimension that has a row of its own keeps it.
    pub fn of<T: AsRef<str> + Clone>(sheet: &Sheet<T>) -> Self {
        let whole = sheets::encode(sheet);
        if whole.len() <= WHOLE_BYTES {
            return Self { whole, parts: Vec::new() };
        }
        let (mut rest, mut parts) = (Sheet::default(), Vec::new());
        rest.add_private(sheet.private());
        for dimension in Dimension::ALL {
            let mut alone = Sheet::default();
            sheet.of(dimension).for_each(|entry| alone.push(entry.clone()));
            let bytes = sheets::encode(&alone);
            if bytes.len() > SHORT_BYTES {
                parts.push((dimension, bytes));
            } else {
                alone.entries().iter().for_each(|entry| rest.push(entry.clone()));
            }
        }
        Self { whole: sheets::encode(&rest), parts }
    }

    /// From the rows that were read. Of `parts`, those are taken that `split` names.
    pub fn read(whole: Vec<u8>, split: i32, parts: impl IntoIterator<Item = (i8, Vec<u8>)>) -> Self {
        let is_named = |(dimension, _): &(Dimension, _)| split & bit_of(*dimension) != 0;
        let parts = parts.into_iter().filter_map(|(part, bytes)| Some((dimension_of(part)?, bytes)));
        Self { whole, parts: parts.filter(is_named).collect() }
    }

    /// The column `split`.
    pub fn split(&self) -> i32 {
        self.parts.iter().fold(0, |bits, (dimension, _)| bits | bit_of(*dimension))
    }

    /// All rows: their numbers and contents.
    pub fn rows(&self) -> impl Iterator<Item = (i8, &[u8])> {
        let parts = self.parts.iter().map(|(dimension, bytes)| (part_of(*dimension), &bytes[..]));
        std::iter::once((WHOLE, &self.whole[..])).chain(parts)
    }

    /// The rows to be written where `before` is written: that which names the others, and those that are new.
    pub fn changed_from(&self, before: &Self) -> impl Iterator<Item = (i8, &[u8])> {
        self.rows().filter(|(part, bytes)| *part == WHOLE || !before.rows().any(|known| known == (*part, *bytes)))
    }

    /// The content of each row, as a sheet of its own.
    pub fn sheets(&self) -> impl Iterator<Item = Result<Sheet<&str>, StoreError>> {
        self.rows().map(|(_, bytes)| sheets::decode_part(bytes))
    }

    /// The whole sheet.
    pub fn sheet(&self) -> Result<Sheet<&str>, StoreError> {
        let mut rows: Vec<Sheet<&str>> = self.sheets().collect::<Result<_, _>>()?;
        if rows.len() <= 1 {
            return Ok(rows.pop().unwrap_or_default());
        }
        let mut joined = Sheet::default();
        for row in &rows {
            joined.add_private(row.private());
        }
        for dimension in Dimension::ALL {
            rows.iter().flat_map(|row| row.of(dimension)).for_each(|entry| joined.push(entry.clone()));
        }
        Ok(joined)
    }

    /// The length of all rows.
    pub fn bytes(&self) -> usize {
        self.rows().map(|(_, bytes)| bytes.len()).sum()
    }
}

fn bit_of(dimension: Dimension) -> i32 {
    1 << dimension as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::breakdown::SheetLabel;
    use crate::domain::tally::Tally;

    /// So many labels of each of these dimensions.
    fn sheet(labels: &[(Dimension, usize)]) -> Sheet<String> {
        let mut sheet = Sheet::default();
        sheet.add_private(Tally { persons: 2, bots: 1 });
        for (dimension, count) in labels {
            for n in 0..*count {
                let label = SheetLabel::of_text(*dimension, format!("label {n}")).unwrap();
                sheet.add(*dimension, label, Tally { persons: n as u64 + 1, bots: n as u64 % 3 });
            }
        }
        sheet
    }

    fn same(sheet: &Sheet<String>, read: &Sheet<&str>) -> bool {
        let owned = |label: &SheetLabel<&str>| match label {
            SheetLabel::Code(code) => SheetLabel::Code(*code),
            SheetLabel::Country(letters) => SheetLabel::Country(*letters),
            SheetLabel::Text(text) => SheetLabel::Text((*text).to_owned()),
            SheetLabel::Other => SheetLabel::Other,
        };
        let entries = read.entries().iter().map(|entry| (entry.dimension, owned(&entry.label), entry.tally));
        sheet.private() == read.private()
            && sheet.entries().iter().map(|entry| (entry.dimension, entry.label.clone(), entry.tally)).eq(entries)
    }

    #[test]
    fn a_short_sheet_is_one_row_and_a_long_one_has_its_long_dimensions_apart() {
        let short = SheetRows::of(&sheet(&[(Dimension::City, 100), (Dimension::Referrer, 90)]));
        assert_eq!((short.split(), short.rows().count()), (0, 1));
        let long = sheet(&[(Dimension::City, 900), (Dimension::Referrer, 9), (Dimension::UtmTerm, 30)]);
        let rows = SheetRows::of(&long);
        assert_eq!(rows.split(), 1 << 3 | 1 << 11);
        assert_eq!(rows.rows().map(|(part, _)| part).collect::<Vec<_>>(), [0, 4, 12]);
        let (_, whole) = rows.rows().next().unwrap();
        assert!(whole.len() < WHOLE_BYTES);
        assert!(same(&long, &rows.sheet().unwrap()));
        assert_eq!(rows.bytes(), rows.rows().map(|(_, bytes)| bytes.len()).sum::<usize>());
    }

    #[test]
    fn only_rows_that_have_changed_are_written_again_beside_the_first() {
        let before = SheetRows::of(&sheet(&[(Dimension::City, 900), (Dimension::UtmTerm, 30)]));
        let after = SheetRows::of(&sheet(&[(Dimension::City, 900), (Dimension::UtmTerm, 31)]));
        assert_eq!(after.changed_from(&before).map(|(part, _)| part).collect::<Vec<_>>(), [0, 12]);
        assert_eq!(before.changed_from(&SheetRows::default()).count(), 3);
        assert_eq!(before.changed_from(&before).map(|(part, _)| part).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_row_that_the_first_does_not_name_is_left_out() {
        let rows = SheetRows::of(&sheet(&[(Dimension::City, 900), (Dimension::UtmTerm, 300)]));
        let parts = || rows.rows().skip(1).map(|(part, bytes)| (part, bytes.to_vec()));
        let (_, whole) = rows.rows().next().unwrap();
        assert_eq!(SheetRows::read(whole.to_vec(), rows.split(), parts()), rows);
        let read = SheetRows::read(whole.to_vec(), 1 << 3, parts());
        assert_eq!(read.rows().map(|(part, _)| part).collect::<Vec<_>>(), [0, 4]);
        assert!(SheetRows::read(Vec::new(), 0, parts()).sheet().unwrap().is_empty());
    }

    #[test]
    fn rows_have_the_numbers_that_are_stored() {
        let numbers = Dimension::ALL.map(part_of);
        assert_eq!(numbers.to_vec(), (1..=15).collect::<Vec<i8>>());
        assert_eq!(numbers.map(dimension_of), Dimension::ALL.map(Some));
        assert_eq!([WHOLE, 16, -1, i8::MIN].map(dimension_of), [None; 4]);
    }

    proptest! {
        #[test]
        fn a_sheet_is_read_as_it_was_written_and_rows_of_their_own_stay(
            counts in prop::collection::vec((0_usize..15, 0_usize..120), 0..8),
            more in prop::collection::vec((0_usize..15, 0_usize..120), 0..8),
        ) {
            let labels = |counts: &[(usize, usize)]| -> Vec<_> {
                counts.iter().map(|(at, count)| (Dimension::ALL[*at], *count)).collect()
            };
            let (mut labels, added) = (labels(&counts), labels(&more));
            let before = SheetRows::of(&sheet(&labels));
            prop_assert!(same(&sheet(&labels), &before.sheet().unwrap()));
            labels.extend(added);
            let after = SheetRows::of(&sheet(&labels));
            prop_assert!(same(&sheet(&labels), &after.sheet().unwrap()));
            prop_assert_eq!(after.split() & before.split(), before.split());
        }
    }
}

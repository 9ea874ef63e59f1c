//! Labels of hits. A label is one row for all months, and the first of a list stand in a row of their own, which is kept
//! up to date with every batch: what is shown of a link is read in one look-up a list, however many labels it has.
//!
//! That the first stay the first is exact because counts only grow: a label that is not among them can get there only by
//! hits of its own, and then it is at hand.

use std::collections::BTreeMap;

use fjall::Readable;
use serde::{Deserialize, Serialize};

use super::engine::{Engine, engine_error};
use super::parts;
use super::rows::{corrupt, counters, counters_row, decode, encode, label_key, label_list_size_key, label_top_key};
use super::transaction::Transaction;
use crate::domain::analytics::{Labelled, TOP, by_count};
use crate::domain::calendar::Month;
use crate::domain::hit::{Dimension, LabelCount, MAX_LABELS, OTHER_LABEL};
use crate::domain::link::ShortId;
use crate::store::StoreError;

pub const LABELS: &str = "labels";

/// Hosts have at most 253 bytes; the names of places come from a file of the operator's and may have any length. A longer
/// one counts as [`OTHER_LABEL`] instead of standing in the way of the whole batch for ever.
const MAX_LABEL_BYTES: usize = 1_024;
/// Months in a label's row: at 13 bytes each at the most, they fit behind the longest label.
const MAX_MONTHS: usize = 200;

/// A label's hits by month.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Months(pub BTreeMap<Month, u64>);

impl Months {
    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Puts the hits of what is long ago together.
    fn keep_short(&mut self) {
        while self.0.len() > MAX_MONTHS
            && let Some((_, count)) = self.0.pop_first()
            && let Some(mut oldest) = self.0.first_entry()
        {
            *oldest.get_mut() += count;
        }
    }
}

/// What is shown of a list.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Top {
    /// The first of its labels, in order.
    first: Vec<Labelled>,
    /// Hits under [`OTHER_LABEL`].
    other: u64,
}

impl Top {
    /// Takes note of a label's hits, which have not become fewer.
    fn note(&mut self, label: &str, total: u64) {
        if label == OTHER_LABEL {
            self.other = total;
            return;
        }
        if let Some(at) = self.first.iter().position(|(known, _)| known == label) {
            self.first[at].1 = total;
        } else if self.first.len() < TOP {
            self.first.push((label.to_owned(), total));
        } else if let Some(last) = self.first.last_mut()
            && by_count((label, total), (&last.0, last.1)).is_lt()
        {
            *last = (label.to_owned(), total);
        } else {
            return;
        }
        self.first.sort_unstable_by(|a, b| by_count((&a.0, a.1), (&b.0, b.1)));
    }
}

/// A list whose labels are being counted.
struct List<'a> {
    engine: &'a Engine,
    link: ShortId,
    dimension: Dimension,
    top: Top,
}

impl<'a> List<'a> {
    fn read(engine: &'a Engine, from: &impl Readable, link: ShortId, dimension: Dimension) -> Result<Self, StoreError> {
        let top = top(engine, from, link, dimension)?;
        Ok(Self { engine, link, dimension, top })
    }

    fn add(&mut self, transaction: &mut Transaction<'_>, row: &LabelCount) -> Result<(), StoreError> {
        let mut label = &*row.label;
        if !(1..=MAX_LABEL_BYTES).contains(&label.len()) {
            label = OTHER_LABEL;
        }
        let mut months = self.months(transaction, label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&row.month) && !self.find_room(transaction, row.month)? {
            label = OTHER_LABEL;
            months = self.months(transaction, label)?;
        }
        *months.0.entry(row.month).or_default() += row.count;
        months.keep_short();
        self.write(transaction, label, &months)
    }

    /// Makes a label's hits in a month what another store has counted.
    fn set(
        &mut self,
        transaction: &mut Transaction<'_>,
        label: &str,
        month: Month,
        count: u64,
    ) -> Result<(), StoreError> {
        let mut months = self.months(transaction, label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&month) {
            let size = self.size(transaction, month)?;
            transaction.insert(&self.engine.labels, self.size_key(month), counters_row([size + 1]))?;
        }
        months.0.insert(month, count);
        self.write(transaction, label, &months)
    }

    /// A place in the month's list for one more label, if there is one.
    fn find_room(&self, transaction: &mut Transaction<'_>, month: Month) -> Result<bool, StoreError> {
        let size = self.size(transaction, month)?;
        if size >= MAX_LABELS {
            return Ok(false);
        }
        transaction.insert(&self.engine.labels, self.size_key(month), counters_row([size + 1]))?;
        Ok(true)
    }

    fn size_key(&self, month: Month) -> Vec<u8> {
        label_list_size_key(self.link, self.dimension, month)
    }

    fn size(&self, from: &Transaction<'_>, month: Month) -> Result<u64, StoreError> {
        let row = from.get(&self.engine.labels, self.size_key(month)).map_err(|e| engine_error(&e))?;
        counters::<1>(LABELS, row).map(|[size]| size)
    }

    fn months(&self, from: &Transaction<'_>, label: &str) -> Result<Months, StoreError> {
        let key = label_key(self.link, self.dimension, label);
        let row = from.get(&self.engine.labels, key).map_err(|e| engine_error(&e))?;
        row.map_or_else(|| Ok(Months::default()), |row| decode(LABELS, &row))
    }

    fn write(&mut self, transaction: &mut Transaction<'_>, label: &str, months: &Months) -> Result<(), StoreError> {
        self.top.note(label, months.total());
        let key = label_key(self.link, self.dimension, label);
        transaction.insert(&self.engine.labels, key, encode(LABELS, months)?)
    }

    fn end(self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let row = encode(LABELS, &self.top)?;
        parts::insert(transaction, &self.engine.labels, &label_top_key(self.link, self.dimension), &row)
    }
}

/// Adds the labels of a batch; those of one list stand together there.
pub fn add(engine: &Engine, transaction: &mut Transaction<'_>, rows: &[LabelCount]) -> Result<(), StoreError> {
    for rows in rows.chunk_by(|a, b| (a.link, a.dimension) == (b.link, b.dimension)) {
        let mut list = List::read(engine, &**transaction, rows[0].link, rows[0].dimension)?;
        for row in rows {
            list.add(transaction, row)?;
        }
        list.end(transaction)?;
    }
    Ok(())
}

/// Makes a label's hits in a month what another store has counted.
pub fn set(
    engine: &Engine,
    transaction: &mut Transaction<'_>,
    (link, dimension): (ShortId, Dimension),
    label: &str,
    (month, count): (Month, u64),
) -> Result<(), StoreError> {
    let mut list = List::read(engine, &**transaction, link, dimension)?;
    list.set(transaction, label, month, count)?;
    list.end(transaction)
}

fn top(engine: &Engine, from: &impl Readable, link: ShortId, dimension: Dimension) -> Result<Top, StoreError> {
    let row = parts::get(LABELS, from, &engine.labels, &label_top_key(link, dimension))?;
    row.map_or_else(|| Ok(Top::default()), |row| decode(LABELS, &row))
}

/// What is shown of a list: its first labels, and [`OTHER_LABEL`] behind them where it has hits.
pub fn shown(
    engine: &Engine,
    from: &impl Readable,
    link: ShortId,
    dimension: Dimension,
) -> Result<Vec<Labelled>, StoreError> {
    let Top { mut first, other } = top(engine, from, link, dimension)?;
    if other > 0 {
        first.push((OTHER_LABEL.to_owned(), other));
    }
    Ok(first)
}

/// What a row says of a label, if it is a label's: of which it is, and its hits by month.
pub fn read<'a>(key: &'a [u8], value: &[u8]) -> Result<Option<(ShortId, Dimension, &'a str, Months)>, StoreError> {
    let Some((link, dimension, label)) = super::rows::label_of(key) else { return Ok(None) };
    let label = std::str::from_utf8(label).map_err(|error| corrupt(LABELS, &error))?;
    let dimension = Dimension::ALL.into_iter().find(|known| *known as u8 == dimension);
    let dimension = dimension.ok_or_else(|| corrupt(LABELS, &"not a dimension"))?;
    Ok(Some((link, dimension, label, decode(LABELS, value)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_of_growing_counts_are_those_of_all_of_them(
            hits in prop::collection::vec((0_u8..40, 1_u64..6), 1..400)
        ) {
            let (mut top, mut all) = (Top::default(), HashMap::<String, u64>::new());
            for (label, count) in hits {
                // As many ties as there can be, and labels that are each other's beginning.
                let label = "x".repeat(usize::from(label));
                let total = all.entry(label.clone()).or_default();
                *total += count;
                top.note(&label, *total);
                let mut expected: Vec<_> = all.clone().into_iter().collect();
                expected.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                expected.truncate(TOP);
                prop_assert_eq!(&top.first, &expected);
            }
        }
    }
}

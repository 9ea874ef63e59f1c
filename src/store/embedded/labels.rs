//! Labels of hits of links that are spread (see `counts`), in lists: one for each link and dimension.
//!
//! A list begins whole in one row, its head. Once it has more labels than are shown of a list, or they are long, it is split:
//! each label is one row for all months then, and the head has the first of them, and is brought up to date with every batch.
//! So what is shown of a list is read in one look-up, however many labels it has.
//!
//! That the first stay the first is exact because counts only grow: a label that is not among them can get there only by
//! hits of its own, and then it is at hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::Engine;
use super::overflow;
use super::transaction::{Rows, Transaction};
use crate::domain::analytics::{Labelled, TOP, by_count};
use crate::domain::calendar::Month;
use crate::domain::hit::{Dimension, LabelCount, MAX_LABELS, OTHER_LABEL};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::labels::{self as records, HeadV1, MonthsV1, TABLE, TopV1};
use crate::store::records::row_keys::{LabelRow, label_row, label_row_of};
use crate::store::records::{corrupt, counters, counts};
use crate::threads::give_way;

/// Hosts have at most 253 bytes; the names of places come from a file of the operator's and may have any length. A longer
/// one counts as [`OTHER_LABEL`] instead of standing in the way of the whole batch for ever.
const MAX_LABEL_BYTES: usize = 1_024;
/// The longest head of a list that stays whole: it is written anew with every batch.
const MAX_WHOLE_BYTES: usize = 1_024;
/// Months in a label's row: at 13 bytes each at the most, they fit behind the longest label.
const MAX_MONTHS: usize = 200;

impl MonthsV1 {
    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Adds hits, and puts those of what is long ago together.
    fn add(&mut self, month: Month, count: u64) {
        *self.0.entry(month.0).or_default() += count;
        while self.0.len() > MAX_MONTHS
            && let Some((_, count)) = self.0.pop_first()
            && let Some(mut oldest) = self.0.first_entry()
        {
            *oldest.get_mut() += count;
        }
    }
}

/// The label under which hits are kept.
pub fn kept(label: &str) -> &str {
    if (1..=MAX_LABEL_BYTES).contains(&label.len()) { label } else { OTHER_LABEL }
}

impl TopV1 {
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

impl HeadV1 {
    fn read(engine: &Engine, from: &impl Rows, link: ShortId, dimension: Dimension) -> Result<Self, StoreError> {
        let row = overflow::get(TABLE, from, &engine.tables.labels, &label_row(link, dimension, LabelRow::Head))?;
        row.map_or_else(|| Ok(Self::Inline(Vec::new())), |row| records::decode_head(&row))
    }

    fn top(self) -> TopV1 {
        match self {
            Self::Split(top) => top,
            Self::Inline(labels) => {
                let mut top = TopV1::default();
                for (label, months) in &labels {
                    top.note(label, months.total());
                }
                top
            }
        }
    }
}

/// A list whose labels are being counted.
struct LabelList<'a> {
    engine: &'a Engine,
    link: ShortId,
    dimension: Dimension,
    head: HeadV1,
}

impl<'a> LabelList<'a> {
    fn read(engine: &'a Engine, from: &impl Rows, link: ShortId, dimension: Dimension) -> Result<Self, StoreError> {
        Ok(Self { engine, link, dimension, head: HeadV1::read(engine, from, link, dimension)? })
    }

    fn add(&mut self, transaction: &mut Transaction<'_>, row: &LabelCount) -> Result<(), StoreError> {
        let mut label = kept(&row.label);
        if let Some(months) = self.in_whole(transaction, label)? {
            months.add(row.month, row.count);
            return Ok(());
        }
        let mut months = self.months(transaction, label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&row.month.0) && !self.find_room(transaction, row.month)? {
            label = OTHER_LABEL;
            months = self.months(transaction, label)?;
        }
        months.add(row.month, row.count);
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
        if let Some(months) = self.in_whole(transaction, label)? {
            months.0.insert(month.0, count);
            return Ok(());
        }
        let mut months = self.months(transaction, label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&month.0) {
            let size = self.size(transaction, month)?;
            transaction.insert(&self.engine.tables.labels, self.size_key(month), counters::encode([size + 1]))?;
        }
        months.0.insert(month.0, count);
        self.write(transaction, label, &months)
    }

    /// The label's hits where the list is whole and stays so with this label; else it is split from now on.
    fn in_whole(
        &mut self,
        transaction: &mut Transaction<'_>,
        label: &str,
    ) -> Result<Option<&mut MonthsV1>, StoreError> {
        let HeadV1::Inline(labels) = &self.head else { return Ok(None) };
        let at = labels.iter().position(|(known, _)| known == label);
        if at.is_none() && labels.len() == TOP {
            self.split(transaction)?;
        }
        let HeadV1::Inline(labels) = &mut self.head else { return Ok(None) };
        let at = at.unwrap_or_else(|| {
            labels.push((label.to_owned(), MonthsV1::default()));
            labels.len() - 1
        });
        Ok(Some(&mut labels[at].1))
    }

    /// Gives each label a row of its own.
    fn split(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let HeadV1::Inline(labels) = std::mem::replace(&mut self.head, HeadV1::Split(TopV1::default())) else {
            return Ok(());
        };
        let mut sizes = BTreeMap::<u32, u64>::new();
        for (label, months) in &labels {
            self.write(transaction, label, months)?;
            for month in months.0.keys().filter(|_| label != OTHER_LABEL) {
                *sizes.entry(*month).or_default() += 1;
            }
        }
        for (month, size) in sizes {
            transaction.insert(&self.engine.tables.labels, self.size_key(Month(month)), counters::encode([size]))?;
        }
        Ok(())
    }

    /// A place in the month's list for one more label, if there is one.
    fn find_room(&self, transaction: &mut Transaction<'_>, month: Month) -> Result<bool, StoreError> {
        let size = self.size(transaction, month)?;
        if size >= MAX_LABELS {
            return Ok(false);
        }
        transaction.insert(&self.engine.tables.labels, self.size_key(month), counters::encode([size + 1]))?;
        Ok(true)
    }

    fn size_key(&self, month: Month) -> Vec<u8> {
        label_row(self.link, self.dimension, LabelRow::Size(month))
    }

    fn size(&self, from: &Transaction<'_>, month: Month) -> Result<u64, StoreError> {
        let row = from.row(&self.engine.tables.labels, self.size_key(month))?;
        counters::decode::<1>(TABLE, row.as_deref()).map(|[size]| size)
    }

    fn months(&self, from: &Transaction<'_>, label: &str) -> Result<MonthsV1, StoreError> {
        let key = label_row(self.link, self.dimension, LabelRow::Label(label.as_bytes()));
        let row = from.row(&self.engine.tables.labels, key)?;
        row.map_or_else(|| Ok(MonthsV1::default()), |row| records::decode_months(&row))
    }

    fn write(&mut self, transaction: &mut Transaction<'_>, label: &str, months: &MonthsV1) -> Result<(), StoreError> {
        if let HeadV1::Split(top) = &mut self.head {
            top.note(label, months.total());
        }
        let key = label_row(self.link, self.dimension, LabelRow::Label(label.as_bytes()));
        transaction.insert(&self.engine.tables.labels, key, records::encode_months(months)?)
    }

    fn end(mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let mut row = records::encode_head(&self.head)?;
        if matches!(self.head, HeadV1::Inline(_)) && row.len() > MAX_WHOLE_BYTES {
            self.split(transaction)?;
            row = records::encode_head(&self.head)?;
        }
        let key = label_row(self.link, self.dimension, LabelRow::Head);
        overflow::insert(transaction, &self.engine.tables.labels, &key, &row)
    }
}

/// Adds the labels of a batch; those of one list stand together there.
pub fn add(engine: &Engine, transaction: &mut Transaction<'_>, rows: &[LabelCount]) -> Result<(), StoreError> {
    for rows in rows.chunk_by(|a, b| (a.link, a.dimension) == (b.link, b.dimension)) {
        let mut list = LabelList::read(engine, transaction, rows[0].link, rows[0].dimension)?;
        give_way();
        for row in rows {
            list.add(transaction, row)?;
        }
        list.end(transaction)?;
    }
    Ok(())
}

/// Makes a label's hits in a month what another store has counted.
pub fn set(engine: &Engine, transaction: &mut Transaction<'_>, row: &LabelCount) -> Result<(), StoreError> {
    let mut list = LabelList::read(engine, transaction, row.link, row.dimension)?;
    list.set(transaction, &row.label, row.month, row.count)?;
    list.end(transaction)
}

/// What is shown of a list: its first labels, and [`OTHER_LABEL`] behind them where it has hits.
pub fn shown(
    engine: &Engine,
    from: &impl Rows,
    link: ShortId,
    dimension: Dimension,
) -> Result<Vec<Labelled>, StoreError> {
    let TopV1 { mut first, other } = HeadV1::read(engine, from, link, dimension)?.top();
    if other > 0 {
        first.push((OTHER_LABEL.to_owned(), other));
    }
    Ok(first)
}

/// The labels that a row has, with their hits by month.
pub fn read(key: &[u8], value: &[u8]) -> Result<Vec<LabelCount>, StoreError> {
    let Some((link, dimension, row)) = label_row_of(key) else { return Ok(Vec::new()) };
    let dimension = counts::dimension_from_number(dimension);
    let dimension = dimension.ok_or_else(|| corrupt(TABLE, &"not a dimension"))?;
    let labels = match row {
        LabelRow::Size(_) => Vec::new(),
        LabelRow::Head => match overflow::head(TABLE, value)? {
            overflow::Head::Inline(head) => match records::decode_head(head)? {
                HeadV1::Inline(labels) => labels,
                HeadV1::Split(_) => Vec::new(),
            },
            // One that is long is split.
            overflow::Head::First { .. } => Vec::new(),
        },
        LabelRow::Label(label) => {
            let label = std::str::from_utf8(label).map_err(|error| corrupt(TABLE, &error))?;
            vec![(label.to_owned(), records::decode_months(value)?)]
        }
    };
    let counts = labels.into_iter().flat_map(|(label, months)| {
        let label: Arc<str> = label.into();
        let count =
            move |(month, count)| LabelCount { link, month: Month(month), dimension, label: Arc::clone(&label), count };
        months.0.into_iter().map(count)
    });
    Ok(counts.collect())
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
            let (mut top, mut all) = (TopV1::default(), HashMap::<String, u64>::new());
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

    /// A list in an engine, and what it has to say.
    struct BatchBase {
        engine: Engine,
        months: BTreeMap<(String, Month), u64>,
        _directory: tempfile::TempDir,
    }

    impl BatchBase {
        const LIST: (ShortId, Dimension) = (ShortId(*b"abcdefg"), Dimension::City);

        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let engine = Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0;
            Self { engine, months: BTreeMap::new(), _directory: directory }
        }

        fn add(&mut self, hits: &[(String, Month, u64)]) {
            let (link, dimension) = Self::LIST;
            let row = |(label, month, count): &(String, Month, u64)| LabelCount {
                link,
                month: *month,
                dimension,
                label: label.as_str().into(),
                count: *count,
            };
            let mut transaction = Transaction::begin(&self.engine);
            add(&self.engine, &mut transaction, &hits.iter().map(row).collect::<Vec<_>>()).unwrap();
            transaction.commit().unwrap();
            for (label, month, count) in hits {
                *self.months.entry((label.clone(), *month)).or_default() += count;
            }
        }

        fn agrees(&self) {
            let (link, dimension) = Self::LIST;
            let mut totals = BTreeMap::<&str, u64>::new();
            self.months.iter().for_each(|((label, _), count)| *totals.entry(label).or_default() += count);
            let mut expected: Vec<Labelled> = totals.into_iter().map(|(label, count)| (label.into(), count)).collect();
            expected.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            expected.truncate(TOP);
            let snapshot = self.engine.database.snapshot();
            assert_eq!(shown(&self.engine, &snapshot, link, dimension).unwrap(), expected);
            let rows = self.engine.tables.labels.iter().map(|row| row.into_inner().unwrap());
            let read = rows.flat_map(|(key, value)| read(&key, &value).unwrap());
            let read: Vec<_> = read.map(|row| ((row.label.as_ref().to_owned(), row.month), row.count)).collect();
            assert_eq!(read.len(), self.months.len(), "each once");
            assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), self.months);
        }

        fn is_split(&self) -> bool {
            let (link, dimension) = Self::LIST;
            let head = HeadV1::read(&self.engine, &self.engine.database.snapshot(), link, dimension).unwrap();
            matches!(head, HeadV1::Split(_))
        }
    }

    #[test]
    fn a_list_has_the_same_hits_before_and_after_it_is_split() {
        for label_bytes in [3, 150] {
            let mut ground = BatchBase::new();
            let (mut batches, mut labels) = (0_u32, 0_u32);
            // Some old labels and a new one each time, in months that come and go.
            while batches < 30 {
                let of =
                    |n: u32| (format!("{n:0label_bytes$}"), Month(24_000 + (n + batches) % 4), u64::from(n % 7 + 1));
                let hits: Vec<_> = [labels / 2, labels.saturating_sub(1), labels].map(of).to_vec();
                ground.add(&hits);
                ground.agrees();
                let too_long = (labels as usize + 1) * label_bytes > MAX_WHOLE_BYTES;
                assert_eq!(ground.is_split(), labels as usize >= TOP || too_long, "{labels} of {label_bytes}");
                batches += 1;
                labels += 1;
            }
        }
    }
}

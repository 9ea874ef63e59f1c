//! Labels of hits of links and keys whose counts are spilled (see `counts`), in lists: one for each of them and dimension.
//!
//! A list begins in one row, its head. Once it has more labels than are shown of a list, or they are long, it is split:
//! each label then has one row for all months, and the head has the top labels, updated with every batch. So the shown
//! labels are read in one look-up, however many labels the list has.
//!
//! The top labels are exact because counts only grow: a label outside the top can enter it only by new hits of its own,
//! and these update the head.

use std::collections::BTreeMap;
use std::sync::Arc;

use fjall::{Guard, Keyspace, Readable, Snapshot};

use super::database::engine_error;
use super::engine::Engine;
use super::overflow::{self, FirstRow};
use super::transaction::{RowReader, Transaction};
use crate::domain::analytics::{Labelled, TOP, by_count};
use crate::domain::breakdown::LabelList;
use crate::domain::calendar::Month;
use crate::domain::hit::{HitSubject, LabelCount, MAX_LABELS, OTHER_LABEL};
use crate::domain::tally::Tally;
use crate::store::StoreError;
use crate::store::records::labels::{self as records, HeadV2, MonthsV2, TABLE, TopV1};
use crate::store::records::row_keys::{LabelRow, label_row, label_row_of};
use crate::store::records::{corrupt, counters};
use crate::threads::yield_periodically;

/// Hosts have at most 253 bytes; the names of places come from a file of the operator and may have any length. A longer
/// one counts as [`OTHER_LABEL`], so that it cannot block the whole batch for ever.
const MAX_LABEL_BYTES: usize = 1_024;
/// The longest head of a list that is not split: it is rewritten with every batch.
const MAX_WHOLE_BYTES: usize = 1_024;
/// Months in a label's row: with at most 23 bytes each, they fit into a row with the longest label.
const MAX_MONTHS: usize = 120;

impl MonthsV2 {
    fn total(&self) -> u64 {
        self.0.values().map(|(persons, bots)| persons + bots).sum()
    }

    /// Adds hits, and merges the oldest months if there are too many.
    fn add(&mut self, month: Month, tally: Tally) {
        let (persons, bots) = self.0.entry(month.0).or_default();
        *persons += tally.persons;
        *bots += tally.bots;
        while self.0.len() > MAX_MONTHS
            && let Some((_, (persons, bots))) = self.0.pop_first()
            && let Some(mut oldest) = self.0.first_entry()
        {
            oldest.get_mut().0 += persons;
            oldest.get_mut().1 += bots;
        }
    }

    fn months(&self) -> impl Iterator<Item = (Month, Tally)> {
        self.0.iter().map(|(month, (persons, bots))| (Month(*month), Tally { persons: *persons, bots: *bots }))
    }
}

/// The label under which hits are counted.
pub fn kept(label: &str) -> &str {
    if (1..=MAX_LABEL_BYTES).contains(&label.len()) { label } else { OTHER_LABEL }
}

impl TopV1 {
    /// Updates a label's hits, which only grow.
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

impl HeadV2 {
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

/// The lists of labels.
#[derive(Clone)]
pub struct LabelTable {
    labels: Keyspace,
}

impl LabelTable {
    pub fn new(engine: &Engine) -> Self {
        Self { labels: engine.keyspaces.labels.clone() }
    }

    /// Adds hits to a list.
    pub fn add<L: AsRef<str>>(
        &self,
        transaction: &mut Transaction<'_>,
        (of, list): (HitSubject, LabelList),
        month: Month,
        labels: impl IntoIterator<Item = (L, Tally)>,
    ) -> Result<(), StoreError> {
        yield_periodically();
        let mut list = self.list(transaction, of, list)?;
        for (label, tally) in labels {
            list.add(label.as_ref(), month, tally)?;
        }
        list.end()
    }

    /// Replaces a label's hits in a month by those that another store has counted.
    pub fn set(&self, transaction: &mut Transaction<'_>, row: &LabelCount) -> Result<(), StoreError> {
        let mut list = self.list(transaction, row.of, row.list)?;
        list.set(&row.label, row.month, row.tally)?;
        list.end()
    }

    /// The shown labels of a list: the top labels by all of their hits, followed by [`OTHER_LABEL`] if it has hits.
    pub fn shown(&self, from: &impl RowReader, of: HitSubject, list: LabelList) -> Result<Vec<Labelled>, StoreError> {
        let TopV1 { mut first, other } = self.head(from, of, list)?.top();
        if other > 0 {
            first.push((OTHER_LABEL.to_owned(), other));
        }
        Ok(first)
    }

    /// Calls `read` with all labels of a list and their hits by month.
    pub fn each(
        &self,
        from: &Snapshot,
        of: HitSubject,
        list: LabelList,
        mut read: impl FnMut(&str, Month, Tally),
    ) -> Result<(), StoreError> {
        let mut read_all = |label: &str, months: &MonthsV2| {
            months.months().for_each(|(month, tally)| read(label, month, tally));
        };
        match self.head(from, of, list)? {
            HeadV2::Inline(labels) => labels.iter().for_each(|(label, months)| read_all(label, months)),
            HeadV2::Split(_) => {
                let prefix = label_row(of, list, LabelRow::Label(&[]));
                for row in from.prefix(&self.labels, &prefix) {
                    let (key, value) = Guard::into_inner(row).map_err(|e| engine_error(&e))?;
                    let label = str::from_utf8(&key[prefix.len()..]).map_err(|error| corrupt(TABLE, &error))?;
                    read_all(label, &records::decode_months(&value)?);
                }
            }
        }
        Ok(())
    }

    fn head(&self, from: &impl RowReader, of: HitSubject, list: LabelList) -> Result<HeadV2, StoreError> {
        let row = overflow::get(TABLE, from, &self.labels, &label_row(of, list, LabelRow::Head))?;
        row.map_or_else(|| Ok(HeadV2::Inline(Vec::new())), |row| records::decode_head(&row))
    }

    fn list<'a, 't>(
        &'a self,
        transaction: &'a mut Transaction<'t>,
        of: HitSubject,
        list: LabelList,
    ) -> Result<CountedList<'a, 't>, StoreError> {
        let head = self.head(transaction, of, list)?;
        Ok(CountedList { labels: &self.labels, transaction, of, list, head })
    }

    /// The labels in a row, with their hits by month.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Vec<LabelCount>, StoreError> {
        let Some((of, list, row)) = label_row_of(key) else { return Ok(Vec::new()) };
        let list = LabelList::from_number(list).ok_or_else(|| corrupt(TABLE, &"not a list"))?;
        let labels = match row {
            LabelRow::Size(_) => Vec::new(),
            LabelRow::Head => match overflow::first_row(TABLE, value)? {
                FirstRow::Whole(head) => match records::decode_head(head)? {
                    HeadV2::Inline(labels) => labels,
                    HeadV2::Split(_) => Vec::new(),
                },
                // A long head is always split.
                FirstRow::Begin { .. } => Vec::new(),
            },
            LabelRow::Label(label) => {
                let label = std::str::from_utf8(label).map_err(|error| corrupt(TABLE, &error))?;
                vec![(label.to_owned(), records::decode_months(value)?)]
            }
        };
        let counts = labels.into_iter().flat_map(|(label, months)| {
            let label: Arc<str> = label.into();
            let count = |(month, tally)| LabelCount { of, month, list, label: Arc::clone(&label), tally };
            months.months().map(count).collect::<Vec<_>>()
        });
        Ok(counts.collect())
    }
}

/// A list whose labels are being counted in a transaction.
struct CountedList<'a, 't> {
    labels: &'a Keyspace,
    transaction: &'a mut Transaction<'t>,
    of: HitSubject,
    list: LabelList,
    head: HeadV2,
}

impl CountedList<'_, '_> {
    fn add(&mut self, label: &str, month: Month, tally: Tally) -> Result<(), StoreError> {
        let mut label = kept(label);
        if let Some(months) = self.in_head(label)? {
            months.add(month, tally);
            return Ok(());
        }
        let mut months = self.months(label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&month.0) {
            let size = self.size(month)?;
            if size < MAX_LABELS {
                self.set_size(month, size + 1)?;
            } else {
                label = OTHER_LABEL;
                months = self.months(label)?;
            }
        }
        months.add(month, tally);
        self.write(label, &months)
    }

    fn set(&mut self, label: &str, month: Month, tally: Tally) -> Result<(), StoreError> {
        let counts = (tally.persons, tally.bots);
        if let Some(months) = self.in_head(label)? {
            months.0.insert(month.0, counts);
            return Ok(());
        }
        let mut months = self.months(label)?;
        if label != OTHER_LABEL && !months.0.contains_key(&month.0) {
            let size = self.size(month)?;
            self.set_size(month, size + 1)?;
        }
        months.0.insert(month.0, counts);
        self.write(label, &months)
    }

    /// The label's hits in the head, if the list is not split and need not be split for this label; else splits it.
    fn in_head(&mut self, label: &str) -> Result<Option<&mut MonthsV2>, StoreError> {
        let HeadV2::Inline(labels) = &self.head else { return Ok(None) };
        let at = labels.iter().position(|(known, _)| known == label);
        if at.is_none() && labels.len() == TOP {
            self.split()?;
        }
        let HeadV2::Inline(labels) = &mut self.head else { return Ok(None) };
        let at = at.unwrap_or_else(|| {
            labels.push((label.to_owned(), MonthsV2::default()));
            labels.len() - 1
        });
        Ok(Some(&mut labels[at].1))
    }

    /// Moves each label to a row of its own.
    fn split(&mut self) -> Result<(), StoreError> {
        let HeadV2::Inline(labels) = std::mem::replace(&mut self.head, HeadV2::Split(TopV1::default())) else {
            return Ok(());
        };
        let mut sizes = BTreeMap::<u32, u64>::new();
        for (label, months) in &labels {
            self.write(label, months)?;
            for month in months.0.keys().filter(|_| label != OTHER_LABEL) {
                *sizes.entry(*month).or_default() += 1;
            }
        }
        sizes.into_iter().try_for_each(|(month, size)| self.set_size(Month(month), size))
    }

    fn key(&self, row: LabelRow<'_>) -> Vec<u8> {
        label_row(self.of, self.list, row)
    }

    /// How many labels the list has in a month.
    fn size(&self, month: Month) -> Result<u64, StoreError> {
        let row = self.transaction.row(self.labels, self.key(LabelRow::Size(month)))?;
        counters::decode::<1>(TABLE, row.as_deref()).map(|[size]| size)
    }

    fn set_size(&mut self, month: Month, size: u64) -> Result<(), StoreError> {
        let key = self.key(LabelRow::Size(month));
        self.transaction.insert(self.labels, key, counters::encode([size]))
    }

    fn months(&self, label: &str) -> Result<MonthsV2, StoreError> {
        let row = self.transaction.row(self.labels, self.key(LabelRow::Label(label.as_bytes())))?;
        row.map_or_else(|| Ok(MonthsV2::default()), |row| records::decode_months(&row))
    }

    fn write(&mut self, label: &str, months: &MonthsV2) -> Result<(), StoreError> {
        if let HeadV2::Split(top) = &mut self.head {
            top.note(label, months.total());
        }
        let key = self.key(LabelRow::Label(label.as_bytes()));
        self.transaction.insert(self.labels, key, records::encode_months(months)?)
    }

    /// Writes the head, and splits the list if the head is too long.
    fn end(mut self) -> Result<(), StoreError> {
        let mut row = records::encode_head(&self.head)?;
        if matches!(self.head, HeadV2::Inline(_)) && row.len() > MAX_WHOLE_BYTES {
            self.split()?;
            row = records::encode_head(&self.head)?;
        }
        let key = self.key(LabelRow::Head);
        overflow::insert(self.transaction, self.labels, &key, &row)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::tables::EmbeddedTables;
    use super::*;
    use crate::domain::breakdown::Dimension;
    use crate::domain::link::ShortId;

    proptest! {
        #[test]
        fn the_first_of_growing_counts_are_those_of_all_of_them(
            hits in prop::collection::vec((0_u8..40, 1_u64..6), 1..400)
        ) {
            let (mut top, mut all) = (TopV1::default(), HashMap::<String, u64>::new());
            for (label, count) in hits {
                // Many ties, and labels that are prefixes of each other.
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

    /// A list in a store, and its expected content.
    struct ExpectedList {
        tables: EmbeddedTables,
        months: BTreeMap<(String, Month), u64>,
        _directory: tempfile::TempDir,
    }

    impl ExpectedList {
        const LIST: (HitSubject, LabelList) = (HitSubject::Link(ShortId(*b"abcdefg")), LabelList::Of(Dimension::City));

        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let tables = EmbeddedTables::open(&directory.path().join("store")).0;
            Self { tables, months: BTreeMap::new(), _directory: directory }
        }

        fn add(&mut self, hits: &[(String, Month, u64)]) {
            let mut transaction = Transaction::begin(&self.tables.engine);
            for (label, month, count) in hits {
                let added = [(label, Tally::of_total(*count, *count / 3))];
                self.labels().add(&mut transaction, Self::LIST, *month, added).unwrap();
            }
            transaction.commit().unwrap();
            for (label, month, count) in hits {
                *self.months.entry((label.clone(), *month)).or_default() += count;
            }
        }

        fn labels(&self) -> LabelTable {
            LabelTable::new(&self.tables.engine)
        }

        fn assert_content(&self) {
            let (of, list) = Self::LIST;
            let mut totals = BTreeMap::<&str, u64>::new();
            self.months.iter().for_each(|((label, _), count)| *totals.entry(label).or_default() += count);
            let mut expected: Vec<Labelled> = totals.into_iter().map(|(label, count)| (label.into(), count)).collect();
            expected.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            expected.truncate(TOP);
            assert_eq!(self.labels().shown(&self.tables.snapshot(), of, list).unwrap(), expected);
            let rows = self.tables.engine.keyspaces.labels.iter().map(|row| row.into_inner().unwrap());
            let read = rows.flat_map(|(key, value)| LabelTable::read(&key, &value).unwrap());
            let read: Vec<_> = read.map(|row| ((row.label.as_ref().to_owned(), row.month), row.tally.all())).collect();
            assert_eq!(read.len(), self.months.len(), "each once");
            assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), self.months);
            let mut each = BTreeMap::new();
            let read = |label: &str, month, tally: Tally| {
                each.insert((label.to_owned(), month), tally.all());
            };
            self.labels().each(&self.tables.snapshot(), of, list, read).unwrap();
            assert_eq!(each, self.months);
        }

        fn is_split(&self) -> bool {
            let (of, list) = Self::LIST;
            let head = self.labels().head(&self.tables.snapshot(), of, list).unwrap();
            matches!(head, HeadV2::Split(_))
        }
    }

    #[test]
    fn a_list_has_the_same_hits_before_and_after_it_is_split() {
        for label_bytes in [3, 150] {
            let mut list = ExpectedList::new();
            let (mut batches, mut labels) = (0_u32, 0_u32);
            // Some old labels and a new one each time, in changing months.
            while batches < 30 {
                let of =
                    |n: u32| (format!("{n:0label_bytes$}"), Month(24_000 + (n + batches) % 4), u64::from(n % 7 + 1));
                let hits: Vec<_> = [labels / 2, labels.saturating_sub(1), labels].map(of).to_vec();
                list.add(&hits);
                list.assert_content();
                let too_long = (labels as usize + 1) * label_bytes > MAX_WHOLE_BYTES;
                assert_eq!(list.is_split(), labels as usize >= TOP || too_long, "{labels} of {label_bytes}");
                batches += 1;
                labels += 1;
            }
        }
    }
}

//! The counts of a link: all in one row, while that is short.
//!
//! Most links have few hits, and with many links, most hits are of such a link. Then one row is read, written and
//! merged for each hit, instead of one for its day and one for each of its labels. A row that would become longer than
//! [`MOST_BYTES`] is spilled to the tables of days and of labels, and is marked as spilled from then on.
//! [`SpillBudget`] bounds how much a batch spills: rows that exceed the length beyond that are spilled by a later
//! batch.

use fjall::{Keyspace, Slice, Snapshot};

use super::days::{self, DayTable};
use super::engine::Engine;
use super::labels::{self, LabelTable};
use super::transaction::{MAX_ROW, RowReader, Transaction};
use crate::domain::analytics::shortened;
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{DayCount, Dimension, LabelCount, LinkHits};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::counts::{self as records, CountsV1, DimensionV1, WholeV1};

/// A longer row is to be spilled: this is the length of all rows that a hit of a spilled link with its place writes.
const MOST_BYTES: usize = 512;
/// A batch with more days and labels of a link spills it: each takes at least six bytes.
const MOST_ENTRIES: usize = MOST_BYTES / 6;

/// How many rows may still be written for links that are spilled. A link that no longer fits into any row is spilled
/// regardless.
struct SpillBudget(usize);

impl SpillBudget {
    /// As many as the longest batch writes itself.
    const BATCH: Self = Self(50_000);
    /// For few links.
    const UNLIMITED: Self = Self(usize::MAX);
}

/// Decodes a row. Without one, nothing is counted yet.
fn decode(row: Option<&Slice>) -> Result<CountsV1<WholeV1<'_>>, StoreError> {
    row.map_or_else(|| Ok(CountsV1::Inline(WholeV1::default())), |row| records::decode(row))
}

impl<'a> WholeV1<'a> {
    fn day(&mut self, day: Day) -> &mut [u64; 3] {
        let at = self.days.iter().position(|(known, _)| *known == day.0).unwrap_or_else(|| {
            self.days.push((day.0, [0; 3]));
            self.days.len() - 1
        });
        &mut self.days[at].1
    }

    fn label(&mut self, dimension: Dimension, month: Month, label: &'a str) -> &mut u64 {
        let dimension = DimensionV1::from(dimension);
        let is_it = |known: &(DimensionV1, u32, &str, u64)| (known.0, known.1, known.2) == (dimension, month.0, label);
        let at = self.labels.iter().position(is_it).unwrap_or_else(|| {
            self.labels.push((dimension, month.0, label, 0));
            self.labels.len() - 1
        });
        &mut self.labels[at].3
    }

    fn day_counts(&self, link: ShortId) -> Vec<DayCount> {
        self.days.iter().map(|(day, devices)| DayCount { link, day: Day(*day), devices: *devices }).collect()
    }

    fn label_counts(&self, link: ShortId) -> Vec<LabelCount> {
        let count = |(dimension, month, label, count): &(DimensionV1, u32, &str, u64)| LabelCount {
            link,
            month: Month(*month),
            dimension: (*dimension).into(),
            label: (*label).into(),
            count: *count,
        };
        self.labels.iter().map(count).collect()
    }

    /// The labels of a dimension as shown: the first ones.
    fn shown(&self, dimension: Dimension) -> Vec<(String, u64)> {
        let dimension = DimensionV1::from(dimension);
        let mut totals = Vec::<(&str, u64)>::new();
        for (_, _, label, count) in self.labels.iter().filter(|(of, ..)| *of == dimension) {
            match totals.iter_mut().find(|(known, _)| known == label) {
                Some((_, total)) => *total += count,
                None => totals.push((label, *count)),
            }
        }
        shortened(totals.into_iter().map(|(label, total)| (label.to_owned(), total)).collect())
    }

    fn entries(&self) -> usize {
        self.days.len() + self.labels.len()
    }
}

/// The counts of all links.
#[derive(Clone)]
pub struct CountTable {
    counts: Keyspace,
    days: DayTable,
    labels: LabelTable,
}

impl CountTable {
    pub fn new(engine: &Engine) -> Self {
        Self { counts: engine.keyspaces.counts.clone(), days: DayTable::new(engine), labels: LabelTable::new(engine) }
    }

    /// Counts a batch of many links.
    pub fn count_batch<'a, 't>(&'a self, transaction: &'a mut Transaction<'t>) -> LinkCounter<'a, 't> {
        LinkCounter { table: self, transaction, budget: SpillBudget::BATCH }
    }

    /// Counts what another store has counted.
    pub fn import<'a, 't>(&'a self, transaction: &'a mut Transaction<'t>) -> LinkCounter<'a, 't> {
        LinkCounter { table: self, transaction, budget: SpillBudget::UNLIMITED }
    }

    /// All hits of a link. With a snapshot, all rows that are read are of the same time.
    pub fn of_link(&self, snapshot: &Snapshot, link: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
        let row = self.row(snapshot, link)?;
        let dimensions = if with_labels { &Dimension::ALL[..] } else { &[] };
        match decode(row.as_ref())? {
            CountsV1::Spilled => {
                let labels = dimensions.iter().map(|of| self.labels.shown(snapshot, link, *of).map(|list| (*of, list)));
                Ok(LinkHits { days: self.days.of_link(snapshot, link)?, labels: labels.collect::<Result<_, _>>()? })
            }
            CountsV1::Inline(mut whole) => {
                whole.days.sort_unstable_by_key(|(day, _)| *day);
                let labels = dimensions.iter().map(|of| (*of, whole.shown(*of))).collect();
                let days = whole.days.into_iter().map(|(day, devices)| (Day(day), devices)).collect();
                Ok(LinkHits { days, labels })
            }
        }
    }

    /// The row of a link; there is none before its first hit.
    fn row(&self, from: &impl RowReader, link: ShortId) -> Result<Option<Slice>, StoreError> {
        from.row(&self.counts, link.0)
    }

    /// The days and labels in a link's row: none if they are spilled.
    pub fn read(link: ShortId, row: &[u8]) -> Result<(Vec<DayCount>, Vec<LabelCount>), StoreError> {
        match records::decode(row)? {
            CountsV1::Inline(whole) => Ok((whole.day_counts(link), whole.label_counts(link))),
            CountsV1::Spilled => Ok(Default::default()),
        }
    }
}

/// Counts hits of links in a transaction.
pub struct LinkCounter<'a, 't> {
    table: &'a CountTable,
    transaction: &'a mut Transaction<'t>,
    budget: SpillBudget,
}

impl LinkCounter<'_, '_> {
    /// Adds hits of one link, whose rows are of different days and labels.
    pub fn add(&mut self, link: ShortId, days: &[DayCount], labels: &[LabelCount]) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, link)?;
        if let CountsV1::Inline(mut whole) = decode(row.as_ref())? {
            if days.len() + labels.len() <= MOST_ENTRIES {
                for row in days {
                    days::add_up(whole.day(row.day), row.devices);
                }
                for row in labels {
                    *whole.label(row.dimension, row.month, labels::kept(&row.label)) += row.count;
                }
                return self.write(link, whole);
            }
            self.spill(link, whole)?;
        }
        self.table.days.add(self.transaction, days)?;
        self.table.labels.add(self.transaction, labels)
    }

    /// Replaces the hits of a day by those that another store has counted.
    pub fn set_day(&mut self, count: &DayCount) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, count.link)?;
        if let CountsV1::Inline(mut whole) = decode(row.as_ref())? {
            *whole.day(count.day) = count.devices;
            return self.write(count.link, whole);
        }
        self.table.days.set(self.transaction, count)
    }

    /// Replaces a label's hits in a month by those that another store has counted.
    pub fn set_label(&mut self, count: &LabelCount) -> Result<(), StoreError> {
        let row = self.table.row(self.transaction, count.link)?;
        if let CountsV1::Inline(mut whole) = decode(row.as_ref())? {
            if labels::kept(&count.label) == &*count.label {
                *whole.label(count.dimension, count.month, &count.label) = count.count;
                return self.write(count.link, whole);
            }
            self.spill(count.link, whole)?;
        }
        self.table.labels.set(self.transaction, count)
    }

    /// Writes the row, or spills it if it would be too long.
    fn write(&mut self, link: ShortId, whole: WholeV1<'_>) -> Result<(), StoreError> {
        let record = CountsV1::Inline(&whole);
        if let Some(row) = records::encode_into(&mut [0; MOST_BYTES], &record) {
            return self.transaction.insert(&self.table.counts, link.0, row);
        }
        if whole.entries() > self.budget.0
            && let Some(row) = records::encode_into(&mut [0; MAX_ROW - ShortId::LENGTH], &record)
        {
            return self.transaction.insert(&self.table.counts, link.0, row);
        }
        self.spill(link, whole)
    }

    fn spill(&mut self, link: ShortId, mut whole: WholeV1<'_>) -> Result<(), StoreError> {
        self.budget.0 = self.budget.0.saturating_sub(whole.entries());
        self.transaction.insert(&self.table.counts, link.0, records::encode(&CountsV1::Spilled)?)?;
        whole.labels.sort_by_key(|(dimension, ..)| *dimension);
        self.table.days.add(self.transaction, &whole.day_counts(link))?;
        self.table.labels.add(self.transaction, &whole.label_counts(link))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::days::add_up;
    use super::*;
    use crate::domain::hit::{HitBatch, NodeId, Position};
    use crate::store::embedded::hits;
    use crate::store::embedded::tables::EmbeddedTables;

    type ExpectedHits = (BTreeMap<Day, [u64; 3]>, BTreeMap<(Dimension, Month, String), u64>);

    fn open(directory: &tempfile::TempDir) -> EmbeddedTables {
        EmbeddedTables::open(&directory.path().join("store")).0
    }

    fn link(number: u64) -> ShortId {
        ShortId::parse(&format!("{number:07}")).unwrap()
    }

    /// Hits of links on a day: two days of rows, and labels as there are with places, some of them new each day.
    fn batch(links: u64, day: u32) -> HitBatch {
        let (day, month) = (Day(20_000 + day), Day(20_000 + day).month());
        let days = (0..links).map(|n| DayCount { link: link(n), day, devices: [n, 1, u64::from(day.0)] });
        let labels = (0..links).flat_map(|n| {
            let of = move |dimension, label: String| LabelCount {
                link: link(n),
                month,
                dimension,
                label: label.as_str().into(),
                count: n + 1,
            };
            [
                of(Dimension::Referrer, "direct".into()),
                of(Dimension::Referrer, format!("{}.example", day.0 % 5)),
                of(Dimension::City, format!("a city {}", day.0)),
            ]
        });
        HitBatch {
            writer: NodeId(uuid::Uuid::from_u128(1)),
            from: Position(u64::from(day.0 - 20_000)),
            upto: Position(u64::from(day.0 - 20_000 + 1)),
            days: days.collect(),
            labels: labels.collect(),
            served: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    fn write(tables: &EmbeddedTables, write: impl FnOnce(&mut Transaction<'_>)) {
        let mut transaction = Transaction::begin(&tables.engine);
        write(&mut transaction);
        transaction.commit().unwrap();
    }

    fn add_to(counted: &mut BTreeMap<ShortId, ExpectedHits>, batch: &HitBatch) {
        for row in &batch.days {
            add_up(counted.entry(row.link).or_default().0.entry(row.day).or_default(), row.devices);
        }
        for row in &batch.labels {
            let key = (row.dimension, row.month, row.label.as_ref().to_owned());
            *counted.entry(row.link).or_default().1.entry(key).or_default() += row.count;
        }
    }

    fn assert_hits(tables: &EmbeddedTables, counted: &BTreeMap<ShortId, ExpectedHits>) {
        for (link, (days, labels)) in counted {
            let hits = tables.counts.of_link(&tables.snapshot(), *link, true).unwrap();
            assert_eq!(hits.days, days.iter().map(|(day, devices)| (*day, *devices)).collect::<Vec<_>>());
            assert_eq!(hits.labels.iter().map(|(of, _)| *of).collect::<Vec<_>>(), Dimension::ALL);
            for (dimension, list) in hits.labels {
                let mut totals = BTreeMap::<String, u64>::new();
                let of_it = labels.iter().filter(|((of, ..), _)| *of == dimension);
                of_it.for_each(|((.., label), count)| *totals.entry(label.clone()).or_default() += count);
                assert_eq!(list, shortened(totals.into_iter().collect()), "{dimension:?}");
            }
            assert_eq!(tables.counts.of_link(&tables.snapshot(), *link, false).unwrap().labels, []);
        }
    }

    fn is_spilled(tables: &EmbeddedTables, link: ShortId) -> bool {
        let row = tables.counts.row(&tables.snapshot(), link).unwrap();
        matches!(decode(row.as_ref()).unwrap(), CountsV1::Spilled)
    }

    #[test]
    fn a_link_has_the_same_hits_before_and_after_its_row_is_spilled() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory);
        let mut counted = BTreeMap::new();
        let mut spilled_at = None;
        for day in 0..40 {
            let batch = batch(3, day);
            write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            assert_hits(&tables, &counted);
            if spilled_at.is_none() && is_spilled(&tables, link(0)) {
                spilled_at = Some(day);
            }
        }
        assert!(spilled_at.is_some_and(|day| (10..30).contains(&day)), "{spilled_at:?}");
        // A spilled row has no counts.
        let row = tables.counts.row(&tables.snapshot(), link(0)).unwrap().unwrap();
        assert_eq!(row.len(), 2);
    }

    #[test]
    fn rows_beyond_the_budget_of_a_batch_are_spilled_by_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory);
        let mut counted = BTreeMap::new();
        let length = |n: u64| tables.counts.row(&tables.snapshot(), link(n)).unwrap().unwrap().len();
        let mut add_all = |n: u32, budget: usize| {
            let batch = batch(2, n);
            write(&tables, |transaction| {
                let mut counting = LinkCounter { table: &tables.counts, transaction, budget: SpillBudget(budget) };
                for (link, days, labels) in hits::by_link(&batch.days, &batch.labels) {
                    counting.add(link, days, labels).unwrap();
                }
            });
            add_to(&mut counted, &batch);
            assert_hits(&tables, &counted);
        };
        (0..40).for_each(|n| add_all(n, 0));
        assert!((MOST_BYTES + 1..MAX_ROW).contains(&length(1)));
        // Enough for one of the two.
        add_all(40, 150);
        assert!(is_spilled(&tables, link(0)) && !is_spilled(&tables, link(1)));
        // Longer than any row may be.
        (41..300).for_each(|n| add_all(n, 0));
        assert!(is_spilled(&tables, link(1)));
    }

    #[test]
    fn a_label_that_does_not_fit_into_the_row_is_set_in_the_table_of_labels() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory);
        for (label, count) in [("Jena", 3), ("", 5)] {
            let count = LabelCount { label: label.into(), count, ..batch(1, 0).labels[0].clone() };
            write(&tables, |transaction| tables.counts.import(transaction).set_label(&count).unwrap());
        }
        let hits = tables.counts.of_link(&tables.snapshot(), link(0), true).unwrap();
        assert_eq!(hits.labels[0], (Dimension::Referrer, shortened(vec![("Jena".into(), 3), (String::new(), 5)])));
        assert!(is_spilled(&tables, link(0)));
    }

    #[test]
    fn a_batch_with_more_labels_than_fit_is_spilled() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory);
        let mut counted = BTreeMap::new();
        let (first, mut second) = (batch(1, 0), batch(1, 1));
        let few = second.labels[0].clone();
        second.labels.extend((0..500).map(|n| LabelCount { label: format!("{n}.example.org").into(), ..few.clone() }));
        for batch in [first, second] {
            write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            assert_hits(&tables, &counted);
        }
        assert!(is_spilled(&tables, link(0)));
    }

    #[test]
    fn hits_are_added_to_imported_counts() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory);
        let mut counted = BTreeMap::new();
        // So few that they fit into one row, and too many.
        for days in [2, 40] {
            for day in 0..days {
                let batch = batch(2, day);
                let is_new = days == 40 && day >= 2;
                write(&tables, |transaction| {
                    let mut counting = tables.counts.import(transaction);
                    // Twice: an interrupted import resumes a little before its end.
                    for _ in 0..2 {
                        batch.days.iter().for_each(|row| counting.set_day(row).unwrap());
                        batch.labels.iter().for_each(|row| counting.set_label(row).unwrap());
                    }
                });
                if days == 2 || is_new {
                    // A label of a month has the count of the last day.
                    for row in &batch.labels {
                        let key = (row.dimension, row.month, row.label.as_ref().to_owned());
                        counted.entry(row.link).or_insert_with(ExpectedHits::default).1.insert(key, row.count);
                    }
                    for row in &batch.days {
                        counted.entry(row.link).or_default().0.insert(row.day, row.devices);
                    }
                }
            }
            assert_hits(&tables, &counted);
            assert_eq!(is_spilled(&tables, link(1)), days == 40);
            let mut batch = batch(2, days);
            (batch.from, batch.upto) = (Position(u64::from(days / 40)), Position(u64::from(days / 40 + 1)));
            write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            assert_hits(&tables, &counted);
        }
    }
}

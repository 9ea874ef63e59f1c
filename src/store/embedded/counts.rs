//! What is counted of a link: all of it is one row, while that is short.
//!
//! Most links have few hits, and where links are many, most hits are of such a link. One row is then found, written, and merged
//! for a hit, where else its day and each of its labels would have one. A row that would become longer than [`MOST_BYTES`] is
//! spread over the tables of days and of labels, and says so from then on. How much of that a batch does is bounded by its
//! [`Spreading`]: what comes to be too long behind that is spread by a later one.

use fjall::{Slice, Snapshot};

use super::days;
use super::engine::Engine;
use super::labels;
use super::transaction::{MAX_ROW, Rows, Transaction};
use crate::domain::analytics::shortened;
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{DayCount, Dimension, LabelCount, LinkHits};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::counts::{self as records, CountsV1, DimensionV1, WholeV1};

/// A longer row is to be spread: this one is as long as those together are that a hit of a spread link with its place writes.
const MOST_BYTES: usize = 512;
/// A batch with more days and labels of a link spreads it: each takes six bytes at the least.
const MOST_ENTRIES: usize = MOST_BYTES / 6;

/// How many rows may still be made of those links that are spread. A link that no longer fits into any row is spread all the same.
pub struct Spreading(usize);

impl Spreading {
    /// As many as the longest batch has by itself.
    const OF_A_BATCH: Self = Self(50_000);
    /// For few links.
    const ANY: Self = Self(usize::MAX);
}

/// Reads a row. Without one, nothing is counted yet.
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

    /// As much of a list as is shown.
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

/// The row of a link, of which there is none before its first hit.
fn row(engine: &Engine, from: &impl Rows, link: ShortId) -> Result<Option<Slice>, StoreError> {
    from.row(&engine.tables.counts, link.0)
}

/// Counts hits of links in a transaction.
pub struct Counting<'a, 't> {
    engine: &'a Engine,
    transaction: &'a mut Transaction<'t>,
    spreading: Spreading,
}

impl<'a, 't> Counting<'a, 't> {
    /// For a batch of many links.
    pub fn of_batch(engine: &'a Engine, transaction: &'a mut Transaction<'t>) -> Self {
        Self { engine, transaction, spreading: Spreading::OF_A_BATCH }
    }

    /// For what another store has counted.
    pub fn of_import(engine: &'a Engine, transaction: &'a mut Transaction<'t>) -> Self {
        Self { engine, transaction, spreading: Spreading::ANY }
    }

    /// Adds hits of one link, whose rows are of different days and labels.
    pub fn add(&mut self, link: ShortId, days: &[DayCount], labels: &[LabelCount]) -> Result<(), StoreError> {
        let row = row(self.engine, self.transaction, link)?;
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
            self.spread(link, whole)?;
        }
        days::add(self.engine, self.transaction, days)?;
        labels::add(self.engine, self.transaction, labels)
    }

    /// Makes the hits of a day what another store has counted.
    pub fn set_day(&mut self, count: &DayCount) -> Result<(), StoreError> {
        let row = row(self.engine, self.transaction, count.link)?;
        if let CountsV1::Inline(mut whole) = decode(row.as_ref())? {
            *whole.day(count.day) = count.devices;
            return self.write(count.link, whole);
        }
        days::set(self.engine, self.transaction, count)
    }

    /// Makes a label's hits in a month what another store has counted.
    pub fn set_label(&mut self, count: &LabelCount) -> Result<(), StoreError> {
        let row = row(self.engine, self.transaction, count.link)?;
        if let CountsV1::Inline(mut whole) = decode(row.as_ref())? {
            if labels::kept(&count.label) == &*count.label {
                *whole.label(count.dimension, count.month, &count.label) = count.count;
                return self.write(count.link, whole);
            }
            self.spread(count.link, whole)?;
        }
        labels::set(self.engine, self.transaction, count)
    }

    /// Writes the row; one that would be too long is spread.
    fn write(&mut self, link: ShortId, whole: WholeV1<'_>) -> Result<(), StoreError> {
        let record = CountsV1::Inline(&whole);
        if let Some(row) = records::encode_into(&mut [0; MOST_BYTES], &record) {
            return self.transaction.insert(&self.engine.tables.counts, link.0, row);
        }
        if whole.entries() > self.spreading.0
            && let Some(row) = records::encode_into(&mut [0; MAX_ROW - ShortId::LENGTH], &record)
        {
            return self.transaction.insert(&self.engine.tables.counts, link.0, row);
        }
        self.spread(link, whole)
    }

    fn spread(&mut self, link: ShortId, mut whole: WholeV1<'_>) -> Result<(), StoreError> {
        self.spreading.0 = self.spreading.0.saturating_sub(whole.entries());
        self.transaction.insert(&self.engine.tables.counts, link.0, records::encode(&CountsV1::Spilled)?)?;
        whole.labels.sort_by_key(|(dimension, ..)| *dimension);
        days::add(self.engine, self.transaction, &whole.day_counts(link))?;
        labels::add(self.engine, self.transaction, &whole.label_counts(link))
    }
}

/// All hits of a link. The snapshot makes what is read in several rows one moment's.
pub fn of_link(engine: &Engine, snapshot: &Snapshot, link: ShortId, with_labels: bool) -> Result<LinkHits, StoreError> {
    let row = row(engine, snapshot, link)?;
    let dimensions = if with_labels { &Dimension::ALL[..] } else { &[] };
    match decode(row.as_ref())? {
        CountsV1::Spilled => {
            let labels = dimensions.iter().map(|of| labels::shown(engine, snapshot, link, *of).map(|list| (*of, list)));
            Ok(LinkHits { days: days::of_link(engine, snapshot, link)?, labels: labels.collect::<Result<_, _>>()? })
        }
        CountsV1::Inline(mut whole) => {
            whole.days.sort_unstable_by_key(|(day, _)| *day);
            let labels = dimensions.iter().map(|of| (*of, whole.shown(*of))).collect();
            let days = whole.days.into_iter().map(|(day, devices)| (Day(day), devices)).collect();
            Ok(LinkHits { days, labels })
        }
    }
}

/// The days and labels that a link's row holds: none where they are spread.
pub fn read(link: ShortId, row: &[u8]) -> Result<(Vec<DayCount>, Vec<LabelCount>), StoreError> {
    match records::decode(row)? {
        CountsV1::Inline(whole) => Ok((whole.day_counts(link), whole.label_counts(link))),
        CountsV1::Spilled => Ok(Default::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::hit::{HitBatch, NodeId, Position};
    use crate::store::embedded::hits;

    type Counted = (BTreeMap<Day, [u64; 3]>, BTreeMap<(Dimension, Month, String), u64>);

    fn open(directory: &tempfile::TempDir) -> Engine {
        Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0
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

    fn write(engine: &Engine, write: impl FnOnce(&mut Transaction<'_>)) {
        let mut transaction = Transaction::begin(engine);
        write(&mut transaction);
        transaction.commit().unwrap();
    }

    fn add_to(counted: &mut BTreeMap<ShortId, Counted>, batch: &HitBatch) {
        for row in &batch.days {
            days::add_up(counted.entry(row.link).or_default().0.entry(row.day).or_default(), row.devices);
        }
        for row in &batch.labels {
            let key = (row.dimension, row.month, row.label.as_ref().to_owned());
            *counted.entry(row.link).or_default().1.entry(key).or_default() += row.count;
        }
    }

    fn told(engine: &Engine, counted: &BTreeMap<ShortId, Counted>) {
        for (link, (days, labels)) in counted {
            let hits = hits::of_link(engine, *link, true).unwrap();
            assert_eq!(hits.days, days.iter().map(|(day, devices)| (*day, *devices)).collect::<Vec<_>>());
            assert_eq!(hits.labels.iter().map(|(of, _)| *of).collect::<Vec<_>>(), Dimension::ALL);
            for (dimension, list) in hits.labels {
                let mut totals = BTreeMap::<String, u64>::new();
                let of_it = labels.iter().filter(|((of, ..), _)| *of == dimension);
                of_it.for_each(|((.., label), count)| *totals.entry(label.clone()).or_default() += count);
                assert_eq!(list, shortened(totals.into_iter().collect()), "{dimension:?}");
            }
            assert_eq!(hits::of_link(engine, *link, false).unwrap().labels, []);
        }
    }

    fn is_spread(engine: &Engine, link: ShortId) -> bool {
        let row = row(engine, &engine.database.snapshot(), link).unwrap();
        matches!(decode(row.as_ref()).unwrap(), CountsV1::Spilled)
    }

    #[test]
    fn a_link_has_the_same_hits_before_and_after_its_row_is_spread() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        let mut counted = BTreeMap::new();
        let mut spread_at = None;
        for day in 0..40 {
            let batch = batch(3, day);
            write(&engine, |transaction| hits::apply(&engine, transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            told(&engine, &counted);
            if spread_at.is_none() && is_spread(&engine, link(0)) {
                spread_at = Some(day);
            }
        }
        assert!(spread_at.is_some_and(|day| (10..30).contains(&day)), "{spread_at:?}");
        // Once it is in the tables, nothing is left of it in the row.
        let row = row(&engine, &engine.database.snapshot(), link(0)).unwrap().unwrap();
        assert_eq!(row.len(), 2);
    }

    #[test]
    fn what_a_batch_may_not_spread_stays_in_its_row_and_a_later_one_spreads_it() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        let mut counted = BTreeMap::new();
        let length = |n: u64| row(&engine, &engine.database.snapshot(), link(n)).unwrap().unwrap().len();
        let mut add_all = |n: u32, spreading: usize| {
            let batch = batch(2, n);
            write(&engine, |transaction| {
                let mut counting = Counting { engine: &engine, transaction, spreading: Spreading(spreading) };
                for (link, days, labels) in hits::by_link(&batch.days, &batch.labels) {
                    counting.add(link, days, labels).unwrap();
                }
            });
            add_to(&mut counted, &batch);
            told(&engine, &counted);
        };
        (0..40).for_each(|n| add_all(n, 0));
        assert!((MOST_BYTES + 1..MAX_ROW).contains(&length(1)));
        // Enough for one of the two.
        add_all(40, 150);
        assert!(is_spread(&engine, link(0)) && !is_spread(&engine, link(1)));
        // Longer than any row may be.
        (41..300).for_each(|n| add_all(n, 0));
        assert!(is_spread(&engine, link(1)));
    }

    #[test]
    fn a_label_that_no_row_has_by_itself_is_set_in_rows_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        for (label, count) in [("Jena", 3), ("", 5)] {
            let count = LabelCount { label: label.into(), count, ..batch(1, 0).labels[0].clone() };
            write(&engine, |transaction| Counting::of_import(&engine, transaction).set_label(&count).unwrap());
        }
        let hits = hits::of_link(&engine, link(0), true).unwrap();
        assert_eq!(hits.labels[0], (Dimension::Referrer, shortened(vec![("Jena".into(), 3), (String::new(), 5)])));
        assert!(is_spread(&engine, link(0)));
    }

    #[test]
    fn a_batch_with_more_labels_than_fit_is_counted_in_rows_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        let mut counted = BTreeMap::new();
        let (first, mut second) = (batch(1, 0), batch(1, 1));
        let few = second.labels[0].clone();
        second.labels.extend((0..500).map(|n| LabelCount { label: format!("{n}.example.org").into(), ..few.clone() }));
        for batch in [first, second] {
            write(&engine, |transaction| hits::apply(&engine, transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            told(&engine, &counted);
        }
        assert!(is_spread(&engine, link(0)));
    }

    #[test]
    fn what_another_store_has_counted_stands_where_hits_are_added_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory);
        let mut counted = BTreeMap::new();
        // Few enough for one row, and too many.
        for days in [2, 40] {
            for day in 0..days {
                let batch = batch(2, day);
                let is_new = days == 40 && day >= 2;
                write(&engine, |transaction| {
                    let mut counting = Counting::of_import(&engine, transaction);
                    // Twice: an import that was interrupted goes on a little before the place.
                    for _ in 0..2 {
                        batch.days.iter().for_each(|row| counting.set_day(row).unwrap());
                        batch.labels.iter().for_each(|row| counting.set_label(row).unwrap());
                    }
                });
                if days == 2 || is_new {
                    // A label of a month is set to what the last day says.
                    for row in &batch.labels {
                        let key = (row.dimension, row.month, row.label.as_ref().to_owned());
                        counted.entry(row.link).or_insert_with(Counted::default).1.insert(key, row.count);
                    }
                    for row in &batch.days {
                        counted.entry(row.link).or_default().0.insert(row.day, row.devices);
                    }
                }
            }
            told(&engine, &counted);
            assert_eq!(is_spread(&engine, link(1)), days == 40);
            let mut batch = batch(2, days);
            (batch.from, batch.upto) = (Position(u64::from(days / 40)), Position(u64::from(days / 40 + 1)));
            write(&engine, |transaction| hits::apply(&engine, transaction, &batch).unwrap());
            add_to(&mut counted, &batch);
            told(&engine, &counted);
        }
    }
}

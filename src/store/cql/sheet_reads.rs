//! Reads sheets of all nodes: breakdowns, and the top lists of a link.
//!
//! Who counts writes the days after the sheets. So days are read first: the labels of their hits are in the sheets that
//! are read then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use futures_util::future::{try_join, try_join_all};
use uuid::Uuid;

use super::cluster::Cluster;
use super::days;
use super::label_rows::{self, LabelRow};
use super::sheet_rows::{SheetRows, SheetSpan, WHOLE, part_of, subject_column};
use crate::domain::analytics::{Labelled, shortened};
use crate::domain::breakdown::{Breakdown, BreakdownRange, Dimension, MonthSpan, Sheet, SheetLabel, kept_text};
use crate::domain::calendar::{Day, Month};
use crate::domain::hit::{HitSubject, MAX_LABELS, OTHER_LABEL};
use crate::domain::link::ShortId;
use crate::domain::tally::{BotFilter, Tally};
use crate::store::StoreError;
use crate::store::records::columns::{day as day_column, month as month_column, month_from};

/// The sheets of one month or day, a writer each.
pub type SheetsOfWriters = Vec<(Uuid, SheetRows)>;

/// A label, if it is known, and its hits.
type LabelTally<'a> = (Option<&'a str>, Tally);

/// The first of all months and days, and one that comes after all of them.
const EVER: Range<i32> = 0..i32::MAX;

/// The sheets of months or days in `range`, by month or day. Of long dimensions, those in `dimensions` are read.
pub async fn read(
    cluster: &Cluster,
    of: HitSubject,
    span: i8,
    range: Range<i32>,
    dimensions: &[Dimension],
) -> Result<BTreeMap<i32, SheetsOfWriters>, StoreError> {
    type FoundRow = (i8, i32, Uuid, Option<Vec<u8>>, Option<i32>);
    let parts: Vec<i8> = std::iter::once(WHOLE).chain(dimensions.iter().map(|it| part_of(*it))).collect();
    let values = (subject_column(of), span, parts, range.start, range.end);
    // Together, as they were written together: a dimension is in one of the rows of its sheet.
    let rows: Vec<FoundRow> = cluster.cql.read_at_once(&cluster.statements.sheets, values).await?;
    let mut first = Vec::new();
    let mut others = HashMap::<(i32, Uuid), Vec<(i8, Vec<u8>)>>::new();
    for (part, at, writer, bytes, split) in rows {
        let bytes = bytes.unwrap_or_default();
        if part == WHOLE {
            first.push((at, writer, bytes, split.unwrap_or(0)));
        } else {
            others.entry((at, writer)).or_default().push((part, bytes));
        }
    }
    let mut found = BTreeMap::<i32, SheetsOfWriters>::new();
    for (at, writer, whole, split) in first {
        let rows = SheetRows::read(whole, split, others.remove(&(at, writer)).unwrap_or_default());
        found.entry(at).or_default().push((writer, rows));
    }
    Ok(found)
}

/// The months or days that have sheets.
pub async fn places(cluster: &Cluster, of: HitSubject, span: i8) -> Result<BTreeSet<i32>, StoreError> {
    let rows: Vec<(i32,)> = cluster.cql.read(&cluster.statements.sheet_places, (subject_column(of), span)).await?;
    Ok(rows.into_iter().map(|(at,)| at).collect())
}

/// The lists of one month over all nodes.
pub struct MonthLists<'a> {
    /// In parts.
    sheets: Vec<Sheet<&'a str>>,
    /// Of nodes of 0.1.0.
    rows: Vec<&'a LabelRow>,
}

impl<'a> MonthLists<'a> {
    /// A node's sheet counts instead of its rows.
    pub fn of(sheets: Option<&'a SheetsOfWriters>, rows: Option<&'a Vec<LabelRow>>) -> Result<Self, StoreError> {
        let of_writers = sheets.into_iter().flatten();
        let with_sheets: HashSet<Uuid> = of_writers.clone().map(|(writer, _)| *writer).collect();
        let sheets = of_writers.flat_map(|(_, rows)| rows.sheets()).collect::<Result<_, _>>()?;
        let rows = rows.into_iter().flatten().filter(|row| !with_sheets.contains(&row.writer)).collect();
        Ok(Self { sheets, rows })
    }

    pub fn private(&self) -> Tally {
        self.sheets.iter().map(Sheet::private).sum()
    }

    /// The labels of a dimension. Each may come several times.
    fn labels(&self, dimension: Dimension) -> Vec<LabelTally<'_>> {
        let in_sheets = self.sheets.iter().flat_map(|sheet| sheet.of(dimension));
        let in_sheets = in_sheets.map(|entry| (entry.label.text(dimension), entry.tally));
        // As they are in the sheet that takes them over.
        let in_rows = self.rows.iter().filter(|row| row.dimension == dimension).map(|row| {
            let text = kept_text(&row.label);
            let is_known = !matches!(SheetLabel::of_text(dimension, text), None | Some(SheetLabel::Other));
            (is_known.then_some(text), Tally { persons: row.count, bots: 0 })
        });
        in_sheets.chain(in_rows).collect()
    }

    /// The labels of a dimension. Each node keeps as many as a list may have; of all together, the rarest beyond that
    /// number count as other. Which ones does not depend on whose hits are asked for.
    pub fn bounded_labels(&self, dimension: Dimension) -> Vec<LabelTally<'_>> {
        let labels = self.labels(dimension);
        let bound = usize::try_from(MAX_LABELS).unwrap_or(usize::MAX);
        if labels.len() <= bound {
            return labels;
        }
        let mut sums = HashMap::<Option<&str>, Tally>::new();
        for (label, tally) in labels {
            *sums.entry(label).or_default() += tally;
        }
        let mut other = sums.remove(&None).unwrap_or_default();
        let mut list: Vec<_> = sums.into_iter().collect();
        if list.len() > bound {
            list.sort_unstable_by(|(a, of_a), (b, of_b)| of_b.all().cmp(&of_a.all()).then_with(|| a.cmp(b)));
            other += list.drain(bound..).map(|(_, tally)| tally).sum();
        }
        list.push((None, other));
        list
    }
}

/// All months that have sheets or rows.
pub fn months_of(sheets: &BTreeMap<i32, SheetsOfWriters>, rows: &BTreeMap<Month, Vec<LabelRow>>) -> BTreeSet<Month> {
    sheets.keys().map(|month| month_from(*month)).chain(rows.keys().copied()).collect()
}

/// The hits of a link or key by a dimension.
pub async fn breakdown(
    cluster: &Cluster,
    of: HitSubject,
    dimension: Dimension,
    range: BreakdownRange,
) -> Result<Breakdown, StoreError> {
    let mut breakdown = Breakdown::of(dimension);
    let until = range.until().unwrap_or(Day(u32::MAX));
    for (_, devices) in days::between(cluster, of, range.from().unwrap_or(Day(0)), until).await? {
        breakdown.add_day(devices);
    }
    // Devices are counted by day.
    if dimension != Dimension::Device {
        add_labels(cluster, of, dimension, range, &mut breakdown).await?;
    }
    Ok(breakdown)
}

async fn add_labels(
    cluster: &Cluster,
    of: HitSubject,
    dimension: Dimension,
    range: BreakdownRange,
    breakdown: &mut Breakdown,
) -> Result<(), StoreError> {
    let (reads, dimensions) = (range.reads(), [dimension]);
    let span_of = |months: MonthSpan| {
        let [first, end] = [months.first, months.end].map(|month| month.map(month_column));
        first.unwrap_or(EVER.start)..end.unwrap_or(EVER.end)
    };
    let months = async {
        let Some(months) = reads.months else { return Ok(Default::default()) };
        let sheets = read(cluster, of, SheetSpan::MONTHS, span_of(months), &dimensions);
        let rows = async {
            match of {
                HitSubject::Link(link) if Dimension::LISTED.contains(&dimension) => {
                    label_rows::of_link(cluster, link, |month| months.has(month)).await
                }
                _ => Ok(BTreeMap::new()),
            }
        };
        try_join(sheets, rows).await
    };
    let of_days = reads.days.iter().map(|days| {
        let days = day_column(days.start)..day_column(days.end);
        read(cluster, of, SheetSpan::DAYS, days, &dimensions)
    });
    let ((sheets, rows), days) = try_join(months, try_join_all(of_days)).await?;
    for month in months_of(&sheets, &rows) {
        let lists = MonthLists::of(sheets.get(&month_column(month)), rows.get(&month))?;
        breakdown.add_private(lists.private());
        for (label, tally) in lists.bounded_labels(dimension) {
            breakdown.add_label(label.unwrap_or(OTHER_LABEL), tally);
        }
    }
    for (_, rows) in days.iter().flat_map(BTreeMap::values).flatten() {
        for sheet in rows.sheets() {
            breakdown.add_sheet(&sheet?);
        }
    }
    Ok(())
}

/// The top labels of a link's lists, by the hits that `bots` means.
pub async fn top_labels(
    cluster: &Cluster,
    link: ShortId,
    bots: BotFilter,
) -> Result<Vec<(Dimension, Vec<Labelled>)>, StoreError> {
    let sheets = read(cluster, HitSubject::Link(link), SheetSpan::MONTHS, EVER, &Dimension::LISTED);
    let (sheets, rows) = try_join(sheets, label_rows::of_link(cluster, link, |_| true)).await?;
    let months = months_of(&sheets, &rows);
    let lists = months.iter().map(|month| MonthLists::of(sheets.get(&month_column(*month)), rows.get(month)));
    let lists: Vec<MonthLists<'_>> = lists.collect::<Result<_, _>>()?;
    let top = |dimension| {
        let mut sums = HashMap::<&str, u64>::new();
        for (label, tally) in lists.iter().flat_map(|lists| lists.bounded_labels(dimension)) {
            *sums.entry(label.unwrap_or(OTHER_LABEL)).or_default() += bots.of(tally);
        }
        let counted = sums.into_iter().filter(|(_, count)| *count > 0);
        (dimension, shortened(counted.map(|(label, count)| (label.to_owned(), count)).collect()))
    };
    Ok(Dimension::LISTED.map(top).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(labels: &[(&str, u64, u64)]) -> SheetRows {
        let mut sheet = Sheet::default();
        for (label, persons, bots) in labels {
            let label = SheetLabel::of_text(Dimension::City, *label).unwrap();
            sheet.add(Dimension::City, label, Tally { persons: *persons, bots: *bots });
        }
        SheetRows::of(&sheet)
    }

    /// By label; the other ones under an empty one.
    fn sums(lists: &MonthLists<'_>) -> BTreeMap<String, Tally> {
        let mut sums = BTreeMap::<String, Tally>::new();
        for (label, tally) in lists.bounded_labels(Dimension::City) {
            *sums.entry(label.unwrap_or_default().to_owned()).or_default() += tally;
        }
        sums
    }

    #[test]
    fn of_the_labels_of_all_nodes_the_rarest_beyond_the_bound_count_as_other() {
        let names: Vec<String> = (0..1_500_u64).map(|n| format!("city {n:04}")).collect();
        let cities = |from: usize, count: usize| -> Vec<(&str, u64, u64)> {
            names[from..from + count].iter().map(|name| (name.as_str(), 1, 2)).collect()
        };
        let mut second = cities(500, 1_000);
        second.push((OTHER_LABEL, 7, 0));
        let writers = vec![(Uuid::from_u128(1), rows(&cities(0, 600))), (Uuid::from_u128(2), rows(&second))];
        let sums = sums(&MonthLists::of(Some(&writers), None).unwrap());
        assert_eq!(sums.len(), 1_001);
        assert_eq!(sums["city 0500"], Tally { persons: 2, bots: 4 });
        assert_eq!(sums["city 0899"], Tally { persons: 1, bots: 2 });
        assert!(!sums.contains_key("city 1400"));
        assert_eq!(sums[""], Tally { persons: 7 + 500, bots: 1_000 });
    }

    #[test]
    fn a_sheet_counts_instead_of_the_rows_of_its_writer() {
        let row = |writer, label: &str, count| LabelRow {
            writer: Uuid::from_u128(writer),
            dimension: Dimension::City,
            label: label.into(),
            count,
            upto: 0,
        };
        let old = vec![row(1, "Jena", 5), row(2, "Jena", 3), row(2, OTHER_LABEL, 2)];
        let writers = vec![(Uuid::from_u128(1), rows(&[("Jena", 10, 1)]))];
        let sums = sums(&MonthLists::of(Some(&writers), Some(&old)).unwrap());
        let expected = [("", Tally { persons: 2, bots: 0 }), ("Jena", Tally { persons: 13, bots: 1 })];
        assert_eq!(sums, expected.map(|(label, tally)| (label.to_owned(), tally)).into());
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::domain::analytics::shortened;
use crate::domain::breakdown::BreakdownRange;
use crate::domain::breakdown::MAX_SHEET_TEXTS;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{DeviceHits, HitBatch, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::series::{SeriesParameters, SeriesRange, quarters_kept_until};
use crate::domain::tally::BotFilter;
use crate::store::embedded::analytics::CountReader;
use crate::store::embedded::tables::EmbeddedTables;

const FIRST: u32 = 20_000;
const KEY: HitSubject = HitSubject::Key(KeyId(uuid::Uuid::from_u128(0x0194_0000_0000_7000_8000_0000_0000_0001)));

/// What is expected of a link or key.
#[derive(Default)]
struct ExpectedHits {
    days: BTreeMap<Day, (DeviceHits, QuarterHits)>,
    labels: BTreeMap<(LabelList, Month, String), Tally>,
    sheets: BTreeMap<(Day, Dimension, String), Tally>,
}

type Expected = BTreeMap<HitSubject, ExpectedHits>;

fn open(directory: &tempfile::TempDir) -> EmbeddedTables {
    EmbeddedTables::open(&directory.path().join("store")).0
}

fn link(number: u64) -> HitSubject {
    HitSubject::Link(ShortId::parse(&format!("{number:07}")).unwrap())
}

/// Hits of a day with labels, all of them of desktops.
fn day_hits(of: HitSubject, day: Day, labels: &[(Dimension, &str, u64, u64)]) -> DayHits {
    let (mut sheet, mut hits) = (Sheet::default(), Tally::default());
    for (dimension, label, persons, bots) in labels {
        let tally = Tally { persons: *persons, bots: *bots };
        sheet.add(*dimension, SheetLabel::of_text(*dimension, Arc::from(*label)).unwrap(), tally);
        hits += tally;
    }
    sheet.add(Dimension::Device, SheetLabel::Code(0), hits);
    let mut quarters = QuarterHits::default();
    quarters.add(u8::try_from(day.0 % 96).unwrap(), hits);
    DayHits { of, day, devices: DeviceHits([hits, Tally::default(), Tally::default()]), quarters, sheet }
}

/// Hits of links and of a key on a day, with labels of which some are new each day.
fn batch(links: u64, day: u32) -> HitBatch {
    let (from, day) = (u64::from(day), Day(FIRST + day));
    let subjects = (0..links).map(link).chain([KEY]);
    let days = subjects.zip(1..).map(|(of, n)| {
        let labels = [
            (Dimension::Referrer, "direct", n, 0),
            (Dimension::Referrer, &*format!("{}.example", day.0 % 5), 0, n),
            (Dimension::City, &*format!("a city {}", day.0), n, 1),
            (Dimension::Browser, "safari", n, 0),
        ];
        let mut hits = day_hits(of, day, &labels);
        hits.sheet.add_private(Tally { persons: n, bots: 0 });
        hits
    });
    HitBatch {
        writer: NodeId(uuid::Uuid::from_u128(1)),
        from: Position(from),
        upto: Position(from + 1),
        days: days.collect(),
        served: Vec::new(),
        deliveries: Vec::new(),
    }
}

fn write<R>(tables: &EmbeddedTables, write: impl FnOnce(&mut Transaction<'_>) -> R) {
    let mut transaction = Transaction::begin(&tables.engine);
    write(&mut transaction);
    transaction.commit().unwrap();
}

fn add_to(expected: &mut Expected, batch: &HitBatch) {
    for hits in &batch.days {
        let of = expected.entry(hits.of).or_default();
        let day = of.days.entry(hits.day).or_default();
        day.0 += hits.devices;
        day.1.add_all(&hits.quarters);
        for (list, label, tally) in labels_of(&hits.sheet) {
            *of.labels.entry((list, hits.day.month(), label.to_owned())).or_default() += tally;
        }
        for entry in hits.sheet.entries() {
            let label = label_text(&entry.label, entry.dimension).to_owned();
            *of.sheets.entry((hits.day, entry.dimension, label)).or_default() += entry.tally;
        }
    }
    let newest = batch.days.iter().map(|hits| hits.day).max().unwrap();
    for (day, (_, quarters)) in expected.values_mut().flat_map(|of| &mut of.days) {
        if quarters_kept_until(*day) <= newest.start() {
            *quarters = QuarterHits::default();
        }
    }
}

fn assert_hits(tables: &EmbeddedTables, expected: &Expected) {
    let snapshot = tables.snapshot();
    for (of, expected) in expected {
        let reader = CountReader { table: &tables.counts, snapshot: &snapshot, of: *of };
        let mut days = BTreeMap::new();
        reader.all_days(|count| drop(days.insert(count.day, (count.devices, count.quarters)))).unwrap();
        assert_eq!(days, expected.days, "{of:?}");
        let mut labels = BTreeMap::new();
        for list in (0..=15).filter_map(LabelList::from_number) {
            let read = |label: &str, month, tally| *labels.entry((list, month, label.to_owned())).or_default() += tally;
            reader.all_labels(list, read).unwrap();
        }
        assert_eq!(labels, expected.labels, "{of:?}");
        let mut sheets = BTreeMap::new();
        let row = tables.counts.row(&snapshot, *of).unwrap();
        let counts = decode(row.as_ref()).unwrap();
        for day in expected.days.keys() {
            let read = |sheet: &Sheet<&str>| {
                for entry in sheet.entries() {
                    let label = label_text(&entry.label, entry.dimension).to_owned();
                    sheets.insert((*day, entry.dimension, label), entry.tally);
                }
            };
            tables.counts.each_sheet(&snapshot, (*of, &counts), *day..Day(day.0 + 1), read).unwrap();
        }
        assert_eq!(sheets, expected.sheets, "{of:?}");
        let HitSubject::Link(link) = *of else { continue };
        for bots in BotFilter::ALL {
            let hits = CountReader::link_hits(&tables.counts, &snapshot, link, Some(bots)).unwrap();
            for (dimension, list) in hits.labels {
                let mut totals = BTreeMap::<String, u64>::new();
                let of_it = expected.labels.iter().filter(|((of, ..), _)| *of == LabelList::Of(dimension));
                of_it.for_each(|((.., label), tally)| *totals.entry(label.clone()).or_default() += bots.of(*tally));
                totals.retain(|_, total| *total > 0);
                assert_eq!(list, shortened(totals.into_iter().collect()), "{dimension:?} {bots:?}");
            }
        }
    }
}

fn is_spilled(tables: &EmbeddedTables, of: HitSubject) -> bool {
    let row = tables.counts.row(&tables.snapshot(), of).unwrap();
    matches!(decode(row.as_ref()).unwrap(), Counts::Spilled)
}

#[test]
fn a_link_has_the_same_hits_before_and_after_its_row_is_spilled() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let mut expected = Expected::default();
    let mut spilled_at = None;
    // Longer than quarters are kept.
    for day in 0..90 {
        let batch = batch(3, day);
        write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
        add_to(&mut expected, &batch);
        assert_hits(&tables, &expected);
        if spilled_at.is_none() && is_spilled(&tables, link(0)) {
            spilled_at = Some(day);
        }
    }
    assert!(spilled_at.is_some_and(|day| (15..50).contains(&day)), "{spilled_at:?}");
    assert!(is_spilled(&tables, KEY));
    // A spilled row has no counts.
    let row = tables.counts.row(&tables.snapshot(), link(0)).unwrap().unwrap();
    assert_eq!(*row, SPILLED_ROW);
}

#[test]
fn rows_beyond_the_budget_of_a_batch_are_spilled_by_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let mut expected = Expected::default();
    let length = |n: u64| tables.counts.row(&tables.snapshot(), link(n)).unwrap().unwrap().len();
    let mut add_all = |n: u32, budget: usize| {
        let mut batch = batch(2, n);
        batch.days.retain(|hits| hits.of != KEY);
        write(&tables, |transaction| {
            let mut counting =
                HitAdder { table: &tables.counts, transaction, budget: SpillBudget(budget), is_import: false };
            batch.days.iter().for_each(|hits| counting.add(hits.of, std::slice::from_ref(hits)).unwrap());
        });
        add_to(&mut expected, &batch);
        assert_hits(&tables, &expected);
    };
    (0..50).for_each(|n| add_all(n, 0));
    assert!((MOST_BYTES + 1..MAX_ROW).contains(&length(1)), "{}", length(1));
    // Enough for one of the two.
    add_all(50, 150);
    assert!(is_spilled(&tables, link(0)) && !is_spilled(&tables, link(1)));
    // Longer than any row may be.
    (51..250).for_each(|n| add_all(n, 0));
    assert!(is_spilled(&tables, link(1)));
}

#[test]
fn a_label_that_does_not_fit_into_the_row_is_set_in_the_table_of_labels() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let month = Day(FIRST).month();
    let (long, list) = ("x".repeat(200), LabelList::Of(Dimension::Referrer));
    for (label, persons) in [("jena.example", 3), (&*long, 5)] {
        let count = LabelCount { of: link(0), month, list, label: label.into(), tally: Tally { persons, bots: 1 } };
        write(&tables, |transaction| tables.counts.import(transaction).set_label(&count).unwrap());
    }
    let HitSubject::Link(id) = link(0) else { unreachable!() };
    let hits = CountReader::link_hits(&tables.counts, &tables.snapshot(), id, Some(BotFilter::Include)).unwrap();
    assert_eq!(hits.labels[0], (Dimension::Referrer, vec![(long, 6), ("jena.example".into(), 4)]));
    assert!(is_spilled(&tables, link(0)));
}

#[test]
fn a_batch_with_more_labels_than_fit_is_spilled() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let mut expected = Expected::default();
    let mut second = batch(1, 1);
    let labels: Vec<String> = (0..MOST_ENTRIES).map(|n| format!("{n}.example.org")).collect();
    let labels: Vec<_> = labels.iter().map(|label| (Dimension::UtmTerm, label.as_str(), 1, 0)).collect();
    second.days[0] = day_hits(link(0), Day(FIRST + 1), &labels[..MAX_SHEET_TEXTS]);
    second.days.insert(1, day_hits(link(0), Day(FIRST + 2), &labels[MAX_SHEET_TEXTS..]));
    for batch in [batch(1, 0), second] {
        write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
        add_to(&mut expected, &batch);
        assert_hits(&tables, &expected);
    }
    assert!(is_spilled(&tables, link(0)));
}

#[test]
fn hits_are_added_to_imported_counts() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let source_directory = tempfile::tempdir().unwrap();
    let source = open(&source_directory);
    let mut expected = Expected::default();
    // So few that they fit into one row, and too many.
    for days in [2, 60] {
        for day in (0..days).filter(|day| days == 2 || *day >= 2) {
            let batch = batch(2, day);
            write(&source, |transaction| source.hits.apply(transaction, &batch).unwrap());
            add_to(&mut expected, &batch);
        }
        let snapshot = source.snapshot();
        for of in expected.keys().copied() {
            let reader = CountReader { table: &source.counts, snapshot: &snapshot, of };
            let (mut day_counts, mut label_counts) = (Vec::new(), Vec::new());
            reader.all_days(|count| day_counts.push(count)).unwrap();
            for list in (0..=15).filter_map(LabelList::from_number) {
                let read = |label: &str, month, tally| {
                    label_counts.push(LabelCount { of, month, list, label: label.into(), tally });
                };
                reader.all_labels(list, read).unwrap();
            }
            write(&tables, |transaction| {
                // Twice: an interrupted import resumes a little before its end.
                for _ in 0..2 {
                    let mut counting = tables.counts.import(transaction);
                    for row in &day_counts {
                        counting.set_day(row).unwrap();
                    }
                    for row in &label_counts {
                        counting.set_label(row).unwrap();
                    }
                    for day in &day_counts {
                        let bytes = source.counts.sheets.bytes(&snapshot, day.day, of).unwrap().unwrap();
                        let sheet = crate::store::records::sheets::decode(&bytes).unwrap();
                        tables.counts.sheets.set(transaction, of, day.day, &sheet).unwrap();
                    }
                }
            });
        }
        assert_hits(&tables, &expected);
        assert_eq!(is_spilled(&tables, link(1)), days == 60);
    }
    let mut next = batch(2, 60);
    (next.from, next.upto) = (Position(0), Position(1));
    write(&tables, |transaction| tables.hits.apply(transaction, &next).unwrap());
    add_to(&mut expected, &next);
    assert_hits(&tables, &expected);
}

#[test]
fn series_and_breakdowns_add_up_to_all_hits_before_and_after_the_row_is_spilled() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let mut total = 0;
    for day in 0..70 {
        let batch = batch(1, day);
        total += batch.days[0].devices.total().all();
        write(&tables, |transaction| tables.hits.apply(transaction, &batch).unwrap());
        let now = Timestamp(Day(FIRST + day).start().0 + 1);
        let snapshot = tables.snapshot();
        let reader = CountReader { table: &tables.counts, snapshot: &snapshot, of: link(0) };
        let from = Day(FIRST).to_string();
        let parameters = SeriesParameters { from: Some(&from), ..SeriesParameters::default() };
        let series = SeriesRange::parse(parameters, now).unwrap();
        let counts = BotFilter::ALL.map(|bots| reader.series(&series, bots).unwrap().total);
        assert_eq!((counts[0], counts[1] + counts[2]), (total, total));
        for dimension in Dimension::ALL {
            // Of all days, and of the last ones.
            for (from, all) in [(None, total), (Some(Day(FIRST + day)), batch.days[0].devices.total().all())] {
                let from = from.map(|day| day.to_string());
                let range = BreakdownRange::parse(from.as_deref(), None, now, 90).unwrap();
                for bots in BotFilter::ALL {
                    let breakdown = reader.breakdown(dimension, range).unwrap().answer(bots, 1_000);
                    let labels: u64 = breakdown.labels.iter().map(|(_, count)| count).sum();
                    let sum = labels + breakdown.other + breakdown.none + breakdown.private + breakdown.more;
                    assert_eq!(sum, breakdown.total, "{dimension:?}");
                    assert!(bots != BotFilter::Include || sum == all, "{dimension:?} {range:?}");
                }
            }
        }
    }
}

#[test]
fn sheets_of_old_days_are_removed_together() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    (0..5).for_each(|day| write(&tables, |transaction| tables.hits.apply(transaction, &batch(2, day)).unwrap()));
    let mut is_any = true;
    while is_any {
        write(&tables, |transaction| {
            is_any = tables.counts.sheets.remove(transaction, Day(FIRST + 3)).unwrap();
        });
    }
    let kept = |day| tables.counts.sheets.bytes(&tables.snapshot(), Day(FIRST + day), link(0)).unwrap().is_some();
    assert_eq!([0, 1, 2, 3, 4].map(kept), [false, false, false, true, true]);
}

#[test]
fn the_sheet_of_an_only_day_is_bounded_whether_it_is_in_the_row_of_all_counts_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let labels: Vec<String> = (0..MAX_SHEET_TEXTS + 9).map(|n| format!("{n:04x}")).collect();
    let labels: Vec<_> = labels.iter().map(|label| (Dimension::UtmTerm, label.as_str(), 1, 0)).collect();
    let texts_of_day = || {
        let (snapshot, of) = (tables.snapshot(), link(0));
        let row = tables.counts.row(&snapshot, of).unwrap();
        let mut numbers = Vec::new();
        let read = |sheet: &Sheet<&str>| numbers.push((sheet.of(Dimension::UtmTerm).count(), sheet.hits().all()));
        tables
            .counts
            .each_sheet(&snapshot, (of, &decode(row.as_ref()).unwrap()), Day(FIRST)..Day(FIRST + 1), read)
            .unwrap();
        (is_spilled(&tables, of), numbers)
    };
    let hits = labels.len() as u64;
    // Too long for a row, and with a budget that does not let it spill.
    for (budget, spilled) in [(0, false), (50_000, true)] {
        write(&tables, |transaction| {
            let mut counting =
                HitAdder { table: &tables.counts, transaction, budget: SpillBudget(budget), is_import: false };
            let added = if spilled { &labels[..1] } else { &labels[..] };
            counting.add(link(0), &[day_hits(link(0), Day(FIRST), added)]).unwrap();
        });
        // With one entry for all others.
        assert_eq!(texts_of_day(), (spilled, vec![(MAX_SHEET_TEXTS + 1, hits + u64::from(spilled))]));
    }
}

#[test]
fn a_sheet_of_an_old_day_that_is_written_late_is_removed_too() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(&directory);
    let (sheets, before) = (&tables.counts.sheets, Day(FIRST + 40));
    let set = |day: u32| {
        let sheet = day_hits(link(0), Day(FIRST + day), &[(Dimension::Referrer, "direct", 1, 0)]).sheet;
        write(&tables, |transaction| sheets.set(transaction, link(0), Day(FIRST + day), &sheet).unwrap());
    };
    let is_there = |day: u32| sheets.bytes(&tables.snapshot(), Day(FIRST + day), link(0)).unwrap().is_some();
    for day in [20, 10, 30] {
        set(day);
        set(50);
        assert!(is_there(day));
        write(&tables, |transaction| sheets.remove(transaction, before).unwrap());
        assert!(!is_there(day) && is_there(50), "{day}");
    }
}

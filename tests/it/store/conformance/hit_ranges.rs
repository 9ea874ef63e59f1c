//! Series and breakdowns of links and keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use signpost::clock::Clock;
use signpost::domain::breakdown::{BreakdownAnswer, BreakdownRange, Dimension, MAX_SHEET_TEXTS};
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::hit::{HitBatch, HitSubject, Position};
use signpost::domain::series::{SeriesParameters, SeriesRange};
use signpost::domain::tally::BotFilter;
use signpost::store::Store;

use super::{Ground, reopened};
use crate::store::hit_model::{HitModel, days_of, same_hits};
use crate::store::samples::{DAY, batch, by_key, counted, day, key_id, label, node, short_id};

/// As by default.
const SHEET_DAYS: u32 = 90;
/// More than a breakdown has.
const ALL_LABELS: usize = 100_000;

fn breakdown_range(from: Option<Day>, until: Option<Day>, now: Timestamp) -> BreakdownRange {
    let [from, until] = [from, until].map(|day| day.map(|day| day.to_string()));
    BreakdownRange::parse(from.as_deref(), until.as_deref(), now, SHEET_DAYS).unwrap()
}

fn series_range(query: [Option<&str>; 4], now: Timestamp) -> SeriesRange {
    let [from, until, interval, timezone] = query;
    SeriesRange::parse(SeriesParameters { from, until, interval, timezone }, now).unwrap()
}

async fn breakdown(
    store: &Arc<dyn Store>,
    of: HitSubject,
    dimension: Dimension,
    range: BreakdownRange,
    bots: BotFilter,
) -> BreakdownAnswer {
    store.breakdown(of, dimension, range).await.unwrap().answer(bots, ALL_LABELS)
}

/// Whole months, some days, and a day alone.
fn breakdown_ranges(now: Timestamp) -> Vec<BreakdownRange> {
    let today = now.day();
    let tomorrow = Day(today.0 + 1);
    let first_of = |day: Day| day.month().start().day();
    [
        (None, None),
        (Some(first_of(today.minus(250))), None),
        (Some(first_of(today.minus(250))), Some(first_of(today))),
        (Some(today.minus(85)), None),
        (Some(today.minus(85)), Some(today.minus(1))),
        (None, Some(today.minus(20))),
        (Some(today), Some(tomorrow)),
        (Some(today.minus(12)), Some(today.minus(11))),
        (Some(today.minus(12)), Some(today)),
    ]
    .into_iter()
    .filter(|(from, until)| from.is_none_or(|from| from < until.unwrap_or(tomorrow)))
    .map(|(from, until)| breakdown_range(from, until, now))
    .collect()
}

fn series_ranges(now: Timestamp) -> Vec<SeriesRange> {
    let [year_ago, day_of_weeks_ago] = [400, 33].map(|ago| now.minus(DAY * ago).day().to_string());
    [
        [None; 4],
        [Some(&*year_ago), None, None, None],
        [Some(&*year_ago), None, Some("month"), None],
        [Some(&*day_of_weeks_ago), None, Some("hour"), None],
        [Some(&*day_of_weeks_ago), None, Some("week"), Some("Asia/Kathmandu")],
        [None, None, None, Some("America/St_Johns")],
        [Some(&*day_of_weeks_ago), None, Some("hour"), Some("Australia/Lord_Howe")],
    ]
    .map(|query| series_range(query, now))
    .into()
}

async fn assert_as_in_model(store: &Arc<dyn Store>, model: &HitModel, now: Timestamp) {
    for of in model.subjects() {
        if let HitSubject::Link(link) = of {
            assert_eq!(store.link_hits(link, None).await.unwrap().days, model.days(of));
        }
        for range in series_ranges(now) {
            for bots in BotFilter::ALL {
                let series = store.series(of, range.clone(), bots).await.unwrap();
                assert_eq!(series, model.series(of, &range, bots), "{of:?} {bots:?}");
            }
        }
        for (number, range) in breakdown_ranges(now).into_iter().enumerate() {
            for (dimension, at) in Dimension::ALL.into_iter().zip(number..) {
                // All of each third one, and another one of the others.
                let all = BotFilter::ALL.into_iter().zip(0..).filter(|(_, n)| at % 6 < 2 || at % 3 == *n);
                for (bots, _) in all {
                    let found = breakdown(store, of, dimension, range, bots).await;
                    let expected = model.breakdown(of, dimension, &range, bots);
                    assert_eq!(found, expected, "{of:?} {dimension:?} {range:?} {bots:?}");
                }
            }
        }
    }
}

/// Several writers, batches that come twice, and closings in between.
pub async fn series_and_breakdowns_are_as_in_a_model(ground: &impl Ground) {
    let mut store = ground.open().await;
    let now = Clock::system().now();
    let mut runner = TestRunner::deterministic();
    let batches = prop::collection::vec((1..4_u32, prop::collection::vec(same_hits(now), 0..12), any::<bool>()), 1..8);
    let mut written = BTreeMap::<u32, u64>::new();
    for case in 0..3 {
        let mut model = HitModel { offset: 10 * case, ..HitModel::default() };
        for (writer, hits, comes_twice) in batches.new_tree(&mut runner).unwrap().current() {
            let from = written.entry(writer).or_default();
            let (days, writer) = (days_of(&hits, model.offset), node(writer));
            let made = Arc::new(HitBatch { writer, days, ..batch(*from, *from + 1) });
            *from += 1;
            for _ in 0..=u8::from(comes_twice) {
                store.apply_hits(Arc::clone(&made)).await.unwrap();
            }
            model.hits.extend(hits);
        }
        if case % 2 == 0 {
            store = reopened(ground, store).await;
        }
        assert_as_in_model(&store, &model, now).await;
    }
}

pub async fn labels_of_a_day_past_the_cap_count_as_other(ground: &impl Ground) {
    let mut store = ground.open().await;
    let now = Clock::system().now();
    let texts = MAX_SHEET_TEXTS as u64;
    let named = |n: u64| format!("{n}.example/{}", "-".repeat(100));
    // In a second batch each one again, and so many more.
    for (from, count) in [(0, texts + 5), (1, texts + 7)] {
        let of_link = |n: u32| {
            let labels = (0..count).flat_map(|text| {
                [Dimension::Referrer, Dimension::UtmTerm].map(|dimension| label(n, now, dimension, &named(text), 1))
            });
            counted([day(n, now, [count, 0, 0])], labels)
        };
        let days: Vec<_> = of_link(1).into_iter().chain(of_link(2)).collect();
        let keys: Vec<_> = days.iter().map(|day| by_key(1, day)).collect();
        store
            .apply_hits(Arc::new(HitBatch { days: counted(days.into_iter().chain(keys), []), ..batch(from, from + 1) }))
            .await
            .unwrap();
    }
    for _ in 0..2 {
        for (of, times) in [(HitSubject::Link(short_id(1)), 1), (HitSubject::Key(key_id(1)), 2)] {
            for dimension in [Dimension::Referrer, Dimension::UtmTerm] {
                let today = breakdown_range(Some(now.day()), None, now);
                let of_day = breakdown(&store, of, dimension, today, BotFilter::Include).await;
                assert_eq!((of_day.total, of_day.none), (times * (2 * texts + 12), 0));
                assert_eq!((of_day.other, of_day.labels.len()), (times * 12, MAX_SHEET_TEXTS));
                let ever = breakdown_range(None, None, now);
                let of_month = breakdown(&store, of, dimension, ever, BotFilter::Include).await;
                assert_eq!((of_month.total, of_month.none, of_month.other), (of_day.total, 0, 0));
                assert_eq!(of_month.labels.len(), MAX_SHEET_TEXTS + 7);
                assert_eq!(of_month.labels[0].1, times * 2);
            }
            // What is not noted.
            let none =
                breakdown(&store, of, Dimension::City, breakdown_range(None, None, now), BotFilter::Include).await;
            assert_eq!((none.none, none.labels.len()), (times * (2 * texts + 12), 0));
        }
        store = reopened(ground, store).await;
    }
}

pub async fn ranges_of_what_has_no_hits_are_empty(ground: &impl Ground) {
    let store = ground.open().await;
    let now = Clock::system().now();
    let other = HitBatch { days: counted([day(2, now, [1, 0, 0])], []), ..batch(0, 1) };
    store.apply_hits(Arc::new(other)).await.unwrap();
    assert_eq!(store.hit_cursor(node(1)).await.unwrap().counted, Position(1));
    for of in [HitSubject::Link(short_id(1)), HitSubject::Key(key_id(1))] {
        for range in series_ranges(now) {
            let series = store.series(of, range.clone(), BotFilter::Include).await.unwrap();
            assert_eq!((series.total, series.points.len()), (0, range.starts().len()));
        }
        for range in breakdown_ranges(now) {
            for dimension in Dimension::ALL {
                let answer = breakdown(&store, of, dimension, range, BotFilter::Include).await;
                assert_eq!((answer.total, answer.none, answer.labels.len()), (0, 0, 0));
            }
        }
    }
}

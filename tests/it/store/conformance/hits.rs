//! Hit counters: batches applied once, sums, and the cap on labels.

use std::sync::Arc;

use signpost::domain::analytics::Labelled;
use signpost::domain::breakdown::Dimension;
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{
    DeviceHits, HitBatch, HitCursor, HitSubject, LinkHits, MAX_LABELS, OTHER_LABEL, Position, ServedCount,
};
use signpost::domain::tally::{BotFilter, Tally};
use signpost::store::Store;

use super::{Ground, reopened};
use crate::store::samples::{
    DAY, batch, bots, counted, day, day_of, delivery, devices, key_id, label, label_of, month, new_delivery, node,
    noon, persons, short_id,
};

fn served(key: u32, of: &str, count: u64) -> ServedCount {
    ServedCount { key: key_id(key), month: month(of), count }
}

/// A batch with something of everything.
fn full(from: u64, upto: u64) -> HitBatch {
    let us = label(1, noon(), Dimension::Country, "US", 6);
    HitBatch {
        days: counted([day(1, noon(), [3, 2, 1])], [us]),
        served: vec![served(1, "2026-11", 6)],
        deliveries: vec![new_delivery(delivery(1, noon(), 0), key_id(1))],
        ..batch(from, upto)
    }
}

/// All that the store has counted of link 1 and key 1, in one order.
async fn all_counted(store: &Arc<dyn Store>) -> (HitCursor, LinkHits, u64, usize) {
    let mut hits = store.link_hits(short_id(1), Some(BotFilter::Include)).await.unwrap();
    hits.labels.sort();
    hits.labels.iter_mut().for_each(|(_, labels)| labels.sort());
    let served = store.monthly_counts(key_id(1), noon().month()).await.unwrap().hits_served;
    let due = store.due_deliveries(Timestamp(u64::MAX / 2), None, 1_000).await.unwrap().len();
    (store.hit_cursor(node(1)).await.unwrap(), hits, served, due)
}

/// What is shown of a list, in its order.
async fn shown(store: &Arc<dyn Store>, link: u32, dimension: Dimension, bots: BotFilter) -> Vec<Labelled> {
    let hits = store.link_hits(short_id(link), Some(bots)).await.unwrap();
    hits.labels.into_iter().find(|(of, _)| *of == dimension).map(|(_, labels)| labels).unwrap_or_default()
}

async fn labels_of(store: &Arc<dyn Store>, link: u32, dimension: Dimension) -> Vec<Labelled> {
    let mut labels = shown(store, link, dimension, BotFilter::Include).await;
    labels.sort();
    labels
}

pub async fn a_batch_is_counted_once_however_often_it_comes(ground: &impl Ground) {
    let store = ground.open().await;
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(0)));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let once = all_counted(&store).await;
    assert_eq!(once.0, HitCursor::from(Position(10)));
    assert_eq!(once.1.days, [(noon().day(), devices([3, 2, 1]))]);
    assert_eq!((once.2, once.3), (6, 1));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let store = reopened(ground, store).await;
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    assert_eq!(all_counted(&store).await, once);

    store.apply_hits(Arc::new(full(10, 20))).await.unwrap();
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let twice = all_counted(&store).await;
    assert_eq!(twice.0, HitCursor::from(Position(20)));
    assert_eq!(twice.1.days, [(noon().day(), devices([6, 4, 2]))]);
    // The delivery is the same one.
    assert_eq!((twice.2, twice.3), (12, 1));
}

pub async fn a_batch_that_does_not_begin_at_the_cursor_changes_nothing(ground: &impl Ground) {
    let store = ground.open().await;
    assert!(store.apply_hits(Arc::new(full(5, 10))).await.is_err(), "a gap at the beginning");
    assert_eq!(all_counted(&store).await.0, HitCursor::from(Position(0)));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let before = all_counted(&store).await;
    for (from, upto) in [(11, 20), (9, 20), (0, 20), (0, 11)] {
        assert!(store.apply_hits(Arc::new(full(from, upto))).await.is_err(), "({from}, {upto}]");
        assert_eq!(all_counted(&store).await, before, "({from}, {upto}]");
    }
}

pub async fn writers_have_cursors_of_their_own_and_their_counts_add_up(ground: &impl Ground) {
    let store = ground.open().await;
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let deliveries = vec![new_delivery(delivery(1, noon(), 1), key_id(1))];
    let other = HitBatch { writer: node(2), deliveries, ..full(0, 7) };
    store.apply_hits(Arc::new(other.clone())).await.unwrap();
    store.apply_hits(Arc::new(other)).await.unwrap();
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(10)));
    assert_eq!(store.hit_cursor(node(2)).await.unwrap(), HitCursor::from(Position(7)));
    let (_, hits, served, due) = all_counted(&store).await;
    assert_eq!(hits.days, [(noon().day(), devices([6, 4, 2]))]);
    assert_eq!((served, due), (12, 2));
    assert_eq!(labels_of(&store, 1, Dimension::Country).await, [("US".to_owned(), 12)]);
}

pub async fn days_and_labels_add_up_over_batches_and_months(ground: &impl Ground) {
    let mut store = ground.open().await;
    let (before, after) = (noon().minus(DAY * 2), noon().plus(DAY));
    let next = noon().plus(DAY * 15);
    let first = HitBatch {
        days: counted(
            [day(1, noon(), [10, 0, 0]), day(1, before, [0, 5, 0]), day(2, noon(), [9, 9, 9])],
            [
                label(1, noon(), Dimension::Referrer, "a.example", 2),
                label(1, noon(), Dimension::Referrer, "b.example", 3),
                label(1, noon(), Dimension::City, "a.example", 7),
                label(2, noon(), Dimension::Referrer, "a.example", 11),
            ],
        ),
        ..batch(0, 1)
    };
    let second = HitBatch {
        days: counted(
            [day(1, after, [0, 0, 40]), day(1, noon(), [1, 1, 1]), day(1, noon(), [0, 0, 1]), day(1, next, [20, 0, 0])],
            [
                label(1, next, Dimension::Referrer, "a.example", 20),
                label(1, after, Dimension::Referrer, "b.example", 30),
            ],
        ),
        ..batch(1, 2)
    };
    store.apply_hits(Arc::new(first)).await.unwrap();
    store.apply_hits(Arc::new(second)).await.unwrap();
    for _ in 0..2 {
        let hits = store.link_hits(short_id(1), None).await.unwrap();
        assert_eq!(hits.labels, []);
        let days = [(before, [0, 5, 0]), (noon(), [11, 1, 2]), (after, [0, 0, 40]), (next, [20, 0, 0])];
        assert_eq!(hits.days, days.map(|(at, counts)| (at.day(), devices(counts))));
        let referrers = labels_of(&store, 1, Dimension::Referrer).await;
        assert_eq!(referrers, [("a.example".to_owned(), 22), ("b.example".to_owned(), 33)]);
        assert_eq!(labels_of(&store, 1, Dimension::City).await, [("a.example".to_owned(), 7)]);
        assert_eq!(labels_of(&store, 1, Dimension::Region).await, []);
        assert_eq!(store.link_hits(short_id(3), Some(BotFilter::Include)).await.unwrap().days, []);
        store = reopened(ground, store).await;
    }
}

pub async fn hits_of_persons_and_of_bots_are_told_apart(ground: &impl Ground) {
    let mut store = ground.open().await;
    let link = HitSubject::Link(short_id(1));
    let mixed = |persons, bots| Tally { persons, bots };
    let hits = |from| {
        let hits = day_of(link, noon(), [mixed(4, 3), persons(2), bots(1)]);
        let labels = [("DE", mixed(3, 0)), ("US", mixed(1, 2)), ("FR", mixed(0, 2))];
        let countries = labels.map(|(label, tally)| label_of(link, noon(), Dimension::Country, label, tally));
        let kinds = [("crawler", 1), ("tool", 3)];
        let kinds = kinds.map(|(kind, count)| label_of(link, noon(), Dimension::Bot, kind, bots(count)));
        HitBatch { days: counted([hits], countries.into_iter().chain(kinds)), ..batch(from, from + 1) }
    };
    store.apply_hits(Arc::new(hits(0))).await.unwrap();
    store.apply_hits(Arc::new(hits(1))).await.unwrap();
    for _ in 0..2 {
        let days = store.link_hits(short_id(1), None).await.unwrap().days;
        assert_eq!(days, [(noon().day(), DeviceHits([mixed(8, 6), persons(4), bots(2)]))]);
        for (bots, expected) in [
            (BotFilter::Include, &[("DE", 6), ("US", 6), ("FR", 4)][..]),
            (BotFilter::Exclude, &[("DE", 6), ("US", 2)]),
            (BotFilter::Only, &[("FR", 4), ("US", 4)]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect();
            assert_eq!(shown(&store, 1, Dimension::Country, bots).await, expected, "{bots:?}");
        }
        store = reopened(ground, store).await;
    }
}

pub async fn labels_past_the_cap_count_as_other(ground: &impl Ground) {
    let store = ground.open().await;
    let next = noon().plus(DAY * 15);
    let named = |n: u64| format!("{n}.example");
    let referrer = |at, n, count| label(1, at, Dimension::Referrer, &named(n), count);
    let labels: Vec<_> = (0..MAX_LABELS + 5).map(|n| referrer(noon(), n, 1)).collect();
    let days = counted([day(1, noon(), [MAX_LABELS + 5, 0, 0])], labels);
    store.apply_hits(Arc::new(HitBatch { days, ..batch(0, 1) })).await.unwrap();
    let labels = [
        // Known, new again, a label past the cap again, and lists that are not full.
        referrer(noon(), 7, 10),
        referrer(noon(), MAX_LABELS + 900, 100),
        referrer(noon(), MAX_LABELS, 1_000),
        referrer(noon(), MAX_LABELS - 1, 5),
        referrer(next, MAX_LABELS + 1, 1),
        label(1, noon(), Dimension::City, &named(MAX_LABELS), 1),
        label(2, noon(), Dimension::Referrer, &named(MAX_LABELS), 1),
    ];
    let days = counted([day(1, noon(), [1_115, 0, 0]), day(1, next, [1, 0, 0]), day(2, noon(), [1, 0, 0])], labels);
    store.apply_hits(Arc::new(HitBatch { days, ..batch(1, 2) })).await.unwrap();

    let referrers = shown(&store, 1, Dimension::Referrer, BotFilter::Include).await;
    assert_eq!(referrers[0], (named(7), 11));
    assert_eq!(referrers[1], (named(MAX_LABELS - 1), 6), "the last that found room");
    assert_eq!(
        referrers[2..10],
        ["0", "1", "10", "100", "1001", "101", "102", "103"].map(|n| (format!("{n}.example"), 1))
    );
    assert_eq!(referrers[10..], [(OTHER_LABEL.to_owned(), 5 + 100 + 1_000)]);
    assert_eq!(labels_of(&store, 1, Dimension::City).await, [(named(MAX_LABELS), 1)]);
    assert_eq!(labels_of(&store, 2, Dimension::Referrer).await, [(named(MAX_LABELS), 1)]);
}

pub async fn hits_served_are_counted_by_key_and_month(ground: &impl Ground) {
    let store = ground.open().await;
    let first = vec![served(1, "2026-11", 5), served(1, "2026-12", 1), served(2, "2026-11", 2)];
    store.apply_hits(Arc::new(HitBatch { served: first, ..batch(0, 1) })).await.unwrap();
    let second = vec![served(1, "2026-11", 10)];
    store.apply_hits(Arc::new(HitBatch { served: second, ..batch(1, 2) })).await.unwrap();
    let store = reopened(ground, store).await;
    for (key, of, count) in [(1, "2026-11", 15), (1, "2026-12", 1), (2, "2026-11", 2), (2, "2026-12", 0)] {
        let counts = store.monthly_counts(key_id(key), month(of)).await.unwrap();
        assert_eq!((counts.hits_served, counts.links_created, counts.webhook_deliveries), (count, 0, 0), "{key} {of}");
    }
}

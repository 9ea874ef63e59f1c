//! Hit counters: batches applied once, sums, and the cap on labels.

use std::sync::Arc;

use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{Dimension, HitBatch, HitCursor, LinkHits, MAX_LABELS, OTHER_LABEL, Position, ServedCount};
use signpost::domain::link::Revision;
use signpost::domain::webhook::NewDelivery;
use signpost::store::Store;

use super::{Ground, reopened};
use crate::store::samples::{DAY, batch, day, delivery, key_id, label, month, node, noon, short_id};

fn served(key: u32, of: &str, count: u64) -> ServedCount {
    ServedCount { key: key_id(key), month: month(of), count }
}

/// A batch with something of everything.
fn full(from: u64, upto: u64) -> HitBatch {
    HitBatch {
        days: vec![day(1, noon(), [3, 2, 1])],
        labels: vec![label(1, noon().month(), Dimension::Country, "US", 6)],
        served: vec![served(1, "2026-11", 6)],
        deliveries: vec![NewDelivery { id: delivery(1, noon(), 0), owner: key_id(1), revision: Revision::FIRST }],
        ..batch(from, upto)
    }
}

/// All that the store has counted of link 1 and key 1, in one order.
async fn counted(store: &Arc<dyn Store>) -> (HitCursor, LinkHits, u64, usize) {
    let mut hits = store.link_hits(short_id(1), Some(BotFilter::Include)).await.unwrap();
    hits.labels.sort();
    hits.labels.iter_mut().for_each(|(_, labels)| labels.sort());
    let served = store.monthly_counts(key_id(1), noon().month()).await.unwrap().hits_served;
    let due = store.due_deliveries(Timestamp(u64::MAX / 2), None, 1_000).await.unwrap().len();
    (store.hit_cursor(node(1)).await.unwrap(), hits, served, due)
}

/// What is shown of a list, in its order.
async fn shown(store: &Arc<dyn Store>, link: u32, dimension: Dimension) -> Vec<(String, u64)> {
    let hits = store.link_hits(short_id(link), Some(BotFilter::Include)).await.unwrap();
    hits.labels.into_iter().find(|(of, _)| *of == dimension).map(|(_, labels)| labels).unwrap_or_default()
}

async fn labels_of(store: &Arc<dyn Store>, link: u32, dimension: Dimension) -> Vec<(String, u64)> {
    let hits = store.link_hits(short_id(link), Some(BotFilter::Include)).await.unwrap();
    let lists = hits.labels.into_iter().filter(|(of, _)| *of == dimension);
    let mut labels: Vec<_> = lists.flat_map(|(_, labels)| labels).collect();
    labels.sort();
    labels
}

pub async fn a_batch_is_counted_once_however_often_it_comes(ground: &impl Ground) {
    let store = ground.open().await;
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(0)));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let once = counted(&store).await;
    assert_eq!(once.0, HitCursor::from(Position(10)));
    assert_eq!(once.1.days, [(noon().day(), [3, 2, 1])]);
    assert_eq!((once.2, once.3), (6, 1));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let store = reopened(ground, store).await;
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    assert_eq!(counted(&store).await, once);

    store.apply_hits(Arc::new(full(10, 20))).await.unwrap();
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let twice = counted(&store).await;
    assert_eq!(twice.0, HitCursor::from(Position(20)));
    assert_eq!(twice.1.days, [(noon().day(), [6, 4, 2])]);
    // The delivery is the same one.
    assert_eq!((twice.2, twice.3), (12, 1));
}

pub async fn a_batch_that_does_not_begin_at_the_cursor_changes_nothing(ground: &impl Ground) {
    let store = ground.open().await;
    assert!(store.apply_hits(Arc::new(full(5, 10))).await.is_err(), "a gap at the beginning");
    assert_eq!(counted(&store).await.0, HitCursor::from(Position(0)));
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let before = counted(&store).await;
    for (from, upto) in [(11, 20), (9, 20), (0, 20), (0, 11)] {
        assert!(store.apply_hits(Arc::new(full(from, upto))).await.is_err(), "({from}, {upto}]");
        assert_eq!(counted(&store).await, before, "({from}, {upto}]");
    }
}

pub async fn writers_have_cursors_of_their_own_and_their_counts_add_up(ground: &impl Ground) {
    let store = ground.open().await;
    store.apply_hits(Arc::new(full(0, 10))).await.unwrap();
    let deliveries = vec![NewDelivery { id: delivery(1, noon(), 1), owner: key_id(1), revision: Revision::FIRST }];
    let other = HitBatch { writer: node(2), deliveries, ..full(0, 7) };
    store.apply_hits(Arc::new(other.clone())).await.unwrap();
    store.apply_hits(Arc::new(other)).await.unwrap();
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(10)));
    assert_eq!(store.hit_cursor(node(2)).await.unwrap(), HitCursor::from(Position(7)));
    let (_, hits, served, due) = counted(&store).await;
    assert_eq!(hits.days, [(noon().day(), [6, 4, 2])]);
    assert_eq!((served, due), (12, 2));
    assert_eq!(labels_of(&store, 1, Dimension::Country).await, [("US".to_owned(), 12)]);
}

pub async fn days_and_labels_add_up_over_batches_and_months(ground: &impl Ground) {
    let mut store = ground.open().await;
    let (before, after) = (noon().minus(DAY * 2), noon().plus(DAY));
    let (this, next) = (month("2026-11"), month("2026-12"));
    let first = HitBatch {
        days: vec![day(1, noon(), [1, 0, 0]), day(1, before, [0, 5, 0]), day(2, noon(), [9, 9, 9])],
        labels: vec![
            label(1, this, Dimension::Referrer, "a.example", 2),
            label(1, this, Dimension::Referrer, "b.example", 3),
            label(1, this, Dimension::City, "a.example", 7),
            label(2, this, Dimension::Referrer, "a.example", 11),
        ],
        ..batch(0, 1)
    };
    let second = HitBatch {
        days: vec![day(1, after, [0, 0, 4]), day(1, noon(), [1, 1, 1]), day(1, noon(), [0, 0, 1])],
        labels: vec![
            label(1, next, Dimension::Referrer, "a.example", 20),
            label(1, this, Dimension::Referrer, "b.example", 30),
        ],
        ..batch(1, 2)
    };
    store.apply_hits(Arc::new(first)).await.unwrap();
    store.apply_hits(Arc::new(second)).await.unwrap();
    for _ in 0..2 {
        let days = store.link_hits(short_id(1), None).await.unwrap();
        assert_eq!(days.labels, []);
        assert_eq!(days.days, [(before.day(), [0, 5, 0]), (noon().day(), [2, 1, 2]), (after.day(), [0, 0, 4])]);
        let referrers = labels_of(&store, 1, Dimension::Referrer).await;
        assert_eq!(referrers, [("a.example".to_owned(), 22), ("b.example".to_owned(), 33)]);
        assert_eq!(labels_of(&store, 1, Dimension::City).await, [("a.example".to_owned(), 7)]);
        assert_eq!(labels_of(&store, 1, Dimension::Region).await, []);
        assert_eq!(store.link_hits(short_id(3), Some(BotFilter::Include)).await.unwrap().days, []);
        store = reopened(ground, store).await;
    }
}

pub async fn labels_past_the_cap_count_as_other(ground: &impl Ground) {
    let store = ground.open().await;
    let (this, next) = (month("2026-11"), month("2026-12"));
    let named = |n: u64| format!("{n}.example");
    let referrer = |month, n, count| label(1, month, Dimension::Referrer, &named(n), count);
    let labels = (0..MAX_LABELS + 5).map(|n| referrer(this, n, 1)).collect();
    store.apply_hits(Arc::new(HitBatch { labels, ..batch(0, 1) })).await.unwrap();
    let labels = vec![
        // Known, new again, a label past the cap again, and lists that are not full.
        referrer(this, 7, 10),
        referrer(this, MAX_LABELS + 900, 100),
        referrer(this, MAX_LABELS, 1_000),
        referrer(this, MAX_LABELS - 1, 5),
        referrer(next, MAX_LABELS + 1, 1),
        label(1, this, Dimension::City, &named(MAX_LABELS), 1),
        label(2, this, Dimension::Referrer, &named(MAX_LABELS), 1),
    ];
    store.apply_hits(Arc::new(HitBatch { labels, ..batch(1, 2) })).await.unwrap();

    let referrers = shown(&store, 1, Dimension::Referrer).await;
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

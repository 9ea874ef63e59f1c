//! Hits: batches, and what is read of them.

use std::sync::Arc;

use signpost::clock::Clock;
use signpost::domain::breakdown::{BreakdownRange, Dimension};
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{DayHits, HitBatch, HitSubject, ServedCount};
use signpost::domain::series::{SeriesParameters, SeriesRange};
use signpost::domain::tally::BotFilter;
use signpost::store::DeliveryQuery;

use super::run::Run;
use super::{due_once, read};
use crate::store::samples::{
    MINUTE, batch, by_key, counted, day, delivery, devices, key_id, label, new_delivery, node, noon, short_id,
};

/// A batch of this run's own node: 6 hits of one link, with two deliveries.
pub fn hits(run: &Run, from: u64, upto: u64) -> Arc<HitBatch> {
    let minute = noon().plus(MINUTE * u32::try_from(from).unwrap());
    let deliveries = [0, 1].map(|url| new_delivery(delivery(run.n, minute, url), key_id(run.n)));
    Arc::new(HitBatch {
        writer: node(1_000_000 + run.n),
        days: days_of(run, noon(), 0),
        served: vec![ServedCount { key: key_id(run.n), month: noon().month(), count: 6 }],
        deliveries: deliveries.to_vec(),
        ..batch(from, upto)
    })
}

/// 6 hits at a time, of a link and of its key, with a city and so many UTM terms.
fn days_of(run: &Run, at: Timestamp, terms: u64) -> Vec<DayHits> {
    let city = label(run.n, at, Dimension::City, "Jena, Thuringia, DE", 6);
    let term = |term: u64| label(run.n, at, Dimension::UtmTerm, &format!("{term:0100}"), 1);
    let of_link = counted([day(run.n, at, [1, 2, 3 + terms])], (0..terms).map(term).chain([city]));
    let of_key: Vec<_> = of_link.iter().map(|day| by_key(run.n, day)).collect();
    counted(of_link.into_iter().chain(of_key), [])
}

pub async fn apply(run: &Run, from: u64, upto: u64) {
    let batch = hits(run, from, upto);
    run.done(async || run.store.apply_hits(Arc::clone(&batch)).await).await;
}

/// Checks that so many batches of [`hits`] are counted, each once.
async fn batches_are_counted(run: &Run, count: u64) {
    let (name, link) = (run.name(), short_id(run.n));
    let hits = run.clean.link_hits(link, Some(BotFilter::Include)).await.unwrap();
    assert_eq!(hits.days, [(noon().day(), devices([count, 2 * count, 3 * count]))], "{name}");
    let labels: Vec<_> = hits.labels.into_iter().flat_map(|(_, labels)| labels).collect();
    assert_eq!(labels, [("Jena, Thuringia, DE".to_owned(), 6 * count)], "{name}");
    let counts = run.clean.monthly_counts(key_id(run.n), noon().month()).await.unwrap();
    assert_eq!(counts.hits_served, 6 * count, "{name}");
    let query = DeliveryQuery { link, status: None, after: None, since: noon().day(), limit: 100 };
    assert_eq!(run.clean.deliveries(query).await.unwrap().len() as u64, 2 * count, "{name}");
    let summaries = run.clean.delivery_summaries(link, noon().day()).await.unwrap();
    assert_eq!(summaries.iter().map(|(_, url)| url.pending).collect::<Vec<_>>(), [count; 2], "{name}");
    due_once(run, noon().plus(MINUTE * 60), usize::try_from(2 * count).unwrap()).await;
}

pub async fn apply_hits(run: &Run) {
    let batch = hits(run, 0, 6);
    run.disturbed_until_done(async || run.store.apply_hits(Arc::clone(&batch)).await).await;
    batches_are_counted(run, 1).await;
    let cursor = run.clean.hit_cursor(batch.writer).await.unwrap();
    assert_eq!((cursor.counted, cursor.begun), (batch.upto, batch.upto), "{}", run.name());
    // And it goes on from there.
    apply(run, 6, 12).await;
    batches_are_counted(run, 2).await;
}

pub async fn apply_hits_again(run: &Run) {
    apply(run, 0, 6).await;
    let batch = hits(run, 6, 12);
    run.disturbed_until_done(async || run.store.apply_hits(Arc::clone(&batch)).await).await;
    batches_are_counted(run, 2).await;
}

/// All that the store without faults tells of the hits of the run's link and key, today and ever.
async fn ranges(run: &Run, now: Timestamp, dimension: Dimension) -> Vec<[u64; 4]> {
    let today = BreakdownRange::parse(Some(&now.day().to_string()), None, now, 90).unwrap();
    let ever = BreakdownRange::parse(None, None, now, 90).unwrap();
    let hours = SeriesParameters { interval: Some("hour"), ..SeriesParameters::default() };
    let hours = SeriesRange::parse(hours, now).unwrap();
    let mut found = Vec::new();
    for of in [HitSubject::Link(short_id(run.n)), HitSubject::Key(key_id(run.n))] {
        let by_hour = run.clean.series(of, hours.clone(), BotFilter::Include).await.unwrap().total;
        for range in [today, ever] {
            let answer = run.clean.breakdown(of, dimension, range).await.unwrap().answer(BotFilter::Include, 1_000);
            found.push([answer.total, answer.none, answer.labels.iter().map(|(_, count)| count).sum(), by_hour]);
        }
    }
    found
}

pub async fn apply_many_labels(run: &Run) {
    let now = Clock::system().now();
    let writer = node(1_000_000 + run.n);
    let batch_of = |from, terms| Arc::new(HitBatch { writer, days: days_of(run, now, terms), ..batch(from, from + 1) });
    let (first, second) = (batch_of(0, 2), batch_of(1, 100));
    run.done(async || run.store.apply_hits(Arc::clone(&first)).await).await;
    run.disturbed_until_done(async || run.store.apply_hits(Arc::clone(&second)).await).await;
    for (dimension, known) in [(Dimension::City, 12), (Dimension::UtmTerm, 102), (Dimension::Browser, 0)] {
        let expected = [[114, 114 - known, known, 114]; 4];
        assert_eq!(ranges(run, now, dimension).await, expected, "{dimension:?}: {}", run.name());
    }
    // And it goes on from there.
    let third = batch_of(2, 1);
    run.done(async || run.store.apply_hits(Arc::clone(&third)).await).await;
    assert_eq!(ranges(run, now, Dimension::UtmTerm).await, [[121, 18, 103, 121]; 4], "{}", run.name());
}

/// The rows that a node of 0.1.0 has written of a batch, with and without those of the batch after it.
pub async fn apply_hits_behind_rows_of_0_1_0(run: &Run) {
    let (link, writer) = (short_id(run.n), node(1_000_000 + run.n).0);
    let now = Clock::system().now();
    let (day, month) = (i32::try_from(now.day().0).unwrap(), i32::try_from(now.month().0).unwrap());
    let n = i64::from(run.n % 2);
    let session = &run.session;
    // Of the batch up to 2, which comes again, one of two labels is written or none.
    for (label, count, upto) in [("Jena, Thuringia, DE", 6 + 6 * n, 1 + n), ("Zürich, CH", 4, 1)] {
        let text = "INSERT INTO link_labels (link, month, writer, dimension, label, count, upto, born) \
                    VALUES (?, ?, ?, 3, ?, ?, ?, 1) USING TIMESTAMP ?";
        session.query_unpaged(text, (link.as_str(), month, writer, label, count, upto, upto)).await.unwrap();
    }
    let text = "INSERT INTO link_months (link, month) VALUES (?, ?)";
    session.query_unpaged(text, (link.as_str(), month)).await.unwrap();
    let text = "INSERT INTO link_days (link, day, writer, desktop, mobile, tablet, upto) VALUES (?, ?, ?, 4, 3, 3, 1) \
                USING TIMESTAMP 1";
    session.query_unpaged(text, (link.as_str(), day, writer)).await.unwrap();
    let text = "UPDATE hit_cursors USING TIMESTAMP ? SET begun = ?, counted = 1 WHERE writer = ?";
    session.query_unpaged(text, (1 + n, 1 + n, writer)).await.unwrap();

    let batch = Arc::new(HitBatch { writer: node(1_000_000 + run.n), days: days_of(run, now, 0), ..batch(1, 2) });
    run.disturbed_until_done(async || run.store.apply_hits(Arc::clone(&batch)).await).await;
    let hits = run.clean.link_hits(link, Some(BotFilter::Include)).await.unwrap();
    assert_eq!(hits.days, [(now.day(), devices([5, 5, 6]))], "{}", run.name());
    let labels: Vec<_> = hits.labels.into_iter().flat_map(|(_, labels)| labels).collect();
    let expected = [("Jena, Thuringia, DE", 12), ("Zürich, CH", 4)];
    assert_eq!(labels, expected.map(|(label, count)| (label.to_owned(), count)), "{}", run.name());
}

/// Reads of series and breakdowns of a day and a month that are split.
pub async fn read_series_and_breakdowns(run: &Run) {
    let now = Clock::system().now();
    let writer = node(1_000_000 + run.n);
    let batch = Arc::new(HitBatch { writer, days: days_of(run, now, 100), ..batch(0, 1) });
    run.clean.apply_hits(batch).await.unwrap();
    let of = HitSubject::Link(short_id(run.n));
    let ever = BreakdownRange::parse(None, None, now, 90).unwrap();
    let days = SeriesRange::parse(SeriesParameters::default(), now).unwrap();
    read(run, async || {
        let (store, dimension) = (&run.store, Dimension::UtmTerm);
        Ok((
            store.breakdown(of, dimension, ever).await?.answer(BotFilter::Include, 1_000),
            store.series(of, days.clone(), BotFilter::Include).await?,
        ))
    })
    .await;
}

//! Counts of hits on a cluster: their rows, those of 0.1.0 beside them, and how long they are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use signpost::clock::Clock;
use signpost::domain::analytics::Labelled;
use signpost::domain::breakdown::{BreakdownRange, Dimension};
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::hit::{HitBatch, HitSubject};
use signpost::domain::series::{SeriesParameters, SeriesRange};
use signpost::domain::tally::BotFilter;
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::session::ScyllaSettings;
use signpost::store::cql::transfer::ScyllaTransfer;
use signpost::store::transfer::{ExportSource, Record, Section, Sink};
use signpost::store::{CountStore, Lifecycle, Store};

use super::hit_model::{HitModel, LINKS, days_of, same_hits};
use super::samples::{DAY, batch, bots, by_key, counted, day, day_of, key_id, label, node, short_id};
use crate::support::keyspaces::Keyspace;

/// A day, and how long its columns are kept: of devices, of bots, `upto`, quarters.
type DayTtls = (i32, Option<i32>, Option<i32>, Option<i32>, Option<i32>);
/// Subject, span and part of a row of a sheet, and how long its sheet and `upto` are kept.
type SheetTtls = (String, i8, i8, Option<i32>, Option<i32>);

fn now() -> Timestamp {
    Clock::system().now()
}

async fn rows<R>(session: &Session, text: &str) -> Vec<R>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let answer = session.query_unpaged(text, ()).await.unwrap().into_rows_result().unwrap();
    answer.rows::<R>().unwrap().map(Result::unwrap).collect()
}

/// Hits of link 1 and key 1 at a time, with a city and so many UTM terms.
fn hits(from: u64, at: Timestamp, terms: u64) -> Arc<HitBatch> {
    let city = label(1, at, Dimension::City, "Jena, Thuringia, DE", 3);
    let term = |term: u64| label(1, at, Dimension::UtmTerm, &format!("{term:0100}"), 1);
    let of_link = counted([day(1, at, [1, 2, terms])], (0..terms).map(term).chain([city]));
    let of_key: Vec<_> = of_link.iter().map(|day| by_key(1, day)).collect();
    Arc::new(HitBatch { days: counted(of_link.into_iter().chain(of_key), []), ..batch(from, from + 1) })
}

async fn cities(store: &ScyllaStore, link: u32) -> Vec<Labelled> {
    let hits = store.link_hits(short_id(link), Some(BotFilter::Include)).await.unwrap();
    hits.labels.into_iter().find(|(of, _)| *of == Dimension::City).unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn quarters_and_sheets_of_days_expire_and_nothing_else() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let (now, old) = (now(), now().minus(300 * DAY));
    store.apply_hits(hits(0, now, 100)).await.unwrap();
    store.apply_hits(hits(1, old, 2)).await.unwrap();
    let session = keyspace.session().await;
    for table in ["link_days", "key_days"] {
        let text = format!("SELECT day, TTL(desktop), TTL(bots_tablet), TTL(upto), TTL(quarters) FROM {table}");
        let mut found: Vec<DayTtls> = rows(&session, &text).await;
        found.sort_unstable();
        let [(_, None, None, None, None), (_, None, None, None, Some(kept))] = found[..] else {
            panic!("{table}: {found:?}")
        };
        assert!((37 * 86_400..=38 * 86_400).contains(&kept), "{kept}");
    }
    let text = "SELECT subject, span, part, TTL(sheet), TTL(upto) FROM hit_sheets";
    let found: Vec<SheetTtls> = rows(&session, text).await;
    for of in [short_id(1).as_str().to_owned(), key_id(1).0.to_string()] {
        let of_it: Vec<_> = found.iter().filter(|(subject, ..)| *subject == of).collect();
        let months: Vec<_> = of_it.iter().filter(|(_, span, ..)| *span == 0).collect();
        let days: Vec<_> = of_it.iter().filter(|(_, span, ..)| *span == 1).collect();
        assert_eq!(months.iter().map(|row| row.2).collect::<Vec<_>>(), [0, 0, 12], "two months, and a long dimension");
        assert!(months.iter().all(|row| (row.3, row.4) == (None, None)), "{months:?}");
        assert_eq!(days.iter().map(|row| row.2).collect::<Vec<_>>(), [0, 12]);
        let kept = |ttl: Option<i32>| (90 * 86_400..=122 * 86_400).contains(&ttl.unwrap());
        assert!(days.iter().all(|row| kept(row.3) && kept(row.4)), "{days:?}");
    }
    assert_eq!(found.len(), 10);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn without_sheets_of_days_months_are_counted_all_the_same() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let settings = ScyllaSettings { sheet_days: 0, ..keyspace.store_settings() };
    let store = Box::pin(ScyllaStore::open(&settings, node(1))).await.unwrap();
    store.apply_hits(hits(0, now(), 2)).await.unwrap();
    let session = keyspace.session().await;
    let spans: Vec<(i8,)> = rows(&session, "SELECT span FROM hit_sheets").await;
    assert_eq!(spans, [(0,), (0,)]);
    assert_eq!(cities(&store, 1).await, [("Jena, Thuringia, DE".to_owned(), 3)]);
    store.close().await;
}

/// What a node of 0.1.0 has written of link 1 in this month.
async fn write_as_0_1_0(session: &Session, writer: u32, labels: &[(&str, i64)], at: Timestamp) {
    let (link, writer) = (short_id(1), node(writer).0);
    let (day, month) = (i32::try_from(at.day().0).unwrap(), i32::try_from(at.month().0).unwrap());
    let text = "INSERT INTO link_months (link, month) VALUES (?, ?)";
    session.query_unpaged(text, (link.as_str(), month)).await.unwrap();
    let text = "INSERT INTO link_labels (link, month, writer, dimension, label, count, upto, born) \
                VALUES (?, ?, ?, 3, ?, ?, 5, 5) USING TIMESTAMP 5";
    for (label, count) in labels {
        session.query_unpaged(text, (link.as_str(), month, writer, label, count)).await.unwrap();
    }
    let total: i64 = labels.iter().map(|(_, count)| count).sum();
    let text = "INSERT INTO link_days (link, day, writer, desktop, mobile, tablet, upto) VALUES (?, ?, ?, ?, 0, 0, 5) \
                USING TIMESTAMP 5";
    session.query_unpaged(text, (link.as_str(), day, writer, total)).await.unwrap();
    let text = "UPDATE hit_cursors USING TIMESTAMP 5 SET begun = 5, counted = 5 WHERE writer = ?";
    session.query_unpaged(text, (writer,)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn what_nodes_of_0_1_0_have_counted_is_added_up_and_taken_over() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let now = now();
    write_as_0_1_0(&session, 1, &[("Jena, Thuringia, DE", 5), ("Gera, Thuringia, DE", 2)], now).await;
    write_as_0_1_0(&session, 2, &[("Jena, Thuringia, DE", 10)], now).await;
    let of = HitSubject::Link(short_id(1));
    let ever = BreakdownRange::parse(None, None, now, 90).unwrap();
    let today = BreakdownRange::parse(Some(&now.day().to_string()), None, now, 90).unwrap();
    let by = async |dimension, range, bots| {
        let answer = store.breakdown(of, dimension, range).await.unwrap().answer(bots, 10);
        (answer.total, answer.none, answer.labels)
    };
    let city = |name: &str, count| (format!("{name}, Thuringia, DE"), count);
    let before = (17, 0, vec![city("Jena", 15), city("Gera", 2)]);
    assert_eq!(by(Dimension::City, ever, BotFilter::Include).await, before);
    assert_eq!(by(Dimension::City, ever, BotFilter::Exclude).await, before);
    assert_eq!(by(Dimension::City, ever, BotFilter::Only).await, (0, 0, vec![]));
    assert_eq!(by(Dimension::Browser, ever, BotFilter::Include).await, (17, 17, vec![]), "not noted then");
    assert_eq!(by(Dimension::City, today, BotFilter::Include).await, (17, 17, vec![]), "nor by day");

    let of_bots = counted([day_of(of, now, [bots(4), bots(0), bots(0)])], []);
    let of_city = hits(0, now, 0);
    let days = counted(of_city.days.iter().cloned().chain(of_bots), []);
    store.apply_hits(Arc::new(HitBatch { days, ..batch(5, 6) })).await.unwrap();
    let after = vec![city("Jena", 18), city("Gera", 2)];
    for _ in 0..2 {
        assert_eq!(by(Dimension::City, ever, BotFilter::Include).await, (24, 4, after.clone()));
        assert_eq!(by(Dimension::City, ever, BotFilter::Exclude).await, (20, 0, after.clone()));
        assert_eq!(by(Dimension::City, ever, BotFilter::Only).await, (4, 4, vec![]));
        assert_eq!(cities(&store, 1).await, after);
        // Its old rows do not count beside its sheet, whatever becomes of them.
        write_as_0_1_0(&session, 1, &[("Erfurt, Thuringia, DE", 100)], now).await;
    }
    store.close().await;
}

/// Three nodes at once.
async fn count_on_three_nodes(keyspace: &Keyspace, now: Timestamp) -> HitModel {
    let stores = join_all((1..=3).map(|n| Box::pin(keyspace.open_store(node(n))))).await;
    let mut runner = TestRunner::deterministic();
    let batches = prop::collection::vec(prop::collection::vec(same_hits(now), 1..10), 6);
    let mut model = HitModel::default();
    let of_nodes = stores.iter().zip(1..).map(|(store, n)| {
        let batches = batches.new_tree(&mut runner).unwrap().current();
        model.hits.extend(batches.iter().flatten().cloned());
        async move {
            for (hits, from) in batches.into_iter().zip(0..) {
                let made = HitBatch { writer: node(n), days: days_of(&hits, 0), ..batch(from, from + 1) };
                store.apply_hits(Arc::new(made)).await.unwrap();
            }
        }
    });
    let of_nodes: Vec<_> = of_nodes.collect();
    join_all(of_nodes).await;
    for store in stores {
        store.close().await;
    }
    model
}

async fn assert_as_in_model(store: &dyn Store, model: &HitModel, now: Timestamp) {
    let first = now.day().minus(85);
    let ranges = [(None, None), (Some(first), None), (Some(first), Some(now.day())), (Some(now.day()), None)];
    let days = [Some(first), None].map(|from| from.map(|day| day.to_string()));
    for of in model.subjects() {
        for (from, until) in ranges {
            let [from, until] = [from, until].map(|day: Option<Day>| day.map(|day| day.to_string()));
            let range = BreakdownRange::parse(from.as_deref(), until.as_deref(), now, 90).unwrap();
            for dimension in Dimension::ALL {
                for bots in BotFilter::ALL {
                    let found = store.breakdown(of, dimension, range).await.unwrap().answer(bots, 1_000);
                    assert_eq!(found, model.breakdown(of, dimension, &range, bots), "{of:?} {range:?} {bots:?}");
                }
            }
        }
        for from in &days {
            let interval = from.is_none().then_some("hour");
            let parameters = SeriesParameters { from: from.as_deref(), interval, ..SeriesParameters::default() };
            let range = SeriesRange::parse(parameters, now).unwrap();
            for bots in BotFilter::ALL {
                let found = store.series(of, range.clone(), bots).await.unwrap();
                assert_eq!(found, model.series(of, &range, bots), "{of:?} {bots:?}");
            }
        }
        if let HitSubject::Link(link) = of {
            assert_eq!(store.link_hits(link, None).await.unwrap().days, model.days(of));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn what_three_nodes_count_at_once_is_as_in_the_model_and_comes_over_whole() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let now = now();
    let mut model = count_on_three_nodes(&keyspace, now).await;
    let store = Box::pin(keyspace.open_store(node(4))).await;
    assert_as_in_model(&store, &model, now).await;
    store.close().await;

    let source = Box::pin(ScyllaTransfer::open(&keyspace.store_settings())).await.unwrap();
    let counts = |record: &Record| matches!(record, Record::Day(_) | Record::Label(_) | Record::Sheet { .. });
    let exported = all(&source).await;
    let kinds = exported.iter().fold(BTreeMap::<&str, usize>::new(), |mut kinds, record| {
        let kind = match record {
            Record::Day(_) => "day",
            Record::Label(_) => "label",
            Record::Sheet { .. } => "sheet",
            _ => "other",
        };
        *kinds.entry(kind).or_default() += 1;
        kinds
    });
    assert!(["day", "label", "sheet"].iter().all(|kind| kinds[kind] > LINKS as usize), "{kinds:?}");

    let other = Keyspace::empty().await;
    other.migrate().await;
    let sink = Box::pin(ScyllaTransfer::open(&other.store_settings())).await.unwrap();
    // Some at a time, and again as after an interruption.
    for records in [&exported[..exported.len() / 2], &exported[exported.len() / 3..]] {
        for some in records.chunks(7) {
            sink.write(some.iter().filter(|record| counts(record)).cloned().collect()).await.unwrap();
        }
    }
    let again = all(&sink).await;
    let lines = |records: &[Record]| {
        let mut lines: Vec<_> = records.iter().filter(|it| counts(it)).map(|it| format!("{it:?}")).collect();
        lines.sort();
        lines
    };
    // Sheets of several nodes have their labels in another order.
    let without_sheets = |records: &[Record]| {
        lines(&records.iter().filter(|it| !matches!(it, Record::Sheet { .. })).cloned().collect::<Vec<_>>())
    };
    assert_eq!(without_sheets(&again), without_sheets(&exported));
    let store = Box::pin(other.open_store(node(1))).await;
    assert_as_in_model(&store, &model, now).await;
    // And it is counted further.
    let mut runner = TestRunner::deterministic();
    let more = prop::collection::vec(same_hits(now), 20).new_tree(&mut runner).unwrap().current();
    store.apply_hits(Arc::new(HitBatch { days: days_of(&more, 0), ..batch(0, 1) })).await.unwrap();
    model.hits.extend(more);
    assert_as_in_model(&store, &model, now).await;
    store.close().await;
}

/// The records of counts.
async fn all(source: &ScyllaTransfer) -> Vec<Record> {
    let mut found = Vec::new();
    for section in [Section::Days, Section::Labels, Section::Sheets] {
        let mut from = None;
        loop {
            let page = source.read_page(section, from.as_deref()).await.unwrap();
            found.extend(page.records);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn an_export_has_what_nodes_of_0_1_0_alone_have_counted_and_each_label_once() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let (now, earlier) = (now(), now().minus(40 * DAY));
    write_as_0_1_0(&session, 1, &[("Jena, Thuringia, DE", 5)], now).await;
    write_as_0_1_0(&session, 2, &[("Jena, Thuringia, DE", 10)], now).await;
    write_as_0_1_0(&session, 2, &[("Jena, Thuringia, DE", 7)], earlier).await;
    let days = hits(0, now, 0).days.clone();
    store.apply_hits(Arc::new(HitBatch { days, ..batch(5, 6) })).await.unwrap();
    store.close().await;
    let source = Box::pin(ScyllaTransfer::open(&keyspace.store_settings())).await.unwrap();
    let of_link = HitSubject::Link(short_id(1));
    let mut found: Vec<_> = all(&source)
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::Label(count) if count.of == of_link => Some((count.month, count.tally.all())),
            _ => None,
        })
        .collect();
    found.sort();
    assert_eq!(found, [(earlier.month(), 7), (now.month(), 18)]);
}

//! `GET /{short_id}/webhooks/status` of a link that has had very many deliveries.
//!
//! Quick means: about as quick as the same page of a link that has two hundred. Both are asked for in turn and compared by
//! their medians, so that it matters neither how fast the machine is nor that it stumbles now and then.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use signpost::clock::Clock;
use signpost::domain::webhook::DeliveryId;
use signpost::store::Store;

use crate::store::samples::{delivered, delivery, enqueue, failed, key_id, link, noon, settlement, short_id};
use crate::support::client::Client;
use crate::support::middle;
use crate::support::server::Server;
use crate::support::stores::{Home, StoreKind, apply, on_each_store};

const MANY: u32 = 1;
const FEW: u32 = 2;
const FEW_HITS: u32 = 100;
/// Deliveries of a hit.
const URLS: u8 = 2;
/// The oldest deliveries of each link.
const FAILED: usize = 3;
const ROUNDS: usize = 15;
/// A page that is found by its key costs the same in a small and in a big table, but for a few levels of the tree. One that
/// is found by passing over others costs hundreds of times as much.
const SLOWER_AT_MOST: f64 = 5.0;
const PAGE: usize = 100;
/// The last pages of a walk, which are compared with as many of the first; a median of fewer says nothing.
const DEEPEST: usize = 100;

/// A cluster takes minutes for as many as the embedded store takes in some seconds.
fn many_hits() -> u32 {
    match StoreKind::of_this_test() {
        StoreKind::Embedded => 50_000,
        StoreKind::Cql => 5_000,
    }
}

/// Oldest first, two a second.
fn ids(n: u32, hits: u32) -> Vec<DeliveryId> {
    let hit =
        |hit: u32| (0..URLS).map(move |url| delivery(n, noon().plus(Duration::from_millis(500 * u64::from(hit))), url));
    (0..hits).flat_map(hit).collect()
}

/// The deliveries of `ids`: the first few have failed, all others were delivered.
async fn fill(store: &Arc<dyn Store>, ids: &[DeliveryId]) {
    for chunk in ids.chunks(10_000) {
        enqueue(store, chunk.iter().copied()).await;
    }
    let settlements = ids.iter().enumerate().map(|(index, id)| {
        let outcome = if index < FAILED { failed(None) } else { delivered() };
        settlement(*id, 1, outcome, id.hit.at)
    });
    let settlements: Vec<_> = settlements.collect();
    for chunk in settlements.chunks(10_000) {
        store.settle_deliveries(chunk.to_vec()).await.unwrap();
    }
}

/// A server on a store that has a link with very many deliveries and one with few, a day later.
async fn server() -> Server {
    let home = Arc::new(Home::new());
    let store = home.open_store().await;
    for (n, hits) in [(FEW, FEW_HITS), (MANY, many_hits())] {
        store.create_link(link(n, key_id(1)), None).await.unwrap();
        let began = Instant::now();
        fill(&store, &ids(n, hits)).await;
        eprintln!("{hits} hits of two deliveries were filled in within {:.1?}", began.elapsed());
    }
    store.close().await;
    drop(store);
    let tomorrow = Clock::standing_at(noon().plus(Duration::from_hours(24)));
    Server::builder().directory(home).clock(tomorrow).start()
}

fn path(n: u32, query: &str) -> String {
    format!("/{}/webhooks/status?{query}", short_id(n).as_str())
}

async fn timed(root: &Client, path: &str) -> (Value, Duration) {
    let began = Instant::now();
    let answer = root.get(path).await.expect(200);
    let took = began.elapsed();
    (answer.json(), took)
}

#[apply(on_each_store)]
async fn a_page_of_very_many_deliveries_is_as_quick_as_one_of_two_hundred() {
    let server = server().await;
    let root = server.root();
    let halfways = [(MANY, walk(&root, MANY, many_hits()).await), (FEW, walk(&root, FEW, FEW_HITS).await)];
    let mut slow = Vec::new();
    for (query, expected) in [
        ("limit=50", 50),
        ("limit=50&status=delivered", 50),
        ("limit=50&status=failed", FAILED),
        ("limit=50&status=pending", 0),
        ("limit=50&cursor=", 50),
        ("limit=50&status=delivered&cursor=", 50),
        ("limit=50&status=failed&cursor=", FAILED),
    ] {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..=ROUNDS {
            for ((n, halfway), times) in halfways.iter().zip(&mut times) {
                let query = if query.ends_with('=') { format!("{query}{halfway}") } else { query.to_owned() };
                let (page, took) = timed(&root, &path(*n, &query)).await;
                assert_eq!(page["deliveries"].as_array().unwrap().len(), expected, "{query}");
                // The first warms the caches.
                times.extend((round > 0).then_some(took));
            }
        }
        let [many, few] = times.map(|times| middle(&times));
        eprintln!("{query}: {many:.1?} of many, {few:.1?} of few");
        if many.as_secs_f64() > few.as_secs_f64() * SLOWER_AT_MOST {
            slow.push((query, many, few));
        }
    }
    assert!(slow.is_empty(), "slower than the same page of few: {slow:?}");
}

/// Goes through all pages of a link, and sees each delivery once; answers the cursor in the middle.
async fn walk(root: &Client, n: u32, hits: u32) -> String {
    let urls = link(n, key_id(1)).webhooks;
    let of = |id: DeliveryId| (id.hit.id.to_string(), urls.at(id.url_index).unwrap().to_owned());
    let mut awaited: HashSet<(String, String)> = ids(n, hits).into_iter().map(of).collect();
    let half = awaited.len() / 2;
    let has_others = awaited.len() > PAGE * DEEPEST;
    let mut queries = vec![format!("limit={PAGE}")];
    let (mut first, mut deepest) = (Vec::new(), Vec::new());
    let (mut halfway, mut before) = (None, None);
    loop {
        let this = path(n, &queries[queries.len() - 1]);
        let (page, _) = timed(root, &this).await;
        if has_others && awaited.len() <= PAGE * DEEPEST {
            // In turn, so that what the machine does besides falls on both; and each was asked for before.
            first.push(timed(root, &path(n, &queries[deepest.len()])).await.1);
            deepest.push(timed(root, &this).await.1);
        }
        for delivery in page["deliveries"].as_array().unwrap() {
            let text = |field: &str| delivery[field].as_str().unwrap().to_owned();
            assert!(awaited.remove(&(text("hit_id"), text("url"))), "twice, or of nobody: {delivery}");
            let at = text("created_at");
            assert!(before.as_ref().is_none_or(|before| at <= *before), "newest first: {at} after {before:?}");
            before = Some(at);
        }
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        if awaited.len() <= half {
            halfway.get_or_insert_with(|| cursor.to_owned());
        }
        queries.push(format!("limit={PAGE}&cursor={cursor}"));
    }
    assert!(awaited.is_empty(), "{} were never seen", awaited.len());
    if has_others {
        let [first, deepest] = [first, deepest].map(|times| middle(&times));
        eprintln!("{} pages: {first:.1?} at the beginning, {deepest:.1?} at the end", queries.len());
        assert!(deepest.as_secs_f64() < first.as_secs_f64() * SLOWER_AT_MOST, "{first:?}, {deepest:?}");
    }
    halfway.unwrap()
}

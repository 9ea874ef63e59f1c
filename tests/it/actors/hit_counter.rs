//! From the journal to the counters while the store fails.

use std::sync::Arc;

use actix::{Arbiter, System};
use serde_json::json;
use signpost::actors::hit_counter::{CountAll, CounterWakes, CountingState, HitCounter};
use signpost::actors::wake::DispatcherWake;
use signpost::counting::aggregator::HitAggregator;
use signpost::counting::bot_rules_file::BotRulesFile;
use signpost::counting::enrich::Enricher;
use signpost::domain::bots::{BotList, BotNetworks, BotRules, SharedBotRules};
use signpost::domain::hit::{HitCursor, NodeId, Position};
use signpost::domain::link::ShortId;
use signpost::domain::referrer::OwnHost;
use signpost::domain::tally::Tally;
use signpost::journal::notifier::Notifier;
use signpost::journal::record::HitRecord;
use signpost::journal::{self, Journal, JournalSettings, JournalWriter};
use signpost::store::CountStore;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use uuid::Uuid;

use crate::support::client::Client;
use crate::support::receiver::Receiver;
use crate::support::server::{Server, ServerBuilder};
use crate::support::{SOON, eventually};

fn on_faulty_store(switch: &FaultSwitch) -> ServerBuilder {
    let switch = switch.clone();
    Server::builder().wrap_store(move |store| Arc::new(FaultyStore::new(store, switch)))
}

async fn total_hits(root: &Client, id: &str) -> u64 {
    let record = root.get(&format!("/links/{id}/analytics")).await.expect(200).json();
    let devices = record["devices"].as_array().unwrap().iter().map(|device| device["count"].as_u64().unwrap());
    assert_eq!(record["total_hits"], devices.sum::<u64>());
    record["total_hits"].as_u64().unwrap()
}

async fn wait_for_hits(root: &Client, id: &str, count: u64) {
    eventually("hits", SOON, async || (total_hits(root, id).await == count).then_some(())).await;
}

/// Waits until `count` batches got an error.
async fn refused(switch: &FaultSwitch, count: u64) {
    eventually("refused batches", SOON, async || (switch.refused("apply_hits") >= count).then_some(())).await;
}

async fn hits_served(root: &Client) -> u64 {
    root.get("/usage").await.expect(200).json()["usage"]["hits_served"]["current"].as_u64().unwrap()
}

#[tokio::test]
async fn hits_that_came_while_the_store_was_out_of_reach_are_counted_once_it_is_back() {
    let switch = FaultSwitch::default();
    let server = on_faulty_store(&switch).start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")]})).await;
    server.click(&id, 5).await;
    switch.out_of_reach(true);
    server.click(&id, 20).await;
    // The counter has met the error more than once.
    refused(&switch, 2).await;
    server.click(&id, 5).await;
    switch.out_of_reach(false);
    wait_for_hits(&root, &id, 30).await;
    receiver.wait_for(30, SOON).await;
    let sent: std::collections::HashSet<_> =
        receiver.received().iter().map(|request| request.json()["hit_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sent.len(), 30, "nothing is lost");
    assert_eq!(hits_served(&root).await, 30);
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_not_counted_twice() {
    let switch = FaultSwitch::default();
    let server = on_faulty_store(&switch).start();
    let root = server.root();
    let id = root.any_link().await;
    switch.loses_answers(true);
    server.click(&id, 7).await;
    // Those that were in the journal when the counter read it.
    let counted =
        eventually("a batch", SOON, async || Some(total_hits(&root, &id).await).filter(|hits| *hits > 0)).await;
    // The same batch is sent again and again meanwhile.
    server.click(&id, 4).await;
    refused(&switch, 3).await;
    assert_eq!(total_hits(&root, &id).await, counted);
    switch.loses_answers(false);
    wait_for_hits(&root, &id, 11).await;
    assert_eq!(hits_served(&root).await, 11);
}

#[tokio::test]
async fn hits_that_the_store_never_took_wait_in_the_journal_for_the_next_start() {
    let switch = FaultSwitch::default();
    let server = on_faulty_store(&switch).start();
    let root = server.root();
    let id = root.any_link().await;
    server.click(&id, 3).await;
    wait_for_hits(&root, &id, 3).await;
    switch.out_of_reach(true);
    server.click(&id, 4).await;
    let server = Server::builder().directory(server.stop()).start();
    wait_for_hits(&server.root(), &id, 7).await;
    assert_eq!(hits_served(&server.root()).await, 7);
}

#[tokio::test]
async fn hits_of_the_last_moment_are_counted_by_a_drain_or_by_the_next_start() {
    let server = Server::start();
    let id = server.root().any_link().await;
    server.click(&id, 25).await;
    let server = Server::builder().directory(server.stop()).start();
    wait_for_hits(&server.root(), &id, 25).await;
}

fn append(journal: &JournalWriter, address: [u8; 4]) -> Position {
    let user_agent = b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
    let hit = HitRecord { at_ms: 1_795_000_000_000, user_agent, address: address.into(), ..HitRecord::EMPTY };
    journal.append(&hit).unwrap()
}

#[test]
fn a_batch_that_was_begun_before_the_rules_for_bots_changed_is_made_again_with_the_rules_of_then() {
    const NODE: NodeId = NodeId(Uuid::from_bytes([7; 16]));
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 8 << 20).unwrap());
    let with = |networks| BotRules::new(BotList::built_in(), Arc::new(BotNetworks::parse(networks).0));
    let kept = directory.path().join("bot-rules");
    BotRulesFile::open(kept.clone()).0.keep(&with("192.0.2.0/24")).unwrap();
    let settings = JournalSettings::default();
    let Journal { writer, reader, .. } =
        journal::open(&directory.path().join("journal"), &settings, NODE, Position(0)).unwrap();
    // The batch that was begun ends with the second one. By now, another network is the scanners'.
    append(&writer, [192, 0, 2, 1]);
    let begun = append(&writer, [198, 51, 100, 1]);
    (0..3).for_each(|_| _ = append(&writer, [192, 0, 2, 1]));
    (0..4).for_each(|_| _ = append(&writer, [198, 51, 100, 1]));

    System::new().block_on(async {
        let own_host = OwnHost::of_base_url("https://sign.example");
        let rules = SharedBotRules::new(with("198.51.100.0/24"));
        let aggregator = HitAggregator::new(NODE, Enricher::new(own_host, None, rules));
        let wakes = CounterWakes { notifier: Notifier::default(), dispatcher: DispatcherWake::default() };
        let cursor = HitCursor { counted: Position(0), begun };
        let counting =
            CountingState::new(store.clone(), reader, aggregator, cursor, wakes).with_bot_rules_file(kept.clone());
        let arbiter = Arbiter::new();
        let counter = HitCounter::start(&arbiter.handle(), counting, &(Arc::new(|_| {}) as _));
        assert!(counter.handle().ask_once(CountAll).await.unwrap());
        let hits = store.link_hits(ShortId(HitRecord::EMPTY.short_id), None).await.unwrap();
        let tallies = hits.days.iter().map(|(_, devices)| devices.total());
        assert_eq!(tallies.sum::<Tally>(), Tally { persons: 1 + 3, bots: 1 + 4 });
        assert_eq!(BotRulesFile::open(kept).1.unwrap().fingerprint(), with("198.51.100.0/24").fingerprint());
        counter.stop().await;
        arbiter.stop();
    });
}

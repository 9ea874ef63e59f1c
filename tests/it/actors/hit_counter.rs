//! From the journal to the counters while the store fails.

use std::sync::Arc;

use serde_json::json;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

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

//! `webhooks.suspend_after`: URLs whose deliveries have failed for a day.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::store::samples::{DAY, noon};
use crate::support::client::Client;
use crate::support::keys::text;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder, count};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const HOUR: Duration = Duration::from_hours(1);

/// One attempt for each delivery; a URL is suspended after two.
fn suspending(clock: &Clock) -> ServerBuilder {
    ["WEBHOOK_ACTIONS", "STATUS", "USAGE", "LINK_CHANGES"]
        .iter()
        .fold(Server::builder().clock(clock.clone()), |server, limit| {
            server.set(&format!("SIGNPOST_TIERS__FREE__{limit}_PER_MINUTE"), "0")
        })
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "")
        .set("SIGNPOST_WEBHOOKS__SUSPEND_AFTER", "2")
}

async fn status(client: &Client, id: &str) -> Value {
    client.get(&format!("/{id}/webhooks/status?limit=100")).await.expect(200).json()
}

/// Waits until the link has `count` deliveries and none is pending; newest first.
async fn settled(client: &Client, id: &str, count: usize) -> Vec<Value> {
    eventually("settled deliveries", SOON, async || {
        let deliveries = status(client, id).await["deliveries"].as_array().unwrap().clone();
        let is_done = deliveries.len() == count && deliveries.iter().all(|delivery| delivery["status"] != "pending");
        is_done.then_some(deliveries)
    })
    .await
}

/// Clicks twice, a day apart, so that a URL that fails is suspended.
async fn fail_for_a_day(server: &Server, client: &Client, id: &str, clock: &Clock, urls: usize) {
    server.click(id, 1).await;
    settled(client, id, urls).await;
    clock.advance(DAY);
    server.click(id, 1).await;
    settled(client, id, 2 * urls).await;
}

async fn test(client: &Client, id: &str, url: &str) -> Value {
    let answer = client.post(&format!("/{id}/webhooks/test"), json!({"url": url})).await.expect(200).json();
    answer["results"][0]["status"].clone()
}

async fn deliveries_used(client: &Client) -> u64 {
    let usage = client.get("/usage").await.expect(200).json();
    usage["usage"]["webhook_deliveries"]["current"].as_u64().unwrap()
}

#[apply(on_each_store)]
async fn a_url_that_fails_for_a_day_gets_nothing_until_a_test_succeeds() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).start();
    let shop = server.with_key(text(&server.root().new_key(json!({"name": "shop"})).await["key"]));
    let [bad, good] = ["/bad", "/good"].map(|path| receiver.url(path));
    receiver.decide_with(|request| Reply::Status(if request.path == "/bad" { 500 } else { 200 }));
    let id = shop.link_with_webhooks(&[bad.clone(), good]).await;
    server.click(&id, 1).await;
    settled(&shop, &id, 2).await;
    clock.advance(HOUR * 23);
    server.click(&id, 1).await;
    settled(&shop, &id, 4).await;
    assert_eq!(status(&shop, &id).await["webhooks"][0].get("suspended_at"), None, "not for a day");
    clock.advance(HOUR);
    server.click(&id, 1).await;
    settled(&shop, &id, 6).await;
    let webhooks = status(&shop, &id).await["webhooks"].clone();
    assert_eq!(webhooks[0]["suspended_at"], clock.now().to_string());
    assert_eq!(webhooks[1].get("suspended_at"), None);

    // Nothing is sent to it, and nothing is counted.
    let used = deliveries_used(&shop).await;
    receiver.take_received();
    clock.advance(HOUR);
    server.click(&id, 30).await;
    let deliveries = settled(&shop, &id, 66).await;
    let of_bad = deliveries.iter().filter(|delivery| delivery["url"] == bad.as_str()).take(30);
    for delivery in of_bad {
        assert_eq!(
            [&delivery["status"], &delivery["error"], &delivery["attempts"], &delivery["response_status"]],
            [&json!("failed"), &json!("suspended"), &json!(0), &Value::Null]
        );
    }
    assert!(receiver.take_received().iter().all(|request| request.path == "/good"));
    assert_eq!(deliveries_used(&shop).await, used + 30);
    let summary = status(&shop, &id).await["webhooks"][0].clone();
    assert_eq!([&summary["failed"], &summary["last_error"]], [&json!(33), &json!("suspended")]);
    let metrics = server.metrics().await;
    assert_eq!(count(&metrics, "signpost_webhook_suspensions_total"), 1);
    assert_eq!(count(&metrics, "signpost_webhook_deliveries_total{outcome=\"suspended\"}"), 30);

    // A test that fails ends nothing, nor does that of another URL.
    assert_eq!(test(&shop, &id, &bad).await, "failed");
    assert_eq!(test(&shop, &id, &receiver.url("/good")).await, "delivered");
    server.click(&id, 1).await;
    settled(&shop, &id, 68).await;
    assert_eq!(receiver.take_received().iter().filter(|request| request.path == "/bad").count(), 1, "the test");
    receiver.decide_with(|_| Reply::Status(200));
    assert_eq!(test(&shop, &id, &bad).await, "delivered");
    assert_eq!(status(&shop, &id).await["webhooks"][0].get("suspended_at"), None);
    receiver.take_received();
    server.click(&id, 1).await;
    settled(&shop, &id, 70).await;
    assert_eq!(receiver.take_received().len(), 2);
}

#[apply(on_each_store)]
async fn replayed_deliveries_of_a_suspended_url_are_sent_once_it_is_not() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).start();
    let shop = server.with_key(text(&server.root().new_key(json!({"name": "shop"})).await["key"]));
    let url = receiver.url("/");
    receiver.reply_with([Reply::Status(500); 2]);
    let id = shop.link_with_webhooks(std::slice::from_ref(&url)).await;
    fail_for_a_day(&server, &shop, &id, &clock, 1).await;
    clock.advance(HOUR);
    server.click(&id, 1).await;
    assert_eq!(settled(&shop, &id, 3).await[0]["error"], "suspended");
    let replay =
        async || shop.post(&format!("/{id}/webhooks/replay"), json!({})).await.expect(202).json()["queued"].clone();
    assert_eq!(replay().await, 3);
    let deliveries = settled(&shop, &id, 3).await;
    let attempts: Vec<_> = deliveries.iter().map(|delivery| delivery["attempts"].clone()).collect();
    assert_eq!(attempts, [json!(0), json!(1), json!(1)]);
    assert!(deliveries.iter().all(|delivery| delivery["error"] == "suspended"));
    assert_eq!((receiver.received().len(), deliveries_used(&shop).await), (2, 2));

    assert_eq!(test(&shop, &id, &url).await, "delivered");
    assert_eq!(replay().await, 3);
    let deliveries = settled(&shop, &id, 3).await;
    assert!(deliveries.iter().all(|delivery| delivery["status"] == "delivered"), "{deliveries:?}");
    let attempts: Vec<_> = deliveries.iter().map(|delivery| delivery["attempts"].clone()).collect();
    assert_eq!(attempts, [json!(1), json!(2), json!(2)]);
    assert_eq!(deliveries_used(&shop).await, 6, "two, a test, and each once in this round");
}

#[apply(on_each_store)]
async fn a_suspension_outlives_a_restart_and_ends_with_a_change_of_the_link() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).start();
    receiver.reply_with([Reply::Status(500); 2]);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    fail_for_a_day(&server, &root, &id, &clock, 1).await;
    let server = suspending(&clock).directory(server.stop()).start();
    // However long it lasts.
    clock.advance(DAY * 31);
    server.click(&id, 1).await;
    let root = server.root();
    assert_eq!(settled(&root, &id, 1).await[0]["error"], "suspended");
    assert!(status(&root, &id).await["webhooks"][0]["suspended_at"].is_string());
    root.patch_link(&id, json!({"title": "x"})).await.expect(200);
    assert_eq!(status(&root, &id).await["webhooks"][0].get("suspended_at"), None);
    // What was refused was of the link before its change.
    root.post(&format!("/{id}/webhooks/replay"), json!({})).await.expect(202);
    clock.advance(HOUR);
    server.click(&id, 1).await;
    let deliveries = settled(&root, &id, 2).await;
    assert!(deliveries.iter().all(|delivery| delivery["status"] == "delivered"), "{deliveries:?}");
    assert_eq!(receiver.received().len(), 4);
}

#[apply(on_each_store)]
async fn retries_of_a_url_that_was_suspended_meanwhile_are_not_made() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "1h").start();
    let root = server.root();
    receiver.decide_with(|_| Reply::Status(500));
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    let attempted = async |deliveries: usize, attempts: u64| {
        eventually("attempts", SOON, async || {
            let found = status(&root, &id).await["deliveries"].as_array().unwrap().clone();
            (found.len() == deliveries && found[0]["attempts"] == attempts).then_some(())
        })
        .await;
    };
    server.click(&id, 1).await;
    attempted(1, 1).await;
    clock.advance(HOUR * 2);
    settled(&root, &id, 1).await;
    // The second fails for good before the third is due again.
    clock.advance(DAY);
    server.click(&id, 1).await;
    attempted(2, 1).await;
    clock.advance(HOUR / 2);
    server.click(&id, 1).await;
    attempted(3, 1).await;
    clock.advance(HOUR * 3 / 4);
    eventually("a suspension", SOON, async || status(&root, &id).await["webhooks"][0].get("suspended_at").map(drop))
        .await;
    assert_eq!(status(&root, &id).await["deliveries"][0]["status"], "pending");
    clock.advance(HOUR);
    let last = settled(&root, &id, 3).await.remove(0);
    assert_eq!([&last["error"], &last["attempts"]], [&json!("suspended"), &json!(1)]);
    assert_eq!(receiver.received().len(), 5);
}

#[apply(on_each_store)]
async fn without_the_setting_nothing_is_suspended() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).unset("SIGNPOST_WEBHOOKS__SUSPEND_AFTER").start();
    receiver.decide_with(|_| Reply::Status(500));
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    fail_for_a_day(&server, &root, &id, &clock, 1).await;
    server.click(&id, 1).await;
    assert_eq!(settled(&root, &id, 3).await[0]["error"], "http 500");
    assert_eq!((status(&root, &id).await["webhooks"][0].get("suspended_at"), receiver.received().len()), (None, 3));
}

#[apply(on_each_store)]
async fn a_start_without_the_setting_ends_all_that_was_counted() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).start();
    receiver.decide_with(|_| Reply::Status(500));
    let id = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    fail_for_a_day(&server, &server.root(), &id, &clock, 1).await;
    let server = suspending(&clock).unset("SIGNPOST_WEBHOOKS__SUSPEND_AFTER").directory(server.stop()).start();
    receiver.decide_with(|_| Reply::Status(200));
    clock.advance(HOUR);
    server.click(&id, 1).await;
    assert_eq!(settled(&server.root(), &id, 3).await[0]["status"], "delivered");
    let server = suspending(&clock).directory(server.stop()).start();
    assert_eq!(status(&server.root(), &id).await["webhooks"][0].get("suspended_at"), None);
    receiver.decide_with(|_| Reply::Status(500));
    clock.advance(HOUR);
    server.click(&id, 1).await;
    assert_eq!(settled(&server.root(), &id, 4).await[0]["error"], "http 500");
}

#[apply(on_each_store)]
async fn a_test_keeps_its_result_if_the_suspension_can_not_be_ended() {
    let (clock, receiver, switch) = (Clock::standing_at(noon()), Receiver::start().await, FaultSwitch::default());
    let around = switch.clone();
    let server = suspending(&clock).wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let root = server.root();
    let url = receiver.url("/");
    receiver.reply_with([Reply::Status(500); 2]);
    let id = root.link_with_webhooks(std::slice::from_ref(&url)).await;
    fail_for_a_day(&server, &root, &id, &clock, 1).await;
    switch.out_of_reach_after(0, "end_suspension");
    assert_eq!(test(&root, &id, &url).await, "delivered");
    switch.out_of_reach_after(usize::MAX, "end_suspension");
    switch.out_of_reach(false);
    let is_suspended = async || status(&root, &id).await["webhooks"][0].get("suspended_at").is_some();
    assert!(is_suspended().await);
    assert_eq!(test(&root, &id, &url).await, "delivered");
    assert!(!is_suspended().await);
}

/// They take no slot, and are settled many at once.
#[apply(on_each_store)]
async fn deliveries_of_a_suspended_url_delay_no_other() {
    const HITS: usize = 300;
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = suspending(&clock).start();
    receiver.decide_with(|request| Reply::Status(if request.path == "/bad" { 500 } else { 200 }));
    let root = server.root();
    let [suspended, other] = [
        root.link_with_webhooks(&[receiver.url("/bad")]).await,
        root.link_with_webhooks(&[receiver.url("/good")]).await,
    ];
    fail_for_a_day(&server, &root, &suspended, &clock, 1).await;
    receiver.take_received();
    server.click(&suspended, HITS).await;
    server.click(&other, 1).await;
    assert_eq!(receiver.wait_for(1, SOON).await[0].path, "/good");
    eventually("all are settled", SOON, async || {
        (status(&root, &suspended).await["webhooks"][0]["failed"] == HITS + 2).then_some(())
    })
    .await;
    assert_eq!(receiver.received().len(), 1);
}

//! `POST /{short_id}/webhooks/replay`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::webhook::first_stored_day;
use signpost::store::Store;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::store::samples::{DAY, delivered, delivery, enqueue, failed, key_id, link, noon, settlement, short_id};
use crate::support::client::{Answer, Client};
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder};
use crate::support::signature::Verifier;
use crate::support::stores::{Home, apply, on_each_store};
use crate::support::{SOON, eventually};

const TARGET: &str = "https://example.com/";

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Retries follow at once.
fn quick() -> ServerBuilder {
    Server::builder()
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10ms,10ms")
        .set("SIGNPOST_TIERS__FREE__WEBHOOK_ACTIONS_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__FREE__STATUS_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0")
}

fn path(id: &str) -> String {
    format!("/{id}/webhooks/replay")
}

async fn replay(client: &Client, id: &str, body: Value) -> Value {
    client.post(&path(id), body).await.expect(202).json()
}

fn all(queued: u64) -> Value {
    json!({"queued": queued, "next_cursor": null})
}

/// Waits until the link has `count` deliveries and none is pending; newest first.
async fn settled(client: &Client, id: &str, count: usize) -> Vec<Value> {
    eventually("settled deliveries", SOON, async || {
        let status = client.get(&format!("/{id}/webhooks/status?limit=100")).await.expect(200).json();
        let deliveries = status["deliveries"].as_array().unwrap().clone();
        let done = deliveries.len() == count && deliveries.iter().all(|delivery| delivery["status"] != "pending");
        done.then_some(deliveries)
    })
    .await
}

async fn faults(client: &Client, id: &str, body: Value) -> Vec<String> {
    let answer: Answer = client.post(&path(id), body).await.expect(422);
    let faults = answer.problem("validation")["errors"].as_array().unwrap().clone();
    faults.iter().map(|fault| text(&fault["pointer"]).to_owned()).collect()
}

#[apply(on_each_store)]
async fn a_failed_delivery_is_sent_again_as_it_was_with_three_attempts_anew() {
    let (server, receiver) = (quick().start(), Receiver::start().await);
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.shorten(json!({"redirect_url": TARGET, "data": {"n": 1}, "webhooks": [receiver.url("/")]})).await;
    receiver.reply_with([Reply::Status(500); 5]);
    server.click(&id, 1).await;
    let failed = settled(&shop, &id, 1).await.remove(0);
    assert_eq!((&failed["status"], &failed["attempts"]), (&json!("failed"), &json!(3)));
    let first = receiver.take_received().remove(0);
    // It tells of the link as it was at the hit.
    let changed = json!({"redirect_url": "https://example.com/2", "data": {"n": 2}}).to_string();
    let json_body = [("Content-Type", "application/json")];
    shop.send(Method::PATCH, &format!("/links/{id}"), &json_body, Some(changed.into())).await.expect(200);

    assert_eq!(replay(&shop, &id, json!({})).await, all(1));
    let delivered = settled(&shop, &id, 1).await.remove(0);
    assert_eq!((&delivered["status"], &delivered["attempts"]), (&json!("delivered"), &json!(6)));
    assert_eq!((&delivered["hit_id"], &delivered["created_at"]), (&failed["hit_id"], &failed["created_at"]));
    assert_eq!((&delivered["response_status"], &delivered["error"]), (&json!(200), &Value::Null));
    let again = receiver.take_received();
    assert_eq!(again.len(), 3);
    for request in again {
        assert_eq!((&request.body, request.header("webhook-id")), (&first.body, first.header("webhook-id")));
        assert!(Verifier::new(text(&key["webhook_secret"])).is_standard(&request));
        assert_eq!(request.header("signpost-test"), "");
        assert_eq!(request.header("signpost-bot"), first.header("signpost-bot"));
    }
    let status = shop.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    let of_url = &status["webhooks"][0];
    assert_eq!([&of_url["pending"], &of_url["delivered"], &of_url["failed"]], [&json!(0), &json!(1), &json!(0)]);
    let usage = shop.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"]["current"], 2, "once for the hit, once for the replay");
    // There is none left that has failed.
    assert_eq!(replay(&shop, &id, json!({})).await, all(0));
    let metrics = server.metrics().await;
    assert!(metrics.lines().any(|line| line == "signpost_webhook_replays_total 1"));
}

#[apply(on_each_store)]
async fn what_is_replayed_is_chosen_by_status_url_and_hit() {
    let (server, receiver) = (quick().start(), Receiver::start().await);
    let root = server.root();
    let [good, bad, gone] = ["/good", "/bad", "/gone"].map(|path| receiver.url(path));
    receiver.decide_with(|request| Reply::Status(if request.path == "/bad" { 500 } else { 200 }));
    let id = root.link_with_webhooks(&[good.clone(), bad.clone(), gone.clone()]).await;
    server.click(&id, 1).await;
    settled(&root, &id, 3).await;
    server.click(&id, 1).await;
    let deliveries = settled(&root, &id, 6).await;
    let kept = json!({"webhooks": [good, bad]}).to_string();
    let json_body = [("Content-Type", "application/json")];
    root.send(Method::PATCH, &format!("/links/{id}"), &json_body, Some(kept.into())).await.expect(200);
    let (newer, older) = (&deliveries[0]["hit_id"], &deliveries[5]["hit_id"]);
    assert_ne!(newer, older);

    let sent = async |body: Value, expected: usize| {
        receiver.take_received();
        assert_eq!(replay(&root, &id, body.clone()).await, all(expected as u64), "{body}");
        settled(&root, &id, 6).await;
        let requests = receiver.take_received();
        let mut all_sent: Vec<_> =
            requests.iter().map(|one| (one.path.clone(), text(&one.json()["hit_id"]).to_owned())).collect();
        all_sent.sort();
        all_sent.dedup();
        assert_eq!(all_sent.len(), expected, "{body}");
        all_sent
    };
    let of = |path: &str, hit: &Value| (path.to_owned(), text(hit).to_owned());
    let both = |path: &str| {
        let mut both = vec![of(path, older), of(path, newer)];
        both.sort();
        both
    };
    assert_eq!(sent(json!({}), 2).await, both("/bad"));
    assert_eq!(sent(json!({"status": "failed"}), 2).await, both("/bad"));
    assert_eq!(sent(json!({"status": "delivered"}), 2).await, both("/good"));
    assert_eq!(sent(json!({"status": "any", "url": good}), 2).await, both("/good"));
    assert_eq!(sent(json!({"hit_id": older}), 2).await, [of("/bad", older), of("/good", older)]);
    assert_eq!(sent(json!({"hit_id": newer, "status": "failed"}), 1).await, [of("/bad", newer)]);
    // A webhook that the link has no more is replayed only if it is named.
    assert_eq!(sent(json!({"status": "any"}), 4).await.len(), 4);
    assert_eq!(sent(json!({"status": "any", "url": gone, "hit_id": newer}), 1).await, [of("/gone", newer)]);
    assert_eq!(sent(json!({"hit_id": "019aa557-9f54-7d1e-8a5b-20c4a79e1f36"}), 0).await, []);
}

#[apply(on_each_store)]
async fn a_time_range_and_a_cursor_go_through_a_thousand_at_a_time_oldest_first() {
    let home = Arc::new(Home::new());
    let store = home.open_store().await;
    store.create_link(link(1, key_id(1)), None).await.unwrap();
    let at = |n: u64| signpost::domain::calendar::Timestamp(noon().0 + n * 1_000);
    let ids: Vec<_> = (0..1_200).map(|n| delivery(1, at(n), 0)).collect();
    enqueue(&store, ids.iter().copied()).await;
    let outcome = |n: usize| if n % 100 == 99 { delivered() } else { failed(None) };
    let outcomes = ids.iter().enumerate().map(|(n, id)| settlement(*id, 1, outcome(n), id.hit.at));
    store.settle_deliveries(outcomes.collect()).await.unwrap();
    store.close().await;
    drop(store);
    // No receiver and no owner: what is queued fails at once, and is not among the failed ones of the next page's times.
    let server = quick().directory(home).clock(Clock::standing_at(noon().plus(DAY))).start();
    let root = server.root();
    let id = short_id(1).as_str().to_owned();
    let time = |n: u64| at(n).to_string();
    let range = json!({"since": time(100), "until": time(200)});
    assert_eq!(replay(&root, &id, range.clone()).await, all(99));
    let nothing = json!({"since": time(1_200)});
    assert_eq!(replay(&root, &id, nothing).await, all(0));

    let first = replay(&root, &id, json!({"status": "any", "since": time(0)})).await;
    let cursor = text(&first["next_cursor"]).to_owned();
    let second = replay(&root, &id, json!({"status": "any", "since": time(0), "cursor": cursor})).await;
    assert_eq!(second["next_cursor"], Value::Null);
    assert!((1..=1_000).contains(&first["queued"].as_u64().unwrap()), "{first}");
    assert!((100..=200).contains(&second["queued"].as_u64().unwrap()), "{second}");
    let other = root.any_link().await;
    assert_eq!(faults(&root, &other, json!({"status": "any", "since": time(0), "cursor": cursor})).await, ["/cursor"]);
    // A cursor goes with the fields of its request.
    for fields in [
        json!({"status": "any", "cursor": cursor}),
        json!({"status": "failed", "since": time(0), "cursor": cursor}),
        json!({"status": "any", "since": time(1), "cursor": cursor}),
        json!({"status": "any", "since": time(0), "until": time(900), "cursor": cursor}),
        json!({"status": "any", "since": time(0), "cursor": cursor[..cursor.len() - 2]}),
    ] {
        assert_eq!(faults(&root, &id, fields).await, ["/cursor"]);
    }
}

#[apply(on_each_store)]
async fn deliveries_older_than_thirty_days_are_not_replayed() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "").start();
    receiver.reply_with([Reply::Status(500)]);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    settled(&root, &id, 1).await;
    clock.advance(DAY * 31);
    assert_eq!(replay(&root, &id, json!({"since": "2026-01-01T00:00:00Z"})).await, all(0));
    assert_eq!(receiver.received().len(), 1);
}

#[apply(on_each_store)]
async fn what_is_replayed_on_the_last_day_is_sent_on_the_next() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let behind = Arc::new(OnceLock::new());
    let seen = Arc::clone(&behind);
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10s");
    let wrap = move |store: Arc<dyn Store>| {
        assert!(seen.set(Arc::clone(&store)).is_ok());
        store
    };
    let server = server.wrap_store(wrap).start();
    let root = server.root();
    receiver.reply_with([Reply::Status(500); 3]);
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    receiver.wait_for(1, SOON).await;
    let attempts = async |count: u64| {
        eventually("attempts", SOON, async || {
            let status = root.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
            (status["deliveries"][0]["attempts"] == count).then_some(())
        })
        .await;
    };
    attempts(1).await;
    clock.advance(Duration::from_secs(11));
    attempts(2).await;
    let last_seconds = noon().plus(DAY * 31).day().start().minus(Duration::from_secs(5));
    clock.advance(last_seconds.since(clock.now()));
    assert_eq!(replay(&root, &id, json!({})).await, all(1));
    attempts(3).await;
    // It is the next day, and what is old is removed.
    clock.advance(Duration::from_secs(6));
    let store = behind.get().unwrap();
    while store.drop_deliveries(first_stored_day(clock.now())).await.unwrap() {}
    clock.advance(Duration::from_secs(6));
    receiver.wait_for(4, SOON).await;
}

#[apply(on_each_store)]
async fn replays_count_in_the_quota_and_refused_deliveries_for_the_first_time() {
    let builder = quick().set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "2");
    let (server, receiver) = (builder.start(), Receiver::start().await);
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    settled(&shop, &id, 1).await;
    assert_eq!(replay(&shop, &id, json!({"status": "delivered"})).await, all(1));
    settled(&shop, &id, 1).await;
    server.click(&id, 1).await;
    let refused = settled(&shop, &id, 2).await.remove(0);
    assert_eq!((&refused["error"], &refused["attempts"]), (&json!("quota exceeded"), &json!(0)));
    assert_eq!(replay(&shop, &id, json!({})).await, all(1));
    let refused = settled(&shop, &id, 2).await.remove(0);
    assert_eq!((&refused["error"], &refused["attempts"]), (&json!("quota exceeded"), &json!(0)));
    assert_eq!(receiver.received().len(), 2);

    let path = format!("/api-keys/{}", text(&key["key_id"]));
    let json_body = [("Content-Type", "application/json")];
    let pro = json!({"tier": "Pro"}).to_string();
    server.root().send(Method::PATCH, &path, &json_body, Some(pro.into())).await.expect(200);
    assert_eq!(replay(&shop, &id, json!({})).await, all(1));
    let sent = settled(&shop, &id, 2).await.remove(0);
    assert_eq!((&sent["status"], &sent["attempts"]), (&json!("delivered"), &json!(1)));
    let usage = shop.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"]["current"], 3);
}

#[apply(on_each_store)]
async fn pending_deliveries_are_left_alone() {
    let clock = Clock::standing_at(noon());
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10s").start();
    let (root, receiver) = (server.root(), Receiver::start().await);
    receiver.reply_with([Reply::Status(500)]);
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    let status = async || root.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    let tried = eventually("the first attempt", SOON, async || {
        let status = status().await;
        (status["deliveries"][0]["attempts"] == 1).then_some(status)
    })
    .await;
    for body in [json!({}), json!({"status": "any"}), json!({"hit_id": tried["deliveries"][0]["hit_id"]})] {
        assert_eq!(replay(&root, &id, body).await, all(0));
    }
    assert_eq!((status().await, receiver.received().len()), (tried, 1));
}

#[apply(on_each_store)]
async fn a_replay_needs_the_scope_and_the_link_and_reports_all_faults_at_once() {
    let server = quick().start();
    let root = server.root();
    let shop = server.with_key(text(&root.new_key(json!({"name": "shop"})).await["key"]));
    let other = server.with_key(text(&root.new_key(json!({"name": "other"})).await["key"]));
    let reader = json!({"name": "reader", "scopes": ["links:write", "webhooks:read"]});
    let reader = server.with_key(text(&root.new_key(reader).await["key"]));
    let id = shop.any_link().await;
    reader.post(&path(&id), json!({})).await.expect(403).problem("scope-missing");
    other.post(&path(&id), json!({"x": 1})).await.expect(403).problem("not-owner");
    other.post(&path("zzzzzzz"), json!({"x": 1})).await.expect(404).problem("not-found");
    shop.send(Method::POST, &path(&id), &[], Some(b"{".to_vec())).await.expect(400).problem("malformed-body");
    let answer = shop.send(Method::POST, &path(&id), &[], None).await.expect(202);
    assert_eq!(answer.json(), all(0));
    let all_wrong = json!({
        "since": "yesterday", "until": 7, "status": "pending", "url": "https://example.com/", "hit_id": "x",
        "cursor": "x", "x": 1,
    });
    let mut found = faults(&shop, &id, all_wrong).await;
    found.sort();
    assert_eq!(found, ["/cursor", "/hit_id", "/since", "/status", "/until", "/url", "/x"]);
    let turned = json!({"since": "2026-11-21T12:00:00Z", "until": "2026-11-21T12:00:00Z"});
    assert_eq!(faults(&shop, &id, turned).await, ["/until"]);
}

#[apply(on_each_store)]
async fn tests_and_replays_count_together_in_one_limit() {
    let server = Server::builder().clock(Clock::standing_at(noon())).start();
    let shop = server.with_key(text(&server.root().new_key(json!({"name": "shop"})).await["key"]));
    let id = shop.any_link().await;
    for _ in 0..3 {
        shop.post(&path(&id), json!({})).await.expect(202);
        shop.post(&format!("/{id}/webhooks/test"), json!({})).await.expect(200);
    }
    for action in ["replay", "test"] {
        shop.post(&format!("/{id}/webhooks/{action}"), json!({})).await.expect(429).problem("rate-limited");
    }
}

#[apply(on_each_store)]
async fn a_replay_goes_on_after_a_restart() {
    let (clock, receiver) = (Clock::standing_at(noon()), Receiver::start().await);
    let server = || Server::builder().clock(clock.clone()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10s");
    receiver.reply_with([Reply::Status(500); 3]);
    let running = server().start();
    let id = running.root().link_with_webhooks(&[receiver.url("/")]).await;
    running.click(&id, 1).await;
    receiver.wait_for(1, SOON).await;
    let attempts = async |server: &Server, count: u64| {
        eventually("attempts", SOON, async || {
            let status = server.root().get(&format!("/{id}/webhooks/status")).await.expect(200).json();
            (status["deliveries"][0]["attempts"] == count).then_some(status["deliveries"][0]["status"].clone())
        })
        .await
    };
    attempts(&running, 1).await;
    clock.advance(std::time::Duration::from_secs(11));
    assert_eq!(attempts(&running, 2).await, "failed");
    assert_eq!(replay(&running.root(), &id, json!({})).await, all(1));
    assert_eq!(attempts(&running, 3).await, "pending");
    let running = server().directory(running.stop()).start();
    clock.advance(std::time::Duration::from_secs(11));
    assert_eq!(attempts(&running, 4).await, "delivered");
}

#[apply(on_each_store)]
async fn without_the_store_nothing_is_replayed() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = quick().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let root = server.root();
    let id = root.any_link().await;
    root.get("/usage").await.expect(200);
    switch.out_of_reach(true);
    root.post(&path(&id), json!({})).await.expect(503).problem("unavailable");
}

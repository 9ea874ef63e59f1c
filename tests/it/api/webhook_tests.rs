//! `POST /{short_id}/webhooks/test`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use reqwest::Method;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::store::samples::noon;
use crate::support::client::{Answer, Client};
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder};
use crate::support::signature::Verifier;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const TARGET: &str = "https://example.com/";

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn without_rate_limit() -> ServerBuilder {
    Server::builder().set("SIGNPOST_TIERS__FREE__WEBHOOK_ACTIONS_PER_MINUTE", "0")
}

fn path(id: &str) -> String {
    format!("/{id}/webhooks/test")
}

/// Tests all webhooks, without a body.
async fn test_all(client: &Client, id: &str) -> Answer {
    client.send(Method::POST, &path(id), &[], None).await
}

async fn deliveries_used(client: &Client) -> Value {
    client.get("/usage").await.expect(200).json()["usage"]["webhook_deliveries"]["current"].clone()
}

/// A result but for its duration.
fn result(url: &str, status: &str, response_status: impl Into<Value>, error: impl Into<Value>) -> Value {
    let (response_status, error) = (response_status.into(), error.into());
    json!({"url": url, "status": status, "response_status": response_status, "error": error})
}

/// The results, whose durations must be at most `longest`.
fn results(answer: Answer, longest: Duration) -> Vec<Value> {
    let mut results = answer.expect(200).json()["results"].as_array().unwrap().clone();
    for result in &mut results {
        let took = result.as_object_mut().unwrap().remove("duration_ms").unwrap();
        assert!(Duration::from_millis(took.as_u64().unwrap()) <= longest, "{took}");
    }
    results
}

#[apply(on_each_store)]
async fn a_test_sends_each_webhook_one_signed_request_and_tells_what_became_of_it() {
    let (server, receiver) = (without_rate_limit().start(), Receiver::start().await);
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let urls = ["/b", "/a", "/c"].map(|path| receiver.url(path));
    let body = json!({"redirect_url": TARGET, "data": {"n": 1.0}, "webhooks": urls});
    let id = shop.shorten(body).await;
    receiver.decide_with(|request| Reply::Status(if request.path == "/a" { 500 } else { 204 }));

    let answer = test_all(&shop, &id).await;
    assert_eq!(
        results(answer, Duration::from_secs(10)),
        [
            result(&urls[0], "delivered", json!(204), Value::Null),
            result(&urls[1], "failed", json!(500), json!("http 500")),
            result(&urls[2], "delivered", json!(204), Value::Null),
        ]
    );
    let requests = receiver.received();
    assert_eq!(requests.len(), 3, "one try each");
    let mut hits = std::collections::HashSet::new();
    for request in &requests {
        let verifier = Verifier::new(text(&key["webhook_secret"]));
        assert!(verifier.is_signed(request) && verifier.is_standard(request));
        assert_eq!(request.header("signpost-test"), "true");
        let told = request.json();
        let hit_id = text(&told["hit_id"]).to_owned();
        assert!(request.header("webhook-id").starts_with(&format!("msg_{}_", hit_id.replace('-', ""))));
        assert!(Timestamp::parse(text(&told["hit_at"])).is_some());
        assert_eq!(
            told,
            json!({
                "event": "hit", "short_id": id, "redirect_url": TARGET,
                "hit_id": hit_id, "hit_at": told["hit_at"], "data": {"n": 1.0},
            })
        );
        hits.insert(hit_id);
    }
    assert_eq!(hits.len(), 3, "each has a hit of its own");

    // They are in no list and no analytics, and count in the quota.
    let status = shop.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    assert_eq!(status["deliveries"], json!([]));
    assert!(status["webhooks"].as_array().unwrap().iter().all(|of| of["failed"] == 0 && of["last_status"].is_null()));
    let analytics = shop.get(&format!("/links/{id}/analytics/summary")).await.expect(200).json();
    assert_eq!(analytics["total_hits"], 0);
    assert_eq!(deliveries_used(&shop).await, 3);
    let metrics = server.metrics().await;
    for (outcome, count) in [("delivered", 2), ("failed", 1), ("quota_exceeded", 0)] {
        let line = format!("signpost_webhook_tests_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|shown| shown == line), "{line}");
    }
    // A hit's delivery is no test.
    receiver.take_received();
    server.click(&id, 1).await;
    let hit = receiver.wait_for(3, crate::support::SOON).await.remove(0);
    assert_eq!(hit.header("signpost-test"), "");
}

#[apply(on_each_store)]
async fn one_webhook_is_tested_by_its_url() {
    let (server, receiver) = (without_rate_limit().start(), Receiver::start().await);
    let root = server.root();
    let [first, second] = ["/1", "/2"].map(|path| receiver.url(path));
    let id = root.link_with_webhooks(&[first.clone(), second.clone()]).await;
    let answer = root.post(&path(&id), json!({"url": second})).await;
    assert_eq!(results(answer, Duration::from_secs(10)), [result(&second, "delivered", json!(200), Value::Null)]);
    assert_eq!(receiver.received().iter().map(|request| request.path.as_str()).collect::<Vec<_>>(), ["/2"]);

    let faults = async |body: Value| {
        let answer = root.post(&path(&id), body).await.expect(422);
        let faults = answer.problem("validation")["errors"].as_array().unwrap().clone();
        faults.iter().map(|fault| text(&fault["pointer"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(faults(json!({"url": receiver.url("/3")})).await, ["/url"]);
    assert_eq!(faults(json!({"url": 7})).await, ["/url"]);
    assert_eq!(faults(json!({"x": 7})).await, ["/x"]);
    // A webhook that was taken off is none of the link.
    root.send(
        Method::PATCH,
        &format!("/links/{id}"),
        &[("Content-Type", "application/json")],
        Some(json!({"webhooks": [first]}).to_string().into()),
    )
    .await
    .expect(200);
    assert_eq!(faults(json!({"url": second})).await, ["/url"]);
    assert_eq!(receiver.received().len(), 1);
    root.send(Method::POST, &path(&id), &[], Some(b"{".to_vec())).await.expect(400).problem("malformed-body");
    let bare = root.any_link().await;
    assert_eq!(root.post(&path(&bare), json!({})).await.expect(200).json(), json!({"results": []}));
}

#[apply(on_each_store)]
async fn tests_past_the_quota_are_not_sent() {
    let builder = without_rate_limit().set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "3");
    let (server, receiver) = (builder.start(), Receiver::start().await);
    let shop = server.with_key(text(&server.root().new_key(json!({"name": "shop"})).await["key"]));
    let urls = ["/1", "/2"].map(|path| receiver.url(path));
    let id = shop.link_with_webhooks(&urls).await;
    let delivered = |url| result(url, "delivered", json!(200), Value::Null);
    let refused = |url| result(url, "failed", Value::Null, json!("quota exceeded"));
    let soon = Duration::from_secs(10);
    assert_eq!(results(test_all(&shop, &id).await, soon), [delivered(&urls[0]), delivered(&urls[1])]);
    // The root's request counts in the quota of the link's owner, too.
    assert_eq!(results(test_all(&server.root(), &id).await, soon), [delivered(&urls[0]), refused(&urls[1])]);
    assert_eq!(results(test_all(&shop, &id).await, soon), [refused(&urls[0]), refused(&urls[1])]);
    assert_eq!((deliveries_used(&shop).await, receiver.received().len()), (json!(3), 3));
    // Deliveries find the quota used up as well.
    server.click(&id, 1).await;
    crate::support::eventually("the deliveries are refused", crate::support::SOON, async || {
        let status = server.root().get(&format!("/{id}/webhooks/status")).await.expect(200).json();
        let refused = status["deliveries"].as_array().unwrap().iter().filter(|of| of["error"] == "quota exceeded");
        (refused.count() == 2).then_some(())
    })
    .await;
    assert_eq!(receiver.received().len(), 3);
}

#[apply(on_each_store)]
async fn a_test_needs_the_scope_and_the_link_and_has_a_limit() {
    let clock = Clock::standing_at(noon());
    let server = Server::builder().clock(clock).start();
    let (root, receiver) = (server.root(), Receiver::start().await);
    let shop = server.with_key(text(&root.new_key(json!({"name": "shop"})).await["key"]));
    let other = server.with_key(text(&root.new_key(json!({"name": "other"})).await["key"]));
    let reader = json!({"name": "reader", "scopes": ["links:write", "webhooks:read"]});
    let reader = server.with_key(text(&root.new_key(reader).await["key"]));
    let id = shop.link_with_webhooks(&[receiver.url("/")]).await;
    test_all(&reader, &id).await.expect(403).problem("scope-missing");
    test_all(&other, &id).await.expect(403).problem("not-owner");
    test_all(&other, "zzzzzzz").await.expect(404).problem("not-found");
    // Existence comes before the fields.
    other.post(&path("zzzzzzz"), json!({"x": 1})).await.expect(404);
    assert_eq!(receiver.received().len(), 0);
    for left in (0..6).rev() {
        let answer = test_all(&shop, &id).await.expect(200);
        assert_eq!(answer.header("ratelimit-policy"), "\"webhook_actions\";q=6;w=60");
        assert_eq!(answer.header("ratelimit"), format!("\"webhook_actions\";r={left};t=60"));
    }
    test_all(&shop, &id).await.expect(429).problem("rate-limited");
    test_all(&root, &id).await.expect(200);
    assert_eq!(receiver.received().len(), 7);
}

#[apply(on_each_store)]
async fn a_receiver_that_does_not_answer_is_told_of_in_time() {
    let (server, receiver) =
        (without_rate_limit().set("SIGNPOST_WEBHOOKS__TIMEOUT", "2s").start(), Receiver::start().await);
    receiver.decide_with(|request| if request.path == "/silent" { Reply::Silence } else { Reply::Status(200) });
    let urls = ["/silent", "/2"].map(|path| receiver.url(path));
    let id = server.root().link_with_webhooks(&urls).await;
    let answer = results(test_all(&server.root(), &id).await, Duration::from_secs(5));
    let expected = [
        result(&urls[0], "failed", Value::Null, json!("timed out")),
        result(&urls[1], "delivered", json!(200), Value::Null),
    ];
    assert_eq!(answer, expected);
}

#[apply(on_each_store)]
async fn the_duration_of_a_test_ends_with_the_head_of_the_answer() {
    let (server, receiver) = (without_rate_limit().start(), Receiver::start().await);
    receiver.decide_with(|_| Reply::HeadAlone(200));
    let urls = [receiver.url("/")];
    let id = server.root().link_with_webhooks(&urls).await;
    // The sender waits for the body for a second, which is not in the duration.
    let began = Instant::now();
    let answer = test_all(&server.root(), &id).await;
    let answer = results(answer, began.elapsed().saturating_sub(Duration::from_secs(1)));
    assert_eq!(answer, [result(&urls[0], "delivered", json!(200), Value::Null)]);
}

#[apply(on_each_store)]
async fn a_key_takes_only_a_part_of_the_places_and_a_host_gets_few_tests_at_once() {
    let (server, receiver) = (without_rate_limit().start(), Receiver::start().await);
    let elsewhere = Receiver::start().await;
    let [shop, other] = ["shop", "other"].map(|name| {
        let root = server.root();
        async move { root.new_key(json!({"name": name})).await["key"].as_str().unwrap().to_owned() }
    });
    let (shop, other) = (server.with_key(&shop.await), server.with_key(&other.await));
    let urls: Vec<_> = (0..10).map(|n| receiver.url(&format!("/{n}"))).collect();
    let id = shop.link_with_webhooks(&urls).await;
    let others = other.link_with_webhooks(&[elsewhere.url("/")]).await;
    receiver.holds_answers(true);
    let tests = join_all((0..3).map(|_| test_all(&shop, &id)));
    let meanwhile = async {
        receiver.wait_for(10, SOON).await;
        eventually("no more places", SOON, async || {
            let answer = test_all(&shop, &id).await;
            (answer.status == 503).then_some(())
        })
        .await;
        test_all(&other, &others).await.expect(200);
        assert_eq!(receiver.received().len(), 10, "at once");
        receiver.holds_answers(false);
    };
    let (tested, ()) = join(tests, meanwhile).await;
    for answer in tested {
        assert!(results(answer, Duration::from_secs(10)).iter().all(|result| result["status"] == "delivered"));
    }
    assert_eq!(receiver.received().len(), 30);
}

#[apply(on_each_store)]
async fn a_test_waits_for_a_place_of_its_host_only_so_long_that_it_has_time_left() {
    let (server, receiver) = (without_rate_limit().start(), Receiver::start().await);
    let root = server.root();
    let urls: Vec<_> = (0..10).map(|n| receiver.url(&format!("/{n}"))).collect();
    let (id, late_id) = (root.link_with_webhooks(&urls).await, root.link_with_webhooks(&urls[..1]).await);
    receiver.holds_answers(true);
    let late = async {
        receiver.wait_for(10, SOON).await;
        let began = Instant::now();
        let answer = test_all(&root, &late_id).await;
        receiver.holds_answers(false);
        (results(answer, Duration::ZERO), began.elapsed())
    };
    let (tested, (late, took)) = join(test_all(&root, &id), late).await;
    assert_eq!(late, [result(&urls[0], "failed", Value::Null, json!("too many tests of this host at once"))]);
    assert!((5.0..8.0).contains(&took.as_secs_f64()), "{took:?}");
    assert!(results(tested, Duration::from_secs(10)).iter().all(|result| result["status"] == "delivered"));
    assert_eq!(receiver.received().len(), 10);
}

#[apply(on_each_store)]
async fn tests_go_to_no_address_that_deliveries_do_not_go_to() {
    let receiver = Receiver::start().await;
    let server = without_rate_limit().start();
    let id = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    // The network was allowed when the link was made.
    let guarded = || without_rate_limit().set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "");
    let server = guarded().directory(server.stop()).start();
    let answer = results(test_all(&server.root(), &id).await, Duration::from_secs(10));
    assert_eq!(answer, [result(&receiver.url("/"), "failed", Value::Null, json!("blocked address"))]);
    assert_eq!(receiver.received().len(), 0);
}

#[apply(on_each_store)]
async fn without_the_store_nothing_is_sent() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let builder = without_rate_limit().wrap_store(move |store| Arc::new(FaultyStore::new(store, around)));
    let (server, receiver) = (builder.start(), Receiver::start().await);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    switch.out_of_reach(true);
    test_all(&root, &id).await.expect(503).problem("unavailable");
    switch.out_of_reach(false);
    assert_eq!(receiver.received().len(), 0);
    test_all(&root, &id).await.expect(200);
}

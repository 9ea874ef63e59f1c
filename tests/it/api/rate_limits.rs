//! Requests a minute, per key and endpoint: the numbers, the exact window, and what clients are told.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signpost::actors::key_shard::Panic;
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;

use crate::support::SOON;
use crate::support::client::{Answer, Client};
use crate::support::server::{Server, metric};
use crate::support::stores::{apply, on_each_store};

fn standing() -> Clock {
    Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

async fn new_key(server: &Server, tier: &str) -> (KeyId, Client) {
    let scopes = ["links:write", "links:read", "analytics:read", "usage:read", "webhooks:read", "keys:manage"];
    let key = server.root().new_key(json!({"name": tier, "tier": tier, "scopes": scopes})).await;
    (KeyId(text(&key["key_id"]).parse().unwrap()), server.with_key(text(&key["key"])))
}

async fn shorten(client: &Client) -> Answer {
    client.post("/shorten", json!({"redirect_url": "https://example.com/"})).await
}

/// `r` and `t` of the `RateLimit` field.
fn left(answer: &Answer) -> (u64, u64) {
    let field = answer.header("ratelimit");
    let number = |name: &str| {
        let value = field.split(';').find_map(|part| part.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name} in {field:?}")).parse().unwrap()
    };
    (number("r="), number("t="))
}

#[apply(on_each_store)]
async fn every_endpoint_has_the_limit_of_the_keys_tier() {
    let server = Server::builder().clock(standing()).start();
    for (tier, limits) in [("Free", [10, 30, 30, 60, 60, 60, 30]), ("Pro", [60, 120, 120, 120, 120, 120, 60])] {
        let (_, client) = new_key(&server, tier).await;
        let id = client.any_link().await;
        let paths = [
            "/shorten".to_owned(),
            format!("/links/{id}/analytics"),
            format!("/links/{id}/analytics/summary"),
            "/usage".to_owned(),
            format!("/{id}/webhooks/status"),
            format!("/links/{id}"),
            "/api-keys".to_owned(),
        ];
        let names = ["shorten", "analytics", "summary", "usage", "webhook_status", "link", "api_keys"];
        for ((path, name), limit) in paths.iter().zip(names).zip(limits) {
            // The link that is looked at took one of the creations.
            let counted = u64::from(name == "shorten");
            for used in counted..limit {
                let answer =
                    if name == "shorten" { shorten(&client).await } else { client.get(path).await }.expect(200);
                let policy = format!("\"{name}\";q={limit};w=60");
                assert_eq!(answer.header("ratelimit-policy"), policy);
                assert_eq!(answer.header("ratelimit"), format!("\"{name}\";r={};t=60", limit - used - 1), "{tier}");
            }
            let answer = if name == "shorten" { shorten(&client).await } else { client.get(path).await }.expect(429);
            answer.problem("rate-limited");
            assert_eq!(answer.header("retry-after"), "60");
            assert_eq!(answer.header("ratelimit-policy"), format!("\"{name}\";q={limit};w=60"));
            assert_eq!(answer.header("ratelimit"), format!("\"{name}\";r=0;t=60"));
        }
    }
}

#[apply(on_each_store)]
async fn the_four_operations_on_keys_share_one_limit() {
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "4").start();
    let (id, client) = new_key(&server, "Free").await;
    let made = client.post("/api-keys", json!({"name": "x"})).await.expect(201);
    assert_eq!(left(&made).0, 3);
    let path = format!("/api-keys/{}", text(&made.json()["key_id"]));
    assert_eq!(left(&client.get("/api-keys").await.expect(200)).0, 2);
    assert_eq!(left(&client.post(&format!("{path}/rotate"), json!({})).await.expect(200)).0, 1);
    assert_eq!(left(&client.delete(&path).await.expect(204)).0, 0);
    client.get("/api-keys").await.expect(429);
    client.post("/api-keys", json!({"name": "x"})).await.expect(429);
    client.delete(&path).await.expect(429);
    client.post(&format!("/api-keys/{id}/rotate"), json!({})).await.expect(429);
}

#[apply(on_each_store)]
async fn the_window_slides_and_retry_after_is_true() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "3").start();
    let (_, client) = new_key(&server, "Free").await;
    // At 0 s, 10.5 s and 20 s.
    for (step_ms, expected) in [(0, (2, 60)), (10_500, (1, 50)), (9_500, (0, 40))] {
        clock.advance(Duration::from_millis(step_ms));
        assert_eq!(left(&client.get("/usage").await.expect(200)), expected);
    }
    for (step_ms, retry_after) in [(0, "40"), (500, "40"), (38_501, "1"), (998, "1")] {
        clock.advance(Duration::from_millis(step_ms));
        let answer = client.get("/usage").await.expect(429);
        assert_eq!(answer.header("retry-after"), retry_after);
    }
    // 60.000 s after the first, and not one more until 70.5 s.
    clock.advance(Duration::from_millis(1));
    client.get("/usage").await.expect(200);
    let answer = client.get("/usage").await.expect(429);
    assert_eq!(answer.header("retry-after"), "11");
    clock.advance(Duration::from_secs(10));
    client.get("/usage").await.expect(429);
    clock.advance(Duration::from_secs(1));
    client.get("/usage").await.expect(200);
}

#[apply(on_each_store)]
async fn what_is_refused_takes_nothing_and_anything_else_counts() {
    let clock = standing();
    let server = Server::builder()
        .clock(clock.clone())
        .set("SIGNPOST_TIERS__FREE__ANALYTICS_PER_MINUTE", "10")
        .set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "5")
        .set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "5")
        .start();
    let (_, client) = new_key(&server, "Free").await;

    // Every answer of a handler counts.
    let send = |body: &'static str, media_type: &'static str| {
        let client = client.clone();
        async move { client.send(Method::POST, "/shorten", &[("Content-Type", media_type)], Some(body.into())).await }
    };
    assert_eq!(left(&send("{", "application/json").await.expect(400)).0, 4);
    assert_eq!(left(&send("{}", "application/json").await.expect(422)).0, 3);
    assert_eq!(left(&send("{}", "text/plain").await.expect(415)).0, 2);
    let big = vec![b' '; 65 * 1024];
    assert_eq!(left(&client.send(Method::POST, "/shorten", &[], Some(big)).await.expect(413)).0, 1);
    assert_eq!(left(&client.get("/links/zzzzzzz/analytics").await.expect(404)).0, 9);
    assert_eq!(left(&client.get("/links/zzzzzzz/analytics?x=1").await.expect(422)).0, 8);
    let foreign = server.root().any_link().await;
    assert_eq!(left(&client.get(&format!("/links/{foreign}/analytics")).await.expect(403)).0, 7);

    // What is refused as too many does not make the next wait longer.
    shorten(&client).await.expect(200);
    for _ in 0..7 {
        clock.advance(Duration::from_secs(5));
        shorten(&client).await.expect(429);
    }
    clock.advance(Duration::from_secs(25));
    assert_eq!(left(&shorten(&client).await.expect(200)).0, 4);

    // A missing scope, and an old secret.
    let key = server.root().new_key(json!({"name": "no manager"})).await;
    let client = server.with_key(text(&key["key"]));
    for _ in 0..9 {
        client.get("/api-keys").await.expect(403).problem("scope-missing");
    }
    let path = format!("/api-keys/{}/rotate", text(&key["key_id"]));
    let rotated = client.post(&path, json!({})).await.expect(200);
    assert_eq!(left(&rotated).0, 4);
    for _ in 0..9 {
        client.post(&path, json!({})).await.expect(401);
    }
    let client = server.with_key(text(&rotated.json()["key"]));
    assert_eq!(left(&client.post(&path, json!({})).await.expect(200)).0, 3);
}

#[apply(on_each_store)]
async fn a_limit_of_zero_is_none() {
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0").start();
    let (_, client) = new_key(&server, "Free").await;
    for _ in 0..100 {
        let answer = client.get("/usage").await.expect(200);
        assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), ("", ""));
    }
}

#[apply(on_each_store)]
async fn keys_do_not_take_from_each_other() {
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "1").start();
    for _ in 0..3 {
        let (_, client) = new_key(&server, "Free").await;
        client.get("/usage").await.expect(200);
        client.get("/usage").await.expect(429);
    }
}

#[apply(on_each_store)]
async fn of_many_requests_at_once_exactly_the_limit_is_let_in() {
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "40").start();
    let (_, client) = new_key(&server, "Free").await;
    let answers = join_all((0..200).map(|_| client.get("/usage"))).await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(429)), (40, 160));
}

/// The shard comes back with its windows, and nobody is left without an answer.
#[apply(on_each_store)]
async fn a_shard_that_panics_under_load_is_back_with_its_counts() {
    const LIMIT: usize = 150;
    let limit = LIMIT.to_string();
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", &limit).start();
    let (id, client) = new_key(&server, "Free").await;
    for _ in 0..50 {
        client.get("/usage").await.expect(200);
    }
    let load = join_all((0..200).map(|number| {
        let (client, shards) = (client.clone(), std::sync::Arc::clone(&server.shards));
        async move {
            if number % 40 == 20 {
                // One that finds it restarting has nothing to make panic.
                let _ = shards.shard(id).try_send(Panic);
            }
            // The client panics where a connection ends without an answer.
            client.get("/usage").await
        }
    }));
    let answers = load.await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    let (let_in, refused, mut unavailable) = (count(200), count(429), count(503));
    assert_eq!(let_in + refused + unavailable, 200);

    // What was let in before the panics is still counted: to the limit and no further, but for what was counted and
    // could not be answered.
    let (mut after, began) = (0, Instant::now());
    loop {
        match client.get("/usage").await.status {
            200 => after += 1,
            503 => unavailable += 1,
            429 => break,
            status => panic!("{status}"),
        }
        assert!(began.elapsed() < SOON, "{after} let in and {unavailable} unavailable");
    }
    let answered = 50 + let_in + after;
    assert!(answered <= LIMIT && answered + unavailable + 1 >= LIMIT, "{answered} and {unavailable} unavailable");
    let restarts = metric(&server.metrics().await, "signpost_actor_restarts_total{actor=\"key_shard\"}");
    assert!(restarts.is_some_and(|restarts| restarts >= 1.0), "{restarts:?}");
}

//! Monthly quotas of links: exact, told in headers, and by calendar month.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};
use crate::support::stores::{apply, on_each_store};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn without_rate_limit() -> ServerBuilder {
    Server::builder()
        .set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0")
}

async fn new_key(server: &Server, tier: &str) -> Client {
    let key = server.root().new_key(json!({"name": tier, "tier": tier})).await;
    server.with_key(text(&key["key"]))
}

async fn shorten(client: &Client) -> Answer {
    client.post("/shorten", json!({"redirect_url": "https://example.com/"})).await
}

async fn links_created(client: &Client) -> Value {
    client.get("/usage").await.expect(200).json()["usage"]["links_created"].clone()
}

#[apply(on_each_store)]
async fn a_thousand_creations_at_once_make_exactly_the_quota() {
    let server = without_rate_limit().start();
    let client = new_key(&server, "Free").await;
    let answers = join_all((0..1_000).map(|_| shorten(&client))).await;

    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), refused.len()), (100, 900));
    let mut counts: Vec<u32> =
        made.iter().map(|answer| answer.header("x-usage-links-created").parse().unwrap()).collect();
    counts.sort_unstable();
    assert!(counts.into_iter().eq(1..=100), "each creation has a number of its own");
    for answer in refused {
        assert_eq!(answer.status, 403);
        answer.problem("link-quota-exceeded");
    }
    assert_eq!(links_created(&client).await, json!({"current": 100, "limit": 100}));
    for answer in made {
        let path = format!("/{}", text(&answer.json()["short_id"]));
        server.anonymous().head(&path).await.expect(302);
    }
}

#[apply(on_each_store)]
async fn what_is_used_and_left_is_told_with_every_creation() {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "2").start();
    let client = new_key(&server, "Free").await;
    for used in ["1", "2"] {
        let answer = shorten(&client).await.expect(200);
        assert_eq!((answer.header("x-usage-links-created"), answer.header("x-usage-links-limit")), (used, "2"));
    }
    // Asked of the store, and then known without it.
    for _ in 0..2 {
        let answer = shorten(&client).await.expect(403);
        assert_eq!((answer.header("x-usage-links-created"), answer.header("x-usage-links-limit")), ("2", "2"));
        answer.problem("link-quota-exceeded");
        assert_eq!(
            answer.json(),
            json!({
                "type": "urn:problem-type:signpost:link-quota-exceeded",
                "title": "Link quota exceeded",
                "status": 403,
                "detail": "Monthly link creation limit reached",
                "limit": 2,
                "current": 2,
            })
        );
    }

    let pro = new_key(&server, "Pro").await;
    let answer = shorten(&pro).await.expect(200);
    assert_eq!((answer.header("x-usage-links-created"), answer.header("x-usage-links-limit")), ("1", "unlimited"));
}

#[apply(on_each_store)]
async fn a_new_month_begins_with_a_new_quota() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-30T23:59:59.998Z").unwrap());
    let server = without_rate_limit().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "2").clock(clock.clone()).start();
    let client = new_key(&server, "Free").await;
    for status in [200, 200, 403] {
        shorten(&client).await.expect(status);
    }
    clock.advance(Duration::from_millis(1));
    shorten(&client).await.expect(403);
    clock.advance(Duration::from_millis(1));
    let answer = shorten(&client).await.expect(200);
    assert_eq!(answer.header("x-usage-links-created"), "1");
    let usage = client.get("/usage").await.expect(200).json();
    assert_eq!((text(&usage["month"]), &usage["usage"]["links_created"]["current"]), ("2026-12", &json!(1)));
    for status in [200, 403] {
        shorten(&client).await.expect(status);
    }
}

#[apply(on_each_store)]
async fn a_creation_that_fails_takes_none() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = without_rate_limit()
        .set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "1")
        .wrap_store(move |store| std::sync::Arc::new(FaultyStore::new(store, faults)))
        .start();
    let client = new_key(&server, "Free").await;
    for body in ["", "{", "[]", "{}", r#"{"redirect_url": "ftp://example.com/"}"#] {
        let answer = client.send(Method::POST, "/shorten", &[], Some(body.into())).await;
        assert!([400, 422].contains(&answer.status), "{body:?}: {}", answer.status);
        assert_eq!(answer.header("x-usage-links-created"), "");
    }
    assert_eq!(links_created(&client).await["current"], 0);
    // The key is known, so that it is the creation that fails.
    switch.out_of_reach(true);
    let answer = shorten(&client).await.expect(503);
    answer.problem("unavailable");
    assert_ne!(answer.header("retry-after"), "");
    switch.out_of_reach(false);
    assert_eq!(links_created(&client).await["current"], 0);
    shorten(&client).await.expect(200);
    shorten(&client).await.expect(403);
    assert_eq!(links_created(&client).await["current"], 1);
}

#[apply(on_each_store)]
async fn a_quota_outlives_a_restart_and_a_rotation_makes_no_new_one() {
    let builder = || without_rate_limit().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "1");
    let server = builder().start();
    let key = server.root().new_key(json!({"name": "shop"})).await;
    shorten(&server.with_key(text(&key["key"]))).await.expect(200);
    let server = builder().directory(server.stop()).start();
    shorten(&server.with_key(text(&key["key"]))).await.expect(403);
    let path = format!("/api-keys/{}/rotate", text(&key["key_id"]));
    let rotated = server.root().post(&path, json!({})).await.expect(200).json();
    shorten(&server.with_key(text(&rotated["key"]))).await.expect(403);
}

#[apply(on_each_store)]
async fn a_quota_of_zero_allows_none_and_links_that_are_there_go_on() {
    let server = without_rate_limit().start();
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let id = server.with_key(text(&key["key"])).any_link().await;
    let server =
        without_rate_limit().set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "0").directory(server.stop()).start();
    let answer = shorten(&server.with_key(text(&key["key"]))).await.expect(403);
    assert_eq!(answer.header("x-usage-links-limit"), "0");
    server.anonymous().get(&format!("/{id}")).await.expect(302);
}

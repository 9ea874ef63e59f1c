//! `GET /usage`.

use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::Client;
use crate::support::receiver::Receiver;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Waits until `metric` stands at `count`; hits are counted soon after their redirect.
async fn usage_with(client: &Client, metric: &str, count: u64) -> Value {
    eventually("usage", SOON, async || {
        let usage = client.get("/usage").await.expect(200).json();
        (usage["usage"][metric]["current"] == count).then_some(usage)
    })
    .await
}

#[apply(on_each_store)]
async fn usage_has_its_three_metrics_and_the_limits_of_the_tier() {
    let clock = Clock::standing_at(Timestamp::parse("2026-02-28T12:00:00Z").unwrap());
    let server = Server::builder().clock(clock).start();
    let root = server.root();
    for (tier, links, deliveries) in [("Free", json!(100), 1_000), ("Pro", Value::Null, 50_000)] {
        let key = root.new_key(json!({"name": tier, "tier": tier})).await;
        let usage = server.with_key(text(&key["key"])).get("/usage").await.expect(200).json();
        assert_eq!(
            usage,
            json!({
                "api_key_id": key["key_id"],
                "month": "2026-02",
                "usage": {
                    "links_created": {"current": 0, "limit": links},
                    "hits_served": {"current": 0, "limit": null},
                    "webhook_deliveries": {"current": 0, "limit": deliveries},
                },
            })
        );
    }
}

#[apply(on_each_store)]
async fn a_key_is_told_what_it_used_itself() {
    // Asked again and again.
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0").start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let link = json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/a"), receiver.url("/b")]});
    let id = shop.shorten(link).await;
    shop.any_link().await;
    root.any_link().await;
    for _ in 0..3 {
        server.anonymous().get(&format!("/{id}")).await.expect(302);
    }
    server.anonymous().head(&format!("/{id}")).await.expect(302);
    usage_with(&shop, "webhook_deliveries", 6).await;
    let usage = usage_with(&shop, "hits_served", 3).await["usage"].clone();
    assert_eq!(usage["links_created"], json!({"current": 2, "limit": 100}));
    assert_eq!(usage["hits_served"], json!({"current": 3, "limit": null}));
    assert_eq!(usage["webhook_deliveries"], json!({"current": 6, "limit": 1_000}));

    // The root's counters are its own, and nothing limits them.
    let usage = root.get("/usage").await.expect(200).json()["usage"].clone();
    assert_eq!(
        usage,
        json!({
            "links_created": {"current": 1, "limit": null},
            "hits_served": {"current": 0, "limit": null},
            "webhook_deliveries": {"current": 0, "limit": null},
        })
    );
}

#[apply(on_each_store)]
async fn untracked_links_count_in_usage() {
    let server = Server::start();
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "tracked": false})).await;
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    usage_with(&root, "hits_served", 1).await;
}

#[apply(on_each_store)]
async fn hits_are_counted_in_the_month_in_which_they_came() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-30T23:59:59.999Z").unwrap());
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let id = root.any_link().await;
    let hit = || async { server.anonymous().get(&format!("/{id}")).await.expect(302) };
    hit().await;
    hit().await;
    usage_with(&root, "hits_served", 2).await;
    clock.advance(Duration::from_millis(1));
    let usage = root.get("/usage").await.expect(200).json();
    assert_eq!((text(&usage["month"]), &usage["usage"]["hits_served"]["current"]), ("2026-12", &json!(0)));
    assert_eq!(usage["usage"]["links_created"]["current"], 0);
    hit().await;
    usage_with(&root, "hits_served", 1).await;
}

#[apply(on_each_store)]
async fn an_unknown_parameter_is_a_fault() {
    let server = Server::start();
    let problem = server.root().get("/usage?month=2026-11").await.expect(422).problem("validation");
    assert_eq!(problem["errors"][0]["parameter"], "month");
}

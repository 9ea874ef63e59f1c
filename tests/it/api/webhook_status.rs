//! `GET /{short_id}/webhooks/status`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::Client;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder};
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn standing() -> Clock {
    Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap())
}

/// One try each.
fn one_try() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "")
}

async fn status(client: &Client, id: &str, query: &str) -> Value {
    client.get(&format!("/{id}/webhooks/status{query}")).await.expect(200).json()
}

/// Waits until the link has `count` deliveries with this status.
async fn wait_for(client: &Client, id: &str, is: &str, count: u64) -> Value {
    eventually("deliveries", SOON, async || {
        let status = status(client, id, "?limit=100").await;
        let sum: u64 = status["webhooks"].as_array().unwrap().iter().map(|url| url[is].as_u64().unwrap()).sum();
        // Sums and list are read one after the other: both must have come to it.
        let listed = status["deliveries"].as_array().unwrap().iter().filter(|delivery| delivery["status"] == is);
        (sum == count && listed.count() as u64 == count).then_some(status)
    })
    .await
}

#[apply(on_each_store)]
async fn a_link_without_hits_or_webhooks_has_a_whole_answer() {
    let server = Server::start();
    let root = server.root();
    let bare = root.any_link().await;
    let empty = json!({"short_id": bare, "webhooks": [], "deliveries": [], "next_cursor": null});
    assert_eq!(status(&root, &bare, "").await, empty);
    let urls = json!(["https://example.com/b", "https://example.com/a"]);
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "webhooks": urls})).await;
    let of = |url: &Value| {
        json!({
            "url": url, "pending": 0, "delivered": 0, "failed": 0,
            "last_attempt_at": null, "last_status": null, "last_error": null,
        })
    };
    assert_eq!(status(&root, &id, "").await["webhooks"], json!([of(&urls[0]), of(&urls[1])]));
}

#[apply(on_each_store)]
async fn deliveries_are_shown_as_they_go() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "10s").start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500)]);
    let root = server.root();
    let url = receiver.url("/hook");
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "webhooks": [url]})).await;
    server.click(&id, 1).await;

    let tried = eventually("the first try", SOON, async || {
        let status = status(&root, &id, "").await;
        (status["deliveries"][0]["attempts"] == 1).then_some(status)
    })
    .await;
    let hit_id = receiver.received()[0].json()["hit_id"].clone();
    let next = text(&tried["deliveries"][0]["next_attempt_at"]).to_owned();
    assert!(("2026-11-21T12:00:09.000Z"..="2026-11-21T12:00:11.000Z").contains(&next.as_str()), "{next}");
    assert_eq!(
        tried,
        json!({
            "short_id": id,
            "webhooks": [{
                "url": url, "pending": 1, "delivered": 0, "failed": 0,
                "last_attempt_at": "2026-11-21T12:00:00.000Z", "last_status": 500, "last_error": "http 500",
            }],
            "deliveries": [{
                "hit_id": hit_id, "url": url, "status": "pending", "attempts": 1,
                "response_status": 500, "error": "http 500",
                "created_at": "2026-11-21T12:00:00.000Z", "updated_at": "2026-11-21T12:00:00.000Z",
                "next_attempt_at": next,
            }],
            "next_cursor": null,
        })
    );

    clock.advance(Duration::from_secs(11));
    let delivered = wait_for(&root, &id, "delivered", 1).await;
    assert_eq!(
        (&delivered["webhooks"], &delivered["deliveries"]),
        (
            &json!([{
                "url": url, "pending": 0, "delivered": 1, "failed": 0,
                "last_attempt_at": "2026-11-21T12:00:11.000Z", "last_status": 200, "last_error": null,
            }]),
            &json!([{
                "hit_id": hit_id, "url": url, "status": "delivered", "attempts": 2,
                "response_status": 200, "error": null,
                "created_at": "2026-11-21T12:00:00.000Z", "updated_at": "2026-11-21T12:00:11.000Z",
                "next_attempt_at": null,
            }])
        )
    );
}

#[apply(on_each_store)]
async fn the_list_goes_page_by_page_newest_first() {
    let clock = standing();
    let server = one_try().clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let link = json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/a"), receiver.url("/b")]});
    let id = root.shorten(link.clone()).await;
    let other = root.shorten(link).await;
    for _ in 0..5 {
        server.click(&id, 1).await;
        server.click(&other, 1).await;
        clock.advance(Duration::from_secs(1));
    }
    let whole = wait_for(&root, &id, "delivered", 10).await;
    let whole = whole["deliveries"].as_array().unwrap();
    let times: Vec<_> = whole.iter().map(|delivery| text(&delivery["created_at"])).collect();
    assert!(times.is_sorted_by(|a, b| a >= b) && times.len() == 10, "{times:?}");

    let (mut paged, mut query) = (Vec::new(), "?limit=4".to_owned());
    let mut sizes = Vec::new();
    loop {
        let page = status(&root, &id, &query).await;
        let deliveries = page["deliveries"].as_array().unwrap();
        sizes.push(deliveries.len());
        paged.extend(deliveries.iter().cloned());
        assert_eq!(page["webhooks"].as_array().unwrap().len(), 2, "the summary is of all, on every page");
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("?limit=4&cursor={cursor}");
    }
    assert_eq!((&paged, sizes), (whole, vec![4, 4, 2]));
}

#[apply(on_each_store)]
async fn the_list_is_filtered_by_status() {
    let server = one_try().start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500)]);
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")]})).await;
    server.click(&id, 1).await;
    wait_for(&root, &id, "failed", 1).await;
    for _ in 0..3 {
        server.click(&id, 1).await;
    }
    wait_for(&root, &id, "delivered", 3).await;
    for (filter, count) in [("pending", 0), ("delivered", 3), ("failed", 1)] {
        let found = status(&root, &id, &format!("?status={filter}")).await;
        let found = found["deliveries"].as_array().unwrap();
        assert!(found.len() == count && found.iter().all(|delivery| delivery["status"] == filter), "{filter}");
    }
    // Filter and pages together.
    let first = status(&root, &id, "?status=delivered&limit=2").await;
    let cursor = text(&first["next_cursor"]);
    let rest = status(&root, &id, &format!("?status=delivered&limit=2&cursor={cursor}")).await;
    assert_eq!((first["deliveries"].as_array().unwrap().len(), rest["deliveries"].as_array().unwrap().len()), (2, 1));
    assert_eq!(rest["next_cursor"], Value::Null);
    let other = root.any_link().await;
    let refused = root.get(&format!("/{other}/webhooks/status?cursor={cursor}")).await.expect(422);
    assert_eq!(refused.problem("validation")["errors"][0]["parameter"], "cursor", "of another link");

    let found: BTreeSet<_> = ["limit=0&status=done", "cursor=x", "sort=asc"]
        .into_iter()
        .map(|query| format!("/{id}/webhooks/status?{query}"))
        .collect();
    for path in found {
        root.get(&path).await.expect(422).problem("validation");
    }
    let problem = root.get(&format!("/{id}/webhooks/status?limit=0&status=done")).await.problem("validation");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 2, "all faults at once");
}

#[apply(on_each_store)]
async fn refusals_are_those_of_the_analytics() {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__STATUS_PER_MINUTE", "3").start();
    let root = server.root();
    let foreign = root.any_link().await;
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let scopeless = root.new_key(json!({"name": "x", "scopes": ["analytics:read"]})).await;
    let scopeless = server.with_key(text(&scopeless["key"]));
    let path = format!("/{foreign}/webhooks/status");
    server.anonymous().get(&path).await.expect(401).problem("unauthorized");
    scopeless.get("/zzzzzzz/webhooks/status").await.expect(403).problem("scope-missing");
    shop.get("/zzzzzzz/webhooks/status").await.expect(404).problem("not-found");
    shop.get("/no-short-id/webhooks/status").await.expect(404).problem("not-found");
    shop.get(&path).await.expect(403).problem("not-owner");
    shop.get(&path).await.expect(429).problem("rate-limited");
    root.get(&path).await.expect(200);
}

#[apply(on_each_store)]
async fn deliveries_are_shown_for_thirty_days() {
    let clock = standing();
    let server = one_try().clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let id = root.shorten(json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")]})).await;
    server.click(&id, 1).await;
    wait_for(&root, &id, "delivered", 1).await;
    clock.advance(Duration::from_hours(30 * 24));
    assert_eq!(status(&root, &id, "").await["deliveries"].as_array().unwrap().len(), 1);
    clock.advance(Duration::from_hours(24));
    let later = status(&root, &id, "").await;
    assert_eq!((&later["deliveries"], &later["webhooks"][0]["delivered"]), (&json!([]), &json!(0)));
}

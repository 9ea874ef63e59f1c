//! `POST /api-keys/{key_id}/rotate`.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn standing() -> Clock {
    Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap())
}

async fn rotate(client: &Client, key: &Value, body: Value) -> Value {
    client.post(&format!("/api-keys/{}/rotate", text(&key["key_id"])), body).await.expect(200).json()
}

/// The status of a request with this secret.
async fn status(server: &Server, key: &Value) -> u16 {
    server.with_key(text(&key["key"])).get("/usage").await.status
}

#[apply(on_each_store)]
async fn without_a_grace_the_old_secret_ends_at_once() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    clock.advance(Duration::from_secs(1));
    let root = server.root();
    let old = root.new_key(json!({"name": "shop", "tier": "Pro", "expires_at": "2027-01-01T00:00:00Z"})).await;
    assert_eq!(status(&server, &old).await, 200);
    let path = format!("/api-keys/{}/rotate", text(&old["key_id"]));
    // An empty body is fine.
    let new = root.send(Method::POST, &path, &[], None).await.expect(200).json();
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (401, 200));

    for kept in ["key_id", "name", "tier", "scopes", "created_at", "expires_at"] {
        assert_eq!(old[kept], new[kept]);
    }
    assert_ne!(old["key"], new["key"]);
    assert_eq!(text(&new["prefix"]), &text(&new["key"])[..8]);
    assert_eq!(new["rotated_at"], "2026-11-21T12:00:01.000Z");
    assert!(new.get("webhook_secret").is_none(), "it was not rotated");
    let listed = root.get("/api-keys?limit=1").await.expect(200).json()["api_keys"][0].clone();
    assert_eq!((&listed["rotated_at"], &listed["prefix"]), (&new["rotated_at"], &new["prefix"]));
}

#[apply(on_each_store)]
async fn the_old_secret_works_until_its_grace_has_passed() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let old = root.new_key(json!({"name": "shop"})).await;
    let new = rotate(&root, &old, json!({"grace_seconds": 60})).await;
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (200, 200));
    clock.advance(Duration::from_millis(59_999));
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (200, 200));
    clock.advance(Duration::from_millis(1));
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (401, 200));
}

#[apply(on_each_store)]
async fn a_second_rotation_ends_the_older_secret_at_once() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).start();
    let root = server.root();
    let first = root.new_key(json!({"name": "shop"})).await;
    let second = rotate(&root, &first, json!({"grace_seconds": 604_800})).await;
    assert_eq!(status(&server, &first).await, 200);
    let third = rotate(&root, &first, json!({"grace_seconds": 10})).await;
    let statuses = [status(&server, &first).await, status(&server, &second).await, status(&server, &third).await];
    assert_eq!(statuses, [401, 200, 200]);
    clock.advance(Duration::from_secs(10));
    let statuses = [status(&server, &first).await, status(&server, &second).await, status(&server, &third).await];
    assert_eq!(statuses, [401, 401, 200]);
}

#[apply(on_each_store)]
async fn revoking_a_key_ends_a_grace() {
    let server = Server::start();
    let root = server.root();
    let old = root.new_key(json!({"name": "shop"})).await;
    let new = rotate(&root, &old, json!({"grace_seconds": 600})).await;
    assert_eq!(status(&server, &old).await, 200);
    root.delete(&format!("/api-keys/{}", text(&old["key_id"]))).await.expect(204);
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (401, 401));
}

#[apply(on_each_store)]
async fn links_usage_and_windows_stay() {
    let clock = standing();
    let server = Server::builder().clock(clock).start();
    let old = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&old["key"]));
    let id = shop.any_link().await;
    let new = rotate(&server.root(), &old, json!({})).await;
    let shop = server.with_key(text(&new["key"]));
    shop.get(&format!("/links/{id}")).await.expect(200);
    let usage = shop.get("/usage").await.expect(200).json();
    assert_eq!((&usage["api_key_id"], &usage["usage"]["links_created"]["current"]), (&old["key_id"], &json!(1)));
    let answer = shop.post("/shorten", json!({"redirect_url": "https://example.com/"})).await.expect(200);
    assert_eq!(answer.header("ratelimit"), "\"shorten\";r=8;t=60");
    assert_eq!(answer.header("x-usage-links-created"), "2");
}

#[apply(on_each_store)]
async fn a_key_may_rotate_itself_without_managing_keys() {
    let server = Server::start();
    let root = server.root();
    let old = root.new_key(json!({"name": "shop"})).await;
    let other = root.new_key(json!({"name": "other"})).await;
    let shop = server.with_key(text(&old["key"]));
    for id in [text(&other["key_id"]), "01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f", "no-uuid"] {
        let path = format!("/api-keys/{id}/rotate");
        shop.post(&path, json!({})).await.expect(403).problem("scope-missing");
    }
    let new = rotate(&shop, &old, json!({"rotate_webhook_secret": true})).await;
    assert_ne!(new["webhook_secret"], old["webhook_secret"]);
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (401, 200));
    assert_eq!(status(&server, &other).await, 200);
    // Nothing else of the kind.
    let shop = server.with_key(text(&new["key"]));
    shop.delete(&format!("/api-keys/{}", text(&old["key_id"]))).await.expect(403).problem("scope-missing");
}

#[apply(on_each_store)]
async fn all_faults_of_a_rotation_are_told_and_change_nothing() {
    let server = Server::start();
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let path = format!("/api-keys/{}/rotate", text(&key["key_id"]));
    for (body, pointers) in [
        (json!({"grace_seconds": 604_801}), vec!["/grace_seconds"]),
        (json!({"grace_seconds": -1}), vec!["/grace_seconds"]),
        (json!({"grace_seconds": 1.5}), vec!["/grace_seconds"]),
        (
            json!({"grace_seconds": "60", "rotate_webhook_secret": 1, "grace": 1}),
            vec!["/grace_seconds", "/rotate_webhook_secret", "/grace"],
        ),
    ] {
        let problem = root.post(&path, body).await.expect(422).problem("validation");
        let faults = problem["errors"].as_array().unwrap();
        assert_eq!(faults.iter().map(|fault| text(&fault["pointer"])).collect::<Vec<_>>(), pointers);
    }
    root.send(Method::POST, &path, &[], Some(b"{".to_vec())).await.expect(400).problem("malformed-body");
    assert_eq!(status(&server, &key).await, 200);
    rotate(&root, &key, json!({"grace_seconds": 604_800})).await;
}

#[apply(on_each_store)]
async fn of_many_rotations_at_once_one_secret_is_left() {
    let server = Server::start();
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let rotations = (0..8).map(|_| rotate(&root, &key, json!({})));
    let keys = futures_util::future::join_all(rotations).await;
    let mut working = 0;
    for key in &keys {
        working += u32::from(status(&server, key).await == 200);
    }
    assert_eq!(working, 1);
}

#[apply(on_each_store)]
async fn a_secret_in_its_grace_can_not_rotate_its_own_key() {
    let server = Server::start();
    let root = server.root();
    let old = root.new_key(json!({"name": "shop"})).await;
    let path = format!("/api-keys/{}/rotate", text(&old["key_id"]));
    let new = rotate(&root, &old, json!({"grace_seconds": 600})).await;
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (200, 200));
    let refused = server.with_key(text(&old["key"])).post(&path, json!({})).await.expect(403);
    refused.problem("forbidden");
    assert_eq!((status(&server, &old).await, status(&server, &new).await), (200, 200));
    let newest = rotate(&server.with_key(text(&new["key"])), &old, json!({})).await;
    let statuses = [status(&server, &old).await, status(&server, &new).await, status(&server, &newest).await];
    assert_eq!(statuses, [401, 401, 200]);
}

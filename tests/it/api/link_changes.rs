//! `PATCH` and `DELETE /links/{short_id}`, blocks, and the limit of all changes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::keys::standing;
use crate::support::links::{TARGET, changing, faults, free_key, path};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

async fn block(client: &Client, name: &str, body: &str) -> Answer {
    client.send(Method::POST, &format!("/links/{name}/block"), &[], Some(body.into())).await
}

async fn unblock(client: &Client, name: &str) -> Answer {
    client.send(Method::POST, &format!("/links/{name}/unblock"), &[], None).await
}

#[apply(on_each_store)]
async fn a_link_is_changed_as_sent_and_otherwise_stays_as_it_is() {
    let clock = standing();
    let server = changing().clock(clock.clone()).start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let id = owner.any_link().await;
    let mut expected = owner.link_record(&id).await;
    let bodies = [
        json!({"redirect_url": "https://example.org/new"}),
        json!({"title": "Title", "notes": "Notes", "tags": ["a", "b"], "archived": true}),
        json!({"webhooks": ["https://hooks.example/a", "https://hooks.example/b"]}),
        json!({"webhooks": ["https://hooks.example/b", "https://hooks.example/a"]}),
        json!({"expires_at": "2027-01-01T00:00:00.000Z", "fallback_url": "https://example.org/over"}),
        json!({"not_before": "2026-12-01T00:00:00.000Z"}),
        json!({"redirect_status": 301, "cache_seconds": 86400, "preview": false, "skip_bots": true}),
        json!({"tags": [], "webhooks": [], "archived": false}),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        clock.advance(Duration::from_secs(1));
        for (name, value) in body.as_object().unwrap() {
            expected[name] = value.clone();
        }
        expected["revision"] = (number + 2).into();
        expected["updated_at"] = format!("2026-11-21T12:00:0{}.000Z", number + 1).into();
        expected["state"] = if expected["not_before"].is_null() { "active" } else { "scheduled" }.into();
        // Twice: the second changes nothing, and keeps revision and time.
        for _ in 0..2 {
            let answer = owner.patch_link(&id, body.clone()).await.expect(200);
            assert_eq!(answer.json(), expected, "{body}");
            assert_eq!(answer.header("etag"), format!("\"{}\"", number + 2));
            assert_eq!(answer.header("cache-control"), "no-store");
        }
        assert_eq!(owner.link_record(&id).await, expected);
    }
    // Null: the defaults.
    let nulls = [
        "title",
        "notes",
        "tags",
        "archived",
        "webhooks",
        "expires_at",
        "not_before",
        "fallback_url",
        "redirect_status",
        "cache_seconds",
        "preview",
        "skip_bots",
        "data",
    ];
    let nulls: Value =
        nulls.iter().map(|name| ((*name).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
    let record = owner.patch_link(&id, nulls).await.expect(200).json();
    let plain = owner.link_record(&owner.any_link().await).await;
    for name in [
        "title",
        "notes",
        "tags",
        "archived",
        "webhooks",
        "expires_at",
        "not_before",
        "fallback_url",
        "redirect_status",
        "cache_seconds",
        "preview",
        "skip_bots",
        "data",
        "tracked",
        "state",
    ] {
        assert_eq!(record[name], plain[name], "{name}");
    }
    assert_eq!(faults(owner.patch_link(&id, json!({"redirect_url": null})).await), ["/redirect_url"]);
}

#[apply(on_each_store)]
async fn a_changed_link_redirects_to_its_new_target_at_once() {
    let server = changing().start();
    let (root, anyone) = (server.root(), server.anonymous());
    let slug = root.link_named("summer").await;
    let id = root.any_link().await;
    for name in [&slug, &id] {
        for number in 0..20 {
            let target = format!("https://example.com/{number}");
            root.patch_link(name, json!({"redirect_url": target})).await.expect(200);
            for _ in 0..3 {
                let answer = anyone.get(&format!("/{name}")).await.expect(302);
                assert_eq!(answer.header("location"), target);
            }
        }
        root.delete(&path(name)).await.expect(204);
        anyone.get(&format!("/{name}")).await.expect(404);
    }
}

#[apply(on_each_store)]
async fn data_is_merged_and_keeps_its_order_and_its_numbers() {
    let server = changing().start();
    let root = server.root();
    let body = format!(r#"{{"redirect_url":"{TARGET}","data":{{"b":1.00,"a":{{"x":1e5,"y":null}},"c":[1,2]}}}}"#);
    let created = root.send(Method::POST, "/shorten", &[], Some(body.into())).await.expect(200);
    let id = created.json()["short_id"].as_str().unwrap().to_owned();
    let patch = async |data: &str| {
        let body = format!(r#"{{"data":{data}}}"#);
        root.send(Method::PATCH, &path(&id), &[], Some(body.into())).await
    };
    for (data, merged) in [
        ("{}", r#"{"b":1.00,"a":{"x":1e5,"y":null},"c":[1,2]}"#),
        (r#"{ "z": -0.0, "a": {"y": {"k": null}} }"#, r#"{"b":1.00,"a":{"x":1e5,"y":{}},"c":[1,2],"z":-0.0}"#),
        (r#"{"b":null,"c":{"d":1}}"#, r#"{"a":{"x":1e5,"y":{}},"c":{"d":1},"z":-0.0}"#),
        ("null", "{}"),
    ] {
        let answer = patch(data).await.expect(200);
        assert!(answer.text().contains(&format!("\"data\":{merged},")), "{data}: {}", answer.text());
    }
    for wrong in ["[]", "1", "\"x\"", &format!("{{\"a\":\"{}\"}}", "x".repeat(10_240))] {
        assert_eq!(faults(patch(wrong).await), ["/data"]);
    }
    patch(&format!("{{\"a\":\"{}\"}}", "x".repeat(10_000))).await.expect(200);
    assert_eq!(faults(patch(&format!("{{\"b\":\"{}\"}}", "x".repeat(300))).await), ["/data"]);
}

#[apply(on_each_store)]
async fn what_a_link_is_can_not_be_changed() {
    let server = changing().start();
    let root = server.root();
    let id = root.link_named("summer").await;
    let record = root.link_record(&id).await;
    let fixed =
        ["block_reason", "created_at", "revision", "short_id", "short_url", "slug", "state", "tracked", "updated_at"];
    for name in fixed {
        for value in [record[name].clone(), Value::Null, json!("x")] {
            assert_eq!(faults(root.patch_link(&id, json!({name: value})).await), [format!("/{name}")]);
        }
    }
    let places = faults(root.patch_link(&id, record.clone()).await);
    assert_eq!(places, fixed.map(|name| format!("/{name}")));
    for body in [json!([]), json!("x"), json!(7)] {
        assert_eq!(faults(root.patch_link(&id, body).await), [""]);
    }
    assert_eq!(root.link_record(&id).await, record);
}

#[apply(on_each_store)]
async fn times_are_judged_where_a_request_sends_them() {
    let clock = standing();
    let server = changing().clock(clock.clone()).start();
    let root = server.root();
    let body =
        json!({"redirect_url": TARGET, "not_before": "2026-11-22T00:00:00Z", "expires_at": "2026-11-23T00:00:00Z"});
    let id = root.shorten(body).await;
    for (body, places) in [
        (json!({"expires_at": "2026-11-22T00:00:00Z"}), vec!["/expires_at"]),
        (json!({"not_before": "2026-11-23T00:00:00Z"}), vec!["/not_before"]),
        (
            json!({"not_before": "2026-12-02T00:00:00Z", "expires_at": "2026-12-01T00:00:00Z"}),
            vec!["/expires_at", "/not_before"],
        ),
    ] {
        assert_eq!(faults(root.patch_link(&id, body).await), places);
    }
    root.patch_link(&id, json!({"not_before": "2027-01-01T00:00:00Z", "expires_at": null})).await.expect(200);
    root.patch_link(&id, json!({"expires_at": "2027-01-01T00:00:01Z"})).await.expect(200);
    // Once it has passed, other fields can be changed all the same.
    clock.advance(Duration::from_hours(24 * 90));
    let record = root.patch_link(&id, json!({"title": "over"})).await.expect(200).json();
    assert_eq!(record["state"], "expired");
    root.patch_link(&id, json!({"not_before": null})).await.expect(200);
}

#[apply(on_each_store)]
async fn a_link_has_at_most_200_webhooks_in_its_life() {
    let server = changing().start();
    let root = server.root();
    let urls = |from: usize| (from..from + 10).map(|n| format!("https://hooks.example/{n}")).collect::<Vec<_>>();
    let id = root.link_with_webhooks(&urls(0)).await;
    for from in (10..200).step_by(10) {
        root.patch_link(&id, json!({"webhooks": urls(from)})).await.expect(200);
    }
    let more = json!({"webhooks": ["https://hooks.example/more"], "redirect_url": TARGET});
    assert_eq!(faults(root.patch_link(&id, more.clone()).await), ["/webhooks"]);
    assert_eq!(faults(root.put_link(&id, more).await), ["/webhooks"]);
    let record = root.patch_link(&id, json!({"webhooks": urls(40)})).await.expect(200).json();
    assert_eq!(record["webhooks"], json!(urls(40)));
    // Another link of the same name begins anew.
    root.delete(&path(&id)).await.expect(204);
    root.put_link(&id, json!({"redirect_url": TARGET, "webhooks": ["https://hooks.example/more"]})).await.expect(201);
}

#[apply(on_each_store)]
async fn changes_at_once_are_all_applied() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    let names = ["title", "notes", "tags"];
    let values = [json!("a"), json!("b"), json!(["c"])];
    let changes = names.iter().zip(&values).map(|(name, value)| root.patch_link(&id, json!({*name: value})));
    for answer in join_all(changes).await {
        answer.expect(200);
    }
    let record = root.link_record(&id).await;
    assert_eq!(names.map(|name| record[name].clone()), values);
    assert_eq!(record["revision"], 4);
    let changes = (0..20).map(|n| root.patch_link(&id, json!({"data": {format!("k{n}"): n}})));
    for answer in join_all(changes).await {
        answer.expect(200);
    }
    let record = root.link_record(&id).await;
    assert_eq!((record["data"].as_object().unwrap().len(), &record["revision"]), (20, &json!(24)));
}

#[apply(on_each_store)]
async fn a_link_is_changed_by_its_owner_and_the_root_alone() {
    let server = changing().start();
    let (owner, other) =
        (free_key(&server, json!({"name": "owner"})).await, free_key(&server, json!({"name": "other"})).await);
    let id = owner.any_link().await;
    let before = owner.link_record(&id).await;
    other.patch_link(&id, json!({"title": "x"})).await.expect(403).problem("not-owner");
    other.put_link(&id, json!({"redirect_url": "https://example.org/"})).await.expect(403).problem("not-owner");
    other.delete(&path(&id)).await.expect(403).problem("not-owner");
    for client in [&other, &owner] {
        block(client, &id, r#"{"reason":"x"}"#).await.expect(403).problem("forbidden");
        unblock(client, &id).await.expect(403).problem("forbidden");
    }
    assert_eq!(owner.link_record(&id).await, before);
    server.root().patch_link(&id, json!({"title": "x"})).await.expect(200);
    assert_eq!(owner.link_record(&id).await["title"], "x");
    server.root().delete(&path(&id)).await.expect(204);
    owner.delete(&path(&id)).await.expect(404).problem("not-found");
}

#[apply(on_each_store)]
async fn a_deleted_link_is_unknown_everywhere() {
    let server = changing().start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let id = owner.any_link().await;
    let paths = [
        format!("/{id}"),
        format!("/{id}+"),
        format!("/{id}/qr"),
        format!("/{id}/webhooks/status"),
        path(&id),
        format!("/links/{id}/analytics"),
        format!("/links/{id}/analytics/summary"),
    ];
    for path in &paths {
        assert!(owner.get(path).await.status < 400, "{path}");
    }
    let answer = owner.delete(&path(&id)).await.expect(204);
    assert!(answer.body.is_empty());
    for path in &paths {
        owner.get(path).await.expect(404).problem("not-found");
    }
    for answer in [owner.delete(&path(&id)).await, owner.patch_link(&id, json!({})).await] {
        answer.expect(404).problem("not-found");
    }
    // It stays counted.
    let usage = owner.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["links_created"]["current"], 1);
    let server = Server::builder().directory(server.stop()).start();
    server.anonymous().get(&format!("/{id}")).await.expect(404);
}

#[apply(on_each_store)]
async fn the_root_blocks_a_link_and_no_change_unblocks_it() {
    let server = changing().start();
    let (root, owner) = (server.root(), free_key(&server, json!({"name": "owner"})).await);
    let id = owner.any_link().await;
    let longest = "x".repeat(500);
    for (reason, revision) in [("phishing", 2), ("phishing", 2), (longest.as_str(), 3)] {
        let answer = block(&root, &id, &json!({"reason": reason}).to_string()).await.expect(200);
        assert_eq!(answer.header("etag"), format!("\"{revision}\""));
        assert_eq!((&answer.json()["block_reason"], &answer.json()["state"]), (&json!(reason), &json!("blocked")));
        assert_eq!(owner.link_record(&id).await, answer.json());
    }
    let changed = owner.patch_link(&id, json!({"redirect_url": "https://example.org/"})).await.expect(200).json();
    assert_eq!((&changed["state"], &changed["block_reason"]), (&json!("blocked"), &json!(longest)));
    let replaced = owner.put_link(&id, json!({"redirect_url": TARGET})).await.expect(200).json();
    assert_eq!(replaced["state"], "blocked");
    let answer = unblock(&root, &id).await.expect(200);
    assert_eq!((&answer.json()["block_reason"], &answer.json()["state"]), (&Value::Null, &json!("active")));
    assert_eq!(unblock(&root, &id).await.expect(200).json(), answer.json());
    for body in [
        "{}",
        r#"{"reason":""}"#,
        r#"{"reason":null}"#,
        r#"{"reason":7}"#,
        &json!({"reason": format!("{longest}x")}).to_string(),
    ] {
        assert_eq!(faults(block(&root, &id, body).await), ["/reason"], "{body}");
    }
    assert_eq!(faults(block(&root, &id, r#"{"reason":"x","until":1}"#).await), ["/until"]);
    let send_unblock = async |body: &str| {
        root.send(Method::POST, &format!("/links/{id}/unblock"), &[], Some(body.as_bytes().to_vec())).await
    };
    send_unblock("{}").await.expect(200);
    send_unblock("{").await.expect(400).problem("malformed-body");
    assert_eq!(faults(send_unblock(r#"{"reason":"x"}"#).await), ["/reason"]);
    block(&root, "zzzzzzz", r#"{"reason":"x"}"#).await.expect(404).problem("not-found");
    unblock(&root, "zzzzzzz").await.expect(404).problem("not-found");
}

#[apply(on_each_store)]
async fn all_changes_of_links_count_together_in_one_limit() {
    let server = Server::builder().clock(standing()).set("SIGNPOST_TIERS__FREE__LINK_CHANGES_PER_MINUTE", "5").start();
    let owner = free_key(&server, json!({"name": "owner"})).await;
    let id = owner.any_link().await;
    let answer = owner.patch_link(&id, json!({"title": "x"})).await.expect(200);
    assert_eq!(answer.header("ratelimit-policy"), "\"link_changes\";q=5;w=60");
    assert_eq!(answer.header("ratelimit"), "\"link_changes\";r=4;t=60");
    owner.put_link(&id, json!({"redirect_url": TARGET})).await.expect(200);
    block(&owner, &id, "{}").await.expect(403);
    unblock(&owner, &id).await.expect(403);
    owner.patch_link(&id, json!({"x": 1})).await.expect(422);
    let refused = owner.delete(&path(&id)).await.expect(429);
    refused.problem("rate-limited");
    assert_eq!(refused.header("retry-after"), "60");
    owner.get(&path(&id)).await.expect(200);
    server.root().delete(&path(&id)).await.expect(204);
}

#[apply(on_each_store)]
async fn bodies_of_changes_are_merge_patches_or_json() {
    let server = changing().start();
    let root = server.root();
    let id = root.any_link().await;
    for taken in ["application/merge-patch+json", "application/json", ""] {
        let body = json!({"title": taken.len().to_string()});
        root.send_link(Method::PATCH, &id, &[("Content-Type", taken)], &body).await.expect(200);
    }
    for other in ["application/json-patch+json", "text/plain"] {
        let refused = root.send_link(Method::PATCH, &id, &[("Content-Type", other)], &json!({})).await.expect(415);
        refused.problem("unsupported-media-type");
        assert_eq!(refused.header("accept-patch"), "application/merge-patch+json, application/json");
    }
    let large = json!({"title": "x".repeat(65_536)});
    for method in [Method::PATCH, Method::PUT] {
        root.send_link(method.clone(), &id, &[], &large).await.expect(413).problem("payload-too-large");
        root.send(method, &path(&id), &[], Some(b"{".to_vec())).await.expect(400).problem("malformed-body");
    }
}

#[apply(on_each_store)]
async fn changes_without_the_store_are_answered_503_and_counted_by_outcome() {
    let switch = FaultSwitch::default();
    let around = switch.clone();
    let server = changing().wrap_store(move |store| Arc::new(FaultyStore::new(store, around))).start();
    let root = server.root();
    let id = root.any_link().await;
    root.patch_link(&id, json!({"title": "x"})).await.expect(200);
    root.patch_link(&id, json!({"title": "x"})).await.expect(200);
    root.put_link("summer", json!({"redirect_url": TARGET})).await.expect(201);
    root.send_link(Method::PATCH, &id, &[("If-Match", "\"9\"")], &json!({})).await.expect(412);
    root.patch_link(&id, json!({"x": 1})).await.expect(422);
    switch.out_of_reach(true);
    for answer in [
        root.patch_link(&id, json!({"title": "y"})).await,
        root.put_link("autumn", json!({"redirect_url": TARGET})).await,
        root.delete(&path(&id)).await,
    ] {
        answer.expect(503).problem("unavailable");
    }
    switch.out_of_reach(false);
    root.delete(&path(&id)).await.expect(204);
    let metrics = server.metrics().await;
    for (outcome, count) in [
        ("created", 1),
        ("changed", 1),
        ("unchanged", 1),
        ("deleted", 1),
        ("conflict", 1),
        ("refused", 1),
        ("failed", 3),
    ] {
        let line = format!("signpost_link_changes_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|shown| shown == line), "{line}");
    }
}

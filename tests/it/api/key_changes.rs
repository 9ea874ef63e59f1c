//! `PATCH /api-keys/{key_id}` and `GET /api-keys/self`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use reqwest::Method;
use serde_json::{Value, json};
use signpost::store::faulty::{FaultSwitch, FaultyStore};

use crate::support::client::{Answer, Client};
use crate::support::keys::{Key, standing, text, without_rate_limit};
use crate::support::raw::Raw;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

const MERGE_PATCH: &str = "application/merge-patch+json";

impl Key {
    /// Changes this key.
    async fn patch(&self, caller: &Client, body: Value) -> Answer {
        patch(caller, &self.path(), body).await
    }

    /// The record, as the key itself sees it.
    async fn own(&self) -> Value {
        self.client.get("/api-keys/self").await.expect(200).json()
    }

    /// The record without secrets, as it was created.
    fn created(&self) -> Value {
        let mut record = self.record.clone();
        let members = record.as_object_mut().unwrap();
        assert!(members.remove("key").is_some() && members.remove("webhook_secret").is_some());
        record
    }
}

async fn patch(caller: &Client, path: &str, body: Value) -> Answer {
    send_patch(caller, path, &[("Content-Type", MERGE_PATCH)], &body.to_string()).await
}

async fn send_patch(caller: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    caller.send(Method::PATCH, path, headers, Some(body.into())).await
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|fault| text(&fault["pointer"])).collect()
}

async fn listed(client: &Client, key: &Key) -> Value {
    let keys = client.get("/api-keys?limit=100").await.expect(200).json()["api_keys"].clone();
    let is_it = |record: &&Value| record["key_id"] == key.record["key_id"];
    keys.as_array().unwrap().iter().find(is_it).unwrap().clone()
}

#[apply(on_each_store)]
async fn every_key_reads_its_own_record_whatever_its_scopes() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "2").start();
    let root = server.root();
    let own = root.get("/api-keys/self").await.expect(200);
    assert_eq!((&own.json()["name"], &own.json()["created_by"]), (&json!("root"), &Value::Null));
    assert_eq!(own.header("cache-control"), "no-store");
    let key =
        Key::new(&server, &root, json!({"name": "none", "scopes": [], "expires_at": "2026-11-21T14:00:00Z"})).await;
    clock.advance(Duration::from_secs(1));
    let answer = key.client.get("/api-keys/self").await.expect(200);
    let mut expected = key.created();
    expected["last_used_at"] = "2026-11-21T12:00:01.000Z".into();
    assert_eq!(answer.json(), expected);
    assert!(!answer.text().contains(text(&key.record["key"])) && !answer.text().contains("secret"));

    // It counts with the others under `/api-keys`.
    assert_eq!(answer.header("ratelimit-policy"), "\"api_keys\";q=2;w=60");
    assert_eq!(answer.header("ratelimit"), "\"api_keys\";r=1;t=60");
    let head = key.client.head("/api-keys/self").await.expect(200);
    assert!(head.body.is_empty());
    key.client.get("/api-keys/self").await.expect(429).problem("rate-limited");
    let manager = Key::managing(&server, &root, "manager").await;
    manager.client.get("/api-keys").await.expect(200);
    manager.own().await;
    manager.client.get("/api-keys/self").await.expect(429).problem("rate-limited");
    manager.client.get("/api-keys").await.expect(429).problem("rate-limited");

    server.anonymous().get("/api-keys/self").await.expect(401).problem("unauthorized");
    server.with_key(&format!("sp_{}", "x".repeat(43))).get("/api-keys/self").await.expect(401);
    let problem = root.get("/api-keys/self?x=1").await.expect(422).problem("validation");
    assert_eq!(problem["errors"][0]["parameter"], "x");
    for method in [Method::PATCH, Method::DELETE] {
        let answer = root.send(method, "/api-keys/self", &[], Some(b"{}".to_vec())).await.expect(405);
        assert_eq!(answer.header("allow"), "GET, HEAD");
    }
    root.delete(&key.path()).await.expect(204);
    key.client.get("/api-keys/self").await.expect(401);
    clock.advance(Duration::from_hours(2));
}

#[apply(on_each_store)]
async fn a_key_is_changed_as_sent_and_otherwise_stays_as_it_is() {
    let server = Server::start();
    let root = server.root();
    let key = Key::new(&server, &root, json!({"name": "shop"})).await;
    let link = key.client.any_link().await;
    let bodies = [
        (json!({}), None),
        (json!({"name": "new shop"}), None),
        (json!({"tier": "Pro"}), None),
        (json!({"scopes": ["links:read", "keys:manage", "links:read"]}), Some(json!(["links:read", "keys:manage"]))),
        (json!({"expires_at": "2099-01-01T01:00:00+01:00"}), Some(json!("2099-01-01T00:00:00.000Z"))),
        (json!({"scopes": []}), None),
        (json!({"name": "ü", "tier": "Free", "scopes": ["usage:read"], "expires_at": null}), None),
    ];
    let mut expected = key.created();
    expected["last_used_at"] = key.own().await["last_used_at"].clone();
    for (body, shown) in bodies {
        for (name, value) in body.as_object().unwrap() {
            expected[name] = shown.clone().unwrap_or(value.clone());
        }
        // Twice: the second changes nothing.
        for _ in 0..2 {
            let changed = key.patch(&root, body.clone()).await.expect(200);
            assert_eq!(changed.json(), expected, "{body}");
            assert_eq!(changed.header("cache-control"), "no-store");
        }
        assert_eq!(listed(&root, &key).await, expected);
    }
    // The secret and the links are as before.
    assert_eq!(key.own().await["name"], "ü");
    server.anonymous().get(&format!("/{link}")).await.expect(302);
    let server = Server::builder().directory(server.stop()).start();
    let own = server.with_key(text(&key.record["key"])).get("/api-keys/self").await.expect(200).json();
    assert_eq!((&own["name"], &own["scopes"]), (&json!("ü"), &json!(["usage:read"])));
}

#[apply(on_each_store)]
async fn null_sets_a_field_to_what_the_caller_would_create_it_with() {
    let clock = standing();
    let server = Server::builder().clock(clock).start();
    let root = server.root();
    let manager = Key::new(
        &server,
        &root,
        json!({"name": "manager", "tier": "Pro", "scopes": ["links:write", "links:read", "keys:manage"],
               "expires_at": "2027-01-01T00:00:00Z"}),
    )
    .await;
    let body = json!({"name": "child", "tier": "Pro", "scopes": ["keys:manage"], "expires_at": "2026-12-01T00:00:00Z"});
    let child = Key::new(&server, &manager.client, body).await;
    let defaults = json!({"tier": null, "scopes": null, "expires_at": null});
    let changed = child.patch(&manager.client, defaults.clone()).await.expect(200).json();
    let fields = |key: &Value| ["tier", "scopes", "expires_at"].map(|name| key[name].clone());
    let end = json!("2027-01-01T00:00:00.000Z");
    assert_eq!(fields(&changed), [json!("Free"), json!(["links:write", "links:read"]), end]);
    // As in a creation by the same key.
    let created = manager.client.new_key(json!({"name": "x"})).await;
    assert_eq!(fields(&changed), fields(&created));
    let changed = child.patch(&root, defaults).await.expect(200).json();
    let but_manage =
        json!(["links:write", "links:read", "analytics:read", "usage:read", "webhooks:read", "webhooks:write"]);
    assert_eq!(fields(&changed), [json!("Free"), but_manage, Value::Null]);
    let problem = child.patch(&root, json!({"name": null})).await.expect(422).problem("validation");
    assert_eq!(pointers(&problem), ["/name"]);
}

#[apply(on_each_store)]
async fn all_faults_of_a_change_are_told_at_once_and_nothing_is_changed() {
    let clock = standing();
    let server = Server::builder().clock(clock).start();
    let root = server.root();
    let manager = Key::new(
        &server,
        &root,
        json!({"name": "manager", "scopes": ["links:read", "keys:manage"], "expires_at": "2026-11-21T14:00:00Z"}),
    )
    .await;
    let key = Key::new(&server, &manager.client, json!({"name": "shop"})).await;
    let cases = [
        (json!({"name": ""}), vec!["/name"]),
        (json!({"name": "x".repeat(101)}), vec!["/name"]),
        (json!({"name": "web\nshop"}), vec!["/name"]),
        (json!({"name": " "}), vec!["/name"]),
        (json!({"name": 7}), vec!["/name"]),
        (json!({"name": null}), vec!["/name"]),
        (json!({"tier": "Gold"}), vec!["/tier"]),
        (json!({"tier": "free"}), vec!["/tier"]),
        (json!({"tier": {}}), vec!["/tier"]),
        (json!({"scopes": "links:read"}), vec!["/scopes"]),
        (json!({"scopes": {}}), vec!["/scopes"]),
        (json!({"scopes": ["links:read", "admin", 1, null]}), vec!["/scopes/1", "/scopes/2", "/scopes/3"]),
        (json!({"expires_at": "tomorrow"}), vec!["/expires_at"]),
        (json!({"expires_at": 1}), vec!["/expires_at"]),
        (json!({"expires_at": "2026-11-21T12:00:00Z"}), vec!["/expires_at"]),
        (json!({"expires_at": "2020-01-01T00:00:00Z"}), vec!["/expires_at"]),
        (json!({"expires_at": "2026-11-21T14:00:00.001Z"}), vec!["/expires_at"]),
        (json!({"key_id": "x", "prefix": "x", "teir": "Pro"}), vec!["/key_id", "/prefix", "/teir"]),
        (
            json!({"name": "", "tier": 1, "scopes": 1, "expires_at": "", "secret": null}),
            vec!["/expires_at", "/name", "/scopes", "/secret", "/tier"],
        ),
        // With what would be refused later.
        (json!({"name": "", "tier": "Pro", "scopes": ["links:write"]}), vec!["/name"]),
        (json!([]), vec![""]),
        (json!(null), vec![""]),
        (json!("x"), vec![""]),
    ];
    for (body, expected) in cases {
        let problem = key.patch(&manager.client, body.clone()).await.expect(422).problem("validation");
        let found: BTreeSet<_> = pointers(&problem).into_iter().collect();
        assert_eq!(found, expected.into_iter().collect(), "{body}");
        assert!(problem["errors"].as_array().unwrap().iter().all(|fault| !text(&fault["detail"]).is_empty()));
    }
    let path = format!("{}?nmae=x", key.path());
    let problem = patch(&manager.client, &path, json!({"name": ""})).await.expect(422).problem("validation");
    assert_eq!(
        (&problem["errors"][0]["parameter"], &problem["errors"][1]["pointer"]),
        (&json!("nmae"), &json!("/name"))
    );
    for (body, pointer) in [(r#"{"name":"x","name":"y"}"#, "/name"), (r#"{"name":"\ud800"}"#, "/name")] {
        let problem = send_patch(&manager.client, &key.path(), &[], body).await.expect(422).problem("validation");
        assert_eq!(pointers(&problem), [pointer]);
    }
    assert_eq!(listed(&root, &key).await, key.created());
}

#[apply(on_each_store)]
async fn bodies_are_merge_patches_or_json_and_nothing_else() {
    let server = Server::start();
    let root = server.root();
    let key = Key::new(&server, &root, json!({"name": "shop"})).await;
    for (number, taken) in
        [MERGE_PATCH, "application/json", "Application/Merge-Patch+JSON; charset=utf-8", ""].iter().enumerate()
    {
        let body = json!({"name": format!("name {number}")}).to_string();
        let changed = send_patch(&root, &key.path(), &[("Content-Type", taken)], &body).await.expect(200).json();
        assert_eq!(changed["name"], format!("name {number}"));
    }
    send_patch(&root, &key.path(), &[], "{}").await.expect(200);
    let others =
        ["application/json-patch+json", "application/x+json", "text/plain", "application/x-www-form-urlencoded"];
    for other in others {
        for body in [r#"{"name":"x"}"#, "", "{"] {
            let refused = send_patch(&root, &key.path(), &[("Content-Type", other)], body).await.expect(415);
            refused.problem("unsupported-media-type");
            assert_eq!(refused.header("accept-patch"), "application/merge-patch+json, application/json", "{other}");
        }
    }
    for malformed in ["", "{", "{\"name\"}", "{} {}", &format!("{}{}", "[".repeat(65), "]".repeat(65))] {
        send_patch(&root, &key.path(), &[], malformed).await.expect(400).problem("malformed-body");
    }
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(65_536));
    send_patch(&root, &key.path(), &[], &large).await.expect(413).problem("payload-too-large");
}

#[apply(on_each_store)]
async fn a_key_is_changed_by_those_above_it_alone() {
    let server = without_rate_limit().start();
    let root = server.root();
    let manager = Key::managing(&server, &root, "manager").await;
    let child = Key::managing(&server, &manager.client, "child").await;
    let grandchild = Key::new(&server, &child.client, json!({"name": "grandchild"})).await;
    let stranger = Key::managing(&server, &root, "stranger").await;
    let root_id = root.get("/api-keys/self").await.expect(200).json()["key_id"].clone();
    let root_path = format!("/api-keys/{}", text(&root_id));
    let renamed = json!({"name": "renamed"});

    for caller in [&root, &manager.client, &child.client] {
        grandchild.patch(caller, renamed.clone()).await.expect(200);
    }
    for (caller, unseen) in [(&stranger, &grandchild), (&stranger, &manager), (&child, &manager), (&child, &stranger)] {
        unseen.patch(&caller.client, renamed.clone()).await.expect(404).problem("not-found");
    }
    for caller in [&stranger, &child] {
        patch(&caller.client, &root_path, renamed.clone()).await.expect(404).problem("not-found");
    }
    for unknown in ["/api-keys/01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f", "/api-keys/no-uuid"] {
        patch(&root, unknown, renamed.clone()).await.expect(404).problem("not-found");
    }
    for body in [json!({}), renamed.clone(), json!({"scopes": ["keys:manage"]}), json!({"tier": "Pro"})] {
        patch(&root, &root_path, body).await.expect(403).problem("forbidden");
    }
    // Nor without the scope.
    grandchild.patch(&grandchild.client, renamed.clone()).await.expect(403).problem("scope-missing");

    root.delete(&child.path()).await.expect(204);
    child.patch(&root, renamed.clone()).await.expect(404).problem("not-found");
    grandchild.patch(&manager.client, renamed).await.expect(200);
    assert_eq!(listed(&root, &manager).await["name"], "manager");
    assert_eq!(root.get("/api-keys/self").await.expect(200).json()["name"], "root");
}

#[apply(on_each_store)]
async fn a_key_can_narrow_itself_and_not_widen_itself() {
    let server = without_rate_limit().start();
    let root = server.root();
    let manager = Key::managing(&server, &root, "manager").await;
    let own = &manager.client;
    manager.patch(own, json!({"name": "renamed"})).await.expect(200);
    manager.patch(own, json!({"expires_at": "2999-01-01T00:00:00Z"})).await.expect(200);
    manager.patch(own, json!({"scopes": ["keys:manage", "usage:read"]})).await.expect(200);
    for wider in [json!({"tier": "Pro"}), json!({"scopes": ["keys:manage", "links:write"]})] {
        manager.patch(own, wider).await.expect(403).problem("forbidden");
    }
    manager.patch(own, json!({"expires_at": "2999-01-02T00:00:00Z"})).await.expect(422).problem("validation");
    // A default is at most what the key has.
    let reset = manager.patch(own, json!({"scopes": null, "expires_at": null})).await.expect(200).json();
    assert_eq!(reset["expires_at"], "2999-01-01T00:00:00.000Z");
    assert!(
        reset["scopes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|scope| ["keys:manage", "usage:read"].iter().any(|one| scope == one))
    );
    manager.patch(&root, json!({"scopes": ["usage:read"]})).await.expect(200);
    manager.patch(own, json!({"name": "again"})).await.expect(403).problem("scope-missing");
}

/// A request is let in by its head. What it gives is judged by what its key has when the body is there.
#[apply(on_each_store)]
async fn a_key_that_is_narrowed_while_its_request_is_read_gives_nothing_that_it_no_longer_has() {
    let server = without_rate_limit().start();
    let root = server.root();
    let all = json!({"name": "manager", "tier": "Pro", "scopes": ["keys:manage", "links:read", "links:write"]});
    let manager = Key::new(&server, &root, all.clone()).await;
    let (own, others) = (manager.path(), "/api-keys".to_owned());
    let (wide, narrow) = (
        json!({"tier": "Pro", "scopes": ["keys:manage", "links:read", "links:write"], "expires_at": null}),
        json!({"tier": "Free", "scopes": ["links:read", "keys:manage"], "expires_at": "2999-01-01T00:00:00Z"}),
    );
    for (method, path, body) in [("PATCH", &own, wide.clone()), ("POST", &others, all)] {
        manager.patch(&root, wide.clone()).await.expect(200);
        let last_use = async || listed(&root, &manager).await["last_used_at"].clone();
        let (before, body) = (last_use().await, body.to_string());
        let mut slow = Raw::connect(server.address).await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text(&manager.record["key"]),
            body.len()
        );
        slow.send(head.as_bytes()).await;
        eventually("the key is let in", SOON, async || (last_use().await != before).then_some(())).await;
        manager.patch(&root, narrow.clone()).await.expect(200);
        slow.send(body.as_bytes()).await;
        slow.answer().await.unwrap().expect(403).problem("forbidden");
        let now = listed(&root, &manager).await;
        assert_eq!((&now["tier"], &now["scopes"]), (&json!("Free"), &narrow["scopes"]), "{method}");
    }
    // A key that may not manage keys any more is told so.
    let rotation = format!("{own}/rotate");
    let child = Key::new(&server, &manager.client, json!({"name": "child", "scopes": ["links:read"]})).await;
    manager.patch(&root, json!({"scopes": ["links:read"]})).await.expect(200);
    manager.client.post(&format!("{}/rotate", child.path()), json!({})).await.expect(403).problem("scope-missing");
    manager.client.post(&rotation, json!({})).await.expect(200);
}

#[apply(on_each_store)]
async fn refusals_of_a_change_come_in_their_order() {
    let clock = standing();
    let server = Server::builder()
        .clock(clock.clone())
        .set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "3")
        .set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "1")
        .start();
    let root = server.root();
    let manager = Key::managing(&server, &root, "manager").await;
    let expiring = json!({"name": "child", "expires_at": "2026-11-21T12:00:30Z"});
    let child = Key::new(&server, &manager.client, expiring).await;
    clock.advance(Duration::from_mins(2));
    manager.client.new_key(json!({"name": "another"})).await;
    clock.advance(Duration::from_mins(2));
    let stranger = format!("/api-keys/{}", text(&Key::managing(&server, &root, "stranger").await.record["key_id"]));
    let plain = [("Content-Type", "text/plain")];
    let at_fault = r#"{"name":"","tier":"Pro"}"#;
    let (own, last) = (manager.path(), child.path());
    for (path, headers, body, status, slug) in [
        (&stranger, &plain[..], "{", 415, "unsupported-media-type"),
        (&stranger, &[][..], "{", 400, "malformed-body"),
        (&stranger, &[], at_fault, 404, "not-found"),
        (&own, &[], at_fault, 422, "validation"),
        (&last, &[], at_fault, 422, "validation"),
        (&last, &[], r#"{"tier":"Pro","expires_at":null}"#, 403, "forbidden"),
        (&last, &[], r#"{"expires_at":null}"#, 403, "key-quota-exceeded"),
    ] {
        clock.advance(Duration::from_mins(1));
        send_patch(&server.anonymous(), path, headers, body).await.expect(401).problem("unauthorized");
        for _ in 0..3 {
            send_patch(&manager.client, path, headers, body).await.expect(status).problem(slug);
        }
        send_patch(&manager.client, path, headers, body).await.expect(429).problem("rate-limited");
    }
}

#[apply(on_each_store)]
async fn no_key_gives_another_more_than_it_has() {
    let server = without_rate_limit().start();
    let root = server.root();
    let manager = Key::managing(&server, &root, "manager").await;
    let child = Key::new(&server, &manager.client, json!({"name": "child", "scopes": ["links:read"]})).await;
    for body in [
        json!({"tier": "Pro"}),
        json!({"scopes": ["links:write"]}),
        json!({"scopes": ["links:read", "usage:read", "webhooks:read"]}),
        json!({"tier": "Pro", "scopes": ["links:read"], "name": "x"}),
    ] {
        child.patch(&manager.client, body).await.expect(403).problem("forbidden");
    }
    assert_eq!(listed(&root, &child).await, child.created());
    let changed =
        child.patch(&manager.client, json!({"scopes": ["keys:manage", "usage:read"]})).await.expect(200).json();
    assert_eq!(changed["scopes"], json!(["usage:read", "keys:manage"]));
    // The root may; then its creator can take it away, and can't give it back.
    child.patch(&root, json!({"tier": "Pro", "scopes": ["links:write"]})).await.expect(200);
    child.patch(&manager.client, json!({"name": "still"})).await.expect(200);
    child.patch(&manager.client, json!({"tier": "Pro"})).await.expect(403).problem("forbidden");
    let changed = child.patch(&manager.client, json!({"tier": "Free", "scopes": []})).await.expect(200).json();
    assert_eq!((&changed["tier"], &changed["scopes"]), (&json!("Free"), &json!([])));
    child.patch(&manager.client, json!({"scopes": ["links:write"]})).await.expect(403).problem("forbidden");
}

#[apply(on_each_store)]
async fn a_change_is_in_force_at_once_also_where_the_key_is_in_memory() {
    let clock = standing();
    let server = Server::builder().clock(clock.clone()).set("SIGNPOST_TIERS__PRO__USAGE_PER_MINUTE", "3").start();
    let root = server.root();
    let body = json!({"name": "x", "scopes": ["links:write", "usage:read"], "expires_at": "2026-11-21T12:10:00Z"});
    let key = Key::new(&server, &root, body).await;
    let limits = async || {
        let usage = key.client.get("/usage").await.expect(200);
        (usage.header("ratelimit").to_owned(), usage.json()["usage"]["links_created"]["limit"].clone())
    };
    assert_eq!(limits().await, ("\"usage\";r=59;t=60".to_owned(), json!(100)));
    // What was counted before goes on counting.
    key.patch(&root, json!({"tier": "Pro"})).await.expect(200);
    assert_eq!(limits().await, ("\"usage\";r=1;t=60".to_owned(), Value::Null));
    key.client.get("/usage").await.expect(200);
    key.client.get("/usage").await.expect(429);
    key.patch(&root, json!({"tier": "Free"})).await.expect(200);
    assert_eq!(limits().await.0, "\"usage\";r=56;t=60");

    key.patch(&root, json!({"scopes": ["usage:read"]})).await.expect(200);
    key.client
        .post("/shorten", json!({"redirect_url": "https://example.com/"}))
        .await
        .expect(403)
        .problem("scope-missing");
    key.patch(&root, json!({"scopes": ["links:write", "usage:read"]})).await.expect(200);
    key.client.any_link().await;

    clock.advance(Duration::from_mins(1));
    key.patch(&root, json!({"expires_at": "2026-11-21T12:02:00Z"})).await.expect(200);
    key.client.get("/usage").await.expect(200);
    clock.advance(Duration::from_mins(1));
    key.client.get("/usage").await.expect(401);
    // It works again, with the same secret.
    key.patch(&root, json!({"expires_at": "2026-11-21T12:20:00Z"})).await.expect(200);
    key.client.get("/usage").await.expect(200);
    clock.advance(Duration::from_mins(17));
    key.client.get("/usage").await.expect(200);
    clock.advance(Duration::from_mins(1));
    key.client.get("/usage").await.expect(401);
}

#[apply(on_each_store)]
async fn keys_below_a_narrowed_one_stay_as_they_are() {
    let clock = standing();
    let server = without_rate_limit().clock(clock.clone()).start();
    let root = server.root();
    let body = json!({"name": "manager", "tier": "Pro", "scopes": ["links:read", "usage:read", "keys:manage"]});
    let manager = Key::new(&server, &root, body).await;
    let body = json!({"name": "child", "tier": "Pro", "scopes": ["links:read", "usage:read"]});
    let child = Key::new(&server, &manager.client, body).await;
    let narrowed =
        json!({"tier": "Free", "scopes": ["usage:read", "keys:manage"], "expires_at": "2026-11-21T13:00:00Z"});
    manager.patch(&root, narrowed).await.expect(200);
    assert_eq!(listed(&root, &child).await, child.created());
    child.client.get("/links/zzzzzzz").await.expect(404);
    // What it creates from now on has no more than it has now.
    let created = manager.client.new_key(json!({"name": "x"})).await;
    let fields = ["tier", "scopes", "expires_at"].map(|name| created[name].clone());
    assert_eq!(fields, [json!("Free"), json!(["usage:read"]), json!("2026-11-21T13:00:00.000Z")]);
    // It can still narrow those below it.
    child.patch(&manager.client, json!({"name": "renamed"})).await.expect(200);
    child.patch(&manager.client, json!({"expires_at": "2026-11-21T14:00:00Z"})).await.expect(422);
    child.patch(&manager.client, json!({"expires_at": null})).await.expect(200);
    assert_eq!(listed(&root, &child).await["expires_at"], "2026-11-21T13:00:00.000Z");
    // Without the scope it manages nothing; with it, all that it did.
    manager.patch(&root, json!({"scopes": ["usage:read"]})).await.expect(200);
    child.patch(&manager.client, json!({"name": "y"})).await.expect(403).problem("scope-missing");
    manager.patch(&root, json!({"scopes": ["keys:manage"]})).await.expect(200);
    child.patch(&manager.client, json!({"name": "y"})).await.expect(200);
    clock.advance(Duration::from_hours(1));
    child.client.get("/usage").await.expect(401);
}

#[apply(on_each_store)]
async fn an_extended_key_counts_among_the_live_keys_of_its_creator() {
    let clock = standing();
    let server = without_rate_limit().clock(clock.clone()).set("SIGNPOST_TIERS__FREE__CHILD_KEYS", "2").start();
    let root = server.root();
    let manager = Key::managing(&server, &root, "manager").await;
    let expiring = json!({"name": "expiring", "expires_at": "2026-11-21T12:00:10Z"});
    let [first, second] = [
        Key::new(&server, &manager.client, expiring.clone()).await,
        Key::new(&server, &manager.client, expiring).await,
    ];
    let extended = json!({"expires_at": "2026-11-21T12:01:00Z"});
    let refused = |answer: Answer| {
        let problem = answer.expect(403).problem("key-quota-exceeded");
        assert_eq!((&problem["limit"], &problem["current"]), (&json!(2), &json!(2)));
        assert!(text(&problem["detail"]).contains("revoke one"));
    };
    let create = async || manager.client.post("/api-keys", json!({"name": "another"})).await;
    // A live key keeps its place.
    first.patch(&manager.client, extended.clone()).await.expect(200);
    refused(create().await);
    clock.advance(Duration::from_secs(10));
    // The other one has lost it to a new key, and can't be extended by anybody.
    let another = create().await.expect(201).json();
    refused(second.patch(&manager.client, extended.clone()).await);
    refused(second.patch(&root, json!({"expires_at": null})).await);
    second.client.get("/usage").await.expect(401);
    // Other changes need no place.
    let changed = second.patch(&manager.client, json!({"name": "expired"})).await.expect(200).json();
    assert_eq!(changed["expires_at"], "2026-11-21T12:00:10.000Z");
    root.delete(&format!("/api-keys/{}", text(&another["key_id"]))).await.expect(204);
    second.patch(&manager.client, extended.clone()).await.expect(200);
    second.client.get("/usage").await.expect(200);
    refused(create().await);
    // Also after its creator is revoked.
    clock.advance(Duration::from_mins(1));
    first.patch(&manager.client, json!({"expires_at": null})).await.expect(200);
    root.delete(&manager.path()).await.expect(204);
    second.patch(&root, json!({"expires_at": null})).await.expect(200);
    // The keys of the root have no limit.
    let own = Key::new(&server, &root, json!({"name": "own", "expires_at": "2026-11-21T12:02:00Z"})).await;
    clock.advance(Duration::from_mins(2));
    own.patch(&root, json!({"expires_at": null})).await.expect(200);
    let metrics = server.metrics().await;
    assert!(metrics.contains("signpost_quotas_refused_total{quota=\"keys\"} 4"), "{metrics}");
}

#[apply(on_each_store)]
async fn changes_and_rotations_at_once_are_all_applied() {
    let server = without_rate_limit().start();
    let root = server.root();
    for round in 0..5 {
        let key = Key::new(&server, &root, json!({"name": "x"})).await;
        let path = format!("{}/rotate", key.path());
        let bodies =
            [json!({"name": format!("round {round}")}), json!({"tier": "Pro"}), json!({"scopes": ["usage:read"]})];
        let changed = join_all(bodies.map(|body| key.patch(&root, body)));
        let (changed, rotated) = join(changed, root.post(&path, json!({}))).await;
        for answer in changed {
            answer.expect(200);
        }
        let secret = rotated.expect(200).json()["key"].clone();
        let record = server.with_key(text(&secret)).get("/api-keys/self").await.expect(200).json();
        let fields = ["name", "tier", "scopes"].map(|name| record[name].clone());
        assert_eq!(fields, [json!(format!("round {round}")), json!("Pro"), json!(["usage:read"])]);
        assert_ne!(record["rotated_at"], Value::Null);
    }
}

#[tokio::test]
async fn without_its_store_nothing_is_changed() {
    let switch = FaultSwitch::default();
    let wrapped = switch.clone();
    let server = without_rate_limit().wrap_store(move |store| Arc::new(FaultyStore::new(store, wrapped))).start();
    let root = server.root();
    let key = Key::new(&server, &root, json!({"name": "x", "expires_at": "2099-01-01T00:00:00Z"})).await;
    switch.out_of_reach(true);
    key.patch(&root, json!({"name": "y"})).await.expect(503).problem("unavailable");
    key.client.get("/api-keys/self").await.expect(503).problem("unavailable");
    switch.out_of_reach(false);
    for (method, body) in [("update_key", json!({"name": "y"})), ("extend_key", json!({"expires_at": null}))] {
        switch.out_of_reach_after(0, method);
        key.patch(&root, body).await.expect(503).problem("unavailable");
        switch.out_of_reach(false);
    }
    let record = listed(&root, &key).await;
    assert_eq!((&record["name"], &record["expires_at"]), (&json!("x"), &json!("2099-01-01T00:00:00.000Z")));
}

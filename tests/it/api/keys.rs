//! `POST /api-keys`, `GET /api-keys`, `DELETE /api-keys/{key_id}`.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};

const BUT_MANAGE: [&str; 6] =
    ["links:write", "links:read", "analytics:read", "usage:read", "webhooks:read", "webhooks:write"];
const RECORD: [&str; 10] = [
    "created_at",
    "created_by",
    "expires_at",
    "key_id",
    "last_used_at",
    "name",
    "prefix",
    "rotated_at",
    "scopes",
    "tier",
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn members(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The names in a client's list, over all its pages.
async fn listed(client: &Client) -> Vec<String> {
    let mut names = Vec::new();
    let mut path = "/api-keys?limit=100".to_owned();
    loop {
        let page = client.get(&path).await.expect(200).json();
        names.extend(page["api_keys"].as_array().unwrap().iter().map(|key| text(&key["name"]).to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api-keys?limit=100&cursor={cursor}"),
            None => return names,
        }
    }
}

#[apply(on_each_store)]
async fn a_new_key_is_shown_once_with_its_secrets_and_its_defaults() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T07:49:42.028Z").unwrap());
    let server = Server::builder().clock(clock).start();
    let key = server.root().new_key(json!({"name": "shop"})).await;

    let shown: BTreeSet<_> = RECORD.into_iter().chain(["key", "webhook_secret"]).collect();
    assert_eq!(members(&key), shown);
    let secret = text(&key["key"]);
    let random = secret.strip_prefix("sp_").unwrap();
    assert!(random.len() == 43 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
    assert_eq!(text(&key["prefix"]), &secret[..8]);
    let webhook_secret = text(&key["webhook_secret"]).strip_prefix("whsec_").unwrap();
    assert_eq!(STANDARD.decode(webhook_secret).unwrap().len(), 32);
    assert_eq!(uuid::Uuid::parse_str(text(&key["key_id"])).unwrap().get_version_num(), 7);
    assert_eq!((text(&key["name"]), text(&key["tier"])), ("shop", "Free"));
    assert_eq!(key["scopes"], json!(BUT_MANAGE));
    assert_eq!(key["created_at"], "2026-11-21T07:49:42.028Z");
    for absent in ["expires_at", "last_used_at", "rotated_at"] {
        assert_eq!(key[absent], Value::Null);
    }
    server.with_key(secret).get("/usage").await.expect(200);

    let other = server.root().new_key(json!({"name": "shop"})).await;
    for different in ["key", "webhook_secret", "key_id"] {
        assert_ne!(key[different], other[different]);
    }
}

#[apply(on_each_store)]
async fn a_key_is_made_as_asked_for() {
    let server = Server::start();
    let asked = json!({
        "name": "ü".repeat(100), "tier": "Pro", "scopes": ["keys:manage", "links:read"],
        "expires_at": "2099-01-01T01:00:00+01:00",
    });
    let key = server.root().new_key(asked).await;
    assert_eq!((text(&key["name"]).chars().count(), text(&key["tier"])), (100, "Pro"));
    assert_eq!(key["scopes"], json!(["links:read", "keys:manage"]));
    assert_eq!(key["expires_at"], "2099-01-01T00:00:00.000Z");
    let none = server.root().new_key(json!({"name": " a shop ", "scopes": []})).await;
    assert_eq!((text(&none["name"]), &none["scopes"]), (" a shop ", &json!([])));
}

#[apply(on_each_store)]
async fn all_faults_of_a_new_key_are_told_at_once() {
    let server = Server::start();
    let root = server.root();
    let cases = [
        (json!({}), vec!["/name"]),
        (json!({"name": ""}), vec!["/name"]),
        (json!({"name": "x".repeat(101)}), vec!["/name"]),
        (json!({"name": "web\nshop"}), vec!["/name"]),
        (json!({"name": "\0"}), vec!["/name"]),
        (json!({"name": "shop\u{9b}31m"}), vec!["/name"]),
        (json!({"name": " "}), vec!["/name"]),
        (json!({"name": "\u{a0}\u{3000}"}), vec!["/name"]),
        (
            json!({"name": 7, "tier": "Gold", "scopes": ["links:read", "admin", 1]}),
            vec!["/name", "/scopes/1", "/scopes/2", "/tier"],
        ),
        (json!({"name": "x", "tier": "pro", "scopes": "links:read"}), vec!["/scopes", "/tier"]),
        (json!({"name": "x", "expires_at": "2020-01-01T00:00:00Z", "teir": "Pro"}), vec!["/expires_at", "/teir"]),
        (json!({"name": "x", "expires_at": "tomorrow"}), vec!["/expires_at"]),
        (json!({"name": "x", "expires_at": 1}), vec!["/expires_at"]),
        (json!([]), vec![""]),
    ];
    for (body, expected) in cases {
        let problem = root.post("/api-keys", body.clone()).await.expect(422).problem("validation");
        let faults = problem["errors"].as_array().unwrap();
        let pointers: BTreeSet<_> = faults.iter().map(|fault| text(&fault["pointer"])).collect();
        assert_eq!(pointers, expected.into_iter().collect(), "{body}");
        assert!(faults.iter().all(|fault| !text(&fault["detail"]).is_empty()));
    }
    let problem = root.post("/api-keys?nmae=x", json!({"name": "x"})).await.expect(422).problem("validation");
    assert_eq!(problem["errors"][0]["parameter"], "nmae");
    assert_eq!(listed(&root).await, ["root"]);
}

#[apply(on_each_store)]
async fn the_moment_of_expiry_is_past() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder().clock(clock).start();
    let create = |at: &'static str| {
        let root = server.root();
        async move { root.post("/api-keys", json!({"name": "x", "expires_at": at})).await }
    };
    create("2026-11-21T12:00:00Z").await.expect(422);
    create("2026-11-21T12:00:00.001Z").await.expect(201);
}

#[apply(on_each_store)]
async fn the_list_goes_page_by_page_newest_first_and_without_secrets() {
    let server = Server::start();
    let root = server.root();
    let mut secrets = Vec::new();
    for number in 0..5 {
        let key = root.new_key(json!({"name": format!("key {number}")})).await;
        secrets.extend([text(&key["key"]).to_owned(), text(&key["webhook_secret"]).to_owned()]);
    }
    let (mut names, mut pages, mut path) = (Vec::new(), 0, "/api-keys?limit=2".to_owned());
    loop {
        let answer = root.get(&path).await.expect(200);
        let page = answer.json();
        assert_eq!(members(&page), BTreeSet::from(["api_keys", "next_cursor"]));
        assert!(secrets.iter().all(|secret| !answer.text().contains(secret)));
        for key in page["api_keys"].as_array().unwrap() {
            assert_eq!(members(key), BTreeSet::from(RECORD));
            names.push(text(&key["name"]).to_owned());
        }
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api-keys?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["key 4", "key 3", "key 2", "key 1", "key 0", "root"]);
    assert_eq!(pages, 3, "no empty page at the end");
    assert_eq!(root.get("/api-keys").await.expect(200).json()["api_keys"].as_array().unwrap().len(), 6);

    for (query, parameter) in
        [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("cursor=?", "cursor"), ("page=2", "page")]
    {
        let problem = root.get(&format!("/api-keys?{query}")).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["parameter"], parameter);
    }
}

#[apply(on_each_store)]
async fn revoked_keys_are_not_listed_and_expired_ones_are() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder().clock(clock.clone()).start();
    // Within one millisecond the order is not told.
    clock.advance(Duration::from_millis(1));
    let root = server.root();
    let revoked = root.new_key(json!({"name": "revoked"})).await;
    root.new_key(json!({"name": "expired", "expires_at": "2026-11-21T12:00:01Z"})).await;
    clock.advance(Duration::from_secs(2));
    root.delete(&format!("/api-keys/{}", text(&revoked["key_id"]))).await.expect(204);
    assert_eq!(listed(&root).await, ["expired", "root"]);
}

#[apply(on_each_store)]
async fn a_managing_key_sees_itself_and_all_below_it_and_no_other() {
    let server = Server::start();
    let root = server.root();
    let with_manage = |name: &str| json!({"name": name, "scopes": ["links:read", "keys:manage"]});
    let manager = root.new_key(with_manage("manager")).await;
    let manager_client = server.with_key(text(&manager["key"]));
    let child = manager_client.new_key(with_manage("child")).await;
    let child_client = server.with_key(text(&child["key"]));
    let grandchild = child_client.new_key(json!({"name": "grandchild"})).await;
    let stranger = root.new_key(with_manage("stranger")).await;

    assert_eq!(listed(&root).await, ["stranger", "grandchild", "child", "manager", "root"]);
    assert_eq!(listed(&manager_client).await, ["grandchild", "child", "manager"]);
    assert_eq!(listed(&child_client).await, ["grandchild", "child"]);
    let stranger_client = server.with_key(text(&stranger["key"]));
    assert_eq!(listed(&stranger_client).await, ["stranger"]);

    let root_id = root.get("/usage").await.json()["api_key_id"].clone();
    for unseen in [&root_id, &manager["key_id"], &child["key_id"], &grandchild["key_id"]] {
        let path = format!("/api-keys/{}", text(unseen));
        stranger_client.delete(&path).await.expect(404).problem("not-found");
        stranger_client
            .post(&format!("{path}/rotate"), json!({"grace_seconds": -1}))
            .await
            .expect(404)
            .problem("not-found");
    }
    child_client.delete(&format!("/api-keys/{}", text(&manager["key_id"]))).await.expect(404);

    manager_client.post(&format!("/api-keys/{}/rotate", text(&grandchild["key_id"])), json!({})).await.expect(200);
    manager_client.delete(&format!("/api-keys/{}", text(&child["key_id"]))).await.expect(204);
    assert_eq!(listed(&manager_client).await, ["grandchild", "manager"]);
    manager_client.delete(&format!("/api-keys/{}", text(&grandchild["key_id"]))).await.expect(204);
    manager_client.delete(&format!("/api-keys/{}", text(&manager["key_id"]))).await.expect(204);
    assert_eq!(listed(&root).await, ["stranger", "root"]);
}

#[apply(on_each_store)]
async fn no_key_makes_one_that_may_do_more_than_itself() {
    let server = Server::start();
    let root = server.root();
    let manager = root.new_key(json!({"name": "manager", "scopes": ["links:write", "keys:manage"]})).await;
    let manager = server.with_key(text(&manager["key"]));
    for body in [
        json!({"name": "x", "tier": "Pro"}),
        json!({"name": "x", "scopes": ["links:write", "usage:read"]}),
        json!({"name": "x", "tier": "Pro", "scopes": ["links:read"]}),
    ] {
        manager.post("/api-keys", body).await.expect(403).problem("forbidden");
    }
    // By default all that the maker has, but for managing keys.
    assert_eq!(manager.new_key(json!({"name": "x"})).await["scopes"], json!(["links:write"]));
    let equal = manager.new_key(json!({"name": "x", "scopes": ["keys:manage", "links:write"]})).await;
    assert_eq!(equal["scopes"], json!(["links:write", "keys:manage"]));
}

#[apply(on_each_store)]
async fn a_revoked_key_is_refused_at_once_and_its_links_go_on() {
    let server = Server::start();
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.any_link().await;
    let path = format!("/api-keys/{}", text(&key["key_id"]));

    let answer = root.delete(&path).await.expect(204);
    assert!(answer.body.is_empty());
    shop.get("/usage").await.expect(401);
    server.anonymous().get(&format!("/{id}")).await.expect(302);
    root.delete(&path).await.expect(404).problem("not-found");
    root.post(&format!("{path}/rotate"), json!({})).await.expect(404).problem("not-found");
    for unknown in ["/api-keys/01935f2e-7b6a-7c3d-8e4f-5a6b7c8d9e0f", "/api-keys/no-uuid"] {
        root.delete(unknown).await.expect(404).problem("not-found");
    }

    // Also after a restart, when no link is in the cache any more.
    let server = Server::builder().directory(server.stop()).start();
    server.with_key(text(&key["key"])).get("/usage").await.expect(401);
    server.anonymous().get(&format!("/{id}")).await.expect(302);
}

#[apply(on_each_store)]
async fn the_root_key_cannot_be_revoked() {
    let server = Server::start();
    let root = server.root();
    let id = root.get("/usage").await.expect(200).json()["api_key_id"].clone();
    root.delete(&format!("/api-keys/{}", text(&id))).await.expect(403).problem("forbidden");
    root.get("/usage").await.expect(200);
}

#[apply(on_each_store)]
async fn the_last_use_of_a_key_is_shown_at_once_and_survives_a_restart() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T11:59:59Z").unwrap());
    let server = Server::builder().clock(clock.clone()).start();
    clock.advance(Duration::from_secs(1));
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let last_used = |client: Client| async move {
        client.get("/api-keys?limit=1").await.expect(200).json()["api_keys"][0]["last_used_at"].clone()
    };
    assert_eq!(last_used(root.clone()).await, Value::Null);
    shop.get("/usage").await.expect(200);
    assert_eq!(last_used(root.clone()).await, "2026-11-21T12:00:00.000Z");
    clock.advance(Duration::from_secs(3));
    shop.get("/usage").await.expect(200);
    assert_eq!(last_used(root).await, "2026-11-21T12:00:03.000Z");
    clock.advance(Duration::from_secs(30));
    let server = Server::builder().clock(clock).directory(server.stop()).start();
    assert_eq!(last_used(server.root()).await, "2026-11-21T12:00:03.000Z");
}

#[apply(on_each_store)]
async fn no_secret_is_kept_in_plain_text() {
    let server = Server::start();
    let root = server.root();
    let key = root.new_key(json!({"name": "needle-in-the-store"})).await;
    let rotated = format!("/api-keys/{}/rotate", text(&key["key_id"]));
    let body = json!({"grace_seconds": 60, "rotate_webhook_secret": true});
    let rotated = root.post(&rotated, body).await.expect(200).json();
    let mut secrets = Vec::new();
    for shown in [&key, &rotated] {
        let [secret, webhook_secret] = ["key", "webhook_secret"].map(|name| text(&shown[name]));
        let webhook_secret = webhook_secret.strip_prefix("whsec_").unwrap();
        // What the prefix shows of a key is public.
        secrets.push(secret.as_bytes()[8..].to_vec());
        secrets.push(webhook_secret.as_bytes().to_vec());
        secrets.push(STANDARD.decode(webhook_secret).unwrap());
    }
    let home = server.stop();
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let (mut places, mut needle_found) = (0, false);
    for (place, mut bytes) in home.contents().await {
        places += 1;
        // The embedded engine allots its journal ahead of use: zeros.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        needle_found |= has(&bytes, b"needle-in-the-store");
        for secret in &secrets {
            let hex = format!("{secret:02x?}").replace(['[', ']', ',', ' '], "");
            assert!(!has(&bytes, secret) && !has(&bytes, hex.as_bytes()), "a secret stands in {place}");
        }
    }
    assert!(places > 3 && needle_found, "the search finds what is stored");
}

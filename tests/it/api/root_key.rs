//! The operator's key: set from outside or made at the first start.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::server::{ROOT_KEY, Server};
use crate::support::stores::{apply, on_each_store};

const ANOTHER_ROOT_KEY: &str = "another-root-key-of-a-test-0123456789";

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

async fn root_id(root: &Client) -> String {
    text(&root.get("/usage").await.expect(200).json()["api_key_id"]).to_owned()
}

/// A server that makes its root key itself.
fn without_root_key() -> crate::support::server::ServerBuilder {
    Server::builder().unset("SIGNPOST_ROOT_KEY")
}

#[apply(on_each_store)]
async fn a_root_key_that_is_too_short_stops_the_start() {
    let error = Server::builder().set("SIGNPOST_ROOT_KEY", &"x".repeat(31)).try_start().err().unwrap();
    assert!(error.contains("SIGNPOST_ROOT_KEY") && error.contains("32") && !error.contains('\n'), "{error}");
    drop(Server::builder().set("SIGNPOST_ROOT_KEY", &"x".repeat(32)).start());
}

#[apply(on_each_store)]
async fn the_root_key_stands_in_the_list() {
    let server = Server::start();
    let list = server.root().get("/api-keys").await.expect(200).json();
    let keys = list["api_keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((text(&keys[0]["name"]), text(&keys[0]["tier"])), ("root", "Pro"));
    assert_eq!(text(&keys[0]["prefix"]), &ROOT_KEY[..8]);
    assert_eq!(keys[0]["scopes"].as_array().unwrap().len(), 7);
}

#[apply(on_each_store)]
async fn the_root_key_has_no_limits_and_sees_every_link() {
    let server = Server::builder()
        .set("SIGNPOST_TIERS__PRO__SHORTEN_PER_MINUTE", "1")
        .set("SIGNPOST_TIERS__PRO__LINKS_PER_MONTH", "1")
        .start();
    let root = server.root();
    for _ in 0..3 {
        let answer = root.post("/shorten", json!({"redirect_url": "https://example.com/"})).await.expect(200);
        for absent in ["x-usage-links-created", "x-usage-links-limit", "ratelimit", "ratelimit-policy"] {
            assert_eq!(answer.header(absent), "", "{absent}");
        }
    }
    let key = root.new_key(json!({"name": "shop"})).await;
    let id = server.with_key(text(&key["key"])).any_link().await;
    for path in ["/links/{}", "/links/{}/analytics", "/links/{}/analytics/summary", "/{}/webhooks/status"] {
        root.get(&path.replace("{}", &id)).await.expect(200);
    }
}

#[apply(on_each_store)]
async fn a_chosen_root_key_is_not_rotated_but_its_webhook_secret_is() {
    let server = Server::start();
    let root = server.root();
    let path = format!("/api-keys/{}/rotate", root_id(&root).await);
    for body in [json!({}), json!({"grace_seconds": 60}), json!({"rotate_webhook_secret": false})] {
        root.post(&path, body).await.expect(403).problem("forbidden");
    }
    let rotated = root.post(&path, json!({"rotate_webhook_secret": true})).await.expect(200).json();
    assert!(rotated.get("key").is_none());
    assert!(text(&rotated["webhook_secret"]).starts_with("whsec_"));
    root.get("/usage").await.expect(200);
}

#[apply(on_each_store)]
async fn a_root_key_is_made_once_and_kept() {
    let server = without_root_key().start();
    let secret = server.first_secret.clone().unwrap();
    assert!(secret.starts_with("sp_") && secret.len() == 46);
    let id = root_id(&server.with_key(&secret)).await;

    let server = without_root_key().directory(server.stop()).start();
    assert_eq!(server.first_secret, None, "it is made, and told, once");
    let root = server.with_key(&secret);
    assert_eq!(root_id(&root).await, id);

    // It can be rotated like any other, its grace included.
    let path = format!("/api-keys/{id}/rotate");
    let rotated = root.post(&path, json!({})).await.expect(200).json();
    root.get("/usage").await.expect(401);
    assert_eq!(root_id(&server.with_key(text(&rotated["key"]))).await, id);

    let server = without_root_key().directory(server.stop()).start();
    server.with_key(&secret).get("/usage").await.expect(401);
    assert_eq!(root_id(&server.with_key(text(&rotated["key"]))).await, id);
}

#[apply(on_each_store)]
async fn another_root_key_in_the_settings_takes_the_place_of_the_old_one() {
    let server = Server::start();
    let link = server.root().any_link().await;
    let id = root_id(&server.root()).await;
    let server = Server::builder().set("SIGNPOST_ROOT_KEY", ANOTHER_ROOT_KEY).directory(server.stop()).start();
    server.with_key(ROOT_KEY).get("/usage").await.expect(401);
    let root = server.with_key(ANOTHER_ROOT_KEY);
    assert_eq!(root_id(&root).await, id);
    root.get(&format!("/links/{link}")).await.expect(200);
    let list = root.get("/api-keys").await.expect(200).json();
    assert_eq!(list["api_keys"].as_array().unwrap().len(), 1);
    assert_eq!(list["api_keys"][0]["prefix"], ANOTHER_ROOT_KEY[..8]);
}

#[apply(on_each_store)]
async fn a_wrong_master_key_stops_the_start_and_the_right_one_goes_on() {
    let [right, wrong] = [[7; 32], [8; 32]].map(|bytes: [u8; 32]| STANDARD.encode(bytes));
    let server = Server::builder().set("SIGNPOST_MASTER_KEY", &right).start();
    let link = server.root().any_link().await;
    let directory = server.stop();
    let refused =
        Server::builder().set("SIGNPOST_MASTER_KEY", &wrong).directory(std::sync::Arc::clone(&directory)).try_start();
    let error = refused.err().unwrap();
    assert!(error.contains("master key") && !error.contains(&wrong), "{error}");
    let server = Server::builder().set("SIGNPOST_MASTER_KEY", &right).directory(directory).start();
    server.root().get(&format!("/links/{link}")).await.expect(200);
}

#[test]
fn the_embedded_store_keeps_its_own_master_key_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start();
    let file = server.data_dir().join("master.key");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

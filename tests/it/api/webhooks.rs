//! Webhook requests: what a receiver gets, when it is tried again, and what is never sent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use tokio::net::TcpSocket;

use crate::support::client::Client;
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::server::{Server, ServerBuilder};
use crate::support::signature::Verifier;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually};

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Retries follow quickly.
fn impatient() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,100ms")
}

/// Waits until none of the link's deliveries is pending; answers them. For the root: how often others may ask is limited.
async fn settled(client: &Client, id: &str, count: usize) -> Vec<Value> {
    eventually("settled deliveries", SOON, async || {
        let status = client.get(&format!("/{id}/webhooks/status?limit=100")).await.expect(200).json();
        let deliveries = status["deliveries"].as_array().unwrap().clone();
        let done = deliveries.len() == count && deliveries.iter().all(|delivery| delivery["status"] != "pending");
        done.then_some(deliveries)
    })
    .await
}

fn is_signed(request: &Received, secret: &str) -> bool {
    Verifier::new(secret).is_signed(request)
}

/// As the Standard Webhooks page tells it, and as its library sees it, which must be of one mind.
fn is_standard(request: &Received, secret: &str) -> bool {
    let verifier = Verifier::new(secret);
    assert_eq!(verifier.is_standard(request), verifier.library_accepts(request), "{request:?}");
    verifier.is_standard(request)
}

#[apply(on_each_store)]
async fn a_hit_posts_the_six_fields_in_order_and_both_signatures() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let target = "https://example.com/a?b=%22c%22";
    let body = format!(
        r#"{{"redirect_url": "{target}", "data": {{"z": 1.0, "a": [1e2, "ü \" /"]}}, "webhooks": ["{}"]}}"#,
        receiver.url("/hook?x=1")
    );
    let answer = shop.send(reqwest::Method::POST, "/shorten", &[], Some(body.into())).await.expect(200);
    let id = text(&answer.json()["short_id"]).to_owned();
    server.click(&id, 1).await;
    let request = receiver.wait_for(1, SOON).await.remove(0);

    let payload = request.json();
    let (hit_id, hit_at) = (text(&payload["hit_id"]), text(&payload["hit_at"]));
    let expected = format!(
        r#"{{"event":"hit","short_id":"{id}","redirect_url":"{target}","hit_id":"{hit_id}","hit_at":"{hit_at}","data":{{"z":1.0,"a":[1e2,"ü \" /"]}}}}"#
    );
    assert_eq!(String::from_utf8(request.body.clone()).unwrap(), expected);
    assert_eq!(uuid::Uuid::parse_str(hit_id).unwrap().get_version_num(), 7);
    assert_eq!(Timestamp::parse(hit_at).unwrap().to_string(), hit_at);

    assert_eq!(request.path, "/hook?x=1");
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("user-agent"), concat!("signpost/", env!("CARGO_PKG_VERSION")));
    let secret = text(&key["webhook_secret"]);
    assert!(is_signed(&request, secret) && is_standard(&request, secret));
    assert_eq!(request.header("webhook-signature").split(' ').count(), 1);
    let root_id = root.get("/usage").await.json()["api_key_id"].clone();
    let path = format!("/api-keys/{}/rotate", text(&root_id));
    let roots = root.post(&path, json!({"rotate_webhook_secret": true})).await.expect(200).json();
    assert!(!is_standard(&request, text(&roots["webhook_secret"])), "it is the maker's secret that signs");
}

#[apply(on_each_store)]
async fn without_data_an_empty_object_is_sent() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let id = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    let request = receiver.wait_for(1, SOON).await.remove(0);
    assert!(String::from_utf8(request.body).unwrap().ends_with(r#","data":{}}"#));
}

#[apply(on_each_store)]
async fn every_hit_goes_to_every_url_with_an_id_of_its_own() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let id = server.root().link_with_webhooks(&[receiver.url("/a"), receiver.url("/b")]).await;
    for _ in 0..3 {
        server.click(&id, 1).await;
    }
    server.anonymous().head(&format!("/{id}")).await.expect(302);
    settled(&server.root(), &id, 6).await;
    let requests = receiver.received();
    assert_eq!(requests.len(), 6);
    let distinct =
        |of: &dyn Fn(&Received) -> String| requests.iter().map(of).collect::<std::collections::HashSet<_>>().len();
    assert_eq!(distinct(&|request| request.header("webhook-id").to_owned()), 6);
    assert_eq!(distinct(&|request| text(&request.json()["hit_id"]).to_owned()), 3);
    assert_eq!(distinct(&|request| format!("{}{}", request.path, request.json()["hit_id"])), 6);
}

#[apply(on_each_store)]
async fn after_three_failures_a_delivery_has_failed_for_good() {
    let (server, receiver) = (impatient().start(), Receiver::start().await);
    receiver.reply_with([Reply::Status(500), Reply::Status(400), Reply::Status(418)]);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    let delivery = settled(&root, &id, 1).await.remove(0);
    assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("failed"), &json!(3)));
    assert_eq!((&delivery["response_status"], &delivery["error"]), (&json!(418), &json!("http 418")));
    assert_eq!(delivery["next_attempt_at"], Value::Null);
    // The next hit's delivery goes through; nothing of the first comes again.
    server.click(&id, 1).await;
    settled(&root, &id, 2).await;
    assert_eq!(receiver.received().len(), 4);
    let usage = root.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"]["current"], 2, "one a delivery, whatever its tries");
}

#[apply(on_each_store)]
async fn the_reason_of_a_failure_is_told() {
    let server = |timeout| {
        let builder = Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "0s");
        builder.set("SIGNPOST_WEBHOOKS__TIMEOUT", timeout).start()
    };
    let (patient, impatient) = (server("10s"), server("150ms"));
    let receiver = Receiver::start().await;
    // Nobody listens there, and nobody else gets the port.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let refused_url = format!("http://{}/", closed.local_addr().unwrap());
    // A longer label than names may have: the resolver refuses it without asking anybody.
    let no_host = format!("http://{}.invalid/", "a".repeat(64));
    let cases: [(&Server, String, Option<Reply>, &str, Value); 5] = [
        (&patient, receiver.url("/"), Some(Reply::Status(302)), "http 302", json!(302)),
        (&patient, receiver.url("/"), Some(Reply::Status(404)), "http 404", json!(404)),
        (&impatient, receiver.url("/"), Some(Reply::Silence), "timed out", Value::Null),
        (&patient, refused_url, None, "connection refused", Value::Null),
        (&patient, no_host, None, "dns", Value::Null),
    ];
    for (server, url, reply, error, response_status) in cases {
        receiver.reply_with(reply.into_iter().chain(reply));
        let id = server.root().link_with_webhooks(&[url]).await;
        server.click(&id, 1).await;
        let delivery = settled(&server.root(), &id, 1).await.remove(0);
        assert_eq!((&delivery["error"], &delivery["response_status"]), (&json!(error), &response_status));
        assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("failed"), &json!(2)), "{error}");
    }
}

#[apply(on_each_store)]
async fn addresses_inside_are_not_called_unless_allowed() {
    let mut server = impatient().set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "").start();
    let receiver = Receiver::start().await;
    let root = server.root();
    for literal in [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://0x7f.1/",
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "http://localhost/",
    ] {
        let body = json!({"redirect_url": "https://example.com/", "webhooks": ["https://example.com/", literal]});
        let problem = root.post("/shorten", body).await.expect(422).problem("validation");
        assert_eq!(problem["errors"][0]["pointer"], "/webhooks/1", "{literal}");
    }
    // Allowed when the link was made, and no longer: it is judged when it is dialled.
    let id = {
        let home = Arc::clone(&server.stop());
        let open = impatient().directory(Arc::clone(&home)).start();
        let id = open.root().link_with_webhooks(&[format!("http://localhost:{}/", receiver.address.port())]).await;
        open.stop();
        server = impatient().set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "").directory(home).start();
        id
    };
    let root = server.root();
    server.click(&id, 1).await;
    let delivery = settled(&root, &id, 1).await.remove(0);
    assert_eq!((&delivery["status"], &delivery["error"]), (&json!("failed"), &json!("blocked address")));
    assert_eq!(receiver.received().len(), 0);
}

#[apply(on_each_store)]
async fn past_the_quota_nothing_is_sent_and_the_count_is_exact() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-30T12:00:00Z").unwrap());
    let server =
        impatient().set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "5").clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.link_with_webhooks(&[receiver.url("/a"), receiver.url("/b")]).await;
    for _ in 0..10 {
        server.click(&id, 1).await;
    }
    let deliveries = settled(&server.root(), &id, 20).await;
    let (sent, refused): (Vec<_>, Vec<_>) = deliveries.iter().partition(|delivery| delivery["status"] == "delivered");
    assert_eq!((sent.len(), refused.len(), receiver.received().len()), (5, 15, 5));
    for delivery in refused {
        assert_eq!((&delivery["error"], &delivery["attempts"]), (&json!("quota exceeded"), &json!(0)));
        assert_eq!((&delivery["response_status"], &delivery["next_attempt_at"]), (&Value::Null, &Value::Null));
    }
    let usage = shop.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"], json!({"current": 5, "limit": 5}));

    // The next month begins anew.
    clock.advance(Duration::from_hours(24));
    server.click(&id, 1).await;
    settled(&server.root(), &id, 22).await;
    assert_eq!(receiver.received().len(), 7);
}

#[apply(on_each_store)]
async fn a_retry_takes_no_more_of_the_quota() {
    let server = impatient().set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "1").start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500), Reply::Status(500)]);
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    let delivery = settled(&server.root(), &id, 1).await.remove(0);
    assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("delivered"), &json!(3)));
}

#[apply(on_each_store)]
async fn both_secrets_sign_during_a_grace_and_the_new_one_alone_after_it() {
    // The library that verifies has its own idea of now, so the clock begins there.
    let clock = Clock::standing_at(Clock::system().now());
    let server = Server::builder().clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let key = server.root().new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let id = shop.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    let first = receiver.wait_for(1, SOON).await.remove(0);
    let old = text(&key["webhook_secret"]);
    assert!(is_standard(&first, old));

    let path = format!("/api-keys/{}/rotate", text(&key["key_id"]));
    let body = json!({"grace_seconds": 60, "rotate_webhook_secret": true});
    let rotated = server.root().post(&path, body).await.expect(200).json();
    let new = text(&rotated["webhook_secret"]);
    server.click(&id, 1).await;
    let second = receiver.wait_for(2, SOON).await.remove(1);
    assert_eq!(second.header("webhook-signature").split(' ').count(), 2);
    assert!(is_standard(&second, old) && is_standard(&second, new));
    assert!(is_signed(&second, new) && !is_signed(&second, old));

    clock.advance(Duration::from_mins(1));
    server.click(&id, 1).await;
    let third = receiver.wait_for(3, SOON).await.remove(2);
    assert_eq!(third.header("webhook-signature").split(' ').count(), 1);
    assert!(is_standard(&third, new) && is_signed(&third, new));

    // Rotating the key alone leaves the webhook secret; without a grace the old one ends at once.
    let shop = server.root();
    let rotated = shop.post(&path, json!({})).await.expect(200).json();
    assert!(rotated.get("webhook_secret").is_none());
    let rotated = shop.post(&path, json!({"rotate_webhook_secret": true})).await.expect(200).json();
    server.click(&id, 1).await;
    let fourth = receiver.wait_for(4, SOON).await.remove(3);
    assert!(is_standard(&fourth, text(&rotated["webhook_secret"])) && !is_standard(&fourth, new));
}

#[apply(on_each_store)]
async fn webhooks_of_a_revoked_key_and_of_untracked_links_go_on() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let root = server.root();
    let key = root.new_key(json!({"name": "shop"})).await;
    let shop = server.with_key(text(&key["key"]));
    let body = json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")], "tracked": false});
    let id = shop.shorten(body).await;
    server.click(&id, 1).await;
    receiver.wait_for(1, SOON).await;
    assert_eq!(settled(&server.root(), &id, 1).await[0]["status"], "delivered");
    root.delete(&format!("/api-keys/{}", text(&key["key_id"]))).await.expect(204);
    server.click(&id, 1).await;
    receiver.wait_for(2, SOON).await;
}

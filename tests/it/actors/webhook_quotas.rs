//! Deliveries over a quota are refused as quickly as others are sent, and exactly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder};
use crate::support::stores::{apply, on_each_store};
use crate::support::wire::Connection;
use crate::support::{SOON, eventually};

fn with_quota(deliveries: u64) -> ServerBuilder {
    Server::builder().set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", &deliveries.to_string())
}

async fn new_key(server: &Server, tier: &str) -> Client {
    let made = server.root().new_key(json!({"name": "one", "tier": tier})).await;
    server.with_key(made["key"].as_str().unwrap())
}

async fn click(server: &Server, link: &str, times: usize) {
    let (address, path) = (server.address, format!("/{link}"));
    let clicking = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address).unwrap();
        for _ in 0..times {
            connection.get(&path, &[]).unwrap().expect(302);
        }
    });
    clicking.await.unwrap();
}

async fn status(server: &Server, link: &str) -> Value {
    server.root().get(&format!("/{link}/webhooks/status")).await.expect(200).json()
}

/// Pending, delivered and failed.
fn sums(status: &Value) -> [u64; 3] {
    let urls = status["webhooks"].as_array().unwrap();
    ["pending", "delivered", "failed"].map(|of| urls.iter().map(|url| url[of].as_u64().unwrap()).sum())
}

async fn wait_for_sums(server: &Server, link: &str, expected: [u64; 3]) {
    eventually(&format!("{expected:?}"), 3 * SOON, async || {
        (sums(&status(server, link).await) == expected).then_some(())
    })
    .await;
}

async fn used(client: &Client) -> Value {
    client.get("/usage").await.expect(200).json()["usage"]["webhook_deliveries"]["current"].clone()
}

/// Ten webhooks of one receiver, which has few slots.
async fn link_ten_times_to(client: &Client, receiver: &Receiver) -> String {
    let urls: Vec<_> = (0..10).map(|path| receiver.url(&format!("/{path}"))).collect();
    client.link_with_webhooks(&urls).await
}

#[apply(on_each_store)]
async fn deliveries_past_the_quota_are_settled_as_quickly_as_others_are_delivered() {
    const HITS: usize = 150;
    const QUOTA: u64 = 20;
    let server = with_quota(QUOTA).start();
    let receiver = Receiver::start().await;
    let (unlimited, limited) = (server.root(), new_key(&server, "Free").await);

    let link = link_ten_times_to(&unlimited, &receiver).await;
    let began = Instant::now();
    click(&server, &link, HITS).await;
    wait_for_sums(&server, &link, [0, 10 * HITS as u64, 0]).await;
    let delivering = began.elapsed();

    let link = link_ten_times_to(&limited, &receiver).await;
    let began = Instant::now();
    click(&server, &link, HITS).await;
    wait_for_sums(&server, &link, [0, QUOTA, 10 * HITS as u64 - QUOTA]).await;
    let refusing = began.elapsed();
    eprintln!("{} deliveries: delivered in {delivering:?}, refused in {refusing:?}", 10 * HITS);
    // Both need a few reads of the queue; a pause of the machine may affect either.
    assert!(refusing <= delivering + Duration::from_secs(1), "{refusing:?}, {delivering:?}");

    assert_eq!(receiver.received().len() as u64, 10 * HITS as u64 + QUOTA, "nothing more was sent");
    assert_eq!(used(&limited).await, QUOTA);
    let status = status(&server, &link).await;
    let failed = status["deliveries"].as_array().unwrap().iter().find(|one| one["status"] == "failed").unwrap();
    assert_eq!((&failed["error"], &failed["attempts"]), (&json!("quota exceeded"), &json!(0)));
}

/// Many flows without a slot of the in-flight table, and one with a backlog that takes all slots it may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_passed_over_before_the_quota_was_used_up_is_settled_too() {
    const QUOTA: u64 = 30;
    let server = with_quota(QUOTA).set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m").start();
    let receiver = Receiver::start().await;
    receiver.holds_answers(true);
    let limited = new_key(&server, "Free").await;
    let link = link_ten_times_to(&limited, &receiver).await;
    click(&server, &link, 100).await;
    receiver.wait_for(2, SOON).await;
    receiver.holds_answers(false);
    wait_for_sums(&server, &link, [0, QUOTA, 1_000 - QUOTA]).await;
    assert_eq!((receiver.received().len() as u64, used(&limited).await), (QUOTA, json!(QUOTA)));
    // For further deliveries, the quota is known to be used up.
    click(&server, &link, 50).await;
    wait_for_sums(&server, &link, [0, QUOTA, 1_500 - QUOTA]).await;
}

#[apply(on_each_store)]
async fn what_was_counted_is_tried_again_although_the_quota_is_used_up() {
    let server = with_quota(3).set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "1s,1s").start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500); 3]);
    let limited = new_key(&server, "Free").await;
    let link = link_ten_times_to(&limited, &receiver).await;
    click(&server, &link, 10).await;
    wait_for_sums(&server, &link, [0, 3, 97]).await;
    assert_eq!((receiver.received().len(), used(&limited).await), (6, json!(3)));
}

/// The first delivery over the quota takes a slot, and so may find the quota used up for one that waits for another
/// host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_quota_is_used_up_delays_no_other() {
    let server = with_quota(0).start();
    let (receiver, of_limited) = (Receiver::start().await, Receiver::start().await);
    let (other, limited) = (new_key(&server, "Pro").await, new_key(&server, "Free").await);
    let refused = link_ten_times_to(&limited, &of_limited).await;
    let sent = other.link_with_webhooks(&[receiver.url("/")]).await;
    click(&server, &refused, 1_000).await;
    let began = Instant::now();
    click(&server, &sent, 1).await;
    receiver.wait_for(1, SOON).await;
    eprintln!("a delivery behind ten thousand that are refused: {:?}", began.elapsed());
    wait_for_sums(&server, &refused, [0, 0, 10_000]).await;
    assert!(of_limited.received().is_empty());
}

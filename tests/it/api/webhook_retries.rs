//! When a failed delivery is tried again, and what the status tells of it meanwhile.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::client::Client;
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::server::Server;
use crate::support::stores::{apply, on_each_store};
use crate::support::{SOON, eventually, middle};

const FIRST_PAUSE: [u64; 2] = [900, 1_100];
const SECOND_PAUSE: [u64; 2] = [4_500, 5_500];

/// The whole answer, once the only delivery of the link has so many tries.
async fn status_after(client: &Client, id: &str, attempts: u64) -> Value {
    eventually("the status of a try", SOON, async || {
        let status = client.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
        (status["deliveries"][0]["attempts"] == attempts).then_some(status)
    })
    .await
}

fn time(value: &Value) -> Timestamp {
    Timestamp::parse(value.as_str().unwrap()).unwrap()
}

/// When the next try is due, which must be in its window after the last one.
fn due(delivery: &Value, [earliest, latest]: [u64; 2]) -> Timestamp {
    let due = time(&delivery["next_attempt_at"]);
    let pause = due.0 - time(&delivery["updated_at"]).0;
    assert!((earliest..=latest).contains(&pause), "{pause} ms: {delivery}");
    due
}

/// By the system's clock. Not one comes too early; how late single ones come is a question to the machine.
#[apply(on_each_store)]
async fn a_failed_delivery_comes_again_as_it_was_after_1_s_and_then_after_5_s() {
    const HITS: usize = 5;
    const WAY: Duration = Duration::from_secs(1);
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let root = server.root();
    let mut tries = HashMap::new();
    receiver.decide_with(move |request| {
        let tries: &mut u32 = tries.entry(request.header("webhook-id").to_owned()).or_default();
        *tries += 1;
        Reply::Status(if *tries < 3 { 500 } else { 200 })
    });
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    let mut clicked = Vec::new();
    for _ in 0..HITS {
        clicked.push(Instant::now());
        server.click(&id, 1).await;
        // So that no one stall of the machine meets them all.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut deliveries: Vec<Vec<Received>> = Vec::new();
    for request in receiver.wait_for(3 * HITS, SOON).await {
        let is_of = |tries: &&mut Vec<Received>| tries[0].header("webhook-id") == request.header("webhook-id");
        match deliveries.iter_mut().find(is_of) {
            Some(tries) => tries.push(request),
            None => deliveries.push(vec![request]),
        }
    }
    assert_eq!(deliveries.iter().map(Vec::len).collect::<Vec<_>>(), [3; HITS]);

    let waits: Vec<_> = deliveries.iter().zip(clicked).map(|(tries, clicked)| tries[0].at - clicked).collect();
    assert!(middle(&waits) < WAY, "{waits:?}");
    for (at, [earliest, latest]) in [FIRST_PAUSE, SECOND_PAUSE].into_iter().enumerate() {
        let pauses: Vec<_> = deliveries.iter().map(|tries| tries[at + 1].at - tries[at].at).collect();
        assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(earliest)), "{pauses:?}");
        assert!(middle(&pauses) < Duration::from_millis(latest) + WAY, "{pauses:?}");
    }
    for tries in &deliveries {
        assert!(tries.iter().all(|again| again.body == tries[0].body), "the same hit_id");
        let stamp = |request: &Received| request.header("webhook-timestamp").parse::<u64>().unwrap();
        assert!(stamp(&tries[2]) - stamp(&tries[0]) >= 5, "each try is signed anew");
    }
    let status = async || root.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    eventually("all are delivered", SOON, async || (status().await["webhooks"][0]["delivered"] == HITS).then_some(()))
        .await;
    // Asked for anew: of one answer the list may be a moment older than the sums.
    for delivery in status().await["deliveries"].as_array().unwrap() {
        let told = ["attempts", "response_status", "error", "next_attempt_at"].map(|field| delivery[field].clone());
        assert_eq!(told, [json!(3), json!(200), Value::Null, Value::Null]);
    }
}

/// Under a clock that stands: every field, at every moment, and not a millisecond too early.
#[apply(on_each_store)]
async fn the_status_tells_every_moment_of_a_delivery() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    let server = Server::builder().clock(clock.clone()).start();
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let root = server.root();
    receiver.reply_with([Reply::Status(500), Reply::Status(500), Reply::Status(200)]);
    let (url, begun) = (receiver.url("/"), clock.now());
    let id = root.link_with_webhooks(std::slice::from_ref(&url)).await;
    let sentinel = root.link_with_webhooks(&[other.url("/")]).await;
    receiver.holds_answers(true);
    server.click(&id, 1).await;
    let hit_id = receiver.wait_for(1, SOON).await[0].json()["hit_id"].clone();
    let shown = |status: &str, attempts: u64, response: Value, error: Value, updated: Timestamp, next: Value| {
        let sum = |is: &str| u64::from(is == status);
        let tried = if attempts == 0 { Value::Null } else { json!(updated.to_string()) };
        json!({
            "short_id": id,
            "webhooks": [{
                "url": url, "pending": sum("pending"), "delivered": sum("delivered"), "failed": 0,
                "last_attempt_at": tried, "last_status": response, "last_error": error,
            }],
            "deliveries": [{
                "hit_id": hit_id, "url": url, "status": status, "attempts": attempts,
                "response_status": response, "error": error,
                "created_at": begun.to_string(), "updated_at": updated.to_string(), "next_attempt_at": next,
            }],
            "next_cursor": null,
        })
    };

    // While the first try waits for its answer there is none to tell of.
    let first = status_after(&root, &id, 0).await;
    assert_eq!(first, shown("pending", 0, Value::Null, Value::Null, begun, json!(begun.to_string())));
    receiver.holds_answers(false);

    for (tries, window) in [(1, FIRST_PAUSE), (2, SECOND_PAUSE)] {
        let status = status_after(&root, &id, tries).await;
        let now = clock.now();
        let due = due(&status["deliveries"][0], window);
        assert_eq!(status, shown("pending", tries, json!(500), json!("http 500"), now, json!(due.to_string())));

        clock.advance(Duration::from_millis(due.0 - now.0 - 1));
        // Another delivery shows that what is due by now is looked for.
        server.click(&sentinel, 1).await;
        let count = usize::try_from(tries).unwrap();
        other.wait_for(count, SOON).await;
        assert_eq!(receiver.received().len(), count, "a millisecond too early");
        clock.advance(Duration::from_millis(1));
        receiver.wait_for(count + 1, SOON).await;
    }
    let last = status_after(&root, &id, 3).await;
    assert_eq!(last, shown("delivered", 3, json!(200), Value::Null, clock.now(), Value::Null));
    assert!((begun.0 + 5_400..=begun.0 + 6_600).contains(&clock.now().0));
}

//! Dispatcher and workers: one receiver does not delay another, and no delivery is lost or doubled by a panic, a
//! restart or a failing store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signpost::clock::Clock;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::webhooks::worker::PanicWorker;

use crate::support::client::Client;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder, count, metric};
use crate::support::{SOON, eventually};

fn impatient() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,100ms")
}

/// No attempt times out before a test does. A stop of the server waits for attempts in flight, and its receivers need
/// threads to close their connections meanwhile.
fn patient() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m")
}

/// The sums of a link's deliveries.
async fn sums(client: &Client, id: &str) -> [u64; 3] {
    let status = client.get(&format!("/{id}/webhooks/status")).await.expect(200).json();
    let urls = status["webhooks"].as_array().unwrap();
    ["pending", "delivered", "failed"].map(|of| urls.iter().map(|url| url[of].as_u64().unwrap()).sum())
}

async fn wait_for_sums(client: &Client, id: &str, expected: [u64; 3]) {
    let mut last = [0; 3];
    eventually("deliveries", SOON, async || {
        let sums = sums(client, id).await;
        if sums != last {
            last = sums;
            eprintln!("pending, delivered, failed: {sums:?}");
        }
        (sums == expected).then_some(())
    })
    .await;
}

async fn deliveries(client: &Client, id: &str) -> Vec<Value> {
    let status = client.get(&format!("/{id}/webhooks/status?limit=100")).await.expect(200).json();
    status["deliveries"].as_array().unwrap().clone()
}

/// Waits until `count` calls of a method of the store got an error.
async fn refused(switch: &FaultSwitch, method: &str, count: u64) {
    eventually("refused calls", SOON, async || (switch.refused(method) >= count).then_some(())).await;
}

/// How often each delivery was received.
fn times_received(receiver: &Receiver) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for request in receiver.received() {
        *times.entry(request.header("webhook-id").to_owned()).or_default() += 1;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_receiver_does_not_delay_another() {
    let server = patient().start();
    let (slow, quick) = (Receiver::start().await, Receiver::start().await);
    slow.reply_with([Reply::Silence; 200]);
    let root = server.root();
    let to_slow = root.link_with_webhooks(&[slow.url("/")]).await;
    let to_quick = root.link_with_webhooks(&[quick.url("/")]).await;
    server.click(&to_slow, 100).await;
    // The window of a new receiver.
    slow.wait_for(2, SOON).await;
    server.click(&to_quick, 50).await;
    quick.wait_for(50, SOON).await;
    wait_for_sums(&root, &to_quick, [0, 50, 0]).await;
    assert_eq!(slow.received().len(), 2);
    assert_eq!(sums(&root, &to_slow).await, [100, 0, 0]);
}

#[tokio::test]
async fn a_receiver_gets_more_concurrent_attempts_after_successes_and_fewer_after_failures() {
    let server =
        patient().set("SIGNPOST_WEBHOOKS__IN_FLIGHT_PER_HOST", "6").set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "").start();
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    let sentinel = root.link_with_webhooks(&[other.url("/")]).await;
    // The number of concurrent requests while none is answered. Deliveries to another receiver show that the queue was
    // read.
    let mut rounds = 0;
    let mut at_once = async || {
        let before = receiver.received().len();
        receiver.holds_answers(true);
        server.click(&id, 20).await;
        server.click(&sentinel, 1).await;
        rounds += 1;
        wait_for_sums(&root, &sentinel, [0, rounds, 0]).await;
        let at_once = receiver.received().len() - before;
        receiver.holds_answers(false);
        eventually("an empty queue", SOON, async || (sums(&root, &id).await[0] == 0).then_some(())).await;
        at_once
    };
    assert_eq!(at_once().await, 2, "nothing is known of it");
    assert_eq!(at_once().await, 6, "it has answered, one after the other");
    // All attempts in flight fail: each halves the window.
    receiver.decide_with(|_| Reply::Status(500));
    assert_eq!(at_once().await, 6, "those that fail were begun before");
    assert_eq!(at_once().await, 1, "it fails again and again, and is not abandoned");
    receiver.decide_with(|_| Reply::Status(200));
    assert_eq!(at_once().await, 1);
    assert_eq!(at_once().await, 6, "it is well again");
}

/// More deliveries than a round reads wait for a receiver that does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_of_one_receiver_does_not_hide_what_is_behind_it() {
    let server = patient().start();
    let (slow, quick) = (Receiver::start().await, Receiver::start().await);
    slow.reply_with([Reply::Silence; 200]);
    let root = server.root();
    let urls: Vec<_> = (0..10).map(|path| slow.url(&format!("/{path}"))).collect();
    let to_slow = root.link_with_webhooks(&urls).await;
    let to_quick = root.link_with_webhooks(&[quick.url("/")]).await;
    let (visitor, path) = (server.anonymous(), format!("/{to_slow}"));
    for _ in 0..12 {
        futures_util::future::join_all((0..50).map(|_| visitor.get(&path))).await;
    }
    eventually("a long backlog", SOON, async || (sums(&root, &to_slow).await[0] == 6_000).then_some(())).await;
    for _ in 0..3 {
        let before = quick.received().len();
        server.click(&to_quick, 10).await;
        quick.wait_for(before + 10, SOON).await;
    }
    wait_for_sums(&root, &to_quick, [0, 30, 0]).await;
}

#[tokio::test]
async fn a_burst_to_one_receiver_is_delivered_whole_and_once() {
    let server = Server::start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let urls: Vec<_> = (0..10).map(|path| receiver.url(&format!("/{path}"))).collect();
    let id = root.link_with_webhooks(&urls).await;
    server.click(&id, 20).await;
    wait_for_sums(&root, &id, [0, 200, 0]).await;
    let times = times_received(&receiver);
    assert!(times.len() == 200 && times.values().all(|times| *times == 1));
}

#[tokio::test]
async fn a_worker_that_panics_is_replaced_and_its_delivery_goes_on() {
    // More attempts than there are panics: none can make a delivery fail.
    let server = patient()
        .set("SIGNPOST_WEBHOOKS__WORKERS", "1")
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,50ms,50ms,50ms,50ms,50ms,50ms")
        .start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    // While the worker is idle.
    server.webhooks.worker(0).try_send(PanicWorker).unwrap();
    server.click(&id, 3).await;
    wait_for_sums(&root, &id, [0, 3, 0]).await;
    // While the worker is busy: a panic drops the messages in its mailbox.
    for round in 0..6 {
        server.click(&id, 5).await;
        let _ = server.webhooks.worker(0).try_send(PanicWorker);
        receiver.wait_for(3 + round, SOON).await;
    }
    // Much sooner than the timeout of an attempt: nothing waited for one.
    wait_for_sums(&root, &id, [0, 33, 0]).await;
    let tries = deliveries(&root, &id).await.iter().map(|delivery| delivery["attempts"].as_u64().unwrap()).sum::<u64>();
    assert!((33..=33 + 6).contains(&tries), "{tries} tries: a panic costs at most the one under way");
    let restarts = metric(&server.metrics().await, "signpost_actor_restarts_total{actor=\"webhook_worker\"}");
    assert!(restarts.is_some_and(|restarts| restarts >= 1.0), "{restarts:?}");
}

#[tokio::test]
async fn a_try_in_whose_middle_the_worker_panics_counts_as_one() {
    let clock = Clock::standing_at(Clock::system().now());
    let server = Server::builder().set("SIGNPOST_WEBHOOKS__WORKERS", "1").clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    receiver.holds_answers(true);
    server.click(&id, 1).await;
    receiver.wait_for(1, SOON).await;
    // The request was sent, and its answer has not arrived.
    server.webhooks.worker(0).try_send(PanicWorker).unwrap();
    let interrupted = eventually("the try is written down", SOON, async || {
        deliveries(&root, &id).await.pop().filter(|delivery| delivery["attempts"] != 0)
    })
    .await;
    let shown = ["status", "attempts", "response_status", "error"].map(|field| interrupted[field].clone());
    assert_eq!(shown, [json!("pending"), json!(1), Value::Null, json!("interrupted")]);
    assert!(interrupted["next_attempt_at"].is_string(), "{interrupted}");

    receiver.holds_answers(false);
    clock.advance(Duration::from_millis(1_100));
    wait_for_sums(&root, &id, [0, 1, 0]).await;
    let delivered = deliveries(&root, &id).await.remove(0);
    let shown = ["status", "attempts", "response_status", "error"].map(|field| delivered[field].clone());
    assert_eq!(shown, [json!("delivered"), json!(2), json!(200), Value::Null]);
    let requests = receiver.received();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    let usage = root.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"]["current"], 1, "a delivery counts once");
}

#[tokio::test]
async fn a_pending_delivery_survives_a_restart() {
    let server = Server::builder().set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "1h,1h").start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500)]);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 1).await;
    eventually("the first try", SOON, async || (deliveries(&root, &id).await.first()?["attempts"] == 1).then_some(()))
        .await;
    let later = Clock::standing_at(server.clock.now().plus(Duration::from_hours(2)));
    let directory = server.stop();
    let server = Server::builder().directory(directory).clock(later).start();
    let requests = receiver.wait_for(2, SOON).await;
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    assert_eq!(requests[0].body, requests[1].body);
    wait_for_sums(&server.root(), &id, [0, 1, 0]).await;
}

#[tokio::test]
async fn a_drain_waits_for_the_tries_under_way_and_hands_back_the_rest() {
    let server = patient().start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500); 2]);
    receiver.holds_answers(true);
    let id = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 20).await;
    receiver.wait_for(2, SOON).await;
    let operator = server.operator();
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    eventually("a drain", SOON, async || {
        let metrics = operator.get("/metrics").await.expect(200).text();
        (count(&metrics, "signpost_serving") == 0).then_some(())
    })
    .await;
    // The drain would wait for this connection too.
    drop(operator);
    let began = Instant::now();
    receiver.holds_answers(false);
    let directory = stopping.await.unwrap();
    // As soon as the attempts have ended, not at the end of the drain timeout.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(receiver.received().len(), 2, "no try is begun while draining");
    let server = Server::builder().directory(directory).start();
    // The attempt in flight was written as failed, and is due again after a second.
    wait_for_sums(&server.root(), &id, [0, 20, 0]).await;
    assert_eq!(receiver.received().len(), 22);
}

#[tokio::test]
async fn while_the_store_is_out_of_reach_deliveries_wait() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    // More attempts than there are failures: none makes a delivery fail, even if all meet the same failure.
    let server = Server::builder()
        .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "50ms,50ms,50ms,50ms,50ms")
        .wrap_store(move |store| Arc::new(FaultyStore::new(store, faults)))
        .start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Status(500); 5]);
    receiver.holds_answers(true);
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 10).await;
    receiver.wait_for(1, SOON).await;
    switch.out_of_reach(true);
    receiver.holds_answers(false);
    server.click(&id, 10).await;
    // The outcomes of the attempts in flight could not be written, nor the new hits queued, more than once.
    for method in ["settle_deliveries", "apply_hits"] {
        refused(&switch, method, 2).await;
    }
    let meanwhile = receiver.received().len();
    assert!(meanwhile <= 10, "{meanwhile} requests: a hit that is not in the queue was sent");
    switch.out_of_reach(false);
    wait_for_sums(&root, &id, [0, 20, 0]).await;
    let times = times_received(&receiver);
    assert_eq!((times.len(), times.values().sum::<usize>()), (20, 25), "five were told 500, and came again");
}

#[tokio::test]
async fn a_try_whose_writing_down_was_not_answered_counts_once() {
    let switch = FaultSwitch::default();
    let faults = switch.clone();
    let server = impatient().wrap_store(move |store| Arc::new(FaultyStore::new(store, faults))).start();
    let receiver = Receiver::start().await;
    let root = server.root();
    let id = root.link_with_webhooks(&[receiver.url("/ok"), receiver.url("/also")]).await;
    receiver.reply_with([Reply::Status(500); 2]);
    receiver.holds_answers(true);
    server.click(&id, 1).await;
    // Both, so that each method meets one of the failures.
    receiver.wait_for(2, SOON).await;
    switch.loses_answers(true);
    receiver.holds_answers(false);
    refused(&switch, "settle_deliveries", 3).await;
    switch.loses_answers(false);
    wait_for_sums(&root, &id, [0, 2, 0]).await;
    for delivery in deliveries(&root, &id).await {
        assert_eq!(delivery["attempts"], 2, "{delivery}");
    }
    assert_eq!(receiver.received().len(), 4);
    let usage = root.get("/usage").await.expect(200).json();
    assert_eq!(usage["usage"]["webhook_deliveries"]["current"], 2);
}

#[tokio::test]
async fn a_start_under_a_wrong_master_key_spoils_no_delivery() {
    let [right, wrong] = [[7; 32], [8; 32]].map(|bytes: [u8; 32]| STANDARD.encode(bytes));
    let builder = |key: &str| {
        Server::builder()
            .set("SIGNPOST_MASTER_KEY", key)
            .set("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "0s,0s,0s,0s,0s,0s")
            .set("SIGNPOST_WEBHOOKS__IN_FLIGHT_PER_HOST", "1")
            .set("SIGNPOST_WEBHOOKS__TIMEOUT", "1s")
    };
    let server = builder(&right).start();
    let receiver = Receiver::start().await;
    receiver.reply_with([Reply::Silence; 4]);
    let id = server.root().link_with_webhooks(&[receiver.url("/")]).await;
    server.click(&id, 10).await;
    receiver.wait_for(1, SOON).await;
    let directory = server.stop();
    for _ in 0..3 {
        assert!(builder(&wrong).directory(Arc::clone(&directory)).try_start().is_err());
    }
    let server = builder(&right).directory(directory).start();
    wait_for_sums(&server.root(), &id, [0, 10, 0]).await;
}

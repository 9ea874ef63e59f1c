//! Deliveries to a receiver that answers are made, whatever waits for receivers that fail, hang or are slow.

use std::time::Duration;

use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;

use crate::support::SOON;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder, metric};
use crate::support::wire::Connection;

/// A link with ten webhooks of one receiver.
async fn link_ten_times_to(server: &Server, receiver: &Receiver) -> String {
    let urls: Vec<_> = (0..10).map(|path| receiver.url(&format!("/{path}"))).collect();
    server.root().link_with_webhooks(&urls).await
}

/// Over one connection, because it is thousands of times.
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

/// Waits until the store has this many pending deliveries or more.
async fn pending(server: &Server, count: f64) {
    crate::support::eventually("a backlog", SOON, async || {
        (metric(&server.metrics().await, "signpost_webhook_pending")? >= count).then_some(())
    })
    .await;
}

async fn server_and_one_that_answers(builder: ServerBuilder) -> (Server, Receiver, String) {
    // Much longer than the test waits: delayed deliveries would wait for it.
    let server = builder.set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m").start();
    let receiver = Receiver::start().await;
    let link = link_ten_times_to(&server, &receiver).await;
    click(&server, &link, 2).await;
    receiver.wait_for(20, SOON).await;
    (server, receiver, link)
}

/// A receiver that fails at once, and so has free slots at once, with a backlog of many times what a round reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_of_a_receiver_that_fails_at_once_delays_no_other() {
    let (server, receiver, link) = server_and_one_that_answers(Server::builder()).await;
    let failing = Receiver::start().await;
    failing.decide_with(|_| Reply::Status(500));
    let to_failing = link_ten_times_to(&server, &failing).await;
    click(&server, &to_failing, 3_000).await;
    pending(&server, 25_000.0).await;
    click(&server, &link, 30).await;
    receiver.wait_for(320, SOON).await;
    let first_tries = metric(&server.metrics().await, "signpost_webhook_first_attempt_delay_seconds_count").unwrap();
    assert!(first_tries < 320.0 + 30_000.0, "all before them were tried first");
}

/// Many more receivers hang than the share of workers and slots allows, each with a backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlogs_of_hanging_receivers_delay_no_other() {
    let few = Server::builder().set("SIGNPOST_WEBHOOKS__WORKERS", "8").set("SIGNPOST_WEBHOOKS__BUFFER", "16");
    let (server, receiver, link) = server_and_one_that_answers(few).await;
    let mut hanging = Vec::new();
    for _ in 0..10 {
        let receiver = Receiver::start().await;
        receiver.decide_with(|_| Reply::Silence);
        hanging.push(receiver);
    }
    let urls: Vec<_> = hanging.iter().map(|receiver| receiver.url("/")).collect();
    let to_hanging = server.root().link_with_webhooks(&urls).await;
    click(&server, &to_hanging, 3_000).await;
    pending(&server, 25_000.0).await;
    click(&server, &link, 3).await;
    receiver.wait_for(50, SOON).await;
}

/// Receivers with the largest window that are slow now: they could take all workers and slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_become_slow_delay_no_other() {
    let (server, receiver, link) = server_and_one_that_answers(Server::builder()).await;
    let mut slow = Vec::new();
    for _ in 0..12 {
        let receiver = Receiver::start().await;
        let link = link_ten_times_to(&server, &receiver).await;
        click(&server, &link, 10).await;
        receiver.wait_for(100, SOON).await;
        receiver.holds_answers(true);
        slow.push((receiver, link));
    }
    for (_, link) in &slow {
        click(&server, link, 20).await;
    }
    pending(&server, 2_000.0).await;
    click(&server, &link, 10).await;
    receiver.wait_for(120, SOON).await;
}

/// One receiver may have as many concurrent attempts as there are workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_slow_receiver_does_not_take_all_of_a_few_workers() {
    let few = Server::builder().set("SIGNPOST_WEBHOOKS__WORKERS", "16").set("SIGNPOST_WEBHOOKS__BUFFER", "64");
    let (server, receiver, link) = server_and_one_that_answers(few).await;
    let slow = Receiver::start().await;
    let to_slow = link_ten_times_to(&server, &slow).await;
    click(&server, &to_slow, 10).await;
    slow.wait_for(100, SOON).await;
    slow.holds_answers(true);
    click(&server, &to_slow, 50).await;
    pending(&server, 400.0).await;
    click(&server, &link, 3).await;
    receiver.wait_for(50, SOON).await;
}

/// A clock that was ahead made the delivery due later than any retry can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_by_an_hour_delays_no_delivery_for_an_hour() {
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    // No attempt times out meanwhile.
    let server = Server::builder().set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m").clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let link = link_ten_times_to(&server, &receiver).await;
    receiver.holds_answers(true);
    click(&server, &link, 300).await;
    pending(&server, 3_000.0).await;
    clock.set_back(Duration::from_hours(1));
    receiver.holds_answers(false);
    receiver.wait_for(3_000, SOON).await;
    click(&server, &link, 1).await;
    receiver.wait_for(3_010, SOON).await;
    let mut ids: Vec<_> = receiver.received().iter().map(|one| one.header("webhook-id").to_owned()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3_010, "none came twice");
}

/// A delivery that was due and waits for its receiver is not due any more, and then is due again. The clock moves by
/// less than the longest delay of a retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_and_forth_loses_sight_of_nothing() {
    let seconds = Duration::from_secs(4);
    let clock = Clock::standing_at(Timestamp::parse("2026-11-21T12:00:00Z").unwrap());
    // No attempt times out meanwhile.
    let server = Server::builder().set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m").clock(clock.clone()).start();
    let receiver = Receiver::start().await;
    let link = link_ten_times_to(&server, &receiver).await;
    let delivered = async |count: usize| {
        crate::support::eventually("their outcomes", SOON, async || {
            let path = format!("/{link}/webhooks/status?status=delivered");
            let status = server.root().get(&path).await.expect(200).json();
            (status["deliveries"].as_array().unwrap().len() == count).then_some(())
        })
        .await;
    };
    // Their retries come from the queue.
    receiver.decide_with(|_| Reply::Status(500));
    click(&server, &link, 1).await;
    receiver.wait_for(10, SOON).await;
    // An attempt that ends after the clock is changed has a later retry.
    crate::support::eventually("all attempts have ended", SOON, async || {
        let status = server.root().get(&format!("/{link}/webhooks/status")).await.expect(200).json();
        status["deliveries"].as_array().unwrap().iter().all(|delivery| delivery["attempts"] == 1).then_some(())
    })
    .await;
    receiver.decide_with(|_| Reply::Status(200));
    receiver.holds_answers(true);
    clock.advance(seconds);
    receiver.wait_for(11, SOON).await;
    clock.set_back(seconds);
    receiver.holds_answers(false);
    // One is tried at a time, and another one was in memory.
    receiver.wait_for(12, SOON).await;
    delivered(2).await;
    clock.advance(seconds);
    receiver.wait_for(20, SOON).await;
    delivered(10).await;
}

//! Receivers that hang do not make the others wait: measured with real sockets, one port a receiver.
//!
//! Two servers run side by side and get the same hits at the same moments, for fifty receivers each that answer. One of
//! them has fifty more that take every request and never answer. What the machine does besides falls on both alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use signpost::domain::calendar::Timestamp;

use crate::support::receiver::Receiver;
use crate::support::server::{Server, ServerBuilder};
use crate::support::wire::Connection;

/// That answer; as many hang.
const RECEIVERS: usize = 50;
/// To each link, at even distances: enough deliveries for the slowest hundredth to be twenty.
const HITS: u32 = 40;
const SPAN: Duration = Duration::from_secs(6);
/// Those that hang have had some before the others get any.
const HITS_BEFORE: u32 = 2;
/// How long a receiver that hangs holds what tries it: far longer than anything that is measured.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Waits below this are the machine's: in an unoptimised build on a busy one a single pause makes so much.
const FLOOR: Duration = Duration::from_millis(50);
/// Longer than any delivery may take here by far.
const PATIENCE: Duration = Duration::from_secs(20);

fn settings() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__TIMEOUT", &format!("{}ms", TIMEOUT.as_millis()))
}

/// A receiver of its own for each of as many links.
struct Side {
    receivers: Vec<Receiver>,
    links: Vec<String>,
}

impl Side {
    async fn of(server: &Server, hangs: bool) -> Self {
        let (mut receivers, mut links) = (Vec::new(), Vec::new());
        for _ in 0..RECEIVERS {
            let receiver = Receiver::start().await;
            receiver.holds_answers(hangs);
            let body = json!({"redirect_url": "https://example.com/", "webhooks": [receiver.url("/")]});
            links.push(server.root().shorten(body).await);
            receivers.push(receiver);
        }
        Self { receivers, links }
    }

    /// Requests that came, and how long after their hits.
    fn waits(&self, epoch: (Instant, Timestamp)) -> Vec<Duration> {
        let received = self.receivers.iter().flat_map(Receiver::received);
        let wait = |request: crate::support::receiver::Received| {
            let hit_at = Timestamp::parse(request.json()["hit_at"].as_str().unwrap()).unwrap();
            let at = epoch.1.plus(request.at - epoch.0);
            Duration::from_millis(at.0.saturating_sub(hit_at.0))
        };
        received.map(wait).collect()
    }
}

/// Follows each of `links` `hits` times, evenly over `span`.
fn click_evenly(address: SocketAddr, links: &[String], hits: u32, span: Duration) {
    let mut connection = Connection::open(address).unwrap();
    let pause = span / (hits * u32::try_from(links.len()).unwrap());
    let began = Instant::now();
    for (turn, link) in (0..).zip((0..hits).flat_map(|_| links)) {
        std::thread::sleep((pause * turn).saturating_sub(began.elapsed()));
        connection.get(&format!("/{link}"), &[]).unwrap().expect(302);
    }
}

/// The wait that 99 of 100 do not exceed, and the middle one.
fn percentiles(mut waits: Vec<Duration>) -> (Duration, Duration) {
    waits.sort_unstable();
    (waits[waits.len() * 99 / 100 - 1], waits[waits.len() / 2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_receivers_that_hang_do_not_slow_fifty_others() {
    let (calm, troubled) = (settings().start(), settings().start());
    let epoch = (Instant::now(), calm.clock.now());
    let undisturbed = Side::of(&calm, false).await;
    let (disturbed, hanging) = (Side::of(&troubled, false).await, Side::of(&troubled, true).await);

    // At even distances too, so that they do not all time out at the same moments: that would be a load of its own.
    let (address, links) = (troubled.address, hanging.links.clone());
    let before = move || click_evenly(address, &links, HITS_BEFORE, TIMEOUT * HITS_BEFORE);
    tokio::task::spawn_blocking(before).await.unwrap();
    for receiver in &hanging.receivers {
        receiver.wait_for(1, PATIENCE).await;
    }
    let loads: Vec<_> = [(calm.address, &undisturbed), (troubled.address, &disturbed), (troubled.address, &hanging)]
        .map(|(address, side)| (address, side.links.clone()))
        .into_iter()
        .map(|(address, links)| std::thread::spawn(move || click_evenly(address, &links, HITS, SPAN)))
        .collect();
    tokio::task::spawn_blocking(|| loads.into_iter().for_each(|load| load.join().unwrap())).await.unwrap();

    let expected = RECEIVERS * HITS as usize;
    let began = Instant::now();
    let mut waits = [&undisturbed, &disturbed].map(|side| side.waits(epoch));
    while waits.iter().any(|waits| waits.len() < expected) && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waits = [&undisturbed, &disturbed].map(|side| side.waits(epoch));
    }
    let missing = waits.each_ref().map(|waits| expected - waits.len());
    let [(calm_99, calm_50), (troubled_99, troubled_50)] = waits.map(|mut waits| {
        waits.resize(expected, PATIENCE);
        percentiles(waits)
    });
    eprintln!(
        "without hanging receivers: 50 % {calm_50:?}, 99 % {calm_99:?}; with: 50 % {troubled_50:?}, 99 % {troubled_99:?}"
    );
    assert_eq!(missing, [0, 0], "deliveries that did not come within {PATIENCE:?}");
    let bound = 2 * calm_99.max(FLOOR);
    assert!(troubled_99 <= bound, "{troubled_99:?} with hanging receivers, {calm_99:?} without");

    // They did hang, were tried again and again, and not one was abandoned.
    for (receiver, link) in hanging.receivers.iter().zip(&hanging.links) {
        let status = troubled.root().get(&format!("/{link}/webhooks/status")).await.expect(200).json();
        assert_eq!(
            (&status["webhooks"][0]["delivered"], &status["webhooks"][0]["last_error"]),
            (&json!(0), &json!("timed out"))
        );
        assert!(receiver.received().len() >= 2, "{} requests", receiver.received().len());
    }
}

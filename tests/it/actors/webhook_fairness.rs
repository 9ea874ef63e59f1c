//! Receivers that hang do not delay the others: measured with real sockets, one port for each receiver.
//!
//! Two servers run side by side and get the same hits at the same time, for a hundred receivers each. All receivers of
//! one server answer; fifty of the other take every request and never answer. Other load of the machine affects both
//! servers, so only the hanging receivers differ.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use signpost::domain::calendar::Timestamp;

use crate::support::receiver::Receiver;
use crate::support::server::{Server, ServerBuilder};
use crate::support::wire::Connection;

/// The receivers that are measured. Each server has as many more, which answer on one server and hang on the other.
const RECEIVERS: usize = 50;
/// Hits of each link, at even intervals: enough that the slowest hundredth is twenty deliveries.
const HITS: u32 = 40;
const SPAN: Duration = Duration::from_secs(6);
/// The span has parts that are compared separately; the median of the results counts. Hanging receivers would slow most
/// parts, a pause of the machine that affects one server only a few of them.
const PARTS: usize = 12;
/// Hits of the links that are not measured, before the others get any.
const HITS_BEFORE: u32 = 2;
/// How long a hanging receiver occupies a worker: much longer than everything that is measured.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Shorter delays come from the machine: a single pause of an unoptimised build on a busy machine takes this long.
const FLOOR: Duration = Duration::from_millis(50);
/// Much longer than any delivery takes here.
const PATIENCE: Duration = Duration::from_secs(20);

fn settings() -> ServerBuilder {
    Server::builder().set("SIGNPOST_WEBHOOKS__TIMEOUT", &format!("{}ms", TIMEOUT.as_millis()))
}

/// One receiver for each of the links.
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

    /// For each delivery: the time of its hit, and how long after it the first attempt came.
    fn waits(&self, epoch: (Instant, Timestamp)) -> Vec<(Timestamp, Duration)> {
        let mut seen = HashSet::new();
        let received = self.receivers.iter().flat_map(Receiver::received);
        let received = received.filter(|request| seen.insert(request.json()["hit_id"].to_string()));
        let wait = |request: crate::support::receiver::Received| {
            let hit_at = Timestamp::parse(request.json()["hit_at"].as_str().unwrap()).unwrap();
            let at = epoch.1.plus(request.at - epoch.0);
            (hit_at, Duration::from_millis(at.0.saturating_sub(hit_at.0)))
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

/// Follows the links of all `sides` at the same time.
async fn click_side_by_side(sides: &[(SocketAddr, &Side)], hits: u32, span: Duration) {
    let sides = sides.iter().map(|(address, side)| (*address, side.links.clone()));
    let threads = sides.map(|(address, links)| std::thread::spawn(move || click_evenly(address, &links, hits, span)));
    let threads: Vec<_> = threads.collect();
    tokio::task::spawn_blocking(|| threads.into_iter().for_each(|thread| thread.join().unwrap())).await.unwrap();
}

/// The delay that 99 of 100 deliveries do not exceed, for each part of the span.
fn slowest_hundredths(mut waits: Vec<(Timestamp, Duration)>) -> Vec<Duration> {
    waits.sort_unstable();
    let part = waits.len().div_ceil(PARTS);
    let slowest_hundredth = |part: &[(Timestamp, Duration)]| {
        let mut waits: Vec<Duration> = part.iter().map(|&(_, wait)| wait).collect();
        waits.sort_unstable();
        waits[waits.len() * 99 / 100 - 1]
    };
    waits.chunks(part).map(slowest_hundredth).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_receivers_that_hang_do_not_slow_fifty_others() {
    let (calm, troubled) = (settings().start(), settings().start());
    let epoch = (Instant::now(), calm.clock.now());
    let (undisturbed, answering) = (Side::of(&calm, false).await, Side::of(&calm, false).await);
    let (disturbed, hanging) = (Side::of(&troubled, false).await, Side::of(&troubled, true).await);

    // At even intervals too, so that they do not all time out at the same time, which would be a load of its own.
    let others = [(calm.address, &answering), (troubled.address, &hanging)];
    click_side_by_side(&others, HITS_BEFORE, TIMEOUT * HITS_BEFORE).await;
    for receiver in &hanging.receivers {
        receiver.wait_for(1, PATIENCE).await;
    }
    let measured = [(calm.address, &undisturbed), (troubled.address, &disturbed)];
    click_side_by_side(&[measured, others].concat(), HITS, SPAN).await;

    let expected = RECEIVERS * HITS as usize;
    let began = Instant::now();
    let mut waits = [&undisturbed, &disturbed].map(|side| side.waits(epoch));
    while waits.iter().any(|waits| waits.len() < expected) && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        waits = [&undisturbed, &disturbed].map(|side| side.waits(epoch));
    }
    let missing = waits.each_ref().map(|waits| expected - waits.len());
    assert_eq!(missing, [0, 0], "deliveries that did not come within {PATIENCE:?}");
    let [without, with] = waits.map(slowest_hundredths);
    let mut ratios: Vec<f64> =
        without.iter().zip(&with).map(|(without, with)| with.div_duration_f64((*without).max(FLOOR))).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    eprintln!("99 % of each part without hanging receivers: {without:?}; with: {with:?}; ratios {ratios:.2?}");
    assert!(ratios[PARTS / 2] <= 2.0, "{with:?} with hanging receivers, {without:?} without");

    // They did hang and were tried again and again, and none was abandoned.
    for (receiver, link) in hanging.receivers.iter().zip(&hanging.links) {
        let status = troubled.root().get(&format!("/{link}/webhooks/status")).await.expect(200).json();
        assert_eq!(
            (&status["webhooks"][0]["delivered"], &status["webhooks"][0]["last_error"]),
            (&json!(0), &json!("timed out"))
        );
        assert!(receiver.received().len() >= 2, "{} requests", receiver.received().len());
    }
}

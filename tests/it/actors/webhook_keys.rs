//! Hanging receivers of one key delay no other key, and the key's own next receiver only for a time: with real sockets,
//! one port for each receiver.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::support::client::Client;
use crate::support::receiver::{Receiver, Reply};
use crate::support::server::{Server, ServerBuilder, metric};
use crate::support::wire::Connection;
use crate::support::{SOON, eventually};

/// How much longer a delivery of another key may take than one of a server without hanging receivers.
const MOST_DELAY: Duration = Duration::from_secs(3);

/// Receivers that accept every connection and never answer.
struct Hanging(Vec<TcpListener>);

impl Hanging {
    fn start(count: usize) -> Self {
        // Shells often allow 1,024 open files, and more if a program asks.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        // The kernel accepts connections for them.
        Self((0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect())
    }

    /// Links of a key, with ten of these receivers each.
    async fn links_of(&self, key: &Client) -> Vec<String> {
        let mut links = Vec::new();
        for ten in self.0.chunks(10) {
            let urls: Vec<_> = ten.iter().map(|one| format!("http://{}/", one.local_addr().unwrap())).collect();
            links.push(key.link_with_webhooks(&urls).await);
        }
        links
    }
}

/// With few workers, few receivers are enough to occupy them.
fn few_workers() -> ServerBuilder {
    Server::builder()
        .set("SIGNPOST_WEBHOOKS__WORKERS", "32")
        .set("SIGNPOST_WEBHOOKS__BUFFER", "128")
        .set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "0")
        .set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "unlimited")
        .set("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", "unlimited")
}

async fn new_key(server: &Server) -> Client {
    let made = server.root().new_key(json!({"name": "another"})).await;
    server.with_key(made["key"].as_str().unwrap())
}

async fn click_all(server: &Server, links: &[String], times: usize) {
    let (address, links) = (server.address, links.to_vec());
    let clicking = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address).unwrap();
        for link in (0..times).flat_map(|_| &links) {
            connection.get(&format!("/{link}"), &[]).unwrap().expect(302);
        }
    });
    clicking.await.unwrap();
}

async fn in_flight(server: &Server, least: f64) {
    eventually("tries in flight", SOON, async || {
        (metric(&server.metrics().await, "signpost_webhook_in_flight")? >= least).then_some(())
    })
    .await;
}

/// How long a new receiver of a key waits for its first delivery.
async fn first_delivery(server: &Server, key: &Client) -> Duration {
    let receiver = Receiver::start().await;
    let link = key.link_with_webhooks(&[receiver.url("/")]).await;
    let began = Instant::now();
    server.click(&link, 1).await;
    receiver.wait_for(1, 3 * SOON).await;
    began.elapsed()
}

/// A server of which no receiver hangs. The time that it takes for a delivery is caused by the machine: a disk that stalls, or
/// other processes.
struct Control {
    server: Server,
    key: Client,
}

impl Control {
    async fn start() -> Self {
        let server = few_workers().start();
        let key = new_key(&server).await;
        Self { server, key }
    }

    /// Makes a new receiver of a key of another server, and waits for its first delivery; panics if hanging receivers
    /// delay it.
    async fn compare_first_delivery(&self, server: &Server, key: &Client) {
        compare(first_delivery(server, key), first_delivery(&self.server, &self.key)).await;
    }
}

/// Waits for deliveries of another key, and at the same time for those of a server of which no receiver hangs.
async fn compare(deliveries: impl Future<Output = Duration>, without: impl Future<Output = Duration>) {
    let (took, without) = tokio::join!(deliveries, without);
    eprintln!("deliveries of another key: {took:?}, and where no receiver hangs: {without:?}");
    assert!(took < MOST_DELAY + without, "{took:?}, and {without:?} where no receiver hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_hanging_receivers_of_one_key_delay_no_other_key() {
    // No attempt times out meanwhile: with the default of 10 s the result is the same, only later.
    let server = few_workers()
        .set("SIGNPOST_WEBHOOKS__WORKERS", "256")
        .set("SIGNPOST_WEBHOOKS__BUFFER", "1024")
        .set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m")
        .start();
    let hanging = Hanging::start(2_000);
    let links = hanging.links_of(&new_key(&server).await).await;
    click_all(&server, &links, 5).await;
    in_flight(&server, 100.0).await;
    let control = Control::start().await;
    // Several new receivers one after the other, of several keys, and two of the same key.
    for _ in 0..3 {
        let key = new_key(&server).await;
        for _ in 0..2 {
            control.compare_first_delivery(&server, &key).await;
        }
    }
}

/// Receivers that were tried before, and failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_of_one_key_that_fail_in_turn_delay_no_other_key() {
    let server = few_workers().set("SIGNPOST_WEBHOOKS__TIMEOUT", "5s").start();
    let hanging = Hanging::start(200);
    let links = hanging.links_of(&new_key(&server).await).await;
    click_all(&server, &links, 20).await;
    let (other, control) = (new_key(&server).await, Control::start().await);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        control.compare_first_delivery(&server, &other).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Receivers whose links get further hits meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_hang_do_not_keep_out_the_next_one_of_their_own_key() {
    let server = few_workers().set("SIGNPOST_WEBHOOKS__TIMEOUT", "1s").start();
    let (hanging, key) = (Hanging::start(100), new_key(&server).await);
    let links = hanging.links_of(&key).await;
    click_all(&server, &links, 20).await;
    in_flight(&server, 10.0).await;
    let hits = async {
        loop {
            click_all(&server, &links, 1).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let deliveries = async {
        for _ in 0..3 {
            let took = first_delivery(&server, &key).await;
            eprintln!("the first delivery of the same key's next receiver: {took:?}");
            // Each of the hundred receivers may be tried once before it: some twenty at a time, for a second.
            assert!(took < SOON, "{took:?}");
        }
    };
    tokio::select! {
        () = hits => unreachable!(),
        () = deliveries => {}
    }
}

/// How long twenty deliveries to `/quick` take.
async fn twenty_deliveries(server: &Server, link: &str, receiver: &Receiver) -> Duration {
    let began = Instant::now();
    click_all(server, &[link.to_owned()], 20).await;
    eventually("twenty deliveries", 3 * SOON, async || {
        let quick = receiver.received().iter().filter(|request| request.path == "/quick").count();
        (quick == 20).then_some(())
    })
    .await;
    began.elapsed()
}

/// One host receives for both keys, and answers only one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_hangs_for_one_key_is_called_for_another() {
    let server = few_workers()
        .set("SIGNPOST_WEBHOOKS__WORKERS", "64")
        .set("SIGNPOST_WEBHOOKS__IN_FLIGHT_PER_HOST", "8")
        .set("SIGNPOST_WEBHOOKS__TIMEOUT", "1m")
        .start();
    let (one, other, receiver) = (new_key(&server).await, new_key(&server).await, Receiver::start().await);
    let to_slow = one.link_with_webhooks(&[receiver.url("/slow")]).await;
    let to_quick = other.link_with_webhooks(&[receiver.url("/quick")]).await;
    // The window of this receiver reaches the bound of a host.
    click_all(&server, std::slice::from_ref(&to_slow), 50).await;
    receiver.wait_for(50, SOON).await;
    receiver.decide_with(|request| if request.path == "/slow" { Reply::Silence } else { Reply::Status(200) });
    click_all(&server, std::slice::from_ref(&to_slow), 50).await;
    in_flight(&server, 7.0).await;
    let (control, bare) = (Control::start().await, Receiver::start().await);
    let to_bare = control.key.link_with_webhooks(&[bare.url("/quick")]).await;
    compare(twenty_deliveries(&server, &to_quick, &receiver), twenty_deliveries(&control.server, &to_bare, &bare))
        .await;
    receiver.wait_for(50 + 7 + 20, SOON).await;
    let slow = receiver.received().iter().filter(|request| request.path == "/slow").count();
    assert_eq!(slow, 50 + 7, "one of eight is left for others");
}

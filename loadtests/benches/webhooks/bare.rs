//! The bare loop: the same POSTs from a program that does nothing else, as the limit to compare with.
//!
//! One thread, the headers and the body of a real delivery. Nothing is signed, stored or chosen. The peer of record uses
//! `reqwest`. A second loop uses the product's own HTTP client, and shows what that one saves.

use std::{
    cell::Cell,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use loadtests::measure;
use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use signpost::{
    dns::{Resolver, ResolverSettings},
    domain::webhook_url::WebhookUrl,
    webhooks::{
        client::{Destination, HttpClient},
        connector::connector,
    },
};

pub const ROLE: &str = "role-bare";

/// The HTTP client of a loop.
#[derive(Clone)]
enum Sender {
    Reqwest(Client),
    Product(HttpClient),
}

/// Which HTTP client a loop uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Reqwest,
    ProductClient,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Reqwest => "reqwest",
            Self::ProductClient => "product-client",
        }
    }

    pub fn parse(name: &str) -> Self {
        [Self::Reqwest, Self::ProductClient].into_iter().find(|peer| peer.name() == name).unwrap()
    }

    fn sender(self, in_flight: usize) -> Sender {
        match self {
            Self::Reqwest => Sender::Reqwest(client(in_flight)),
            Self::ProductClient => {
                let resolver = Arc::new(Resolver::new(ResolverSettings::new("/etc/resolv.conf")));
                // The sender checks literal addresses, not the connector.
                let connector = connector(resolver, Arc::default(), Vec::new(), Duration::from_secs(10)).unwrap();
                Sender::Product(HttpClient::new(connector, in_flight, in_flight))
            }
        }
    }
}

impl Sender {
    async fn post(&self, target: &Target, headers: HeaderMap, body: Bytes) {
        match self {
            Self::Reqwest(client) => {
                let sent = client.post(target.url.clone()).headers(headers).body(body).send();
                let answer = sent.await.unwrap();
                assert!(answer.status().is_success());
                answer.bytes().await.unwrap();
            }
            Self::Product(client) => {
                let destination = &target.destination;
                let answer = client.post(destination, headers, body).await.unwrap();
                assert!((200..300).contains(&answer.status()));
                client.finish(answer, destination, Duration::from_secs(1)).await;
            }
        }
    }
}

/// A receiver's URL, in the form that each HTTP client takes.
struct Target {
    url: Url,
    destination: Destination,
}

impl Target {
    fn parse(url: &str) -> Self {
        let destination = Destination::of(&WebhookUrl::parse_stored(url).unwrap()).unwrap();
        Self { url: Url::parse(url).unwrap(), destination }
    }
}

/// What the client adds by itself.
const OWN_HEADERS: [&str; 3] = ["host", "content-length", "accept"];

fn client(in_flight: usize) -> Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .pool_max_idle_per_host(in_flight)
        .build()
        .unwrap()
}

fn split(sample: &str) -> (HeaderMap, Bytes) {
    let bytes: Vec<u8> =
        (0..sample.len()).step_by(2).map(|at| u8::from_str_radix(&sample[at..at + 2], 16).unwrap()).collect();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let headers = head.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (!OWN_HEADERS.contains(&name.as_str())).then(|| (name, HeaderValue::from_str(value).unwrap()))
    });
    (headers.collect(), Bytes::copy_from_slice(&bytes[end + 4..]))
}

/// In the child: reads a sample and the URLs, says `ready`, waits for `go`, says `done`, waits for the end.
pub fn run(peer: Peer, requests: u64, in_flight: usize) {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let (headers, body) = split(&lines.next().unwrap());
    let targets: Rc<[Target]> = lines.next().unwrap().split(' ').map(Target::parse).collect();
    let sender = peer.sender(in_flight);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let next = Rc::new(Cell::new(0));
    println!("ready");
    lines.next().unwrap();
    let local = tokio::task::LocalSet::new();
    for _ in 0..in_flight {
        let (sender, targets, headers, body, next) =
            (sender.clone(), Rc::clone(&targets), headers.clone(), body.clone(), Rc::clone(&next));
        local.spawn_local(async move {
            while next.get() < requests {
                let target = &targets[next.get() as usize % targets.len()];
                next.set(next.get() + 1);
                sender.post(target, headers.clone(), body.clone()).await;
            }
        });
    }
    runtime.block_on(local);
    println!("done");
    lines.next();
}

/// What `requests` cost.
pub struct BareRound {
    pub took: Duration,
    /// In microseconds.
    pub cpu: u64,
}

pub fn measure(peer: Peer, sample: &str, urls: &[String], requests: u64, in_flight: usize) -> BareRound {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([ROLE, peer.name(), &requests.to_string(), &in_flight.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    let mut reports = BufReader::new(child.stdout.take().unwrap());
    let mut expect = |word: &str| {
        let mut line = String::new();
        reports.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word, "the bare loop failed");
    };
    writeln!(orders, "{sample}\n{}", urls.join(" ")).unwrap();
    expect("ready");
    let (begun, before) = (Instant::now(), measure::cpu(child.id()));
    writeln!(orders, "go").unwrap();
    expect("done");
    let round = BareRound { took: begun.elapsed(), cpu: measure::cpu(child.id()) - before };
    drop(orders);
    assert!(child.wait().unwrap().success());
    round
}

//! The bare loop: the same POSTs from a program that does nothing else, as the limit to compare with.
//!
//! One thread, the HTTP client that the product uses with the settings it uses, the headers and the body of a real
//! delivery. Nothing is signed, stored or chosen.

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

pub const ROLE: &str = "role-bare";

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
pub fn run(requests: u64, in_flight: usize) {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let (headers, body) = split(&lines.next().unwrap());
    let urls: Rc<[Url]> = lines.next().unwrap().split(' ').map(|url| Url::parse(url).unwrap()).collect();
    let client = client(in_flight);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let next = Rc::new(Cell::new(0));
    println!("ready");
    lines.next().unwrap();
    let local = tokio::task::LocalSet::new();
    for _ in 0..in_flight {
        let (client, urls, headers, body, next) =
            (client.clone(), Rc::clone(&urls), headers.clone(), body.clone(), Rc::clone(&next));
        local.spawn_local(async move {
            while next.get() < requests {
                let url = urls[next.get() as usize % urls.len()].clone();
                next.set(next.get() + 1);
                let answer = client.post(url).headers(headers.clone()).body(body.clone()).send().await.unwrap();
                assert!(answer.status().is_success());
                answer.bytes().await.unwrap();
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

pub fn measure(sample: &str, urls: &[String], requests: u64, in_flight: usize) -> BareRound {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([ROLE, &requests.to_string(), &in_flight.to_string()])
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

//! One request that is sent a hundred times at once with one `Idempotency-Key`, over three nodes of which one dies.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::changes_seen::{Nodes, amount};
use super::load::Random;
use crate::support::cluster::cluster_blocking;
use crate::support::server::ROOT_KEY;
use crate::support::wire::{Connection, WireAnswer};

const CLIENTS: usize = 100;
/// As promised: so long after a node has died, its request is taken over.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);
/// As `Retry-After` says.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where the nodes are; `None` while one is down.
type Addresses = [Mutex<Option<SocketAddr>>; 3];

/// A request, and how many links it makes.
struct Asked<'a> {
    path: &'static str,
    api_key: &'a str,
    body: Value,
    links: u64,
}

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_hundred_requests_with_one_idempotency_key_over_three_nodes_do_it_once_though_one_dies() {
    // `SIGNPOST_TEST_REPEATS=40` for the whole measure.
    let rounds = amount("SIGNPOST_TEST_REPEATS", 4);
    let (runtime, cluster) = (tokio::runtime::Runtime::new().unwrap(), cluster_blocking(3));
    let _turn = runtime.block_on(cluster.turn());
    let mut nodes = Nodes::start();
    // What another key makes counts for that one.
    let key = new_key(&nodes);
    let addresses: Addresses = std::array::from_fn(|node| Mutex::new(Some(nodes.processes[node].address)));
    let mut random = Random::seeded();
    let mut links = 0;
    for round in 0..rounds {
        let asked = asked(round, &key);
        let (victim, lives_on_for) = (round % 3, Duration::from_millis(random.below(60)));
        let answers = std::thread::scope(|scope| {
            let (addresses, asked) = (&addresses, &asked);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(move || answer_at_last(addresses, victim + client, asked, round)))
                .collect();
            std::thread::sleep(lives_on_for);
            nodes.processes[victim].kill_in_place();
            let killed = Instant::now();
            *addresses[victim].lock().unwrap() = None;
            let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            eprintln!("{}: killed after {lives_on_for:?}, answered {:?} later", asked.path, killed.elapsed());
            assert!(killed.elapsed() < TAKEN_OVER_WITHIN, "{:?}", killed.elapsed());
            answers
        });
        nodes.restart(victim);
        *addresses[victim].lock().unwrap() = Some(nodes.processes[victim].address);
        is_one_answer(&answers);
        links += asked.links;
        let usage = get(&nodes, &key, "/usage");
        assert_eq!(usage["usage"]["links_created"]["current"], links, "after {}", asked.path);
        let made = get(&nodes, &key, "/links?limit=100");
        assert_eq!(made["links"].as_array().unwrap().len() as u64, links.min(100), "after {}", asked.path);
    }
}

/// What a round asks for, all but keys with `key`.
fn asked(round: usize, key: &str) -> Asked<'_> {
    let target = "https://example.com/";
    let of_links = |path, body, links| Asked { path, api_key: key, body, links };
    match round % 4 {
        0 => of_links("/shorten", json!({"redirect_url": target}), 1),
        1 => {
            let one = |place: usize| json!({"redirect_url": target, "slug": format!("one-{round}-{place}")});
            let links = [json!({"redirect_url": target}), one(0), one(1)];
            of_links("/shorten/bulk", json!({"links": links}), 3)
        }
        2 => of_links("/shorten", json!({"redirect_url": target, "slug": format!("s-{round}")}), 1),
        _ => Asked { path: "/api-keys", api_key: ROOT_KEY, body: json!({"name": format!("key {round}")}), links: 0 },
    }
}

/// Sends a request to one node after the other until it is answered: 409 and 503 ask for that.
fn answer_at_last(addresses: &Addresses, first: usize, asked: &Asked<'_>, round: usize) -> WireAnswer {
    let once = format!("round-{round}");
    let headers =
        [("X-API-Key", asked.api_key), ("Content-Type", "application/json"), ("Idempotency-Key", once.as_str())];
    let body = asked.body.to_string();
    let mut node = first;
    loop {
        let address = *addresses[node % 3].lock().unwrap();
        node += 1;
        let answer = address
            .and_then(|address| Connection::open(address).ok())
            .and_then(|mut connection| connection.request("POST", asked.path, &headers, &body).ok());
        match answer {
            Some(answer) if [200, 201].contains(&answer.status) => return answer,
            Some(answer) => {
                assert!([409, 503].contains(&answer.status), "{answer:?}");
                std::thread::sleep(RETRY_AFTER);
            }
            // It died.
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Whether at most one was answered first hand, and all the same.
fn is_one_answer(answers: &[WireAnswer]) {
    let is_replayed = |answer: &&WireAnswer| answer.header("idempotent-replayed") == "true";
    assert!(answers.iter().filter(|answer| !is_replayed(answer)).count() <= 1);
    // Secrets are told first hand only.
    let without_secrets = |answer: &WireAnswer| {
        let mut body = answer.json();
        for secret in ["key", "webhook_secret"] {
            body.as_object_mut().unwrap().remove(secret);
        }
        (answer.status, body.to_string())
    };
    let different: HashSet<_> = answers.iter().map(without_secrets).collect();
    assert_eq!(different.len(), 1, "{different:?}");
}

fn new_key(nodes: &Nodes) -> String {
    let mut connection = nodes.processes[0].connect().unwrap();
    let record = connection.post("/api-keys", ROOT_KEY, r#"{"name":"repeated"}"#).unwrap().expect(201).json();
    record["key"].as_str().unwrap().to_owned()
}

fn get(nodes: &Nodes, key: &str, path: &str) -> Value {
    nodes.processes[0].connect().unwrap().get(path, &[("X-API-Key", key)]).unwrap().expect(200).json()
}

//! Load, `kill -9`, restart, again and again: nothing that was answered is lost, nothing is counted twice.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::load::{Random, Visits, visit_until_the_end};
use crate::support::process::{Process, Program};
use crate::support::receiver::Receiver;
use crate::support::server::ROOT_KEY;
use crate::support::wire::Connection;

const ROUNDS: usize = 24;
const LINK_LIMIT: u64 = 100;
const LONGEST_LOAD_MS: u64 = 150;

/// The bounds are exact: of one connection at most one request is unanswered when the process is killed, and that one may
/// or may not have been counted. So for every link, label and key: answered ≤ counted ≤ answered + unanswered, where
/// unanswered is at most one a connection and round; and what is counted in one place is counted in all.
#[test]
fn whatever_is_answered_outlives_kill_9_and_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let receiver = runtime.block_on(Receiver::start());
    let mut random = Random::seeded();

    let process = program(directory.path()).serve();
    let mut root = process.connect().unwrap();
    let shorten = |root: &mut Connection, body: &str| short_id(&root.post("/shorten", ROOT_KEY, body).unwrap().json());
    let target = r#""redirect_url":"https://example.com/""#;
    let tracked: Vec<String> = (0..3).map(|_| shorten(&mut root, &format!("{{{target}}}"))).collect();
    let untracked = shorten(&mut root, &format!(r#"{{{target},"tracked":false}}"#));
    let hooked = shorten(&mut root, &format!(r#"{{{target},"webhooks":["{}"]}}"#, receiver.url("/hook")));
    let limited = root.post("/api-keys", ROOT_KEY, r#"{"name":"limited"}"#).unwrap().expect(201).json();
    let limited = limited["key"].as_str().unwrap().to_owned();
    let links = [tracked.clone(), vec![untracked.clone()]].concat();

    let (mut visits, mut creations) = (Visits::default(), Creations::default());
    let mut next = Some(process);
    for round in 0..ROUNDS {
        let process = next.take().unwrap_or_else(|| program(directory.path()).serve());
        let address = process.address;
        let load = Duration::from_millis(random.below(LONGEST_LOAD_MS));
        std::thread::scope(|scope| {
            let visitors: Vec<_> = (0..4)
                .map(|_| (links.clone(), usize::MAX, Duration::ZERO))
                .chain([(vec![hooked.clone()], 8, Duration::from_millis(5))])
                .map(|(links, most, pause)| {
                    let random = random.fork();
                    scope.spawn(move || visit_until_the_end(address, &links, most, pause, random))
                })
                .collect();
            let creators: Vec<_> = (0..2)
                .map(|_| (random.fork(), limited.as_str()))
                .map(|(random, key)| scope.spawn(move || create_some(address, key, random)))
                .collect();
            std::thread::sleep(load);
            process.kill();
            for visitor in visitors {
                visits.merge(visitor.join().unwrap());
            }
            for creator in creators {
                let (created, visited) = creator.join().unwrap();
                creations.merge(created);
                visits.merge(visited);
            }
        });
        if round % 4 == 3 {
            // Also while it recovers.
            let starting = program(directory.path()).spawn();
            std::thread::sleep(Duration::from_millis(random.below(120)));
            starting.kill();
        }
    }
    assert!(visits.total().unanswered <= (ROUNDS * 7) as u64, "{visits:?}");
    eprintln!("{ROUNDS} rounds: {:?}, links {}, lost {}", visits.total(), creations.ids.len(), creations.unanswered);

    let process = program(directory.path()).serve();
    let mut connection = process.connect().unwrap();
    for id in &creations.ids {
        assert!(visits.visit(&mut connection, id, &mut random), "{id}");
    }
    // What is left of the quota goes too, so that its limit is met in every run.
    while creations.refused == 0 {
        let (created, visited) = create_some(process.address, &limited, random.fork());
        creations.merge(created);
        visits.merge(visited);
    }
    crate::support::soon("all hits are counted", || process.has_counted_all());
    let ended = process.terminate();
    assert!(ended.code() == Some(0) && !ended.stderr.contains("left in the journal"), "{ended:?}");
    // Who was killed in the middle of writing a record down has left a hole; it was not answered.
    let others = ended.stderr.lines().filter(|line| !line.contains("skipped torn journal records"));
    // Where the disk is slow; the other parts have nothing to do with it.
    let on_disk = ["the hit counter", "the last uses", "the journal", "the store"];
    let is_slow = |line: &&str| {
        line.contains("not stopped within the shutdown timeout") && on_disk.iter().any(|part| line.contains(part))
    };
    let others = others.filter(|line| !is_slow(line));
    let complaints = others.filter(|line| line.contains("WARN") || line.contains("ERROR"));
    assert_eq!(complaints.collect::<Vec<_>>(), [""; 0], "{ended:?}");

    let process = program(directory.path()).serve();
    let mut sum = 0;
    for link in tracked.iter().chain([&hooked]) {
        sum += check_counters(&process, link, &visits);
    }
    let served = used(&process, ROOT_KEY, "hits_served");
    visits.of(&untracked).allows(served["current"].as_u64().unwrap() - sum, "hits of the untracked link");

    let created = used(&process, &limited, "links_created");
    let counted = created["current"].as_u64().unwrap();
    let answered = creations.ids.len() as u64;
    assert_eq!(counted, LINK_LIMIT, "{created}");
    assert!((answered..=answered + creations.unanswered).contains(&counted), "{answered} answered, {created}");
    let sum: u64 = creations.ids.iter().map(|id| check_counters(&process, id, &visits)).sum();
    assert_eq!(used(&process, &limited, "hits_served")["current"], sum);

    let hooked_hits = total_hits(&process, &hooked);
    let delivered = runtime.block_on(async {
        crate::support::eventually("every counted hit is delivered", Duration::from_secs(20), async || {
            let hits: HashSet<String> = receiver.received().iter().map(|request| hit_id(&request.json())).collect();
            (hits.len() as u64 >= hooked_hits).then_some(hits)
        })
        .await
    });
    assert_eq!(delivered.len() as u64, hooked_hits, "a hit has one id, however often it is sent");
    assert_eq!(process.terminate().code(), Some(0));
    let others = tracked.len() as u64 + 2;
    assert_eq!(links_in_store(directory.path()), counted + others, "a counted link exists, an existing one is counted");
}

fn program(directory: &Path) -> Program {
    Program::under_load(directory).set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", &LINK_LIMIT.to_string())
}

/// The outcome of creations.
#[derive(Default)]
struct Creations {
    ids: Vec<String>,
    unanswered: u64,
    refused: u64,
}

impl Creations {
    fn merge(&mut self, other: Self) {
        self.ids.extend(other.ids);
        self.unanswered += other.unanswered;
        self.refused += other.refused;
    }
}

/// Creates links and visits each, until there are four, or the quota or the process ends.
fn create_some(address: std::net::SocketAddr, key: &str, mut random: Random) -> (Creations, Visits) {
    let (mut creations, mut visits) = (Creations::default(), Visits::default());
    let Ok(mut connection) = Connection::open(address) else { return (creations, visits) };
    for _ in 0..4 {
        let Ok(answer) = connection.post("/shorten", key, r#"{"redirect_url":"https://example.com/made"}"#) else {
            creations.unanswered += 1;
            break;
        };
        if answer.status == 403 {
            assert_eq!(answer.json()["current"], LINK_LIMIT, "{answer:?}");
            creations.refused += 1;
            break;
        }
        let id = short_id(&answer.expect(200).json());
        creations.ids.push(id.clone());
        if !visits.visit(&mut connection, &id, &mut random) {
            break;
        }
    }
    (creations, visits)
}

/// Checks all counters of a link against the outcomes of its visits; returns its total.
fn check_counters(process: &Process, link: &str, visits: &Visits) -> u64 {
    let analytics = get(process, ROOT_KEY, &format!("/links/{link}/analytics"));
    let total = analytics["total_hits"].as_u64().unwrap();
    visits.of(link).allows(total, "total_hits");
    let count = |list: &str, label: &str| {
        let list = analytics[list].as_array().unwrap().iter();
        list.filter(|entry| entry["label"] == label).map(|entry| entry["count"].as_u64().unwrap()).sum::<u64>()
    };
    let devices = ["desktop", "mobile", "tablet"];
    for device in devices {
        visits.label(link, device).allows(count("devices", device), device);
    }
    for referrer in ["news.example", "blog.example"] {
        visits.label(link, referrer).allows(count("referrers", referrer), referrer);
    }
    assert_eq!(devices.iter().map(|device| count("devices", device)).sum::<u64>(), total, "{analytics}");
    let daily = analytics["daily"].as_array().unwrap().iter();
    assert_eq!(daily.map(|day| day["count"].as_u64().unwrap()).sum::<u64>(), total, "{analytics}");
    total
}

fn total_hits(process: &Process, link: &str) -> u64 {
    get(process, ROOT_KEY, &format!("/links/{link}/analytics/summary"))["total_hits"].as_u64().unwrap()
}

fn used(process: &Process, key: &str, metric: &str) -> Value {
    get(process, key, "/usage")["usage"][metric].clone()
}

fn get(process: &Process, key: &str, path: &str) -> Value {
    process.connect().unwrap().get(path, &[("X-API-Key", key)]).unwrap().expect(200).json()
}

fn short_id(link: &Value) -> String {
    link["short_id"].as_str().unwrap().to_owned()
}

fn hit_id(event: &Value) -> String {
    event["hit_id"].as_str().unwrap().to_owned()
}

/// Links as the store has them, below everything that could hide one.
fn links_in_store(directory: &Path) -> u64 {
    let database = fjall::Database::builder(directory.join("data/store")).open().unwrap();
    let links = database.keyspace("links", fjall::KeyspaceCreateOptions::default).unwrap();
    links.iter().count() as u64
}

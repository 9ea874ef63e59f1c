//! Several processes on one cluster, whose nodes die and come back, and so do the processes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::{Over, Random, Visits, visit_until_the_end};
use crate::store::samples::{key_id, link, node, short_id};
use crate::support::cluster::{Cluster, cluster_blocking};
use crate::support::keyspaces::{Keyspace, Place};
use crate::support::process::{Process, Program};
use crate::support::receiver::Receiver;
use crate::support::server::ROOT_KEY;
use crate::support::wire::{Connection, WireAnswer};
use crate::support::{middle, until};

const LINK_LIMIT: u64 = 100;
const CREATIONS: usize = 1_000;
const REDIRECTS: u64 = 40_000;
const LINKS: usize = 5;
/// Connections to each process.
const CONNECTIONS: usize = 4;
/// What the service may take to come right on a machine that compiles meanwhile.
const AT_LAST: Duration = Duration::from_mins(1);
/// As promised of a revoked key.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// A test that runs where there is an engine.
macro_rules! on_a_cluster {
    ($($(#[$attribute:meta])* fn $name:ident() $body:block)*) => {
        $(
            $(#[$attribute])*
            #[test]
            #[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
            fn $name() $body
        )*
    };
}

on_a_cluster! {
    fn a_thousand_creations_over_two_processes_make_exactly_the_quota() {
        let (runtime, cluster) = (runtime(), cluster_blocking(3));
        let _turn = runtime.block_on(cluster.turn());
        let two = Two::start();
        let key = two.new_key();

        let answers = two.create(&key, CREATIONS);

        let made = made(&answers);
        assert_eq!(made.len() as u64, LINK_LIMIT);
        let refused = answers.iter().filter(|answer| answer.status == 403).count();
        assert_eq!(made.len() + refused, CREATIONS, "all are answered: {:?}", statuses(&answers));
        two.have_exactly(&key, &made);
    }

    fn a_quota_is_exact_though_a_node_of_the_cluster_dies_meanwhile() {
        let (runtime, cluster) = (runtime(), cluster_blocking(3));
        let mut faults = runtime.block_on(cluster.faults());
        let two = Two::start();
        let key = two.new_key();

        let mut answers = two.create_while(&key, 300, |begun| {
            until("the quota is being used up", AT_LAST, || begun.load(Ordering::Relaxed) > LINK_LIMIT / 2);
            faults.kill(2);
        });
        // Those that were not settled in time may be asked for again, and others take their place.
        let began = Instant::now();
        while !answers.iter().any(|answer| answer.status == 403) || answers.last().unwrap().status == 503 {
            assert!(began.elapsed() < AT_LAST, "{:?}", statuses(&answers));
            answers.extend(two.create(&key, 8));
        }

        assert!(answers.iter().all(|answer| [200, 403, 503].contains(&answer.status)), "{:?}", statuses(&answers));
        let made = made(&answers);
        eprintln!("{:?}", statuses(&answers));
        // One that was answered 503 and counted all the same is there, but nobody knows its id.
        assert!(made.len() as u64 <= LINK_LIMIT, "{}", made.len());
        // A node that does not miss the dead one yet waits for it to read a whole table, and then gives up.
        faults.start(2);
        two.count_what_is_there(&runtime, &key, &made);
    }

    fn a_key_that_is_revoked_at_one_process_is_refused_by_the_other() {
        let (runtime, cluster) = (runtime(), cluster_blocking(3));
        let _turn = runtime.block_on(cluster.turn());
        let two = Two::start();
        let [here, there] = &two.processes;
        let refused_within = [(); 3].map(|()| {
            let record = post(here, ROOT_KEY, "/api-keys", r#"{"name":"short-lived"}"#).expect(201).json();
            let (key, id) = (text(&record["key"]), text(&record["key_id"]));
            // Both have it in memory.
            for process in [here, there] {
                get(process, &key, "/usage").expect(200);
            }

            let path = format!("/api-keys/{id}");
            here.connect().unwrap().request("DELETE", &path, &[("X-API-Key", ROOT_KEY)], "").unwrap().expect(204);

            let revoked = Instant::now();
            get(here, &key, "/usage").expect(401);
            until("the other process refuses it", AT_LAST, || get(there, &key, "/usage").status == 401);
            revoked.elapsed()
        });
        assert!(middle(&refused_within) < REFUSED_WITHIN, "{refused_within:?}");
    }

    /// Of each connection at most one request is unanswered when its process is killed; that one may or may not have been
    /// counted. All others are answered 302 and counted, once, whatever dies.
    fn redirects_are_counted_exactly_though_a_node_and_a_process_die_and_come_back() {
        let (runtime, cluster) = (runtime(), cluster_blocking(3));
        let mut faults = runtime.block_on(cluster.faults());
        let mut two = Two::start();
        let links: Vec<String> = (0..LINKS).map(|_| two.new_link("")).collect();
        let mut random = Random::seeded();
        let (answered, over) = (AtomicU64::new(0), AtomicBool::new(false));
        // None while there is nobody: another test might get that port.
        let addresses = two.processes.each_ref().map(|process| Mutex::new(Some(process.address)));

        let visits = std::thread::scope(|scope| {
            let visitors: Vec<_> = (0..2 * CONNECTIONS)
                .map(|n| {
                    let (address, links, answered, over) = (&addresses[n % 2], &links, &answered, &over);
                    let random = random.fork();
                    scope.spawn(move || visit_until_it_is_over(address, links, answered, over, random))
                })
                .collect();
            let over_at_last = Over(&over);
            // From now on.
            let answers = |part: u64| {
                let enough = answered.load(Ordering::Relaxed) + REDIRECTS * part / 100;
                let are_enough = || answered.load(Ordering::Relaxed) >= enough || over.load(Ordering::Relaxed);
                until(&format!("{part} % of the redirects"), AT_LAST * 5, are_enough);
            };
            answers(10);
            faults.kill(3);
            answers(20);
            faults.missed(3);
            *addresses[1].lock().unwrap() = None;
            two.kill_second_and_start_it_again();
            *addresses[1].lock().unwrap() = Some(two.processes[1].address);
            answers(30);
            faults.start(3);
            answers(40);
            drop(over_at_last);
            let mut visits = Visits::default();
            for visitor in visitors {
                visits.merge(visitor.join().unwrap());
            }
            visits
        });

        let total = visits.total();
        eprintln!("{total:?}");
        assert!(total.answered >= REDIRECTS && total.unanswered <= 4 * CONNECTIONS as u64, "{total:?}");
        two.have_counted(&links, &visits);
        // A drain counts what is left; then there is nothing more to come.
        let two = two.restarted();
        two.have_counted(&links, &visits);
    }

    fn a_cluster_that_goes_and_comes_back_costs_no_hit() {
        let runtime = runtime();
        let cluster = Cluster::start(1, None).unwrap();
        let mut faults = runtime.block_on(cluster.faults());
        let place = Place::fresh(&cluster);
        let directory = tempfile::tempdir().unwrap();
        let receiver = runtime.block_on(Receiver::start());
        // A link that this process has not seen.
        let unseen = runtime.block_on(async {
            let store = place.open_store(node(7)).await;
            signpost::store::LinkStore::create_link(&store, link(7, key_id(7)), None).await.unwrap();
            signpost::store::Lifecycle::close(&store).await;
            format!("/{}", short_id(7).as_str())
        });
        let process = program(directory.path(), &place).serve();
        let body = format!(r#"{{"redirect_url":"https://example.com/","webhooks":["{}"]}}"#, receiver.url("/hook"));
        let seen = text(&post(&process, ROOT_KEY, "/shorten", &body).expect(200).json()["short_id"]);
        let mut hits = 0;
        let mut follow = |times: usize| {
            let mut connection = process.connect().unwrap();
            for _ in 0..times {
                connection.get(&format!("/{seen}"), &[]).unwrap().expect(302);
                hits += 1;
            }
            hits
        };
        follow(100);

        faults.kill(1);

        follow(500);
        is_unavailable(&process.connect().unwrap().get(&unseen, &[]).unwrap());
        is_unavailable(&post(&process, ROOT_KEY, "/shorten", &body));
        is_unavailable(&get(&process, ROOT_KEY, "/usage"));
        until("it is not ready", AT_LAST, || process.ready_status() == Some(503));
        follow(500);

        faults.start(1);

        until("it is ready", AT_LAST, || process.ready_status() == Some(200));
        let hits = follow(100);
        until("it is answered", AT_LAST, || process.connect().unwrap().get(&unseen, &[]).unwrap().status == 302);
        until("a link is made", AT_LAST, || post(&process, ROOT_KEY, "/shorten", &body).status == 200);
        until("all hits are counted", AT_LAST, || total_hits(&process, &seen).is_some_and(|counted| counted >= hits));
        let delivered = || {
            let requests = receiver.received();
            let ids: HashSet<String> = requests.iter().map(|request| text(&request.json()["hit_id"])).collect();
            ids.len() as u64
        };
        until("all hits are delivered", AT_LAST, || delivered() >= hits);
        let ended = process.terminate();
        assert!(ended.code() == Some(0) && !ended.stderr.contains("left in the journal"), "{ended:?}");
        let process = program(directory.path(), &place).serve();
        assert_eq!((total_hits_at_last(&process, &seen), delivered()), (hits, hits));
    }
}

/// Two processes on one keyspace.
struct Two {
    processes: [Process; 2],
    directories: [tempfile::TempDir; 2],
    keyspace: Arc<Keyspace>,
}

impl Two {
    fn start() -> Self {
        let keyspace = Keyspace::shared();
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let processes = directories.each_ref().map(|directory| program(directory.path(), &keyspace).serve());
        Self { processes, directories, keyspace }
    }

    /// Ends both as an operator does, and starts them again.
    fn restarted(self) -> Self {
        let Self { processes, directories, keyspace } = self;
        for process in processes {
            let ended = process.terminate();
            assert!(ended.code() == Some(0) && !ended.stderr.contains("left in the journal"), "{ended:?}");
        }
        let processes = directories.each_ref().map(|directory| program(directory.path(), &keyspace).serve());
        Self { processes, directories, keyspace }
    }

    /// `kill -9`, and a start on the same directory.
    fn kill_second_and_start_it_again(&mut self) {
        self.processes[1].kill_in_place();
        self.processes[1] = program(self.directories[1].path(), &self.keyspace).serve();
    }

    /// A key that may make [`LINK_LIMIT`] links.
    fn new_key(&self) -> String {
        text(&post(&self.processes[0], ROOT_KEY, "/api-keys", r#"{"name":"limited"}"#).expect(201).json()["key"])
    }

    fn new_link(&self, members: &str) -> String {
        let body = format!(r#"{{"redirect_url":"https://example.com/"{members}}}"#);
        text(&post(&self.processes[0], ROOT_KEY, "/shorten", &body).expect(200).json()["short_id"])
    }

    /// Creations at once, split over both.
    fn create(&self, key: &str, count: usize) -> Vec<WireAnswer> {
        self.create_while(key, count, |_| ())
    }

    /// As [`Self::create`]; `meanwhile` is told how many are begun.
    fn create_while(&self, key: &str, count: usize, meanwhile: impl FnOnce(&AtomicU64)) -> Vec<WireAnswer> {
        const AT_ONCE: usize = 50;
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..AT_ONCE.min(count))
                .map(|n| {
                    let (process, next) = (&self.processes[n % 2], &next);
                    scope.spawn(move || {
                        let mut connection = process.connect().unwrap();
                        let mut answers = Vec::new();
                        while next.fetch_add(1, Ordering::Relaxed) < count as u64 {
                            let body = r#"{"redirect_url":"https://example.com/made"}"#;
                            answers.push(connection.post("/shorten", key, body).unwrap());
                        }
                        answers
                    })
                })
                .collect();
            meanwhile(&next);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }

    /// Checks that both say the quota is used up, and that both know each link.
    fn have_exactly(&self, key: &str, made: &[String]) {
        for process in &self.processes {
            let usage = get(process, key, "/usage").expect(200).json();
            assert_eq!(usage["usage"]["links_created"]["current"], LINK_LIMIT, "{usage}");
            let mut connection = process.connect().unwrap();
            for id in made {
                // That is no hit.
                connection.request("HEAD", &format!("/{id}"), &[], "").unwrap().expect(302);
            }
        }
    }

    /// Checks in the tables that a link is there for each that is counted, and that all of `made` are among them.
    fn count_what_is_there(&self, runtime: &tokio::runtime::Runtime, key: &str, made: &[String]) {
        let owner: uuid::Uuid =
            text(&get(&self.processes[0], key, "/usage").expect(200).json()["api_key_id"]).parse().unwrap();
        let session = runtime.block_on(self.keyspace.session());
        let all = format!("SELECT id, owner FROM {}.links", self.keyspace.name);
        let mut there = HashSet::new();
        // What nobody waited for is brought to an end a moment later.
        until("as many links as are counted", AT_LAST, || {
            // A node that has just come back may not answer in time.
            let Ok(rows) = runtime.block_on(session.query_unpaged(&*all, ())) else { return false };
            let rows = rows.into_rows_result().unwrap();
            // What was given up has an id and no owner.
            let rows = rows.rows::<(String, Option<uuid::Uuid>)>().unwrap().map(Result::unwrap);
            there = rows.filter(|(_, of)| *of == Some(owner)).map(|(id, _)| id).collect();
            there.len() as u64 == LINK_LIMIT
        });
        assert!(made.iter().all(|id| there.contains(id)), "a link that was answered is there");
        self.have_exactly(key, made);
    }

    /// Checks the totals of each link at both.
    fn have_counted(&self, links: &[String], visits: &Visits) {
        for process in &self.processes {
            until("all hits are counted", AT_LAST, || process.has_counted_all());
        }
        let totals = self
            .processes
            .each_ref()
            .map(|process| links.iter().map(|link| total_hits_at_last(process, link)).collect::<Vec<_>>());
        assert_eq!(totals[0], totals[1], "both say the same");
        for (link, total) in links.iter().zip(&totals[0]) {
            visits.of(link).allows(*total, link);
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

fn program(directory: &Path, place: &Place) -> Program {
    Program::under_load(directory).sharing(place).set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", &LINK_LIMIT.to_string())
}

/// Redirects over one connection at a time. It is over for all when one panics.
fn visit_until_it_is_over(
    address: &Mutex<Option<SocketAddr>>,
    links: &[String],
    answered: &AtomicU64,
    over: &AtomicBool,
    mut random: Random,
) -> Visits {
    /// After so many it is looked whether they are enough.
    const SOME: usize = 100;
    // The database nodes need the CPU too: a node that starts while redirects take all of it is not up in minutes.
    const PAUSE: Duration = Duration::from_millis(4);

    let _over = Over(over);
    let mut visits = Visits::default();
    while !over.load(Ordering::Relaxed) {
        let Some(address) = *address.lock().unwrap() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let some = visit_until_the_end(address, links, SOME, PAUSE, random.fork());
        answered.fetch_add(some.total().answered, Ordering::Relaxed);
        visits.merge(some);
    }
    visits
}

#[track_caller]
fn is_unavailable(answer: &WireAnswer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["type"], "urn:problem-type:signpost:unavailable", "{answer:?}");
    assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{answer:?}");
}

fn made(answers: &[WireAnswer]) -> Vec<String> {
    answers.iter().filter(|answer| answer.status == 200).map(|answer| text(&answer.json()["short_id"])).collect()
}

/// How often each status came.
fn statuses(answers: &[WireAnswer]) -> std::collections::BTreeMap<u16, usize> {
    let mut statuses = std::collections::BTreeMap::new();
    for answer in answers {
        *statuses.entry(answer.status).or_default() += 1;
    }
    statuses
}

/// None where it is out of reach for a moment, as while a node is away.
fn total_hits(process: &Process, link: &str) -> Option<u64> {
    let answer = get(process, ROOT_KEY, &format!("/links/{link}/analytics/summary"));
    (answer.status != 503).then(|| answer.expect(200).json()["total_hits"].as_u64().unwrap())
}

fn total_hits_at_last(process: &Process, link: &str) -> u64 {
    let mut total = None;
    until("it is answered", AT_LAST, || {
        total = total_hits(process, link);
        total.is_some()
    });
    total.unwrap()
}

fn get(process: &Process, key: &str, path: &str) -> WireAnswer {
    process.connect().unwrap().get(path, &[("X-API-Key", key)]).unwrap()
}

fn post(process: &Process, key: &str, path: &str, body: &str) -> WireAnswer {
    Connection::open(process.address).unwrap().post(path, key, body).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

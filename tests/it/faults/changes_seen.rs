//! Changes of links on three nodes over three database nodes: seen on each node within 2 s, and never an old answer after
//! a new one on a node, whatever dies.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{Over, Random};
use crate::support::cluster::cluster_blocking;
use crate::support::keyspaces::{Keyspace, Place};
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::until;
use crate::support::wire::{Connection, WireAnswer};

/// As promised for nodes that reach the store.
pub const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// Between two requests of a follower.
const EACH: Duration = Duration::from_millis(10);
/// What the service may take to come right on a machine that compiles meanwhile.
pub const AT_LAST: Duration = Duration::from_mins(1);
pub const LINKS_TTL: Duration = Duration::from_secs(3);
/// The headers of a change.
const JSON_BY_ROOT: [(&str, &str); 2] = [("X-API-Key", ROOT_KEY), ("Content-Type", "application/json")];

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
    fn edits_and_blocks_are_seen_within_2_s_on_all_nodes_though_a_database_node_dies() {
        // `SIGNPOST_TEST_EDITS=1000` for the whole measure: here it would take minutes.
        let edits = amount("SIGNPOST_TEST_EDITS", 90);
        let (runtime, cluster) = (tokio::runtime::Runtime::new().unwrap(), cluster_blocking(3));
        let mut faults = runtime.block_on(cluster.faults());
        let nodes = Nodes::start();
        let link = nodes.new_link();
        let mut random = Random::seeded();
        let (log, over) = (ChangeLog::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let followers: Vec<_> = nodes
                .processes
                .iter()
                .map(|node| scope.spawn(|| follow(node.address, &link, &over)))
                .collect();
            let over_at_last = Over(&over);
            for number in 1..=edits {
                match number {
                    _ if number == edits / 3 => faults.kill(2),
                    _ if number == edits * 2 / 3 => faults.start(2),
                    _ => {}
                }
                let node = random.one_of(&nodes.processes);
                if number % 30 == 0 {
                    log.make(State::Blocked, || act(node, "POST", &format!("/links/{link}/block"), r#"{"reason":"test"}"#));
                    log.make(State::Target(number - 1), || act(node, "POST", &format!("/links/{link}/unblock"), "{}"));
                }
                log.make(State::Target(number), || Nodes::edit(node, &link, number));
            }
            std::thread::sleep(SEEN_WITHIN);
            drop(over_at_last);
            let changes = log.into_inner();
            for follower in followers {
                check(&changes, &follower.join().unwrap(), SEEN_WITHIN);
            }
        });
        // At last a deletion.
        act(&nodes.processes[0], "DELETE", &format!("/links/{link}"), "");
        let deleted = Instant::now();
        for node in &nodes.processes {
            until("the link is gone", SEEN_WITHIN, || state(&mut node.connect().unwrap(), &link) == State::Gone);
        }
        eprintln!("deleted everywhere after {:?}", deleted.elapsed());
    }

    fn an_editor_that_is_killed_leaves_all_nodes_with_one_answer() {
        const KILLS: usize = 4;
        let (runtime, cluster) = (tokio::runtime::Runtime::new().unwrap(), cluster_blocking(3));
        let _turn = runtime.block_on(cluster.turn());
        let mut nodes = Nodes::start();
        let link = nodes.new_link();
        let mut random = Random::seeded();
        for round in 0..KILLS {
            // All have it in their caches.
            for node in &nodes.processes {
                for _ in 0..20 {
                    state(&mut node.connect().unwrap(), &link);
                }
            }
            std::thread::scope(|scope| {
                let editor = nodes.processes[2].address;
                let link = &link;
                let editing = scope.spawn(move || {
                    edit_unanswered(&mut Connection::open(editor).unwrap(), link, round + 1);
                });
                std::thread::sleep(Duration::from_millis(random.below(40)));
                nodes.processes[2].kill_in_place();
                editing.join().unwrap();
            });
            // The LWT of the dead editor may still be applied.
            let mut stored = stored_target(&nodes.processes[0], &link);
            until("both agree with the store", SEEN_WITHIN, || {
                stored = stored_target(&nodes.processes[0], &link);
                nodes.processes[..2].iter().all(|node| {
                    let mut connection = node.connect().unwrap();
                    (0..5).all(|_| state(&mut connection, &link) == stored)
                })
            });
            nodes.restart(2);
            assert_eq!(state(&mut nodes.processes[2].connect().unwrap(), &link), stored);
        }
    }

    /// A node that was stopped does not reach the store: it may answer from what it has for `cache.links_ttl`, which runs
    /// on while the process is stopped.
    fn a_node_that_was_stopped_for_long_gives_no_old_answer() {
        let (runtime, cluster) = (tokio::runtime::Runtime::new().unwrap(), cluster_blocking(3));
        let _turn = runtime.block_on(cluster.turn());
        let nodes = Nodes::start();
        let link = nodes.new_link();
        let stopped = &nodes.processes[1];
        let mut connection = stopped.connect().unwrap();
        for _ in 0..50 {
            assert_eq!(state(&mut connection, &link), State::Target(0));
        }
        stopped.signal("STOP");
        Nodes::edit(&nodes.processes[0], &link, 1);
        std::thread::sleep(LINKS_TTL + Duration::from_millis(500));
        stopped.signal("CONT");
        for _ in 0..50 {
            assert_eq!(state(&mut connection, &link), State::Target(1));
        }
    }

    fn of_50_creators_of_a_name_over_three_nodes_one_wins() {
        const CREATORS: usize = 50;
        // `SIGNPOST_TEST_NAMES=50` for the whole measure.
        let names = amount("SIGNPOST_TEST_NAMES", 5);
        let (runtime, cluster) = (tokio::runtime::Runtime::new().unwrap(), cluster_blocking(3));
        let _turn = runtime.block_on(cluster.turn());
        let nodes = Nodes::start();
        let answers: Mutex<Vec<(usize, usize, u16)>> = Mutex::default();
        std::thread::scope(|scope| {
            for creator in 0..CREATORS {
                let (nodes, answers) = (&nodes, &answers);
                scope.spawn(move || {
                    let mut connection = nodes.processes[creator % 3].connect().unwrap();
                    for name in 0..names {
                        let body = json!({"redirect_url": target(creator), "slug": format!("campaign-{name}")});
                        let status = loop {
                            match connection.post("/shorten", ROOT_KEY, &body.to_string()).unwrap().status {
                                // Not settled: it may be there.
                                503 => {}
                                status => break status,
                            }
                        };
                        answers.lock().unwrap().push((name, creator, status));
                    }
                });
            }
        });
        let answers = answers.into_inner().unwrap();
        assert!(answers.iter().all(|(.., status)| [200, 409].contains(status)), "{answers:?}");
        let won: Vec<_> = answers.iter().filter(|(.., status)| *status == 200).collect();
        assert_eq!(won.iter().map(|(name, ..)| name).collect::<HashSet<_>>().len(), won.len(), "one winner each");
        for (name, creator, _) in won {
            for node in &nodes.processes {
                let found = state(&mut node.connect().unwrap(), &format!("campaign-{name}"));
                assert_eq!(found, State::Target(*creator), "campaign-{name}");
            }
        }
    }
}

/// How much a test does: as much as the variable says, or less so that it takes seconds.
pub fn amount(variable: &str, by_default: usize) -> usize {
    std::env::var(variable).map_or(by_default, |amount| amount.parse().unwrap())
}

/// What a redirect tells of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Target(usize),
    Blocked,
    Gone,
}

fn target(number: usize) -> String {
    format!("https://example.com/{number}")
}

#[track_caller]
pub fn state(connection: &mut Connection, link: &str) -> State {
    let answer = connection.get(&format!("/{link}"), &[]).unwrap();
    match answer.status {
        302 => {
            let number = answer.header("location").strip_prefix("https://example.com/").unwrap();
            State::Target(number.parse().unwrap())
        }
        410 => State::Blocked,
        404 => State::Gone,
        _ => panic!("{answer:?}"),
    }
}

/// When a request was sent, and what it was answered.
pub type Seen = (Instant, State);

/// Asks a node all the time.
pub fn follow(address: SocketAddr, link: &str, over: &AtomicBool) -> Vec<Seen> {
    let _over = Over(over);
    let mut connection = Connection::open(address).unwrap();
    let mut seen = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        seen.push((sent, state(&mut connection, link)));
        std::thread::sleep(EACH);
    }
    seen
}

/// A change: when it began, when it was answered, and what it made.
pub type Change = (Instant, Instant, State);

#[derive(Default)]
pub struct ChangeLog(Mutex<Vec<Change>>);

impl ChangeLog {
    pub fn make(&self, state: State, change: impl FnOnce()) {
        let begun = Instant::now();
        change();
        self.0.lock().unwrap().push((begun, Instant::now(), state));
    }

    pub fn into_inner(self) -> Vec<Change> {
        self.0.into_inner().unwrap()
    }
}

/// Checks each answer: it is what one of the changes made that may have been the last one, and it is not older than the
/// answer before.
pub fn check(changes: &[Change], seen: &[Seen], within: Duration) {
    let mut newest = 0;
    let mut latest = Duration::ZERO;
    for (sent, state) in seen {
        // Changes that were answered so long before are seen.
        let due = changes.iter().rposition(|(_, answered, _)| *answered + within <= *sent).unwrap_or(0);
        let from = due.max(newest);
        let candidate = changes[from..].iter().position(|(_, _, made)| made == state);
        let is_first = from == 0 && *state == State::Target(0);
        assert!(
            is_first || candidate.is_some(),
            "{state:?} at {sent:?} is older than change {from}, of which {due} were due: {:?}\nanswers: {:?}",
            &changes[from.saturating_sub(3)..],
            seen.iter().filter(|(at, _)| *at + within > *sent && *at <= *sent).collect::<Vec<_>>(),
        );
        newest = candidate.map_or(newest, |behind| from + behind);
        if let Some((_, answered, _)) = changes.get(newest + 1) {
            latest = latest.max(sent.saturating_duration_since(*answered));
        }
    }
    eprintln!("{} answers; the latest old one came {latest:?} after the answer of the next change", seen.len());
}

/// Three nodes on one keyspace.
pub struct Nodes {
    pub processes: Vec<Process>,
    directories: Vec<tempfile::TempDir>,
    keyspace: Arc<Keyspace>,
}

impl Nodes {
    pub fn start() -> Self {
        let keyspace = Keyspace::shared();
        let third = (*keyspace).clone();
        Self::start_on(keyspace, &third, LINKS_TTL)
    }

    /// The third reaches the cluster by contact points of its own.
    pub fn start_on(keyspace: Arc<Keyspace>, third: &Place, links_ttl: Duration) -> Self {
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let places: [&Place; 3] = [&keyspace, &keyspace, third];
        let start =
            |(directory, place): (&tempfile::TempDir, &Place)| program(directory.path(), place, links_ttl).serve();
        let processes = directories.iter().zip(places).map(start).collect();
        Self { processes, directories, keyspace }
    }

    pub fn restart(&mut self, node: usize) {
        self.processes[node] = program(self.directories[node].path(), &self.keyspace, LINKS_TTL).serve();
    }

    pub fn new_link(&self) -> String {
        let body = json!({"redirect_url": target(0)}).to_string();
        let answer = self.processes[0].connect().unwrap().post("/shorten", ROOT_KEY, &body).unwrap().expect(200);
        answer.json()["short_id"].as_str().unwrap().to_owned()
    }

    pub fn edit(node: &Process, link: &str, number: usize) {
        let body = json!({"redirect_url": target(number)}).to_string();
        act(node, "PATCH", &format!("/links/{link}"), &body);
    }
}

/// Sends an edit to a node that is killed or stopped meanwhile: it may be answered or not.
pub fn edit_unanswered(editor: &mut Connection, link: &str, number: usize) {
    let body = json!({"redirect_url": target(number)}).to_string();
    drop(editor.request("PATCH", &format!("/links/{link}"), &JSON_BY_ROOT, &body));
}

/// Until it is done: 503 says that it may be done or not.
fn act(node: &Process, method: &str, path: &str, body: &str) {
    until(&format!("{method} {path}"), AT_LAST, || {
        let answer = node.connect().unwrap().request(method, path, &JSON_BY_ROOT, body).unwrap();
        assert!([200, 204, 503].contains(&answer.status), "{answer:?}");
        answer.status != 503
    });
}

pub fn stored_target(node: &Process, link: &str) -> State {
    let record = |answer: WireAnswer| answer.expect(200).json();
    let path = format!("/links/{link}");
    let record = record(node.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap());
    let target = record["redirect_url"].as_str().unwrap();
    State::Target(target.strip_prefix("https://example.com/").unwrap().parse().unwrap())
}

fn program(directory: &std::path::Path, place: &Place, links_ttl: Duration) -> Program {
    let ttl = format!("{}s", links_ttl.as_secs());
    Program::under_load(directory)
        .sharing(place)
        .set("SIGNPOST_CACHE__LINKS_TTL", &ttl)
        .set("SIGNPOST_TIERS__FREE__BULK_PER_MINUTE", "0")
}

//! A CQL engine for the tests: started once by `tests/cluster/up`, and ended with this process, however that ends.
//!
//! `SIGNPOST_TEST_CQL_NODES` (`host:port,…`) names one to use instead; its nodes can't be killed.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use scylla::client::session_builder::SessionBuilder;
use tokio::sync::MutexGuard;

const NODES_VARIABLE: &str = "SIGNPOST_TEST_CQL_NODES";
/// What an engine may take for what a test asks of it itself, such as emptying a table, on a machine that compiles meanwhile.
pub const ANSWERED_WITHIN: Duration = Duration::from_mins(1);

/// What tests of one process share: each has a keyspace of its own in it.
pub struct Cluster {
    contact_points: Vec<String>,
    /// `None` if it was there before.
    engine: Option<Mutex<Engine>>,
    turn: tokio::sync::Mutex<()>,
}

/// The cluster of 1 or 3 nodes, started by who asks first. A cluster that is there serves for both.
pub async fn cluster(nodes: usize) -> &'static Cluster {
    tokio::task::spawn_blocking(move || cluster_blocking(nodes)).await.unwrap()
}

/// As [`cluster`], for tests without a runtime.
pub fn cluster_blocking(nodes: usize) -> &'static Cluster {
    static GIVEN: OnceLock<Option<Cluster>> = OnceLock::new();
    static ONE: OnceLock<Result<Cluster, String>> = OnceLock::new();
    static THREE: OnceLock<Result<Cluster, String>> = OnceLock::new();

    if let Some(given) = GIVEN.get_or_init(given) {
        return given;
    }
    let started = match nodes {
        1 => &ONE,
        3 => &THREE,
        _ => panic!("a cluster has 1 or 3 nodes, not {nodes}"),
    };
    // One failure is told to all who ask: a second try would fail as well, after as long a wait.
    started.get_or_init(|| Cluster::run(nodes, &[])).as_ref().unwrap_or_else(|why| panic!("no CQL engine: {why}"))
}

/// A name that no other test has, of this run or an earlier one.
pub fn fresh_keyspace_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", uuid::Uuid::now_v7().simple(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Cluster {
    /// An engine of the test's own, which ends when it is dropped: to kill its only node, or for settings that others
    /// don't want. `yaml` is a file to add to each node's `cassandra.yaml`.
    pub fn start(nodes: usize, yaml: Option<&Path>) -> Result<Self, String> {
        let mut arguments = vec!["--durable".as_ref()];
        arguments.extend(yaml.into_iter().flat_map(|yaml| ["--yaml".as_ref(), yaml.as_os_str()]));
        Self::run(nodes, &arguments)
    }

    fn run(nodes: usize, arguments: &[&OsStr]) -> Result<Self, String> {
        let (engine, contact_points) = Engine::start(nodes, arguments)?;
        apart(flush_once(&contact_points)).map_err(|error| error.to_string())?;
        Ok(Self { contact_points, engine: Some(Mutex::new(engine)), turn: tokio::sync::Mutex::default() })
    }

    /// `host:port` of each node.
    pub fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    /// How many nodes can hold a row.
    pub fn replication_factor(&self) -> usize {
        self.contact_points.len().min(3)
    }

    /// Whether it was started by the tests, and ends with them.
    pub fn is_own(&self) -> bool {
        self.engine.is_some()
    }

    /// For a test that needs all nodes, and their CPU: while this is held, none is killed, and no other test has its turn.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// For a test that kills nodes: waits for its [turn](Self::turn).
    pub async fn faults(&self) -> Faults<'_> {
        let turn = self.turn().await;
        let engine =
            self.engine.as_ref().unwrap_or_else(|| panic!("{NODES_VARIABLE} names nodes that can't be killed"));
        Faults { engine, dead: Vec::new(), _turn: turn }
    }
}

/// Has a node write its first file while nobody changes the schema. Cassandra 5.0 tells itself of that file, and of a change
/// of the schema, under the same two locks: the file of a table that is being emptied takes them in one order, the change in
/// the other, and where both come at once, the node stands still for ever.
async fn flush_once(contact_points: &[String]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let session = SessionBuilder::new()
        .known_nodes(contact_points)
        .connection_timeout(ANSWERED_WITHIN)
        .fetch_schema_metadata(false)
        .build()
        .await?;
    for statement in [
        "CREATE KEYSPACE first WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE first.file (key int PRIMARY KEY)",
        "TRUNCATE first.file",
        "DROP KEYSPACE first",
    ] {
        session.query_unpaged(statement, ()).await?;
    }
    Ok(())
}

/// Waits for `work` on a thread of its own, since this one may be a runtime's.
pub fn apart<R: Send>(work: impl Future<Output = R> + Send) -> R {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// The right to kill nodes. Those that are dead at its end are started again.
pub struct Faults<'a> {
    engine: &'a Mutex<Engine>,
    dead: Vec<usize>,
    _turn: MutexGuard<'a, ()>,
}

impl Faults<'_> {
    /// `kill -9` of node 1, 2 or 3; not of the one node that tests share, which would forget all tables.
    /// The others hold it for up until they miss it, some seconds later: whoever asks them to read a whole table meanwhile may
    /// wait for it until they give up.
    pub fn kill(&mut self, node: usize) {
        self.engine.lock().unwrap().tell(&format!("kill {node}"), &format!("killed {node}")).unwrap();
        self.dead.push(node);
    }

    /// Blocks until the others miss it.
    pub fn missed(&mut self, node: usize) {
        self.engine.lock().unwrap().tell(&format!("miss {node}"), &format!("missed {node}")).unwrap();
    }

    /// Starts it again with the data it had. Blocks until it serves CQL and the others know: some seconds; in a test
    /// that does something meanwhile, by `tokio::task::block_in_place` on a runtime of many threads.
    pub fn start(&mut self, node: usize) {
        self.dead.retain(|dead| *dead != node);
        self.engine.lock().unwrap().tell(&format!("start {node}"), &format!("started {node}")).unwrap();
    }
}

impl Drop for Faults<'_> {
    fn drop(&mut self) {
        for node in std::mem::take(&mut self.dead) {
            self.start(node);
        }
    }
}

/// `tests/cluster/up --foreground`. It ends its nodes when the pipe to it closes, which happens however this ends.
struct Engine {
    child: Child,
    /// Taken to close it.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Engine {
    fn start(nodes: usize, arguments: &[&OsStr]) -> Result<(Self, Vec<String>), String> {
        let mut command = up();
        command.arg("--foreground").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.args(arguments).arg(nodes.to_string()).spawn().map_err(|error| error.to_string())?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut engine = Self { child, orders, answers };
        let line = engine.answer()?;
        let nodes = line.strip_prefix("NODES=").ok_or_else(|| format!("expected NODES=, not {line}"))?;
        let contact_points = nodes.split(',').map(str::to_owned).collect();
        // DIR=, for people.
        engine.answer()?;
        Ok((engine, contact_points))
    }

    fn tell(&mut self, order: &str, expected: &str) -> Result<(), String> {
        let orders = self.orders.as_mut().ok_or("ended")?;
        writeln!(orders, "{order}").map_err(|error| error.to_string())?;
        let answer = self.answer()?;
        if answer == expected { Ok(()) } else { Err(format!("{order}: {answer}")) }
    }

    /// The next line; where there is none, why it ended.
    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).map_err(|error| error.to_string())? > 0 {
            return Ok(line.trim_end().to_owned());
        }
        let mut why = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut why).map_err(|error| error.to_string())?;
        }
        Err(why.trim().to_owned())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

fn up() -> Command {
    Command::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/up"))
}

fn given() -> Option<Cluster> {
    let nodes = std::env::var(NODES_VARIABLE).ok()?;
    let contact_points = nodes.split(',').map(|node| node.trim().to_owned()).collect();
    Some(Cluster { contact_points, engine: None, turn: tokio::sync::Mutex::default() })
}

//! The CQL engine that the tests use.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use scylla::client::session::Session;

use crate::{home, measure, product};

/// Empty answers in a row: by then each node has answered some of the requests.
const IDLE_ANSWERS: u32 = 10;

/// Waits until no node compacts what was written before. Only Cassandra has this table; for other engines this does not wait.
pub async fn idle(session: &Session, within: Duration) {
    let (mut idle_answers, begun) = (0, Instant::now());
    while idle_answers < IDLE_ANSWERS {
        assert!(begun.elapsed() < within, "the engine compacts for too long");
        let Ok(tasks) = session.query_unpaged("SELECT kind FROM system_views.sstable_tasks", ()).await else {
            return;
        };
        let is_idle = tasks.into_rows_result().unwrap().rows_num() == 0;
        idle_answers = if is_idle { idle_answers + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Nodes that are there, or were started and end with this process.
pub struct Engine {
    nodes: Vec<String>,
    started: Option<Child>,
}

impl Engine {
    pub fn start(nodes: u8) -> Self {
        if let Ok(named) = std::env::var("SIGNPOST_TEST_CQL_NODES") {
            return Self { nodes: named.split(',').map(|node| node.trim().to_owned()).collect(), started: None };
        }
        let up = home::repository().join("tests/cluster/up");
        let mut child = Command::new(up)
            .args(["--foreground", "--durable", "--measured", &nodes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let nodes = line.trim().strip_prefix("NODES=").expect("the engine's nodes");
        Self { nodes: nodes.split(',').map(str::to_owned).collect(), started: Some(child) }
    }

    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    pub fn replication_factor(&self) -> u32 {
        self.nodes.len().min(3) as u32
    }

    /// Settings of a program that keeps its data there.
    pub fn settings_of_program(&self, keyspace: &str) -> Vec<(String, String)> {
        let master_key = base64::prelude::BASE64_STANDARD.encode([7; 32]);
        let of_the_cluster = [
            ("SIGNPOST_STORE__KIND", "scylla"),
            ("SIGNPOST_SCYLLA__NODES", &self.nodes.join(",")),
            ("SIGNPOST_SCYLLA__KEYSPACE", keyspace),
            ("SIGNPOST_SCYLLA__REPLICATION_FACTOR", &self.replication_factor().to_string()),
            ("SIGNPOST_MASTER_KEY", &master_key),
        ];
        let of_the_cluster = of_the_cluster.map(|(name, value)| (name.to_owned(), value.to_owned()));
        product::settings().into_iter().chain(of_the_cluster).collect()
    }

    /// CPU time of all nodes since their start, in microseconds; of nodes that this process has not started it is not known.
    pub fn cpu(&self) -> Option<u64> {
        let up = self.started.as_ref()?.id();
        let children = fs::read_to_string(format!("/proc/{up}/task/{up}/children")).unwrap();
        Some(children.split_whitespace().map(|pid| measure::cpu(pid.parse().unwrap())).sum())
    }

    pub fn description(&self) -> String {
        let kind = if self.started.is_some() { "Cassandra of tests/cluster" } else { "as named" };
        format!("{kind}, {} nodes, replication factor {}", self.nodes.len(), self.replication_factor())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut child) = self.started.take() {
            // It ends its nodes when its standard input closes.
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

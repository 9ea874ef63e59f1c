//! Live streams on two nodes over one cluster, and on a node that is killed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::events::{Event, Events};
use crate::support::keys::{Key, text};
use crate::support::keyspaces::Keyspace;
use crate::support::process::{Process, Program};
use crate::support::server::{ROOT_KEY, Server, ServerBuilder};

/// Two nodes that share a keyspace, which outlives them.
struct TwoNodes {
    nodes: [Server; 2],
    _keyspace: Keyspace,
}

fn sharing(keyspace: &Keyspace) -> ServerBuilder {
    let server = Server::builder().set("SIGNPOST_TIERS__FREE__STREAMS_PER_MINUTE", "0");
    keyspace.settings().iter().fold(server, |server, (variable, value)| server.set(variable, value))
}

async fn two_nodes() -> TwoNodes {
    let started = tokio::task::spawn_blocking(|| {
        let keyspace = Keyspace::empty_blocking();
        let nodes = [(); 2].map(|()| sharing(&keyspace).start());
        TwoNodes { nodes, _keyspace: keyspace }
    });
    started.await.unwrap()
}

/// From here on a stream that has begun is complete.
async fn complete() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn at(server: &Server, key: &Key) -> Client {
    server.with_key(text(&key.record["key"]))
}

fn ids(hits: &[Value]) -> HashSet<String> {
    hits.iter().map(|hit| text(&hit["hit_id"]).to_owned()).collect()
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_stream_has_the_hits_of_all_nodes_and_goes_on_at_another_one() {
    let TwoNodes { nodes: [here, there], _keyspace } = two_nodes().await;
    let key = Key::new(&here, &here.root(), json!({"name": "owner"})).await;
    let [owner_here, elsewhere] = [&here, &there].map(|node| at(node, &key));
    let link = owner_here.any_link().await;
    let path = format!("/links/{link}/hits/stream");
    let mut events = Events::open(&owner_here, &path).await;
    let first_id = events.last_id.clone();
    complete().await;
    let clicked = Instant::now();
    there.click(&link, 3).await;
    here.click(&link, 2).await;
    let first = events.hits(5).await;
    assert!(clicked.elapsed() < Duration::from_secs(10));
    let last = events.last_id.clone();
    drop(events);
    there.click(&link, 2).await;
    here.click(&link, 2).await;
    // The other node has had no stream before.
    let mut events = Events::when_free(&elsewhere, &path, &last).await;
    let missed = events.hits(4).await;
    complete().await;
    here.click(&link, 2).await;
    there.click(&link, 1).await;
    let live = events.hits(3).await;
    events.expect_none_for(Duration::from_millis(700)).await;
    drop(events);
    let all = [first, missed, live].concat();
    assert_eq!(ids(&all).len(), 12, "each hit once");
    // And back, from the beginning.
    let mut events = Events::when_free(&owner_here, &path, &first_id).await;
    assert_eq!(ids(&events.hits(12).await), ids(&all));
    events.expect_none_for(Duration::from_millis(700)).await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_node_that_stops_leaves_no_gap() {
    let TwoNodes { nodes: [here, there], _keyspace } = two_nodes().await;
    let key = Key::new(&here, &here.root(), json!({"name": "owner"})).await;
    let link = at(&here, &key).any_link().await;
    let mut events = Events::open(&at(&here, &key), "/hits/stream").await;
    complete().await;
    here.click(&link, 2).await;
    there.click(&link, 2).await;
    let mut hits = events.hits(4).await;
    // It counts its last hits while it stops.
    here.click(&link, 3).await;
    let stopping = tokio::task::spawn_blocking(move || drop(here));
    while let Some(event) = events.next().await {
        assert_eq!(event.name, "hit");
        hits.push(event.data);
    }
    let last = events.last_id.clone();
    stopping.await.unwrap();
    there.click(&link, 1).await;
    let mut events = Events::when_free(&at(&there, &key), "/hits/stream", &last).await;
    let left = 8 - hits.len();
    hits.extend(events.hits(left).await);
    assert_eq!(ids(&hits).len(), 8, "each hit once");
    events.expect_none_for(Duration::from_millis(700)).await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn streams_are_counted_on_all_nodes_and_end_with_a_key_that_is_revoked_elsewhere() {
    let TwoNodes { nodes: [here, there], _keyspace } = two_nodes().await;
    let key = Key::new(&here, &here.root(), json!({"name": "owner"})).await;
    let events = Events::open(&at(&here, &key), "/hits/stream").await;
    at(&there, &key).get("/hits/stream").await.expect(429).problem("rate-limited");
    drop(events);
    let mut events = Events::when_free(&at(&there, &key), "/hits/stream", "").await;
    at(&here, &key).get("/hits/stream").await.expect(429).problem("rate-limited");
    let revoked = Instant::now();
    here.root().delete(&key.path()).await.expect(204);
    assert!(events.next().await.is_none());
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
}

fn root_at(process: &Process) -> Client {
    Client::new(&format!("http://{}", process.address), Some(ROOT_KEY))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_leaves_no_gap_once_it_runs_again() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Program::under_load(directory.path()).serve();
    let process = tokio::task::block_in_place(start);
    let root = root_at(&process);
    let link = root.any_link().await;
    let mut events = Events::open(&root, "/hits/stream").await;
    let click = async |root: &Client, times: usize| {
        for _ in 0..times {
            root.get(&format!("/{link}")).await.expect(302);
        }
    };
    click(&root, 3).await;
    let mut hits = events.hits(3).await;
    // Some of these are told and counted, some told, some in the journal alone.
    click(&root, 200).await;
    process.kill();
    let (mut last, mut skipped) = (events.last_id.clone(), 0);
    let note = |event: Event, hits: &mut Vec<Value>, skipped: &mut usize| match event.name.as_str() {
        "hit" => hits.push(event.data),
        _ => *skipped += usize::try_from(event.data["count"].as_u64().unwrap()).unwrap(),
    };
    while let Some(event) = events.next().await {
        last.clone_from(&event.id);
        note(event, &mut hits, &mut skipped);
    }
    let process = tokio::task::block_in_place(start);
    let root = root_at(&process);
    click(&root, 2).await;
    let mut events = Events::after(&root, "/hits/stream", &last).await;
    while hits.len() + skipped < 205 {
        note(events.next().await.unwrap(), &mut hits, &mut skipped);
    }
    assert_eq!(ids(&hits).len(), hits.len(), "each hit once");
    events.expect_none_for(Duration::from_millis(700)).await;
}

//! A node on whose way to the database nodes some requests are dropped or late.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use scylla_proxy::{
    Action, Condition, Node, Proxy, Reaction, RequestFrame, RequestOpcode, RequestReaction, RequestRule, RunningProxy,
    ShardAwareness,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::changes_seen::{
    AT_LAST, ChangeLog, LINKS_TTL, Nodes, SEEN_WITHIN, State, check, edit_unanswered, follow, state, stored_target,
};
use super::load::{Over, Random};
use crate::support::cluster::cluster_blocking;
use crate::support::keyspaces::{Keyspace, Place};
use crate::support::process::Process;
use crate::support::until;

const CUT_FOR: Duration = Duration::from_secs(10);
/// Before the cut. Nothing is changed then: of a link that has changed lately, little is kept anyway.
const PEACE: Duration = Duration::from_secs(1);
/// How late an edit is: other nodes watch the link for 15 s from the editor's entry on.
const LATE_BY: Duration = Duration::from_secs(17);
/// Between two edits.
const PAUSE: Duration = Duration::from_millis(100);

/// It answers from what it has for `cache.links_ttl` at the most, and 2 s after it reads the feed again, all that it answers
/// is as new as elsewhere.
#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_node_that_reads_no_changes_for_10_s_answers_nothing_older_than_its_cache_may_have() {
    let (runtime, cluster) = (Runtime::new().unwrap(), cluster_blocking(3));
    let _turn = runtime.block_on(cluster.turn());
    let (nodes, mut proxies) = third_behind_proxies(&runtime, LINKS_TTL);
    let link = nodes.new_link();
    let (log, over) = (ChangeLog::default(), AtomicBool::new(false));
    let mut random = Random::seeded();
    let mut number = 0;
    let mut edit_for = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            number += 1;
            // The third can't announce its edits during the cut.
            let node = random.one_of(&nodes.processes[..2]);
            log.make(State::Target(number), || Nodes::edit(node, &link, number));
            std::thread::sleep(PAUSE);
        }
    };
    let (answers, cut_begun, cut_over) = std::thread::scope(|scope| {
        let followers: Vec<_> =
            nodes.processes.iter().map(|node| scope.spawn(|| follow(node.address, &link, &over))).collect();
        let over_at_last = Over(&over);
        std::thread::sleep(PEACE);
        let mut cut = runtime.block_on(proxies.cut_feed());
        let cut_begun = Instant::now();
        edit_for(CUT_FOR);
        proxies.mend();
        let cut_over = Instant::now();
        assert!(cut.try_recv().is_ok(), "the node has asked for changes");
        edit_for(SEEN_WITHIN * 2);
        drop(over_at_last);
        let answers: Vec<_> = followers.into_iter().map(|follower| follower.join().unwrap()).collect();
        (answers, cut_begun, cut_over)
    });
    let changes = log.into_inner();
    let [first, second, cut] = &answers[..] else { panic!("three nodes") };
    check(&changes, first, SEEN_WITHIN);
    check(&changes, second, SEEN_WITHIN);
    // Never an old answer after a new one, also where the cut ends.
    check(&changes, cut, SEEN_WITHIN.max(LINKS_TTL));
    let after: Vec<_> = cut.iter().copied().filter(|(sent, _)| *sent > cut_over + SEEN_WITHIN).collect();
    assert!(!after.is_empty() && cut.iter().any(|(sent, _)| *sent < cut_begun));
    check(&changes, &after, SEEN_WITHIN);
}

/// An editor that has appended its entry to the feed and is stopped before its change gets to the cluster: it gets there
/// when nobody expects it any longer, and the editor dies. What the other nodes have of the link is valid for long.
#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn an_edit_that_is_made_late_by_a_node_that_dies_is_seen_by_the_others() {
    let (runtime, cluster) = (Runtime::new().unwrap(), cluster_blocking(3));
    let _turn = runtime.block_on(cluster.turn());
    let (mut nodes, mut proxies) = third_behind_proxies(&runtime, Duration::from_hours(1));
    let link = nodes.new_link();
    let seen = |node: &Process| state(&mut node.connect().unwrap(), &link);
    for node in &nodes.processes {
        assert_eq!(seen(node), State::Target(0));
    }
    let mut late = runtime.block_on(proxies.delay_edits());
    let mut editor = nodes.processes[2].connect().unwrap();
    std::thread::scope(|scope| {
        let link = &link;
        scope.spawn(move || edit_unanswered(&mut editor, link, 1));
        until("the edit is on its way", AT_LAST, || late.sent.try_recv().is_ok());
        nodes.processes[2].signal("STOP");
        // Meanwhile the others load the link, before it is changed.
        until("the edit is there", LATE_BY + AT_LAST, || {
            assert!(nodes.processes[..2].iter().all(|node| [0, 1].map(State::Target).contains(&seen(node))));
            late.arrived.try_recv().is_ok()
        });
        nodes.processes[2].kill_in_place();
    });
    until("the edit is made", SEEN_WITHIN, || stored_target(&nodes.processes[0], &link) == State::Target(1));
    let both_see_it = || nodes.processes[..2].iter().all(|node| (0..5).all(|_| seen(node) == State::Target(1)));
    until("the others see it", AT_LAST, both_see_it);
}

/// Three nodes, of which the third reaches the cluster through proxies.
fn third_behind_proxies(runtime: &Runtime, links_ttl: Duration) -> (Nodes, Proxies) {
    let keyspace = Keyspace::shared();
    let proxies = runtime.block_on(Proxies::before(&keyspace));
    (Nodes::start_on(keyspace, &proxies.place, links_ttl), proxies)
}

/// The outcome of edits that are late.
struct LateEdits {
    /// Those that were sent.
    sent: UnboundedReceiver<(RequestFrame, Option<u16>)>,
    /// Those that go on to the cluster now.
    arrived: UnboundedReceiver<()>,
}

/// Proxies in front of all database nodes.
struct Proxies {
    /// The cluster behind them.
    place: Place,
    direct: Place,
    proxy: RunningProxy,
}

impl Proxies {
    async fn before(direct: &Place) -> Self {
        let nodes: Vec<SocketAddr> = direct.contact_points.iter().map(|node| node.parse().unwrap()).collect();
        // On the nodes' own addresses: there the driver looks for them, at the port on which it first met one.
        let port = free_port(&nodes);
        let proxies = nodes
            .iter()
            .map(|node| Node::new(*node, SocketAddr::new(node.ip(), port), ShardAwareness::Unaware, None, None));
        let proxy = Proxy::new(proxies).run().await.unwrap();
        let contact_points = nodes.iter().map(|node| SocketAddr::new(node.ip(), port).to_string()).collect();
        Self { place: Place { contact_points, ..direct.clone() }, direct: direct.clone(), proxy }
    }

    /// From now on no request for the change feed gets through. Returns those that did not.
    async fn cut_feed(&mut self) -> UnboundedReceiver<(RequestFrame, Option<u16>)> {
        let ids = self.statements(&["link_changes"]).await;
        let (cut, dropped) = unbounded_channel();
        self.react(&ids, &RequestReaction::drop_frame().with_feedback_when_performed(cut));
        dropped
    }

    /// From now on changes of links get to the cluster late.
    async fn delay_edits(&mut self) -> LateEdits {
        let ids = self.statements(&["UPDATE links SET", "IF revision"]).await;
        let ((note, sent), (arrive, arrived)) = (unbounded_channel(), unbounded_channel());
        let pass = move |request| {
            // A test that has ended does not look.
            let _ = arrive.send(());
            request
        };
        let later = Action { delay: Some(LATE_BY), msg_processor: Some(Arc::new(pass)) };
        let late = RequestReaction { to_addressee: Some(later), ..RequestReaction::noop() };
        self.react(&ids, &late.with_feedback_when_performed(note));
        LateEdits { sent, arrived }
    }

    /// From now on requests of these statements meet `reaction`.
    fn react(&mut self, ids: &[Vec<u8>], reaction: &RequestReaction) {
        for node in &mut self.proxy.running_nodes {
            let rules = ids.iter().map(|id| RequestRule(asks_for(id), reaction.clone())).collect();
            node.change_request_rules(Some(rules));
        }
    }

    /// The ids of the prepared statements that have all of `parts`.
    async fn statements(&self, parts: &[&str]) -> Vec<Vec<u8>> {
        let statement = "SELECT prepared_id, query_string FROM system.prepared_statements";
        let session = self.direct.session().await;
        let rows = session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap();
        let statements = rows.rows::<(Vec<u8>, String)>().unwrap().map(Result::unwrap);
        let has_all = |(_, text): &(Vec<u8>, String)| parts.iter().all(|part| text.contains(part));
        statements.filter(has_all).map(|(id, _)| id).collect()
    }

    /// Everything gets through again.
    fn mend(&mut self) {
        self.proxy.turn_off_rules();
    }
}

/// A request of a prepared statement, alone or in a batch.
fn asks_for(id: &[u8]) -> Condition {
    let [execute, batch] =
        [RequestOpcode::Execute, RequestOpcode::Batch].map(|opcode| Box::new(Condition::RequestOpcode(opcode)));
    let has_id = Condition::BodyContainsCaseSensitive(id.into());
    Condition::And(Condition::Or(execute, batch).into(), has_id.into())
}

/// A port that is free on the addresses of all nodes.
fn free_port(nodes: &[SocketAddr]) -> u16 {
    let is_free = |port: u16| nodes.iter().all(|node| TcpListener::bind((node.ip(), port)).is_ok());
    let any = || TcpListener::bind((nodes[0].ip(), 0)).unwrap().local_addr().unwrap().port();
    std::iter::repeat_with(any).find(|port| is_free(*port)).unwrap()
}

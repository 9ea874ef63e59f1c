//! Key shards of two nodes exchange the requests that they admitted.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::System;
use async_trait::async_trait;
use signpost::actors::key_shard::exchange::{Sharing, WindowExchange};
use signpost::actors::key_shard::{AdmitRequest, ExchangeWindows, KeyShards, Panic};
use signpost::actors::supervisor::RestartHook;
use signpost::clock::Clock;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::rate_limit::RateLimitId;
use signpost::domain::window::{Admission, WindowId, WindowLog};
use signpost::store::StoreError;
use tokio::sync::watch;
use uuid::Uuid;

use crate::support::eventually;
use crate::support::rate_limits::{SHORTEN, SOME};

const KEY: KeyId = KeyId(Uuid::from_u128(0x0194_0000_0000_7000_8000_0000_0000_0001));
const NOW: Timestamp = Timestamp(1_795_000_000_000);
const LONG: Duration = Duration::from_secs(10);

/// The store of the nodes: the last published version of each window.
#[derive(Clone, Default)]
struct SharedMemory(Arc<Published>);

#[derive(Default)]
struct Published {
    logs: Mutex<HashMap<(usize, KeyId, RateLimitId), Vec<u64>>>,
    exchanges: AtomicUsize,
    reads: AtomicUsize,
    fails: AtomicBool,
    /// The key whose windows can't be published.
    fails_for: Mutex<Option<KeyId>>,
    panics: AtomicBool,
    /// While set, exchanges wait between their write and their read.
    holds: watch::Sender<bool>,
}

impl SharedMemory {
    fn exchanges(&self) -> usize {
        self.0.exchanges.load(Ordering::SeqCst)
    }

    /// How many requests a node has published.
    fn published_requests(&self, node: usize) -> usize {
        let logs = self.0.logs.lock().unwrap();
        logs.iter().filter(|((of, ..), _)| *of == node).map(|(_, times)| times.len()).sum()
    }

    fn forget(&self) {
        self.0.logs.lock().unwrap().clear();
    }

    fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    async fn has_started(&self, exchanges: usize) {
        eventually("an exchange", LONG, async || (self.exchanges() >= exchanges).then_some(())).await;
    }
}

/// The shared store as one node uses it.
struct MemoryExchange {
    node: usize,
    shared: SharedMemory,
}

#[async_trait]
impl WindowExchange for MemoryExchange {
    async fn exchange(&self, own: Vec<WindowLog>) -> Result<Vec<WindowLog>, StoreError> {
        let published = &self.shared.0;
        let panics = published.panics.swap(false, Ordering::SeqCst);
        let fails = published.fails.load(Ordering::SeqCst);
        if !panics && !fails {
            let mut logs = published.logs.lock().unwrap();
            logs.extend(own.iter().map(|log| ((self.node, log.key, log.rate_limit), log.admitted_ms.clone())));
        }
        // The count follows the write, so that whoever waits for it finds what was published.
        published.exchanges.fetch_add(1, Ordering::SeqCst);
        assert!(!panics, "a test wants this panic");
        if fails || own.iter().any(|log| Some(log.key) == *published.fails_for.lock().unwrap()) {
            return Err(StoreError::Unavailable("switched off by a test".into()));
        }
        Ok(self.others(&own.iter().map(|log| (log.key, log.rate_limit)).collect::<Vec<_>>()).await)
    }

    async fn read_others(&self, windows: Vec<WindowId>) -> Result<Vec<WindowLog>, StoreError> {
        let published = &self.shared.0;
        published.reads.fetch_add(1, Ordering::SeqCst);
        if published.fails.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("switched off by a test".into()));
        }
        Ok(self.others(&windows).await)
    }
}

impl MemoryExchange {
    async fn others(&self, asked: &[WindowId]) -> Vec<WindowLog> {
        let published = &self.shared.0;
        let mut holds = published.holds.subscribe();
        holds.wait_for(|holds| !holds).await.unwrap();
        let logs = published.logs.lock().unwrap();
        let of_others = logs
            .iter()
            .filter(|((node, key, rate_limit), _)| *node != self.node && asked.contains(&(*key, *rate_limit)));
        of_others
            .map(|((_, key, rate_limit), times)| WindowLog {
                key: *key,
                rate_limit: *rate_limit,
                admitted_ms: times.clone(),
            })
            .collect()
    }
}

/// A node with one shard, which exchanges only on demand.
struct Node {
    shards: KeyShards,
    clock: Clock,
    restarts: Arc<AtomicUsize>,
}

impl Node {
    fn start(node: usize, shared: &SharedMemory, clock: &Clock) -> Self {
        let sharing = Self::sharing(node, shared, clock);
        Self::start_with(Sharing { every: Duration::from_hours(1), ..sharing })
    }

    fn sharing(node: usize, shared: &SharedMemory, clock: &Clock) -> Sharing {
        Sharing::new(MemoryExchange { node, shared: shared.clone() }, clock.clone())
    }

    fn start_with(sharing: Sharing) -> Self {
        let clock = sharing.clock.clone();
        let restarts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&restarts);
        let on_restart: RestartHook = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let shards = KeyShards::start(NonZeroUsize::MIN, Some(sharing), &on_restart).unwrap();
        Self { shards, clock, restarts }
    }

    fn request(&self, limit: u32) -> AdmitRequest {
        AdmitRequest { key: KEY, rate_limit: SHORTEN, limit, now: self.clock.now() }
    }

    async fn ask(&self, limit: u32) -> Admission {
        self.shards.admit(self.request(limit)).await.unwrap().admission.unwrap()
    }

    async fn admitted(&self, limit: u32, times: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..times {
            admitted += usize::from(self.ask(limit).await.is_admitted());
        }
        admitted
    }

    async fn exchange(&self) {
        self.shards.shard(KEY).ask_once(ExchangeWindows).await.unwrap();
    }

    fn begin_exchange(&self) {
        assert_eq!(self.shards.shard(KEY).try_send(ExchangeWindows), Ok(()));
    }

    async fn has_restarted(&self, times: usize) {
        let restarts = || self.restarts.load(Ordering::SeqCst);
        eventually("a restart", LONG, async || (restarts() == times).then_some(())).await;
    }
}

/// Runs a test of two nodes with the same clock.
fn with_two_nodes(test: impl AsyncFnOnce(&Node, &Node, &SharedMemory, &Clock)) {
    System::new().block_on(async {
        let (shared, clock) = (SharedMemory::default(), Clock::standing_at(NOW));
        let nodes = [0, 1].map(|node| Node::start(node, &shared, &clock));
        test(&nodes[0], &nodes[1], &shared, &clock).await;
        nodes[0].shards.stop().await;
        nodes[1].shards.stop().await;
    });
}

#[test]
fn two_nodes_apply_one_limit_after_an_exchange() {
    with_two_nodes(async |one, another, _, clock| {
        assert_eq!(one.admitted(10, 4).await, 4);
        clock.advance(Duration::from_secs(5));
        assert_eq!(another.admitted(10, 3).await, 3);
        one.exchange().await;
        another.exchange().await;
        // The oldest request leaves the window 55 s from now.
        assert_eq!(another.ask(10).await, Admission::Admitted { remaining: 2, reset_seconds: 55 });
        assert_eq!(another.admitted(10, 20).await, 2, "four there, four here");
        assert_eq!(another.ask(10).await, Admission::Refused { retry_after_seconds: 55 });
        assert_eq!(one.ask(10).await, Admission::Admitted { remaining: 5, reset_seconds: 55 }, "not told yet");
        for node in [another, one] {
            node.exchange().await;
        }
        // Eleven of ten: the two oldest must leave the window, and the first node admitted four at that time.
        assert_eq!(one.ask(10).await, Admission::Refused { retry_after_seconds: 55 });
        clock.advance(Duration::from_secs(55));
        assert_eq!(one.admitted(10, 20).await, 3, "four have left of eleven");
    });
}

#[test]
fn a_node_that_has_nothing_to_tell_does_not_exchange() {
    with_two_nodes(async |one, another, shared, _| {
        one.exchange().await;
        assert_eq!(shared.exchanges(), 0);
        one.ask(1).await;
        one.exchange().await;
        one.exchange().await;
        assert_eq!((shared.exchanges(), shared.published_requests(0)), (1, 1));
        let no_limit = AdmitRequest { key: KEY, rate_limit: SHORTEN, limit: 0, now: NOW };
        another.shards.admit(no_limit).await.unwrap();
        another.exchange().await;
        assert_eq!(shared.exchanges(), 1, "there is no window where there is no limit");
    });
}

#[test]
fn a_refused_request_asks_the_others_again() {
    with_two_nodes(async |one, another, shared, _| {
        another.ask(2).await;
        another.exchange().await;
        one.ask(2).await;
        one.exchange().await;
        assert!(!one.ask(2).await.is_admitted());
        shared.forget();
        one.exchange().await;
        assert!(one.ask(2).await.is_admitted(), "nobody has anything of a window that nobody tells of");
    });
}

#[test]
fn requests_admitted_during_an_exchange_are_published_by_the_next() {
    with_two_nodes(async |one, another, shared, _| {
        one.ask(10).await;
        shared.0.holds.send_replace(true);
        one.begin_exchange();
        shared.has_started(1).await;
        assert_eq!(one.admitted(10, 3).await, 3, "requests do not wait for it");
        shared.0.holds.send_replace(false);
        eventually("the next exchange", LONG, async || {
            one.exchange().await;
            (shared.published_requests(0) == 4).then_some(())
        })
        .await;
        assert_eq!(shared.exchanges(), 2);
        another.ask(5).await;
        another.exchange().await;
        assert!(!another.ask(5).await.is_admitted());
    });
}

#[test]
fn no_exchange_starts_during_a_slow_one() {
    with_two_nodes(async |one, _, shared, _| {
        one.ask(10).await;
        shared.0.holds.send_replace(true);
        one.begin_exchange();
        shared.has_started(1).await;
        for _ in 0..5 {
            one.ask(10).await;
            one.exchange().await;
        }
        assert_eq!(shared.exchanges(), 1);
        shared.0.holds.send_replace(false);
    });
}

#[test]
fn an_exchange_that_failed_is_made_up_for_by_the_next() {
    with_two_nodes(async |one, another, shared, clock| {
        another.ask(3).await;
        another.exchange().await;
        one.ask(3).await;
        one.exchange().await;
        shared.0.fails.store(true, Ordering::SeqCst);
        assert!(one.ask(3).await.is_admitted());
        for _ in 0..3 {
            one.exchange().await;
        }
        assert!(!one.ask(3).await.is_admitted(), "what was told before stays counted");
        assert_eq!(shared.published_requests(0), 1);
        clock.advance(Duration::from_secs(1));
        shared.0.fails.store(false, Ordering::SeqCst);
        one.exchange().await;
        assert_eq!(shared.published_requests(0), 2, "though nobody asked since");
    });
}

#[test]
fn an_exchange_that_a_panic_cut_short_is_made_up_for() {
    with_two_nodes(async |one, _, shared, _| {
        one.ask(10).await;
        shared.0.holds.send_replace(true);
        one.begin_exchange();
        shared.has_started(1).await;
        shared.forget();
        one.shards.shard(KEY).try_send(Panic).unwrap();
        one.has_restarted(1).await;
        shared.0.holds.send_replace(false);
        one.exchange().await;
        assert_eq!(shared.published_requests(0), 1);
    });
}

#[test]
fn a_panic_in_an_exchange_loses_no_count_and_the_next_is_made() {
    with_two_nodes(async |one, _, shared, _| {
        one.ask(2).await;
        shared.0.panics.store(true, Ordering::SeqCst);
        one.begin_exchange();
        one.has_restarted(1).await;
        one.exchange().await;
        assert_eq!((shared.exchanges(), shared.published_requests(0)), (2, 1));
        assert_eq!(one.admitted(2, 5).await, 1);
    });
}

#[test]
fn an_exchange_without_end_is_given_up() {
    System::new().block_on(async {
        let (shared, clock) = (SharedMemory::default(), Clock::standing_at(NOW));
        let sharing = Node::sharing(0, &shared, &clock);
        let node =
            Node::start_with(Sharing { every: Duration::from_hours(1), exchange_timeout: LONG / 1000, ..sharing });
        node.ask(1).await;
        shared.0.holds.send_replace(true);
        node.exchange().await;
        node.exchange().await;
        assert_eq!(shared.exchanges(), 2);
        node.shards.stop().await;
    });
}

#[test]
fn shards_exchange_by_themselves_again_and_again_also_after_a_panic() {
    System::new().block_on(async {
        let (shared, clock) = (SharedMemory::default(), Clock::standing_at(NOW));
        let sharing = Node::sharing(0, &shared, &clock);
        let node = Node::start_with(Sharing { every: Duration::from_millis(5), ..sharing });
        for told in 1..4 {
            node.ask(10).await;
            eventually("an exchange", LONG, async || (shared.published_requests(0) == told).then_some(())).await;
            node.shards.shard(KEY).try_send(Panic).unwrap();
            node.has_restarted(told).await;
        }
        node.shards.stop().await;
    });
}

#[test]
fn every_key_and_endpoint_is_published_separately() {
    with_two_nodes(async |one, another, _, _| {
        let request = |key, rate_limit| AdmitRequest { key, rate_limit, limit: 2, now: NOW };
        let keys = [KEY, KeyId(Uuid::from_u128(KEY.0.as_u128() + 1))];
        for key in keys {
            for rate_limit in SOME.into_iter().filter(|rate_limit| rate_limit.index() % 2 == 0) {
                one.shards.admit(request(key, rate_limit)).await.unwrap();
            }
        }
        one.exchange().await;
        for key in keys {
            for rate_limit in SOME {
                another.shards.admit(request(key, rate_limit)).await.unwrap();
            }
        }
        another.exchange().await;
        for key in keys {
            for rate_limit in SOME {
                let admission = another.shards.admit(request(key, rate_limit)).await.unwrap().admission.unwrap();
                assert_eq!(admission.is_admitted(), rate_limit.index() % 2 == 1, "{rate_limit:?}");
            }
        }
    });
}

#[test]
fn a_key_that_fails_hides_no_window_of_another() {
    with_two_nodes(async |one, another, shared, _| {
        let other = KeyId(Uuid::from_u128(KEY.0.as_u128() + 1));
        let is_admitted = async |node: &Node, key| {
            let request = AdmitRequest { key, rate_limit: SHORTEN, limit: 2, now: NOW };
            node.shards.admit(request).await.unwrap().admission.unwrap().is_admitted()
        };
        for (node, key) in [(one, KEY), (one, other), (another, KEY), (another, other)] {
            assert!(is_admitted(node, key).await);
        }
        *shared.0.fails_for.lock().unwrap() = Some(KEY);
        one.exchange().await;
        another.exchange().await;
        assert!(!is_admitted(another, other).await);
        assert!(is_admitted(another, KEY).await, "nobody has told it of the request at the other node");
        *shared.0.fails_for.lock().unwrap() = None;
        one.exchange().await;
        another.exchange().await;
        assert!(!is_admitted(one, KEY).await);
    });
}

#[test]
fn a_node_that_was_never_asked_for_a_key_knows_what_the_others_let_in() {
    with_two_nodes(async |one, another, shared, clock| {
        assert_eq!(one.admitted(120, 130).await, 120);
        one.exchange().await;
        clock.advance(Duration::from_millis(2_500));
        assert_eq!(another.admitted(120, 26).await, 0);
        assert_eq!(another.ask(120).await, Admission::Refused { retry_after_seconds: 58 });
        // Each node has read once, whatever the number of requests.
        assert_eq!(shared.reads(), 2);
    });
}

#[test]
fn a_node_refuses_nothing_below_the_limit_at_first() {
    with_two_nodes(async |one, another, _, _| {
        one.admitted(10, 4).await;
        one.exchange().await;
        assert_eq!(another.admitted(10, 26).await, 6);
    });
}

#[test]
fn a_window_is_read_for_a_minute_after_its_last_request() {
    with_two_nodes(async |one, another, shared, clock| {
        another.ask(10).await;
        clock.advance(Duration::from_secs(50));
        assert_eq!(one.admitted(10, 10).await, 10);
        one.exchange().await;
        another.exchange().await;
        another.exchange().await;
        let (exchanges, reads) = (shared.exchanges(), shared.reads());
        assert_eq!(another.admitted(10, 26).await, 0);
        assert_eq!((shared.exchanges(), shared.reads()), (exchanges, reads), "that is at hand");

        clock.advance(Duration::from_mins(2));
        another.exchange().await;
        another.exchange().await;
        let reads = shared.reads();
        another.exchange().await;
        assert_eq!(shared.reads(), reads, "nobody asks for it any more");
        assert_eq!(one.admitted(10, 10).await, 10);
        one.exchange().await;
        assert_eq!(another.admitted(10, 26).await, 0, "it is heard of anew");
    });
}

#[test]
fn concurrent_requests_read_a_window_once_and_delay_no_others() {
    with_two_nodes(async |one, another, shared, _| {
        one.admitted(20, 15).await;
        one.exchange().await;
        let reads = shared.reads();
        shared.0.holds.send_replace(true);
        let asked: Vec<_> = (0..50)
            .map(|_| another.shards.shard(KEY).clone())
            .map(|shard| (shard, another.request(20)))
            .map(|(shard, request)| actix::spawn(async move { shard.ask(request).await }))
            .collect();
        eventually("one of them hears", LONG, async || (shared.reads() > reads).then_some(())).await;
        let no_limit = AdmitRequest { limit: 0, ..another.request(20) };
        assert_eq!(another.shards.admit(no_limit).await.unwrap().admission, None);
        assert!(asked.iter().all(|asked| !asked.is_finished()));
        shared.0.holds.send_replace(false);
        let mut admitted = 0;
        for asked in asked {
            admitted += usize::from(asked.await.unwrap().unwrap().admission.unwrap().is_admitted());
        }
        assert_eq!((admitted, shared.reads()), (5, reads + 1));
    });
}

#[test]
fn a_window_that_cannot_be_read_is_decided_by_what_is_known() {
    System::new().block_on(async {
        let (shared, clock) = (SharedMemory::default(), Clock::standing_at(NOW));
        let one = Node::start(0, &shared, &clock);
        one.admitted(10, 10).await;
        one.exchange().await;
        for hangs in [false, true] {
            let node = 1 + usize::from(hangs);
            let sharing = Sharing { read_timeout: LONG / 1000, ..Node::sharing(node, &shared, &clock) };
            let another = Node::start_with(Sharing { every: Duration::from_hours(1), ..sharing });
            shared.0.fails.store(!hangs, Ordering::SeqCst);
            shared.0.holds.send_replace(hangs);
            let reads = shared.reads();
            assert_eq!(another.admitted(10, 2).await, 2);
            assert_eq!(shared.reads(), reads + 1, "it is not asked for by every request");
            shared.0.fails.store(false, Ordering::SeqCst);
            shared.0.holds.send_replace(false);
            another.exchange().await;
            assert!(!another.ask(10).await.is_admitted());
            another.shards.stop().await;
        }
        one.shards.stop().await;
    });
}

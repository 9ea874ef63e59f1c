//! The cache of redirect look-ups.

mod readers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use signpost::cache::clock::CacheClock;
use signpost::cache::links::{LinkCache, LinkCacheSettings};
use signpost::cache::worker_cache::WorkerCache;
use signpost::domain::blocked_hosts::{BlockedHosts, HostList};
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::link::{BaseUrl, Link, LinkName, NewLink, Revision, ShortId, TargetUrl};
use signpost::store::embedded::EmbeddedStore;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::store::{LinkChange, LinkStore, Store};

use crate::support;

fn target(number: u32) -> TargetUrl {
    let this_service = BaseUrl::new(url::Url::parse("https://sign.example").unwrap());
    TargetUrl::parse(&format!("https://example.com/{number}"), &this_service).unwrap()
}

/// Leads to `https://example.com/1`, where 1 is its revision.
fn link() -> Link {
    NewLink::to(target(1)).made(ShortId::parse("abcdefg").unwrap(), KeyId(uuid::Uuid::nil()), Timestamp(0))
}

fn settings() -> LinkCacheSettings {
    let minute = Duration::from_mins(1);
    let clock = CacheClock::default();
    LinkCacheSettings { capacity: 100, found_for: minute, missing_for: minute, is_shared: false, clock, noindex: true }
}

/// A cache over a store with one link.
struct Ground {
    _directory: tempfile::TempDir,
    behind: Arc<dyn Store>,
    cache: Arc<LinkCache>,
    switch: FaultSwitch,
    name: LinkName,
}

impl Ground {
    async fn new() -> Self {
        Self::with(settings()).await
    }

    async fn with(settings: LinkCacheSettings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let behind: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 1 << 20).unwrap());
        behind.create_link(link(), None).await.unwrap();
        let switch = FaultSwitch::default();
        let store = Arc::new(FaultyStore::new(Arc::clone(&behind), switch.clone()));
        let cache = Arc::new(LinkCache::new(store, BlockedHosts::default(), settings));
        Self { _directory: directory, behind, cache, switch, name: link().name() }
    }

    /// Changes the link in the store, to lead to its next revision.
    async fn edit(&self) {
        let link = self.behind.link(self.name).await.unwrap().unwrap();
        let revision = link.revision.next();
        self.behind.update_link(Link { revision, target: target(revision.0), ..link }).await.unwrap();
    }

    /// As the service changes it.
    async fn change(&self) {
        let changing = self.cache.begin_change(self.name);
        self.edit().await;
        changing.done();
    }

    async fn loaded(&self) -> u32 {
        self.cache.load(&self.name).await.unwrap().unwrap().revision
    }

    /// The revision in the cache.
    fn cached(&self) -> Option<u32> {
        Some(self.cache.get(&self.name)?.unwrap().revision)
    }

    /// What a worker answers with: from its own cache, else from the shared one.
    fn near(&self, near: &mut WorkerCache) -> Option<u32> {
        if let Some(link) = near.get(&self.name) {
            return Some(link.revision);
        }
        let link = self.cache.get(&self.name)??;
        near.put(&link);
        Some(link.revision)
    }
}

/// The faulty store of the other tests has no links in memory.
#[tokio::test]
async fn a_link_in_the_memory_of_the_store_needs_no_load() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 1 << 20).unwrap());
    store.create_link(link(), None).await.unwrap();
    let cache = LinkCache::new(Arc::clone(&store) as Arc<dyn Store>, BlockedHosts::default(), settings());
    assert!(cache.get(&link().name()).is_none());
    let Some(found) = cache.take_known(&link().name()) else {
        assert!(!support::tells_what_is_in_memory(directory.path()));
        return;
    };
    assert_eq!((found.id, found.owner, found.tracked, found.webhooks.count()), (link().id, link().owner, true, 0));
    assert_eq!(found.head.location, "https://example.com/1");
    assert!(Arc::ptr_eq(&found, &cache.get(&link().name()).flatten().unwrap()));
    // Not every link is inserted, but a popular one soon is.
    let other = Link { id: ShortId::parse("abcdefh").unwrap(), ..link() };
    store.create_link(other.clone(), None).await.unwrap();
    let asked = (1..=8).find(|_| cache.take_known(&other.name()).is_some() && cache.get(&other.name()).is_some());
    assert_eq!(asked, Some(8));
}

#[tokio::test]
async fn one_load_serves_all_who_ask_at_the_same_time() {
    let ground = Ground::new().await;
    ground.switch.holds_calls(true);
    let asks = futures_util::future::join_all((0..10).map(|_| ground.cache.load(&ground.name)));
    tokio::pin!(asks);
    // All ten have asked once they were polled.
    assert!(futures_util::poll!(&mut asks).is_pending());
    ground.switch.held(1).await;
    assert!(tokio::time::timeout(Duration::ZERO, ground.switch.held(2)).await.is_err(), "the store is asked once");
    ground.switch.holds_calls(false);
    for answer in asks.await {
        assert_eq!(answer.unwrap().unwrap().head.location, "https://example.com/1");
    }
    ground.switch.out_of_reach(true);
    assert_eq!(ground.cached(), Some(1), "and not again");
}

#[tokio::test]
async fn an_error_goes_to_all_callers_and_the_next_caller_asks_again() {
    let ground = Ground::new().await;
    ground.switch.out_of_reach(true);
    let answers = futures_util::future::join_all((0..3).map(|_| ground.cache.load(&ground.name))).await;
    assert!(answers.iter().all(Result::is_err));
    assert!(ground.cache.get(&ground.name).is_none(), "an error is not kept");
    ground.switch.out_of_reach(false);
    assert_eq!(ground.loaded().await, 1);
}

#[tokio::test]
async fn a_name_that_is_not_there_is_known_not_to_be() {
    let ground = Ground::new().await;
    let missing = LinkName::parse("missing-name").unwrap();
    assert!(ground.cache.load(&missing).await.unwrap().is_none());
    ground.switch.out_of_reach(true);
    assert!(ground.cache.get(&missing).is_some_and(|entry| entry.is_none()));
}

#[tokio::test]
async fn a_change_is_seen_by_all_workers_once_it_is_done() {
    let ground = Ground::new().await;
    let mut workers = [(); 3].map(|()| WorkerCache::new(&ground.cache));
    ground.loaded().await;
    assert!(workers.iter_mut().all(|near| ground.near(near) == Some(1)));
    ground.change().await;
    assert!(workers.iter_mut().all(|near| ground.near(near).is_none()), "it has to be loaded again");
    assert_eq!(ground.loaded().await, 2);
    assert!(workers.iter_mut().all(|near| ground.near(near) == Some(2)));
}

#[tokio::test]
async fn a_worker_that_misses_more_changes_than_are_remembered_forgets_everything() {
    let ground = Ground::new().await;
    let mut near = WorkerCache::new(&ground.cache);
    ground.loaded().await;
    assert_eq!(ground.near(&mut near), Some(1));
    let others = (0..2_000).map(|number| LinkName::parse(&format!("other-{number}")).unwrap());
    others.for_each(|other| ground.cache.begin_change(other).done());
    assert!(near.get(&ground.name).is_none());
}

/// A request that comes after the answer of a change never gets what was loaded before it.
#[tokio::test]
async fn a_load_from_before_a_change_serves_nobody() {
    let ground = Ground::new().await;
    ground.switch.loses_answers(false);
    ground.switch.holds_calls(true);
    let first = ground.cache.load(&ground.name);
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    ground.switch.held(1).await;
    ground.change().await;
    // It would join the load that is held.
    let second = ground.cache.load(&ground.name);
    tokio::pin!(second);
    assert!(futures_util::poll!(&mut second).is_pending());
    ground.switch.holds_calls(false);
    let (first, second) = tokio::join!(first, second);
    assert_eq!([first, second].map(|loaded| loaded.unwrap().unwrap().revision), [2, 2]);
    assert_eq!(ground.cached(), Some(2));
}

#[tokio::test]
async fn what_is_loaded_during_a_change_is_not_kept() {
    let ground = Ground::new().await;
    let mut near = WorkerCache::new(&ground.cache);
    let changing = ground.cache.begin_change(ground.name);
    assert_eq!(ground.loaded().await, 1);
    assert!(ground.cached().is_none() && ground.near(&mut near).is_none());
    ground.edit().await;
    changing.done();
    assert_eq!(ground.loaded().await, 2);
    assert_eq!((ground.cached(), ground.near(&mut near)), (Some(2), Some(2)));
}

#[tokio::test]
async fn a_change_whose_caller_is_cancelled_is_forgotten_too() {
    let ground = Ground::new().await;
    ground.loaded().await;
    let changing = ground.cache.begin_change(ground.name);
    ground.edit().await;
    drop(changing);
    assert_eq!(ground.loaded().await, 2);
    assert_eq!(ground.cached(), Some(2), "and it is kept again");
}

/// A link that another node has changed, or is about to change.
#[tokio::test]
async fn a_watched_link_is_kept_briefly_and_by_no_worker_and_never_goes_back() {
    let time = Arc::new(AtomicU64::new(1_000_000));
    let clock = CacheClock::Test(Arc::clone(&time));
    let ground = Ground::with(LinkCacheSettings { is_shared: true, clock, ..settings() }).await;
    let mut near = WorkerCache::new(&ground.cache);
    ground.loaded().await;
    assert_eq!(ground.near(&mut near), Some(1));

    let change = LinkChange::Link { name: ground.name, id: link().id };
    ground.cache.note_change(change);
    assert!(ground.near(&mut near).is_none() && ground.cached().is_none());
    assert_eq!(ground.loaded().await, 1);
    assert_eq!(ground.near(&mut near), Some(1));
    // The other node changes it now.
    ground.edit().await;
    time.fetch_add(500, Ordering::SeqCst);
    assert!(ground.near(&mut near).is_none(), "neither the shared cache nor the worker has kept it for longer");
    assert_eq!(ground.loaded().await, 2);
    time.fetch_add(15_000, Ordering::SeqCst);
    assert_eq!(ground.loaded().await, 2);
    assert_eq!(ground.near(&mut near), Some(2));
    time.fetch_add(10_000, Ordering::SeqCst);
    assert_eq!(ground.near(&mut near), Some(2), "it is kept again");
}

/// As after a SIGSTOP: no timer has run.
#[tokio::test]
async fn a_link_of_a_shared_store_is_not_used_after_its_time() {
    let time = Arc::new(AtomicU64::new(1_000_000));
    let clock = CacheClock::Test(Arc::clone(&time));
    let ground = Ground::with(LinkCacheSettings { is_shared: true, clock, ..settings() }).await;
    let mut near = WorkerCache::new(&ground.cache);
    ground.loaded().await;
    assert_eq!(ground.near(&mut near), Some(1));
    time.fetch_add(59_999, Ordering::SeqCst);
    assert_eq!((ground.near(&mut near), ground.cached()), (Some(1), Some(1)));
    time.fetch_add(1, Ordering::SeqCst);
    assert_eq!((ground.near(&mut near), ground.cached()), (None, None));
}

#[tokio::test]
async fn when_changes_may_have_been_missed_everything_is_forgotten() {
    let ground = Ground::new().await;
    let mut near = WorkerCache::new(&ground.cache);
    ground.loaded().await;
    assert_eq!(ground.near(&mut near), Some(1));
    ground.edit().await;
    ground.cache.note_change(LinkChange::Unknown);
    assert!(ground.near(&mut near).is_none());
    assert_eq!(ground.loaded().await, 2);
}

#[tokio::test]
async fn links_to_blocked_hosts_lead_nowhere_once_the_list_is_replaced() {
    use signpost::cache::link::RedirectOutcome;

    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 1 << 20).unwrap());
    store.create_link(link(), None).await.unwrap();
    let hosts = BlockedHosts::default();
    let cache = Arc::new(LinkCache::new(store, hosts.clone(), settings()));
    let is_blocked = async || {
        let link = cache.load(&link().name()).await.unwrap().unwrap();
        matches!(link.redirect_at(Timestamp(5)), RedirectOutcome::Blocked)
    };
    assert!(!is_blocked().await);
    assert!(hosts.replace(HostList::parse("example.com").0));
    cache.forget_all();
    assert!(cache.get(&link().name()).is_none() && is_blocked().await);
    assert_eq!(link().revision, Revision::FIRST);
}

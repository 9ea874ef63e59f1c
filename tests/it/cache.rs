//! The cache of redirect look-ups.

use std::sync::Arc;
use std::time::Duration;

use signpost::cache::links::{LinkCache, LinkCacheSettings};
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::link::{BaseUrl, Link, NewLink, ShortId, TargetUrl};
use signpost::store::embedded::EmbeddedStore;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::store::{LinkStore, Store};

use crate::support;

fn link() -> Link {
    let this_service = BaseUrl::new(url::Url::parse("https://sign.example").unwrap());
    let target = TargetUrl::parse("https://example.com/", &this_service).unwrap();
    NewLink::to(target).made(ShortId::parse("abcdefg").unwrap(), KeyId(uuid::Uuid::nil()), Timestamp(0))
}

fn settings() -> LinkCacheSettings {
    let minute = Duration::from_mins(1);
    LinkCacheSettings { capacity: 100, found_for: minute, missing_for: minute }
}

/// A cache over a store with one link.
async fn cache() -> (tempfile::TempDir, LinkCache, FaultSwitch, ShortId) {
    let directory = tempfile::tempdir().unwrap();
    let behind: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 1 << 20).unwrap());
    let link = link();
    let id = link.id;
    behind.create_link(link, None).await.unwrap();
    let switch = FaultSwitch::default();
    let store = Arc::new(FaultyStore::new(behind, switch.clone()));
    (directory, LinkCache::new(store, settings()), switch, id)
}

/// The faulty store of the other tests has no links in memory.
#[tokio::test]
async fn a_link_in_the_memory_of_the_store_needs_no_load() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&directory.path().join("store"), 1 << 20).unwrap());
    store.create_link(link(), None).await.unwrap();
    let cache = LinkCache::new(Arc::clone(&store) as Arc<dyn Store>, settings());
    assert!(cache.get(link().id).is_none());
    let Some(found) = cache.take_known(link().id) else {
        assert!(!support::tells_what_is_in_memory(directory.path()));
        return;
    };
    assert_eq!((found.id, found.owner, found.tracked, found.webhooks), (link().id, link().owner, true, 0));
    assert_eq!(found.location, "https://example.com/");
    assert!(Arc::ptr_eq(&found, &cache.get(link().id).flatten().unwrap()));
    // Not every link is inserted, but a popular one soon is.
    let other = Link { id: ShortId::parse("abcdefh").unwrap(), ..link() };
    store.create_link(other.clone(), None).await.unwrap();
    let asked = (1..=8).find(|_| cache.take_known(other.id).is_some() && cache.get(other.id).is_some());
    assert_eq!(asked, Some(8));
}

#[tokio::test]
async fn one_load_serves_all_who_ask_at_the_same_time() {
    let (_directory, cache, switch, id) = cache().await;
    switch.holds_calls(true);
    let asks = futures_util::future::join_all((0..10).map(|_| cache.load(id)));
    tokio::pin!(asks);
    // All ten have asked once they were polled.
    assert!(futures_util::poll!(&mut asks).is_pending());
    switch.held(1).await;
    assert!(tokio::time::timeout(Duration::ZERO, switch.held(2)).await.is_err(), "the store is asked once");
    switch.holds_calls(false);
    for answer in asks.await {
        assert_eq!(answer.unwrap().unwrap().location, "https://example.com/");
    }
    switch.out_of_reach(true);
    assert!(cache.get(id).flatten().is_some(), "and not again");
}

#[tokio::test]
async fn an_error_goes_to_all_callers_and_the_next_caller_asks_again() {
    let (_directory, cache, switch, id) = cache().await;
    switch.out_of_reach(true);
    let answers = futures_util::future::join_all((0..3).map(|_| cache.load(id))).await;
    assert!(answers.iter().all(Result::is_err));
    assert!(cache.get(id).is_none(), "an error is not kept");
    switch.out_of_reach(false);
    assert!(cache.load(id).await.unwrap().is_some());
}

#[tokio::test]
async fn an_id_that_is_not_there_is_known_not_to_be() {
    let (_directory, cache, switch, _) = cache().await;
    let missing = ShortId::parse("missing").unwrap();
    assert!(cache.load(missing).await.unwrap().is_none());
    switch.out_of_reach(true);
    assert!(cache.get(missing).is_some_and(|entry| entry.is_none()));
}

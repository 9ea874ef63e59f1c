//! The background upkeep of links: expired links are deleted, and the counts of deleted ones removed.

use std::sync::Arc;
use std::time::Duration;

use signpost::cache::clock::CacheClock;
use signpost::cache::links::{LinkCache, LinkCacheSettings};
use signpost::clock::Clock;
use signpost::clock::removal::RemovalClock;
use signpost::domain::blocked_hosts::BlockedHosts;
use signpost::domain::breakdown::DEFAULT_SHEET_DAYS;
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::HitBatch;
use signpost::domain::link::{Link, LinkOptions};
use signpost::service::link_upkeep::{LinkUpkeep, UpkeepSettings};
use signpost::store::Store;

use crate::store::samples::{DAY, batch, day, devices, key_id, link, noon, short_id};
use crate::support::stores::{Home, apply, on_each_store};

const HOUR: Duration = Duration::from_hours(1);

struct Node {
    upkeep: LinkUpkeep,
    cache: Arc<LinkCache>,
}

impl Node {
    fn new(store: &Arc<dyn Store>, clock: &Clock, delete_expired_after: Option<Duration>) -> Self {
        let settings = LinkCacheSettings {
            capacity: 1_000,
            found_for: DAY,
            missing_for: HOUR,
            is_shared: false,
            clock: CacheClock::default(),
            noindex: true,
        };
        let cache = Arc::new(LinkCache::new(store.clone(), BlockedHosts::default(), settings));
        let settings = UpkeepSettings { delete_expired_after, sheet_days: DEFAULT_SHEET_DAYS };
        let removal_clock = Arc::new(RemovalClock::new(clock.clone(), None));
        let upkeep = LinkUpkeep::new(store.clone(), Arc::clone(&cache), clock.clone(), removal_clock, settings);
        Self { upkeep, cache }
    }
}

fn expiring(n: u32, at: Option<Timestamp>) -> Link {
    Link { options: LinkOptions { expires_at: at, ..LinkOptions::default() }, ..link(n, key_id(1)) }
}

async fn with_links(links: impl IntoIterator<Item = Link>) -> (Home, Arc<dyn Store>) {
    let home = Home::new();
    let store = home.open_store().await;
    for link in links {
        store.create_link(link, None).await.unwrap();
    }
    (home, store)
}

/// The numbers of those links that are there.
async fn there(store: &Arc<dyn Store>, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut there = Vec::new();
    for n in numbers {
        if store.link(short_id(n).into()).await.unwrap().is_some() {
            there.push(n);
        }
    }
    there
}

#[apply(on_each_store)]
async fn links_are_deleted_so_long_after_their_expiry_and_not_before() {
    let at = |hours: u32| noon().plus(hours * HOUR);
    let links = [(1, Some(at(1))), (2, Some(at(2))), (3, None), (4, Some(at(3)))].map(|(n, at)| expiring(n, at));
    let (_home, store) = with_links(links).await;
    let clock = Clock::standing_at(at(2));
    let (node, never) = (Node::new(&store, &clock, Some(DAY)), Node::new(&store, &clock, None));
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 0, "expired, but not for a day");
    clock.advance(DAY);
    assert_eq!(never.upkeep.delete_expired().await.unwrap(), 0);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
    assert_eq!(there(&store, 1..=4).await, [2, 3, 4]);
    clock.advance(HOUR);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
    assert_eq!(there(&store, 1..=4).await, [3, 4]);
}

#[apply(on_each_store)]
async fn a_clock_that_is_set_forward_deletes_no_links_for_an_hour() {
    let (_home, store) = with_links([expiring(1, Some(noon().plus(DAY * 40)))]).await;
    let clock = Clock::standing_at(noon());
    let node = Node::new(&store, &clock, Some(DAY));
    clock.set_forward(DAY * 60);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 0);
    // It is corrected, as NTP does it, and then set for good.
    clock.set_back(DAY * 60);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 0);
    clock.set_forward(DAY * 60);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 0);
    clock.advance(HOUR);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
    assert_eq!(there(&store, [1]).await, [0; 0]);
}

#[apply(on_each_store)]
async fn a_link_with_a_later_expiry_stays() {
    let (_home, store) = with_links([expiring(1, Some(noon()))]).await;
    let later = Link {
        options: LinkOptions { expires_at: Some(noon().plus(2 * DAY)), ..LinkOptions::default() },
        revision: link(1, key_id(1)).revision.next(),
        ..link(1, key_id(1))
    };
    store.update_link(later).await.unwrap();
    let clock = Clock::standing_at(noon().plus(DAY));
    let node = Node::new(&store, &clock, Some(Duration::ZERO));
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 0);
    clock.advance(DAY + HOUR);
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
}

#[apply(on_each_store)]
async fn nodes_that_delete_at_once_delete_each_link_once() {
    const LINKS: u32 = 230;
    let (_home, store) = with_links((1..=LINKS).map(|n| expiring(n, Some(noon())))).await;
    let clock = Clock::standing_at(noon().plus(HOUR));
    let nodes = [(); 3].map(|()| Node::new(&store, &clock, Some(Duration::ZERO)));
    let deleted = futures_util::future::try_join_all(nodes.iter().map(|node| node.upkeep.delete_expired())).await;
    assert_eq!(deleted.unwrap().into_iter().sum::<u64>(), u64::from(LINKS));
    assert!(there(&store, 1..=LINKS).await.is_empty());
}

#[apply(on_each_store)]
async fn a_deleted_link_is_no_longer_in_the_cache() {
    let (_home, store) = with_links([expiring(1, Some(noon()))]).await;
    let node = Node::new(&store, &Clock::standing_at(noon().plus(HOUR)), Some(Duration::ZERO));
    assert!(node.cache.load(&short_id(1).into()).await.unwrap().is_some());
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
    assert!(node.cache.get(&short_id(1).into()).flatten().is_none());
    assert!(node.cache.load(&short_id(1).into()).await.unwrap().is_none());
}

#[apply(on_each_store)]
async fn counts_of_a_deleted_link_are_removed_after_an_hour() {
    let (_home, store) = with_links([expiring(1, Some(noon())), link(2, key_id(1))]).await;
    let days = vec![day(1, noon(), [5, 0, 0]), day(2, noon(), [7, 0, 0])];
    store.apply_hits(Arc::new(HitBatch { days, ..batch(0, 1) })).await.unwrap();
    let clock = Clock::standing_at(noon().plus(HOUR));
    let node = Node::new(&store, &clock, Some(Duration::ZERO));
    assert_eq!(node.upkeep.delete_expired().await.unwrap(), 1);
    node.upkeep.remove_counts().await.unwrap();
    assert_eq!(store.link_hits(short_id(1), None).await.unwrap().days, [(noon().day(), devices([5, 0, 0]))]);
    clock.advance(HOUR + Duration::from_secs(1));
    node.upkeep.remove_counts().await.unwrap();
    assert_eq!(store.link_hits(short_id(1), None).await.unwrap().days, []);
    assert_eq!(store.link_hits(short_id(2), None).await.unwrap().days, [(noon().day(), devices([7, 0, 0]))]);
}

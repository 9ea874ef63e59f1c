//! Keys that keys make, on a CQL cluster: over several nodes of the service, and where creations are cut off in the middle.

use std::time::Duration;

use futures_util::future::{join, join_all};
use signpost::domain::key::{ApiKey, KeyId, ScopeSet};
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::session::ScyllaSettings;
use signpost::store::cql::transfer::ScyllaTransfer;
use signpost::store::transfer::{ExportSource, Record, Section, Sink};
use signpost::store::{CreateKeyError, ExtendKeyError, KeyStore, Lifecycle, StoreError, UpdateKeyError};
use tokio::time::timeout;

use super::samples::{key, key_id, node, noon};
use crate::support::keyspaces::Keyspace;

/// A key made by key 1.
fn child(n: u32) -> ApiKey {
    key(n, &[key_id(1)])
}

/// Puts ids on the list of key 1, which has none yet, as creations do that are then cut off.
async fn cut_off(keyspace: &Keyspace, keys: &[KeyId]) {
    let keys: Vec<_> = keys.iter().map(|key| key.0).collect();
    let statement =
        format!("INSERT INTO {}.key_children (maker, turn, keys) VALUES (?, 1, ?) IF NOT EXISTS", keyspace.name);
    keyspace.session().await.query_unpaged(statement, (key_id(1).0, keys)).await.unwrap();
}

/// A store that does not wait for long.
async fn open(keyspace: &Keyspace) -> ScyllaStore {
    keyspace.migrate().await;
    let settings = ScyllaSettings { request_timeout: Duration::from_secs(2), ..keyspace.store_settings() };
    ScyllaStore::open(&settings, node(1)).await.unwrap()
}

#[track_caller]
fn never_made(made: &Result<(), CreateKeyError>) {
    assert!(matches!(made, Err(CreateKeyError::Store(StoreError::Unavailable(_)))), "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_hundred_keys_made_at_once_on_three_nodes_are_as_many_as_the_limit_says() {
    let keyspace = Keyspace::empty().await;
    let stores =
        [keyspace.open_store(node(1)).await, keyspace.open_store(node(2)).await, keyspace.open_store(node(3)).await];
    let made = join_all((2..102).map(|n| stores[n as usize % 3].create_key(child(n), Some(10)))).await;
    let refused = |made: &&Result<(), CreateKeyError>| {
        matches!(made, Err(CreateKeyError::QuotaExceeded { limit: 10, current: 10 }))
    };
    let count = (made.iter().filter(|made| made.is_ok()).count(), made.iter().filter(refused).count());
    assert_eq!(count, (10, 90), "{:?}", made.iter().find(|made| made.is_err() && !refused(made)));
    assert_eq!(stores[0].keys_seen_by(key_id(1), None, 100).await.unwrap().len(), 10);
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_creation_that_was_cut_off_holds_no_place_and_never_comes_to_its_end() {
    let keyspace = Keyspace::empty().await;
    let store = open(&keyspace).await;
    cut_off(&keyspace, &[key_id(2), key_id(3)]).await;
    // The second of them goes on in time, the first is a process that stands still.
    store.create_key(child(3), None).await.unwrap();

    store.create_key(child(4), Some(2)).await.unwrap();

    let refused = store.create_key(child(5), Some(2)).await;
    assert!(matches!(refused, Err(CreateKeyError::QuotaExceeded { limit: 2, current: 2 })), "{refused:?}");
    never_made(&store.create_key(child(2), None).await);
    assert_eq!(store.key(key_id(2)).await.unwrap(), None);
    assert_eq!(store.key_by_secret(child(2).secret_hash).await.unwrap(), None);
    let seen = store.keys_seen_by(key_id(1), None, 10).await.unwrap();
    assert_eq!(seen, [child(4), child(3)]);
    store.close().await;
    let transfer = ScyllaTransfer::open(&keyspace.store_settings()).await.unwrap();
    assert_eq!(transfer.read_page(Section::Keys, None).await.unwrap().records.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_creation_under_way_is_waited_for() {
    let keyspace = Keyspace::empty().await;
    let store = keyspace.open_store(node(1)).await;
    cut_off(&keyspace, &[key_id(2)]).await;
    let mut waiting = Box::pin(store.create_key(child(3), Some(1)));
    assert!(timeout(Duration::from_millis(200), &mut waiting).await.is_err(), "the place may still be taken");
    store.create_key(child(2), None).await.unwrap();
    let refused = waiting.await;
    assert!(matches!(refused, Err(CreateKeyError::QuotaExceeded { limit: 1, current: 1 })), "{refused:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_creation_under_way_does_not_survive_the_stop_of_its_maker() {
    let keyspace = Keyspace::empty().await;
    let store = open(&keyspace).await;
    cut_off(&keyspace, &[key_id(2), key_id(3)]).await;
    store.create_key(child(3), None).await.unwrap();
    store.stop_key_creation(key_id(1)).await.unwrap();
    for late in [child(2), child(4)] {
        let made = store.create_key(late, Some(9)).await;
        let refused =
            matches!(made, Err(CreateKeyError::MakerEnded | CreateKeyError::Store(StoreError::Unavailable(_))));
        assert!(refused, "{made:?}");
    }
    never_made(&store.create_key(child(2), None).await);
    assert_eq!(store.keys_seen_by(key_id(1), None, 10).await.unwrap(), [child(3)]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn keys_that_were_carried_here_count() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let transfer = ScyllaTransfer::open(&keyspace.store_settings()).await.unwrap();
    let carried = [key(1, &[]), child(2), child(3), ApiKey { revoked_at: Some(noon()), ..child(4) }];
    transfer.write(carried.map(|key| Record::Key(Box::new(key))).to_vec()).await.unwrap();
    let store = keyspace.open_store(node(1)).await;
    store.create_key(child(5), Some(3)).await.unwrap();
    let refused = store.create_key(child(6), Some(3)).await;
    assert!(matches!(refused, Err(CreateKeyError::QuotaExceeded { limit: 3, current: 3 })), "{refused:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn an_extension_that_began_before_its_key_lost_its_place_is_refused() {
    let keyspace = Keyspace::empty().await;
    let stores = [keyspace.open_store(node(1)).await, keyspace.open_store(node(2)).await];
    let (end, later) = (noon().plus(Duration::from_hours(1)), noon().plus(Duration::from_hours(2)));
    let expiring = ApiKey { expires_at: Some(end), ..child(2) };
    stores[0].create_key(expiring.clone(), Some(1)).await.unwrap();
    // A node with a slow clock has read the key. Meanwhile the key expires, and another takes its place.
    let extended = ApiKey { expires_at: Some(later), revision: expiring.revision + 1, ..expiring.clone() };
    stores[1].create_key(ApiKey { created_at: end, ..child(3) }, Some(1)).await.unwrap();
    // Both of its steps are refused.
    let refused = stores[0].extend_key(extended.clone(), Some(1), noon()).await;
    assert!(matches!(refused, Err(ExtendKeyError::Conflict)), "{refused:?}");
    let refused = stores[0].update_key(extended).await;
    assert!(matches!(refused, Err(UpdateKeyError::Conflict)), "{refused:?}");
    let now_there = stores[0].key(key_id(2)).await.unwrap().unwrap();
    assert_eq!(now_there, ApiKey { revision: expiring.revision + 1, ..expiring });
    // It begins anew, and needs a place.
    let again = ApiKey { expires_at: Some(later), revision: now_there.revision + 1, ..now_there };
    for now in [noon(), end] {
        let refused = stores[0].extend_key(again.clone(), Some(1), now).await;
        let is_refusal = matches!(refused, Err(ExtendKeyError::QuotaExceeded { limit: 1, current: 1 }));
        assert!(is_refusal, "{refused:?}");
    }
    stores[0].extend_key(again.clone(), Some(2), end).await.unwrap();
    assert_eq!(stores[1].key(key_id(2)).await.unwrap(), Some(again));
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn extensions_and_creations_on_three_nodes_are_as_many_as_the_limit_says() {
    let keyspace = Keyspace::empty().await;
    let stores =
        [keyspace.open_store(node(1)).await, keyspace.open_store(node(2)).await, keyspace.open_store(node(3)).await];
    let (end, now) = (noon().plus(Duration::from_hours(1)), noon().plus(Duration::from_hours(2)));
    for n in 2..7 {
        stores[0].create_key(ApiKey { expires_at: Some(end), ..child(n) }, Some(5)).await.unwrap();
    }
    let extend = async |n: u32| {
        let store = &stores[n as usize % 3];
        // Half of them are not expired yet by their node's clock.
        let now = if n.is_multiple_of(2) { now } else { noon() };
        loop {
            let before = store.key(key_id(n)).await.unwrap().unwrap();
            let extended = ApiKey { expires_at: None, revision: before.revision + 1, ..before };
            match store.extend_key(extended, Some(5), now).await {
                Ok(()) => return true,
                Err(ExtendKeyError::Conflict) => {}
                Err(ExtendKeyError::QuotaExceeded { limit: 5, current: 5 }) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let create = async |n: u32| {
        let made = stores[n as usize % 3].create_key(ApiKey { created_at: now, ..child(n) }, Some(5)).await;
        assert!(matches!(made, Ok(()) | Err(CreateKeyError::QuotaExceeded { limit: 5, current: 5 })), "{made:?}");
        made.is_ok()
    };
    let (extended, made) = join(join_all((2..7).map(extend)), join_all((7..27).map(create))).await;
    let done = extended.iter().chain(&made).filter(|done| **done).count();
    let keys = stores[1].keys_seen_by(key_id(1), None, 100).await.unwrap();
    let live = keys.iter().filter(|key| key.is_live(now)).count();
    assert_eq!((done, live), (5, 5), "{extended:?} {made:?}");
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_revoked_key_that_had_lost_its_scope_makes_no_more_keys() {
    let keyspace = Keyspace::empty().await;
    let store = keyspace.open_store(node(1)).await;
    store.create_key(ApiKey { revision: 1, ..key(1, &[]) }, None).await.unwrap();
    let narrowed = ApiKey { scopes: ScopeSet::EMPTY, revision: 2, ..key(1, &[]) };
    store.update_key(narrowed.clone()).await.unwrap();
    store.update_key(ApiKey { revoked_at: Some(noon()), revision: 3, ..narrowed }).await.unwrap();
    let made = store.create_key(child(2), Some(5)).await;
    assert!(matches!(made, Err(CreateKeyError::MakerEnded)), "{made:?}");
    store.close().await;
}

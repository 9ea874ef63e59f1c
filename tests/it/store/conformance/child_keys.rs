//! The keys that a key makes: no more of them live than its limit says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::{ApiKey, KeyId};
use signpost::store::{CreateKeyError, Store, StoreError};

use super::{Ground, reopened};
use crate::store::samples::{key, key_id, noon, secret};

const HOUR: Duration = Duration::from_hours(1);

/// A key made by key 1, which the root made.
fn child(n: u32) -> ApiKey {
    key(n, &[key_id(1), key_id(0)])
}

/// A store that has the root and key 1.
async fn with_maker(ground: &impl Ground) -> Arc<dyn Store> {
    let store = ground.open().await;
    store.create_key(key(0, &[]), None).await.unwrap();
    store.create_key(key(1, &[key_id(0)]), None).await.unwrap();
    store
}

async fn seen_by(store: &Arc<dyn Store>, viewer: u32) -> Vec<KeyId> {
    let keys = store.keys_seen_by(key_id(viewer), None, 1_000).await.unwrap();
    keys.into_iter().map(|key| key.id).collect()
}

async fn revoke(store: &Arc<dyn Store>, key: &ApiKey) {
    store.update_key(ApiKey { revoked_at: Some(noon()), revision: 1, ..key.clone() }).await.unwrap();
}

/// How many keys live, where the creation was refused for the limit.
#[track_caller]
fn live(refused: &Result<(), CreateKeyError>, limit: u64) -> u64 {
    match refused {
        Err(CreateKeyError::QuotaExceeded { limit: told, current }) if *told == limit => *current,
        other => panic!("{other:?}"),
    }
}

pub async fn of_a_hundred_keys_made_at_once_as_many_are_made_as_the_limit_says(ground: &impl Ground) {
    let mut store = with_maker(ground).await;
    let made = join_all((2..102).map(|n| store.create_key(child(n), Some(10)))).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 10);
    for refused in made.iter().filter(|made| made.is_err()) {
        assert_eq!(live(refused, 10), 10);
    }
    for _ in 0..2 {
        assert_eq!(seen_by(&store, 1).await.len(), 11);
        for (n, made) in (2..).zip(&made) {
            assert_eq!(store.key(key_id(n)).await.unwrap().is_some(), made.is_ok(), "{n}");
            let by_secret = store.key_by_secret(secret(&format!("secret {n}"))).await.unwrap();
            assert_eq!(by_secret.is_some(), made.is_ok(), "{n}");
        }
        assert_eq!(live(&store.create_key(child(500), Some(10)).await, 10), 10);
        store = reopened(ground, store).await;
    }
}

pub async fn a_key_that_is_revoked_or_expired_makes_room_for_another(ground: &impl Ground) {
    let store = with_maker(ground).await;
    let end = noon().plus(HOUR);
    let at = |n, created_at: Timestamp| ApiKey { created_at, ..child(n) };
    store.create_key(ApiKey { expires_at: Some(end), ..child(2) }, Some(2)).await.unwrap();
    store.create_key(child(3), Some(2)).await.unwrap();
    assert_eq!(live(&store.create_key(at(4, Timestamp(end.0 - 1)), Some(2)).await, 2), 2);
    store.create_key(at(4, end), Some(2)).await.unwrap();
    assert_eq!(live(&store.create_key(at(5, end), Some(2)).await, 2), 2);
    revoke(&store, &child(3)).await;
    store.create_key(at(5, end), Some(2)).await.unwrap();
    assert_eq!(live(&store.create_key(at(6, end), Some(2)).await, 2), 2);
    // What its keys make does not count, nor does what others make.
    store.create_key(key(7, &[key_id(4), key_id(1), key_id(0)]), Some(1)).await.unwrap();
    store.create_key(key(8, &[key_id(9), key_id(0)]), Some(1)).await.unwrap();
    assert_eq!(live(&store.create_key(at(6, end), Some(2)).await, 2), 2);
    assert_eq!(live(&store.create_key(key(10, &[key_id(4), key_id(1), key_id(0)]), Some(1)).await, 1), 1);
}

pub async fn the_same_key_again_takes_no_second_place(ground: &impl Ground) {
    let store = with_maker(ground).await;
    for _ in 0..3 {
        store.create_key(child(2), Some(2)).await.unwrap();
    }
    store.create_key(child(3), Some(2)).await.unwrap();
    assert_eq!(live(&store.create_key(child(4), Some(2)).await, 2), 2);
}

pub async fn keys_that_were_made_before_there_was_a_limit_count(ground: &impl Ground) {
    let store = with_maker(ground).await;
    for n in 2..=4 {
        store.create_key(child(n), None).await.unwrap();
    }
    revoke(&store, &child(4)).await;
    for n in 5..=9 {
        store.create_key(key(n, &[key_id(2), key_id(1), key_id(0)]), None).await.unwrap();
    }
    store.create_key(child(20), Some(3)).await.unwrap();
    assert_eq!(live(&store.create_key(child(21), Some(3)).await, 3), 3);
}

pub async fn a_limit_may_be_none_at_all_and_may_become_lower(ground: &impl Ground) {
    let store = with_maker(ground).await;
    assert_eq!(live(&store.create_key(child(2), Some(0)).await, 0), 0);
    for n in 2..7 {
        store.create_key(child(n), Some(5)).await.unwrap();
    }
    assert_eq!(live(&store.create_key(child(7), Some(3)).await, 3), 5);
    for n in 2..4 {
        revoke(&store, &child(n)).await;
        assert_eq!(live(&store.create_key(child(7), Some(3)).await, 3), u64::from(6 - n));
    }
    revoke(&store, &child(4)).await;
    store.create_key(child(7), Some(3)).await.unwrap();
}

/// A list of keys that is longer than a row of the embedded store.
pub async fn a_thousand_keys_are_counted(ground: &impl Ground) {
    let store = with_maker(ground).await;
    for n in 2..1_002 {
        store.create_key(child(n), None).await.unwrap();
    }
    assert_eq!(live(&store.create_key(child(2_000), Some(1_000)).await, 1_000), 1_000);
    store.create_key(child(2_000), Some(1_001)).await.unwrap();
    assert_eq!(live(&store.create_key(child(2_001), Some(1_001)).await, 1_001), 1_001);
    revoke(&store, &child(77)).await;
    store.create_key(child(2_001), Some(1_001)).await.unwrap();
}

pub async fn a_key_that_was_stopped_or_revoked_makes_no_more_keys(ground: &impl Ground) {
    let mut store = with_maker(ground).await;
    store.create_key(child(2), Some(5)).await.unwrap();
    let grandchild = |n| key(n, &[key_id(2), key_id(1), key_id(0)]);
    store.create_key(grandchild(3), Some(5)).await.unwrap();
    for _ in 0..2 {
        store.stop_key_creation(key_id(1)).await.unwrap();
    }
    revoke(&store, &child(2)).await;
    for _ in 0..2 {
        for refused in [child(4), grandchild(5)] {
            let refused = store.create_key(refused, Some(5)).await;
            assert!(matches!(refused, Err(CreateKeyError::MakerEnded)), "{refused:?}");
        }
        assert_eq!(seen_by(&store, 1).await, [key_id(3), key_id(1)]);
        store = reopened(ground, store).await;
    }
    // Others go on, and one that has made none yet can be stopped.
    store.create_key(key(6, &[key_id(3), key_id(2), key_id(1), key_id(0)]), Some(5)).await.unwrap();
    store.stop_key_creation(key_id(6)).await.unwrap();
    let refused = store.create_key(key(7, &[key_id(6)]), Some(5)).await;
    assert!(matches!(refused, Err(CreateKeyError::MakerEnded)), "{refused:?}");
}

pub async fn a_key_is_made_before_its_maker_is_stopped_or_not_at_all(ground: &impl Ground) {
    let store = with_maker(ground).await;
    store.create_key(child(2), Some(1_000)).await.unwrap();
    let creations = join_all((3..100).map(|n| store.create_key(child(n), Some(1_000))));
    let stop = async {
        // Some are made by then.
        while seen_by(&store, 1).await.len() < 5 {
            tokio::task::yield_now().await;
        }
        store.stop_key_creation(key_id(1)).await.unwrap();
        seen_by(&store, 1).await
    };
    let (made, there_then) = join(creations, stop).await;
    assert_eq!(seen_by(&store, 1).await, there_then, "none is made after that");
    for (n, made) in (3..).zip(made) {
        assert_eq!(there_then.contains(&key_id(n)), made.is_ok(), "{n}: {made:?}");
        let refusal = matches!(
            made,
            Ok(()) | Err(CreateKeyError::MakerEnded | CreateKeyError::Store(StoreError::Unavailable(_)))
        );
        assert!(refusal, "{n}: {made:?}");
    }
}

//! The keys that a key makes: no more of them live than its limit says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::{ApiKey, KeyId};
use signpost::store::{CreateKeyError, ExtendKeyError, Store, StoreError};

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

/// Extends a key from the revision that is there.
async fn extend(
    store: &Arc<dyn Store>,
    id: u32,
    end: Option<Timestamp>,
    limit: u64,
    now: Timestamp,
) -> Result<(), ExtendKeyError> {
    let before = store.key(key_id(id)).await.unwrap().unwrap();
    let extended = ApiKey { expires_at: end, revision: before.revision + 1, ..before };
    store.extend_key(extended, Some(limit), now).await
}

/// How many keys live, where the extension was refused for the limit.
#[track_caller]
fn others_live(refused: &Result<(), ExtendKeyError>, limit: u64) -> u64 {
    match refused {
        Err(ExtendKeyError::QuotaExceeded { limit: told, current }) if *told == limit => *current,
        other => panic!("{other:?}"),
    }
}

pub async fn a_live_key_is_extended_in_its_place(ground: &impl Ground) {
    let mut store = with_maker(ground).await;
    let (end, later) = (noon().plus(HOUR), noon().plus(2 * HOUR));
    store.create_key(ApiKey { expires_at: Some(end), ..child(2) }, Some(2)).await.unwrap();
    store.create_key(child(3), Some(2)).await.unwrap();
    for stale in [0, 2] {
        let stale = ApiKey { expires_at: Some(later), revision: stale, ..child(2) };
        let refused = store.extend_key(stale, Some(2), noon()).await;
        assert!(matches!(refused, Err(ExtendKeyError::Conflict)), "{refused:?}");
    }
    let missing = store.extend_key(child(9), Some(2), noon()).await;
    assert!(matches!(missing, Err(ExtendKeyError::Conflict)), "{missing:?}");
    extend(&store, 2, Some(later), 2, noon()).await.unwrap();
    for _ in 0..2 {
        let extended = store.key(key_id(2)).await.unwrap().unwrap();
        assert_eq!(extended, ApiKey { expires_at: Some(later), revision: 1, ..child(2) });
        assert_eq!(store.key_by_secret(secret("secret 2")).await.unwrap(), Some(extended));
        assert_eq!(live(&store.create_key(ApiKey { created_at: end, ..child(4) }, Some(2)).await, 2), 2);
        store = reopened(ground, store).await;
    }
    extend(&store, 2, None, 2, noon()).await.unwrap();
    assert_eq!(live(&store.create_key(ApiKey { created_at: later, ..child(4) }, Some(2)).await, 2), 2);
    // Where there is no limit, too.
    store.create_key(ApiKey { expires_at: Some(end), ..key(5, &[key_id(0)]) }, None).await.unwrap();
    let extended = ApiKey { expires_at: Some(later), revision: 1, ..key(5, &[key_id(0)]) };
    store.extend_key(extended.clone(), None, later).await.unwrap();
    assert_eq!(store.key(key_id(5)).await.unwrap(), Some(extended));
}

pub async fn an_expired_key_is_extended_where_the_limit_allows_one_more(ground: &impl Ground) {
    let mut store = with_maker(ground).await;
    let (end, now) = (noon().plus(HOUR), noon().plus(2 * HOUR));
    for n in [2, 3] {
        store.create_key(ApiKey { expires_at: Some(end), ..child(n) }, Some(2)).await.unwrap();
    }
    // Nobody has taken its place.
    extend(&store, 2, None, 2, now).await.unwrap();
    // Somebody takes that of the other.
    store.create_key(ApiKey { created_at: now, ..child(4) }, Some(2)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(others_live(&extend(&store, 3, None, 2, now).await, 2), 2);
        let refused = store.key(key_id(3)).await.unwrap().unwrap();
        assert_eq!((refused.expires_at, refused.is_live(now)), (Some(end), false));
        store = reopened(ground, store).await;
    }
    // Room is made, and taken again.
    let last = store.key(key_id(4)).await.unwrap().unwrap();
    let revoked = ApiKey { revoked_at: Some(now), revision: last.revision + 1, ..last };
    store.update_key(revoked).await.unwrap();
    extend(&store, 3, Some(now.plus(HOUR)), 2, now).await.unwrap();
    assert_eq!(live(&store.create_key(ApiKey { created_at: now, ..child(5) }, Some(2)).await, 2), 2);
    // It expires once more: another has its place, then it is extended above a higher limit.
    store.create_key(ApiKey { created_at: now.plus(HOUR), ..child(5) }, Some(2)).await.unwrap();
    assert_eq!(others_live(&extend(&store, 3, None, 2, now.plus(HOUR)).await, 2), 2);
    extend(&store, 3, None, 3, now.plus(HOUR)).await.unwrap();
}

pub async fn keys_are_extended_below_a_limit_that_was_lowered_and_a_maker_that_was_stopped(ground: &impl Ground) {
    let store = with_maker(ground).await;
    let (end, now) = (noon().plus(HOUR), noon().plus(2 * HOUR));
    // Without a list, as imported ones.
    for n in 2..=5 {
        store.create_key(ApiKey { expires_at: Some(end), ..child(n) }, None).await.unwrap();
    }
    // Those that live stay.
    extend(&store, 2, None, 1, noon()).await.unwrap();
    extend(&store, 3, None, 1, noon()).await.unwrap();
    // An expired one takes a place.
    assert_eq!(others_live(&extend(&store, 4, None, 2, now).await, 2), 2);
    store.stop_key_creation(key_id(1)).await.unwrap();
    assert_eq!(others_live(&extend(&store, 4, None, 2, now).await, 2), 2);
    extend(&store, 4, None, 3, now).await.unwrap();
    assert_eq!(others_live(&extend(&store, 5, None, 3, now).await, 3), 3);
    extend(&store, 3, Some(now.plus(HOUR)), 1, now).await.unwrap();
    let refused = store.create_key(child(6), Some(9)).await;
    assert!(matches!(refused, Err(CreateKeyError::MakerEnded)), "{refused:?}");
    // Its list was closed before it had keys.
    let grandchild = |n| ApiKey { expires_at: Some(end), ..key(n, &[key_id(2), key_id(1), key_id(0)]) };
    for n in [7, 8] {
        store.create_key(grandchild(n), None).await.unwrap();
    }
    store.stop_key_creation(key_id(2)).await.unwrap();
    extend(&store, 7, None, 1, noon()).await.unwrap();
    assert_eq!(others_live(&extend(&store, 8, None, 1, now).await, 1), 1);
}

pub async fn of_creations_and_extensions_at_once_as_many_live_as_the_limit_says(ground: &impl Ground) {
    let store = with_maker(ground).await;
    let (end, now) = (noon().plus(HOUR), noon().plus(2 * HOUR));
    for n in 2..10 {
        store.create_key(ApiKey { expires_at: Some(end), ..child(n) }, Some(8)).await.unwrap();
    }
    // Some clients have a clock that is behind: to them the keys are still live.
    let extensions = join_all((2..10).map(|n| {
        let (store, now) = (store.clone(), if n % 2 == 0 { now } else { noon() });
        async move {
            loop {
                match extend(&store, n, None, 8, now).await {
                    Err(ExtendKeyError::Conflict) => {}
                    done => return done,
                }
            }
        }
    }));
    let creations = join_all((10..26).map(|n| store.create_key(ApiKey { created_at: now, ..child(n) }, Some(8))));
    let (extended, made) = join(extensions, creations).await;
    let keys = store.keys_seen_by(key_id(1), None, 1_000).await.unwrap();
    let live = keys.iter().filter(|key| key.created_by() == Some(key_id(1)) && key.is_live(now)).count();
    assert_eq!(live, 8, "{extended:?} {made:?}");
    let done = extended.iter().filter(|done| done.is_ok()).count() + made.iter().filter(|made| made.is_ok()).count();
    assert_eq!(done, 8, "{extended:?} {made:?}");
}

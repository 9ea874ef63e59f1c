//! API keys: their revisions, secrets, views and uses.

use std::sync::Arc;

use futures_util::future::join_all;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::{ApiKey, KeyId, Retiring, Tier};
use signpost::store::{Store, UpdateKeyError};

use super::{Ground, reopened};
use crate::store::samples::{DAY, key, key_id, noon, secret};

async fn by_secret(store: &Arc<dyn Store>, text: &str) -> Option<KeyId> {
    store.key_by_secret(secret(text)).await.unwrap().map(|key| key.id)
}

async fn seen_by(store: &Arc<dyn Store>, viewer: u32, after: Option<u32>, limit: usize) -> Vec<KeyId> {
    let keys = store.keys_seen_by(key_id(viewer), after.map(key_id), limit).await.unwrap();
    keys.into_iter().map(|key| key.id).collect()
}

fn ids<const N: usize>(numbers: [u32; N]) -> Vec<KeyId> {
    numbers.map(key_id).to_vec()
}

pub async fn a_key_that_is_there_stays_as_it_is(ground: &impl Ground) {
    let store = ground.open().await;
    assert_eq!(store.key(key_id(1)).await.unwrap(), None);
    store.create_key(key(1, &[]), None).await.unwrap();
    let other = ApiKey { name: "another".into(), secret_hash: secret("another"), ..key(1, &[key_id(9)]) };
    store.create_key(other, None).await.unwrap();
    assert_eq!(store.key(key_id(1)).await.unwrap(), Some(key(1, &[])));
    assert_eq!(by_secret(&store, "secret 1").await, Some(key_id(1)));
    assert_eq!(by_secret(&store, "another").await, None);
    assert_eq!(seen_by(&store, 9, None, 10).await, []);
}

pub async fn a_key_is_changed_only_from_its_revision_before(ground: &impl Ground) {
    let store = ground.open().await;
    let missing = store.update_key(ApiKey { revision: 1, ..key(1, &[]) }).await;
    assert!(matches!(missing, Err(UpdateKeyError::Conflict)), "{missing:?}");
    assert_eq!(store.key(key_id(1)).await.unwrap(), None);

    store.create_key(key(1, &[]), None).await.unwrap();
    let changed = ApiKey { tier: Tier::Pro, expires_at: Some(noon().plus(DAY)), revision: 1, ..key(1, &[]) };
    store.update_key(changed.clone()).await.unwrap();
    for revision in [0, 1, 3] {
        let stale = ApiKey { revision, secret_hash: secret("stale"), ..key(1, &[]) };
        assert!(matches!(store.update_key(stale).await, Err(UpdateKeyError::Conflict)), "{revision}");
    }
    assert_eq!(store.key(key_id(1)).await.unwrap(), Some(changed));
    assert_eq!(by_secret(&store, "stale").await, None);
}

pub async fn of_two_changes_at_once_one_is_told_of_the_conflict(ground: &impl Ground) {
    let store = ground.open().await;
    store.create_key(key(1, &[]), None).await.unwrap();
    let change = |n: u32| ApiKey { revision: 1, secret_hash: secret(&format!("change {n}")), ..key(1, &[]) };
    let done = join_all((0..10).map(|n| store.update_key(change(n)))).await;
    let winners: Vec<u32> = (0..).zip(&done).filter(|(_, done)| done.is_ok()).map(|(n, _)| n).collect();
    assert_eq!(winners.len(), 1);
    assert!(done.iter().all(|done| matches!(done, Ok(()) | Err(UpdateKeyError::Conflict))));
    assert_eq!(store.key(key_id(1)).await.unwrap(), Some(change(winners[0])));
    for n in 0..10 {
        let found = by_secret(&store, &format!("change {n}")).await;
        assert_eq!(found.is_some(), n == winners[0]);
    }
}

pub async fn a_secret_finds_its_key_while_it_is_current_or_retiring(ground: &impl Ground) {
    let mut store = ground.open().await;
    store.create_key(key(1, &[]), None).await.unwrap();
    assert_eq!(by_secret(&store, "secret 1").await, Some(key_id(1)));

    let until = noon().plus(DAY);
    let rotated = ApiKey {
        secret_hash: secret("second"),
        retiring_secret: Some(Retiring { secret: secret("secret 1"), until }),
        revision: 1,
        ..key(1, &[])
    };
    store.update_key(rotated.clone()).await.unwrap();
    assert_eq!(store.key_by_secret(secret("secret 1")).await.unwrap(), Some(rotated.clone()));
    assert_eq!(by_secret(&store, "second").await, Some(key_id(1)));

    let again = ApiKey {
        secret_hash: secret("third"),
        retiring_secret: Some(Retiring { secret: secret("second"), until }),
        revision: 2,
        ..rotated
    };
    store.update_key(again.clone()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(by_secret(&store, "secret 1").await, None);
        assert_eq!(by_secret(&store, "second").await, Some(key_id(1)));
        assert_eq!(by_secret(&store, "third").await, Some(key_id(1)));
        store = reopened(ground, store).await;
    }
    store.update_key(ApiKey { retiring_secret: None, revision: 3, ..again }).await.unwrap();
    assert_eq!(by_secret(&store, "second").await, None);
    assert_eq!(by_secret(&store, "third").await, Some(key_id(1)));
}

pub async fn a_revoked_key_has_no_secret_and_is_in_no_list(ground: &impl Ground) {
    let store = ground.open().await;
    let retiring_secret = Some(Retiring { secret: secret("older"), until: noon().plus(DAY) });
    let below = ApiKey { retiring_secret, ..key(2, &[key_id(1)]) };
    store.create_key(key(1, &[]), None).await.unwrap();
    store.create_key(below.clone(), None).await.unwrap();
    store.create_key(key(3, &[key_id(2), key_id(1)]), None).await.unwrap();
    let revoked = ApiKey { revoked_at: Some(noon()), revision: 1, ..below };
    store.update_key(revoked.clone()).await.unwrap();

    assert_eq!(by_secret(&store, "secret 2").await, None);
    assert_eq!(by_secret(&store, "older").await, None);
    assert_eq!(store.key(key_id(2)).await.unwrap(), Some(revoked));
    assert_eq!(seen_by(&store, 1, None, 10).await, ids([3, 1]));
    assert_eq!(seen_by(&store, 2, None, 10).await, ids([3]));
    assert_eq!(by_secret(&store, "secret 3").await, Some(key_id(3)));
}

pub async fn a_key_sees_itself_and_all_below_it_newest_first(ground: &impl Ground) {
    let mut store = ground.open().await;
    // 1 made 2 and 5; 2 made 3; 3 made 4. Created out of order.
    let chains: [(u32, &[u32]); 5] = [(4, &[3, 2, 1]), (1, &[]), (3, &[2, 1]), (5, &[1]), (2, &[1])];
    for (n, above) in chains {
        let above: Vec<KeyId> = above.iter().copied().map(key_id).collect();
        store.create_key(key(n, &above), None).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(seen_by(&store, 1, None, 100).await, ids([5, 4, 3, 2, 1]));
        assert_eq!(seen_by(&store, 2, None, 100).await, ids([4, 3, 2]));
        assert_eq!(seen_by(&store, 4, None, 100).await, ids([4]));
        assert_eq!(seen_by(&store, 5, None, 100).await, ids([5]));
        assert_eq!(seen_by(&store, 6, None, 100).await, []);
        assert_eq!(seen_by(&store, 1, None, 2).await, ids([5, 4]));
        assert_eq!(seen_by(&store, 1, Some(4), 2).await, ids([3, 2]));
        assert_eq!(seen_by(&store, 1, Some(2), 2).await, ids([1]));
        assert_eq!(seen_by(&store, 1, Some(1), 2).await, []);
        store = reopened(ground, store).await;
    }
}

pub async fn a_list_of_keys_goes_on_after_a_key_that_is_gone(ground: &impl Ground) {
    let store = ground.open().await;
    for n in 1..=4 {
        store.create_key(key(n, if n == 1 { &[] } else { &[const { KeyId(uuid::Uuid::nil()) }] }), None).await.unwrap();
    }
    let nil = KeyId(uuid::Uuid::nil());
    let page = store.keys_seen_by(nil, None, 2).await.unwrap();
    assert_eq!(page.iter().map(|key| key.id).collect::<Vec<_>>(), ids([4, 3]));
    let revoked = ApiKey { revoked_at: Some(noon()), revision: 1, ..key(3, &[nil]) };
    store.update_key(revoked).await.unwrap();
    let page = store.keys_seen_by(nil, Some(key_id(3)), 2).await.unwrap();
    assert_eq!(page.iter().map(|key| key.id).collect::<Vec<_>>(), ids([2]));
}

pub async fn the_time_of_the_last_use_never_goes_back(ground: &impl Ground) {
    let mut store = ground.open().await;
    let uses = |store: Arc<dyn Store>| async move { store.last_uses(ids([1, 2, 3])).await.unwrap() };
    assert_eq!(uses(store.clone()).await, [None, None, None]);
    let (early, late) = (noon(), Timestamp(noon().0 + 5));
    store.note_key_use(vec![(key_id(1), late), (key_id(3), early)]).await.unwrap();
    store.note_key_use(vec![(key_id(1), early), (key_id(3), late), (key_id(3), early)]).await.unwrap();
    for _ in 0..2 {
        assert_eq!(uses(store.clone()).await, [Some(late), None, Some(late)]);
        store = reopened(ground, store).await;
    }
}

//! Keys that a key makes: none is lost from the count, and no place is lost for ever.

use std::ops::RangeFrom;

use signpost::domain::calendar::Timestamp;
use signpost::domain::key::ApiKey;
use signpost::store::{CreateKeyError, ExtendKeyError, StoreError};

use super::run::Run;
use crate::store::samples::{MINUTE, key, key_id, noon};
use crate::support::{SOON, eventually};

/// Key `k` of those that this run's key makes.
fn child(run: &Run, k: u32) -> ApiKey {
    key(1_000_000 * k + run.n, &[key_id(run.n)])
}

/// Creates a key as a client does: one that is told that it failed asks again, which is for another key.
async fn create_another(run: &Run, numbers: &mut RangeFrom<u32>, limit: u64) -> Result<(), u64> {
    eventually("a key, or none", SOON, async || {
        match run.store.create_key(child(run, numbers.next().unwrap()), Some(limit)).await {
            Ok(()) => Some(Ok(())),
            Err(CreateKeyError::QuotaExceeded { current, .. }) => Some(Err(current)),
            Err(CreateKeyError::Store(StoreError::Unavailable(_))) => None,
            Err(error) => panic!("{error}: {}", run.name()),
        }
    })
    .await
}

async fn children_seen(run: &Run) -> usize {
    run.clean.keys_seen_by(key_id(run.n), None, 100).await.unwrap().len()
}

pub async fn create_child(run: &Run) {
    run.clean.create_key(child(run, 1), Some(3)).await.unwrap();
    match run.disturbed(run.store.create_key(child(run, 2), Some(3))).await {
        Ok(()) => assert_eq!(run.clean.key(child(run, 2).id).await.unwrap(), Some(child(run, 2)), "{}", run.name()),
        // It may be there all the same, and counts then.
        Err(CreateKeyError::Store(StoreError::Unavailable(_))) => {}
        Err(error) => panic!("{error}: {}", run.name()),
    }
    let mut numbers = 3..;
    let refused = loop {
        if let Err(current) = create_another(run, &mut numbers, 3).await {
            break current;
        }
        assert!(children_seen(run).await <= 3, "{}", run.name());
    };
    assert_eq!((refused, children_seen(run).await), (3, 3), "{}", run.name());
}

pub async fn create_child_past_the_quota(run: &Run) {
    run.clean.create_key(child(run, 1), Some(1)).await.unwrap();
    match run.disturbed(run.store.create_key(child(run, 2), Some(1))).await {
        Err(
            CreateKeyError::QuotaExceeded { limit: 1, current: 1 } | CreateKeyError::Store(StoreError::Unavailable(_)),
        ) => {}
        other => panic!("{other:?}: {}", run.name()),
    }
    assert_eq!(run.clean.key(child(run, 2).id).await.unwrap(), None, "{}", run.name());
    assert_eq!(children_seen(run).await, 1, "{}", run.name());
}

pub async fn stop_key_creation(run: &Run) {
    run.clean.create_key(child(run, 1), Some(9)).await.unwrap();
    run.disturbed_until_done(async || run.store.stop_key_creation(key_id(run.n)).await).await;
    let refused = run.clean.create_key(child(run, 2), Some(9)).await;
    assert!(matches!(refused, Err(CreateKeyError::MakerEnded)), "{refused:?}: {}", run.name());
    assert_eq!(children_seen(run).await, 1, "{}", run.name());
}

/// The first key, until it is extended.
fn expiring(run: &Run) -> ApiKey {
    ApiKey { expires_at: Some(noon().plus(MINUTE)), ..child(run, 1) }
}

/// Extends the first key as the service does: from the revision that is there. `false` where the limit forbids it.
async fn extend(run: &Run, limit: u64, now: Timestamp) -> Result<bool, StoreError> {
    loop {
        let before = run.store.key(child(run, 1).id).await?.unwrap();
        let extended = ApiKey { expires_at: None, revision: before.revision + 1, ..before };
        match run.store.extend_key(extended, Some(limit), now).await {
            Ok(()) => return Ok(true),
            Err(ExtendKeyError::QuotaExceeded { .. }) => return Ok(false),
            Err(ExtendKeyError::Conflict) => {}
            Err(ExtendKeyError::Store(error)) => return Err(error),
        }
    }
}

/// How many keys live a minute later.
async fn live_later(run: &Run) -> usize {
    let keys = run.clean.keys_seen_by(key_id(run.n), None, 100).await.unwrap();
    keys.iter().filter(|key| key.is_live(noon().plus(MINUTE))).count()
}

pub async fn extend_child(run: &Run) {
    run.clean.create_key(expiring(run), Some(2)).await.unwrap();
    run.clean.create_key(child(run, 2), Some(2)).await.unwrap();
    let extended = run.disturbed_until_done(async || extend(run, 2, noon().plus(MINUTE)).await).await;
    assert!(extended, "{}", run.name());
    let there = run.clean.key(child(run, 1).id).await.unwrap().unwrap();
    assert_eq!(there.expires_at, None, "{}", run.name());
    assert_eq!(create_another(run, &mut (3..), 2).await, Err(2), "{}", run.name());
    assert_eq!(live_later(run).await, 2, "{}", run.name());
}

/// The first key has expired, but not by the clock of the node that extends it.
pub async fn create_child_in_the_place_of_an_expired_one(run: &Run) {
    run.clean.create_key(expiring(run), Some(1)).await.unwrap();
    let next = ApiKey { created_at: noon().plus(MINUTE), ..child(run, 2) };
    let made = run.disturbed(run.store.create_key(next.clone(), Some(1))).await;
    let is_answer = matches!(made, Ok(()) | Err(CreateKeyError::Store(StoreError::Unavailable(_))));
    assert!(is_answer, "{made:?}: {}", run.name());
    let extended = run.done(async || extend(run, 1, noon()).await).await;
    assert!(!(extended && made.is_ok()), "{}", run.name());
    let is_there = run.clean.key(next.id).await.unwrap().is_some();
    assert_eq!((is_there, live_later(run).await), (!extended, 1), "{}", run.name());
}

//! Keys that a key makes: none is lost from the count, and no place is lost for ever.

use std::ops::RangeFrom;

use signpost::domain::key::ApiKey;
use signpost::store::{CreateKeyError, StoreError};

use super::run::Run;
use crate::store::samples::{key, key_id};
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

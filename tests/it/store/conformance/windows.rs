//! Windows that are shared with other nodes, where there may be others.

use signpost::domain::rate_limit::RateLimitId;
use signpost::domain::window::WindowLog;

use super::{Ground, reopened};
use crate::store::samples::{key_id, noon};
use crate::support::rate_limits::{LINK, SHORTEN, USAGE};

fn log(key: u32, rate_limit: RateLimitId, seconds: &[u64]) -> WindowLog {
    let admitted_ms = seconds.iter().map(|seconds| noon().0 + seconds * 1000).collect();
    WindowLog { key: key_id(key), rate_limit, admitted_ms }
}

pub async fn what_a_store_publishes_of_windows_is_not_answered_to_itself(ground: &impl Ground) {
    let store = ground.open().await;
    assert_eq!(store.share_windows(Vec::new()).await.unwrap(), []);
    for seconds in [&[1, 2][..], &[2, 3, 4], &[]] {
        let own = vec![log(1, SHORTEN, seconds), log(1, USAGE, &[]), log(2, USAGE, &[1])];
        assert_eq!(store.share_windows(own).await.unwrap(), []);
    }
}

/// A process that starts anew is another one to those that it meets, its own former life among them.
pub async fn another_life_is_told_what_was_published_last_where_stores_are_shared(ground: &impl Ground) {
    let store = ground.open().await;
    let first = log(1, SHORTEN, &[1, 2]);
    let (last, other) = (log(1, SHORTEN, &[2, 3, 4]), log(2, USAGE, &[5]));
    store.share_windows(vec![first, other.clone(), log(2, LINK, &[6])]).await.unwrap();
    store.share_windows(vec![last.clone()]).await.unwrap();
    let store = reopened(ground, store).await;
    let asked = vec![log(1, SHORTEN, &[7]), log(2, USAGE, &[]), log(3, USAGE, &[])];
    let mut others = store.share_windows(asked).await.unwrap();
    others.sort_by_key(|log| log.admitted_ms.clone());
    // Of the windows that were asked for, and of no other.
    assert_eq!(others, if store.is_shared() { vec![last, other] } else { Vec::new() });
}

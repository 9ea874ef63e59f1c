//! Windows that processes share through a cluster.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use signpost::actors::key_shard::exchange::Sharing;
use signpost::actors::key_shard::{AdmitRequest, ExchangeWindows, KeyShards};
use signpost::clock::Clock;
use signpost::domain::hit::NodeId;
use signpost::domain::rate_limit::RateLimitId;
use signpost::domain::window::{Admission, WindowLog};
use signpost::store::{Store, StoreError};
use uuid::Uuid;

use crate::store::samples::{key_id, noon};
use crate::support::keyspaces::Keyspace;
use crate::support::rate_limits::{LINK, SHORTEN, USAGE};

/// Runs a test of stores that are open at once, each as another process has it.
async fn with_stores<const COUNT: usize>(test: impl AsyncFnOnce(&Keyspace, &[Arc<dyn Store>; COUNT])) {
    let keyspace = Keyspace::empty().await;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..COUNT {
        stores.push(Arc::new(Box::pin(keyspace.open_store(NodeId(Uuid::now_v7()))).await));
    }
    let stores = stores.try_into().unwrap_or_else(|_| panic!("as many as were asked for"));
    test(&keyspace, &stores).await;
    for store in &stores {
        store.close().await;
    }
}

fn log(key: u32, rate_limit: RateLimitId, seconds: &[u64]) -> WindowLog {
    let admitted_ms = seconds.iter().map(|seconds| noon().0 + seconds * 1000).collect();
    WindowLog { key: key_id(key), rate_limit, admitted_ms }
}

async fn share(store: &Arc<dyn Store>, own: impl IntoIterator<Item = &WindowLog>) -> Vec<WindowLog> {
    let mut others = store.share_windows(own.into_iter().cloned().collect()).await.unwrap();
    others.sort_by_key(|log| (log.key, log.rate_limit.index(), log.admitted_ms.clone()));
    others
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn processes_see_what_each_of_the_others_published_last() {
    with_stores(async |_, stores: &[_; 3]| {
        let (first, last) = (log(1, SHORTEN, &[1, 2]), log(1, SHORTEN, &[2, 3, 4]));
        let (usage, nothing) = (log(1, USAGE, &[9]), log(1, SHORTEN, &[]));
        let (own, other_key) = (log(1, SHORTEN, &[5]), log(2, SHORTEN, &[6]));

        assert_eq!(share(&stores[0], [&first, &usage, &other_key]).await, []);
        assert_eq!(share(&stores[1], [&own]).await, [first]);
        assert_eq!(share(&stores[0], [&last]).await, std::slice::from_ref(&own));
        assert_eq!(share(&stores[2], [&nothing]).await, [last, own]);
        let asked = [log(2, SHORTEN, &[]), log(1, USAGE, &[])];
        assert_eq!(share(&stores[2], &asked).await, [usage, other_key]);
        // What has left is taken back.
        share(&stores[0], [&nothing]).await;
        share(&stores[1], [&nothing]).await;
        let seen = share(&stores[2], [&nothing]).await;
        assert!(seen.iter().all(|log| log.admitted_ms.is_empty()), "{seen:?}");
    })
    .await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn who_only_looks_sees_the_others_and_is_not_seen() {
    with_stores(async |_, stores: &[_; 2]| {
        let (shorten, usage) = (log(1, SHORTEN, &[1, 2]), log(1, USAGE, &[3]));
        share(&stores[0], [&shorten, &usage, &log(2, USAGE, &[4])]).await;
        let asked = vec![(key_id(1), USAGE), (key_id(1), LINK), (key_id(3), USAGE)];
        assert_eq!(stores[1].windows_elsewhere(asked.clone()).await.unwrap(), std::slice::from_ref(&usage));
        assert_eq!(stores[0].windows_elsewhere(asked).await.unwrap(), []);
        assert_eq!(share(&stores[0], [&usage]).await, []);
    })
    .await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn what_was_published_goes_by_itself_once_no_window_can_hold_it() {
    with_stores(async |keyspace, [store]| {
        share(store, [&log(1, SHORTEN, &[1])]).await;
        let answer = keyspace
            .session()
            .await
            .query_unpaged(format!("SELECT TTL(admitted) FROM {}.windows", keyspace.name), ())
            .await
            .unwrap();
        let (seconds,) = answer.into_rows_result().unwrap().single_row::<(i32,)>().unwrap();
        assert!((1..=61).contains(&seconds), "{seconds}");
    })
    .await;
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_row_that_cannot_be_read_is_no_answer_and_keeps_no_other_from_being_written() {
    with_stores(async |keyspace, [one, another]| {
        let columns = "(key, process, endpoint, admitted) VALUES (?, uuid(), 0, 0x0102)";
        let cut_off = format!("INSERT INTO {}.windows {columns}", keyspace.name);
        keyspace.session().await.query_unpaged(cut_off, (key_id(1).0,)).await.unwrap();
        let readable: Vec<_> = (2..100).map(|key| log(key, SHORTEN, &[1])).collect();
        let own = [vec![log(1, SHORTEN, &[1])], readable.clone()].concat();
        let refused = one.share_windows(own).await;
        assert!(matches!(refused, Err(StoreError::Corrupt { table: "windows", .. })), "{refused:?}");
        assert_eq!(share(another, &readable).await, readable);
    })
    .await;
}

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn shards_of_two_processes_hold_one_limit_through_the_cluster() {
    System::new().block_on(with_stores(async |_, stores: &[_; 2]| {
        let clock = Clock::standing_at(noon());
        let start = |store: &Arc<dyn Store>| {
            let sharing = Sharing::through(store.clone(), &clock).unwrap();
            let sharing = Sharing { every: Duration::from_hours(1), ..sharing };
            KeyShards::start(NonZeroUsize::MIN, Some(sharing), &(Arc::new(|_| {}) as _)).unwrap()
        };
        let request = AdmitRequest { key: key_id(1), rate_limit: SHORTEN, limit: 10, now: clock.now() };
        let ask = async |shards: &KeyShards| shards.admit(request).await.unwrap().admission.unwrap();
        let exchange = async |shards: &KeyShards| shards.shard(request.key).ask_once(ExchangeWindows).await.unwrap();

        let (one, another) = (start(&stores[0]), start(&stores[1]));
        for _ in 0..9 {
            assert!(ask(&one).await.is_admitted());
        }
        exchange(&one).await;
        assert_eq!(ask(&another).await, Admission::Admitted { remaining: 0, reset_seconds: 60 }, "it looks first");
        exchange(&another).await;
        assert_eq!(ask(&another).await, Admission::Refused { retry_after_seconds: 60 });
        // Its window is at hand.
        assert!(ask(&one).await.is_admitted(), "not told yet");
        exchange(&one).await;
        assert_eq!(ask(&one).await, Admission::Refused { retry_after_seconds: 60 });
        one.stop().await;
        another.stop().await;
    }));
}

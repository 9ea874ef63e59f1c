//! A store that is out of reach keeps nobody waiting, and is in reach with its first answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use signpost::store::reach::{GuardedStore, Reach};
use signpost::store::{CreateLinkError, Lifecycle, LinkStore, StoreError};
use tokio::time::sleep;

use super::Embedded;
use super::conformance::Ground;
use super::samples::{key_id, link, short_id};
use crate::support::{SOON, eventually, middle};

struct Guarded {
    _ground: Embedded,
    store: Arc<GuardedStore>,
    switch: FaultSwitch,
    reach: Arc<Reach>,
}

async fn guarded() -> Guarded {
    let (ground, switch, reach) = (Embedded::fresh().await, FaultSwitch::default(), Arc::<Reach>::default());
    let faulty = Arc::new(FaultyStore::new(ground.open().await, switch.clone()));
    let store = Arc::new(GuardedStore::new(faulty, Arc::clone(&reach)));
    Guarded { _ground: ground, store, switch, reach }
}

impl Guarded {
    async fn is_out(&self, is: bool) {
        eventually("it is known", SOON, async || (self.reach.is_out() == is).then_some(())).await;
    }
}

#[tokio::test]
async fn what_is_known_not_to_answer_keeps_nobody_waiting() {
    let guarded = guarded().await;
    let store = &guarded.store;
    store.create_link(link(1, key_id(1)), None).await.unwrap();

    guarded.switch.holds_calls(true);
    let (mut reading, mut creating) = (store.link(short_id(1).into()), store.create_link(link(9, key_id(9)), None));
    assert!((&mut reading).now_or_never().is_none() && (&mut creating).now_or_never().is_none(), "they have begun");
    guarded.is_out(true).await;

    let given_up = reading.await;
    assert!(matches!(given_up, Err(StoreError::Unavailable(_))), "{given_up:?}");
    let mut times = Vec::new();
    for number in 2..7 {
        let began = Instant::now();
        let created = store.create_link(link(number, key_id(1)), None).await;
        assert!(matches!(created, Err(CreateLinkError::Store(StoreError::Unavailable(_)))), "{created:?}");
        assert!(store.link(short_id(1).into()).await.is_err() && store.ready().await.is_err());
        times.push(began.elapsed());
    }
    assert!(middle(&times) < Duration::from_secs(1), "{times:?}");

    guarded.switch.holds_calls(false);
    guarded.is_out(false).await;
    assert!(store.link(short_id(1).into()).await.unwrap().is_some());
    assert_eq!(store.link(short_id(2).into()).await.unwrap(), None, "what was refused was not done");
    // A write whose outcome may yet be known is waited for.
    assert_eq!(creating.await.unwrap(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_store_that_refuses_everything_is_out_of_reach_until_it_answers() {
    let guarded = guarded().await;
    for _ in 0..2 {
        guarded.switch.out_of_reach(true);
        guarded.is_out(true).await;
        guarded.switch.out_of_reach(false);
        guarded.is_out(false).await;
        guarded.store.ready().await.unwrap();
    }
    guarded.store.close().await;
}

#[tokio::test]
async fn a_store_that_answers_others_is_in_reach() {
    let guarded = guarded().await;
    // Time goes on by itself from here on: nothing but the test's own tasks can be late.
    tokio::time::pause();
    guarded.switch.out_of_reach(true);
    while guarded.switch.refused("ready") < 20 {
        guarded.reach.answered();
        sleep(Duration::from_millis(100)).await;
        assert!(!guarded.reach.is_out());
    }
    while !guarded.reach.is_out() {
        sleep(Duration::from_millis(100)).await;
    }
    // Whoever is answered tells.
    guarded.reach.answered();
    assert!(!guarded.reach.is_out());
}

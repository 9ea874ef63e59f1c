//! Suspensions: URLs whose deliveries have failed for a day.

use std::num::NonZeroU32;
use std::sync::Arc;

use signpost::domain::calendar::Timestamp;
use signpost::domain::link::Link;
use signpost::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryStatus};
use signpost::store::{Replay, Settlement, Store, Suspension, SuspensionRule};
use tokio::sync::watch;

use super::{Ground, reopened};
use crate::store::samples::{
    MINUTE, changed, deleted, delivered, delivery, enqueue, failed, key_id, link, never_sent, noon, settlement,
    short_id,
};

/// What a store has told of suspensions that began.
pub type Told = watch::Receiver<Vec<Suspension>>;

/// Has a store suspend URLs after so many failures.
pub fn suspend_after(store: &Arc<dyn Store>, failures: u32) -> Told {
    let (tell, told) = watch::channel(Vec::new());
    let hook = Box::new(move |begun| tell.send_modify(|all| all.push(begun)));
    store.suspend_failing(SuspensionRule { failures: NonZeroU32::new(failures).unwrap(), hook });
    told
}

pub fn hours(hours: u32) -> Timestamp {
    noon().plus(MINUTE * 60 * hours)
}

/// The end of a delivery of link `n` to the URL at `place`, of a hit of this hour.
pub async fn end(store: &Arc<dyn Store>, n: u32, place: u8, hour: u32, outcome: AttemptOutcome) -> DeliveryId {
    let id = delivery(n, hours(hour), place);
    enqueue(store, [id]).await;
    let attempt = u32::from(outcome != never_sent());
    store.settle_deliveries(vec![settlement(id, attempt, outcome, hours(hour))]).await.unwrap();
    id
}

pub async fn fail(store: &Arc<dyn Store>, at: impl IntoIterator<Item = u32>) {
    for hour in at {
        end(store, 1, 0, hour, failed(None)).await;
    }
}

/// The suspended places of link 1.
pub async fn suspended(store: &Arc<dyn Store>) -> Vec<u8> {
    let mut found = store.suspensions(vec![short_id(1)]).await.unwrap();
    found.sort_by_key(|suspension| suspension.place);
    found.into_iter().map(|suspension| suspension.place).collect()
}

async fn create(store: &Arc<dyn Store>, n: u32) -> Link {
    let made = link(n, key_id(1));
    store.create_link(made.clone(), None).await.unwrap();
    made
}

pub async fn a_url_is_suspended_after_failures_in_a_row_over_a_day(ground: &impl Ground) {
    let store = ground.open().await;
    let told = suspend_after(&store, 3);
    create(&store, 1).await;
    create(&store, 2).await;
    fail(&store, [0, 1, 2, 23]).await;
    assert_eq!(suspended(&store).await, [0; 0], "many, but not for a day");
    end(&store, 1, 1, 0, failed(None)).await;
    end(&store, 1, 1, 24, failed(None)).await;
    end(&store, 2, 0, 24, failed(None)).await;
    assert_eq!(suspended(&store).await, [0; 0], "for a day, but too few");
    fail(&store, [24]).await;
    let expected = Suspension { link: short_id(1), place: 0, since: hours(24), failures: 5 };
    let all = vec![short_id(2), short_id(1), short_id(3)];
    assert_eq!(store.suspensions(all.clone()).await.unwrap(), [expected]);
    // What was in flight changes nothing.
    fail(&store, [25]).await;
    end(&store, 1, 0, 26, delivered()).await;
    assert_eq!(*told.borrow(), [expected]);
    let store = reopened(ground, store).await;
    assert_eq!(store.suspensions(all).await.unwrap(), [expected]);
    assert_eq!(store.suspensions(Vec::new()).await.unwrap(), []);
}

pub async fn failures_are_counted_over_restarts_and_each_once(ground: &impl Ground) {
    let store = ground.open().await;
    suspend_after(&store, 3);
    create(&store, 1).await;
    let id = delivery(1, hours(0), 0);
    enqueue(&store, [id]).await;
    // An answer was lost.
    for _ in 0..3 {
        store.settle_deliveries(vec![settlement(id, 1, failed(None), hours(0))]).await.unwrap();
    }
    let store = reopened(ground, store).await;
    let told = suspend_after(&store, 3);
    fail(&store, [30]).await;
    assert_eq!(suspended(&store).await, [0; 0]);
    // The next round of a delivery is another one.
    let replay = Replay { link: id.link, ids: vec![id], at: hours(31) };
    assert_eq!(store.replay_deliveries(replay).await.unwrap(), 1);
    let state = store.delivery_states(vec![id]).await.unwrap().remove(0).unwrap();
    let again = Settlement { round: state.round, ..settlement(id, 2, failed(None), hours(32)) };
    for _ in 0..3 {
        store.settle_deliveries(vec![again.clone()]).await.unwrap();
    }
    assert_eq!((suspended(&store).await, told.borrow().len()), (vec![0], 1));
}

pub async fn only_failures_in_a_row_count(ground: &impl Ground) {
    let store = ground.open().await;
    suspend_after(&store, 2);
    create(&store, 1).await;
    fail(&store, [0]).await;
    end(&store, 1, 0, 12, delivered()).await;
    fail(&store, [24]).await;
    assert_eq!(suspended(&store).await, [0; 0], "a success in between");
    // Neither a retry nor what was not sent.
    end(&store, 1, 0, 36, failed(Some(MINUTE))).await;
    end(&store, 1, 0, 50, never_sent()).await;
    assert_eq!(suspended(&store).await, [0; 0]);
    fail(&store, [51]).await;
    assert_eq!(suspended(&store).await, [0], "what was not sent is no success either");
}

pub async fn without_a_rule_nothing_is_counted(ground: &impl Ground) {
    let store = ground.open().await;
    create(&store, 1).await;
    fail(&store, [0, 1, 2]).await;
    suspend_after(&store, 3);
    fail(&store, [30, 31]).await;
    assert_eq!(suspended(&store).await, [0; 0]);
}

pub async fn a_time_without_a_rule_ends_all_that_was_counted(ground: &impl Ground) {
    let store = ground.open().await;
    suspend_after(&store, 2);
    create(&store, 1).await;
    create(&store, 2).await;
    fail(&store, [0]).await;
    for (n, place, hour) in [(1, 1, 0), (1, 1, 24), (2, 0, 0), (2, 0, 24)] {
        end(&store, n, place, hour, failed(None)).await;
    }
    assert_eq!(suspended(&store).await, [1]);
    let store = reopened(ground, store).await;
    // As a start without the setting does.
    store.forget_failures().await.unwrap();
    end(&store, 1, 0, 25, delivered()).await;
    let store = reopened(ground, store).await;
    suspend_after(&store, 2);
    fail(&store, [26]).await;
    assert_eq!(store.suspensions(vec![short_id(1), short_id(2)]).await.unwrap(), []);
    fail(&store, [50]).await;
    assert_eq!(suspended(&store).await, [0], "counted anew");
}

pub async fn outcomes_that_are_written_together_count_in_their_order(ground: &impl Ground) {
    let store = ground.open().await;
    let told = suspend_after(&store, 100);
    create(&store, 1).await;
    let url_of = |n: u32| u8::try_from(n % 2).unwrap();
    let ids: Vec<_> = (0..120).map(|n| delivery(1, noon().plus(MINUTE * n), url_of(n))).collect();
    enqueue(&store, ids.iter().copied()).await;
    // A success in the middle of those of the second URL.
    let outcome = |n: usize| if n == 61 { delivered() } else { failed(None) };
    let together = ids.iter().enumerate().map(|(n, id)| settlement(*id, 1, outcome(n), id.hit.at));
    store.settle_deliveries(together.collect()).await.unwrap();
    let more: Vec<_> = (0..160).map(|n| delivery(1, hours(25).plus(MINUTE * n), url_of(n))).collect();
    enqueue(&store, more.iter().copied()).await;
    let together = more.iter().map(|id| settlement(*id, 1, failed(None), id.hit.at));
    store.settle_deliveries(together.collect()).await.unwrap();
    // 60 and 40 of the first URL; 29 and 71 of the second.
    let expected = [(0, 78), (1, 141)].map(|(place, minutes)| (place, hours(25).plus(MINUTE * minutes)));
    let mut found: Vec<_> = told.borrow().iter().map(|begun| (begun.place, begun.since)).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(told.borrow().iter().all(|begun| begun.failures == 100));
    for id in [ids[0], more[159]] {
        let state = store.delivery_states(vec![id]).await.unwrap().remove(0).unwrap();
        assert_eq!(state.status, DeliveryStatus::Failed);
    }
}

pub async fn a_test_ends_a_suspension_and_failures_count_anew(ground: &impl Ground) {
    let store = ground.open().await;
    let told = suspend_after(&store, 2);
    create(&store, 1).await;
    fail(&store, [0, 24]).await;
    end(&store, 1, 1, 0, failed(None)).await;
    end(&store, 1, 1, 24, failed(None)).await;
    assert_eq!(suspended(&store).await, [0, 1]);
    store.end_suspension(short_id(1), 0).await.unwrap();
    store.end_suspension(short_id(7), 0).await.unwrap();
    assert_eq!(suspended(&store).await, [1], "of that URL alone");
    fail(&store, [25, 48]).await;
    assert_eq!(suspended(&store).await, [1]);
    fail(&store, [49]).await;
    assert_eq!((suspended(&store).await, told.borrow().len()), (vec![0, 1], 3));
}

pub async fn a_change_of_the_link_ends_its_suspensions(ground: &impl Ground) {
    let store = ground.open().await;
    suspend_after(&store, 2);
    let first = create(&store, 1).await;
    fail(&store, [0, 24]).await;
    end(&store, 1, 1, 24, failed(None)).await;
    assert_eq!(suspended(&store).await, [0]);
    // Any change; one that is refused is none.
    let stale = changed(&changed(&first));
    assert!(store.update_link(stale).await.is_err());
    assert_eq!(suspended(&store).await, [0]);
    let second = changed(&first);
    store.update_link(second.clone()).await.unwrap();
    assert_eq!(suspended(&store).await, [0; 0]);
    // All counts begin anew.
    fail(&store, [30]).await;
    end(&store, 1, 1, 48, failed(None)).await;
    assert_eq!(suspended(&store).await, [0; 0]);
    let store = reopened(ground, store).await;
    suspend_after(&store, 2);
    fail(&store, [54]).await;
    assert_eq!(suspended(&store).await, [0]);

    store.delete_link(deleted(&second)).await.unwrap();
    assert_eq!(suspended(&store).await, [0; 0]);
    // Deliveries that were pending.
    fail(&store, [55, 80, 120]).await;
    assert_eq!(suspended(&store).await, [0; 0]);
    while store.remove_counts_of_deleted(hours(10_000)).await.unwrap() {}
    assert_eq!(suspended(&store).await, [0; 0]);
}

//! The queue of deliveries: due times, tries, and the monthly quota.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use signpost::domain::bots::BotKind;
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::hit::HitBatch;
use signpost::domain::link::Revision;
use signpost::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus, NewDelivery, UrlSummary};
use signpost::store::{DueDelivery, QuotaClaim, Store, TestClaim};

use super::{Ground, reopened};
use crate::store::samples::{
    MINUTE, batch, delivered, delivery, enqueue, failed, key_id, month, never_sent, noon, settlement, short_id,
};

async fn state(store: &Arc<dyn Store>, id: DeliveryId) -> DeliveryState {
    store.delivery_states(vec![id]).await.unwrap().remove(0).unwrap()
}

async fn due(store: &Arc<dyn Store>, now: Timestamp) -> Vec<DueDelivery> {
    store.due_deliveries(now, None, 1_000).await.unwrap()
}

async fn summary(store: &Arc<dyn Store>, link: u32) -> UrlSummary {
    store.delivery_summaries(short_id(link), noon().day()).await.unwrap().remove(0).1
}

async fn settle(store: &Arc<dyn Store>, id: DeliveryId, attempt: u32, outcome: AttemptOutcome, at: Timestamp) {
    store.settle_deliveries(vec![settlement(id, attempt, outcome, at)]).await.unwrap();
}

fn claim(id: DeliveryId, limit: Option<u64>) -> QuotaClaim {
    QuotaClaim { id, round: 0, month: noon().month(), limit }
}

async fn deliveries_used(store: &Arc<dyn Store>, key: u32) -> u64 {
    store.monthly_counts(key_id(key), noon().month()).await.unwrap().webhook_deliveries
}

pub async fn a_batch_enqueues_its_deliveries_once(ground: &impl Ground) {
    let store = ground.open().await;
    let (first, second, unknown) = (delivery(1, noon(), 0), delivery(1, noon(), 1), delivery(2, noon(), 0));
    let bots = [Some(BotKind::Preview), None];
    let new = |(id, bot)| NewDelivery { id, owner: key_id(7), revision: Revision(9), bot };
    let deliveries = [first, second].into_iter().zip(bots).map(new).collect();
    let batch = Arc::new(HitBatch { deliveries, ..batch(0, 1) });
    for _ in 0..2 {
        store.apply_hits(Arc::clone(&batch)).await.unwrap();
    }
    let new = DeliveryState::new(key_id(7), Revision(9), noon());
    let states = store.delivery_states(vec![second, unknown, first]).await.unwrap();
    assert_eq!(states, [Some(new.clone()), None, Some(DeliveryState { bot: bots[0], ..new })]);
    let at_noon = |id| DueDelivery { due_at: noon(), id, revision: Revision(9), round: 0 };
    let mut due_now = due(&store, noon()).await;
    due_now.sort_by_key(|due| due.id.url_index);
    assert_eq!(due_now, [at_noon(first), at_noon(second)]);
    let one = UrlSummary { pending: 1, ..UrlSummary::default() };
    let summaries = store.delivery_summaries(short_id(1), noon().day()).await.unwrap();
    assert_eq!(summaries, [(0, one.clone()), (1, one)]);
}

pub async fn due_deliveries_come_by_time_and_go_on_after_a_cursor(ground: &impl Ground) {
    let store = ground.open().await;
    let at = |minutes: u64| noon().plus(MINUTE * u32::try_from(minutes).unwrap());
    // The links' order is not the times' order.
    let ids = [(9, 0), (3, 1), (5, 2), (1, 3), (7, 4)].map(|(link, minutes)| delivery(link, at(minutes), 0));
    enqueue(&store, ids.into_iter().rev()).await;
    let expected: Vec<_> =
        ids.iter().map(|id| DueDelivery { due_at: id.hit.at, id: *id, revision: Revision::FIRST, round: 0 }).collect();
    assert_eq!(due(&store, at(10)).await, expected);
    assert_eq!(due(&store, at(2)).await, expected[..3], "due at that very moment, and nothing later");
    assert_eq!(due(&store, Timestamp(noon().0 - 1)).await, []);

    let first = store.due_deliveries(at(10), None, 2).await.unwrap();
    let second = store.due_deliveries(at(10), Some(first[1].place()), 2).await.unwrap();
    let third = store.due_deliveries(at(10), Some(second[1].place()), 2).await.unwrap();
    assert_eq!([first, second, third].concat(), expected);
    assert_eq!(store.due_deliveries(at(10), Some(expected[4].place()), 2).await.unwrap(), []);
    assert_eq!(store.due_deliveries(at(1), Some(expected[3].place()), 2).await.unwrap(), [], "a cursor past now");
}

pub async fn a_retry_moves_the_due_time(ground: &impl Ground) {
    let store = ground.open().await;
    let id = delivery(1, noon(), 0);
    let deliveries = vec![NewDelivery { id, owner: key_id(1), revision: Revision(3), bot: Some(BotKind::Tool) }];
    store.apply_hits(Arc::new(HitBatch { deliveries, ..batch(0, 1) })).await.unwrap();
    let retry = failed(Some(Duration::from_secs(1)));
    let (tried, retried) = (Timestamp(noon().0 + 250), Timestamp(noon().0 + 1_250));
    settle(&store, id, 1, retry, tried).await;
    assert_eq!(due(&store, Timestamp(retried.0 - 1)).await, []);
    let store = reopened(ground, store).await;
    assert_eq!(due(&store, retried).await, [DueDelivery { due_at: retried, id, revision: Revision(3), round: 0 }]);
    let now = state(&store, id).await;
    assert_eq!(now.bot, Some(BotKind::Tool));
    assert_eq!((now.status, now.attempts, now.next_attempt_at), (DeliveryStatus::Pending, 1, Some(retried)));
    assert_eq!((now.updated_at, now.created_at, now.revision), (tried, noon(), Revision(3)));
    assert_eq!((now.response_status, now.error.as_deref()), (Some(500), Some("http 500")));
    settle(&store, id, 2, delivered(), noon().plus(MINUTE)).await;
    assert_eq!(due(&store, noon().plus(MINUTE * 60)).await, []);
}

pub async fn a_try_is_written_down_once(ground: &impl Ground) {
    let store = ground.open().await;
    let id = delivery(1, noon(), 0);
    enqueue(&store, [id]).await;
    let retry = || failed(Some(MINUTE));
    // Twice in one call, and again in another with another outcome.
    let first = settlement(id, 1, retry(), noon());
    store.settle_deliveries(vec![first.clone(), first]).await.unwrap();
    let once = state(&store, id).await;
    settle(&store, id, 1, delivered(), noon().plus(MINUTE)).await;
    settle(&store, id, 3, delivered(), noon().plus(MINUTE)).await;
    assert_eq!(state(&store, id).await, once);
    assert_eq!((once.attempts, once.status), (1, DeliveryStatus::Pending));
    let expected = UrlSummary {
        pending: 1,
        last_attempt_at: Some(noon()),
        last_status: Some(500),
        last_error: Some("http 500".into()),
        ..UrlSummary::default()
    };
    assert_eq!(summary(&store, 1).await, expected);
    settle(&store, id, 2, failed(None), noon().plus(MINUTE)).await;
    assert_eq!(state(&store, id).await.attempts, 2);
}

pub async fn a_settled_delivery_stays_as_it_is(ground: &impl Ground) {
    let store = ground.open().await;
    let (done, gone) = (delivery(1, noon(), 0), delivery(2, noon(), 0));
    enqueue(&store, [done, gone]).await;
    settle(&store, done, 1, delivered(), noon()).await;
    settle(&store, gone, 1, failed(None), noon()).await;
    let before = (state(&store, done).await, state(&store, gone).await);
    assert_eq!(
        (before.0.status, before.0.attempts, before.0.response_status),
        (DeliveryStatus::Delivered, 1, Some(204))
    );
    assert_eq!((before.1.status, before.1.next_attempt_at), (DeliveryStatus::Failed, None));
    for id in [done, gone] {
        settle(&store, id, 2, failed(Some(MINUTE)), noon().plus(MINUTE)).await;
        settle(&store, id, 2, delivered(), noon().plus(MINUTE)).await;
        settle(&store, id, 0, never_sent(), noon().plus(MINUTE)).await;
    }
    assert_eq!((state(&store, done).await, state(&store, gone).await), before);
    assert_eq!(due(&store, noon().plus(MINUTE * 60)).await, []);
    let counts = |summary: UrlSummary| (summary.pending, summary.delivered, summary.failed);
    assert_eq!(counts(summary(&store, 1).await), (0, 1, 0));
    assert_eq!(counts(summary(&store, 2).await), (0, 0, 1));
    // One that is not there is no error.
    settle(&store, delivery(3, noon(), 0), 1, delivered(), noon()).await;
    assert_eq!(store.delivery_states(vec![delivery(3, noon(), 0)]).await.unwrap(), [None]);
}

pub async fn a_delivery_never_sent_has_no_attempts(ground: &impl Ground) {
    let store = ground.open().await;
    let id = delivery(1, noon(), 0);
    enqueue(&store, [id]).await;
    for _ in 0..2 {
        settle(&store, id, 0, never_sent(), noon().plus(MINUTE)).await;
    }
    let now = state(&store, id).await;
    assert_eq!((now.status, now.attempts, now.error.as_deref()), (DeliveryStatus::Failed, 0, Some("quota exceeded")));
    assert_eq!((now.response_status, now.next_attempt_at), (None, None));
    assert_eq!(due(&store, noon().plus(MINUTE * 60)).await, []);
    let expected = UrlSummary { failed: 1, last_error: Some("quota exceeded".into()), ..UrlSummary::default() };
    assert_eq!(summary(&store, 1).await, expected);
}

pub async fn the_delivery_quota_is_exact_however_many_claim_at_once(ground: &impl Ground) {
    let store = ground.open().await;
    let ids: Vec<_> = (0..300).map(|n| delivery(n, noon(), 0)).collect();
    enqueue(&store, ids.iter().copied()).await;
    let claims = ids.chunks(3).map(|ids| {
        let (store, claims) = (store.clone(), ids.iter().map(|id| claim(*id, Some(100))).collect());
        tokio::spawn(async move { store.claim_delivery_quota(claims).await })
    });
    let answers = join_all(claims).await.into_iter().flat_map(|answer| answer.unwrap().unwrap());
    let granted: Vec<bool> = answers.collect();
    assert_eq!(granted.len(), 300);
    assert_eq!(granted.iter().filter(|granted| **granted).count(), 100);
    assert_eq!(deliveries_used(&store, 1).await, 100);
    let states = store.delivery_states(ids).await.unwrap();
    assert_eq!(states.into_iter().map(|state| state.unwrap().counted).collect::<Vec<_>>(), granted);
}

pub async fn a_claim_counts_once_however_often_it_comes(ground: &impl Ground) {
    let store = ground.open().await;
    let [a, b, c] = [1, 2, 3].map(|n| delivery(n, noon(), 0));
    let unknown = delivery(4, noon(), 0);
    enqueue(&store, [a, b, c]).await;
    let claims = vec![claim(a, Some(2)), claim(a, Some(2)), claim(b, Some(2)), claim(c, Some(2)), claim(unknown, None)];
    let answers = [true, true, true, false, false];
    assert_eq!(store.claim_delivery_quota(claims.clone()).await.unwrap(), answers);
    let store = reopened(ground, store).await;
    assert_eq!(store.claim_delivery_quota(claims).await.unwrap(), answers);
    assert_eq!(deliveries_used(&store, 1).await, 2);
    // A later try of a counted one takes no more of the quota, and a higher limit lets the third in.
    settle(&store, a, 1, failed(Some(MINUTE)), noon()).await;
    assert_eq!(store.claim_delivery_quota(vec![claim(a, Some(2)), claim(c, Some(3))]).await.unwrap(), [true, true]);
    assert_eq!(deliveries_used(&store, 1).await, 3);
    assert!(store.claim_delivery_quota(Vec::new()).await.unwrap().is_empty());
}

pub async fn tests_of_webhooks_count_like_deliveries_up_to_the_quota(ground: &impl Ground) {
    let store = ground.open().await;
    let tests = async |store: &Arc<dyn Store>, count, limit| {
        let claim = TestClaim { owner: key_id(1), month: noon().month(), limit, count };
        store.claim_test_quota(claim).await.unwrap()
    };
    let ids = [0, 1].map(|url| delivery(1, noon(), url));
    enqueue(&store, ids).await;
    assert_eq!(store.claim_delivery_quota(vec![claim(ids[0], Some(5))]).await.unwrap(), [true]);
    assert_eq!(tests(&store, 2, Some(5)).await, 2);
    // What the last claim counted stays counted.
    assert_eq!(store.claim_delivery_quota(vec![claim(ids[0], Some(5))]).await.unwrap(), [true]);
    assert_eq!(deliveries_used(&store, 1).await, 3);
    assert_eq!(tests(&store, 9, Some(5)).await, 2);
    assert_eq!(tests(&store, 1, Some(5)).await, 0);
    assert_eq!(store.claim_delivery_quota(vec![claim(ids[1], Some(5))]).await.unwrap(), [false]);
    assert_eq!(tests(&store, 3, None).await, 3);
    let store = reopened(ground, store).await;
    assert_eq!((tests(&store, 1, Some(8)).await, deliveries_used(&store, 1).await), (0, 8));
    // Ten at once, of which four find room.
    let claims = (0..10).map(|_| {
        let store = Arc::clone(&store);
        let claim = TestClaim { owner: key_id(1), month: noon().month(), limit: Some(12), count: 1 };
        tokio::spawn(async move { store.claim_test_quota(claim).await.unwrap() })
    });
    let admitted: u64 = join_all(claims).await.into_iter().map(Result::unwrap).sum();
    assert_eq!((admitted, deliveries_used(&store, 1).await), (4, 12));
}

pub async fn deliveries_are_counted_by_owner_and_month(ground: &impl Ground) {
    let store = ground.open().await;
    let ids = [1, 2, 3].map(|n| delivery(n, noon(), 0));
    let owners = [key_id(1), key_id(1), key_id(2)];
    let deliveries = ids
        .into_iter()
        .zip(owners)
        .map(|(id, owner)| NewDelivery { id, owner, revision: Revision::FIRST, bot: None })
        .collect();
    store.apply_hits(Arc::new(HitBatch { deliveries, ..batch(0, 1) })).await.unwrap();
    let (this, next) = (noon().month(), month("2026-12"));
    let claims = ids.into_iter().zip([this, next, this]);
    let claims = claims.map(|(id, month)| QuotaClaim { id, round: 0, month, limit: Some(1) }).collect();
    assert_eq!(store.claim_delivery_quota(claims).await.unwrap(), [true, true, true]);
    for (key, month, count) in [(1, this, 1), (1, next, 1), (2, this, 1), (2, next, 0)] {
        let counts = store.monthly_counts(key_id(key), month).await.unwrap();
        assert_eq!((counts.webhook_deliveries, counts.links_created, counts.hits_served), (count, 0, 0));
    }
}

pub async fn those_that_are_pending_are_counted_whatever_becomes_of_them(ground: &impl Ground) {
    let mut store = ground.open().await;
    assert_eq!(store.pending_deliveries().await.unwrap(), 0);
    let ids = [0, 1, 2, 3, 4].map(|url| delivery(1, noon(), url));
    enqueue(&store, ids).await;
    enqueue(&store, [delivery(2, noon(), 0)]).await;
    assert_eq!(store.pending_deliveries().await.unwrap(), 6);
    let becomes = [(0, 1, delivered()), (1, 1, failed(None)), (2, 1, failed(Some(MINUTE))), (3, 0, never_sent())];
    let settlements = becomes.map(|(id, attempt, outcome)| settlement(ids[id], attempt, outcome, noon()));
    for life in 1..=2 {
        store.settle_deliveries(settlements.to_vec()).await.unwrap();
        assert_eq!(store.pending_deliveries().await.unwrap(), 3, "in life {life}");
        store = reopened(ground, store).await;
    }
    while store.drop_deliveries(Day(noon().day().0 + 1)).await.unwrap() {}
    assert_eq!(store.pending_deliveries().await.unwrap(), 0);
}

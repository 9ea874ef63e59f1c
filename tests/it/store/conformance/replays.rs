//! Replays: settled deliveries that are queued again.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use signpost::domain::bots::BotKind;
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::HitBatch;
use signpost::domain::link::Revision;
use signpost::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, NewDelivery, UrlSummary};
use signpost::store::{DeliveryQuery, DueDelivery, QuotaClaim, Replay, SettledQuery, Settlement, Store};

use super::{Ground, reopened};
use crate::store::samples::{
    DAY, MINUTE, batch, delivered, delivery, enqueue, failed, key_id, never_sent, noon, settlement, short_id,
};

async fn state(store: &Arc<dyn Store>, id: DeliveryId) -> DeliveryState {
    store.delivery_states(vec![id]).await.unwrap().remove(0).unwrap()
}

async fn summary(store: &Arc<dyn Store>) -> UrlSummary {
    store.delivery_summaries(short_id(1), noon().day()).await.unwrap().remove(0).1
}

async fn deliveries_used(store: &Arc<dyn Store>) -> u64 {
    store.monthly_counts(key_id(1), noon().month()).await.unwrap().webhook_deliveries
}

async fn claim(store: &Arc<dyn Store>, id: DeliveryId, round: u32, limit: Option<u64>) -> bool {
    let claim = QuotaClaim { id, round, month: noon().month(), limit };
    store.claim_delivery_quota(vec![claim]).await.unwrap().remove(0)
}

async fn replay(store: &Arc<dyn Store>, ids: &[DeliveryId], at: Timestamp) -> u64 {
    store.replay_deliveries(Replay { link: short_id(1), ids: ids.to_vec(), at }).await.unwrap()
}

/// Deliveries of the link by status, newest first.
async fn listed(store: &Arc<dyn Store>, status: DeliveryStatus) -> Vec<DeliveryId> {
    let query = DeliveryQuery { link: short_id(1), status: Some(status), after: None, since: noon().day(), limit: 100 };
    store.deliveries(query).await.unwrap().into_iter().map(|(id, _)| id).collect()
}

/// A delivery that the quota has counted and whose third attempt has failed.
async fn failed_three_times(store: &Arc<dyn Store>) -> (DeliveryId, Vec<Settlement>) {
    let id = delivery(1, noon(), 0);
    let new = NewDelivery { id, owner: key_id(1), revision: Revision::FIRST, bot: Some(BotKind::Monitor) };
    store.apply_hits(Arc::new(HitBatch { deliveries: vec![new], ..batch(0, 1) })).await.unwrap();
    assert!(claim(store, id, 0, None).await);
    let attempts = [Some(MINUTE), Some(MINUTE), None].into_iter().zip(1..);
    let settlements: Vec<_> =
        attempts.map(|(retry, number)| settlement(id, number, failed(retry), noon().plus(MINUTE * number))).collect();
    store.settle_deliveries(settlements.clone()).await.unwrap();
    (id, settlements)
}

pub async fn a_replay_after_a_third_failure_is_due_at_once_and_has_all_attempts_anew(ground: &impl Ground) {
    let store = ground.open().await;
    let (id, _) = failed_three_times(&store).await;
    let before = state(&store, id).await;
    assert_eq!((before.status, before.attempts, before.round), (DeliveryStatus::Failed, 3, 0));
    assert_eq!(before.bot, Some(BotKind::Monitor));
    let at = noon().plus(MINUTE * 10);
    assert_eq!(replay(&store, &[id], at).await, 1);

    let now = state(&store, id).await;
    assert!(now.round > 0);
    let expected = DeliveryState {
        status: DeliveryStatus::Pending,
        round: now.round,
        earlier_attempts: 3,
        counted: false,
        updated_at: at,
        next_attempt_at: Some(at),
        ..before
    };
    assert_eq!(now, expected);
    let due = DueDelivery { due_at: at, id, revision: Revision::FIRST, round: now.round };
    assert_eq!(store.due_deliveries(at, None, 10).await.unwrap(), std::slice::from_ref(&due));
    assert_eq!(store.pending_deliveries().await.unwrap(), 1);
    let counts = |sum: UrlSummary| [sum.pending, sum.delivered, sum.failed];
    assert_eq!(counts(summary(&store).await), [1, 0, 0]);
    assert_eq!(
        (listed(&store, DeliveryStatus::Failed).await, listed(&store, DeliveryStatus::Pending).await),
        (vec![], vec![id])
    );
    // A pending one is left alone.
    assert_eq!(replay(&store, &[id], at.plus(MINUTE)).await, 0);

    let store = reopened(ground, store).await;
    assert_eq!(state(&store, id).await, expected);
    let in_round = |attempt, outcome, at| Settlement { round: now.round, ..settlement(id, attempt, outcome, at) };
    store.settle_deliveries(vec![in_round(4, failed(Some(MINUTE)), at)]).await.unwrap();
    let retried = store.due_deliveries(at.plus(MINUTE), None, 10).await.unwrap();
    assert_eq!(retried, [DueDelivery { due_at: at.plus(MINUTE), ..due }]);
    store.settle_deliveries(vec![in_round(5, delivered(), at.plus(MINUTE))]).await.unwrap();
    let last = state(&store, id).await;
    assert_eq!((last.status, last.attempts, last.round), (DeliveryStatus::Delivered, 5, now.round));
    assert_eq!(counts(summary(&store).await), [0, 1, 0]);
    assert_eq!(store.pending_deliveries().await.unwrap(), 0);
    // What was delivered can be replayed, too.
    assert_eq!(replay(&store, &[id], at.plus(DAY)).await, 1);
    let again = state(&store, id).await;
    assert!(again.round > now.round && again.earlier_attempts == 5);
    assert_eq!(counts(summary(&store).await), [1, 0, 0]);
}

pub async fn outcomes_and_claims_of_an_earlier_round_change_nothing(ground: &impl Ground) {
    let store = ground.open().await;
    let (id, settlements) = failed_three_times(&store).await;
    let at = noon().plus(MINUTE * 10);
    assert_eq!(replay(&store, &[id], at).await, 1);
    let now = state(&store, id).await;
    // Their answers were lost, so that they are written again.
    let late = [settlement(id, 4, delivered(), at), settlement(id, 0, never_sent(), at)];
    for late in settlements.into_iter().chain(late) {
        store.settle_deliveries(vec![late]).await.unwrap();
        assert_eq!(state(&store, id).await, now);
    }
    assert!(!claim(&store, id, 0, None).await);
    assert_eq!((state(&store, id).await, deliveries_used(&store).await), (now.clone(), 1));

    assert!(claim(&store, id, now.round, Some(2)).await && claim(&store, id, now.round, Some(2)).await);
    assert_eq!(deliveries_used(&store).await, 2, "each round counts once");
    let store = reopened(ground, store).await;
    assert!(claim(&store, id, now.round, Some(2)).await);
    assert_eq!((deliveries_used(&store).await, state(&store, id).await.counted), (2, true));
    // Counted in this round: a refusal comes too late.
    store
        .settle_deliveries(vec![Settlement { round: now.round, ..settlement(id, 0, never_sent(), at) }])
        .await
        .unwrap();
    assert_eq!(state(&store, id).await.status, DeliveryStatus::Pending);
    assert_eq!(store.due_deliveries(at, None, 10).await.unwrap().len(), 1);
}

pub async fn what_the_quota_has_refused_counts_for_the_first_time(ground: &impl Ground) {
    let store = ground.open().await;
    let id = delivery(1, noon(), 0);
    enqueue(&store, [id]).await;
    assert!(!claim(&store, id, 0, Some(0)).await);
    store.settle_deliveries(vec![settlement(id, 0, never_sent(), noon())]).await.unwrap();
    assert_eq!(replay(&store, &[id], noon().plus(MINUTE)).await, 1);
    let round = state(&store, id).await.round;
    assert!(!claim(&store, id, round, Some(0)).await);
    let refused = Settlement { round, ..settlement(id, 0, never_sent(), noon().plus(MINUTE)) };
    store.settle_deliveries(vec![refused]).await.unwrap();
    assert_eq!(replay(&store, &[id], noon().plus(MINUTE * 2)).await, 1);
    let round = state(&store, id).await.round;
    assert!(claim(&store, id, round, Some(1)).await);
    store.settle_deliveries(vec![Settlement { round, ..settlement(id, 1, delivered(), noon()) }]).await.unwrap();
    let state = state(&store, id).await;
    assert_eq!((state.status, state.attempts, deliveries_used(&store).await), (DeliveryStatus::Delivered, 1, 1));
}

pub async fn of_replays_at_once_each_delivery_is_queued_by_one(ground: &impl Ground) {
    let store = ground.open().await;
    let ids: Vec<_> = (0..60).map(|n| delivery(1, noon().plus(MINUTE * n), 0)).collect();
    enqueue(&store, ids.iter().copied()).await;
    let settled = ids.iter().map(|id| settlement(*id, 1, failed(None), id.hit.at));
    store.settle_deliveries(settled.collect()).await.unwrap();
    let at = noon().plus(DAY / 3);
    let replays = (0..5).map(|_| {
        let (store, ids) = (Arc::clone(&store), ids.clone());
        tokio::spawn(async move { replay(&store, &ids, at).await })
    });
    let queued: u64 = join_all(replays).await.into_iter().map(Result::unwrap).sum();
    assert_eq!((queued, store.pending_deliveries().await.unwrap()), (60, 60));
    let due = store.due_deliveries(at, None, 100).await.unwrap();
    let distinct: HashSet<_> = due.iter().map(|due| due.id).collect();
    assert_eq!((due.len(), distinct.len()), (60, 60));
    assert!(due.iter().map(|due| due.id.hit.at).is_sorted(), "oldest hits first");
    assert_eq!([summary(&store).await.pending, summary(&store).await.failed], [60, 0]);
}

pub async fn settled_deliveries_are_found_oldest_first_and_page_by_page(ground: &impl Ground) {
    let store = ground.open().await;
    let at = |hours: u32| noon().plus(MINUTE * 60 * hours);
    // Over three days, at two URLs.
    let id = |hours: u32| delivery(1, at(hours), u8::try_from(hours % 2).unwrap());
    enqueue(&store, (0..48).map(id)).await;
    enqueue(&store, [delivery(2, at(1), 0)]).await;
    let outcome = |hours: u32| match hours % 3 {
        0 => Some(failed(None)),
        1 => Some(delivered()),
        _ => None,
    };
    let settled = (0..48).filter_map(|hours| Some(settlement(id(hours), 1, outcome(hours)?, at(hours))));
    let other = settlement(delivery(2, at(1), 0), 1, failed(None), at(1));
    store.settle_deliveries(settled.chain([other]).collect()).await.unwrap();

    let found = async |status, from: u32, until: u32, limit| {
        let query = SettledQuery { link: short_id(1), status, from: at(from), until: at(until), after: None, limit };
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..100 {
            let page = store.settled_deliveries(SettledQuery { after, ..query }).await.unwrap();
            assert!(page.found.len() <= limit);
            found.extend(page.found);
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
        panic!("a walk that does not end")
    };
    let expected = |rests: &[u32], hours: std::ops::Range<u32>| -> Vec<DeliveryId> {
        hours.filter(|hours| rests.contains(&(hours % 3))).map(id).collect()
    };
    for limit in [1, 7, 1_000] {
        for (status, rests) in
            [(Some(DeliveryStatus::Failed), &[0][..]), (Some(DeliveryStatus::Delivered), &[1]), (None, &[0, 1])]
        {
            for hours in [0..48, 0..1, 5..31, 47..48, 13..13] {
                let what = format!("{status:?} {hours:?} {limit}");
                assert_eq!(found(status, hours.start, hours.end, limit).await, expected(rests, hours), "{what}");
            }
        }
    }
    // What was replayed is pending, and no more among them.
    replay(&store, &[id(0), id(3)], at(60)).await;
    assert_eq!(found(Some(DeliveryStatus::Failed), 0, 10, 100).await, [id(6), id(9)]);
}

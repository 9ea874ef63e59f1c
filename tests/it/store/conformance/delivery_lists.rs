//! Deliveries as the status endpoint shows them, and how old ones go.

use std::sync::Arc;

use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::webhook::{DeliveryId, DeliveryStatus, UrlSummary};
use signpost::store::{DeliveryQuery, Replay, SettledQuery, Settlement, Store};

use super::{Ground, reopened};
use crate::store::samples::{
    DAY, MINUTE, delivered, delivery, enqueue, failed, never_sent, noon, settlement, short_id,
};

fn all(link: u32) -> DeliveryQuery {
    DeliveryQuery { link: short_id(link), status: None, after: None, since: Day(0), limit: 1_000 }
}

async fn list(store: &Arc<dyn Store>, query: DeliveryQuery) -> Vec<DeliveryId> {
    store.deliveries(query).await.unwrap().into_iter().map(|(id, _)| id).collect()
}

fn days_ago(days: u32) -> Timestamp {
    noon().minus(DAY * days)
}

pub async fn a_list_is_of_one_link_newest_first_and_goes_on_after_a_delivery(ground: &impl Ground) {
    let mut store = ground.open().await;
    let times = [noon().plus(MINUTE), noon(), Timestamp(noon().0 - 1), days_ago(1), days_ago(40)];
    let expected: Vec<_> = times.into_iter().flat_map(|at| [0, 1].map(|url| delivery(2, at, url))).collect();
    enqueue(&store, expected.iter().rev().copied()).await;
    enqueue(&store, [delivery(1, noon(), 0), delivery(3, noon(), 0)]).await;
    for _ in 0..2 {
        assert_eq!(list(&store, all(2)).await, expected);
        let mut paged = Vec::new();
        loop {
            let page = list(&store, DeliveryQuery { after: paged.last().copied(), limit: 3, ..all(2) }).await;
            assert!(page.len() <= 3);
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, expected);
        assert_eq!(list(&store, all(4)).await, []);
        store = reopened(ground, store).await;
    }
    let (id, state) = store.deliveries(all(1)).await.unwrap().remove(0);
    assert_eq!(Some(state), store.delivery_states(vec![id]).await.unwrap().remove(0));
}

pub async fn a_list_of_one_status_leaves_out_the_others(ground: &impl Ground) {
    let store = ground.open().await;
    // Three a day on five days; of each day one is delivered, one fails, and today's third has failed too.
    let on = |day: u32, minute: u32| delivery(1, days_ago(day).plus(MINUTE * minute), 0);
    enqueue(&store, (0..5).flat_map(|day| (0..3).map(move |minute| on(day, minute)))).await;
    let outcomes = (0..5).flat_map(|day| [(on(day, 0), delivered()), (on(day, 1), failed(None))]);
    let outcomes = outcomes.chain([(on(0, 2), never_sent())]);
    let settlements = outcomes.map(|(id, outcome)| {
        let attempt = u32::from(outcome != never_sent());
        settlement(id, attempt, outcome, noon().plus(DAY))
    });
    store.settle_deliveries(settlements.collect()).await.unwrap();

    let of = |status| DeliveryQuery { status: Some(status), ..all(1) };
    let failed = [on(0, 2), on(0, 1), on(1, 1), on(2, 1), on(3, 1), on(4, 1)];
    assert_eq!(list(&store, of(DeliveryStatus::Failed)).await, failed);
    assert_eq!(list(&store, of(DeliveryStatus::Delivered)).await, [0, 1, 2, 3, 4].map(|day| on(day, 0)));
    assert_eq!(list(&store, of(DeliveryStatus::Pending)).await, [1, 2, 3, 4].map(|day| on(day, 2)));
    for (after, page) in [(None, &failed[..2]), (Some(failed[1]), &failed[2..4]), (Some(failed[4]), &failed[5..])] {
        let query = DeliveryQuery { after, limit: 2, ..of(DeliveryStatus::Failed) };
        assert_eq!(list(&store, query).await, page);
    }
    let query = DeliveryQuery { since: days_ago(1).day(), ..of(DeliveryStatus::Failed) };
    assert_eq!(list(&store, query).await, failed[..3]);
}

pub async fn a_list_begins_at_the_day_asked_for(ground: &impl Ground) {
    let store = ground.open().await;
    let today = noon().day();
    let (first_today, last_before) = (delivery(1, today.start(), 0), delivery(1, Timestamp(today.start().0 - 1), 0));
    enqueue(&store, [first_today, last_before]).await;
    assert_eq!(list(&store, DeliveryQuery { since: today, ..all(1) }).await, [first_today]);
    assert_eq!(list(&store, DeliveryQuery { since: today.minus(1), ..all(1) }).await, [first_today, last_before]);
    assert_eq!(list(&store, DeliveryQuery { since: Day(today.0 + 1), ..all(1) }).await, []);
    let query = DeliveryQuery { since: today, after: Some(last_before), ..all(1) };
    assert_eq!(list(&store, query).await, [], "a cursor older than that day");
}

pub async fn summaries_add_up_the_days_of_each_url(ground: &impl Ground) {
    let mut store = ground.open().await;
    let of_url = |day, url| delivery(1, days_ago(day), url);
    enqueue(&store, [of_url(3, 0), of_url(2, 0), of_url(1, 0), of_url(0, 0), of_url(2, 1), of_url(0, 9)]).await;
    enqueue(&store, [delivery(2, noon(), 0)]).await;
    let (first, second, third) = (noon(), noon().plus(MINUTE), noon().plus(MINUTE * 2));
    let settlements = vec![
        settlement(of_url(3, 0), 1, failed(None), first),
        settlement(of_url(2, 0), 1, failed(Some(MINUTE)), first),
        settlement(of_url(2, 0), 2, delivered(), second),
        settlement(of_url(1, 0), 0, never_sent(), third),
        settlement(of_url(2, 1), 1, failed(None), second),
    ];
    store.settle_deliveries(settlements).await.unwrap();
    let (tried, refused) = (Some("http 500".to_owned()), Some("quota exceeded".to_owned()));
    for _ in 0..2 {
        let mut summaries = store.delivery_summaries(short_id(1), Day(0)).await.unwrap();
        summaries.sort_by_key(|(url, _)| *url);
        let expected = [
            UrlSummary {
                pending: 1,
                delivered: 1,
                failed: 2,
                last_attempt_at: Some(second),
                last_status: Some(204),
                last_error: refused.clone(),
            },
            UrlSummary {
                failed: 1,
                last_attempt_at: Some(second),
                last_status: Some(500),
                last_error: tried.clone(),
                ..UrlSummary::default()
            },
            UrlSummary { pending: 1, ..UrlSummary::default() },
        ];
        assert_eq!(summaries, [0, 1, 9].into_iter().zip(expected).collect::<Vec<_>>());

        let mut since = store.delivery_summaries(short_id(1), days_ago(1).day()).await.unwrap();
        since.sort_by_key(|(url, _)| *url);
        assert_eq!(since.len(), 2);
        assert_eq!((since[0].1.pending, since[0].1.failed, since[0].1.last_attempt_at), (1, 1, None));
        assert_eq!(store.delivery_summaries(short_id(3), Day(0)).await.unwrap(), []);
        store = reopened(ground, store).await;
    }
}

pub async fn failed_deliveries_that_were_replayed_cost_a_list_nothing(ground: &impl Ground) {
    let store = ground.open().await;
    let [oldest, yesterday] = [noon().minus(MINUTE), days_ago(1)].map(|at| delivery(1, at, 0));
    let ids: Vec<_> = (0..400).map(|n| delivery(1, noon().plus(MINUTE * n), 0)).collect();
    let all_ids = || [oldest, yesterday].into_iter().chain(ids.iter().copied());
    enqueue(&store, all_ids()).await;
    let outcomes = all_ids().map(|id| settlement(id, 1, failed(None), id.hit.at));
    store.settle_deliveries(outcomes.collect()).await.unwrap();
    let replay = Replay { link: short_id(1), ids: ids.clone(), at: noon().plus(DAY) };
    assert_eq!(store.replay_deliveries(replay).await.unwrap(), 400);
    let query = DeliveryQuery { status: Some(DeliveryStatus::Failed), ..all(1) };
    let requests = || store.driver_counts().map_or(0, |counts| counts.queries);
    let before = requests();
    assert_eq!(list(&store, query).await, [oldest, yesterday], "the others are pending");
    let mut found = Vec::new();
    let settled = SettledQuery {
        link: short_id(1),
        status: Some(DeliveryStatus::Failed),
        from: days_ago(2),
        until: noon().plus(DAY),
        after: None,
        limit: 500,
    };
    found.extend(store.settled_deliveries(settled).await.unwrap().found);
    assert_eq!(found, [yesterday, oldest]);
    assert!(requests() - before < 60, "{} requests", requests() - before);

    // They may fail once more.
    let states = store.delivery_states(ids.clone()).await.unwrap();
    let again = ids.iter().zip(states).take(3).map(|(id, state)| Settlement {
        round: state.unwrap().round,
        ..settlement(*id, 2, failed(None), noon().plus(DAY))
    });
    store.settle_deliveries(again.collect()).await.unwrap();
    assert_eq!(list(&store, query).await, [ids[2], ids[1], ids[0], oldest, yesterday]);
    let store = reopened(ground, store).await;
    assert_eq!(list(&store, DeliveryQuery { limit: 4, ..query }).await, [ids[2], ids[1], ids[0], oldest]);
}

pub async fn what_is_dropped_leaves_nothing_behind(ground: &impl Ground) {
    let store = ground.open().await;
    let (old, older) = (days_ago(31), days_ago(40));
    let last_kept = days_ago(30).day().start();
    // More of one link's day than one step drops, and many links of one day.
    let busy: Vec<_> = (0..4_500).map(|n| delivery(1, old.plus(std::time::Duration::from_millis(n)), 0)).collect();
    let many: Vec<_> = (2..300).map(|n| delivery(n, older, 0)).collect();
    let kept = [delivery(1, last_kept, 0), delivery(1, noon(), 1), delivery(2, Timestamp(noon().0 - 1), 0)];
    let going = [busy, many, vec![delivery(1, Timestamp(last_kept.0 - 1), 3)]].concat();
    for ids in going.chunks(1_000) {
        enqueue(&store, ids.iter().copied()).await;
    }
    enqueue(&store, kept).await;
    let settled = going.iter().step_by(3).map(|id| settlement(*id, 1, delivered(), noon()));
    store.settle_deliveries(settled.collect()).await.unwrap();

    let before = days_ago(30).day();
    let mut steps = 0;
    while store.drop_deliveries(before).await.unwrap() {
        steps += 1;
        assert!(steps < going.len(), "no end of it");
    }
    assert!(!store.drop_deliveries(before).await.unwrap());
    let store = reopened(ground, store).await;
    assert_eq!(list(&store, all(1)).await, [kept[1], kept[0]]);
    assert_eq!(list(&store, all(2)).await, [kept[2]]);
    assert_eq!(list(&store, all(299)).await, []);
    assert!(store.delivery_states(going).await.unwrap().iter().all(Option::is_none));
    let due = store.due_deliveries(noon().plus(DAY), None, 10_000).await.unwrap();
    assert_eq!(due.into_iter().map(|due| due.id).collect::<Vec<_>>(), [kept[0], kept[2], kept[1]]);
    let pending = UrlSummary { pending: 1, ..UrlSummary::default() };
    let summaries = store.delivery_summaries(short_id(1), Day(0)).await.unwrap();
    assert_eq!(summaries, [(0, pending.clone()), (1, pending.clone())]);
    assert_eq!(store.delivery_summaries(short_id(2), Day(0)).await.unwrap(), [(0, pending)]);
    assert_eq!(store.delivery_summaries(short_id(299), Day(0)).await.unwrap(), []);
    for status in DeliveryStatus::ALL {
        let count = list(&store, DeliveryQuery { status: Some(status), ..all(1) }).await.len();
        assert_eq!(count, if status == DeliveryStatus::Pending { 2 } else { 0 });
    }
}

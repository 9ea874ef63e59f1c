//! Hits and deliveries against a model that keeps them in maps, over random operations with reopenings in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use signpost::domain::breakdown::Dimension;
use signpost::domain::calendar::{Day, Timestamp};
use signpost::domain::hit::{HitBatch, HitCursor, Position, ServedCount};
use signpost::domain::link::Revision;
use signpost::domain::tally::BotFilter;
use signpost::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryState, DeliveryStatus};
use signpost::store::{
    DeliveryQuery, DueDelivery, FirstTriesToQueue, QuotaClaim, Replay, SettledQuery, Settlement, Store,
};

use super::Embedded;
use super::conformance::{Ground, reopened};
use super::samples::{
    DAY, MINUTE, batch, counted, day, delivered, delivery, devices, failed, key_id, label, never_sent, new_delivery,
    node, noon, settlement, short_id,
};

const LINKS: u32 = 2;

#[derive(Clone, Debug)]
enum Operation {
    /// Hits as (link, day, device, label), deliveries by their places in [`ids`].
    Apply {
        hits: Vec<(u32, u32, usize, u8)>,
        deliveries: Vec<usize>,
    },
    ApplyLastAgain,
    Claim {
        deliveries: Vec<usize>,
        limit: Option<u64>,
        /// How many rounds ago the deliveries were read.
        late: u32,
    },
    /// Attempts are numbered within their rounds.
    Settle {
        settlements: Vec<(usize, u32, AttemptOutcome)>,
        minute: u32,
        late: u32,
    },
    Replay {
        link: u32,
        deliveries: Vec<usize>,
        minute: u32,
    },
    QueueFirstTries(FirstTriesToQueue),
    DropBefore(u32),
    Reopen,
}

/// How many deliveries the store may keep for their first try: others have to be in the queue.
const FIRST_TRIES: usize = 8;

/// All the deliveries there may be: 2 links, 3 days, 2 hits a day, 2 URLs.
fn ids() -> Vec<DeliveryId> {
    let hits = (0..LINKS).flat_map(|link| (0..3).flat_map(move |day| [1, 2].map(|minute| (link, day, minute))));
    hits.flat_map(|(link, day, minute)| [0, 1].map(|url| delivery(link, on(day).plus(MINUTE * minute), url))).collect()
}

fn on(day: u32) -> Timestamp {
    noon().plus(DAY * day)
}

fn operations() -> impl Strategy<Value = Operation> {
    let place = || 0..ids().len();
    let late = || prop_oneof![9 => Just(0_u32), 1 => Just(1)];
    let outcome = prop_oneof![
        Just(delivered()),
        (1..600_u64).prop_map(|seconds| failed(Some(Duration::from_secs(seconds)))),
        Just(failed(None)),
        Just(never_sent()),
    ];
    let hit = (0..LINKS, 0..3_u32, 0..3_usize, 0..4_u8);
    let apply = (prop::collection::vec(hit, 0..4), prop::collection::vec(place(), 0..6));
    let settle = (prop::collection::vec((place(), 0..4_u32, outcome), 1..4), 0..10_000_u32, late());
    let replay = (0..LINKS, prop::collection::vec(place(), 1..8), 0..10_000_u32);
    let queue_first_tries = prop_oneof![
        Just(FirstTriesToQueue::All),
        Just(FirstTriesToQueue::OlderThan(Duration::ZERO)),
        Just(FirstTriesToQueue::OlderThan(Duration::from_hours(1))),
        prop::collection::vec(place(), 1..4)
            .prop_map(|places| FirstTriesToQueue::These(places.into_iter().map(|place| ids()[place]).collect())),
    ];
    prop_oneof![
        5 => apply.prop_map(|(hits, deliveries)| Operation::Apply { hits, deliveries }),
        1 => Just(Operation::ApplyLastAgain),
        2 => (prop::collection::vec(place(), 1..5), prop::option::of(0..8_u64), late())
            .prop_map(|(deliveries, limit, late)| Operation::Claim { deliveries, limit, late }),
        5 => settle.prop_map(|(settlements, minute, late)| Operation::Settle { settlements, minute, late }),
        3 => replay.prop_map(|(link, deliveries, minute)| Operation::Replay { link, deliveries, minute }),
        1 => queue_first_tries.prop_map(Operation::QueueFirstTries),
        1 => (0..4_u32).prop_map(Operation::DropBefore),
        1 => Just(Operation::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    cursor: u64,
    last: Option<HitBatch>,
    days: BTreeMap<(u32, Day), [u64; 3]>,
    labels: BTreeMap<(u32, String), u64>,
    served: u64,
    claimed: u64,
    /// By sort key.
    deliveries: BTreeMap<[u8; 32], (DeliveryId, DeliveryState)>,
    /// Those that the store keeps for their first try, and so are not in its queue.
    first_tries: BTreeSet<[u8; 32]>,
    /// The deliveries that were kept together.
    kept_together: Vec<Vec<DeliveryId>>,
}

impl Model {
    fn apply(&mut self, hits: Vec<(u32, u32, usize, u8)>, deliveries: BTreeSet<usize>) -> HitBatch {
        let all = ids();
        let mut batch = batch(self.cursor, self.cursor + 1);
        let (mut days, mut labels) = (Vec::new(), Vec::new());
        for (link, of_day, device, name) in hits {
            // With some long ones, an embedded store no longer has them all in one row.
            let (at, name) = (on(of_day), format!("{name}{}.example", "-".repeat(usize::from(name / 2) * 110)));
            let mut counts = [0; 3];
            counts[device] = 1;
            days.push(day(link, at, counts));
            labels.push(label(link, at, Dimension::Referrer, &name, 1));
            batch.served.push(ServedCount { key: key_id(1), month: noon().month(), count: 1 });
            self.days.entry((link, at.day())).or_default()[device] += 1;
            *self.labels.entry((link, name)).or_default() += 1;
            self.served += 1;
        }
        batch.days = counted(days, labels);
        for place in deliveries {
            let id = all[place];
            batch.deliveries.push(new_delivery(id, key_id(1)));
            self.deliveries
                .entry(id.to_bytes())
                .or_insert_with(|| (id, DeliveryState::new(key_id(1), Revision::FIRST, id.hit.at)));
        }
        self.cursor += 1;
        self.last = Some(batch.clone());
        batch
    }

    /// The round that a delivery was in some rounds ago, and the attempts before it.
    fn round(&self, id: DeliveryId, late: u32) -> (u32, u32) {
        let state = self.deliveries.get(&id.to_bytes()).map(|(_, state)| state);
        state.map_or((0, 0), |state| (state.round.saturating_sub(late), state.earlier_attempts))
    }

    fn claim(&mut self, id: DeliveryId, round: u32, limit: Option<u64>) -> bool {
        let state = self.deliveries.get_mut(&id.to_bytes()).map(|(_, state)| state);
        let Some(state) = state.filter(|state| state.round == round) else { return false };
        if !state.counted && limit.is_none_or(|limit| self.claimed < limit) {
            state.counted = true;
            self.claimed += 1;
        }
        state.counted
    }

    fn settle(&mut self, settlement: &Settlement) {
        let Settlement { id, round, attempt, outcome, at } = settlement;
        let Some((_, state)) = self.deliveries.get_mut(&id.to_bytes()) else { return };
        let is_next = if *attempt == 0 { !state.counted } else { *attempt == state.attempts + 1 };
        if state.status == DeliveryStatus::Pending && state.round == *round && is_next {
            state.settle(outcome, *at);
            self.first_tries.remove(&id.to_bytes());
        }
    }

    fn queue_first_tries(&mut self, which: &FirstTriesToQueue) {
        let is_queued = |id: &[u8; 32]| match which {
            FirstTriesToQueue::All => true,
            FirstTriesToQueue::OlderThan(age) => age.is_zero(),
            FirstTriesToQueue::These(ids) => ids.iter().any(|of| of.to_bytes() == *id),
        };
        self.first_tries.retain(|id| !is_queued(id));
    }

    /// Returns how many are queued.
    fn replay(&mut self, replay: &Replay) -> u64 {
        let mut queued = 0;
        for (id, due_at) in replay.due_times() {
            let state = self.deliveries.get_mut(&id.to_bytes()).map(|(_, state)| state);
            if let Some(state) = state.filter(|state| state.status != DeliveryStatus::Pending) {
                state.replay(state.round + 1, due_at, replay.at);
                queued += 1;
            }
        }
        queued
    }

    fn due(&self, now: Timestamp) -> Vec<DueDelivery> {
        let due = |(id, state): &(DeliveryId, DeliveryState)| {
            let due_at = state.next_attempt_at?;
            Some(DueDelivery { due_at, id: *id, revision: Revision::FIRST, round: state.round })
        };
        let in_queue = self.deliveries.iter().filter(|(id, _)| !self.first_tries.contains(*id));
        let in_queue = in_queue.map(|(_, delivery)| delivery);
        let mut due: Vec<_> = in_queue.filter_map(due).filter(|due| due.due_at <= now).collect();
        due.sort_by_key(|due| (due.due_at, due.id.to_bytes()));
        due
    }

    fn list(&self, link: u32, status: Option<DeliveryStatus>) -> Vec<(DeliveryId, DeliveryState)> {
        let of_link = self.deliveries.values().filter(|(id, _)| id.link == short_id(link));
        of_link.filter(|(_, state)| status.is_none_or(|status| status == state.status)).cloned().collect()
    }
}

async fn check(store: &Arc<dyn Store>, model: &mut Model) {
    let kept = store.take_first_tries();
    model.kept_together.push(kept.iter().map(|due| due.id).collect());
    for due in kept {
        let (id, state) = &model.deliveries[&due.id.to_bytes()];
        assert_eq!((due.id, due.round, due.due_at), (*id, 0, state.created_at));
        model.first_tries.insert(due.id.to_bytes());
    }
    assert!(model.first_tries.len() <= FIRST_TRIES);
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(model.cursor)));
    let counts = store.monthly_counts(key_id(1), noon().month()).await.unwrap();
    assert_eq!((counts.hits_served, counts.webhook_deliveries), (model.served, model.claimed));
    for now in [on(0), on(1).plus(MINUTE), on(400)] {
        assert_eq!(store.due_deliveries(now, None, 1_000).await.unwrap(), model.due(now));
    }
    let pending = model.deliveries.values().filter(|(_, state)| state.status == DeliveryStatus::Pending).count();
    assert_eq!(store.pending_deliveries().await.unwrap(), pending as u64);
    for link in 0..LINKS {
        let hits = store.link_hits(short_id(link), Some(BotFilter::Include)).await.unwrap();
        let days =
            model.days.iter().filter(|((of, _), _)| *of == link).map(|((_, day), counts)| (*day, devices(*counts)));
        assert_eq!(hits.days, days.collect::<Vec<_>>());
        let mut labels: Vec<_> = hits.labels.into_iter().flat_map(|(_, labels)| labels).collect();
        labels.sort();
        let expected = model.labels.iter().filter(|((of, _), _)| *of == link);
        assert_eq!(labels, expected.map(|((_, label), count)| (label.clone(), *count)).collect::<Vec<_>>());

        let mut by_url = BTreeMap::new();
        for status in DeliveryStatus::ALL.into_iter().map(Some).chain([None]) {
            let query = DeliveryQuery { link: short_id(link), status, after: None, since: Day(0), limit: 1_000 };
            let expected = model.list(link, status);
            for (id, _) in &expected {
                let counts: &mut [usize; 4] = by_url.entry(id.url_index).or_default();
                counts[status.map_or(3, |status| status as usize)] += 1;
            }
            assert_eq!(store.deliveries(query).await.unwrap(), expected);
            if status == Some(DeliveryStatus::Pending) {
                continue;
            }
            let (from, until) = (Timestamp(0), Timestamp(u64::MAX));
            let settled = SettledQuery { link: short_id(link), status, from, until, after: None, limit: 1_000 };
            let oldest_first = expected.iter().rev().filter(|(_, state)| state.status != DeliveryStatus::Pending);
            let found = store.settled_deliveries(settled).await.unwrap().found;
            assert_eq!(found, oldest_first.map(|(id, _)| *id).collect::<Vec<_>>());
        }
        let summaries = store.delivery_summaries(short_id(link), Day(0)).await.unwrap();
        let found = summaries.into_iter().map(|(url, sum)| {
            let counts = [sum.pending, sum.delivered, sum.failed].map(|count| usize::try_from(count).unwrap());
            (url, [counts[0], counts[1], counts[2], counts.iter().sum()])
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), by_url);
    }
}

async fn run(operations: Vec<Operation>) {
    let ground = Embedded::fresh().await;
    let mut store = ground.open().await;
    store.keep_first_tries(FIRST_TRIES);
    let (mut model, ids) = (Model::default(), ids());
    for operation in operations {
        match operation {
            Operation::Apply { hits, deliveries } => {
                let deliveries = deliveries.into_iter().collect();
                store.apply_hits(Arc::new(model.apply(hits, deliveries))).await.unwrap();
            }
            Operation::ApplyLastAgain => {
                if let Some(batch) = &model.last {
                    store.apply_hits(Arc::new(batch.clone())).await.unwrap();
                }
            }
            Operation::Claim { deliveries, limit, late } => {
                let claims = deliveries.iter().map(|place| {
                    let id = ids[*place];
                    QuotaClaim { id, round: model.round(id, late).0, month: noon().month(), limit }
                });
                let claims: Vec<_> = claims.collect();
                let expected: Vec<_> = claims.iter().map(|claim| model.claim(claim.id, claim.round, limit)).collect();
                assert_eq!(store.claim_delivery_quota(claims).await.unwrap(), expected);
            }
            Operation::Settle { settlements, minute, late } => {
                let at = noon().plus(MINUTE * minute);
                let settlements = settlements.into_iter().map(|(place, attempt, outcome)| {
                    let (round, earlier) = model.round(ids[place], late);
                    let attempt = if attempt == 0 { 0 } else { earlier + attempt };
                    let settlement = Settlement { round, ..settlement(ids[place], attempt, outcome, at) };
                    model.settle(&settlement);
                    settlement
                });
                store.settle_deliveries(settlements.collect()).await.unwrap();
            }
            Operation::Replay { link, deliveries, minute } => {
                let of_link = deliveries.into_iter().map(|place| ids[place]).filter(|id| id.link == short_id(link));
                let replay = Replay { link: short_id(link), ids: of_link.collect(), at: noon().plus(MINUTE * minute) };
                let queued = model.replay(&replay);
                assert_eq!(store.replay_deliveries(replay).await.unwrap(), queued);
            }
            Operation::DropBefore(day) => {
                while store.drop_deliveries(on(day).day()).await.unwrap() {}
                model.deliveries.retain(|_, (id, _)| id.hit.at.day() >= on(day).day());
                // Those that were kept together with one of them are in the queue.
                let is_before = |id: &DeliveryId| id.hit.at.day() < on(day).day();
                for ids in model.kept_together.extract_if(.., |ids| ids.iter().any(is_before)) {
                    model.first_tries.retain(|kept| !ids.iter().any(|id| id.to_bytes() == *kept));
                }
            }
            Operation::QueueFirstTries(which) => {
                model.queue_first_tries(&which);
                store.queue_first_tries(which).await.unwrap();
            }
            Operation::Reopen => {
                store = reopened(&ground, store).await;
                store.keep_first_tries(FIRST_TRIES);
                // They are in the queue of whoever opens the store.
                model.first_tries.clear();
                model.kept_together.clear();
            }
        }
        check(&store, &mut model).await;
    }
    store.close().await;
}

#[test]
fn hits_and_deliveries_are_as_in_the_model() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(operations in prop::collection::vec(operations(), 1..30))| {
        runtime.block_on(run(operations));
    });
}

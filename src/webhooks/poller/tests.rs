use std::iter;

use ring::rand::SystemRandom;
use url::Url;
use uuid::Uuid;

use super::*;
use crate::domain::hit::{HitBatch, HitId, HitStamp, NodeId, Position};
use crate::domain::key::{ApiKey, KeyId, ScopeSet, SecretHash, Tier};
use crate::domain::link::{BaseUrl, NewLink, Revision, ShortId, TargetUrl};
use crate::domain::plan::{Plan, Plans};
use crate::domain::signature::WebhookSecret;
use crate::domain::vault::Vault;
use crate::domain::webhook::{AttemptOutcome, DeliveryId, DeliveryStatus, NewDelivery};
use crate::store::embedded::EmbeddedStore;
use crate::store::{Replay, Settlement, Store};
use crate::telemetry::metrics::Metrics;

const NOW: Timestamp = Timestamp(1_790_000_000_000);
/// More than a round reads, and many times more than are refused at once.
const OVER_QUOTA: u32 = 20_000;

fn new_store() -> (tempfile::TempDir, Arc<dyn Store>, Arc<Vault>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path(), 16 << 20).unwrap());
    (directory, store, Arc::new(Vault::new(&[7; Vault::KEY_LENGTH]).unwrap()))
}

/// A key with a link that has a webhook. Free keys have no deliveries, keys of the tier Pro any number.
async fn new_link(store: &dyn Store, vault: &Vault, number: u8, tier: Tier) -> (KeyId, ShortId) {
    let id = KeyId(Uuid::from_u128(u128::from(number)));
    let secret = WebhookSecret::generate(&SystemRandom::new()).unwrap();
    let key = ApiKey {
        id,
        name: "a key".into(),
        tier,
        scopes: ScopeSet::ALL,
        is_root: false,
        prefix: "sp_12345".into(),
        secret_hash: SecretHash::of(&[number]),
        retiring_secret: None,
        webhook_secret: vault.seal(&SystemRandom::new(), id.0.as_bytes(), secret.reveal()).unwrap(),
        retiring_webhook_secret: None,
        created_at: NOW,
        expires_at: None,
        rotated_at: None,
        revoked_at: None,
        ancestors: Vec::new(),
        revision: 0,
    };
    store.create_key(key, None).await.unwrap();
    let base_url = BaseUrl::new(Url::parse("https://this.example/").unwrap());
    let new = NewLink {
        webhooks: vec![format!("https://hooks-{number}.example.com/")].into(),
        ..NewLink::to(TargetUrl::parse("https://example.com/", &base_url).unwrap())
    };
    let link = new.made(ShortId([b'0' + number; 7]), id, NOW);
    let short_id = link.id;
    store.create_link(link, None).await.unwrap();
    (id, short_id)
}

/// A delivery that is due `number` ms after the first one.
fn delivery(link: ShortId, number: u32) -> DeliveryId {
    let at = Timestamp(NOW.0 - 100_000 + u64::from(number));
    DeliveryId { link, hit: HitStamp { id: HitId(Uuid::from_u128(u128::from(number))), at }, url_index: 0 }
}

async fn enqueue(store: &dyn Store, deliveries: Vec<NewDelivery>) {
    let batch = HitBatch {
        writer: NodeId(Uuid::nil()),
        from: Position(0),
        upto: Position(1),
        days: Vec::new(),
        served: Vec::new(),
        deliveries,
    };
    store.apply_hits(Arc::new(batch)).await.unwrap();
}

/// A poller without workers. Free keys have so many deliveries in a month.
fn poller(store: &Arc<dyn Store>, vault: Arc<Vault>, quota: u64) -> (Poller, Arc<InFlightTable>, DispatcherWake) {
    let clock = Clock::standing_at(NOW);
    let plan = Plan { webhook_deliveries_per_month: Some(quota), ..Plan::UNLIMITED };
    let plans = Plans { free: plan, pro: Plan::UNLIMITED };
    let meters = Metrics::new(iter::empty(), "/", iter::empty()).webhooks;
    let in_flight = Arc::new(InFlightTable::new(8, 8, 256, clock.clone(), meters.clone()));
    let wake = DispatcherWake::default();
    let poller = Poller::new(PollerParts {
        store: store.clone(),
        preparation: Arc::new(Preparation::new(store, vault, plans, clock.clone())),
        clock,
        in_flight: Arc::clone(&in_flight),
        wake: wake.clone(),
        suspends: false,
        longest_wait: Duration::from_hours(1),
        meters,
    });
    (poller, in_flight, wake)
}

#[tokio::test]
async fn a_key_with_thousands_of_deliveries_over_its_quota_does_not_delay_another_key() {
    let (_directory, store, vault) = new_store();
    let (over_quota, refused_link) = new_link(&*store, &vault, 1, Tier::Free).await;
    let (other, sent_link) = new_link(&*store, &vault, 2, Tier::Pro).await;
    let refused = (0..OVER_QUOTA).map(|number| NewDelivery {
        id: delivery(refused_link, number),
        owner: over_quota,
        revision: Revision::FIRST,
        bot: None,
    });
    let last = NewDelivery { id: delivery(sent_link, OVER_QUOTA), owner: other, revision: Revision::FIRST, bot: None };
    enqueue(&*store, refused.chain(iter::once(last)).collect()).await;

    let (mut poller, in_flight, _) = poller(&store, vault, 0);
    let last = DueDelivery { due_at: last.id.hit.at, id: last.id, revision: last.revision, round: 0 };
    while !in_flight.has(&last) {
        assert_eq!(poller.round().await.unwrap(), NextStep::Continue);
    }
    // The last delivery begins before most of those that are due earlier are refused.
    let pending = store.pending_deliveries().await.unwrap();
    assert!(pending > u64::from(OVER_QUOTA) / 2, "{pending} are pending");
    while poller.round().await.unwrap() == NextStep::Continue {}
    assert_eq!(store.pending_deliveries().await.unwrap(), 1, "all others are refused");
    let ids = (0..OVER_QUOTA).map(|number| delivery(refused_link, number));
    let states = store.delivery_states(ids.collect()).await.unwrap();
    assert!(states.iter().flatten().all(|state| state.status == DeliveryStatus::Failed && state.attempts == 0));
}

/// A replay may follow as soon as the store has the outcome, and before the table knows that.
#[tokio::test]
async fn a_replay_over_the_quota_is_refused_although_the_outcome_before_was_being_written() {
    let (_directory, store, vault) = new_store();
    let (owner, link) = new_link(&*store, &vault, 1, Tier::Free).await;
    let [first, second] = [0, 1].map(|number| delivery(link, number));
    let new = [first, second].map(|id| NewDelivery { id, owner, revision: Revision::FIRST, bot: None });
    enqueue(&*store, new.to_vec()).await;
    let (mut poller, in_flight, wake) = poller(&store, vault, 1);
    while poller.round().await.unwrap() == NextStep::Continue {}
    let status = async |id| store.delivery_states(vec![id]).await.unwrap().remove(0).unwrap().status;
    assert_eq!((status(first).await, status(second).await), (DeliveryStatus::Pending, DeliveryStatus::Failed));

    let outcome = AttemptOutcome::Failed { response_status: None, error: "dns".into(), retry_in: None };
    let settled = Settlement { id: first, round: 0, attempt: 1, outcome, at: NOW };
    store.settle_deliveries(vec![settled.clone()]).await.unwrap();
    let replay = Replay { link, ids: vec![first], at: NOW };
    assert_eq!(store.replay_deliveries(replay).await.unwrap(), 1);
    wake.wake(NOW);
    while poller.round().await.unwrap() == NextStep::Continue {}
    assert_eq!(status(first).await, DeliveryStatus::Pending, "it is still in the table");
    in_flight.settled([settled].iter());
    while poller.round().await.unwrap() == NextStep::Continue {}
    assert_eq!(status(first).await, DeliveryStatus::Failed);
}

/// The deliveries that are in the queue.
async fn queued(store: &dyn Store) -> Vec<DueDelivery> {
    store.due_deliveries(NOW, None, 100).await.unwrap()
}

#[tokio::test]
async fn new_deliveries_begin_without_the_queue_and_are_in_it_after_a_failure() {
    let (_directory, store, vault) = new_store();
    let (owner, link) = new_link(&*store, &vault, 1, Tier::Free).await;
    let (mut poller, in_flight, wake) = poller(&store, vault, 3);
    let new = [0, 1, 2, 3].map(|number| NewDelivery {
        id: delivery(link, number),
        owner,
        revision: Revision::FIRST,
        bot: None,
    });
    enqueue(&*store, new.to_vec()).await;
    wake.wake_for_first_tries();
    while poller.round().await.unwrap() == NextStep::Continue {}
    let due = new.map(|delivery| DueDelivery::first_of(&delivery));
    assert_eq!(due.each_ref().map(|due| in_flight.has(due)), [true, true, true, false], "one is over the quota");
    assert_eq!(queued(&*store).await, []);

    poller.restart();
    while poller.round().await.unwrap() == NextStep::Continue {}
    assert_eq!(queued(&*store).await, due[..3]);
    let states = store.delivery_states(new.map(|delivery| delivery.id).to_vec()).await.unwrap();
    let states = states.into_iter().flatten().map(|state| (state.status, state.counted));
    let counted = (DeliveryStatus::Pending, true);
    assert_eq!(states.collect::<Vec<_>>(), [counted, counted, counted, (DeliveryStatus::Failed, false)]);
}

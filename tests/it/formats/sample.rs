//! One of everything that a store keeps, and the check that all of it is there.
//!
//! Fixtures hold what [`fill`] wrote when their version was made. What a later version adds is written by [`fill`] from then on,
//! and expected by [`check`] of fixtures from that version on.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use signpost::domain::bots::BotKind;
use signpost::domain::calendar::Timestamp;
use signpost::domain::hit::{HitBatch, HitCursor, Position, ServedCount};
use signpost::domain::key::{ApiKey, Retiring, Scope, ScopeSet, SealedSecret, Tier};
use signpost::domain::link::{Link, LinkData, LinkOptions, LinkWebhooks, ListIndex, ListOrder, Revision};
use signpost::domain::quota::MonthlyCounts;
use signpost::domain::webhook::{AttemptOutcome, DeliveryState, DeliveryStatus, NewDelivery, UrlSummary};
use signpost::store::{
    CreateLinkError, DeliveryQuery, ExpiredLink, LinkListQuery, QuotaClaim, Replay, Store, SuspensionRule,
};

use super::{THIS, sample_hits};
use crate::store::samples::{
    DAY, changed, deleted, delivered, delivery, enqueue, failed, key, key_id, link, link_named, longest_link, month,
    name, never_sent, node, noon, secret, settlement, short_id, target,
};

pub const LINKS: u32 = 30;
/// Its counts by day and label are too many for one row.
pub const BUSY: u32 = 20;
const RETRY: Duration = Duration::from_secs(5);

fn later(seconds: u64) -> Timestamp {
    noon().plus(Duration::from_secs(seconds))
}

fn links() -> impl Iterator<Item = Link> {
    let some = (1..=LINKS).map(|n| Link {
        target: target(&format!("https://example.com/{n}?with=a#fragment")),
        created_at: later(n.into()),
        updated_at: later(n.into()),
        ..link(n, key_id(2 + n % 2))
    });
    let plain = Link {
        data: LinkData::default(),
        webhooks: LinkWebhooks::default(),
        tracked: false,
        target: target("http://u:p@[2001:db8::1]:8/\""),
        ..link(LINKS + 1, key_id(3))
    };
    some.chain([plain, longest_link(LINKS + 2)])
}

/// A link with a slug that has expired, before and after a change.
fn changed_link() -> [Link; 2] {
    let first = link_named(101, key_id(4), "summer");
    let options = LinkOptions {
        title: Some("Summer".into()),
        tags: vec!["a".into(), "b".into()],
        expires_at: Some(later(90)),
        fallback: Some(target("https://example.com/over")),
        skip_bots: true,
        ..LinkOptions::default()
    };
    let webhooks = first.webhooks.changed_to(vec!["https://hooks.example.com/c".into()]).unwrap();
    let second = Link { webhooks, options, target: target("https://example.com/sale"), ..changed(&first) };
    [first, second]
}

/// Since 0.2.0, links change: one does, one is deleted, one is deleted and another one has its name.
async fn change_links(store: &Arc<dyn Store>) {
    let [first, second] = changed_link();
    store.create_link(first, None).await.unwrap();
    store.update_link(second).await.unwrap();
    for gone in [link(102, key_id(4)), link_named(103, key_id(4), "winter")] {
        store.create_link(gone.clone(), None).await.unwrap();
        store.delete_link(deleted(&gone)).await.unwrap();
    }
    store.create_link(link_named(104, key_id(4), "winter"), None).await.unwrap();
}

async fn check_changed_links(store: &Arc<dyn Store>) {
    let [first, second] = changed_link();
    assert_eq!(store.link(name("summer")).await.unwrap().as_ref(), Some(&second));
    assert_eq!(store.link_at(first.id, first.revision).await.unwrap(), Some(first));
    let expired = ExpiredLink { expires_at: later(90), id: second.id, name: second.name() };
    assert_eq!(store.expired_links(later(91), None, 10).await.unwrap(), [expired]);
    let gone = link(102, key_id(4));
    assert_eq!(store.link(gone.name()).await.unwrap(), None);
    assert_eq!(store.link_at(gone.id, gone.revision).await.unwrap(), Some(gone));
    let again = Link { revision: Revision(2), ..link_named(104, key_id(4), "winter") };
    assert_eq!(store.link(name("winter")).await.unwrap(), Some(again));
    let taken = [link_named(105, key_id(2), "summer"), link(103, key_id(4)), link_named(105, key_id(2), "0000102")];
    for taken in taken {
        let refused = store.create_link(taken, None).await;
        assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    }
}

/// As they are after all changes: root, a key that it made, one that this made, one that was rotated, one that is revoked.
fn keys() -> [ApiKey; 5] {
    // The root key of 0.1.0 has the scopes of later versions, too.
    let scopes = ScopeSet::ALL;
    let root = ApiKey { name: "root".into(), tier: Tier::Pro, is_root: true, scopes, ..key(1, &[]) };
    let child = ApiKey {
        scopes: [Scope::LinksWrite, Scope::UsageRead].into_iter().collect(),
        expires_at: Some(noon().plus(400 * DAY)),
        name: "schlüssel \"3\"".into(),
        ..key(3, &[key_id(2), key_id(1)])
    };
    let old = key(4, &[key_id(1)]);
    let rotated = ApiKey {
        secret_hash: secret("new secret 4"),
        prefix: "sp_67890".into(),
        retiring_secret: Some(Retiring { secret: old.secret_hash, until: later(3_600) }),
        retiring_webhook_secret: Some(Retiring { secret: old.webhook_secret.clone(), until: later(3_601) }),
        webhook_secret: SealedSecret(vec![8; 80]),
        rotated_at: Some(later(60)),
        revision: 1,
        ..old
    };
    let revoked = ApiKey { revoked_at: Some(later(61)), revision: 1, ..key(5, &[key_id(1)]) };
    [root, ApiKey { tier: Tier::Pro, ..key(2, &[key_id(1)]) }, child, rotated, revoked]
}

/// The outcome of deliveries of links from 1 on: the first two are of one hit. Before 0.2.0, links could not be changed;
/// since then, the last two of link 5 are of hits that met it at other revisions.
fn deliveries(version: &str) -> [(NewDelivery, DeliveryState); 7] {
    let made = |n, seconds, url| {
        let owner = key_id(2 + n % 2);
        let revision = if version == "0.1.0" || n < 5 { Revision::FIRST } else { Revision(seconds) };
        let at = later(seconds.into());
        // Before 0.2.0, bots were not told.
        let bot = Some(BotKind::Crawler).filter(|_| version != "0.1.0" && n == 2);
        let new = NewDelivery { id: delivery(n, at, url), owner, revision, bot };
        (new, new.state())
    };
    let sent = |(new, state), change: &dyn Fn(&mut DeliveryState)| {
        let mut state = DeliveryState { counted: true, ..state };
        change(&mut state);
        (new, state)
    };
    [
        sent(made(1, 1, 0), &|state| state.settle(&delivered(), later(10))),
        sent(made(1, 1, 1), &|state| state.settle(&failed(Some(RETRY)), later(11))),
        sent(made(2, 2, 0), &|state| {
            state.settle(&failed(Some(RETRY)), later(12));
            state.settle(&timed_out(), later(20));
        }),
        {
            let (new, mut state) = made(3, 3, 1);
            state.settle(&never_sent(), later(13));
            (new, state)
        },
        made(4, 4, 0),
        sent(made(5, 5, 1), &|_| {}),
        made(5, 6, 0),
    ]
}

/// One that was replayed after it had failed, and counted in that round. Since 0.2.0.
fn replayed() -> (NewDelivery, DeliveryState) {
    let (owner, revision) = (key_id(4), Revision(3));
    let new = NewDelivery { id: delivery(4, later(7), 1), owner, revision, bot: Some(BotKind::Preview) };
    let mut state = new.state();
    state.settle(&timed_out(), later(21));
    state.replay(1, later(30), later(30));
    (new, DeliveryState { counted: true, ..state })
}

fn timed_out() -> AttemptOutcome {
    AttemptOutcome::Failed { response_status: None, error: "timed out".into(), retry_in: None }
}

pub async fn fill(store: &Arc<dyn Store>) {
    store.put_if_absent("root_key", key_id(1).0.as_bytes().to_vec()).await.unwrap();
    store.put_if_absent("master_key_check", vec![9; 44]).await.unwrap();
    for kept in keys() {
        let first = key(number_of(&kept), &kept.ancestors);
        if kept.revision == 0 {
            store.create_key(kept, None).await.unwrap();
        } else {
            store.create_key(first, None).await.unwrap();
            store.update_key(kept).await.unwrap();
        }
    }
    store.note_key_use(vec![(key_id(1), noon()), (key_id(3), later(60))]).await.unwrap();
    for link in links() {
        store.create_link(link, Some(1_000)).await.unwrap();
    }
    change_links(store).await;

    let november = month("2026-11");
    let first = HitBatch {
        served: vec![
            ServedCount { key: key_id(2), month: november, count: 4_000_000_000_000 },
            ServedCount { key: key_id(2), month: month("2026-10"), count: 17 },
        ],
        deliveries: deliveries(THIS)[..4].iter().map(|(new, _)| *new).collect(),
        ..sample_hits::first()
    };
    store.apply_hits(Arc::new(first)).await.unwrap();
    // These are in memory until the store is closed, and in the queue of whoever opens it.
    store.keep_first_tries(4);
    let in_memory = deliveries(THIS)[4..].iter().map(|(new, _)| *new).chain([replayed().0]).collect();
    let second = HitBatch { deliveries: in_memory, ..sample_hits::second() };
    store.apply_hits(Arc::new(second)).await.unwrap();

    let claims = deliveries(THIS).into_iter().filter(|(_, state)| state.counted).map(|(new, _)| new.id);
    let claims: Vec<_> = claims.map(|id| QuotaClaim { id, round: 0, month: november, limit: Some(100) }).collect();
    let counted = claims.len();
    assert_eq!(store.claim_delivery_quota(claims).await.unwrap(), vec![true; counted]);
    let id = |index: usize| deliveries(THIS)[index].0.id;
    for settled in [
        vec![
            settlement(id(0), 1, delivered(), later(10)),
            settlement(id(1), 1, failed(Some(RETRY)), later(11)),
            settlement(id(2), 1, failed(Some(RETRY)), later(12)),
            settlement(id(3), 0, never_sent(), later(13)),
        ],
        vec![settlement(id(2), 2, timed_out(), later(20))],
    ] {
        store.settle_deliveries(settled).await.unwrap();
    }

    let id = replayed().0.id;
    let claim = |round| vec![QuotaClaim { id, round, month: november, limit: Some(100) }];
    assert_eq!(store.claim_delivery_quota(claim(0)).await.unwrap(), [true]);
    store.settle_deliveries(vec![settlement(id, 1, timed_out(), later(21))]).await.unwrap();
    store.replay_deliveries(Replay { link: id.link, ids: vec![id], at: later(30) }).await.unwrap();
    assert_eq!(store.claim_delivery_quota(claim(1)).await.unwrap(), [true]);
}

fn number_of(key: &ApiKey) -> u32 {
    (1..=5).find(|n| key_id(*n) == key.id).unwrap()
}

/// `version` is that of the fixture.
pub async fn check(store: &Arc<dyn Store>, version: &str) {
    assert_eq!(store.put_if_absent("root_key", Vec::new()).await.unwrap(), key_id(1).0.as_bytes());
    assert_eq!(store.put_if_absent("master_key_check", Vec::new()).await.unwrap(), [9; 44]);
    for link in links() {
        assert_eq!(store.link(link.id.into()).await.unwrap().as_ref(), Some(&link));
    }
    assert_eq!(store.link(short_id(LINKS + 3).into()).await.unwrap(), None);
    if version != "0.1.0" {
        check_changed_links(store).await;
    }
    check_lists(store).await;
    check_keys(store).await;
    check_counts(store).await;
    sample_hits::check(store, version).await;
    check_deliveries(store, version).await;
}

/// All links are in the lists, whichever release has made them.
async fn check_lists(store: &Arc<dyn Store>) {
    let query = |owner| LinkListQuery {
        owner,
        index: ListIndex::All,
        order: ListOrder::Oldest,
        created_from: None,
        created_until: None,
        after: None,
        limit: 1_000,
    };
    for owner in [None, Some(key_id(2)), Some(key_id(3))] {
        let page = store.list_links(query(owner)).await.unwrap();
        let expected = links().filter(|link| owner.is_none_or(|owner| owner == link.owner));
        for link in expected {
            assert!(page.links.contains(&link), "{:?} of {owner:?}", link.id);
        }
        assert!(page.next.is_none() && page.links.iter().all(|link| owner.is_none_or(|owner| owner == link.owner)));
    }
}

async fn check_keys(store: &Arc<dyn Store>) {
    let keys = keys();
    for key in &keys {
        assert_eq!(store.key(key.id).await.unwrap().as_ref(), Some(key));
        let found = store.key_by_secret(key.secret_hash).await.unwrap();
        assert_eq!(found.as_ref(), Some(key).filter(|key| key.revoked_at.is_none()));
    }
    assert_eq!(store.key_by_secret(secret("secret 4")).await.unwrap().as_ref(), Some(&keys[3]), "the retiring secret");
    let seen = async |viewer| {
        let seen = store.keys_seen_by(key_id(viewer), None, 10).await.unwrap();
        seen.iter().map(number_of).collect::<Vec<_>>()
    };
    assert_eq!((seen(1).await, seen(2).await, seen(3).await), (vec![4, 3, 2, 1], vec![3, 2], vec![3]));
    let uses = store.last_uses(vec![key_id(1), key_id(2), key_id(3)]).await.unwrap();
    assert_eq!(uses, [Some(noon()), None, Some(later(60))]);
}

async fn check_counts(store: &Arc<dyn Store>) {
    assert_eq!(store.hit_cursor(node(1)).await.unwrap(), HitCursor::from(Position(90)));
    let counts = async |key, text| store.monthly_counts(key_id(key), month(text)).await.unwrap();
    let expected = |links_created, hits_served, webhook_deliveries| MonthlyCounts {
        links_created,
        hits_served,
        webhook_deliveries,
    };
    assert_eq!(counts(1, "2026-11").await, expected(1, 0, 0));
    assert_eq!(counts(2, "2026-11").await, expected(15, 4_000_000_000_000, 1));
    assert_eq!(counts(2, "2026-10").await, expected(0, 17, 0));
    assert_eq!(counts(3, "2026-11").await, expected(16, 0, 3));
}

async fn check_deliveries(store: &Arc<dyn Store>, version: &str) {
    for (new, state) in deliveries(version) {
        assert_eq!(store.delivery_states(vec![new.id]).await.unwrap(), [Some(state)]);
    }
    let replayed = Some(replayed()).filter(|_| version != "0.1.0");
    if let Some((new, state)) = &replayed {
        assert_eq!(store.delivery_states(vec![new.id]).await.unwrap(), [Some(state.clone())]);
    }
    assert_eq!(store.pending_deliveries().await.unwrap(), 4 + u64::from(replayed.is_some()));
    let due = store.due_deliveries(later(3_600), None, 100).await.unwrap();
    assert!(due.iter().all(|due| deliveries(version).iter().chain(&replayed).any(|(new, state)| (
        new.id,
        new.revision,
        state.round
    ) == (
        due.id,
        due.revision,
        due.round
    ))));
    let due: Vec<_> = due.iter().map(|due| (due.due_at, due.id)).collect();
    let id = |index: usize| deliveries(THIS)[index].0.id;
    let first = vec![(later(4), id(4)), (later(5), id(5)), (later(6), id(6)), (later(16), id(1))];
    let last = replayed.map(|(new, _)| (later(30), new.id));
    assert_eq!(due, first.into_iter().chain(last).collect::<Vec<_>>());

    let since = noon().minus(DAY).day();
    let summary =
        |[pending, delivered, failed]: [u64; 3], last: Option<(u64, Option<u16>)>, error: Option<&str>| UrlSummary {
            pending,
            delivered,
            failed,
            last_attempt_at: last.map(|(at, _)| later(at)),
            last_status: last.and_then(|(_, status)| status),
            last_error: error.map(Into::into),
        };
    let summaries = async |n| store.delivery_summaries(short_id(n), since).await.unwrap();
    let first = summary([0, 1, 0], Some((10, Some(204))), None);
    assert_eq!(summaries(1).await, [(0, first), (1, summary([1, 0, 0], Some((11, Some(500))), Some("http 500")))]);
    assert_eq!(summaries(2).await, [(0, summary([0, 0, 1], Some((20, None)), Some("timed out")))]);
    assert_eq!(summaries(3).await, [(1, summary([0, 0, 1], None, Some("quota exceeded")))]);
    assert_eq!(summaries(5).await, [(0, summary([1, 0, 0], None, None)), (1, summary([1, 0, 0], None, None))]);

    let listed = async |n, status| {
        let query = DeliveryQuery { link: short_id(n), status, after: None, since, limit: 10 };
        let listed = store.deliveries(query).await.unwrap();
        listed.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(listed(5, None).await, [id(6), id(5)]);
    assert_eq!(listed(2, Some(DeliveryStatus::Failed)).await, [id(2)]);
    assert_eq!(listed(1, Some(DeliveryStatus::Failed)).await, []);
}

/// After the check, what is there goes on: counted further, and brought to an end.
pub async fn go_on(store: &Arc<dyn Store>, version: &str) {
    sample_hits::go_on(store, version).await;
    let id = deliveries(THIS)[1].0.id;
    let pending = store.pending_deliveries().await.unwrap();
    store.settle_deliveries(vec![settlement(id, 2, delivered(), later(30))]).await.unwrap();
    assert_eq!(store.pending_deliveries().await.unwrap(), pending - 1);
    let made = store.create_link(link(LINKS + 3, key_id(2)), Some(16)).await.unwrap();
    assert_eq!(made, 16);
    assert!(store.create_link(link(LINKS + 4, key_id(2)), Some(16)).await.is_err());

    // A store in which failures were not counted so far.
    store.suspend_failing(SuspensionRule { failures: NonZeroU32::new(2).unwrap(), hook: Box::new(drop) });
    let failing = [deliveries(THIS)[5].0.id, delivery(5, later(86_500), 1)];
    enqueue(store, [failing[1]]).await;
    for id in failing {
        store.settle_deliveries(vec![settlement(id, 1, failed(None), id.hit.at)]).await.unwrap();
    }
    assert_eq!(store.suspensions(vec![short_id(5)]).await.unwrap().len(), 1);
}

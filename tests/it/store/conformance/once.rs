//! Requests that are done once.

use std::sync::Arc;

use futures_util::future::join_all;
use signpost::domain::calendar::Timestamp;
use signpost::domain::idempotency::{
    ANSWERS_KEPT_MILLIS, Fingerprint, IdempotencyKey, KeptAnswer, OnceEndpoint, OnceId, OnceRequest,
};
use signpost::domain::key::ApiKey;
use signpost::domain::link::{Link, ShortId};
use signpost::store::once::{AnswerOfLinks, OnceDone, OnceState, OnceTicket};
use signpost::store::{CreateKeyError, MadeLinks, NewLinks, Store};

use super::{Ground, reopened};
use crate::store::samples::{key, key_id, link, link_named, name, noon};

pub fn request(owner: u32, key: &str, body: &str) -> OnceRequest {
    let key = IdempotencyKey::parse(key).unwrap();
    let id = OnceId { owner: key_id(owner), endpoint: OnceEndpoint::Bulk, key };
    OnceRequest { id, fingerprint: Fingerprint::of(b"", body.as_bytes()), now: noon() }
}

/// So many links, whose ids follow from the seed of the ticket.
pub fn links(ticket: &OnceTicket, owner: u32, slugs: &[Option<&str>]) -> NewLinks {
    let links = (0..).zip(slugs).map(|(number, slug)| {
        let id = ShortId::derived(ticket.seed, number);
        let link = slug.map_or_else(|| link(1, key_id(owner)), |slug| link_named(1, key_id(owner), slug));
        Link { id, created_at: ticket.seed.begun_at, updated_at: ticket.seed.begun_at, ..link }
    });
    NewLinks { links: links.collect(), ..NewLinks::default() }
}

/// The ids of all links, or `-`.
pub fn answer() -> AnswerOfLinks {
    Arc::new(|made: &MadeLinks| {
        let told: Vec<String> =
            made.links.iter().map(|link| link.as_ref().map_or("-".into(), ToString::to_string)).collect();
        KeptAnswer { status: 200, body: told.join(" ") }
    })
}

async fn begun(store: &dyn Store, request: OnceRequest) -> OnceTicket {
    match store.begin_once(request).await.unwrap() {
        OnceState::Begun(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

async fn made(store: &dyn Store, ticket: OnceTicket, new: NewLinks, limit: Option<u64>) -> MadeLinks {
    match store.create_links_once(ticket, new, limit, answer()).await.unwrap() {
        OnceDone::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

async fn used(store: &dyn Store, owner: u32) -> u64 {
    store.monthly_counts(key_id(owner), noon().month()).await.unwrap().links_created
}

pub async fn links_are_made_once_and_the_answer_is_kept(ground: &impl Ground) {
    let mut store = ground.open().await;
    let slugs = [None, Some("summer"), Some("Summer7"), Some("summer"), None];
    assert!(store.look_up_once(request(1, "a", "x")).await.unwrap().is_none());
    let ticket = begun(&*store, request(1, "a", "x")).await;
    assert!(matches!(store.begin_once(request(1, "a", "x")).await.unwrap(), OnceState::UnderWay));
    assert!(matches!(store.look_up_once(request(1, "a", "x")).await.unwrap(), Some(OnceState::UnderWay)));
    assert!(matches!(store.begin_once(request(1, "a", "y")).await.unwrap(), OnceState::OtherRequest));
    let new = links(&ticket, 1, &slugs);
    let made = made(&*store, ticket, new.clone(), Some(4)).await;
    assert_eq!(made.links.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false, true]);
    let expected = answer()(&made);
    for _ in 0..2 {
        for state in [
            store.begin_once(request(1, "a", "x")).await.unwrap(),
            store.look_up_once(request(1, "a", "x")).await.unwrap().unwrap(),
        ] {
            assert!(matches!(&state, OnceState::Answered(kept) if *kept == expected), "{state:?}");
        }
        assert!(matches!(store.begin_once(request(1, "a", "y")).await.unwrap(), OnceState::OtherRequest));
        assert_eq!(used(&*store, 1).await, 4);
        assert_eq!(store.link(new.links[0].id.into()).await.unwrap().as_ref(), Some(&new.links[0]));
        assert!(
            store.link(name("summer")).await.unwrap().is_some() && store.link(name("Summer7")).await.unwrap().is_some()
        );
        store = reopened(ground, store).await;
    }
    // Another key, and another owner.
    drop(begun(&*store, request(1, "b", "x")).await);
    drop(begun(&*store, request(2, "a", "x")).await);
}

pub async fn what_makes_nothing_leaves_the_key_free(ground: &impl Ground) {
    let store = ground.open().await;
    store.create_link(link_named(1, key_id(9), "taken"), None).await.unwrap();
    let ticket = begun(&*store, request(1, "a", "x")).await;
    store.end_once(ticket).await.unwrap();
    for slugs in [&[Some("taken")][..], &[Some("taken"), Some("taken")]] {
        let ticket = begun(&*store, request(1, "a", "y")).await;
        let new = links(&ticket, 1, slugs);
        assert!(made(&*store, ticket, new, Some(4)).await.links.iter().all(Result::is_err));
    }
    for slugs in [&[Some("free")][..], &[None, Some("free")]] {
        let ticket = begun(&*store, request(1, "a", "z")).await;
        let new = links(&ticket, 1, slugs);
        assert!(made(&*store, ticket, new, Some(0)).await.links.iter().all(Result::is_err));
    }
    assert_eq!(used(&*store, 1).await, 0);
    // The name is free, too.
    let ticket = begun(&*store, request(1, "a", "x")).await;
    let new = links(&ticket, 1, &[Some("free"), None, None]);
    let made = made(&*store, ticket, new, Some(2)).await;
    assert_eq!(made.links.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!((made.used, used(&*store, 1).await), (2, 2));
}

pub async fn of_many_attempts_at_once_one_is_done(ground: &impl Ground) {
    let store = ground.open().await;
    let attempts = (0..20).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            match store.begin_once(request(1, "a", "x")).await.unwrap() {
                OnceState::Begun(ticket) => {
                    let new = links(&ticket, 1, &[None, Some("summer"), None]);
                    let done = store.create_links_once(ticket, new, Some(10), answer()).await.unwrap();
                    assert!(matches!(done, OnceDone::Done(_)), "{done:?}");
                    true
                }
                OnceState::Answered(_) | OnceState::UnderWay => false,
                OnceState::OtherRequest => panic!("it is the same"),
            }
        })
    });
    let done = join_all(attempts).await.into_iter().filter(|done| *done.as_ref().unwrap()).count();
    assert_eq!((done, used(&*store, 1).await), (1, 3));
}

pub async fn a_key_is_made_once_and_the_answer_is_kept(ground: &impl Ground) {
    let store = ground.open().await;
    store.create_key(key(1, &[]), None).await.unwrap();
    let told: signpost::store::once::AnswerOfKey =
        Arc::new(|key: &ApiKey| KeptAnswer { status: 201, body: key.id.to_string() });
    let child = key(2, &[key_id(1)]);
    let ticket = begun(&*store, request(1, "a", "x")).await;
    let done = store.create_key_once(ticket, child.clone(), Some(1), told.clone()).await.unwrap();
    assert!(matches!(&done, OnceDone::Done(there) if *there == child), "{done:?}");
    let state = store.begin_once(request(1, "a", "x")).await.unwrap();
    assert!(matches!(&state, OnceState::Answered(kept) if *kept == told(&child)), "{state:?}");
    for _ in 0..2 {
        let ticket = begun(&*store, request(1, "b", "x")).await;
        let refused = store.create_key_once(ticket, key(3, &[key_id(1)]), Some(1), told.clone()).await;
        assert!(matches!(refused, Err(CreateKeyError::QuotaExceeded { limit: 1, current: 1 })), "{refused:?}");
    }
    assert_eq!(store.key(key_id(3)).await.unwrap(), None);
}

pub async fn answers_are_removed_when_they_are_old(ground: &impl Ground) {
    let store = ground.open().await;
    let hour = |n: u64| Timestamp(noon().0 + n * 60 * 60 * 1_000);
    for n in 0..40 {
        let asked = OnceRequest { now: hour(n), ..request(1, &format!("a{n}"), "x") };
        let ticket = begun(&*store, asked).await;
        // Some answers have several parts.
        let new = links(&ticket, 1, &vec![None; if n % 20 == 0 { 400 } else { 10 }]);
        made(&*store, ticket, new, None).await;
    }
    while store.drop_answers(hour(39)).await.unwrap() {}
    let asked = |n: u64, now| OnceRequest { now, ..request(1, &format!("a{n}"), "x") };
    let late = Timestamp(hour(39).0 + ANSWERS_KEPT_MILLIS - 1);
    let kept = store.look_up_once(asked(39, late)).await.unwrap();
    assert!(matches!(kept, Some(OnceState::Answered(_))), "{kept:?}");
}

pub async fn a_request_that_was_answered_is_answered_however_many_ask(ground: &impl Ground) {
    let store = ground.open().await;
    let ticket = begun(&*store, request(1, "k", "body")).await;
    let new = links(&ticket, 1, &[None]);
    made(&*store, ticket, new, None).await;
    for _ in 0..20 {
        let asked = (0..40).map(|n| {
            let body = if n % 2 == 0 { "another" } else { "body" };
            let store = &store;
            async move { (body, store.begin_once(request(1, "k", body)).await.unwrap()) }
        });
        for (body, state) in join_all(asked).await {
            match state {
                OnceState::Answered(_) => assert_eq!(body, "body"),
                OnceState::OtherRequest => assert_eq!(body, "another"),
                other => panic!("{other:?}"),
            }
        }
    }
}

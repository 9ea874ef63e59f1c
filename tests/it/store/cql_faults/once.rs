//! Requests that are done once, whatever becomes of an attempt: the next ones find out, and make it whole.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use signpost::domain::idempotency::KeptAnswer;
use signpost::domain::key::ApiKey;
use signpost::domain::link::{Revision, ShortId};
use signpost::store::once::{AnswerOfKey, OnceDone, OnceState};
use signpost::store::{CreateKeyError, Store, StoreError};

use super::run::Run;
use crate::store::conformance::once::{answer, links, request};
use crate::store::cql_once::release;
use crate::store::samples::{key, key_id, link, name};
use crate::support::{SOON, eventually};

/// How long an attempt is at work before another one takes it over.
const MIDDLE: Duration = Duration::from_millis(30);

/// One attempt; `None` if it has no answer.
async fn attempt(run: &Run, store: &Arc<dyn Store>, slugs: &[Option<&str>], limit: u64) -> Option<KeptAnswer> {
    let ticket = match run.answered(store.begin_once(request(run.n, "once", "x")).await)? {
        OnceState::Begun(ticket) => ticket,
        OnceState::Answered(answer) => return Some(answer),
        OnceState::UnderWay => return None,
        OnceState::OtherRequest => panic!("it is the same: {}", run.name()),
    };
    let new = links(&ticket, run.n, slugs);
    match run.answered(store.create_links_once(ticket, new, Some(limit), answer()).await)? {
        OnceDone::Done(made) => Some(answer()(&made)),
        OnceDone::Answered(answer) => Some(answer),
        OnceDone::UnderWay => None,
    }
}

/// The first attempt meets the fault; others follow until there is an answer.
async fn answer_at_last(run: &Run, slugs: &[Option<&str>], limit: u64) -> KeptAnswer {
    let first = run.disturbed(attempt(run, &run.store, slugs, limit)).await;
    let last = eventually(&format!("an answer: {}", run.name()), SOON * 2, async || {
        attempt(run, &run.clean, slugs, limit).await
    })
    .await;
    assert!(first.is_none_or(|first| first == last), "two answers: {}", run.name());
    last
}

async fn are_there(run: &Run, answer: &KeptAnswer, slugs: &[Option<&str>], count: u64) {
    assert_eq!(run.links_created(key_id(run.n)).await, count, "{}: {}", answer.body, run.name());
    for (id, slug) in answer.body.split(' ').zip(slugs).take(usize::try_from(count).unwrap()) {
        let found = run.clean.link(name(slug.unwrap_or(id))).await.unwrap();
        assert_eq!(found.map(|link| link.id.to_string()).as_deref(), Some(id), "{}", run.name());
    }
}

pub async fn create_link_once(run: &Run) {
    let answer = answer_at_last(run, &[None], 50).await;
    are_there(run, &answer, &[None], 1).await;
}

pub async fn create_link_with_slug_once(run: &Run) {
    let slug = format!("slug-{}", run.n);
    let answer = answer_at_last(run, &[Some(&slug)], 50).await;
    are_there(run, &answer, &[Some(&slug)], 1).await;
}

/// The quota ends in the middle. A link that meets the fault may be refused: then another one finds room.
pub async fn create_some_links_once(run: &Run) {
    run.clean.create_link(link(1_000_000 + run.n, key_id(run.n)), None).await.unwrap();
    let own = format!("S{:06}", run.n);
    let slugs = [None, Some(own.as_str()), None];
    let answer = answer_at_last(run, &slugs, 3).await;
    let told: Vec<&str> = answer.body.split(' ').collect();
    // A cut connection has the requests of several links.
    let made = told.iter().filter(|told| **told != "-").count() as u64;
    assert!((1..=2).contains(&made), "{}: {}", answer.body, run.name());
    assert_eq!(run.links_created(key_id(run.n)).await, 1 + made, "{}: {}", answer.body, run.name());
    for (id, slug) in told.into_iter().zip(slugs) {
        let found = run.clean.link(name(slug.unwrap_or(id).replace('-', "none").as_str())).await.unwrap();
        assert_eq!(found.map(|link| link.id.to_string()).as_deref().unwrap_or("-"), id, "{}", run.name());
    }
}

/// Two attempts of one request, of which the second takes the first over in the middle of its work. Answers the ids that
/// either may have made.
async fn taken_over(run: &Run, slugs: &[Option<&str>], limit_then: u64) -> Vec<ShortId> {
    let asked = request(run.n, "once", "x");
    let OnceState::Begun(ticket) = run.clean.begin_once(asked.clone()).await.unwrap() else {
        panic!("it is new: {}", run.name())
    };
    let new = links(&ticket, run.n, slugs);
    let ids = new.links.iter().map(|link| link.slug.and_then(|slug| slug.as_id()).unwrap_or(link.id)).collect();
    run.disturbed(async {
        let paused = run.store.create_links_once(ticket, new, Some(50), answer());
        let successor = async {
            // In the middle, or before or behind it: that depends on the fault.
            tokio::time::sleep(MIDDLE).await;
            release(&run.session, &asked).await;
            attempt(run, &run.clean, slugs, limit_then).await
        };
        let (first, second) = join(paused, successor).await;
        let first = match run.answered(first) {
            Some(OnceDone::Done(made)) if made.links.iter().any(Result::is_ok) => Some(answer()(&made)),
            Some(OnceDone::Answered(answer)) => Some(answer),
            Some(OnceDone::Done(_) | OnceDone::UnderWay) | None => None,
        };
        assert!(first.is_none() || second.is_none() || first == second, "{first:?}, {second:?}: {}", run.name());
    })
    .await;
    ids
}

pub async fn create_links_taken_over(run: &Run) {
    let (slug, own) = (format!("slug-{}", run.n), format!("S{:06}", run.n));
    let slugs = [None, Some(slug.as_str()), Some(own.as_str())];
    taken_over(run, &slugs, 50).await;
    let answer = eventually(&format!("an answer: {}", run.name()), SOON * 2, async || {
        attempt(run, &run.clean, &slugs, 50).await
    })
    .await;
    eventually(&format!("each link is counted once: {}", run.name()), SOON, async || {
        (run.links_created(key_id(run.n)).await == 3).then_some(())
    })
    .await;
    are_there(run, &answer, &slugs, 3).await;
}

/// The second attempt finds no room, and ends the request.
pub async fn create_links_ended_meanwhile(run: &Run) {
    let (slug, own) = (format!("slug-{}", run.n), format!("S{:06}", run.n));
    let slugs = [None, Some(slug.as_str()), Some(own.as_str())];
    let ids = taken_over(run, &slugs, 0).await;
    eventually(&format!("no link is there that is not counted: {}", run.name()), SOON, async || {
        let found = join_all(ids.iter().map(|id| run.clean.link_at(*id, Revision::FIRST))).await;
        let there = found.into_iter().filter(|found| found.as_ref().unwrap().is_some()).count() as u64;
        (there <= run.links_created(key_id(run.n)).await).then_some(())
    })
    .await;
}

pub async fn create_key_once(run: &Run) {
    let maker = key(1_000_000 + run.n, &[]);
    run.clean.create_key(maker.clone(), None).await.unwrap();
    let told: AnswerOfKey = Arc::new(|key: &ApiKey| KeptAnswer { status: 201, body: key.id.to_string() });
    let attempt = async |store: &Arc<dyn Store>| {
        let ticket = match run.answered(store.begin_once(request(run.n, "once", "x")).await)? {
            OnceState::Begun(ticket) => ticket,
            OnceState::Answered(answer) => return Some(answer),
            OnceState::UnderWay => return None,
            OnceState::OtherRequest => panic!("it is the same: {}", run.name()),
        };
        // The same id at each attempt, as the service derives it from the ticket.
        let child = key(run.n, &[maker.id]);
        match store.create_key_once(ticket, child, Some(1), told.clone()).await {
            Ok(OnceDone::Done(there)) => Some(told(&there)),
            Ok(OnceDone::Answered(answer)) => Some(answer),
            Ok(OnceDone::UnderWay) | Err(CreateKeyError::Store(StoreError::Unavailable(_))) => None,
            Err(error) => panic!("{error}: {}", run.name()),
        }
    };
    let first = run.disturbed(attempt(&run.store)).await;
    let last = eventually(&format!("an answer: {}", run.name()), SOON * 2, async || attempt(&run.clean).await).await;
    assert!(first.is_none_or(|first| first == last), "two answers: {}", run.name());
    assert!(run.clean.key(key_id(run.n)).await.unwrap().is_some(), "{}", run.name());
}

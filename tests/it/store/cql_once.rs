//! Requests that are done once, on several nodes of one cluster: attempts that are taken over, and what those leave that fail.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use scylla::client::session::Session;
use scylla::value::CqlTimestamp;
use signpost::domain::calendar::Timestamp;
use signpost::domain::idempotency::{Fingerprint, OnceEndpoint, OnceRequest};
use signpost::domain::link::Link;
use signpost::store::cql::ScyllaStore;
use signpost::store::once::{OnceDone, OnceState, OnceTicket};
use signpost::store::{CountStore, CreateLinkError, Lifecycle, LinkStore, MadeLinks, OnceStore, StoreError};
use uuid::Uuid;

use super::conformance::once::{answer, links, request};
use super::samples::{MINUTE, key_id, link, link_named, name, node, noon};
use crate::support::keyspaces::Keyspace;

/// A call of the store. The futures are too big for a test's stack.
async fn begun(store: &ScyllaStore, request: OnceRequest) -> OnceTicket {
    match Box::pin(store.begin_once(request)).await.unwrap() {
        OnceState::Begun(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

async fn made(store: &ScyllaStore, ticket: OnceTicket, slugs: &[Option<&str>], limit: u64) -> MadeLinks {
    let new = links(&ticket, 1, slugs);
    match Box::pin(store.create_links_once(ticket, new, Some(limit), answer())).await.unwrap() {
        OnceDone::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

async fn used(store: &ScyllaStore) -> u64 {
    store.monthly_counts(key_id(1), noon().month()).await.unwrap().links_created
}

/// Lets the next attempt take a request over, whoever is at work on it.
pub async fn release(session: &Session, request: &OnceRequest) {
    let statement = "UPDATE idempotency SET holder = ? WHERE owner = ? AND endpoint = 1 AND key = ? IF EXISTS";
    let values = (Uuid::nil(), request.id.owner.0, request.id.key.as_str());
    session.query_unpaged(statement, values).await.unwrap();
}

/// The row of a request whose holder began so long ago, and which this process has not seen.
async fn leave_begun(session: &Session, request: &OnceRequest, begun_at: Timestamp, ago: Duration) {
    assert_eq!(request.id.endpoint, OnceEndpoint::Bulk);
    let Fingerprint(fingerprint) = request.fingerprint;
    let written = std::time::SystemTime::now().checked_sub(ago).unwrap();
    let written = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    let written = i64::try_from(written.as_micros()).unwrap();
    let begun_at = CqlTimestamp(i64::try_from(begun_at.0).unwrap());
    let statement = "INSERT INTO idempotency (owner, endpoint, key, fingerprint, claim, begun_at, holder) \
                     VALUES (?, 1, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    let (owner, key) = (request.id.owner.0, request.id.key.as_str());
    let values = (owner, key, fingerprint.as_slice(), Uuid::new_v4(), begun_at, Uuid::new_v4(), written);
    session.query_unpaged(statement, values).await.unwrap();
}

/// Writes a name as another creation has it that is under way.
async fn leave_pending(session: &Session, name: &str) {
    let statement = "INSERT INTO link_names (domain, name, owner, state, claim, since) VALUES (0, ?, ?, 0, ?, ?)";
    let since = CqlTimestamp(i64::try_from(noon().0).unwrap());
    session.query_unpaged(statement, (name, key_id(9).0, Uuid::new_v4(), since)).await.unwrap();
}

/// How many rows of a table have this text.
async fn rows_with(keyspace: &Keyspace, table: &str, text: &str) -> usize {
    let rows = keyspace.rows().await;
    let rows = rows.iter().filter(|(of, row)| of == table && String::from_utf8_lossy(row).contains(text));
    rows.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_holder_of_a_request_is_taken_over_by_its_age_also_by_a_node_that_has_not_seen_it() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let (young, old) = (request(1, "young", "x"), request(1, "old", "x"));
    leave_begun(&session, &young, noon(), Duration::from_secs(10)).await;
    leave_begun(&session, &old, noon(), Duration::from_secs(27)).await;
    assert!(matches!(store.begin_once(young.clone()).await.unwrap(), OnceState::UnderWay));
    assert_eq!(store.cut_off_once(young).await.unwrap(), None);
    assert_eq!(store.cut_off_once(old.clone()).await.unwrap(), Some(noon()));
    drop(begun(&store, old).await);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn two_holders_at_work_make_the_links_of_a_request_once() {
    let keyspace = Keyspace::empty().await;
    let first = Arc::new(Box::pin(keyspace.open_store(node(1))).await);
    let second = Arc::new(Box::pin(keyspace.open_store(node(2))).await);
    let session = keyspace.session().await;
    for round in 0..10_u64 {
        let asked = request(1, &format!("round {round}").replace(' ', "-"), "x");
        let slug = format!("slug-{round}");
        let slugs = [None, Some(slug.as_str()), None];
        let work = |store: &Arc<ScyllaStore>, ticket: OnceTicket| {
            let (store, new) = (Arc::clone(store), links(&ticket, 1, &slugs));
            tokio::spawn(async move {
                match store.create_links_once(ticket, new, Some(1_000), answer()).await.unwrap() {
                    OnceDone::Done(made) => Some(answer()(&made)),
                    OnceDone::Answered(answer) => Some(answer),
                    OnceDone::UnderWay => None,
                }
            })
        };
        let mut at_work = vec![work(&first, begun(&first, asked.clone()).await)];
        // In another moment of its work each time.
        tokio::time::sleep(Duration::from_millis(4 * round)).await;
        release(&session, &asked).await;
        if let OnceState::Begun(ticket) = Box::pin(second.begin_once(asked.clone())).await.unwrap() {
            at_work.push(work(&second, ticket));
        }
        let told: Vec<_> = join_all(at_work).await.into_iter().filter_map(Result::unwrap).collect();
        let state = first.begin_once(asked).await.unwrap();
        let OnceState::Answered(kept) = state else { panic!("{state:?}") };
        assert!(told.iter().all(|told| *told == kept) && !kept.body.contains('-'), "{told:?}, {kept:?}");
        for (id, slug) in kept.body.split(' ').zip(slugs) {
            assert!(first.link(name(slug.unwrap_or(id))).await.unwrap().is_some(), "{id}");
        }
        assert_eq!(used(&first).await, 3 * (round + 1));
    }
    join(first.close(), second.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_link_that_can_not_be_made_now_does_not_undo_the_others_of_its_request() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    leave_pending(&keyspace.session().await, "busy").await;
    let asked = request(1, "a", "x");
    let ticket = begun(&store, asked.clone()).await;
    let new = links(&ticket, 1, &[None, Some("busy"), None]);
    let made = made(&store, ticket, &[None, Some("busy"), None], 10).await;
    assert!(matches!(made.links[1], Err(CreateLinkError::Store(StoreError::Unavailable(_)))), "{made:?}");
    assert_eq!((made.used, used(&store).await), (2, 2));
    for place in [0, 2] {
        let id = new.links[place].id;
        assert_eq!(made.links[place].as_ref().ok(), Some(&id));
        assert!(store.link(id.into()).await.unwrap().is_some());
    }
    assert!(matches!(store.begin_once(asked).await.unwrap(), OnceState::Answered(kept) if kept == answer()(&made)));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_request_that_has_surely_made_nothing_leaves_the_key_to_another() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    leave_pending(&keyspace.session().await, "busy").await;
    let ticket = begun(&store, request(1, "a", "x")).await;
    let new = links(&ticket, 1, &[Some("busy")]);
    let done = Box::pin(store.create_links_once(ticket, new, Some(10), answer())).await;
    assert!(matches!(done, Err(StoreError::Unavailable(_))), "{done:?}");
    let ticket = begun(&store, request(1, "a", "y")).await;
    assert!(made(&store, ticket, &[None], 10).await.links[0].is_ok());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn at_the_end_of_the_quota_a_request_writes_no_link_and_is_refused_by_it() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    store.create_link(link_named(1, key_id(9), "taken"), None).await.unwrap();
    store.create_link(link(2, key_id(1)), Some(1)).await.unwrap();
    for slugs in [&[None][..], &[Some("taken")], &[Some("free")], &[Some("taken"), None]] {
        let ticket = begun(&store, request(1, "a", "x")).await;
        let made = made(&store, ticket, slugs, 1).await;
        let is_refused =
            |link: &Result<_, _>| matches!(link, Err(CreateLinkError::QuotaExceeded { limit: 1, current: 1 }));
        assert!(made.links.iter().all(is_refused), "{made:?}");
    }
    assert_eq!(rows_with(&keyspace, "links", "").await, 2);
    // A node that does not know the count yet.
    let other = Box::pin(keyspace.open_store(node(2))).await;
    let ticket = begun(&other, request(1, "a", "x")).await;
    assert!(made(&other, ticket, &[Some("taken")], 1).await.links[0].is_err());
    assert_eq!(rows_with(&keyspace, "links", "").await, 2);
    join(store.close(), other.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_link_that_was_not_made_is_in_no_list() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let other = Box::pin(keyspace.open_store(node(2))).await;
    store.create_link(link_named(1, key_id(9), "Summer7"), None).await.unwrap();
    let refused = store.create_link(link_named(2, key_id(1), "Summer7"), None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    let ticket = begun(&store, request(1, "a", "x")).await;
    assert!(made(&store, ticket, &[Some("Summer7")], 10).await.links[0].is_err());
    let owner = key_id(1).to_string();
    for table in ["link_lists", "slugs_of"] {
        assert_eq!(rows_with(&keyspace, table, &owner).await, 0, "{table}");
    }
    // Of three, for which there seemed to be room, one is made.
    store.create_link(link(11, key_id(1)), Some(3)).await.unwrap();
    other.create_link(link(12, key_id(1)), Some(3)).await.unwrap();
    let ticket = begun(&store, request(1, "b", "x")).await;
    let slugs = [None, Some("behind"), Some("Behind7")];
    let new = links(&ticket, 1, &slugs);
    let made = made(&store, ticket, &slugs, 3).await;
    assert_eq!(made.links.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
    assert!(rows_with(&keyspace, "link_lists", &new.links[0].id.to_string()).await > 0);
    for gone in [new.links[1].id.to_string(), "Behind7".to_owned()] {
        for table in ["link_lists", "slugs_of"] {
            assert_eq!(rows_with(&keyspace, table, &gone).await, 0, "{gone} in {table}");
        }
    }
    join(store.close(), other.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_name_is_taken_at_the_time_of_the_attempt_that_takes_it() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let asked = OnceRequest { now: noon().plus(MINUTE), ..request(1, "a", "x") };
    leave_begun(&session, &asked, noon(), MINUTE).await;
    let ticket = begun(&store, asked).await;
    assert_eq!(ticket.seed.begun_at, noon());
    assert!(made(&store, ticket, &[Some("summer")], 10).await.links[0].is_ok());
    let statement = "SELECT since FROM link_names WHERE domain = 0 AND name = 'summer'";
    let row = session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap();
    let (CqlTimestamp(since),) = row.single_row::<(CqlTimestamp,)>().unwrap();
    assert!(u64::try_from(since).unwrap() >= noon().plus(MINUTE).0);
    store.close().await;
}

/// Leaves a request whose links are made as if the node that was at work had died when it had just been counted, or, if the
/// month forgets it, before that.
async fn leave_planned(session: &Session, ticket: &OnceTicket, slugs: &[Option<&str>]) {
    let statement = "UPDATE idempotency SET holder = ?, counted = null, used = null, status = null, answer = null \
                     WHERE owner = ? AND endpoint = 1 AND key = ? IF EXISTS";
    let values = (Uuid::nil(), ticket.id.owner.0, ticket.id.key.as_str());
    session.query_unpaged(statement, values).await.unwrap();
    let since = CqlTimestamp(i64::try_from(noon().0).unwrap());
    for slug in slugs.iter().flatten() {
        let statement = "UPDATE link_names SET link = null, state = 0, revision = null, claim = ?, since = ? \
                         WHERE domain = 0 AND name = ? IF EXISTS";
        session.query_unpaged(statement, (ticket.seed.claim, since, slug)).await.unwrap();
    }
}

/// Makes the months forget what they have counted.
async fn forget_months(session: &Session) {
    let rows = session.query_unpaged("SELECT owner, month FROM link_quotas", ()).await.unwrap();
    for row in rows.into_rows_result().unwrap().rows::<(Uuid, i32)>().unwrap() {
        let statement = "DELETE FROM link_quotas WHERE owner = ? AND month = ?";
        session.query_unpaged(statement, row.unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_links_of_a_holder_that_died_are_counted_once_though_it_counted_again_before() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let slugs = [None, Some("summer"), None];
    let mut told = Vec::new();
    for (key, slugs) in [("first", &slugs[..]), ("second", &[None])] {
        let ticket = begun(&store, request(1, key, "x")).await;
        told.push((key, ticket.clone(), slugs, answer()(&made(&store, ticket, slugs, 10).await)));
    }
    // Only the row of the first one is sure to say that it is counted.
    let_go_unanswered(&session, &told[0].1).await;
    leave_planned(&session, &told[1].1, &[]).await;
    store.close().await;
    let store = Box::pin(keyspace.open_store(node(2))).await;
    for (key, _, slugs, first) in &told {
        let ticket = begun(&store, request(1, key, "x")).await;
        assert_eq!(answer()(&made(&store, ticket, slugs, 10).await), *first, "{key}");
    }
    assert_eq!(used(&store).await, 4);
    store.close().await;
}

/// As [`release`], of a request that was answered.
async fn let_go_unanswered(session: &Session, ticket: &OnceTicket) {
    let statement = "UPDATE idempotency SET holder = ?, status = null, answer = null \
                     WHERE owner = ? AND endpoint = 1 AND key = ? IF EXISTS";
    let values = (Uuid::nil(), ticket.id.owner.0, ticket.id.key.as_str());
    session.query_unpaged(statement, values).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_planned_links_of_a_holder_that_died_are_counted_and_named_by_the_next_one() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let slugs = [None, Some("summer"), Some("Winter7"), Some("summer"), Some("Winter7")];
    let ticket = begun(&store, request(1, "a", "x")).await;
    let first = answer()(&made(&store, ticket.clone(), &slugs, 10).await);
    leave_planned(&session, &ticket, &[Some("summer")]).await;
    store.close().await;
    forget_months(&session).await;
    let store = Box::pin(keyspace.open_store(node(2))).await;
    for has_plan in [true, false] {
        if !has_plan {
            leave_planned(&session, &ticket, &[Some("summer")]).await;
            let statement =
                "UPDATE idempotency SET plan = null WHERE owner = ? AND endpoint = 1 AND key = 'a' IF EXISTS";
            session.query_unpaged(statement, (key_id(1).0,)).await.unwrap();
        }
        let again = begun(&store, request(1, "a", "x")).await;
        assert_eq!(answer()(&made(&store, again, &slugs, 10).await), first);
        assert_eq!(used(&store).await, 3);
        for (id, slug) in first.body.split(' ').zip(slugs).take(3) {
            let found = store.link(name(slug.unwrap_or(id))).await.unwrap();
            assert_eq!(found.map(|link| link.id.to_string()).as_deref(), Some(id));
        }
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_planned_link_whose_name_is_lost_is_refused_and_removed() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let asked = request(1, "a", "x");
    let ticket = begun(&store, asked.clone()).await;
    let slugs = [None, Some("summer"), Some("winter")];
    let new = links(&ticket, 1, &slugs);
    assert!(made(&store, ticket.clone(), &slugs, 10).await.links.iter().all(Result::is_ok));
    leave_planned(&session, &ticket, &slugs).await;
    // A minute later the names are another creation's for the asking.
    let later = Link { created_at: noon().plus(MINUTE), ..link_named(50, key_id(2), "summer") };
    store.create_link(later, None).await.unwrap();
    let again = begun(&store, OnceRequest { now: noon().plus(MINUTE), ..asked }).await;
    let again = made(&store, again, &slugs, 10).await;
    assert_eq!(again.links.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(store.link(name("summer")).await.unwrap().unwrap().owner, key_id(2));
    assert_eq!(store.link(name("winter")).await.unwrap().unwrap().id, new.links[2].id);
    assert_eq!(rows_with(&keyspace, "link_lists", &new.links[1].id.to_string()).await, 0);
    assert_eq!(used(&store).await, 3);
    store.close().await;
}

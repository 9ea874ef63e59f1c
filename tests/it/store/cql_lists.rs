//! Lists on a cluster: rows that count for nothing, and links of 0.1.0 that are added to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::value::CqlTimestamp;
use signpost::clock::Clock;
use signpost::domain::blocked_hosts::BlockedHosts;
use signpost::domain::calendar::Timestamp;
use signpost::domain::key::KeyId;
use signpost::domain::link::{Link, LinkFilter, ListIndex, ListOrder, ShortId};
use signpost::service::link_lists::{LinkListService, ListRequest};
use signpost::store::cql::ScyllaStore;
use signpost::store::{Lifecycle, LinkListQuery, LinkStore, Store, StoreError};
use uuid::Uuid;

use super::samples::{DAY, deleted, key_id, link, link_named, node, noon, short_id};
use crate::support::keyspaces::Keyspace;
use crate::support::{SOON, eventually};

/// How soon a process that adds links and is gone is replaced, and then some.
const TAKEN_OVER: Duration = Duration::from_mins(1);

async fn open(keyspace: &Keyspace, n: u32) -> ScyllaStore {
    Box::pin(keyspace.open_store(node(n))).await
}

async fn execute(session: &Session, statement: &str, values: impl SerializeRow) {
    session.query_unpaged(statement, values).await.unwrap();
}

fn by(owner: Option<KeyId>, index: ListIndex) -> LinkListQuery {
    let order = ListOrder::Newest;
    LinkListQuery { owner, index, order, created_from: None, created_until: None, after: None, limit: 100 }
}

async fn walk(store: &ScyllaStore, query: &LinkListQuery, limit: usize) -> Vec<ShortId> {
    let (mut ids, mut query) = (Vec::new(), LinkListQuery { limit, ..query.clone() });
    loop {
        let page = store.list_links(query.clone()).await.unwrap();
        ids.extend(page.links.iter().map(|link| link.id));
        if page.next.is_none() {
            return ids;
        }
        assert_ne!(page.next, query.after, "it does not go on");
        query.after = page.next;
    }
}

fn timestamp(at: Timestamp) -> CqlTimestamp {
    CqlTimestamp(i64::try_from(at.0).unwrap())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

/// Writes the row of a slug as a creation leaves it that is under way or was refused.
async fn leave_slug(session: &Session, owner: KeyId, name: &str, id: &str, at: Timestamp) {
    let statement = "INSERT INTO slugs_of (owner, first_two, name, link, created_at, revision) VALUES (?, ?, ?, ?, ?, 1) \
                     USING TIMESTAMP 1";
    execute(session, statement, (owner.0, &name[..2], name, id, timestamp(at))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn rows_of_one_slug_hide_no_other_slug_wherever_a_part_ends() {
    let keyspace = Keyspace::empty().await;
    let store = open(&keyspace, 1).await;
    let session = keyspace.session().await;
    let slugs = ["aa", "aa1", "aa2", "aa3", "ab", "b1"];
    for (n, slug) in (1..).zip(slugs) {
        store.create_link(link_named(n, key_id(1), slug), None).await.unwrap();
    }
    for (name, ids) in
        [("aa1", &["0000000", "zzzzzzz"][..]), ("aa3", &["00000A0", "00000A1", "00000A2"]), ("ab", &["0"])]
    {
        for id in ids {
            leave_slug(&session, key_id(1), name, &format!("{id:0>7}"), now()).await;
        }
    }
    for (prefix, expected) in [("a", &[1, 2, 3, 4, 5][..]), ("aa", &[1, 2, 3, 4]), ("aa1", &[2]), ("b", &[6])] {
        let query = by(Some(key_id(1)), ListIndex::SlugPrefix(prefix.into()));
        let expected: Vec<ShortId> = expected.iter().map(|n| short_id(*n)).collect();
        for limit in 1..9 {
            assert_eq!(walk(&store, &query, limit).await, expected, "{prefix}, {limit} at a time");
        }
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn rows_without_a_link_are_skipped_and_removed_once_no_creation_can_be_under_way() {
    let keyspace = Keyspace::empty().await;
    let store = open(&keyspace, 1).await;
    let session = keyspace.session().await;
    let owner = key_id(1);
    let real = Link { created_at: now(), ..link(1, owner) };
    store.create_link(real.clone(), None).await.unwrap();
    let old = Timestamp(now().0 - u64::try_from(DAY.as_millis()).unwrap() * 3);
    for (id, at) in [("0000002", now()), ("0000003", old)] {
        let bucket = i32::try_from(at.day().0).unwrap();
        let statement = "INSERT INTO link_list_buckets (kind, owner, value, bucket) VALUES (0, ?, ?, ?)";
        execute(&session, statement, (owner.0, vec![0_u8; 16], bucket)).await;
        let statement = "INSERT INTO link_lists (kind, owner, value, bucket, part, created_at, link, revision) \
                         VALUES (0, ?, ?, ?, 0, ?, ?, 1) USING TIMESTAMP 1";
        execute(&session, statement, (owner.0, vec![0_u8; 16], bucket, timestamp(at), id)).await;
        leave_slug(&session, owner, "some-slug", id, at).await;
    }
    for limit in [1, 10] {
        assert_eq!(walk(&store, &by(Some(owner), ListIndex::All), limit).await, [real.id]);
        assert!(walk(&store, &by(Some(owner), ListIndex::SlugPrefix("so".into())), limit).await.is_empty());
    }
    for table in ["link_lists", "slugs_of"] {
        let statement = format!("SELECT link FROM {table} WHERE owner = ? ALLOW FILTERING");
        let rows = session.query_unpaged(statement, (owner.0,)).await.unwrap().into_rows_result().unwrap();
        let ids: BTreeSet<String> = rows.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect();
        assert!(ids.contains("0000002") && !ids.contains("0000003"), "{table}: {ids:?}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_page_looks_at_so_many_empty_days_and_then_goes_on_with_the_next() {
    const DAYS: u32 = 300;
    let keyspace = Keyspace::empty().await;
    let store: Arc<ScyllaStore> = Arc::new(open(&keyspace, 1).await);
    let session = keyspace.session().await;
    let owner = key_id(1);
    store.create_link(link(1, owner), None).await.unwrap();
    // Of links that were all deleted.
    let gone = link(2, owner);
    store.create_link(gone.clone(), None).await.unwrap();
    store.delete_link(deleted(&gone)).await.unwrap();
    for day in 1..=DAYS {
        for day in [noon().day().0 + day, noon().day().0 - day] {
            let statement = "INSERT INTO link_list_buckets (kind, owner, value, bucket) VALUES (0, ?, ?, ?)";
            execute(&session, statement, (owner.0, vec![0_u8; 16], i32::try_from(day).unwrap())).await;
        }
    }
    for order in ListOrder::ALL {
        let query = LinkListQuery { order, ..by(Some(owner), ListIndex::All) };
        let page = store.list_links(query.clone()).await.unwrap();
        assert_eq!((page.links.len(), page.examined, page.buckets, page.next.is_some()), (0, 0, 64, true));
        assert_eq!(walk(&store, &query, 1).await, [short_id(1)]);

        let shared: Arc<dyn Store> = store.clone();
        let (links, counts, keys) = (shared.clone(), shared.clone(), shared);
        let lists = LinkListService::new(links, counts, keys, BlockedHosts::default(), Clock::system());
        let request = ListRequest { owner: Some(owner), index: ListIndex::All, order, filter: LinkFilter::default() };
        let (mut found, mut pages, mut after) = (0, 0, None);
        loop {
            let page = lists.page(&request, after, 10, false).await.unwrap();
            (found, pages, after) = (found + page.links.len(), pages + 1, page.next);
            if after.is_none() {
                break;
            }
        }
        // 601 days, of which each page looks at 128.
        assert_eq!((found, pages), (1, 5), "{order:?}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_link_that_cannot_be_read_is_left_out() {
    let keyspace = Keyspace::empty().await;
    let store = open(&keyspace, 1).await;
    for n in 1..4 {
        store.create_link(link_named(n, key_id(1), &format!("slug-{n}")), None).await.unwrap();
    }
    let session = keyspace.session().await;
    execute(&session, "UPDATE links SET options = '{' WHERE id = ? IF EXISTS", (short_id(2).as_str(),)).await;
    let expected = [short_id(1), short_id(3)];
    let oldest = LinkListQuery { order: ListOrder::Oldest, ..by(None, ListIndex::All) };
    for query in [oldest, by(Some(key_id(1)), ListIndex::SlugPrefix("s".into()))] {
        assert_eq!(walk(&store, &query, 1).await, expected);
        assert_eq!(walk(&store, &query, 100).await, expected);
    }
    store.close().await;
}

/// Writes links as 0.1.0 has made them.
async fn write_old_links(session: &Session, numbers: std::ops::Range<u32>) {
    let write = |n: u32| async move {
        let Link { id, owner, created_at, target, data, webhooks, tracked, .. } = link(n, key_id(n % 2));
        let statement = "INSERT INTO links (id, claim, owner, created_at, target, data, webhooks, tracked) \
                         VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let at = timestamp(created_at.plus(DAY * (n % 40)));
        let target = target.as_str().to_owned();
        let (data, webhooks) = (data.as_json().to_owned(), webhooks.all().to_vec());
        let values = (id.to_string(), Uuid::new_v4(), owner.0, at, target, data, webhooks, tracked);
        execute(session, statement, values).await;
    };
    stream::iter(numbers).map(write).buffer_unordered(32).collect::<()>().await;
}

fn ids(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<ShortId> {
    numbers.into_iter().map(short_id).collect()
}

async fn are_filled(store: &ScyllaStore, within: Duration) {
    eventually("all links are in the lists", within, async || (store.link_lists_percent() == 100).then_some(())).await;
}

async fn listed(store: &ScyllaStore, owner: Option<KeyId>) -> BTreeSet<ShortId> {
    let listed = walk(store, &by(owner, ListIndex::All), 250).await;
    let distinct: BTreeSet<ShortId> = listed.iter().copied().collect();
    assert_eq!(distinct.len(), listed.len());
    distinct
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn links_of_0_1_0_are_added_step_by_step_while_others_are_made() {
    // Three steps.
    const OLD: u32 = 1_200;
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    write_old_links(&keyspace.session().await, 0..OLD).await;
    let (first, second) = (open(&keyspace, 1).await, open(&keyspace, 2).await);
    for n in OLD..OLD + 10 {
        second.create_link(link(n, key_id(n % 2)), None).await.unwrap();
    }
    second.delete_link(deleted(&second.link(short_id(7).into()).await.unwrap().unwrap())).await.unwrap();
    for store in [&first, &second] {
        are_filled(store, SOON).await;
        let expected = |owner| ids((0..OLD + 10).filter(|n| *n != 7 && n % 2 == owner));
        assert_eq!(listed(store, Some(key_id(0))).await, expected(0));
        assert_eq!(listed(store, Some(key_id(1))).await, expected(1));
        assert_eq!(listed(store, None).await, ids((0..OLD + 10).filter(|n| *n != 7)));
    }
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn where_a_process_dies_that_adds_links_another_goes_on_from_there() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let session = keyspace.session().await;
    write_old_links(&session, 0..40).await;
    let rows = session.query_unpaged("SELECT token(id), id FROM links", ()).await.unwrap().into_rows_result().unwrap();
    let rows: Vec<(i64, String)> = rows.rows::<(i64, String)>().unwrap().map(Result::unwrap).collect();
    let place = rows[19].0;
    let statement =
        "INSERT INTO link_list_fill (job, place, is_done, holder, beat) VALUES (1, ?, false, ?, 7) IF NOT EXISTS";
    execute(&session, statement, (place, Uuid::new_v4())).await;
    let (first, second) = (open(&keyspace, 1).await, open(&keyspace, 2).await);
    assert!(first.link_lists_percent() < 100);
    let early = first.list_links(by(None, ListIndex::All)).await;
    assert!(matches!(early, Err(StoreError::Unavailable(_))), "{early:?}");
    for store in [&first, &second] {
        are_filled(store, TAKEN_OVER).await;
        // The one that is gone has added the others.
        let behind: BTreeSet<ShortId> =
            rows.iter().filter(|(token, _)| *token > place).map(|(_, id)| ShortId::parse(id).unwrap()).collect();
        assert_eq!(listed(store, None).await, behind);
    }
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn links_that_a_node_of_0_1_0_makes_afterwards_are_added_once_it_has_stopped() {
    let keyspace = Keyspace::empty().await;
    let (first, second) = (open(&keyspace, 1).await, open(&keyspace, 2).await);
    first.create_link(link(1, key_id(1)), None).await.unwrap();
    let session = keyspace.session().await;
    let (queue, holder) = (Uuid::new_v4(), Uuid::new_v4());
    let beat = async |beat: i64| {
        let statement =
            "INSERT INTO queues (part, queue, node, holder, holder_node, beat, floor) VALUES (0, ?, ?, ?, ?, ?, 0)";
        execute(&session, statement, (queue, holder, holder, holder, beat)).await;
    };
    let mut beats = 0..;
    eventually("both see it", SOON, async || {
        beat(beats.next().unwrap()).await;
        ([&first, &second].iter().all(|store| store.link_lists_percent() == 0)).then_some(())
    })
    .await;
    write_old_links(&session, 2..5).await;
    let early = second.list_links(by(None, ListIndex::All)).await;
    assert!(matches!(early, Err(StoreError::Unavailable(_))), "{early:?}");
    execute(&session, "DELETE FROM queues WHERE part = 0 AND queue = ?", (queue,)).await;
    for store in [&first, &second] {
        are_filled(store, SOON).await;
        assert_eq!(listed(store, None).await, ids(1..5));
    }
    first.close().await;
    second.close().await;
}

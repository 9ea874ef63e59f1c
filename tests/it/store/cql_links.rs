//! Links that several nodes of the service change on one cluster, and what is left of work that was interrupted.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::value::CqlTimestamp;
use signpost::domain::link::{Link, LinkName, LinkOptions, Revision, ShortId};
use signpost::domain::tally::BotFilter;
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::session::ScyllaSettings;
use signpost::store::cql::transfer::ScyllaTransfer;
use signpost::store::records::export::RecordV1;
use signpost::store::transfer::{ExportSource, Record, Section, Sink};
use signpost::store::{
    CountStore, CreateLinkError, Lifecycle, LinkChange, LinkStore, NewLinks, StoreError, UpdateLinkError,
};
use uuid::Uuid;

use super::samples::{
    MINUTE, batch, changed, day, deleted, key_id, link, link_named, name, node, noon, short_id, target,
};
use crate::support::keyspaces::Keyspace;
use crate::support::{SOON, eventually};

/// How soon a change is known on all nodes.
const SEEN_WITHIN: Duration = Duration::from_secs(2);

/// What a store has reported, in order.
type Reported = Arc<Mutex<Vec<LinkChange>>>;

/// A store that notes what it reports.
async fn listening(keyspace: &Keyspace, n: u32) -> (ScyllaStore, Reported) {
    let store = Box::pin(keyspace.open_store(node(n))).await;
    let reported = Reported::default();
    let noted = Arc::clone(&reported);
    store.on_link_change(Box::new(move |change| noted.lock().unwrap().push(change)));
    (store, reported)
}

async fn is_reported(reported: &Reported, wanted: LinkChange, within: Duration) {
    eventually(&format!("{wanted:?} is reported"), within, async || {
        let mut reported = reported.lock().unwrap();
        let place = reported.iter().position(|change| *change == wanted)?;
        reported.drain(..=place);
        Some(())
    })
    .await;
}

fn change_of(link: &Link) -> LinkChange {
    LinkChange::Link { name: link.name(), id: link.id }
}

fn is_unavailable<R>(answer: &Result<R, UpdateLinkError>) -> bool {
    matches!(answer, Err(UpdateLinkError::Store(StoreError::Unavailable(_))))
}

/// Executes a statement of the test's own.
macro_rules! execute {
    ($session:expr, $text:expr, $values:expr) => {
        $session.query_unpaged($text, $values).await.unwrap()
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_change_on_one_node_is_known_on_another_within_two_seconds() {
    let keyspace = Keyspace::empty().await;
    let (first, own) = listening(&keyspace, 1).await;
    let (second, reported) = listening(&keyspace, 2).await;
    for (n, slug) in [(1, "summer"), (2, "Summer7")] {
        let made = link_named(n, key_id(1), slug);
        first.create_link(made, None).await.unwrap();
        let made = first.link(name(slug)).await.unwrap().unwrap();
        is_reported(&reported, change_of(&made), SEEN_WITHIN).await;
        let after = changed(&made);
        first.update_link(after.clone()).await.unwrap();
        is_reported(&reported, change_of(&made), SEEN_WITHIN).await;
        assert_eq!(second.link(name(slug)).await.unwrap().as_ref(), Some(&after));
        // Each change has an entry before it and one after it.
        is_reported(&reported, change_of(&made), SEEN_WITHIN).await;
        first.delete_link(deleted(&after)).await.unwrap();
        is_reported(&reported, change_of(&made), SEEN_WITHIN).await;
        assert_eq!(second.link(name(slug)).await.unwrap(), None);
        is_reported(&reported, change_of(&made), SEEN_WITHIN).await;
    }
    assert!(second.link_changes_age().unwrap() < SEEN_WITHIN);
    assert_eq!(*own.lock().unwrap(), [], "its own changes are not reported");
    first.close().await;
    // It begins with the end of the others' changes.
    let (third, reported) = listening(&keyspace, 3).await;
    second.create_link(link_named(9, key_id(1), "last"), None).await.unwrap();
    is_reported(&reported, change_of(&link_named(9, key_id(1), "last")), SEEN_WITHIN).await;
    assert_eq!(*reported.lock().unwrap(), []);
    second.close().await;
    third.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn of_fifty_creators_on_three_nodes_one_gets_the_name() {
    let keyspace = Keyspace::empty().await;
    let mut stores = Vec::new();
    for n in 1..=3 {
        stores.push(Box::pin(keyspace.open_store(node(n))).await);
    }
    for (first, slug) in [(100, "summer"), (200, "Summer7")] {
        let creations =
            (first..first + 50_u32).map(|n| stores[n as usize % 3].create_link(link_named(n, key_id(n), slug), None));
        let created = join_all(creations).await;
        let winners: Vec<u32> = (first..).zip(&created).filter(|(_, made)| made.is_ok()).map(|(n, _)| n).collect();
        let refused = created.iter().filter(|made| matches!(made, Err(CreateLinkError::NameTaken))).count();
        assert_eq!((winners.len(), refused), (1, 49), "{:?}", created.iter().find(|made| made.is_err()));
        for store in &stores {
            assert_eq!(store.link(name(slug)).await.unwrap().unwrap().owner, key_id(winners[0]));
        }
    }
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn changes_on_three_nodes_at_once_are_made_one_after_another() {
    let keyspace = Keyspace::empty().await;
    let mut stores = Vec::new();
    for n in 1..=3 {
        stores.push(Box::pin(keyspace.open_store(node(n))).await);
    }
    stores[0].create_link(link(1, key_id(1)), None).await.unwrap();
    let made = join_all(stores.iter().map(|store| async {
        let mut made = Vec::new();
        while made.len() < 10 {
            let before = store.link(short_id(1).into()).await.unwrap().unwrap();
            match store.update_link(changed(&before)).await {
                Ok(()) => made.push(before.revision.next()),
                Err(UpdateLinkError::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        }
        made
    }))
    .await;
    let mut revisions: Vec<Revision> = made.into_iter().flatten().collect();
    revisions.sort();
    assert_eq!(revisions, (2..=31).map(Revision).collect::<Vec<_>>());
    for store in stores {
        store.close().await;
    }
}

/// Gives the names that creations have just taken to others, before the creators set them to their links.
async fn overtake(session: &Session, slug: &str) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        let statement = "UPDATE link_names SET claim = ? WHERE domain = 0 AND name = ? IF state = 0";
        let answer = execute!(session, statement, (Uuid::new_v4(), slug)).into_rows_result().unwrap();
        let row = answer.first_row::<scylla::value::Row>().unwrap();
        if row.columns[0] == Some(scylla::value::CqlValue::Boolean(true)) {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_creator_that_was_overtaken_is_told_and_leaves_no_link() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let mut numbers = 1..;
    let overtaken = eventually("a creator is overtaken", SOON, async || {
        let wanted = link_named(numbers.next().unwrap(), key_id(1), &format!("slug-{}", numbers.start));
        let slug = wanted.name().to_string();
        let creation = store.create_link(wanted.clone(), None);
        let (created, is_overtaken) = futures_util::future::join(creation, overtake(&session, &slug)).await;
        is_overtaken.then_some((wanted, created))
    });
    let (wanted, created) = Box::pin(overtaken).await;
    assert!(matches!(created, Err(CreateLinkError::Store(StoreError::Unavailable(_)))), "{created:?}");
    assert_eq!(store.link(wanted.name()).await.unwrap(), None);
    assert_eq!(store.link_at(wanted.id, Revision::FIRST).await.unwrap(), None);
    // After a while, the one that overtook it is taken for gone as well.
    let later = Link { id: short_id(1_000), created_at: noon().plus(MINUTE), ..wanted.clone() };
    store.create_link(later.clone(), None).await.unwrap();
    assert_eq!(store.link(wanted.name()).await.unwrap().unwrap().id, later.id);
    store.close().await;
}

/// Writes a name as a creation leaves it that stopped in the middle.
async fn leave_pending(session: &Session, name: &str, owner: u32, last: Option<i64>) {
    let statement =
        "INSERT INTO link_names (domain, name, owner, state, revision, claim, since) VALUES (0, ?, ?, 0, ?, ?, ?)";
    let since = CqlTimestamp(i64::try_from(noon().0).unwrap());
    execute!(session, statement, (name, key_id(owner).0, last, Uuid::new_v4(), since));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_name_whose_creator_is_gone_is_free_after_a_while() {
    let keyspace = Keyspace::empty().await;
    keyspace.migrate().await;
    let settings = ScyllaSettings { request_timeout: Duration::from_secs(1), ..keyspace.store_settings() };
    let store = Box::pin(ScyllaStore::open(&settings, node(1))).await.unwrap();
    let session = keyspace.session().await;
    leave_pending(&session, "fresh", 1, None).await;
    leave_pending(&session, "kept", 1, Some(3)).await;
    let at_once = store.create_link(link_named(1, key_id(2), "fresh"), None).await;
    assert!(matches!(at_once, Err(CreateLinkError::Store(StoreError::Unavailable(_)))), "{at_once:?}");
    let later = |n, owner, slug| Link { created_at: noon().plus(MINUTE), ..link_named(n, key_id(owner), slug) };
    store.create_link(later(2, 2, "fresh"), None).await.unwrap();
    // The name was kept for the key of the creator before.
    let refused = store.create_link(later(3, 2, "kept"), None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    store.create_link(later(4, 1, "kept"), None).await.unwrap();
    assert_eq!(store.link(name("kept")).await.unwrap().unwrap().revision, Revision(4));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_name_is_kept_even_if_its_deletion_was_interrupted() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    for (n, slug) in [(1, "summer"), (2, "winter")] {
        let made = link_named(n, key_id(1), slug);
        store.create_link(made.clone(), None).await.unwrap();
        store.delete_link(deleted(&made)).await.unwrap();
        let statement = "UPDATE link_names SET state = 1, link = ?, revision = 1 WHERE domain = 0 AND name = ?";
        execute!(session, statement, (made.id.as_str(), slug));
        assert_eq!(store.link(name(slug)).await.unwrap(), None);
        let refused = store.create_link(link_named(10 + n, key_id(2), slug), None).await;
        assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    }
    store.create_link(link_named(21, key_id(1), "summer"), None).await.unwrap();
    assert_eq!(store.link(name("summer")).await.unwrap().unwrap().revision, Revision(2));
    let taking =
        NewLinks { links: vec![link_named(22, key_id(2), "winter")], takes_kept_names: true, ..NewLinks::default() };
    store.create_links(taking, None).await.unwrap().links.pop().unwrap().unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn links_are_not_changed_while_a_node_of_0_1_0_is_there() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let mut now = link(1, key_id(1));
    store.create_link(now.clone(), None).await.unwrap();
    // A queue whose holder is not among the lives.
    let (queue, holder) = (Uuid::new_v4(), Uuid::new_v4());
    let statement =
        "INSERT INTO queues (part, queue, node, holder, holder_node, beat, floor) VALUES (0, ?, ?, ?, ?, 0, 0)";
    execute!(session, statement, (queue, node(9).0, holder, node(9).0));
    eventually("changes are refused", SOON, async || {
        let next = changed(&now);
        let updated = store.update_link(next.clone()).await;
        if updated.is_ok() {
            now = next;
        }
        is_unavailable(&updated).then_some(())
    })
    .await;
    assert!(is_unavailable(&store.delete_link(deleted(&now)).await));
    let options = LinkOptions { title: Some("title".into()), ..LinkOptions::default() };
    for refused in [link_named(2, key_id(1), "summer"), Link { options, ..link(3, key_id(1)) }] {
        let refused = store.create_link(refused, None).await;
        assert!(matches!(refused, Err(CreateLinkError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    }
    store.create_link(link(4, key_id(1)), None).await.unwrap();
    execute!(session, "DELETE FROM queues WHERE part = 0 AND queue = ?", (queue,));
    eventually("changes are made", SOON, async || store.update_link(changed(&now)).await.ok()).await;
    store.close().await;
}

/// Writes entries of a life of which this process knows nothing else.
async fn append(session: &Session, life: Uuid, seqs: impl IntoIterator<Item = u32>) {
    for seq in seqs {
        let statement = "INSERT INTO link_changes (life, seq, name, link) VALUES (?, ?, ?, ?)";
        let id = short_id(seq);
        execute!(session, statement, (life, i64::from(seq), id.as_str(), id.as_str()));
    }
}

async fn note_life(session: &Session, life: Uuid, seq: i64) {
    execute!(session, "INSERT INTO lives (bucket, life, level, seq) VALUES (0, ?, 1, ?)", (life, seq));
}

fn entry(n: u32) -> LinkChange {
    LinkChange::Link { name: short_id(n).into(), id: short_id(n) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn no_entry_of_the_change_feed_is_passed_over() {
    let keyspace = Keyspace::empty().await;
    let (store, reported) = listening(&keyspace, 1).await;
    let (session, life) = (keyspace.session().await, Uuid::new_v4());
    note_life(&session, life, 0).await;
    append(&session, life, [1, 3, 4]).await;
    is_reported(&reported, entry(1), SEEN_WITHIN).await;
    // The second one is late.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*reported.lock().unwrap(), []);
    append(&session, life, [2]).await;
    for n in [2, 3, 4] {
        is_reported(&reported, entry(n), SEEN_WITHIN).await;
    }
    // Entries that have expired before they were read.
    append(&session, life, [9]).await;
    note_life(&session, life, 12).await;
    is_reported(&reported, LinkChange::Unknown, SOON).await;
    append(&session, life, [13]).await;
    is_reported(&reported, entry(13), SEEN_WITHIN).await;
    assert!(store.link_changes_age().unwrap() < SEEN_WITHIN);
    store.close().await;
}

/// Its LWT may have been applied after its entry was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn changes_of_a_node_that_died_are_reported_again() {
    let keyspace = Keyspace::empty().await;
    let (store, reported) = listening(&keyspace, 1).await;
    let (session, life) = (keyspace.session().await, Uuid::new_v4());
    note_life(&session, life, 0).await;
    append(&session, life, [1, 2]).await;
    is_reported(&reported, entry(2), SEEN_WITHIN).await;
    // What an earlier process of node 2 has left.
    let statement =
        "INSERT INTO queues (part, queue, node, holder, holder_node, beat, floor) VALUES (0, ?, ?, ?, ?, 0, 0)";
    execute!(session, statement, (Uuid::new_v4(), node(2).0, life, node(2).0));
    let (second, _) = listening(&keyspace, 2).await;
    let again = async {
        let is_there = |n| reported.lock().unwrap().contains(&entry(n));
        eventually("both are reported again", SOON, async || (is_there(1) && is_there(2)).then_some(())).await;
    };
    again.await;
    second.close().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_change_on_a_node_that_closes_is_reported() {
    let keyspace = Keyspace::empty().await;
    let (other, reported) = listening(&keyspace, 1).await;
    for n in 1..=5 {
        let store = Box::pin(keyspace.open_store(node(2))).await;
        let before = link(n, key_id(1));
        store.create_link(before.clone(), None).await.unwrap();
        let mut change = Box::pin(store.update_link(changed(&before)));
        // It has begun.
        assert!(futures_util::poll!(change.as_mut()).is_pending());
        store.close().await;
        assert!(change.await.is_ok());
        for _ in 0..2 {
            is_reported(&reported, change_of(&before), SEEN_WITHIN).await;
        }
    }
    other.close().await;
}

/// All records of some sections, as an export has them.
async fn exported(transfer: &ScyllaTransfer) -> Vec<(Section, Record)> {
    let mut all = Vec::new();
    for section in [Section::Links, Section::KeptNames, Section::Revisions, Section::Deletions] {
        let mut from = None;
        loop {
            let page = transfer.read_page(section, from.as_deref()).await.unwrap();
            all.extend(page.records.into_iter().map(|record| (section, record)));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }
    all
}

fn lines(records: &[(Section, Record)]) -> Vec<String> {
    let kept = records.iter().filter(|(section, _)| *section != Section::Revisions);
    let mut lines: Vec<_> = kept.map(|(_, record)| serde_json::to_string(&RecordV1::from(record)).unwrap()).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn names_and_what_they_are_kept_for_are_the_same_after_an_import() {
    let (from, to) = (Keyspace::empty().await, Keyspace::empty().await);
    let store = Box::pin(from.open_store(node(1))).await;
    let create = async |n, slug: &str| store.create_link(link_named(n, key_id(1), slug), None).await.unwrap();
    let delete = async |name: LinkName| {
        let found = store.link(name).await.unwrap().unwrap();
        store.delete_link(deleted(&found)).await.unwrap();
    };
    store.create_link(link(1, key_id(1)), None).await.unwrap();
    for (n, slug) in
        [(2, "live"), (3, "kept"), (4, "again"), (5, "LiveId7"), (6, "KeptId7"), (7, "Again77"), (8, "Twice77")]
    {
        create(n, slug).await;
    }
    for kept in ["kept", "again", "KeptId7", "Again77", "Twice77"] {
        delete(name(kept)).await;
    }
    for (n, slug) in [(14, "again"), (17, "Again77"), (18, "Twice77")] {
        create(n, slug).await;
    }
    delete(name("Twice77")).await;
    store.update_link(changed(&link(1, key_id(1)))).await.unwrap();
    // A creation that was interrupted after its link was written.
    let session = from.session().await;
    create(9, "interrupted").await;
    execute!(
        session,
        "UPDATE link_names SET state = 0, link = null, revision = null WHERE domain = 0 AND name = ?",
        ("interrupted",)
    );
    store.close().await;

    Box::pin(to.migrate()).await;
    let source = Box::pin(ScyllaTransfer::open(&from.store_settings())).await.unwrap();
    let sink = Box::pin(ScyllaTransfer::open(&to.store_settings())).await.unwrap();
    let records = exported(&source).await;
    for _ in 0..2 {
        for (_, record) in exported(&source).await {
            sink.write(vec![record]).await.unwrap();
        }
    }
    assert_eq!(lines(&exported(&sink).await), lines(&records));

    let store = Box::pin(to.open_store(node(1))).await;
    let id_of = async |slug: &str| store.link(name(slug)).await.unwrap().map(|link| link.id);
    assert_eq!(id_of("live").await, Some(short_id(2)));
    assert_eq!(id_of("again").await, Some(short_id(14)));
    assert_eq!(id_of("LiveId7").await, ShortId::parse("LiveId7"));
    assert_eq!(id_of("Again77").await, Some(short_id(17)));
    for (n, (slug, revision)) in (30..).zip([("kept", 2), ("KeptId7", 2), ("Twice77", 3)]) {
        assert_eq!(id_of(slug).await, None);
        let refused = store.create_link(link_named(50, key_id(2), slug), None).await;
        assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{slug}: {refused:?}");
        store.create_link(link_named(n, key_id(1), slug), None).await.unwrap();
        assert_eq!(store.link(name(slug)).await.unwrap().unwrap().revision, Revision(revision), "{slug}");
    }
    // The id of a deleted link that had another name.
    let refused = store.create_link(link_named(51, key_id(1), short_id(3).as_str()), None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    store.create_link(link_named(52, key_id(2), "interrupted"), None).await.unwrap();
    assert_eq!(store.link_at(short_id(1), Revision(1)).await.unwrap(), Some(link(1, key_id(1))));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_day_on_which_no_link_expires_any_more_is_not_read_for_ever() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let session = keyspace.session().await;
    let after_days = |days: u32| noon().plus(MINUTE * 60 * 24 * days);
    let options = LinkOptions { expires_at: Some(after_days(3)), ..LinkOptions::default() };
    let expiring = Link { target: target("https://example.com/"), options, ..link(1, key_id(1)) };
    store.create_link(expiring, None).await.unwrap();
    let day = |days| i32::try_from(after_days(days).day().0).unwrap();
    // Written to long ago, and just now.
    execute!(session, "INSERT INTO link_time_days (kind, day) VALUES (0, ?) USING TIMESTAMP 1", (day(1),));
    execute!(session, "INSERT INTO link_time_days (kind, day) VALUES (0, ?)", (day(2),));
    let expired = store.expired_links(after_days(9), None, 10).await.unwrap();
    assert_eq!(expired.iter().map(|expired| expired.id).collect::<Vec<_>>(), [short_id(1)]);
    let days = execute!(session, "SELECT day FROM link_time_days WHERE kind = 0", ()).into_rows_result().unwrap();
    let days: Vec<i32> = days.rows::<(i32,)>().unwrap().map(|row| row.unwrap().0).collect();
    assert_eq!(days, [day(2), day(3)]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_deletion_that_was_noted_and_not_made_removes_no_counts() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let before = link(1, key_id(1));
    store.create_link(before.clone(), None).await.unwrap();
    let mut hits = batch(0, 10);
    hits.days.push(day(1, noon(), [1, 0, 0]));
    store.apply_hits(Arc::new(hits)).await.unwrap();
    let transfer = Box::pin(ScyllaTransfer::open(&keyspace.store_settings())).await.unwrap();
    transfer.write(vec![Record::Deletion { link: before.id, at: noon() }]).await.unwrap();
    let remove = async |before| {
        while store.remove_counts_of_deleted(before).await.unwrap() {}
        store.link_hits(short_id(1), Some(BotFilter::Include)).await.unwrap().days.len()
    };
    assert!(!exported(&transfer).await.iter().any(|(_, record)| matches!(record, Record::Deletion { .. })));
    assert_eq!(remove(noon().plus(MINUTE)).await, 1);
    let after = changed(&before);
    store.update_link(after.clone()).await.unwrap();
    // The note was moved to a later time, and is of an earlier revision now.
    let far = noon().plus(MINUTE * 60 * 24 * 10_000);
    assert_eq!(remove(far).await, 1);
    store.delete_link(deleted(&after)).await.unwrap();
    assert_eq!(remove(far).await, 0);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn an_expiry_that_no_link_has_is_dropped() {
    let keyspace = Keyspace::empty().await;
    let store = Box::pin(keyspace.open_store(node(1))).await;
    let expiring = |minutes: u32| Link {
        options: LinkOptions { expires_at: Some(noon().plus(MINUTE * minutes)), ..LinkOptions::default() },
        ..link(1, key_id(1))
    };
    store.create_link(expiring(1), None).await.unwrap();
    let refused = store.create_link(expiring(2), None).await;
    assert!(matches!(refused, Err(CreateLinkError::NameTaken)), "{refused:?}");
    let expired = async || store.expired_links(noon().plus(MINUTE * 9), None, 10).await.unwrap();
    let both = expired().await;
    assert_eq!(both.len(), 2);
    for expired in &both {
        store.forget_expiry(*expired).await.unwrap();
    }
    assert_eq!(expired().await, both[..1]);
    store.delete_link(deleted(&expiring(1))).await.unwrap();
    assert_eq!(expired().await, []);
    store.close().await;
}

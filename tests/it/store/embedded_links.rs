//! Changes and names of links in the embedded store: what is known without a look-up, what is left after a while, and
//! imports of names.

use std::sync::Arc;
use std::time::Duration;

use signpost::domain::hit::HitBatch;
use signpost::domain::link::{Destination, Link, Revision};
use signpost::store::transfer::{ExportSource, Record, Section, Sink, SinkError};
use signpost::store::{CountStore, CreateLinkError, Lifecycle, LinkStore, MAX_REVISIONS, REVISIONS_KEPT_DAYS};

use super::Embedded;
use super::conformance::Ground;
use super::embedded::copy;
use super::samples::{
    DAY, MINUTE, batch, changed, day, deleted, key_id, link, link_named, longest_link, name, noon, short_id, target,
};
use crate::support::tells_what_is_in_memory;

const KEPT: Duration = Duration::from_hours(24 * REVISIONS_KEPT_DAYS as u64);

/// In the life of the changes, after a crash, and after a clean end.
#[tokio::test]
async fn changed_links_are_told_from_memory_as_they_are() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let mut expected = Vec::new();
    for first in [link(1, key_id(1)), link_named(2, key_id(1), "summer"), link_named(3, key_id(1), "Summer7")] {
        store.create_link(first.clone(), None).await.unwrap();
        let first = store.link(first.name()).await.unwrap().unwrap();
        let second = Link { target: target("https://example.com/second"), ..changed(&first) };
        store.update_link(second.clone()).await.unwrap();
        expected.push(second);
    }
    let gone = [link(4, key_id(1)), link_named(5, key_id(1), "winter")];
    for gone in &gone {
        store.create_link(gone.clone(), None).await.unwrap();
        store.delete_link(deleted(gone)).await.unwrap();
    }
    let killed = Embedded::fresh().await;
    copy(&ground.path(), &killed.path());
    store.close().await;
    let tells = tells_what_is_in_memory(ground.path().parent().unwrap());
    for store in [ground.open_here(), killed.open_here()] {
        for link in &expected {
            assert_eq!(store.peek(&link.name()), tells.then(|| Destination::from(link)));
            assert_eq!(store.link(link.name()).await.unwrap().as_ref(), Some(link));
        }
        assert_eq!(store.peek(&short_id(2).into()), None, "the id of a link with a slug");
        for gone in &gone {
            assert_eq!((store.peek(&gone.name()), store.link(gone.name()).await.unwrap()), (None, None));
            // So nobody takes it for free.
            assert!(!store.definitely_absent(&gone.name()));
            let taken =
                store.create_link(Link { owner: key_id(2), ..link_named(9, key_id(2), gone.name().as_str()) }, None);
            assert!(matches!(taken.await, Err(CreateLinkError::NameTaken)));
        }
        assert!(store.definitely_absent(&name("autumn")));
        for used in [4, 5] {
            let taken = store.create_link(link(used, key_id(1)), None).await;
            assert!(matches!(taken, Err(CreateLinkError::NameTaken)));
        }
    }
}

/// A link that becomes too long for what is kept for redirects, and short again.
#[tokio::test]
async fn a_link_too_long_for_memory_is_looked_up_and_told_again_once_it_is_short() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let tells = tells_what_is_in_memory(ground.path().parent().unwrap());
    let first = link(1, key_id(1));
    store.create_link(first.clone(), None).await.unwrap();
    let long = Link { target: longest_link(1).target, ..changed(&first) };
    store.update_link(long.clone()).await.unwrap();
    assert_eq!(store.peek(&first.name()), None);
    assert_eq!(store.link(first.name()).await.unwrap().as_ref(), Some(&long));
    let short = Link { target: first.target, ..changed(&long) };
    store.update_link(short.clone()).await.unwrap();
    assert_eq!(store.peek(&short.name()), tells.then(|| Destination::from(&short)));
}

#[tokio::test]
async fn revisions_of_more_than_33_days_ago_neither_count_nor_stay() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let mut now = link(1, key_id(1));
    store.create_link(now.clone(), None).await.unwrap();
    for _ in 0..MAX_REVISIONS {
        now = Link { updated_at: noon(), ..changed(&now) };
        store.update_link(now.clone()).await.unwrap();
    }
    let just_before = Link { updated_at: noon().plus(KEPT).minus(MINUTE), ..changed(&now) };
    assert!(store.update_link(just_before).await.is_err());
    now = Link { updated_at: noon().plus(KEPT), ..changed(&now) };
    store.update_link(now.clone()).await.unwrap();

    while store.remove_counts_of_deleted(noon().plus(KEPT)).await.unwrap() {}
    assert!(store.link_at(now.id, Revision::FIRST).await.unwrap().is_some());
    while store.remove_counts_of_deleted(noon().plus(KEPT + MINUTE)).await.unwrap() {}
    for revision in 1..=u32::try_from(MAX_REVISIONS).unwrap() {
        assert_eq!(store.link_at(now.id, Revision(revision)).await.unwrap(), None);
    }
    let last = Revision(now.revision.0 - 1);
    assert!(store.link_at(now.id, last).await.unwrap().is_some(), "replaced later");
    assert_eq!(store.link(now.name()).await.unwrap(), Some(now));
}

#[tokio::test]
async fn hits_that_are_counted_after_the_counts_were_removed_are_removed_too() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let gone = link(1, key_id(1));
    store.create_link(gone.clone(), None).await.unwrap();
    store.delete_link(deleted(&gone)).await.unwrap();
    let remove = async |days: u32| while store.remove_counts_of_deleted(noon().plus(days * DAY)).await.unwrap() {};
    remove(1).await;
    let late = HitBatch { days: vec![day(1, noon(), [1, 0, 0])], ..batch(0, 1) };
    store.apply_hits(Arc::new(late)).await.unwrap();
    remove(2).await;
    assert_eq!(store.link_hits(gone.id, None).await.unwrap().days.len(), 1);
    remove(REVISIONS_KEPT_DAYS + 1).await;
    assert_eq!(store.link_hits(gone.id, None).await.unwrap().days.len(), 0);
}

#[tokio::test]
async fn names_that_are_imported_must_be_free_and_are_kept_then() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let kept = |text: &str, owner: Option<u32>| Record::KeptName {
        name: name(text),
        owner: owner.map(key_id),
        revision: Revision(if owner.is_some() { 4 } else { 1 }),
    };
    let records = vec![
        Record::Link(link(1, key_id(1))),
        Record::Link(link_named(2, key_id(1), "summer")),
        kept("winter", Some(1)),
        kept("Winter7", Some(1)),
        kept("Unused7", None),
    ];
    // As after an interruption.
    for _ in 0..2 {
        store.write(records.clone()).await.unwrap();
    }
    let taken = [
        kept("summer", Some(1)),
        kept(short_id(1).as_str(), Some(1)),
        kept(short_id(2).as_str(), Some(1)),
        kept("winter", Some(2)),
        Record::Link(link_named(3, key_id(1), "summer")),
        Record::Link(link_named(3, key_id(1), "winter")),
        Record::Link(Link { id: name("Winter7").as_id().unwrap(), ..link(3, key_id(1)) }),
        Record::Link(Link { id: name("Unused7").as_id().unwrap(), ..link_named(3, key_id(1), "autumn") }),
        Record::Link(link_named(3, key_id(1), short_id(1).as_str())),
    ];
    for record in taken {
        let refused = store.write(vec![record]).await;
        assert!(matches!(refused, Err(SinkError::Taken(_))), "{refused:?}");
    }
    for kept in ["winter", "Winter7"] {
        let others = store.create_link(link_named(8, key_id(2), kept), None).await;
        assert!(matches!(others, Err(CreateLinkError::NameTaken)));
    }
    store.create_link(link_named(9, key_id(1), "winter"), None).await.unwrap();
    assert_eq!(store.link(name("winter")).await.unwrap().unwrap().revision, Revision(5));
    let page = store.read_page(Section::KeptNames, None).await.unwrap();
    let names = page.records.iter().filter(|record| matches!(record, Record::KeptName { .. })).count();
    assert_eq!(names, 2, "{page:?}");
    store.close().await;
}

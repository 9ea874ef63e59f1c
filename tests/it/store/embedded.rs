//! What is the embedded store's own: its directory, its lock, and power cuts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::{join, join_all};
use signpost::domain::breakdown::Dimension;
use signpost::domain::hit::HitBatch;
use signpost::domain::link::Destination;
use signpost::domain::tally::BotFilter;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::{CountStore, CreateLinkError, Lifecycle, LinkStore, SharedNode, StoreError};

use super::Embedded;
use super::conformance::Ground;
use super::conformance::suspensions::{self, fail, hours, suspend_after, suspended};
use super::samples::{DAY, batch, counted, day, failed, key_id, label, link, longest_link, noon, short_id};
use crate::support::{SOON, tells_what_is_in_memory};

const PAGE: usize = 4_096;

fn is_unavailable<R>(answer: &Result<R, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

fn journal(store: &Path) -> PathBuf {
    let files = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let mut journals: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "jnl")).collect();
    journals.sort();
    journals.pop().unwrap()
}

/// Where what is written of a file ends: behind it there are zeros, for the engine allots its journals ahead.
fn end(file: &[u8]) -> usize {
    // By pages first: comparing them whole is what makes 64 MiB of zeros quick.
    let last_page = file.chunks(PAGE).rposition(|page| *page != [0; PAGE][..page.len()]);
    last_page.map_or(0, |page| {
        let begin = page * PAGE;
        let bytes = &file[begin..(begin + PAGE).min(file.len())];
        begin + bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
    })
}

/// Copies the files of a store as they are, open or not: what a killed process leaves.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
            continue;
        }
        let bytes = fs::read(entry.path()).unwrap();
        let written = end(&bytes);
        let file = File::create_new(to).unwrap();
        file.write_all_at(&bytes[..written], 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }
}

#[tokio::test]
async fn a_closed_store_answers_unavailable() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    store.create_link(link(1, key_id(1)), None).await.unwrap();
    store.close().await;
    store.close().await;
    let refused = store.create_link(link(2, key_id(1)), None).await;
    assert!(matches!(refused, Err(CreateLinkError::Store(StoreError::Unavailable(_)))));
    assert!(is_unavailable(&store.put_if_absent("name", Vec::new()).await));
    assert!(is_unavailable(&store.apply_hits(Arc::new(batch(0, 1))).await));
    assert!(is_unavailable(&store.link(short_id(1).into()).await));
    assert!(is_unavailable(&store.ready().await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closing_store_does_what_was_asked_before() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let writes = join_all((0..200).map(|n| store.create_link(link(n, key_id(1)), None)));
    let (written, ()) = join(writes, store.close()).await;
    let answered: Vec<_> = (0..).zip(&written).filter(|(_, written)| written.is_ok()).map(|(n, _)| n).collect();
    assert!(!answered.is_empty());
    let store = ground.open_here();
    for n in answered {
        assert!(store.link(short_id(n).into()).await.unwrap().is_some(), "{n}");
    }
}

#[tokio::test]
async fn a_store_that_is_open_is_not_opened_again() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let second = EmbeddedStore::open(&ground.path(), 8 << 20).map(drop);
    assert!(matches!(&second, Err(StoreError::Unavailable(why)) if why.contains("another process")), "{second:?}");
    store.ready().await.unwrap();
    store.close().await;
    ground.open_here().ready().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_none_is_an_error() {
    let ground = Embedded::fresh().await;
    fs::write(ground.path(), "a file").unwrap();
    assert!(is_unavailable(&EmbeddedStore::open(&ground.path(), 8 << 20).map(drop)));
    assert!(is_unavailable(&EmbeddedStore::open(&ground.path().join("below"), 8 << 20).map(drop)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answered_write_is_in_the_files_at_that_moment() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    for n in 0..5 {
        store.create_link(longest_link(n), Some(9)).await.unwrap();
    }
    let killed = Embedded::fresh().await;
    copy(&ground.path(), &killed.path());
    let left = killed.open_here();
    for n in 0..5 {
        assert_eq!(left.link(short_id(n).into()).await.unwrap(), Some(longest_link(n)));
    }
    assert_eq!(left.monthly_counts(key_id(1), noon().month()).await.unwrap().links_created, 5);
}

#[tokio::test]
async fn that_there_is_no_such_link_is_told_from_memory_also_after_a_crash() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    assert!(store.definitely_absent(&short_id(1).into()));
    store.create_link(link(1, key_id(1)), None).await.unwrap();
    store.create_link(longest_link(2), None).await.unwrap();
    let killed = Embedded::fresh().await;
    copy(&ground.path(), &killed.path());
    let left = killed.open_here();
    for store in [store, left] {
        assert_eq!([1, 2, 3].map(|n| store.definitely_absent(&short_id(n).into())), [false, false, true]);
    }
}

/// Also one that was made in a life before, and not the one whose target is longer than what is kept for this.
#[tokio::test]
async fn what_a_redirect_needs_is_told_from_memory_also_after_a_crash() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    assert_eq!(store.peek(&short_id(1).into()), None);
    let links = [link(1, key_id(1)), longest_link(2)];
    for link in &links {
        store.create_link(link.clone(), None).await.unwrap();
    }
    let killed = Embedded::fresh().await;
    copy(&ground.path(), &killed.path());
    let left = killed.open_here();
    for store in [store, left] {
        let told =
            Some(Destination::from(&links[0])).filter(|_| tells_what_is_in_memory(ground.path().parent().unwrap()));
        assert_eq!(store.peek(&short_id(1).into()), told);
        assert_eq!(store.peek(&short_id(2).into()), None);
        assert_eq!(store.link(short_id(2).into()).await.unwrap().as_ref(), Some(&links[1]));
    }
}

/// A power cut may leave any page unwritten of what was not answered yet. The longest link is written in many rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_lost_to_a_power_cut_takes_only_the_write_that_was_not_answered() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    store.create_link(longest_link(1), None).await.unwrap();
    let answered = end(&fs::read(journal(&ground.path())).unwrap());
    store.create_link(longest_link(2), None).await.unwrap();
    let written = end(&fs::read(journal(&ground.path())).unwrap());
    store.close().await;
    let pages = answered.next_multiple_of(PAGE)..written;
    assert!(pages.end - pages.start > 8 * PAGE, "{pages:?}");
    for page in pages.step_by(PAGE) {
        let torn = Embedded::fresh().await;
        copy(&ground.path(), &torn.path());
        let file = fs::OpenOptions::new().write(true).open(journal(&torn.path())).unwrap();
        file.write_all_at(&[0; PAGE], page as u64).unwrap();
        let store = torn.open_here();
        assert_eq!(store.link(short_id(1).into()).await.unwrap(), Some(longest_link(1)), "page at {page}");
        assert_eq!(store.link(short_id(2).into()).await.unwrap(), None, "page at {page}");
        assert_eq!(store.create_link(longest_link(2), None).await.unwrap(), 2, "page at {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_clean_end_with_much_written_the_journal_is_not_needed() {
    const LINKS: u32 = 400;
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    // More than is worth flushing.
    let made = join_all((0..LINKS).map(|n| store.create_link(longest_link(n), None))).await;
    assert!(made.iter().all(Result::is_ok));
    assert!(end(&fs::read(journal(&ground.path())).unwrap()) > 10 << 20);
    store.close().await;
    File::create(journal(&ground.path())).unwrap();
    let store = ground.open_here();
    assert_eq!(store.link(short_id(LINKS - 1).into()).await.unwrap(), Some(longest_link(LINKS - 1)));
    let counts = store.monthly_counts(longest_link(0).owner, longest_link(0).created_at.month()).await.unwrap();
    assert_eq!(counts.links_created, u64::from(LINKS));
}

#[tokio::test]
async fn a_row_too_long_for_a_page_is_refused_and_nothing_else_suffers() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    let (long, short) = join(store.put_if_absent("long", vec![1; 4_096]), store.put_if_absent("short", vec![1])).await;
    assert!(matches!(long, Err(StoreError::Corrupt { .. })), "{long:?}");
    assert_eq!(short.unwrap(), [1]);
    assert_eq!(store.put_if_absent("long", vec![2]).await.unwrap(), [2]);
    store.ready().await.unwrap();
}

#[tokio::test]
async fn a_label_of_any_length_is_cut() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    // In one row, and spread over rows of days and of labels.
    let days = (0..100).map(|n| day(2, noon().minus(DAY * n), [0, 1, 0]));
    store.apply_hits(Arc::new(HitBatch { days: counted(days, []), ..batch(0, 1) })).await.unwrap();
    for (link, from) in [(1, 1), (2, 2)] {
        let city = |text: &str, count| label(link, noon(), Dimension::City, text, count);
        let labels = [city(&"x".repeat(70_000), 1), city(&"x".repeat(4_000), 4), city("Jena", 8)];
        let days = counted([day(link, noon(), [13, 0, 0])], labels);
        store.apply_hits(Arc::new(HitBatch { days, ..batch(from, from + 1) })).await.unwrap();
        let hits = store.link_hits(short_id(link), Some(BotFilter::Include)).await.unwrap();
        let (_, cities) = hits.labels.into_iter().find(|(dimension, _)| *dimension == Dimension::City).unwrap();
        assert_eq!(cities, [("Jena".to_owned(), 8), ("x".repeat(128), 5)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_write_takes_no_other_along() {
    let ground = Embedded::fresh().await;
    let store = ground.open_here();
    // Most of them end up in one transaction.
    let gap = (0..20).map(|n| {
        let store = &store;
        async move {
            let (created, applied) =
                join(store.create_link(link(n, key_id(1)), None), store.apply_hits(Arc::new(batch(5, 6)))).await;
            assert!(matches!(applied, Err(StoreError::Corrupt { .. })), "{applied:?}");
            created.unwrap()
        }
    });
    let mut counts = tokio::time::timeout(SOON, join_all(gap)).await.unwrap();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_count_of_failures_goes_with_the_last_of_its_deliveries_and_a_suspension_stays() {
    let ground = Embedded::fresh().await;
    let store = ground.open().await;
    suspend_after(&store, 3);
    for n in [1, 2] {
        store.create_link(link(n, key_id(1)), None).await.unwrap();
    }
    fail(&store, [0, 1]).await;
    for hour in [0, 12, 24] {
        suspensions::end(&store, 1, 1, hour, failed(None)).await;
    }
    for hour in [0, 12] {
        suspensions::end(&store, 2, 0, hour, failed(None)).await;
    }
    assert_eq!(suspended(&store).await, [1]);
    while store.drop_deliveries(hours(12).day()).await.unwrap() {}
    suspensions::end(&store, 2, 0, 25, failed(None)).await;
    assert_eq!(store.suspensions(vec![short_id(2)]).await.unwrap().len(), 1, "one of the deliveries is still there");
    fail(&store, [26]).await;
    assert_eq!(suspended(&store).await, [1]);
    while store.drop_deliveries(hours(2_000).day()).await.unwrap() {}
    assert_eq!(suspended(&store).await, [1]);
}

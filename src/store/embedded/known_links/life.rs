//! From a start to the next one: what is known of a store's links when it is opened, how the rest comes to be known, and what
//! is kept at its end.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fjall::{Database, Keyspace, Readable};

use super::super::engine::{Engine, engine_error};
use super::super::links;
use super::super::transaction::{Transaction, durable_batch};
use super::{FEWEST, KnownLinks, MOST_KEPT, Stamp, kept, path, random};
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::store::records::row_keys;
use crate::threads::{give_way, in_background};

/// Rows looked at at once: the engine may be closed in between.
const PAGE: usize = 10_000;
/// Fewer are read anew in no time.
const WORTH_KEEPING: u64 = 100_000;

/// What is known of the links of this store, before anything is written to it.
pub fn open(
    database: &Database,
    meta: &Keyspace,
    links: &Keyspace,
    directory: &Path,
) -> Result<KnownLinks, StoreError> {
    let stamp = meta.get(row_keys::KNOWN_LINKS_STAMP).map_err(|e| engine_error(&e))?;
    let kept = match &stamp {
        Some(stamp) => {
            // From now on there may be links that the files do not have.
            let mut batch = durable_batch(database, 1);
            batch.remove(meta, row_keys::KNOWN_LINKS_STAMP);
            batch.commit().map_err(|e| engine_error(&e))?;
            let of_no_use = |error: &_| tracing::info!(%error, "store: discarded the stale index of links");
            KnownLinks::read(directory, stamp).inspect_err(of_no_use).ok()
        }
        None => None,
    };
    // They are out of date, or will be. If that fails, they only take room: without its stamp none is read again.
    for file in [path(directory), kept::unfinished(&path(directory))] {
        let _ = fs::remove_file(file);
    }
    // With a quarter more than there seem to be.
    let links = links.approximate_len() as u64;
    kept.map_or_else(|| KnownLinks::new(directory, FEWEST.max(links + links / 4)), Ok)
}

/// Makes the links known that are there: a few at once, many in the background. Where that fails, ids are looked up.
pub fn complete(engine: &Arc<Engine>) {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "store: unknown ids are looked up on disk until the next restart");
    };
    if engine.known_links.is_complete.load(Ordering::Relaxed) {
        return;
    }
    let began = Instant::now();
    let mut last = match read_page(engine, None) {
        Ok(Some(last)) => last,
        Ok(None) => return,
        Err(error) => return failed(&error),
    };
    let weak = Arc::downgrade(engine);
    let rest = move || {
        while let Some(engine) = weak.upgrade() {
            match read_page(&engine, Some(last)) {
                Ok(Some(id)) => last = id,
                Ok(None) => {
                    // What is on the disk already a clean end needs not wait for.
                    if let Err(error) = engine.known_links.records.sync() {
                        tracing::debug!(%error, "store: can't sync the records of links");
                    }
                    let (links, seconds) = (engine.known_links.len(), began.elapsed().as_secs_f32());
                    return tracing::info!(links, seconds, "store: the index of links is rebuilt");
                }
                Err(error) => return failed(&error),
            }
        }
    };
    // It ends by itself, at the latest when the engine is closed.
    if let Err(error) = in_background("known-links", rest) {
        failed(&error);
    }
}

/// Makes a page's links known; answers the last one's id, or nothing where these were the last.
fn read_page(engine: &Engine, after: Option<ShortId>) -> Result<Option<ShortId>, StoreError> {
    let known = &engine.known_links;
    let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.0));
    let rows = engine.database.snapshot().range(&engine.tables.links, (from, Bound::Unbounded));
    let (mut rows_read, mut last, mut found) = (0, None, Vec::new());
    for row in rows.take(PAGE) {
        give_way();
        let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
        rows_read += 1;
        // Longer keys are of further rows of a link that is long.
        if let Ok(id) = key[..].try_into().map(ShortId) {
            last = Some(id);
            match links::of_one_row(&value) {
                // One that is made meanwhile has its record already, or will have.
                Some(link) if known.position(id).is_none() => found.extend(known.insert(&link)),
                Some(_) => {}
                None => known.insert_id(id),
            }
        }
    }
    known.place(&found);
    if rows_read == PAGE && last.is_some() {
        return Ok(last);
    }
    known.is_complete.store(true, Ordering::Release);
    Ok(None)
}

/// Writes the file that the next start reads, where it would and that is worth it. Nothing may be written to the store after
/// that.
pub fn keep(engine: &Engine) -> Result<(), StoreError> {
    let known = &engine.known_links;
    let is_whole = known.is_complete.load(Ordering::Acquire) && known.records.are_whole();
    if known.len() < WORTH_KEEPING || known.indices().count() > MOST_KEPT || !is_whole {
        return Ok(());
    }
    let stamp: Stamp = random()?;
    known.write(stamp).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let mut transaction = Transaction::begin(engine);
    transaction.insert(&engine.tables.meta, row_keys::KNOWN_LINKS_STAMP, stamp)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::engine::Gone;
    use super::super::tests::{destination, id, tells_all};
    use super::super::{records, records_path};
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::link::{BaseUrl, Destination, Link, NewLink, TargetUrl};

    fn link(number: u64) -> Link {
        let Destination { id, owner, tracked, target, .. } = destination(number);
        let base = BaseUrl::new(url::Url::parse("https://sign.example").unwrap());
        let webhooks = vec!["https://example.com/hook".into()];
        let new = NewLink { webhooks, tracked, ..NewLink::to(TargetUrl::parse(&target, &base).unwrap()) };
        new.made(id, owner, Timestamp(0))
    }

    fn wait_until_complete(engine: &Engine) {
        let began = Instant::now();
        while !engine.known_links.is_complete.load(Ordering::Acquire) {
            assert!(began.elapsed() < Duration::from_secs(30));
            // Who reads the links stands back behind this thread.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_link_is_not_told_before_it_is_committed() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0);
        complete(&engine);
        let known = &engine.known_links;
        let mut given_up = Transaction::begin(&engine);
        links::insert(&engine, &mut given_up, &link(1)).unwrap();
        assert!(!known.lacks(id(1)), "it is on its way");
        drop(given_up);
        assert_eq!(known.get(id(1)), None);

        let mut transaction = Transaction::begin(&engine);
        links::insert(&engine, &mut transaction, &link(1)).unwrap();
        assert_eq!(known.get(id(1)), None);
        transaction.commit().unwrap();
        assert_eq!(known.get(id(1)).is_some(), records::are_told_in(directory.path()));
        assert!(known.get(id(1)).is_none_or(|told| told == destination(1)));
    }

    #[test]
    fn links_that_are_made_while_the_others_are_read_anew_are_known_as_well() {
        const BEFORE: u64 = 3 * PAGE as u64;
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0);
        let make = |numbers: std::ops::Range<u64>| {
            let mut transaction = Transaction::begin(&engine);
            numbers.for_each(|number| links::insert(&engine, &mut transaction, &link(number)).unwrap());
            transaction.commit().unwrap();
        };
        make(0..BEFORE);
        std::thread::scope(|scope| {
            scope.spawn(|| complete(&engine));
            (0..100).for_each(|batch| make(BEFORE + 10 * batch..BEFORE + 10 * (batch + 1)));
        });
        wait_until_complete(&engine);
        assert!((0..BEFORE + 1_000).all(|number| !engine.known_links.lacks(id(number))));
        assert!(engine.known_links.lacks(id(BEFORE + 1_000)) || engine.known_links.lacks(id(BEFORE + 1_001)));
    }

    #[test]
    fn a_store_opens_where_its_records_have_no_place() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        fs::create_dir(records_path(&store)).unwrap();
        let engine = Arc::new(Engine::open(&store, 1 << 20).unwrap().0);
        complete(&engine);
        let mut transaction = Transaction::begin(&engine);
        links::insert(&engine, &mut transaction, &link(1)).unwrap();
        transaction.commit().unwrap();
        assert!(!engine.known_links.lacks(id(1)) && engine.known_links.get(id(1)).is_none());
        assert_eq!(links::get(&engine, id(1)).unwrap(), Some(link(1)));
        keep(&engine).unwrap();
    }

    #[test]
    fn a_clean_end_leaves_all_to_the_next_start_and_after_a_crash_they_are_read_anew() {
        const LINKS: u64 = WORTH_KEEPING + 1;
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let open = || {
            let (engine, gone) = Engine::open(&store, 1 << 20).unwrap();
            (Arc::new(engine), gone)
        };
        let close = |engine: Arc<Engine>, gone: Gone| {
            drop(engine);
            // A page that is being read is read to its end.
            let _ = gone.blocking_recv();
        };
        let knows_all = |known: &KnownLinks| {
            tells_all(known, LINKS)
                && (0..LINKS).all(|number| !known.lacks(id(number)))
                && (LINKS..LINKS + 100).any(|number| known.lacks(id(number)))
        };

        let (engine, gone) = open();
        complete(&engine);
        let mut transaction = Transaction::begin(&engine);
        for number in 0..LINKS {
            links::insert(&engine, &mut transaction, &link(number)).unwrap();
        }
        transaction.commit().unwrap();
        keep(&engine).unwrap();
        close(engine, gone);

        // Known before a row is read.
        let (engine, gone) = open();
        assert!(knows_all(&engine.known_links));
        // The file is of no use any more, and nothing is kept: as after a crash.
        close(engine, gone);

        let (engine, gone) = open();
        assert!(!engine.known_links.lacks(id(LINKS)));
        assert_eq!(engine.known_links.get(id(1)), None);
        complete(&engine);
        wait_until_complete(&engine);
        assert!(knows_all(&engine.known_links));
        close(engine, gone);
    }
}

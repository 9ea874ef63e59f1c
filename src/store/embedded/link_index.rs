//! Brings the index of known links up to date with the store: rebuilds it after a start, and saves it at a clean end.

use std::fmt::Display;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fjall::{Guard, Readable};

use super::database::engine_error;
use super::engine::Engine;
use super::links::LinkTable;
use super::transaction::Transaction;
use crate::domain::link::{LinkName, ShortId};
use crate::store::StoreError;
use crate::store::records::row_keys;
use crate::threads::{in_background, yield_periodically};

/// Rows in one page: the engine may be closed between two pages.
const PAGE: usize = 10_000;

/// Rebuilds the index if it is not complete: the first page at once, the rest in the background. After a failure, ids
/// are looked up on disk.
pub fn rebuild(engine: &Arc<Engine>) {
    if engine.known_links.is_complete() {
        return;
    }
    let began = Instant::now();
    let last = match read_page(engine, None) {
        Ok(Some(last)) => last,
        Ok(None) => return,
        Err(error) => return log_failure(&error),
    };
    let rest = Rebuild { engine: Arc::downgrade(engine), last, began };
    // It ends at the latest when the engine is closed.
    if let Err(error) = in_background("known-links", || rest.run()) {
        log_failure(&error);
    }
}

/// Saves the index for the next start if that is faster than a rebuild. Nothing may be written to the store afterwards.
pub fn save(engine: &Engine) -> Result<(), StoreError> {
    let Some(stamp) = engine.known_links.save()? else { return Ok(()) };
    let mut transaction = Transaction::begin(engine);
    transaction.insert(&engine.keyspaces.meta, row_keys::KNOWN_LINKS_STAMP, stamp)?;
    transaction.commit()
}

/// A rebuild in the background.
struct Rebuild {
    engine: Weak<Engine>,
    /// The last row that was read.
    last: RowReached,
    began: Instant,
}

/// How far a rebuild has read: first the links, then the names.
enum RowReached {
    Link(ShortId),
    Name(Vec<u8>),
}

impl Rebuild {
    fn run(mut self) {
        while let Some(engine) = self.engine.upgrade() {
            match read_page(&engine, Some(&self.last)) {
                Ok(Some(last)) => self.last = last,
                Ok(None) => return self.log_end(&engine),
                Err(error) => return log_failure(&error),
            }
        }
    }

    fn log_end(&self, engine: &Engine) {
        // A clean end has less to sync then.
        if let Err(error) = engine.known_links.sync_records() {
            tracing::debug!(%error, "store: can't sync the records of links");
        }
        let (links, seconds) = (engine.known_links.len(), self.began.elapsed().as_secs_f32());
        tracing::info!(links, seconds, "store: the index of links is rebuilt");
    }
}

fn log_failure(error: &dyn Display) {
    tracing::error!(%error, "store: unknown ids are looked up on disk until the next restart");
}

/// Adds a page to the index; returns the last row of it, or `None` after the last page.
fn read_page(engine: &Engine, after: Option<&RowReached>) -> Result<Option<RowReached>, StoreError> {
    let after = match after {
        None => None,
        Some(RowReached::Link(id)) => Some(*id),
        Some(RowReached::Name(name)) => return read_names(engine, Bound::Excluded(name.as_slice())),
    };
    match read_links(engine, after)? {
        Some(last) => Ok(Some(RowReached::Link(last))),
        None => read_names(engine, Bound::Unbounded),
    }
}

/// Adds a page of links to the index; returns the id of the last one, or `None` after the last page.
fn read_links(engine: &Engine, after: Option<ShortId>) -> Result<Option<ShortId>, StoreError> {
    let known = &engine.known_links;
    let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.0));
    let rows = engine.snapshots.take().range(&engine.keyspaces.links, (from, Bound::Unbounded));
    let (mut rows_read, mut last, mut found) = (0, None, Vec::new());
    for row in rows.take(PAGE) {
        yield_periodically();
        let (key, value) = row.into_inner().map_err(|e| engine_error(&e))?;
        rows_read += 1;
        // Longer keys are of the overflow rows of a long link.
        if let Ok(id) = key[..].try_into().map(ShortId) {
            last = Some(id);
            match LinkTable::link_in(&value) {
                Some(link) => found.extend(known.insert_stored(&link)),
                None => known.insert_name(&id.into()),
            }
        }
    }
    known.place_stored(&found);
    Ok(last.filter(|_| rows_read == PAGE))
}

/// Adds a page of names to the index. The names of links are there already, unless the link is too long for one row.
fn read_names(engine: &Engine, from: Bound<&[u8]>) -> Result<Option<RowReached>, StoreError> {
    let known = &engine.known_links;
    let rows = engine.snapshots.take().range::<&[u8], _>(&engine.keyspaces.link_names, (from, Bound::Unbounded));
    let (mut rows_read, mut last) = (0, None);
    for row in rows.take(PAGE) {
        yield_periodically();
        let key = Guard::key(row).map_err(|e| engine_error(&e))?;
        rows_read += 1;
        if let Some(name) = std::str::from_utf8(&key).ok().and_then(LinkName::of_form) {
            known.insert_name(&name);
        }
        last = Some(key);
    }
    if rows_read == PAGE
        && let Some(last) = last
    {
        return Ok(Some(RowReached::Name(last.to_vec())));
    }
    known.set_complete();
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::super::engine::Gone;
    use super::super::known_links::tests::{destination, finds_all, link, listed, name, reads_without_waiting};
    use super::super::known_links::{KnownLinks, MIN_SAVED_IDS, files};
    use super::super::tables::EmbeddedTables;
    use super::*;
    use crate::domain::link::{Destination, Link};

    fn open(store: &Path) -> EmbeddedTables {
        EmbeddedTables::open(store).0
    }

    fn create(tables: &EmbeddedTables, numbers: std::ops::Range<u64>) {
        let mut transaction = Transaction::begin(&tables.engine);
        numbers.for_each(|number| tables.links.insert(&mut transaction, &link(number)).unwrap());
        transaction.commit().unwrap();
    }

    fn wait_until_complete(engine: &Engine) {
        let began = Instant::now();
        while !engine.known_links.is_complete() {
            assert!(began.elapsed() < Duration::from_secs(30));
            // The rebuild has a lower priority than this thread.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_links_record_is_found_only_after_its_commit() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory.path().join("store"));
        rebuild(&tables.engine);
        let known = &tables.engine.known_links;
        let mut given_up = Transaction::begin(&tables.engine);
        tables.links.insert(&mut given_up, &link(1)).unwrap();
        assert!(!known.lacks(&name(1)), "its creation is under way");
        drop(given_up);
        assert_eq!(known.get(&name(1)), None);

        let mut transaction = Transaction::begin(&tables.engine);
        tables.links.insert(&mut transaction, &link(1)).unwrap();
        assert_eq!(known.get(&name(1)), None);
        transaction.commit().unwrap();
        assert_eq!(known.get(&name(1)).is_some(), reads_without_waiting(directory.path()));
        assert_eq!(listed(known, 1), Some(link(1)));
        assert!(known.get(&name(1)).is_none_or(|found| found == destination(1)));
    }

    #[test]
    fn links_that_are_created_during_a_rebuild_are_known() {
        const BEFORE: u64 = 3 * PAGE as u64;
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory.path().join("store"));
        create(&tables, 0..BEFORE);
        std::thread::scope(|scope| {
            scope.spawn(|| rebuild(&tables.engine));
            (0..100).for_each(|batch| create(&tables, BEFORE + 10 * batch..BEFORE + 10 * (batch + 1)));
        });
        let known = &tables.engine.known_links;
        wait_until_complete(&tables.engine);
        assert!((0..BEFORE + 1_000).all(|number| !known.lacks(&name(number))));
        assert!(known.lacks(&name(BEFORE + 1_000)) || known.lacks(&name(BEFORE + 1_001)));
    }

    fn next(tables: &EmbeddedTables, number: u64) -> Link {
        let link = tables.links.get(&name(number)).unwrap().unwrap();
        let webhooks = crate::domain::link::LinkWebhooks::default();
        Link { webhooks, revision: link.revision.next(), ..link }
    }

    /// What is known without a look-up is what the store has, or nothing.
    fn assert_newest(tables: &EmbeddedTables, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let found = tables.links.get(&name(number)).unwrap();
            let known = &tables.engine.known_links;
            let told = listed(known, number);
            assert!(told.is_none() || told == found, "{told:?} instead of {found:?}");
            let found = found.map(|link| Destination::from(&link));
            let told = known.get(&name(number));
            assert!(told.is_none() || told == found, "{told:?} instead of {found:?}");
            assert!(!known.lacks(&name(number)));
        }
    }

    /// The rebuild reads rows of before and of after these changes.
    #[test]
    fn links_that_change_or_are_deleted_during_a_rebuild_are_known_as_they_are() {
        const LINKS: u64 = 3 * PAGE as u64;
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let (tables, gone) = EmbeddedTables::open(&store);
        create(&tables, 0..LINKS);
        drop(tables);
        let _ = gone.blocking_recv();
        let tables = open(&store);
        std::thread::scope(|scope| {
            scope.spawn(|| rebuild(&tables.engine));
            for first in 0..100 {
                let mut transaction = Transaction::begin(&tables.engine);
                // Each link several times, and from all parts of the table.
                for number in (first % 10..LINKS).step_by(1_000) {
                    let next = next(&tables, number);
                    tables.links.update(&mut transaction, &next).unwrap().unwrap();
                }
                transaction.commit().unwrap();
                assert_newest(&tables, (first % 10..LINKS).step_by(1_000));
            }
            let mut transaction = Transaction::begin(&tables.engine);
            for number in (10..LINKS).step_by(1_000) {
                let link = tables.links.get(&name(number)).unwrap().unwrap();
                tables.links.delete(&mut transaction, &link).unwrap().unwrap();
            }
            transaction.commit().unwrap();
            assert!((10..LINKS).step_by(1_000).all(|number| tables.engine.known_links.get(&name(number)).is_none()));
        });
        wait_until_complete(&tables.engine);
        assert_newest(&tables, (0..LINKS).filter(|number| number % 1_000 < 12));
    }

    #[test]
    fn changes_of_one_link_in_one_transaction_leave_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let tables = open(&directory.path().join("store"));
        rebuild(&tables.engine);
        create(&tables, 1..3);
        let mut transaction = Transaction::begin(&tables.engine);
        let second = next(&tables, 1);
        let third = Link { revision: second.revision.next(), ..second.clone() };
        for link in [&second, &third] {
            tables.links.update(&mut transaction, link).unwrap().unwrap();
        }
        let other = next(&tables, 2);
        tables.links.update(&mut transaction, &other).unwrap().unwrap();
        tables.links.delete(&mut transaction, &other).unwrap().unwrap();
        transaction.commit().unwrap();
        let known = &tables.engine.known_links;
        let is_read = reads_without_waiting(directory.path());
        assert_eq!(known.get(&name(1)), Some(Destination::from(&third)).filter(|_| is_read));
        assert!(known.get(&name(2)).is_none() && tables.links.get(&name(2)).unwrap().is_none());
    }

    #[test]
    fn a_store_opens_if_the_file_of_records_cannot_be_created() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        fs::create_dir(&files(&store)[0]).unwrap();
        let tables = open(&store);
        rebuild(&tables.engine);
        create(&tables, 1..2);
        let known = &tables.engine.known_links;
        assert!(!known.lacks(&name(1)) && known.get(&name(1)).is_none());
        assert_eq!(tables.links.get(&name(1)).unwrap(), Some(link(1)));
        save(&tables.engine).unwrap();
    }

    #[test]
    fn a_clean_end_saves_the_index_and_after_a_crash_it_is_rebuilt() {
        const LINKS: u64 = MIN_SAVED_IDS + 1;
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let close = |(tables, gone): (EmbeddedTables, Gone)| {
            drop(tables);
            // A rebuild ends with the page that it is reading.
            let _ = gone.blocking_recv();
        };
        let knows_all = |known: &KnownLinks| {
            finds_all(known, LINKS)
                && (0..LINKS).all(|number| !known.lacks(&name(number)))
                && (LINKS..LINKS + 100).any(|number| known.lacks(&name(number)))
        };

        let first = EmbeddedTables::open(&store);
        rebuild(&first.0.engine);
        create(&first.0, 0..LINKS);
        save(&first.0.engine).unwrap();
        close(first);

        // Complete before a row is read.
        let second = EmbeddedTables::open(&store);
        assert!(knows_all(&second.0.engine.known_links));
        // The file is stale now, and none is saved: as after a crash.
        close(second);

        let third = EmbeddedTables::open(&store);
        let known = &third.0.engine.known_links;
        assert!(!known.lacks(&name(LINKS)));
        assert_eq!(known.get(&name(1)), None);
        rebuild(&third.0.engine);
        wait_until_complete(&third.0.engine);
        assert!(knows_all(known));
        close(third);
    }
}

//! Adds the links of a store that an earlier release has written to the lists, some at a time, in the background. What
//! is done is kept with it, so that the next start goes on.

use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fjall::{Guard, Readable};

use super::database::engine_error;
use super::link_lists::ListedUpto;
use super::tables::EmbeddedTables;
use super::transaction::Transaction;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::telemetry::log_limit::LogLimit;
use crate::threads::in_background;

/// Rows that one step reads, or a few more: other writes wait for its end.
const STEP: usize = 100;
/// The shortest pause between two steps. They share the engine's lock with other writes, and it is not fair: without a
/// pause, the thread that has released it gets it again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// The pause after a step that failed.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// How many percent of the links are in the lists.
#[derive(Default)]
pub struct ListProgress(AtomicU8);

impl ListProgress {
    pub fn percent(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, upto: ListedUpto) {
        let percent = match upto {
            ListedUpto::Nothing => 0,
            ListedUpto::Link(id) => percent_before(id),
            ListedUpto::Complete => 100,
        };
        self.0.store(percent, Ordering::Relaxed);
    }
}

/// How many percent of ids that are evenly distributed are before this one, below 100.
fn percent_before(id: ShortId) -> u8 {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'A'..=b'Z' => u32::from(byte - b'A') + 10,
        _ => u32::from(byte.saturating_sub(b'a')) + 36,
    };
    let percent = (digit(id.0[0]) * 62 + digit(id.0[1])) * 100 / (62 * 62);
    u8::try_from(percent).unwrap_or(99).min(99)
}

/// Adds all links to the lists: the first step at once, the rest in the background.
pub fn fill(tables: &Arc<EmbeddedTables>) -> Arc<ListProgress> {
    let progress = Arc::<ListProgress>::default();
    let began = Instant::now();
    match step(tables, &progress) {
        Ok(ListedUpto::Complete) => return progress,
        Ok(_) => tracing::info!("store: links of an earlier release are being added to the lists"),
        Err(error) => log_failure(&error),
    }
    let (tables, of_steps) = (Arc::downgrade(tables), Arc::clone(&progress));
    // It ends at the latest when the store is closed.
    if let Err(error) = in_background("link-lists", move || run(&tables, &of_steps, began)) {
        tracing::error!(%error, "store: can't fill the lists: lists are unavailable until the next restart");
    }
    progress
}

fn run(tables: &Weak<EmbeddedTables>, progress: &ListProgress, began: Instant) {
    let mut logged = 0;
    while let Some(tables) = tables.upgrade() {
        let step_began = Instant::now();
        let done = step(&tables, progress);
        // Nobody waits during the pause for the store to be closed.
        drop(tables);
        match done {
            Ok(ListedUpto::Complete) => {
                let seconds = began.elapsed().as_secs_f32();
                tracing::info!(seconds, "store: all links are in the lists");
                return;
            }
            Ok(_) => {
                let percent = progress.percent();
                if percent / 10 > logged {
                    logged = percent / 10;
                    tracing::info!(percent, "store: links of an earlier release are being added to the lists");
                }
                // At least as long as other writes had to wait.
                sleep(step_began.elapsed().max(SHORTEST_PAUSE));
            }
            Err(error) => {
                log_failure(&error);
                sleep(RETRY_AFTER);
            }
        }
    }
}

/// At most one line a minute: it is tried again and again.
fn log_failure(error: &StoreError) {
    static LINES: LogLimit = LogLimit::new(Duration::from_mins(1));
    if LINES.admit().is_some() {
        tracing::error!(%error, "store: can't add links of an earlier release to the lists: retrying");
    }
}

/// Adds some links. What is added is also what changes: no other transaction runs meanwhile.
fn step(tables: &EmbeddedTables, progress: &ListProgress) -> Result<ListedUpto, StoreError> {
    let engine = &tables.engine;
    let lists = &tables.links.lists;
    let mut transaction = Transaction::begin(engine);
    let snapshot = engine.snapshots.take();
    let from = match lists.listed_upto(&snapshot)? {
        ListedUpto::Complete => {
            progress.set(ListedUpto::Complete);
            return Ok(ListedUpto::Complete);
        }
        ListedUpto::Nothing => Bound::Unbounded,
        ListedUpto::Link(id) => Bound::Excluded(id.0.to_vec()),
    };
    let (mut rows_read, mut last, mut upto) = (0, None, ListedUpto::Complete);
    for row in snapshot.range(&engine.keyspaces.links, (from, Bound::Unbounded)) {
        // At least one link: one of a step before may have more rows than a step.
        if let Some(id) = last.filter(|_| rows_read >= STEP) {
            upto = ListedUpto::Link(id);
            break;
        }
        let row_key = Guard::key(row).map_err(|e| engine_error(&e))?;
        rows_read += 1;
        // A longer key is that of an overflow row of a long link.
        let Ok(id) = row_key[..].try_into().map(ShortId) else { continue };
        last = Some(id);
        match tables.links.read(&snapshot, &id.0) {
            Ok(Some(link)) => lists.put(&mut transaction, &link)?,
            Ok(None) => {}
            // The other links are to be listed all the same.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(%error, %id, "store: can't read a link: it is missing from lists");
            }
            Err(error) => return Err(error),
        }
    }
    lists.set_listed_upto(&mut transaction, upto)?;
    transaction.commit()?;
    progress.set(upto);
    Ok(upto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::key::KeyId;
    use crate::domain::link::{BaseUrl, Link, LinkOptions, ListIndex, ListOrder, NewLink, TargetUrl};
    use crate::store::LinkListQuery;
    use crate::store::records::row_keys;

    #[test]
    fn the_progress_grows_with_the_id() {
        let ids = ["0000000", "09zzzzz", "A000000", "Zzzzzzz", "a000000", "zzzzzzz"];
        let percents = ids.map(|id| percent_before(ShortId::parse(id).unwrap()));
        assert_eq!(percents, [0, 0, 16, 58, 58, 99]);
    }

    fn link(n: usize) -> Link {
        let base = BaseUrl::new(url::Url::parse("https://sign.example").unwrap());
        let new = NewLink::to(TargetUrl::parse("https://example.com/", &base).unwrap());
        let id = ShortId::parse(&format!("{:07}", n * 7_919 % 1_000_000)).unwrap();
        let owner = KeyId(uuid::Uuid::from_u128(1 + n as u128 % 2));
        new.made(id, owner, Timestamp(u64::try_from(n % 100).unwrap()))
    }

    fn listed(tables: &EmbeddedTables, owner: Option<KeyId>) -> Result<usize, StoreError> {
        let query = LinkListQuery {
            owner,
            index: ListIndex::All,
            order: ListOrder::Newest,
            created_from: None,
            created_until: None,
            after: None,
            limit: 10_000,
        };
        tables.links.list(&tables.snapshot(), &query).map(|page| page.links.len())
    }

    /// As a release without lists leaves a store.
    fn forget_lists(tables: &EmbeddedTables) {
        let rows: Vec<_> = tables.engine.keyspaces.link_lists.iter().map(|row| row.key().unwrap()).collect();
        let mut transaction = Transaction::begin(&tables.engine);
        for row in rows {
            transaction.remove(&tables.engine.keyspaces.link_lists, row);
        }
        transaction.remove(&tables.engine.keyspaces.meta, row_keys::LISTED_UPTO);
        transaction.commit().unwrap();
    }

    fn store_of(directory: &tempfile::TempDir, links: usize) -> Arc<EmbeddedTables> {
        let tables = Arc::new(EmbeddedTables::open(&directory.path().join("store")).0);
        change(&tables, |transaction| {
            (0..links).for_each(|n| tables.links.insert(transaction, &link(n)).unwrap());
        });
        forget_lists(&tables);
        tables
    }

    fn change(tables: &EmbeddedTables, change: impl FnOnce(&mut Transaction<'_>)) {
        let mut transaction = Transaction::begin(&tables.engine);
        change(&mut transaction);
        transaction.commit().unwrap();
    }

    fn wait_until_complete(progress: &ListProgress) {
        let began = Instant::now();
        while progress.percent() < 100 {
            assert!(began.elapsed() < Duration::from_secs(30));
            // The steps have a lower priority than this thread.
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn links_of_an_earlier_release_are_added_step_by_step_while_links_change() {
        const LINKS: usize = 3 * STEP + 7;
        let directory = tempfile::tempdir().unwrap();
        let tables = store_of(&directory, LINKS);
        let progress = ListProgress::default();
        assert!(matches!(step(&tables, &progress), Ok(ListedUpto::Link(_))));
        assert!(matches!(listed(&tables, None), Err(StoreError::Unavailable(_))));
        assert!(progress.percent() < 100);
        // One that is in the lists, one that is not yet, and a new one.
        let first = (0..LINKS).map(link).min_by_key(|link| link.id).unwrap();
        let last = (0..LINKS).map(link).max_by_key(|link| link.id).unwrap();
        change(&tables, |transaction| {
            for gone in [&first, &last] {
                tables.links.delete(transaction, gone).unwrap().unwrap();
            }
            tables.links.insert(transaction, &link(LINKS)).unwrap();
        });

        // As after a restart.
        wait_until_complete(&fill(&tables));
        assert_eq!(listed(&tables, None).unwrap(), LINKS - 1);
        let owners = [1, 2].map(|n| listed(&tables, Some(KeyId(uuid::Uuid::from_u128(n)))).unwrap());
        assert_eq!(owners[0] + owners[1], LINKS - 1);
    }

    /// How many of these ids a fill has passed.
    fn reached(tables: &EmbeddedTables, ids: &[ShortId]) -> usize {
        match tables.links.lists.listed_upto(&tables.snapshot()).unwrap() {
            ListedUpto::Nothing => 0,
            ListedUpto::Link(upto) => ids.partition_point(|id| *id <= upto),
            ListedUpto::Complete => ids.len(),
        }
    }

    fn tagged(link: Link, tag: usize) -> Link {
        let options = LinkOptions { tags: vec![format!("tag {tag}")], ..LinkOptions::default() };
        Link { options, revision: link.revision.next(), ..link }
    }

    /// Creations, changes and deletions of links in all places, one after another, until a fill has ended. Returns how
    /// many links the fill has passed at the most while one of them waited.
    fn change_until_complete(tables: &EmbeddedTables, links: usize, progress: &ListProgress) -> usize {
        let mut ids: Vec<ShortId> = (0..links).map(|n| link(n).id).collect();
        ids.sort_unstable();
        let (mut most, mut numbers) = (0, 0..);
        while progress.percent() < 100 {
            let (n, before) = (numbers.next().unwrap(), reached(tables, &ids));
            change(tables, |transaction| {
                most = most.max(reached(tables, &ids) - before);
                let old = n * 17;
                match n % 3 {
                    0 => tables.links.insert(transaction, &link(links + n)).unwrap(),
                    _ if old >= links => {}
                    1 => tables.links.update(transaction, &tagged(link(old), n % 2)).unwrap().unwrap(),
                    _ => tables.links.delete(transaction, &link(old)).unwrap().unwrap(),
                }
            });
            sleep(SHORTEST_PAUSE);
        }
        most
    }

    #[test]
    fn other_writes_go_on_between_the_steps_and_the_lists_are_right_at_the_end() {
        const LINKS: usize = 40 * STEP;
        let directory = tempfile::tempdir().unwrap();
        let tables = store_of(&directory, LINKS);
        let progress = fill(&tables);
        let most = change_until_complete(&tables, LINKS, &progress);
        assert!(most <= 10 * STEP, "{most} links were passed while one transaction waited");

        let rows = |tables: &EmbeddedTables| -> Vec<_> {
            tables.engine.keyspaces.link_lists.iter().map(|row| row.key().unwrap().to_vec()).collect()
        };
        let filled = rows(&tables);
        forget_lists(&tables);
        // Nothing changes meanwhile.
        while step(&tables, &progress).unwrap() != ListedUpto::Complete {}
        assert!(filled == rows(&tables), "{} rows instead of {}", filled.len(), rows(&tables).len());
    }

    #[test]
    fn a_step_that_fails_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let tables = store_of(&directory, 3);
        let meta = &tables.engine.keyspaces.meta;
        change(&tables, |transaction| transaction.insert(meta, row_keys::LISTED_UPTO, [9]).unwrap());
        let progress = fill(&tables);
        assert!(matches!(listed(&tables, None), Err(StoreError::Corrupt { .. })));
        change(&tables, |transaction| transaction.remove(meta, row_keys::LISTED_UPTO));
        wait_until_complete(&progress);
        assert_eq!(listed(&tables, None).unwrap(), 3);
    }

    #[test]
    fn a_link_that_cannot_be_read_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let tables = store_of(&directory, 3);
        wait_until_complete(&fill(&tables));
        change(&tables, |transaction| {
            transaction.insert(&tables.engine.keyspaces.links, link(1).id.0, [200, 1, 2]).unwrap();
        });
        // Its record is whole.
        tables.engine.known_links.look_up(&link(1));
        assert_eq!(listed(&tables, None).unwrap(), 2);
    }
}

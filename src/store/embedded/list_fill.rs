//! Adds the links of a store that an earlier release has written to the lists, some at a time, in the background. What is
//! done is kept with it, so that the next start goes on.

use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use fjall::{Guard, Readable};

use super::database::engine_error;
use super::link_lists::ListedUpto;
use super::tables::EmbeddedTables;
use super::transaction::Transaction;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::threads::{in_background, yield_periodically};

/// Rows in one step: other writes wait for its end.
const STEP: usize = 500;

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

/// Adds all links to the lists: the first step at once, the rest in the background. After a failure there are no lists
/// until the next start.
pub fn fill(tables: &Arc<EmbeddedTables>) -> Arc<ListProgress> {
    let progress = Arc::<ListProgress>::default();
    let began = Instant::now();
    match step(tables, &progress) {
        Ok(ListedUpto::Complete) => {}
        Ok(_) => {
            tracing::info!("store: links of an earlier release are being added to the lists");
            let (tables, progress) = (Arc::downgrade(tables), Arc::clone(&progress));
            // It ends at the latest when the store is closed.
            if let Err(error) = in_background("link-lists", move || run(&tables, &progress, began)) {
                log_failure(&error);
            }
        }
        Err(error) => log_failure(&error),
    }
    progress
}

fn run(tables: &Weak<EmbeddedTables>, progress: &ListProgress, began: Instant) {
    let mut logged = 0;
    while let Some(tables) = tables.upgrade() {
        match step(&tables, progress) {
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
            }
            Err(error) => return log_failure(&error),
        }
    }
}

fn log_failure(error: &dyn std::fmt::Display) {
    tracing::error!(%error, "store: links of an earlier release can't be added to the lists until the next restart");
}

/// Adds some links. What is added is also what changes: no other transaction runs meanwhile.
fn step(tables: &EmbeddedTables, progress: &ListProgress) -> Result<ListedUpto, StoreError> {
    let engine = &tables.engine;
    let lists = &tables.links.lists;
    let mut transaction = Transaction::begin(engine);
    let snapshot = engine.database.snapshot();
    let from = match lists.listed_upto(&snapshot)? {
        ListedUpto::Complete => {
            progress.set(ListedUpto::Complete);
            return Ok(ListedUpto::Complete);
        }
        ListedUpto::Nothing => Bound::Unbounded,
        ListedUpto::Link(id) => Bound::Excluded(id.0.to_vec()),
    };
    let (mut rows_read, mut last) = (0, None);
    for row in snapshot.range(&engine.keyspaces.links, (from, Bound::Unbounded)).take(STEP) {
        yield_periodically();
        let row_key = Guard::key(row).map_err(|e| engine_error(&e))?;
        rows_read += 1;
        // A longer key is that of an overflow row of a long link.
        let Ok(id) = row_key[..].try_into().map(ShortId) else { continue };
        last = Some(id);
        match tables.links.read(&snapshot, &id.0) {
            Ok(Some(link)) => lists.put(&mut transaction, &link)?,
            Ok(None) => {}
            // The other links are to be listed all the same.
            Err(error) => tracing::error!(%error, %id, "store: a link can't be read, and is in no list"),
        }
    }
    let upto = match last {
        Some(id) if rows_read == STEP => ListedUpto::Link(id),
        // As many overflow rows belong to no link.
        _ => ListedUpto::Complete,
    };
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
    use crate::domain::link::{BaseUrl, Link, ListIndex, ListOrder, NewLink, TargetUrl};
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
        rows.into_iter().for_each(|row| transaction.remove(&tables.engine.keyspaces.link_lists, row));
        transaction.remove(&tables.engine.keyspaces.meta, row_keys::LISTED_UPTO);
        transaction.commit().unwrap();
    }

    #[test]
    fn links_of_an_earlier_release_are_added_step_by_step_while_links_change() {
        const LINKS: usize = 3 * STEP + 7;
        let directory = tempfile::tempdir().unwrap();
        let tables = Arc::new(EmbeddedTables::open(&directory.path().join("store")).0);
        let mut transaction = Transaction::begin(&tables.engine);
        (0..LINKS).for_each(|n| tables.links.insert(&mut transaction, &link(n)).unwrap());
        transaction.commit().unwrap();
        forget_lists(&tables);

        let progress = ListProgress::default();
        assert!(matches!(step(&tables, &progress), Ok(ListedUpto::Link(_))));
        assert!(matches!(listed(&tables, None), Err(StoreError::Unavailable(_))));
        assert!(progress.percent() < 100);
        // One that is in the lists, one that is not yet, and a new one.
        let mut transaction = Transaction::begin(&tables.engine);
        let first = (0..LINKS).map(link).min_by_key(|link| link.id).unwrap();
        let last = (0..LINKS).map(link).max_by_key(|link| link.id).unwrap();
        for gone in [&first, &last] {
            tables.links.delete(&mut transaction, gone).unwrap().unwrap();
        }
        tables.links.insert(&mut transaction, &link(LINKS)).unwrap();
        transaction.commit().unwrap();

        // As after a restart.
        let progress = fill(&tables);
        let began = Instant::now();
        while progress.percent() < 100 {
            assert!(began.elapsed() < std::time::Duration::from_secs(30));
            // The steps have a lower priority than this thread.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(listed(&tables, None).unwrap(), LINKS - 1);
        let owners = [1, 2].map(|n| listed(&tables, Some(KeyId(uuid::Uuid::from_u128(n)))).unwrap());
        assert_eq!(owners[0] + owners[1], LINKS - 1);
    }
}

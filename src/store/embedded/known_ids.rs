//! Which short ids may be there, in memory: a request for one that is not is answered at once, without a look at the disk.
//!
//! Bloom filters of all links' ids: what they don't know is not there; what they know may be. Twelve bits an id keep one
//! filter right for more than 99 of 100 unknown ids, and the others only cost the look-up that all would cost without it.
//! Links are never deleted.
//!
//! They are written beside the store at a clean end and read at the next start. After a crash, or where there have come to be
//! more than two of them, whose errors add up, one is made from the links, in the background; until it has all of them it
//! claims nothing.

mod filter;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fjall::{PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace};
use ring::rand::{SecureRandom, SystemRandom};

use self::filter::Filter;
use super::engine::{Engine, engine_error};
use super::transaction::Transaction;
use crate::domain::link::ShortId;
use crate::store::StoreError;
use crate::threads::in_background;

/// Ids that the first filter has room for, at the least: 1.5 MiB.
const FEWEST: u64 = 1 << 20;
/// Each filter has twice the room of the one before it: more than there are ids.
const FILTERS: usize = 24;
/// With more, one that is made anew is better.
const MOST_KEPT: usize = 2;
/// Rows looked at at once: the engine may be closed in between.
const PAGE: usize = 10_000;
/// Fewer are read anew in no time.
const WORTH_KEEPING: u64 = 100_000;
/// Where the store says which file is its own.
const STAMP_KEY: &[u8] = b"i";
const MAGIC: [u8; 8] = *b"SP-IDS\x00\x01";

/// Tells that a file was written by the last clean end of this very store.
type Stamp = [u8; 16];

/// The ids of all links.
pub struct KnownIds {
    path: PathBuf,
    /// Nobody who chooses ids knows it.
    seed: u64,
    /// New ids go to the last one that is there.
    filters: [OnceLock<Filter>; FILTERS],
    is_complete: AtomicBool,
}

impl KnownIds {
    /// Of the store in this directory. Claims nothing yet.
    ///
    /// # Errors
    /// When the system gives no randomness.
    fn new(directory: &Path, room: u64) -> Result<Self, StoreError> {
        let filters = [const { OnceLock::new() }; FILTERS];
        let _ = filters[0].set(Filter::new(room));
        let seed = u64::from_le_bytes(random()?);
        Ok(Self { path: path(directory), seed, filters, is_complete: AtomicBool::new(false) })
    }

    /// Whether there is certainly no link with this id.
    pub fn lacks(&self, id: ShortId) -> bool {
        // Whoever was told of an id was told by the thread that has inserted it.
        self.is_complete.load(Ordering::Acquire) && {
            let hash = self.hash(id);
            !self.filters().any(|filter| filter.may_have(hash))
        }
    }

    /// Is to be told of an id before its link is committed.
    pub fn insert(&self, id: ShortId) {
        let mut filters = self.filters.iter().skip_while(|filter| filter.get().is_some_and(Filter::is_full));
        // All are full never: there are not so many ids.
        let Some(slot) = filters.next() else { return };
        let filter = slot.get_or_init(|| Filter::new(2 * self.filters().last().map_or(FEWEST, Filter::room)));
        filter.insert(self.hash(id));
    }

    fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filters.iter().map_while(OnceLock::get)
    }

    fn len(&self) -> u64 {
        self.filters().map(Filter::len).sum()
    }

    fn hash(&self, id: ShortId) -> u64 {
        let mut bytes = [0; 8];
        bytes[..id.0.len()].copy_from_slice(&id.0);
        // The end of splitmix64: every bit of it depends on every bit of the id and the seed.
        let mut hash = u64::from_le_bytes(bytes) ^ self.seed;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    /// Writes the file. What comes later is not in it.
    fn write(&self, stamp: Stamp) -> io::Result<()> {
        let new = self.path.with_extension("ids.new");
        let mut out = Summed { inner: BufWriter::new(File::create(&new)?), sum: crc32fast::Hasher::new() };
        out.write_all(&MAGIC)?;
        out.write_all(&stamp)?;
        out.write_all(&self.seed.to_le_bytes())?;
        self.filters().try_for_each(|filter| filter.write(&mut out))?;
        let Summed { mut inner, sum } = out;
        inner.write_all(&sum.finalize().to_le_bytes())?;
        inner.into_inner()?.sync_all()?;
        fs::rename(new, &self.path)
    }

    /// What the file says, if it is whole and has this stamp, and is worth going on with.
    fn read(directory: &Path, stamp: &[u8]) -> Option<Self> {
        let path = path(directory);
        let bytes = fs::read(&path).ok()?;
        let (content, sum) = bytes.split_last_chunk()?;
        let mut rest = content.strip_prefix(&MAGIC)?.strip_prefix(stamp)?;
        if stamp.len() != size_of::<Stamp>() || crc32fast::hash(content) != u32::from_le_bytes(*sum) {
            return None;
        }
        let seed = rest.split_off(..8).and_then(|seed| seed.try_into().ok()).map(u64::from_le_bytes)?;
        let filters = [const { OnceLock::new() }; FILTERS];
        let mut slots = filters.iter().take(MOST_KEPT);
        while !rest.is_empty() {
            let _ = slots.next()?.set(Filter::read(&mut rest)?);
        }
        filters[0].get()?;
        Some(Self { path, seed, filters, is_complete: AtomicBool::new(true) })
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.with_extension("ids")
}

fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| StoreError::Unavailable("the system gave no randomness".into()))?;
    Ok(bytes)
}

/// Sums up what is written through it.
struct Summed<W> {
    inner: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// What is known of the ids of this store, before anything is written to it.
pub fn open(
    database: &SingleWriterTxDatabase,
    meta: &SingleWriterTxKeyspace,
    links: &SingleWriterTxKeyspace,
    directory: &Path,
) -> Result<KnownIds, StoreError> {
    if let Some(stamp) = meta.get(STAMP_KEY).map_err(|e| engine_error(&e))? {
        // From now on there may be ids that the file does not have.
        let mut transaction = database.write_tx().durability(Some(PersistMode::SyncData));
        transaction.remove(meta, STAMP_KEY);
        transaction.commit().map_err(|e| engine_error(&e))?;
        if let Some(known) = KnownIds::read(directory, &stamp) {
            return Ok(known);
        }
        tracing::info!("store: the file of known ids is of no use; they are read anew");
    }
    // With a quarter more than there seem to be.
    let links = links.approximate_len() as u64;
    KnownIds::new(directory, FEWEST.max(links + links / 4))
}

/// Makes the ids known of the links that are there: of a few at once, of many in the background. Where that fails, ids are
/// looked up.
pub fn complete(engine: &Arc<Engine>) {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "store: unknown ids are looked up on disk until the next start");
    };
    if engine.known_ids.is_complete.load(Ordering::Relaxed) {
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
                    let (ids, seconds) = (engine.known_ids.len(), began.elapsed().as_secs_f32());
                    return tracing::info!(ids, seconds, "store: the ids of all links are known again");
                }
                Err(error) => return failed(&error),
            }
        }
    };
    // It ends by itself, at the latest when the engine is closed.
    if let Err(error) = in_background("known-ids", rest) {
        failed(&error);
    }
}

/// Makes a page's ids known; answers the last one, or nothing where these were the last.
fn read_page(engine: &Engine, after: Option<ShortId>) -> Result<Option<ShortId>, StoreError> {
    let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.0));
    let rows = engine.database.read_tx().range(&engine.links, (from, Bound::Unbounded));
    let (mut rows_read, mut last) = (0, None);
    for row in rows.take(PAGE) {
        let key = row.key().map_err(|e| engine_error(&e))?;
        rows_read += 1;
        // Longer keys are of further rows of a link that is long.
        if let Ok(id) = key[..].try_into().map(ShortId) {
            engine.known_ids.insert(id);
            last = Some(id);
        }
    }
    if rows_read == PAGE && last.is_some() {
        return Ok(last);
    }
    engine.known_ids.is_complete.store(true, Ordering::Release);
    Ok(None)
}

/// Writes the file that the next start reads, where that is worth it. Nothing may be written to the store after that.
pub fn keep(engine: &Engine) -> Result<(), StoreError> {
    let known = &engine.known_ids;
    if known.len() < WORTH_KEEPING || !known.is_complete.load(Ordering::Acquire) {
        return Ok(());
    }
    let stamp: Stamp = random()?;
    known.write(stamp).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let mut transaction = Transaction::begin(engine);
    transaction.insert(&engine.meta, STAMP_KEY, stamp)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::super::engine::Gone;
    use super::super::links;
    use super::*;

    fn id(number: u64) -> ShortId {
        ShortId::parse(&format!("{number:07}")).unwrap()
    }

    fn known(directory: &Path, room: u64, ids: u64) -> KnownIds {
        let known = KnownIds::new(directory, room).unwrap();
        (0..ids).for_each(|number| known.insert(id(number)));
        known.is_complete.store(true, Ordering::Release);
        known
    }

    #[test]
    fn what_is_known_is_never_lacking_and_of_what_is_not_nearly_all_is() {
        let directory = tempfile::tempdir().unwrap();
        // With room for all, and in filters that follow each other.
        for room in [100_000, 20_000] {
            let known = known(directory.path(), room, 100_000);
            assert!((0..100_000).all(|number| !known.lacks(id(number))));
            let wrong = (100_000..200_000).filter(|number| !known.lacks(id(*number))).count();
            assert!(wrong < 1_500, "{wrong} of 100,000");
        }
    }

    #[test]
    fn nothing_is_claimed_before_all_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownIds::new(directory.path(), 10).unwrap();
        assert!(!known.lacks(id(1)));
        known.is_complete.store(true, Ordering::Release);
        assert!(known.lacks(id(1)));
    }

    #[test]
    fn a_file_is_read_back_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let stamp = [7; 16];
        let written = known(&store, 2_000, 5_000);
        written.write(stamp).unwrap();
        let read = KnownIds::read(&store, &stamp).unwrap();
        assert!((0..100_000).all(|number| written.lacks(id(number)) == read.lacks(id(number))));
        read.insert(id(70_000));
        assert!(!read.lacks(id(70_000)));

        assert!(KnownIds::read(&store, &[8; 16]).is_none());
        known(&store, 1_000, 5_000).write([9; 16]).unwrap();
        assert!(KnownIds::read(&store, &[9; 16]).is_none(), "three filters");
        written.write(stamp).unwrap();
        let path = path(&store);
        let bytes = fs::read(&path).unwrap();
        for at in [0, 9, 30, 40, 1_000, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(KnownIds::read(&store, &stamp).is_none(), "{at}");
        }
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(KnownIds::read(&store, &stamp).is_none());
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
        let knows_all = |known: &KnownIds| {
            (0..LINKS).all(|number| !known.lacks(id(number)))
                && (LINKS..LINKS + 100).any(|number| known.lacks(id(number)))
        };

        let (engine, gone) = open();
        complete(&engine);
        let mut transaction = Transaction::begin(&engine);
        for number in 0..LINKS {
            links::insert(&engine, &mut transaction, id(number), b"a link").unwrap();
        }
        transaction.commit().unwrap();
        keep(&engine).unwrap();
        close(engine, gone);

        // Known before a row is read.
        let (engine, gone) = open();
        assert!(knows_all(&engine.known_ids));
        // The file is of no use any more, and nothing is kept: as after a crash.
        close(engine, gone);

        let (engine, gone) = open();
        assert!(!engine.known_ids.lacks(id(LINKS)));
        complete(&engine);
        let began = Instant::now();
        while !engine.known_ids.is_complete.load(Ordering::Acquire) {
            assert!(began.elapsed() < std::time::Duration::from_secs(30));
            std::thread::yield_now();
        }
        assert!(knows_all(&engine.known_ids));
        close(engine, gone);
    }
}

//! The ids of all links, and what redirects need of them, available without waiting. Neither a request for an unknown
//! id nor a redirect to a link that is in memory needs a look-up in the engine, or another thread.
//!
//! An index in memory has all names, and for each the position of the link's record in a file ([`records`]). A name that
//! is not in the index does not exist. The kernel decides which parts of the file are in memory: a record in memory is
//! read at once, and any other link is looked up.
//!
//! Records never change. A change of a link takes away the position of its record before the commit, so that the link is
//! looked up from then on, and sets that of a new record after the commit, before the change is answered. So nobody
//! reads an old record after a new one. A deleted link stays in the index, without a record. Kept names, and ids of
//! links that have another name, are in the index too: so a name that is not in it is free.
//!
//! The index is written beside the store at a clean end and read at the next start. After a crash, or when the index
//! has more than two parts, or when most records were replaced, index and records are rebuilt from the links in the
//! background (`link_index.rs`). Until the index is complete, no name is reported as absent.

mod index;
mod index_file;
mod records;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use fjall::{Database, Keyspace};
use ring::rand::{SecureRandom, SystemRandom};

use self::index::{Index, LOOK_UP};
use self::records::DestinationFile;
use super::database::{durable_batch, engine_error};
use crate::domain::link::{Destination, LinkName};
use crate::store::StoreError;
use crate::store::records::{destinations, row_keys};

/// The smallest capacity of the first index, in ids: 10 MiB, most of whose pages take no memory while ids are few.
const MIN_CAPACITY: u64 = 1 << 20;
/// Each index has twice the capacity of the one before: together more than there are ids.
const INDICES: usize = 24;
/// An index with more parts is rebuilt at the next start instead of being saved.
const MAX_SAVED_INDICES: usize = 2;
/// An index with fewer ids is not saved: rebuilding it takes negligible time. Unit tests, whose writes are slow, have fewer.
pub const MIN_SAVED_IDS: u64 = if cfg!(test) { 5_000 } else { 100_000 };

/// Marks a file as written by the last clean end of this store.
pub type Stamp = [u8; 16];

/// All links.
pub struct KnownLinks {
    path: PathBuf,
    /// Secret: clients who choose ids cannot make their hashes collide.
    seed: u64,
    /// New ids go to the last one that is set.
    indices: [OnceLock<Index>; INDICES],
    /// Held while a name is inserted, so that no name is ever in two indices.
    insertion: Mutex<()>,
    is_complete: AtomicBool,
    records: DestinationFile,
    counts: RecordCounts,
}

/// How many records the file has.
#[derive(Default)]
struct RecordCounts {
    written: AtomicU64,
    /// Those that no name has any more.
    replaced: AtomicU64,
}

/// A link as it is after a commit, whose record is appended once the commit is durable.
pub struct NewDestination {
    pub name: LinkName,
    record: Vec<u8>,
}

impl KnownLinks {
    /// The links that the files of the last clean end have, or none yet. Must be called before anything is written to
    /// the store.
    pub fn open(database: &Database, meta: &Keyspace, links: &Keyspace, directory: &Path) -> Result<Self, StoreError> {
        let stamp = meta.get(row_keys::KNOWN_LINKS_STAMP).map_err(|e| engine_error(&e))?;
        let saved = match &stamp {
            Some(stamp) => {
                // From now on there may be links that the files do not have.
                let mut batch = durable_batch(database, 1);
                batch.remove(meta, row_keys::KNOWN_LINKS_STAMP);
                batch.commit().map_err(|e| engine_error(&e))?;
                let discarded = |error: &_| tracing::info!(%error, "store: discarded the stale index of links");
                Self::read(directory, stamp).inspect_err(discarded).ok()
            }
            None => None,
        };
        // They are or will be out of date. If this fails, they only use disk space: without its stamp a file is not
        // read again.
        for file in [path(directory), index_file::unfinished(&path(directory))] {
            let _ = fs::remove_file(file);
        }
        // A quarter more than the estimated number of links.
        let links = links.approximate_len() as u64;
        saved.map_or_else(|| Self::new(directory, MIN_CAPACITY.max(links + links / 4)), Ok)
    }

    /// An empty index for the store in this directory.
    ///
    /// # Errors
    /// When the operating system's random generator fails.
    fn new(directory: &Path, capacity: u64) -> Result<Self, StoreError> {
        let indices = [const { OnceLock::new() }; INDICES];
        let _ = indices[0].set(Index::new(capacity));
        let seed = u64::from_le_bytes(random()?);
        let records = DestinationFile::create(&records_path(directory), random()?);
        Ok(Self {
            path: path(directory),
            seed,
            indices,
            insertion: Mutex::default(),
            is_complete: AtomicBool::new(false),
            records,
            counts: RecordCounts::default(),
        })
    }

    /// Whether there is certainly no link with this name, and never was one.
    pub fn lacks(&self, name: &LinkName) -> bool {
        // A caller that knows of a new id got it from the thread that inserted it, so it sees the insertion.
        self.is_complete() && self.position(name).is_none()
    }

    /// What a redirect needs of a link, if it is in memory.
    pub fn get(&self, name: &LinkName) -> Option<Destination> {
        let position = self.position(name).filter(|position| *position > LOOK_UP)?;
        self.records.read(name, position)
    }

    /// Adds a name; to be called before its link is committed. Returns what to pass to [`place`](Self::place) after the
    /// commit, unless the link is too long for a record.
    pub fn insert(&self, link: &Destination) -> Option<NewDestination> {
        self.insert_name(&link.name);
        destinations::encode(link).map(|record| NewDestination { name: link.name, record })
    }

    /// From now on, the link of this name is looked up, until a record of it is placed. To be called before a change of
    /// the link is committed.
    pub fn look_up(&self, name: &LinkName) {
        self.insert_name(name);
        self.set_position(name, LOOK_UP);
    }

    /// Adds the records of links that are committed, one of each link. Only the thread that commits calls this, before
    /// its next commit.
    pub fn place(&self, links: &[NewDestination]) {
        self.append(links, |name, position| self.set_position(name, position));
    }

    /// Adds the records of links that were read from the store, except where a commit was faster.
    pub fn place_stored(&self, links: &[NewDestination]) {
        self.append(links, |name, position| {
            let hash = self.hash(name);
            if !self.indices().any(|index| index.place_first(hash, position)) {
                self.counts.replaced.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Appends records, and calls `place` with the position of each. If that fails, the links are looked up.
    fn append(&self, links: &[NewDestination], place: impl Fn(&LinkName, u64)) {
        if links.is_empty() {
            return;
        }
        let records: Vec<u8> = links.iter().flat_map(|link| &link.record).copied().collect();
        let Some(mut position) = self.records.append(&records) else { return };
        self.counts.written.fetch_add(links.len() as u64, Ordering::Relaxed);
        for link in links {
            place(&link.name, position);
            position += link.record.len() as u64;
        }
    }

    fn set_position(&self, name: &LinkName, position: u64) {
        let hash = self.hash(name);
        let before = self.indices().find_map(|index| index.place(hash, position));
        if before.is_some_and(|before| before > LOOK_UP) {
            self.counts.replaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a link that was read from the store. `destination` is `None` for a link that is too long for a record. Returns
    /// what to pass to [`place_stored`](Self::place_stored).
    pub fn insert_stored(&self, name: &LinkName, destination: Option<&Destination>) -> Option<NewDestination> {
        match destination {
            // A link that was created or changed meanwhile has its record already, or gets it with its commit.
            Some(link) if self.position(name).is_none() => self.insert(link),
            Some(_) => None,
            None => {
                self.insert_name(name);
                None
            }
        }
    }

    /// Whether all links are in the index.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// All links are in the index from now on.
    pub fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Syncs the records, so that a clean end has less to sync.
    pub fn sync_records(&self) -> io::Result<()> {
        self.records.sync()
    }

    /// Writes the index's file for the next start if that is faster than a rebuild. Returns its stamp: once the store
    /// has it, no link may be created any more.
    pub fn save(&self) -> Result<Option<Stamp>, StoreError> {
        let is_whole = self.is_complete() && self.records.are_whole() && !self.counts.is_mostly_garbage();
        if self.len() < MIN_SAVED_IDS || self.indices().count() > MAX_SAVED_INDICES || !is_whole {
            return Ok(None);
        }
        let stamp: Stamp = random()?;
        self.write(stamp).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Some(stamp))
    }

    /// Adds a name without a record.
    pub fn insert_name(&self, name: &LinkName) {
        let hash = self.hash(name);
        // It guards no data, so a panic cannot leave anything half done.
        let _alone = self.insertion.lock().unwrap_or_else(PoisonError::into_inner);
        if self.indices().any(|index| index.find(hash).is_some()) {
            return;
        }
        let mut indices = self.indices.iter().skip_while(|index| index.get().is_some_and(Index::is_full));
        // They are never all full: there are fewer ids.
        let Some(slot) = indices.next() else { return };
        let index = slot.get_or_init(|| Index::new(2 * self.indices().last().map_or(MIN_CAPACITY, Index::capacity)));
        index.insert(hash);
    }

    /// The position of an id's record, 0 if it has none yet; `None` for an unknown id.
    fn position(&self, name: &LinkName) -> Option<u64> {
        let hash = self.hash(name);
        self.indices().find_map(|index| index.find(hash))
    }

    fn indices(&self) -> impl Iterator<Item = &Index> {
        self.indices.iter().map_while(OnceLock::get)
    }

    pub fn len(&self) -> u64 {
        self.indices().map(Index::len).sum()
    }

    fn hash(&self, name: &LinkName) -> u64 {
        name.words().fold(self.seed, |hash, word| mixed(hash ^ word))
    }
}

impl RecordCounts {
    /// Whether more than half of the records were replaced.
    fn is_mostly_garbage(&self) -> bool {
        let [written, replaced] = [&self.written, &self.replaced].map(|count| count.load(Ordering::Relaxed));
        replaced > written / 2
    }
}

/// The final steps of splitmix64: every bit of the result depends on every bit of `hash`.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The files beside the store's directory.
pub fn files(directory: &Path) -> [PathBuf; 2] {
    [records_path(directory), path(directory)]
}

fn path(directory: &Path) -> PathBuf {
    directory.with_extension("ids")
}

fn records_path(directory: &Path) -> PathBuf {
    directory.with_extension("links")
}

fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| StoreError::Unavailable("the operating system's random generator failed".into()))?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    pub(crate) use super::records::reads_without_waiting;
    use super::*;
    use crate::domain::key::KeyId;
    use crate::domain::link::{FiredWebhooks, LinkTimes, RedirectStatus, Revision, ShortId};

    pub(crate) fn id(number: u64) -> ShortId {
        ShortId::parse(&format!("{number:07}")).unwrap()
    }

    pub(crate) fn name(number: u64) -> LinkName {
        id(number).into()
    }

    pub(crate) fn destination(number: u64) -> Destination {
        let owner = KeyId(uuid::Uuid::from_u128(7));
        let target = format!("https://example.com/{number}");
        Destination {
            id: id(number),
            name: name(number),
            owner,
            revision: Revision::FIRST,
            tracked: number.is_multiple_of(2),
            webhooks: FiredWebhooks::first(1),
            target,
            times: LinkTimes::default(),
            fallback: None,
            status: RedirectStatus::default(),
            cache_seconds: 0,
            is_blocked: false,
            has_preview: true,
            skips_bots: false,
        }
    }

    pub(crate) fn known(directory: &Path, capacity: u64, links: u64) -> KnownLinks {
        let known = KnownLinks::new(directory, capacity).unwrap();
        let new: Vec<NewDestination> = (0..links).filter_map(|number| known.insert(&destination(number))).collect();
        known.place(&new);
        known.set_complete();
        known
    }

    /// Whether the first links are found with their records: all but the few whose tags collide by chance.
    pub(crate) fn finds_all(known: &KnownLinks, links: u64) -> bool {
        const BY_CHANCE: usize = 10;
        let is_missing = |number: &u64| {
            let found = known.get(&name(*number));
            assert!(found.as_ref().is_none_or(|found| *found == destination(*number)), "{found:?}");
            found.is_none()
        };
        let mut missing: Vec<u64> = (0..links).filter(is_missing).collect();
        if !reads_without_waiting(known.path.parent().unwrap()) {
            return true;
        }
        // The kernel reads pages that it dropped from memory once they are requested.
        let began = Instant::now();
        while missing.len() >= BY_CHANCE && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
            missing.retain(is_missing);
        }
        missing.len() < BY_CHANCE
    }

    #[test]
    fn known_ids_are_never_lacking_and_unknown_ids_are() {
        let directory = tempfile::tempdir().unwrap();
        // In one index, and in several.
        for capacity in [100_000, 20_000] {
            let known = known(directory.path(), capacity, 100_000);
            assert!(finds_all(&known, 100_000));
            assert!((0..100_000).all(|number| !known.lacks(&name(number))));
            // By chance there is one, rarely two.
            let wrong = (100_000..200_000).filter(|number| !known.lacks(&name(*number))).count();
            assert!(wrong < 5, "{wrong} of 100,000");
            assert!((100_000..200_000).all(|number| known.get(&name(number)).is_none()));
        }
    }

    #[test]
    fn a_changed_link_is_looked_up_until_its_new_record_is_placed() {
        let directory = tempfile::tempdir().unwrap();
        let known = known(directory.path(), 100, 2);
        let is_read = reads_without_waiting(directory.path());
        let [first, other] = [destination(1), destination(0)];
        assert_eq!(known.get(&first.name), Some(first.clone()).filter(|_| is_read));
        known.look_up(&first.name);
        assert!(known.get(&first.name).is_none() && !known.lacks(&first.name));
        // What was read from the store meanwhile is older.
        let read = destinations::encode(&first).map(|record| NewDestination { name: first.name, record });
        known.place_stored(&[read.unwrap()]);
        assert_eq!(known.get(&first.name), None);
        assert!(known.insert_stored(&first.name, Some(&first)).is_none());
        let second = Destination { revision: Revision(2), target: "https://example.com/other".into(), ..first };
        known.place(&[known.insert(&second).unwrap()]);
        assert_eq!(known.get(&second.name), Some(second).filter(|_| is_read));
        assert_eq!(known.get(&other.name), Some(other).filter(|_| is_read));
    }

    #[test]
    fn an_index_of_which_most_records_were_replaced_is_not_saved() {
        let directory = tempfile::tempdir().unwrap();
        let known = known(directory.path(), MIN_SAVED_IDS, MIN_SAVED_IDS);
        let changed = |number| Destination { revision: Revision(2), ..destination(number) };
        let change = |numbers: std::ops::Range<u64>| {
            let new: Vec<_> = numbers.filter_map(|number| known.insert(&changed(number))).collect();
            for link in &new {
                known.look_up(&link.name);
            }
            known.place(&new);
        };
        change(0..MIN_SAVED_IDS - 100);
        let stamp = known.save().unwrap().unwrap();
        // Counted over a start.
        let read = KnownLinks::read(directory.path(), &stamp).unwrap();
        assert!(!read.counts.is_mostly_garbage());
        change(0..MIN_SAVED_IDS);
        assert!(known.save().unwrap().is_none());
        known.write([1; 16]).unwrap();
        assert!(KnownLinks::read(directory.path(), &[1; 16]).unwrap().counts.is_mostly_garbage());
    }

    #[test]
    fn no_id_is_lacking_before_the_index_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownLinks::new(directory.path(), 10).unwrap();
        assert!(!known.lacks(&name(1)));
        known.set_complete();
        assert!(known.lacks(&name(1)));
    }
}

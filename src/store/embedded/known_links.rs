//! The ids of all links, and what redirects need of them, available without waiting. Neither a request for an unknown
//! id nor a redirect to a link that is in memory needs a look-up in the engine, or another thread. Lists read their links
//! here, too: a look-up in the engine takes several times as long.
//!
//! An index in memory has all names and ids, and for each the position of the link's record in a file ([`records`]). A name
//! that is not in the index does not exist. The kernel decides which parts of the file are in memory: for a redirect, a record
//! in memory is read at once, and any other link is looked up.
//!
//! Records never change. A change of a link takes away the position of its record before the commit, so that the link is
//! looked up from then on, and sets that of a new record after the commit, before the change is answered. So nobody
//! reads an old record after a new one. A deleted link stays in the index, without a record. Kept names are in the index
//! too: so a name that is not in it is free.
//!
//! The index is written beside the store at a clean end and read at the next start. After a crash, or when the index
//! has more than two parts, or when most records were replaced, index and records are rebuilt from the links in the
//! background (`link_index.rs`). Until the index is complete, no name is reported as absent.

mod index;
mod index_file;
mod names;
mod records;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::{Database, Keyspace};
use ring::rand::{SecureRandom, SystemRandom};

use self::index::LOOK_UP;
use self::names::NameIndex;
use self::records::RecordFile;
use super::database::{durable_batch, engine_error};
use crate::domain::link::{Destination, Link, LinkName, ShortId};
use crate::store::StoreError;
use crate::store::records::{link_details, row_keys};

/// The smallest capacity of the first index, in ids: 10 MiB, most of whose pages take no memory while ids are few.
const MIN_CAPACITY: u64 = 1 << 20;
/// An index with more parts is rebuilt at the next start instead of being saved.
const MAX_SAVED_PARTS: usize = 2;
/// An index with fewer ids is not saved: rebuilding it takes negligible time. Unit tests, whose writes are slow, have fewer.
pub const MIN_SAVED_IDS: u64 = if cfg!(test) { 5_000 } else { 100_000 };

/// Marks a file as written by the last clean end of this store.
pub type Stamp = [u8; 16];

/// All links.
pub struct KnownLinks {
    path: PathBuf,
    names: NameIndex,
    is_complete: AtomicBool,
    records: RecordFile,
    counts: RecordCounts,
}

/// How many records the file has.
#[derive(Default)]
struct RecordCounts {
    written: AtomicU64,
    /// Those that no link has any more.
    replaced: AtomicU64,
}

/// The record of a link as it is after a commit, appended once the commit is durable.
pub struct NewRecord {
    pub names: LinkNames,
    bytes: Vec<u8>,
}

/// The names of a link in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkNames {
    pub id: ShortId,
    name: LinkName,
}

impl LinkNames {
    fn of(link: &Link) -> Self {
        Self { id: link.id, name: link.name() }
    }

    /// Its name, and its id if that is another. Lists find the record by the id, and no link is ever generated with it.
    fn all(&self) -> impl Iterator<Item = LinkName> {
        let id = Some(LinkName::from(self.id)).filter(|id| *id != self.name);
        std::iter::once(self.name).chain(id)
    }
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
        let names = NameIndex::new(u64::from_le_bytes(random()?), capacity);
        let records = RecordFile::create(&records_path(directory), random()?);
        Ok(Self {
            path: path(directory),
            names,
            is_complete: AtomicBool::new(false),
            records,
            counts: RecordCounts::default(),
        })
    }

    /// Whether there is certainly no link with this name, and never was one.
    pub fn lacks(&self, name: &LinkName) -> bool {
        // A caller that knows of a new id got it from the thread that inserted it, so it sees the insertion.
        self.is_complete() && self.names.position(name).is_none()
    }

    /// What a redirect needs of a link, if it is in memory.
    pub fn get(&self, name: &LinkName) -> Option<Destination> {
        self.records.destination(name, self.record_of(name)?)
    }

    /// The link with this name, if it has a record. Waits for the disk.
    pub fn link(&self, name: &LinkName) -> Option<Link> {
        self.records.link(name, self.record_of(name)?)
    }

    /// The position of the record of a link, if it has one.
    fn record_of(&self, name: &LinkName) -> Option<u64> {
        self.names.position(name).filter(|position| *position > LOOK_UP)
    }

    /// The links with these ids, where they have a record. Waits for the disk.
    pub fn links(&self, ids: &[ShortId]) -> Vec<Option<Link>> {
        let positions = self.names.positions(ids).map(|position| position.filter(|position| *position > LOOK_UP));
        let wanted: Vec<_> = ids.iter().copied().zip(positions).collect();
        self.records.links(&wanted)
    }

    /// Adds the names of a link; to be called before it is committed. Returns what to pass to [`place`](Self::place) after
    /// the commit, unless the link is too long for a record.
    pub fn insert(&self, link: &Link) -> Option<NewRecord> {
        let names = self.insert_names(link);
        link_details::encode(link).map(|bytes| NewRecord { names, bytes })
    }

    /// From now on, this link is looked up, until a record of it is placed. To be called before a change of it is committed.
    pub fn look_up(&self, link: &Link) {
        let names = self.insert_names(link);
        self.set_position(&names, LOOK_UP);
    }

    fn insert_names(&self, link: &Link) -> LinkNames {
        let names = LinkNames::of(link);
        for name in names.all() {
            self.names.insert(&name);
        }
        names
    }

    /// Adds the records of links that are committed, one of each link. Only the thread that commits calls this, before
    /// its next commit.
    pub fn place(&self, records: &[NewRecord]) {
        self.append(records, |names, position| self.set_position(names, position));
    }

    /// Adds the records of links that were read from the store, except where a commit was faster.
    pub fn place_stored(&self, records: &[NewRecord]) {
        self.append(records, |names, position| {
            if names.all().filter(|name| self.names.place_first(name, position)).count() == 0 {
                self.counts.replaced.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Appends records, and calls `place` with the position of each. If that fails, the links are looked up.
    fn append(&self, records: &[NewRecord], place: impl Fn(&LinkNames, u64)) {
        if records.is_empty() {
            return;
        }
        let bytes: Vec<u8> = records.iter().flat_map(|record| &record.bytes).copied().collect();
        let Some(mut position) = self.records.append(&bytes) else { return };
        self.counts.written.fetch_add(records.len() as u64, Ordering::Relaxed);
        for record in records {
            place(&record.names, position);
            position += record.bytes.len() as u64;
        }
    }

    fn set_position(&self, names: &LinkNames, position: u64) {
        let had_record = |name: &LinkName| self.names.place(name, position).is_some_and(|before| before > LOOK_UP);
        if names.all().filter(had_record).count() > 0 {
            self.counts.replaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a link that was read from the store. Returns what to pass to [`place_stored`](Self::place_stored).
    pub fn insert_stored(&self, link: &Link) -> Option<NewRecord> {
        if self.names.position(&link.name()).is_none() {
            return self.insert(link);
        }
        // It was created or changed meanwhile, and has its record already or gets it with its commit.
        self.insert_names(link);
        None
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
        if self.len() < MIN_SAVED_IDS || self.names.parts().count() > MAX_SAVED_PARTS || !is_whole {
            return Ok(None);
        }
        let stamp: Stamp = random()?;
        self.write(stamp).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Some(stamp))
    }

    /// Adds a name without a record.
    pub fn insert_name(&self, name: &LinkName) {
        self.names.insert(name);
    }

    pub fn len(&self) -> u64 {
        self.names.len()
    }
}

impl RecordCounts {
    /// Whether more than half of the records were replaced.
    fn is_mostly_garbage(&self) -> bool {
        let [written, replaced] = [&self.written, &self.replaced].map(|count| count.load(Ordering::Relaxed));
        replaced > written / 2
    }
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
    use crate::domain::calendar::Timestamp;
    use crate::domain::key::KeyId;
    use crate::domain::link::{NewLink, Revision, TargetUrl};

    pub(crate) fn id(number: u64) -> ShortId {
        ShortId::parse(&format!("{number:07}")).unwrap()
    }

    pub(crate) fn name(number: u64) -> LinkName {
        id(number).into()
    }

    pub(crate) fn link(number: u64) -> Link {
        let target = TargetUrl::parse_stored(&format!("https://example.com/{number}")).unwrap();
        let webhooks = vec!["https://example.com/hook".to_owned()].into();
        let new = NewLink { webhooks, tracked: number.is_multiple_of(2), ..NewLink::to(target) };
        new.made(id(number), KeyId(uuid::Uuid::from_u128(7)), Timestamp(number))
    }

    pub(crate) fn destination(number: u64) -> Destination {
        Destination::from(&link(number))
    }

    pub(crate) fn known(directory: &Path, capacity: u64, links: u64) -> KnownLinks {
        let known = KnownLinks::new(directory, capacity).unwrap();
        let new: Vec<NewRecord> = (0..links).filter_map(|number| known.insert(&link(number))).collect();
        known.place(&new);
        known.set_complete();
        known
    }

    /// The link as lists read it.
    pub(crate) fn listed(known: &KnownLinks, number: u64) -> Option<Link> {
        known.links(&[id(number)]).remove(0)
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
        let [first, other] = [link(1), link(0)];
        assert_eq!(known.get(&name(1)), Some(destination(1)).filter(|_| is_read));
        assert_eq!(listed(&known, 1), Some(first.clone()));
        known.look_up(&first);
        assert!(known.get(&name(1)).is_none() && listed(&known, 1).is_none() && !known.lacks(&name(1)));
        // What was read from the store meanwhile is older.
        let read = link_details::encode(&first).map(|bytes| NewRecord { names: LinkNames::of(&first), bytes });
        known.place_stored(&[read.unwrap()]);
        assert!(known.get(&name(1)).is_none() && listed(&known, 1).is_none());
        assert!(known.insert_stored(&first).is_none());
        let second = Link { revision: Revision(2), tracked: !first.tracked, ..first };
        known.place(&[known.insert(&second).unwrap()]);
        assert_eq!(known.get(&name(1)), Some(Destination::from(&second)).filter(|_| is_read));
        assert_eq!(known.links(&[id(1), id(2), id(0)]), [Some(second), None, Some(other)]);
    }

    #[test]
    fn a_link_with_a_slug_is_found_by_its_name_for_redirects_and_by_its_id_for_lists() {
        let directory = tempfile::tempdir().unwrap();
        let known = known(directory.path(), 100, 0);
        let is_read = reads_without_waiting(directory.path());
        let ways: [fn(&KnownLinks, &[NewRecord]); 2] = [KnownLinks::place, KnownLinks::place_stored];
        for (number, place) in (1..).zip(ways) {
            let slug = LinkName::parse(&format!("summer-{number}")).unwrap();
            let named = Link { slug: Some(slug), ..link(number) };
            place(&known, &[known.insert_stored(&named).unwrap()]);
            assert_eq!(known.get(&slug), Some(Destination::from(&named)).filter(|_| is_read));
            assert!(known.get(&name(number)).is_none() && !known.lacks(&name(number)));
            assert_eq!(listed(&known, number), Some(named.clone()));
            assert_eq!(known.counts.replaced.load(Ordering::Relaxed), 0);
            known.look_up(&named);
            assert!(known.get(&slug).is_none() && listed(&known, number).is_none());
            assert_eq!(known.counts.replaced.swap(0, Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn an_index_of_which_most_records_were_replaced_is_not_saved() {
        let directory = tempfile::tempdir().unwrap();
        let known = known(directory.path(), MIN_SAVED_IDS, MIN_SAVED_IDS);
        let changed = |number| Link { revision: Revision(2), ..link(number) };
        let change = |numbers: std::ops::Range<u64>| {
            let links: Vec<_> = numbers.map(changed).collect();
            let new: Vec<_> = links.iter().filter_map(|link| known.insert(link)).collect();
            for link in &links {
                known.look_up(link);
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

//! Which links there are, and what redirects need of them, told without waiting: neither a request for an id that is not there
//! nor a redirect to a link that memory has takes a look-up in the engine, or another thread.
//!
//! An index in memory knows all ids, and where in a file ([`records`]) each link's record is. What it does not know is not
//! there. The file is the kernel's to keep in memory or not: a record that is there is read at once, and any other link is
//! looked up. Links never change and are never deleted, so neither does a record.
//!
//! The index is written beside the store at a clean end and read at the next start. After a crash, or where it has come to be
//! in more than two pieces, both are made anew from the links, in the background; until it has all of them it claims of no id
//! that it is not there.

mod index;
mod kept;
mod life;
mod records;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::rand::{SecureRandom, SystemRandom};

use self::index::Index;
pub use self::life::{complete, keep, open};
use self::records::Records;
use crate::domain::link::{Destination, ShortId};
use crate::store::StoreError;
use crate::store::records::destinations;

/// Ids that the first index has room for, at the least: 10 MiB, most of whose pages take no memory while ids are few.
const FEWEST: u64 = 1 << 20;
/// Each index has twice the room of the one before it: more than there are ids.
const INDICES: usize = 24;
/// With more, one that is made anew is better.
const MOST_KEPT: usize = 2;

/// Tells that a file was written by the last clean end of this very store.
type Stamp = [u8; 16];

/// All links.
pub struct KnownLinks {
    path: PathBuf,
    /// Nobody who chooses ids knows it.
    seed: u64,
    /// New ids go to the last one that is there.
    indices: [OnceLock<Index>; INDICES],
    is_complete: AtomicBool,
    records: Records,
}

/// A link that was written, to be known by its record once that is durable.
pub struct NewDestination {
    id: ShortId,
    record: Vec<u8>,
}

impl KnownLinks {
    /// Of the store in this directory. Claims nothing yet.
    ///
    /// # Errors
    /// When the system gives no randomness.
    fn new(directory: &Path, room: u64) -> Result<Self, StoreError> {
        let indices = [const { OnceLock::new() }; INDICES];
        let _ = indices[0].set(Index::new(room));
        let seed = u64::from_le_bytes(random()?);
        let records = Records::create(&records_path(directory), random()?);
        Ok(Self { path: path(directory), seed, indices, is_complete: AtomicBool::new(false), records })
    }

    /// Whether there is certainly no link with this id.
    pub fn lacks(&self, id: ShortId) -> bool {
        // Whoever was told of an id was told by the thread that has inserted it.
        self.is_complete.load(Ordering::Acquire) && self.position(id).is_none()
    }

    /// What a redirect needs of a link, if that is in memory.
    pub fn get(&self, id: ShortId) -> Option<Destination> {
        let position = self.position(id).filter(|position| *position > 0)?;
        self.records.read(id, position)
    }

    /// Is to be told of an id before its link is committed. Answers what [`place`](Self::place) is to be told after that,
    /// where the link is not too long.
    pub fn insert(&self, link: &Destination) -> Option<NewDestination> {
        self.insert_id(link.id);
        destinations::encode(link).map(|record| NewDestination { id: link.id, record })
    }

    /// Is to be told of links that are committed.
    pub fn place(&self, links: &[NewDestination]) {
        if links.is_empty() {
            return;
        }
        let records: Vec<u8> = links.iter().flat_map(|link| &link.record).copied().collect();
        let Some(mut position) = self.records.append(&records) else { return };
        for link in links {
            let hash = self.hash(link.id);
            self.indices().for_each(|index| index.place(hash, position));
            position += link.record.len() as u64;
        }
    }

    fn insert_id(&self, id: ShortId) {
        let hash = self.hash(id);
        if self.indices().any(|index| index.find(hash).is_some()) {
            return;
        }
        let mut indices = self.indices.iter().skip_while(|index| index.get().is_some_and(Index::is_full));
        // All are full never: there are not so many ids.
        let Some(slot) = indices.next() else { return };
        let index = slot.get_or_init(|| Index::new(2 * self.indices().last().map_or(FEWEST, Index::room)));
        index.insert(hash);
    }

    /// Where the record of an id is, 0 where that is not known; `None` where the id is not.
    fn position(&self, id: ShortId) -> Option<u64> {
        let hash = self.hash(id);
        self.indices().find_map(|index| index.find(hash))
    }

    fn indices(&self) -> impl Iterator<Item = &Index> {
        self.indices.iter().map_while(OnceLock::get)
    }

    fn len(&self) -> u64 {
        self.indices().map(Index::len).sum()
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
}

/// The files that are kept beside the store.
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
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::domain::key::KeyId;

    pub(super) fn id(number: u64) -> ShortId {
        ShortId::parse(&format!("{number:07}")).unwrap()
    }

    pub(super) fn destination(number: u64) -> Destination {
        let owner = KeyId(uuid::Uuid::from_u128(7));
        let target = format!("https://example.com/{number}");
        Destination { id: id(number), owner, tracked: number.is_multiple_of(2), webhooks: 1, target }
    }

    pub(super) fn known(directory: &Path, room: u64, links: u64) -> KnownLinks {
        let known = KnownLinks::new(directory, room).unwrap();
        let new: Vec<NewDestination> = (0..links).filter_map(|number| known.insert(&destination(number))).collect();
        known.place(&new);
        known.is_complete.store(true, Ordering::Release);
        known
    }

    /// Whether the first so many links are told, and rightly: all but those few that chance has given another's place.
    pub(super) fn tells_all(known: &KnownLinks, links: u64) -> bool {
        const BY_CHANCE: usize = 10;
        let is_untold = |number: &u64| {
            let told = known.get(id(*number));
            assert!(told.as_ref().is_none_or(|told| *told == destination(*number)), "{told:?}");
            told.is_none()
        };
        let mut untold: Vec<u64> = (0..links).filter(is_untold).collect();
        if !records::are_told_in(known.path.parent().unwrap()) {
            return true;
        }
        // What the kernel has dropped from memory it reads once it is asked for it.
        let began = Instant::now();
        while untold.len() >= BY_CHANCE && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
            untold.retain(is_untold);
        }
        untold.len() < BY_CHANCE
    }

    #[test]
    fn what_is_known_is_never_lacking_and_what_is_not_is() {
        let directory = tempfile::tempdir().unwrap();
        // With room for all, and in indices that follow each other.
        for room in [100_000, 20_000] {
            let known = known(directory.path(), room, 100_000);
            assert!(tells_all(&known, 100_000));
            assert!((0..100_000).all(|number| !known.lacks(id(number))));
            // By chance there is one, seldom two.
            let wrong = (100_000..200_000).filter(|number| !known.lacks(id(*number))).count();
            assert!(wrong < 5, "{wrong} of 100,000");
            assert!((100_000..200_000).all(|number| known.get(id(number)).is_none()));
        }
    }

    #[test]
    fn nothing_is_claimed_before_all_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownLinks::new(directory.path(), 10).unwrap();
        assert!(!known.lacks(id(1)));
        known.is_complete.store(true, Ordering::Release);
        assert!(known.lacks(id(1)));
    }
}

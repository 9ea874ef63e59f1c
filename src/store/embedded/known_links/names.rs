//! All names, by their hashes, in an index whose parts are added as names become more.

use std::sync::{Mutex, OnceLock};

use super::index::Index;
use crate::domain::link::{LinkName, ShortId};
use crate::locks::lock;

/// Each part has twice the capacity of the one before: together more than there are ids.
const PARTS: usize = 24;

/// From each name to the position of its link's record.
pub struct NameIndex {
    /// Secret: clients who choose ids cannot make their hashes collide.
    seed: u64,
    /// New names go to the last one that is set.
    parts: [OnceLock<Index>; PARTS],
    /// Held while a name is inserted, so that no name is ever in two parts.
    insertion: Mutex<()>,
}

impl NameIndex {
    pub fn new(seed: u64, capacity: u64) -> Self {
        Self::of_parts(seed, [Index::new(capacity)])
    }

    /// The first parts, of which there is at least one.
    pub fn of_parts(seed: u64, first: impl IntoIterator<Item = Index>) -> Self {
        let mut parts = [const { OnceLock::new() }; PARTS];
        for (slot, part) in parts.iter_mut().zip(first) {
            *slot = OnceLock::from(part);
        }
        Self { seed, parts, insertion: Mutex::default() }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Index> {
        let set = self.parts.iter().position(|part| part.get().is_none()).unwrap_or(PARTS);
        self.parts[..set].iter().filter_map(OnceLock::get)
    }

    pub fn len(&self) -> u64 {
        self.parts().map(Index::len).sum()
    }

    /// The position of a name's record, 0 if it has none yet; `None` for an unknown name.
    pub fn position(&self, name: &LinkName) -> Option<u64> {
        self.position_of(self.hash(name))
    }

    /// The same of each id.
    pub fn positions(&self, ids: &[ShortId]) -> impl Iterator<Item = Option<u64>> {
        let hashes: Vec<u64> = ids.iter().map(|id| self.hash(&(*id).into())).collect();
        for hash in &hashes {
            self.parts().for_each(|part| part.prefetch(*hash));
        }
        hashes.into_iter().map(|hash| self.position_of(hash))
    }

    fn position_of(&self, hash: u64) -> Option<u64> {
        // The last one has more names than each of the others.
        self.parts().rev().find_map(|part| part.find(hash))
    }

    /// Adds a name, unless it is there.
    pub fn insert(&self, name: &LinkName) {
        let hash = self.hash(name);
        // It guards no data, so a panic cannot leave anything half done.
        let _alone = lock(&self.insertion);
        if self.position_of(hash).is_some() {
            return;
        }
        let mut parts = self.parts.iter().skip_while(|part| part.get().is_some_and(Index::is_full));
        // They are never all full: there are fewer ids.
        let Some(slot) = parts.next() else { return };
        let capacity = || self.parts().map(Index::capacity).next_back().unwrap_or_default();
        slot.get_or_init(|| Index::new(2 * capacity())).insert(hash);
    }

    /// Sets the position of a name's record, as [`Index::place`].
    pub fn place(&self, name: &LinkName, position: u64) -> Option<u64> {
        let hash = self.hash(name);
        self.parts().rev().find_map(|part| part.place(hash, position))
    }

    /// Sets the position of a name's record unless one was set before, as [`Index::place_first`].
    pub fn place_first(&self, name: &LinkName, position: u64) -> bool {
        let hash = self.hash(name);
        self.parts().rev().any(|part| part.place_first(hash, position))
    }

    fn hash(&self, name: &LinkName) -> u64 {
        name.words().fold(self.seed, |hash, word| mixed(hash ^ word))
    }
}

/// The final steps of splitmix64: every bit of the result depends on every bit of `hash`.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

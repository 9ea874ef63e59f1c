//! Which names have changed lately, for the caches that have to forget them.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;

use super::freshness::Freshness;
use crate::domain::link::LinkName;

/// How many changes are remembered. A worker that has missed more forgets everything.
const REMEMBERED: usize = 1_024;

/// How long a link is watched after a change on another node: longer than that change may take there.
const WATCHED_FOR: Duration = Duration::from_secs(15);

/// The changes of this process: a number that grows with each, and the names of the last ones.
///
/// A worker compares the number with the one that it has seen, which is one load of memory that is seldom written.
pub struct Changes {
    hasher: RandomState,
    generation: AtomicU64,
    /// By generation: the hash of the name that changed.
    ring: Box<[AtomicU64]>,
    /// Held while a change is announced.
    announcing: Mutex<()>,
    /// Changes under way and watched links together: while there are none, no lock is taken.
    unsettled: AtomicUsize,
    names: Mutex<Unsettled>,
}

#[derive(Default)]
struct Unsettled {
    /// Changes under way on this node.
    under_way: HashMap<LinkName, usize>,
    /// Links that another node has changed or is about to change.
    watched: HashMap<LinkName, Watch>,
}

struct Watch {
    until: u64,
    /// The highest revision that was loaded since.
    newest: u32,
}

/// What the state of its name allows for a link that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It may be kept until it changes.
    Settled,
    /// It may be kept for a moment, because another node is about to change it.
    Briefly,
    /// It may be used and not be kept, because this node is changing it.
    No,
    /// It is older than what was loaded before: it has to be loaded again.
    Outdated,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            generation: AtomicU64::new(0),
            ring: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            announcing: Mutex::default(),
            unsettled: AtomicUsize::new(0),
            names: Mutex::default(),
        }
    }
}

impl Changes {
    /// Names have the same hash in all caches of this process, and clients can't choose names with the same hash.
    pub fn hash(&self, name: &LinkName) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The number of changes so far. What is looked up after this call is at least as new as this number.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Announces that what was looked up for this name before is out of date.
    pub fn announce(&self, name: &LinkName) {
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.generation.load(Ordering::Relaxed);
        self.ring[place_of(generation)].store(self.hash(name), Ordering::Release);
        self.generation.store(generation + 1, Ordering::Release);
    }

    /// Announces that everything that was looked up before may be out of date.
    pub fn announce_all(&self) {
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(REMEMBERED as u64 + 1, Ordering::Release);
    }

    /// Calls `forget` with the hash of each name that changed since `seen`. Returns the generation then, or `None` if more
    /// have changed than are remembered.
    pub fn since(&self, seen: u64, mut forget: impl FnMut(u64)) -> Option<u64> {
        let now = self.generation();
        if now - seen >= REMEMBERED as u64 {
            return None;
        }
        for generation in seen..now {
            forget(self.ring[place_of(generation)].load(Ordering::Acquire));
        }
        // Those that were read may have been overwritten meanwhile.
        (self.generation() - seen < REMEMBERED as u64).then_some(now)
    }

    /// A change on this node begins: nothing that is loaded for the name is kept until it ends.
    pub fn begin(&self, name: LinkName) {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
        *self.names().under_way.entry(name).or_default() += 1;
    }

    pub fn end(&self, name: &LinkName) {
        let mut names = self.names();
        if let Some(count) = names.under_way.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                names.under_way.remove(name);
            }
        }
        drop(names);
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
    }

    /// Another node changes this link now or soon.
    pub fn watch(&self, name: LinkName, clock: &Freshness) {
        let now = clock.now();
        let until = now + u64::try_from(WATCHED_FOR.as_millis()).unwrap_or(u64::MAX);
        let mut names = self.names();
        let before = names.watched.len();
        names.watched.retain(|_, watch| watch.until > now);
        names.watched.entry(name).or_insert(Watch { until, newest: 0 }).until = until;
        let after = names.watched.len();
        // A count that is too high for a moment costs a lock, one that is too low would keep an old link.
        self.unsettled.fetch_add(after, Ordering::SeqCst);
        self.unsettled.fetch_sub(before, Ordering::SeqCst);
    }

    /// Whether nothing changes now, neither here nor elsewhere as far as this node knows.
    pub fn are_settled(&self) -> bool {
        self.unsettled.load(Ordering::SeqCst) == 0
    }

    /// Whether this link does not change now or soon.
    pub fn is_settled(&self, name: &LinkName) -> bool {
        if self.are_settled() {
            return true;
        }
        let names = self.names();
        !names.under_way.contains_key(name) && !names.watched.contains_key(name)
    }

    /// Whether a link that was loaded may be kept; `revision` is `None` if there is no link.
    pub fn keep(&self, name: &LinkName, revision: Option<u32>, clock: &Freshness) -> Keep {
        if self.are_settled() {
            return Keep::Settled;
        }
        let mut names = self.names();
        let is_changing = names.under_way.contains_key(name);
        let Some(watch) = names.watched.get_mut(name) else {
            return if is_changing { Keep::No } else { Keep::Settled };
        };
        if clock.now() >= watch.until {
            return if is_changing { Keep::No } else { Keep::Settled };
        }
        match revision {
            Some(revision) if revision < watch.newest => Keep::Outdated,
            revision => {
                watch.newest = revision.unwrap_or(watch.newest);
                if is_changing { Keep::No } else { Keep::Briefly }
            }
        }
    }

    fn names(&self) -> MutexGuard<'_, Unsettled> {
        // Nothing panics while this lock is held.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place_of(generation: u64) -> usize {
    // A remainder of REMEMBERED.
    usize::try_from(generation % REMEMBERED as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn name(text: &str) -> LinkName {
        LinkName::parse(text).unwrap()
    }

    fn forgotten(changes: &Changes, seen: u64) -> Option<(u64, Vec<u64>)> {
        let mut hashes = Vec::new();
        let now = changes.since(seen, |hash| hashes.push(hash))?;
        Some((now, hashes))
    }

    #[test]
    fn each_change_is_told_once_and_too_many_at_once_are_told_as_everything() {
        let changes = Changes::default();
        assert_eq!(forgotten(&changes, 0), Some((0, Vec::new())));
        let names = ["a", "b", "c"].map(name);
        names.iter().for_each(|name| changes.announce(name));
        let hashes = names.map(|name| changes.hash(&name));
        assert_eq!(forgotten(&changes, 0), Some((3, hashes.to_vec())));
        assert_eq!(forgotten(&changes, 2), Some((3, hashes[2..].to_vec())));
        for _ in 0..1_020 {
            changes.announce(&names[0]);
        }
        assert_eq!(forgotten(&changes, 0).unwrap().1.len(), 1_023);
        changes.announce(&names[0]);
        assert_eq!(forgotten(&changes, 0), None);
        let seen = changes.generation();
        changes.announce_all();
        assert_eq!(forgotten(&changes, seen), None);
    }

    #[test]
    fn a_link_under_change_is_not_kept_and_others_are() {
        let (changes, clock) = (Changes::default(), Freshness::default());
        let [a, b] = ["a", "b"].map(name);
        changes.begin(a);
        changes.begin(a);
        assert_eq!(changes.keep(&a, Some(1), &clock), Keep::No);
        assert_eq!(changes.keep(&b, Some(1), &clock), Keep::Settled);
        changes.end(&a);
        assert_eq!(changes.keep(&a, None, &clock), Keep::No);
        changes.end(&a);
        assert!(changes.are_settled() && changes.keep(&a, Some(1), &clock) == Keep::Settled);
    }

    #[test]
    fn a_watched_link_is_kept_briefly_and_never_goes_back_to_an_earlier_revision() {
        let time = Arc::new(AtomicU64::new(1_000));
        let clock = Freshness::Moved(Arc::clone(&time));
        let changes = Changes::default();
        let [a, b] = ["a", "b"].map(name);
        changes.watch(a, &clock);
        assert_eq!(changes.keep(&a, Some(3), &clock), Keep::Briefly);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Outdated);
        assert_eq!(changes.keep(&a, None, &clock), Keep::Briefly);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Outdated);
        assert_eq!(changes.keep(&b, Some(1), &clock), Keep::Settled);
        time.store(16_000, Ordering::SeqCst);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Settled);
        // The next one that is watched takes its place.
        changes.watch(b, &clock);
        assert_eq!(changes.names().watched.len(), 1);
        assert_eq!(changes.unsettled.load(Ordering::SeqCst), 1);
    }
}

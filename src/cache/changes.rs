//! Which names have changed lately, for the caches that have to forget them.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use foldhash::quality::RandomState;

use super::clock::CacheClock;
use crate::domain::link::LinkName;
use crate::locks::lock;

/// How many changes are remembered. A worker that has missed more forgets everything.
const REMEMBERED: usize = 1_024;

/// Names are divided into this many groups. What was looked up of a group before a change in it is out of date.
const GROUPS: usize = 4_096;

/// How long a link is watched after a change on another node: longer than that change may take there.
const WATCHED_FOR: Duration = Duration::from_secs(15);

/// How often links are looked for that need not be watched any longer, in milliseconds.
const SWEEP_EVERY: u64 = 1_000;

/// The changes of this process: a number that grows with each, and the names of the last ones.
///
/// A worker compares the number with the one that it has seen, which is one load of memory that is seldom written.
pub struct Changes {
    hasher: RandomState,
    generation: AtomicU64,
    /// By generation: the hash of the name that changed.
    ring: Box<[AtomicU64]>,
    /// By group: the generation of its last change.
    last: Box<[AtomicU64]>,
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
    /// When watches that are over are removed next.
    sweep_at: u64,
}

struct Watch {
    until: u64,
    /// The highest revision that was loaded.
    newest: u32,
}

/// When a look-up began.
#[derive(Clone, Copy, Debug)]
pub struct LookUpStamp {
    group: usize,
    generation: u64,
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
            last: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
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

    /// The stamp of a look-up that begins now.
    pub fn stamp(&self, name: &LinkName) -> LookUpStamp {
        self.stamp_at(name, self.generation())
    }

    /// The stamp of a look-up that began at that generation.
    pub fn stamp_at(&self, name: &LinkName, generation: u64) -> LookUpStamp {
        LookUpStamp { group: group_of(self.hash(name)), generation }
    }

    /// Whether no name of the group has changed since the look-up began.
    ///
    /// Whoever keeps the result of a look-up keeps its stamp too, and asks before each use. So a result that is inserted
    /// after the change that it has missed is never used, however late.
    pub fn is_current(&self, stamp: LookUpStamp) -> bool {
        self.last[stamp.group].load(Ordering::Acquire) <= stamp.generation
    }

    /// Announces that what was looked up for this name before is out of date.
    pub fn announce(&self, name: &LinkName) {
        let _announcing = lock(&self.announcing);
        let (generation, hash) = (self.generation.load(Ordering::Relaxed), self.hash(name));
        self.ring[place_of(generation)].store(hash, Ordering::Release);
        self.last[group_of(hash)].store(generation + 1, Ordering::Release);
        // Stored last: a thread that sees this generation also sees the two stores above.
        self.generation.store(generation + 1, Ordering::Release);
    }

    /// Announces that everything that was looked up before may be out of date.
    pub fn announce_all(&self) {
        let _announcing = lock(&self.announcing);
        let generation = self.generation.load(Ordering::Relaxed) + REMEMBERED as u64 + 1;
        for last in &self.last {
            last.store(generation, Ordering::Release);
        }
        self.generation.store(generation, Ordering::Release);
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

    /// Another node changes this link now or soon. `newest`: the highest revision that this node has had of it.
    pub fn watch(&self, name: LinkName, newest: u32, clock: &CacheClock) {
        let now = clock.now();
        let until = now + u64::try_from(WATCHED_FOR.as_millis()).unwrap_or(u64::MAX);
        let mut names = self.names();
        self.sweep(&mut names, now);
        let before = names.watched.len();
        let watch = names.watched.entry(name).or_insert(Watch { until, newest });
        (watch.until, watch.newest) = (until, watch.newest.max(newest));
        self.unsettled.fetch_add(names.watched.len() - before, Ordering::SeqCst);
    }

    /// Removes the watches that are over.
    fn sweep(&self, names: &mut Unsettled, now: u64) {
        if now < names.sweep_at {
            return;
        }
        names.sweep_at = now + SWEEP_EVERY;
        let before = names.watched.len();
        names.watched.retain(|_, watch| watch.until > now);
        self.unsettled.fetch_sub(before - names.watched.len(), Ordering::SeqCst);
    }

    /// Whether nothing changes now, neither here nor elsewhere as far as this node knows.
    pub fn are_settled(&self) -> bool {
        self.unsettled.load(Ordering::SeqCst) == 0
    }

    /// Whether this link does not change now or soon.
    pub fn is_settled(&self, name: &LinkName, clock: &CacheClock) -> bool {
        if self.are_settled() {
            return true;
        }
        let now = clock.now();
        let mut names = self.names();
        self.sweep(&mut names, now);
        let is_watched = names.watched.get(name).is_some_and(|watch| now < watch.until);
        !is_watched && !names.under_way.contains_key(name)
    }

    /// Whether a link that was loaded may be kept; `revision` is `None` if there is no link.
    pub fn keep(&self, name: &LinkName, revision: Option<u32>, clock: &CacheClock) -> Keep {
        if self.are_settled() {
            return Keep::Settled;
        }
        let now = clock.now();
        let mut names = self.names();
        self.sweep(&mut names, now);
        let is_changing = names.under_way.contains_key(name);
        let Some(watch) = names.watched.get_mut(name).filter(|watch| now < watch.until) else {
            return if is_changing { Keep::No } else { Keep::Settled };
        };
        if revision.is_some_and(|revision| revision < watch.newest) {
            return Keep::Outdated;
        }
        watch.newest = revision.unwrap_or(watch.newest);
        if is_changing { Keep::No } else { Keep::Briefly }
    }

    fn names(&self) -> MutexGuard<'_, Unsettled> {
        lock(&self.names)
    }
}

fn place_of(generation: u64) -> usize {
    // A remainder of REMEMBERED.
    usize::try_from(generation % REMEMBERED as u64).unwrap_or(0)
}

fn group_of(hash: u64) -> usize {
    // A remainder of GROUPS. The slots of workers are taken from the other end of the hash.
    usize::try_from(hash % GROUPS as u64).unwrap_or(0)
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
        for name in &names {
            changes.announce(name);
        }
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
    fn what_was_looked_up_before_a_change_is_not_current_after_it() {
        let changes = Changes::default();
        let [a, b] = ["a", "b"].map(name);
        let before = [a, b].map(|name| changes.stamp(&name));
        assert!(before.iter().all(|stamp| changes.is_current(*stamp)));
        changes.announce(&a);
        assert!(!changes.is_current(before[0]) && changes.is_current(changes.stamp(&a)));
        assert_eq!(changes.is_current(before[1]), before[0].group != before[1].group);
        let after = [a, b].map(|name| changes.stamp(&name));
        changes.announce_all();
        assert!(after.iter().all(|stamp| !changes.is_current(*stamp)));
        assert!(changes.is_current(changes.stamp(&a)));
    }

    #[test]
    fn a_link_under_change_is_not_kept_and_others_are() {
        let (changes, clock) = (Changes::default(), CacheClock::default());
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
        let clock = CacheClock::Test(Arc::clone(&time));
        let changes = Changes::default();
        let [a, b] = ["a", "b"].map(name);
        changes.watch(a, 2, &clock);
        assert_eq!(changes.keep(&a, Some(1), &clock), Keep::Outdated);
        assert_eq!(changes.keep(&a, Some(3), &clock), Keep::Briefly);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Outdated);
        assert_eq!(changes.keep(&a, None, &clock), Keep::Briefly);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Outdated);
        assert_eq!(changes.keep(&b, Some(1), &clock), Keep::Settled);
        time.store(15_000, Ordering::SeqCst);
        changes.watch(b, 0, &clock);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Outdated);
        time.store(16_000, Ordering::SeqCst);
        assert_eq!(changes.keep(&a, Some(2), &clock), Keep::Settled);
        assert!(changes.is_settled(&a, &clock) && !changes.is_settled(&b, &clock));
        time.store(30_000, Ordering::SeqCst);
        assert_eq!(changes.keep(&b, None, &clock), Keep::Settled);
        assert!(changes.are_settled());
    }
}

//! The worker cache: the links that one worker has looked up lately, in front of the shared cache.

use std::sync::Arc;

use super::changes::Changes;
use super::clock::CacheClock;
use super::link::CachedLink;
use super::links::LinkCache;
use crate::domain::link::LinkName;

/// One link for each slot: about the links that a worker redirects to within seconds. The table takes 100 KB, plus the
/// links.
const SLOTS: usize = 4_096;

/// The worker cache. The shared cache records every use in memory that all workers write; here a look-up writes nothing
/// and takes 2 ns instead of 104 (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23).
///
/// A keyed hash of the name determines its slot, and the last link with that slot is kept. Before each look-up, the links
/// that have changed are forgotten.
pub struct WorkerCache {
    slots: Box<[Option<Arc<CachedLink>>]>,
    /// The generation of changes up to which links were forgotten.
    seen: u64,
    changes: Arc<Changes>,
    clock: CacheClock,
}

impl WorkerCache {
    /// The cache of one worker in front of `shared`.
    pub fn new(shared: &LinkCache) -> Self {
        let (changes, clock) = (Arc::clone(shared.changes()), shared.clock().clone());
        Self { slots: vec![None; SLOTS].into(), seen: changes.generation(), changes, clock }
    }

    pub fn get(&mut self, name: &LinkName) -> Option<&CachedLink> {
        self.forget_changed();
        let link = self.slots[slot(self.changes.hash(name))].as_deref()?;
        // Only links of a store that other nodes change too have an end.
        let is_valid = link.name == *name && link.valid_until.is_none_or(|end| self.clock.now() < end);
        is_valid.then_some(link)
    }

    /// Keeps a link that was looked up in the caches after the last [`get`](Self::get) of its name.
    pub fn put(&mut self, link: &Arc<CachedLink>) {
        // A link that changes meanwhile, or that was looked up before a change, may be out of date already.
        let is_current = link.may_enter_worker_cache() && self.changes.generation() == self.seen;
        if is_current && self.changes.is_settled(&link.name, &self.clock) && self.changes.generation() == self.seen {
            self.slots[slot(self.changes.hash(&link.name))] = Some(Arc::clone(link));
        }
    }

    fn forget_changed(&mut self) {
        let Self { slots, seen, changes, .. } = self;
        if changes.generation() == *seen {
            return;
        }
        if let Some(now) = changes.since(*seen, |hash| slots[slot(hash)] = None) {
            *seen = now;
        } else {
            // In this order: what changes after the generation is read is forgotten the next time.
            *seen = changes.generation();
            slots.fill(None);
        }
    }
}

fn slot(hash: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below SLOTS")]
    let slot = (hash >> (u64::BITS - SLOTS.ilog2())) as usize;
    slot
}

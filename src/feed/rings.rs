//! The recent hits of all links and keys that somebody listens to, within a bound of time and memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::ring::{Ring, RingEntry};
use crate::domain::hit::{HitSubject, NodeId, Position};
use crate::domain::live_hit::LiveEntry;
use crate::locks::lock;

pub struct Rings {
    kept_for: Duration,
    kept_bytes: usize,
    by_subject: Mutex<HashMap<HitSubject, Arc<Ring>>>,
    kept: Mutex<KeptEntries>,
}

/// An element for each entry of all rings, oldest first.
#[derive(Default)]
struct KeptEntries {
    in_order: VecDeque<KeptEntry>,
    bytes: usize,
}

struct KeptEntry {
    ring: Arc<Ring>,
    added_at: Instant,
    bytes: usize,
}

impl KeptEntries {
    fn drop_first(&mut self) {
        if let Some(KeptEntry { ring, added_at: _, bytes }) = self.in_order.pop_front() {
            self.bytes -= bytes;
            ring.drop_first();
        }
    }
}

impl Rings {
    /// Entries are kept for `kept_for`, and all of them take no more than `kept_bytes`.
    pub fn new(kept_for: Duration, kept_bytes: usize) -> Self {
        Self { kept_for, kept_bytes, by_subject: Mutex::default(), kept: Mutex::default() }
    }

    /// A stream of a link or key begins.
    pub fn open(&self, of: HitSubject) -> Arc<Ring> {
        let mut rings = self.rings();
        let ring = rings.entry(of).or_default();
        ring.opened();
        Arc::clone(ring)
    }

    /// Adds what a node has noted, and wakes the streams.
    pub fn add(&self, node: NodeId, entries: impl Iterator<Item = LiveEntry>) {
        let (mut rings, mut kept) = (self.rings(), self.kept());
        let (added_at, mut changed) = (Instant::now(), Vec::new());
        for entry in entries {
            let ring = rings.entry(entry.of).or_default();
            if let Some((bytes, wakes)) = ring.add(RingEntry::new(node, entry)) {
                kept.in_order.push_back(KeptEntry { ring: Arc::clone(ring), added_at, bytes });
                kept.bytes += bytes;
                if wakes {
                    changed.push(Arc::clone(ring));
                }
            }
        }
        while kept.bytes > self.kept_bytes {
            kept.drop_first();
        }
        drop((rings, kept));
        for ring in changed {
            ring.wake_streams();
        }
    }

    /// The position of the last entry of a node that was added for a link or key.
    pub fn noted_upto(&self, of: HitSubject, node: NodeId) -> Option<Position> {
        self.rings().get(&of)?.state().added.of(node)
    }

    /// Drops entries that are too old, and rings that nobody needs.
    pub fn drop_old(&self) {
        let mut rings = self.rings();
        let mut kept = self.kept();
        while kept.in_order.front().is_some_and(|first| first.added_at.elapsed() >= self.kept_for) {
            kept.drop_first();
        }
        rings.retain(|_, ring| ring.is_listened(self.kept_for) || !ring.is_empty());
    }

    /// Those with streams, or with streams some time before.
    pub fn listened_subjects(&self) -> Vec<HitSubject> {
        self.those(|ring| ring.is_listened(self.kept_for))
    }

    pub fn subjects_with_streams(&self) -> Vec<HitSubject> {
        self.those(|ring| ring.open_streams() > 0)
    }

    pub fn have_listeners(&self) -> bool {
        self.rings().values().any(|ring| ring.is_listened(self.kept_for))
    }

    pub fn open_streams(&self) -> u64 {
        self.rings().values().map(|ring| ring.open_streams() as u64).sum()
    }

    fn those(&self, which: impl Fn(&Ring) -> bool) -> Vec<HitSubject> {
        self.rings().iter().filter(|(_, ring)| which(ring)).map(|(of, _)| *of).collect()
    }

    // Nothing panics while these locks are held. `rings` is taken first.
    fn rings(&self) -> MutexGuard<'_, HashMap<HitSubject, Arc<Ring>>> {
        lock(&self.by_subject)
    }

    fn kept(&self) -> MutexGuard<'_, KeptEntries> {
        lock(&self.kept)
    }
}

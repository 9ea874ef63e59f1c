//! Hits that could not be published to other nodes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::domain::hit::HitSubject;
use crate::domain::live_hit::{LiveEntry, LiveEvent};
use crate::locks::lock;

/// Hits that are published to other nodes as left out, an entry for each link or key.
#[derive(Default)]
pub struct SkippedEntries(Mutex<HashMap<HitSubject, LiveEntry>>);

impl SkippedEntries {
    pub fn add(&self, entries: &[LiveEntry]) {
        let mut skipped = self.skipped();
        for entry in entries {
            let LiveEntry { of, position, after, event } = entry;
            let new = || LiveEntry { of: *of, position: *position, after: *after, event: LiveEvent::LeftOut(0) };
            let sum = skipped.entry(*of).or_insert_with(new);
            sum.position = *position;
            sum.event = LiveEvent::LeftOut(sum.event.hits() + event.hits());
        }
    }

    pub fn entries(&self) -> Vec<LiveEntry> {
        self.skipped().values().cloned().collect()
    }

    /// All of them were published.
    pub fn clear(&self) {
        self.skipped().clear();
    }

    fn skipped(&self) -> MutexGuard<'_, HashMap<HitSubject, LiveEntry>> {
        lock(&self.0)
    }
}

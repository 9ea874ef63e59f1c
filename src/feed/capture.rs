//! What the hit counter notes for live streams while it makes a batch.

use std::collections::HashMap;
use std::sync::Arc;

use super::HitFeed;
use super::listeners::Listened;
use crate::domain::calendar::Timestamp;
use crate::domain::hit::{HitSubject, Position};
use crate::domain::key::KeyId;
use crate::domain::link::ShortId;
use crate::domain::live_hit::{LIVE_HITS_A_SECOND, LiveEntry, LiveEvent, LiveHit};

/// The most hits a second of all links and keys together.
const OF_ALL_A_SECOND: u32 = 5_000;

/// How far the time of a hit may be behind that of the one before it, unless the clock was set back.
const OUT_OF_ORDER_SECONDS: u64 = 2;

/// Notes the hits of a batch that somebody listens to.
pub struct HitCapture {
    feed: Arc<HitFeed>,
    /// Who listened when [`begin`](Self::begin) was last called; `None`: nobody.
    listened: Option<Arc<Listened>>,
    noted: HashMap<HitSubject, Noted>,
    of_all: SecondBudget,
    entries: Vec<LiveEntry>,
}

/// What was noted of a link or key.
struct Noted {
    budget: SecondBudget,
    /// Up to here an earlier life of this node has noted all hits. Those that it had not counted are read again.
    known_upto: Position,
    /// The position of the last entry.
    last: Option<Position>,
    /// The same of the batches that were taken.
    taken: Option<Position>,
    /// Hits that were left out since the last entry, and the position of the last one.
    left_out: u64,
    left_out_upto: Position,
}

/// So many in each second, by the time of the hits.
#[derive(Clone, Copy, Default)]
struct SecondBudget {
    second: u64,
    spent: u32,
}

impl SecondBudget {
    fn spend(&mut self, at: Timestamp, limit: u32) -> bool {
        let second = at.0 / 1_000;
        // Hits of several requests may come a little out of order. The clock may also have been set back.
        if second > self.second || self.second - second > OUT_OF_ORDER_SECONDS {
            *self = Self { second, spent: 0 };
        }
        let is_left = self.spent < limit;
        self.spent += u32::from(is_left);
        is_left
    }
}

impl HitCapture {
    pub(super) fn new(feed: Arc<HitFeed>) -> Self {
        let of_all = SecondBudget::default();
        Self { feed, listened: None, noted: HashMap::new(), of_all, entries: Vec::new() }
    }

    /// Listeners of now get the hits that are noted from here on. It is called before hits are read, also within a batch.
    pub fn begin(&mut self) {
        let listened = self.feed.listeners.listened();
        let is_same = match (&listened, &self.listened) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.noted.retain(|of, _| listened.as_ref().is_some_and(|listened| listened.contains_key(of)));
            self.listened = listened;
        }
    }

    /// Whether somebody listens.
    pub fn is_on(&self) -> bool {
        self.listened.is_some()
    }

    /// Notes a hit if somebody listens to its link or its key.
    pub fn note(
        &mut self,
        (position, at): (Position, Timestamp),
        (link, owner): (ShortId, KeyId),
        make: impl Fn() -> LiveHit,
    ) {
        let Some(listened) = &self.listened else { return };
        for of in [HitSubject::Link(link), HitSubject::Key(owner)] {
            let Some(is_continued) = listened.get(&of) else { continue };
            let new = || {
                let known_upto = self.feed.noted_upto(of);
                let last = is_continued.then_some(known_upto);
                let budget = SecondBudget::default();
                Noted { budget, known_upto, last, taken: last, left_out: 0, left_out_upto: Position(0) }
            };
            let noted = self.noted.entry(of).or_insert_with(new);
            let is_within = noted.budget.spend(at, LIVE_HITS_A_SECOND) && self.of_all.spend(at, OF_ALL_A_SECOND);
            if position <= noted.known_upto {
                continue;
            }
            if is_within {
                self.entries.extend(noted.left_out(of));
                self.entries.push(noted.entry(of, position, LiveEvent::Hit(make())));
            } else {
                noted.left_out += 1;
                noted.left_out_upto = position;
            }
        }
    }

    /// Drops what was noted since the last call of [`take`](Self::take).
    pub fn clear(&mut self) {
        self.entries.clear();
        for noted in self.noted.values_mut() {
            (noted.last, noted.left_out) = (noted.taken, 0);
        }
    }

    /// Takes what was noted of the batch.
    pub fn take(&mut self) -> Vec<LiveEntry> {
        if self.listened.is_some() {
            for (of, noted) in &mut self.noted {
                self.entries.extend(noted.left_out(*of));
                noted.taken = noted.last;
            }
        }
        std::mem::take(&mut self.entries)
    }
}

impl std::fmt::Debug for HitCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HitCapture").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Noted {
    fn entry(&mut self, of: HitSubject, position: Position, event: LiveEvent) -> LiveEntry {
        LiveEntry { of, position, after: self.last.replace(position), event }
    }

    /// The entry of hits that were left out since the last one.
    fn left_out(&mut self, of: HitSubject) -> Option<LiveEntry> {
        let count = std::mem::take(&mut self.left_out);
        (count > 0).then(|| self.entry(of, self.left_out_upto, LiveEvent::LeftOut(count)))
    }
}

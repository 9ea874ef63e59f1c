//! Memory of the journal's segments: pages are made ready shortly ahead of the writers, so that no redirect makes one, and given
//! back behind the reader. So a journal at rest takes [`WINDOW`] of memory, whatever the length of its segments is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::segment::Segment;
use super::{SharedJournal, lock_of};
use crate::threads::yield_periodically;

/// Bytes ahead of the writers whose pages are ready. The writer that has used up half of them wakes the thread that makes more:
/// 4 MiB are some 25,000 hits, which take 80 ms where 300,000 come a second. That thread needs 3 ms for as many, and waits 10 ms
/// for a core at the most. A writer that still overtakes it makes the pages of its own record, 32 KiB at once.
pub const WINDOW: usize = 8 << 20;

/// How often to look what the reader has passed, where nobody appends.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// The thread that does so.
#[derive(Debug)]
pub(super) struct PageMaker {
    shared: Arc<SharedJournal>,
}

impl PageMaker {
    pub fn new(shared: Arc<SharedJournal>) -> Self {
        Self { shared }
    }

    pub fn run(self, stopping: &AtomicBool) {
        // Fails only if it was set before, and a upkeep starts once.
        let _ = self.shared.page_maker.set(std::thread::current());
        while !stopping.load(Ordering::Acquire) {
            self.make_ready();
            for segment in self.shared.live() {
                segment.release_read();
            }
            std::thread::park_timeout(LOOKS_EVERY);
        }
    }

    /// Makes pages ready in the active segment, and where that ends, in the one that follows it.
    fn make_ready(&self) {
        let Some(active) = self.shared.active() else { return };
        let upto = active.reserved() + WINDOW;
        fill_up(&active, upto);
        if let Some(behind) = upto.checked_sub(active.capacity()).filter(|behind| *behind > 0) {
            let spare = lock_of(&self.shared.rotation).spare.clone();
            if let Some(spare) = spare {
                fill_up(&spare, behind);
            }
        }
        // One that ends before is followed by another, and then this thread is woken too.
        active.wake_at(upto - WINDOW / 2);
    }
}

fn fill_up(segment: &Segment, upto: usize) {
    while segment.make_ready(upto) {
        yield_periodically();
    }
}

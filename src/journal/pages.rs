//! Memory of the journal's segments. Pages are created ahead of the writers, so that redirects cause no page faults,
//! and released behind the reader. So an idle journal needs [`WINDOW`] of memory, whatever the length of its segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::SharedJournal;
use super::segment::Segment;
use crate::locks::lock;
use crate::threads::yield_periodically;

/// Bytes ahead of the writers whose pages are ready. The writer that reaches the second half wakes the thread that
/// creates more. 3 MiB are about 19,000 hits, or 60 ms at 300,000 hits per second. The thread needs 2 ms for that, and
/// waits at most 10 ms for a core. A writer that overtakes it creates the pages of its own record, 32 KiB at once.
pub const WINDOW: usize = 6 << 20;

/// How often pages that were read are released if no writer wakes the thread.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// The work of the thread that creates and releases pages.
#[derive(Debug)]
pub(super) struct PageMaker {
    shared: Arc<SharedJournal>,
}

impl PageMaker {
    pub fn new(shared: Arc<SharedJournal>) -> Self {
        Self { shared }
    }

    pub fn run(self, stopping: &AtomicBool) {
        // Fails only if it was set before, and the upkeep starts only once.
        let _ = self.shared.page_maker.set(std::thread::current());
        while !stopping.load(Ordering::Acquire) {
            self.make_ready();
            for segment in self.shared.live() {
                segment.release_read();
            }
            std::thread::park_timeout(RELEASE_INTERVAL);
        }
    }

    /// Creates pages in the active segment and, if the window extends beyond its end, in the spare segment.
    fn make_ready(&self) {
        let Some(active) = self.shared.active() else { return };
        let upto = active.reserved() + WINDOW;
        make_pages_ready(&active, upto);
        if let Some(behind) = upto.checked_sub(active.capacity()).filter(|behind| *behind > 0) {
            let spare = lock(&self.shared.rotation).spare.clone();
            if let Some(spare) = spare {
                make_pages_ready(&spare, behind);
            }
        }
        // If the segment ends earlier, the rotation to the next one wakes this thread.
        active.wake_at(upto - WINDOW / 2);
    }
}

fn make_pages_ready(segment: &Segment, upto: usize) {
    while segment.make_ready(upto) {
        yield_periodically();
    }
}

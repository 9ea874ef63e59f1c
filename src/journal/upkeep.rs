//! The journal's background work: it creates the next segment before it is needed, and syncs appended records to the
//! disk.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use super::pages::PageMaker;
use super::segment::Prepare;
use super::{NotRecorded, SharedJournal};
use crate::locks::lock;
use crate::threads::in_background;

/// The journal's background work, before its threads are started.
#[derive(Debug)]
pub struct JournalUpkeep {
    shared: Arc<SharedJournal>,
}

impl JournalUpkeep {
    pub(super) fn new(shared: Arc<SharedJournal>) -> Self {
        Self { shared }
    }

    /// Creates the next segment unless it exists. Writers that need it wait meanwhile.
    pub fn prepare_spare(&self) -> Result<(), NotRecorded> {
        self.shared.backoff.check()?;
        let mut rotation = lock(&self.shared.rotation);
        if rotation.spare.is_none() {
            rotation.spare = Some(self.shared.create(&mut rotation, Prepare::Ahead)?);
            self.shared.backoff.retry_at_once();
            drop(rotation);
            // Writers may need its pages soon.
            self.shared.wake_page_maker();
        }
        Ok(())
    }

    /// Syncs all records that have been appended to the disk.
    pub fn sync(&self) -> io::Result<()> {
        // Before the directory: a failure of one does not keep the others from the disk.
        let flushed: Vec<io::Result<bool>> = self.shared.live().iter().map(|segment| segment.flush()).collect();
        if self.shared.directory_changed.swap(false, Ordering::Relaxed) {
            let synced = File::open(&self.shared.directory).and_then(|it| it.sync_all());
            synced.inspect_err(|_| self.shared.directory_changed.store(true, Ordering::Relaxed))?;
        }
        flushed.into_iter().try_for_each(|flushed| flushed.map(drop))
    }

    /// Starts the background threads: this one, and the one that creates pages.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(self) -> io::Result<UpkeepHandle> {
        let stopping = Arc::new(AtomicBool::new(false));
        // On a thread of its own, because a flush may block for as long as the disk does.
        let pages = PageMaker::new(Arc::clone(&self.shared));
        let page_maker = in_background("journal-pages", {
            let stopping = Arc::clone(&stopping);
            move || pages.run(&stopping)
        })?;
        let mut handle = UpkeepHandle { stopping: Arc::clone(&stopping), threads: vec![page_maker] };
        handle.threads.push(in_background("journal-upkeep", move || self.run(&stopping))?);
        Ok(handle)
    }

    fn run(self, stopping: &AtomicBool) {
        // Fails only if it was set before, and the upkeep starts only once.
        let _ = self.shared.upkeep.set(std::thread::current());
        let mut next_sync = Instant::now();
        while !stopping.load(Ordering::Acquire) {
            // Without space there is no spare segment. A writer that needs one logs the error.
            let _ = self.prepare_spare();
            let now = Instant::now();
            if now >= next_sync {
                self.sync_or_warn();
                next_sync = Instant::now() + self.shared.settings.sync_interval;
            }
            std::thread::park_timeout(next_sync.saturating_duration_since(Instant::now()));
        }
        self.remove_spare();
        self.sync_or_warn();
    }

    fn sync_or_warn(&self) {
        if let Err(error) = self.sync() {
            let path = self.shared.directory.display();
            tracing::error!(%path, %error, "can't sync the journal: a power cut would lose hits");
        }
    }

    /// The spare segment is empty. Without it the next start has one file less to read.
    fn remove_spare(&self) {
        let spare = lock(&self.shared.rotation).spare.take();
        if let Some(spare) = spare
            && let Err(error) = self.shared.delete(spare.path(), spare.header().capacity)
        {
            tracing::warn!(path = %spare.path().display(), %error, "can't delete an unused journal segment");
        }
    }
}

/// The handle of the background threads. It stops them when it is dropped.
#[derive(Debug)]
pub struct UpkeepHandle {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl UpkeepHandle {
    /// Syncs appended records and waits for the threads to end. Later appends succeed but are not synced any more.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a background thread of the journal panicked");
            }
        }
    }
}

impl Drop for UpkeepHandle {
    fn drop(&mut self) {
        self.join();
    }
}

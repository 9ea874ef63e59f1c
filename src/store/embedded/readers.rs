//! The reading threads. They belong to the store, so that nothing else can block them, and their number is fixed.
//!
//! They are started with the store and not on demand: a thread inherits the priority of the one that starts it, and
//! some callers have a low priority.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, Thread, current, park, park_timeout};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use super::database::closed;
use crate::locks::lock;
use crate::memory::release_free;
use crate::store::StoreError;

/// Threads for look-ups of links: a look-up that waits for the disk blocks one.
pub const LOOK_UP_THREADS: usize = 16;
/// Threads for all other reads. A slow read mostly waits for the disk.
const READ_THREADS: usize = 16;
/// Reads that run or are queued; further callers wait until there is space in the queue.
const QUEUE: usize = 1024;

/// When an idle thread returns its free memory to the system.
const RELEASES_AFTER: Duration = Duration::from_secs(2);

/// It may call what it is given once its work is done, before it tells its caller: then the thread is among the idle ones when the
/// caller asks for the next read, and goes on with that without being woken.
type ReadJob = Box<dyn FnOnce(&mut dyn FnMut()) + Send>;

/// The threads. Look-ups of links have their own, so that redirects do not wait for slow reads.
pub struct Readers {
    reads: ThreadPool,
    look_ups: ThreadPool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Fails when the last thread ends.
    ended: Mutex<Option<oneshot::Receiver<Infallible>>>,
}

/// A queue of jobs for some of the threads.
#[derive(Clone)]
pub struct ThreadPool(Arc<SharedQueue>);

struct SharedQueue {
    queue: Mutex<ReadQueue>,
    admission: Arc<Semaphore>,
}

#[derive(Default)]
struct ReadQueue {
    jobs: VecDeque<ReadJob>,
    /// Threads without a job. The one that became idle last gets the next: its caches and its free memory are warm, and a light load
    /// uses the memory of few threads.
    idle: Vec<Thread>,
    is_closed: bool,
}

impl ReadQueue {
    /// Takes this thread from the idle ones, if it is there.
    fn remove_idle(&mut self) {
        let this = current().id();
        self.idle.retain(|thread| thread.id() != this);
    }
}

impl Readers {
    /// # Errors
    /// When a thread cannot be started.
    pub fn start() -> io::Result<Self> {
        let (sender, ended) = oneshot::channel();
        let readers = Self {
            reads: ThreadPool::new(),
            look_ups: ThreadPool::new(),
            threads: Mutex::default(),
            ended: Mutex::new(Some(ended)),
        };
        let sender = Arc::new(sender);
        let reads = (0..READ_THREADS).map(|_| ("store-reader", &readers.reads));
        let look_ups = (0..LOOK_UP_THREADS).map(|_| ("store-look-up", &readers.look_ups));
        for (name, pool) in reads.chain(look_ups) {
            let (pool, sender) = (pool.clone(), Arc::clone(&sender));
            let work = move || {
                pool.work();
                drop((pool, sender));
            };
            lock(&readers.threads).push(Builder::new().name(name.into()).spawn(work)?);
        }
        Ok(readers)
    }

    pub fn reads(&self) -> &ThreadPool {
        &self.reads
    }

    pub fn look_ups(&self) -> &ThreadPool {
        &self.look_ups
    }

    /// Ends the threads once they have finished all queued jobs. Nothing is read afterwards.
    pub async fn end(&self) {
        self.close();
        let ended = lock(&self.ended).take();
        if let Some(ended) = ended {
            drop(ended.await);
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // It has ended; panics of its jobs were caught.
            drop(thread.join());
        }
    }

    fn close(&self) {
        self.reads.close();
        self.look_ups.close();
    }
}

impl Drop for Readers {
    /// The threads end later. This cannot wait for them.
    fn drop(&mut self) {
        self.close();
    }
}

impl ThreadPool {
    fn new() -> Self {
        Self(Arc::new(SharedQueue { queue: Mutex::default(), admission: Arc::new(Semaphore::new(QUEUE)) }))
    }

    /// Queues a read. It is skipped if the caller is cancelled before it begins, and finishes once it has begun.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let place = Arc::clone(&self.0.admission).acquire_owned().await.map_err(|_| closed())?;
        let (sender, answer) = oneshot::channel();
        self.push(Box::new(move |is_done| {
            let _place = place;
            if !sender.is_closed() {
                let answer = read();
                is_done();
                drop(sender.send(answer));
            }
        }));
        answer.await.unwrap_or_else(|_| Err(StoreError::Unavailable("a read was aborted".into())))
    }

    /// Queues a job for the next idle thread. It is dropped if the store is closed.
    pub fn begin(&self, job: impl FnOnce() + Send + 'static) {
        self.push(Box::new(|_| job()));
    }

    fn push(&self, job: ReadJob) {
        let mut queue = lock(&self.0.queue);
        if !queue.is_closed {
            queue.jobs.push_back(job);
            let thread = queue.idle.pop();
            drop(queue);
            thread.iter().for_each(Thread::unpark);
        }
    }

    fn work(&self) {
        let mut is_listed = false;
        while let Some(job) = self.next(std::mem::take(&mut is_listed)) {
            let mut is_done = || {
                if !std::mem::replace(&mut is_listed, true) {
                    lock(&self.0.queue).idle.push(current());
                }
            };
            // The panic is logged where it happens; the caller gets an error.
            drop(catch_unwind(AssertUnwindSafe(|| job(&mut is_done))));
        }
    }

    /// Waits for a job; `None` when the store is closed and all jobs are done. `is_listed`: this thread was put among the idle ones.
    fn next(&self, mut is_listed: bool) -> Option<ReadJob> {
        let mut may_release = true;
        let mut idle_since = None;
        let mut queue = lock(&self.0.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                if is_listed {
                    queue.remove_idle();
                }
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            // If it was taken from the list meanwhile, it is about to be woken.
            if !std::mem::take(&mut is_listed) {
                queue.idle.push(current());
            }
            drop(queue);
            let idle_for = idle_since.get_or_insert_with(Instant::now).elapsed();
            if may_release {
                park_timeout(RELEASES_AFTER.saturating_sub(idle_for));
            } else {
                park();
            }
            queue = lock(&self.0.queue);
            // It is still there if it woke up without a job.
            queue.remove_idle();
            // A thread that has just finished a job may have taken the one that this thread was woken for.
            let is_idle = may_release && idle_since.is_some_and(|since| since.elapsed() >= RELEASES_AFTER);
            if is_idle && queue.jobs.is_empty() {
                drop(queue);
                release_free();
                may_release = false;
                queue = lock(&self.0.queue);
            }
        }
    }

    fn close(&self) {
        self.0.admission.close();
        let mut queue = lock(&self.0.queue);
        queue.is_closed = true;
        queue.idle.drain(..).for_each(|thread| thread.unpark());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use futures_util::poll;
    // Without it, a task that polls so often in one turn would have to yield.
    use tokio::task::unconstrained;

    use super::*;
    use crate::memory::set_release;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn one_thread_does_what_comes_one_after_another() {
        let readers = Readers::start().unwrap();
        let pool = readers.reads();
        let mut threads = std::collections::HashSet::new();
        for _ in 0..50 {
            while lock(&pool.0.queue).idle.len() < READ_THREADS {
                tokio::task::yield_now().await;
            }
            threads.insert(pool.read(|| Ok(current().id())).await.unwrap());
        }
        assert_eq!(threads.len(), 1);
        readers.end().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_that_another_one_was_faster_than_is_not_idle() {
        thread_local! {
            static RELEASED: Cell<u32> = const { Cell::new(0) };
        }
        set_release(|| RELEASED.set(RELEASED.get() + 1));
        let readers = Readers::start().unwrap();
        let pool = readers.reads();
        let began = Instant::now();
        let mut released = 0;
        while began.elapsed() < RELEASES_AFTER / 4 {
            let reads = (0..4).map(|_| pool.read(|| Ok(RELEASED.get())));
            for count in futures_util::future::join_all(reads).await {
                released = count.unwrap().max(released);
            }
        }
        assert_eq!(released, 0);
        readers.end().await;
    }

    /// A read that waits until it is released.
    fn held() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), StoreError>) {
        let (release, wait) = mpsc::channel();
        (release, move || {
            let _ = wait.recv();
            Ok(())
        })
    }

    #[tokio::test]
    async fn reads_and_what_waits_for_them_are_bounded_and_look_ups_do_not_wait_for_them() {
        let readers = Readers::start().unwrap();
        let pool = readers.reads();
        let (releases, reads): (Vec<_>, Vec<_>) = (0..2 * QUEUE).map(|_| held()).unzip();
        let mut under_way: Vec<_> = reads.into_iter().map(|read| Box::pin(unconstrained(pool.read(read)))).collect();
        for read in &mut under_way {
            assert!(poll!(read).is_pending());
        }
        assert!((QUEUE - READ_THREADS..=QUEUE).contains(&lock(&pool.0.queue).jobs.len()));
        let mut last = Box::pin(unconstrained(pool.read(|| Ok("read"))));
        assert!(poll!(&mut last).is_pending());
        // As many readers of look-ups as there are threads, all at once.
        let met = Arc::new(std::sync::Barrier::new(LOOK_UP_THREADS + 1));
        for _ in 0..LOOK_UP_THREADS {
            let met = Arc::clone(&met);
            readers.look_ups().begin(move || {
                met.wait();
            });
        }
        met.wait();
        assert!(poll!(&mut last).is_pending());
        drop(releases);
        tokio::time::timeout(PATIENCE, futures_util::future::join_all(under_way)).await.expect("all are read");
        let answer = tokio::time::timeout(PATIENCE, last).await.expect("a turn");
        assert_eq!(answer.unwrap(), "read");
    }

    #[tokio::test]
    async fn a_read_that_panics_returns_an_error_and_blocks_neither_thread_nor_queue() {
        let readers = Readers::start().unwrap();
        for _ in 0..2 * QUEUE {
            // Unwinds like a panic, without a line in the log for each.
            let panic = || -> Result<(), StoreError> { std::panic::resume_unwind(Box::new("as the test wants it")) };
            let answer = readers.reads().read(panic).await;
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        assert_eq!(readers.reads().read(|| Ok(1)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_read_without_a_caller_is_not_begun() {
        let readers = Readers::start().unwrap();
        let pool = readers.reads();
        let (releases, reads): (Vec<_>, Vec<_>) = (0..READ_THREADS).map(|_| held()).unzip();
        let mut under_way: Vec<_> = reads.into_iter().map(|read| Box::pin(unconstrained(pool.read(read)))).collect();
        for read in &mut under_way {
            assert!(poll!(read).is_pending());
        }
        let begun = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * QUEUE {
            let begun = Arc::clone(&begun);
            let read = pool.read(move || {
                begun.store(true, Ordering::SeqCst);
                Ok(())
            });
            let mut cancelled = Box::pin(unconstrained(read));
            assert!(poll!(&mut cancelled).is_pending());
        }
        assert_eq!(pool.0.admission.available_permits(), 0);
        drop((releases, under_way));
        tokio::time::timeout(PATIENCE, readers.end()).await.expect("an end");
        assert!(!begun.load(Ordering::SeqCst));
        assert_eq!(pool.0.admission.available_permits(), QUEUE);
    }

    #[tokio::test]
    async fn the_end_waits_for_queued_reads_and_for_all_threads() {
        let readers = Readers::start().unwrap();
        let (release, read) = held();
        let mut last = Box::pin(readers.reads().read(read));
        assert!(poll!(&mut last).is_pending());
        let mut end = Box::pin(readers.end());
        assert!(poll!(&mut end).is_pending());
        drop(release);
        tokio::time::timeout(PATIENCE, end).await.expect("an end");
        last.await.unwrap();
        assert!(lock(&readers.threads).is_empty());
        // The threads had the other references.
        for pool in [readers.reads(), readers.look_ups()] {
            assert_eq!(Arc::strong_count(&pool.0), 1);
            assert!(matches!(pool.read(|| Ok(1)).await, Err(StoreError::Unavailable(_))));
        }
    }
}

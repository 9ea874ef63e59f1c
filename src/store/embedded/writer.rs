//! One thread writes: it collects waiting writes into one transaction, syncs it, and only then answers.
//!
//! So writes are serial (what a write has checked does not change until it ends), and many share the cost of an fsync.
//! Failures are separate: if a write fails or panics, those before it and those after it run again without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::database::closed;
use super::engine::Engine;
use super::link_index;
use super::lull::{Lull, WriteQueue};
use super::tables::EmbeddedTables;
use super::transaction::Transaction;
use crate::store::StoreError;
use crate::threads::in_background;

/// Queued writes; further callers wait until there is space in the queue. A group of writes commits in milliseconds.
const QUEUE: usize = 4096;
/// Maximum number of writes in one transaction: bounds its memory and the time that the first write waits for the last.
const GROUP: usize = 1024;
/// How long a caller waits until its write begins: the engine blocks a commit while its disk does not respond.
const PATIENCE: Duration = Duration::from_secs(20);

/// A queued write.
trait WriteJob: Send {
    /// Whether to run it: `false` if its caller has given up.
    fn begin(&self) -> bool;

    /// Checks, and writes into the transaction. Called again, with a new transaction, after a rollback.
    fn run(&mut self, tables: &EmbeddedTables, transaction: &mut Transaction<'_>) -> Result<(), StoreError>;

    /// Reports to the caller whether the changes of the last run are durable.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct CallerWrite<R, E, W> {
    act: W,
    outcome: Option<Result<R, E>>,
    /// Set by the first of two: the writer when it begins the write, or the caller when it gives up.
    claimed: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Result<R, E>, StoreError>>,
}

impl<R, E, W> WriteJob for CallerWrite<R, E, W>
where
    R: Send,
    E: Send,
    W: FnMut(&EmbeddedTables, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send,
{
    fn begin(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    fn run(&mut self, tables: &EmbeddedTables, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.outcome = Some((self.act)(tables, transaction)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { act, outcome, reply, .. } = *self;
        // What it holds is free before its caller goes on.
        drop(act);
        // A cancelled caller needs no answer.
        drop(reply.send(committed.and_then(|()| outcome.ok_or_else(not_committed))));
    }
}

/// Prevents the writer from beginning a write whose caller is cancelled.
struct ClaimedOnDrop(Arc<AtomicBool>);

impl Drop for ClaimedOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The queue of the writing thread.
#[derive(Clone)]
pub struct Writer {
    jobs: mpsc::Sender<Box<dyn WriteJob>>,
}

impl Writer {
    /// Starts the thread. Once every `Writer` is dropped, it finishes the queued writes, syncs, and ends.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(tables: Arc<EmbeddedTables>) -> std::io::Result<Self> {
        let (jobs, receiver) = mpsc::channel(QUEUE);
        let waiting = WriteQueue::new(receiver)?;
        // It is not joined: closing the store waits until the engine is closed, with a time limit.
        let write = move || {
            let mut thread = WriterThread { tables: &tables, health: EngineHealth::Sound };
            thread.run(waiting);
            if thread.health != EngineHealth::Sound {
                Arc::clone(&tables.engine).leave();
            }
        };
        drop(in_background("store-writer", write)?);
        Ok(Self { jobs })
    }

    /// Runs `write` in a transaction and returns once it is durable.
    ///
    /// `write` makes all its checks before its first change: one that returns `Ok(Err(refusal))` has changed nothing.
    /// It may be called several times; only the last call counts.
    ///
    /// If it does not begin in time, or its caller is cancelled before it begins, nothing is changed. Once it has
    /// begun, this waits for its outcome.
    pub async fn run<R, E, W>(&self, write: W) -> Result<Result<R, E>, StoreError>
    where
        R: Send + 'static,
        E: Send + 'static,
        W: FnMut(&EmbeddedTables, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let claimed = Arc::new(AtomicBool::new(false));
        // A caller that timed out has reported a failure: its write must not begin afterwards.
        let _given_up = ClaimedOnDrop(Arc::clone(&claimed));
        let job = Box::new(CallerWrite { act: write, outcome: None, claimed: Arc::clone(&claimed), reply });
        let written = async {
            self.jobs.send(job).await.map_err(|_| closed())?;
            answer.await.unwrap_or_else(|_| Err(not_committed()))
        };
        tokio::pin!(written);
        match tokio::time::timeout(PATIENCE, &mut written).await {
            Ok(written) => written,
            Err(_) if claimed.swap(true, Ordering::AcqRel) => written.await,
            Err(_) => Err(StoreError::Unavailable("the write took too long".into())),
        }
    }
}

fn not_committed() -> StoreError {
    StoreError::Unavailable("the write was not committed".into())
}

/// The state of the engine, so that a lasting failure is logged once and not with every write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EngineHealth {
    Sound,
    /// The last commit failed.
    Failing,
    /// The engine itself panicked: it is not used any more, because its state is unknown.
    Broken,
}

/// Why a transaction was rolled back.
enum Rollback {
    /// A write failed.
    Write(usize, StoreError),
    /// The commit failed, which is logged.
    Commit,
}

struct WriterThread<'a> {
    tables: &'a EmbeddedTables,
    health: EngineHealth,
}

impl<'a> WriterThread<'a> {
    fn run(&mut self, mut waiting: WriteQueue<Box<dyn WriteJob>>) {
        let mut lull = Lull::default();
        while let Some(job) = waiting.next(|| self.check(&mut lull)) {
            let mut group = vec![job];
            while group.len() < GROUP
                && let Ok(job) = waiting.jobs.try_recv()
            {
                group.push(job);
            }
            group.retain(|job| job.begin());
            if !group.is_empty() {
                self.commit_group(group);
            }
            self.check(&mut lull);
        }
        if let Err(error) = self.end() {
            tracing::error!(%error, "store: closed with an error; all answered writes are durable");
        }
    }

    fn check(&self, lull: &mut Lull) {
        // Nothing is written to a failed engine.
        if self.health == EngineHealth::Sound {
            lull.check(&self.tables.engine);
        }
    }

    fn end(&self) -> Result<(), StoreError> {
        let engine: &Engine = &self.tables.engine;
        if self.health != EngineHealth::Broken {
            engine.sync()?;
            engine.flush()?;
        }
        // Nothing is written to a failed engine.
        if self.health == EngineHealth::Sound { link_index::save(engine) } else { Ok(()) }
    }

    fn commit_group(&mut self, group: Vec<Box<dyn WriteJob>>) {
        // A stack of the remaining groups, the next on top.
        let mut groups = vec![group];
        while let Some(mut group) = groups.pop() {
            match self.try_commit(&mut group) {
                Ok(()) => group.into_iter().for_each(|job| job.answer(Ok(()))),
                Err(Rollback::Write(index, error)) => {
                    let behind = group.split_off(index + 1);
                    if let Some(failed) = group.pop() {
                        failed.answer(Err(error));
                    }
                    groups.extend([behind, group].into_iter().filter(|group| !group.is_empty()));
                }
                Err(Rollback::Commit) => group.into_iter().for_each(|job| job.answer(Err(not_committed()))),
            }
        }
    }

    fn try_commit(&mut self, group: &mut [Box<dyn WriteJob>]) -> Result<(), Rollback> {
        // Writes that will be refused must not even run: they would add ids to the known links that never exist.
        let is_failing = self.health == EngineHealth::Failing && self.tables.engine.probe().is_err();
        if self.health == EngineHealth::Broken || is_failing {
            return Err(Rollback::Commit);
        }
        let committed = catch_unwind(AssertUnwindSafe(|| {
            let transaction = self.run_all(group)?;
            Ok(transaction.commit())
        }));
        match committed {
            Ok(Ok(Ok(()))) => {
                self.health = EngineHealth::Sound;
                Ok(())
            }
            Ok(Ok(Err(error))) => {
                if self.health == EngineHealth::Sound {
                    tracing::error!(%error, "store: can't commit writes");
                    self.health = EngineHealth::Failing;
                }
                Err(Rollback::Commit)
            }
            Ok(Err(rollback)) => Err(rollback),
            Err(_) => {
                tracing::error!("store: the engine panicked; all writes are refused until a restart");
                self.health = EngineHealth::Broken;
                Err(Rollback::Commit)
            }
        }
    }

    fn run_all(&self, group: &mut [Box<dyn WriteJob>]) -> Result<Transaction<'a>, Rollback> {
        let mut transaction = Transaction::begin(&self.tables.engine);
        for (index, job) in group.iter_mut().enumerate() {
            // Caught here, while no lock of the engine is held: the engine is as sound as before.
            let ran = catch_unwind(AssertUnwindSafe(|| job.run(self.tables, &mut transaction)));
            let ran = ran.unwrap_or_else(|_| {
                tracing::error!("store: a write panicked and was rolled back");
                Err(not_committed())
            });
            ran.map_err(|error| Rollback::Write(index, error))?;
        }
        Ok(transaction)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fjall::Readable;
    use tokio::sync::Semaphore;

    use super::*;

    type WriteOutcome = Result<Result<(), Infallible>, StoreError>;

    fn open() -> (tempfile::TempDir, Arc<EmbeddedTables>, Writer) {
        let directory = tempfile::tempdir().unwrap();
        let tables = Arc::new(EmbeddedTables::open(&directory.path().join("store")).0);
        let writer = Writer::start(Arc::clone(&tables)).unwrap();
        (directory, tables, writer)
    }

    fn put(key: &'static str) -> impl FnMut(&EmbeddedTables, &mut Transaction<'_>) -> WriteOutcome + Send + 'static {
        move |tables, transaction| transaction.insert(&tables.engine.keyspaces.meta, key, "value").map(Ok)
    }

    fn panicking(_: &EmbeddedTables, _: &mut Transaction<'_>) -> WriteOutcome {
        panic!("as the test wants it");
    }

    fn failing(tables: &EmbeddedTables, transaction: &mut Transaction<'_>) -> WriteOutcome {
        transaction.insert(&tables.engine.keyspaces.meta, "half done", "")?;
        Err(StoreError::Corrupt { table: "test", reason: "as the test wants it".into() })
    }

    /// Keeps the writer busy, so that writes that come meanwhile are in one group.
    async fn in_one_group(writer: &Writer, asked: impl Future<Output = ()>) {
        let begun = Arc::new(Semaphore::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let (signal, wait) = (Arc::clone(&begun), Arc::clone(&gate));
        let runtime = tokio::runtime::Handle::current();
        let first = writer.run(move |_, _| {
            signal.add_permits(1);
            drop(runtime.block_on(wait.acquire()).unwrap());
            Ok(Ok::<(), Infallible>(()))
        });
        let others = async {
            drop(begun.acquire().await.unwrap());
            tokio::pin!(asked);
            // Polled once, all are in the queue; then the writer is released.
            let polled = futures_util::poll!(&mut asked);
            assert!(polled.is_pending());
            gate.add_permits(1);
            asked.await;
        };
        let (done, ()) = futures_util::future::join(first, others).await;
        done.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_write_that_fails_or_panics_fails_alone_and_changes_nothing() {
        let (_directory, tables, writer) = open();
        in_one_group(&writer, async {
            let all = futures_util::future::join4(
                writer.run(put("before")),
                writer.run(failing),
                writer.run(panicking),
                writer.run(put("after")),
            );
            let (before, failed, panicked, after) = all.await;
            assert!(before.is_ok() && after.is_ok());
            assert!(matches!(failed, Err(StoreError::Corrupt { table: "test", .. })), "{failed:?}");
            assert!(matches!(panicked, Err(StoreError::Unavailable(_))), "{panicked:?}");
        })
        .await;
        let there = |key: &str| tables.snapshot().contains_key(&tables.engine.keyspaces.meta, key).unwrap();
        assert!(there("before") && there("after") && !there("half done"));
        assert!(writer.run(put("later")).await.is_ok());
    }

    #[tokio::test]
    async fn a_write_that_times_out_changes_nothing_and_one_that_has_begun_is_waited_for() {
        let (_directory, tables, writer) = open();
        let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (signal, wait, runtime) = (Arc::clone(&begun), Arc::clone(&gate), tokio::runtime::Handle::current());
        let first = tokio::spawn({
            let writer = writer.clone();
            async move {
                let stuck = writer.run(move |tables, transaction| {
                    signal.add_permits(1);
                    drop(runtime.block_on(wait.acquire()).unwrap());
                    transaction.insert(&tables.engine.keyspaces.meta, "first", "value").map(Ok::<(), Infallible>)
                });
                stuck.await
            }
        });
        drop(begun.acquire().await.unwrap());
        // From here on every timeout elapses at once.
        tokio::time::pause();
        assert!(matches!(writer.run(put("second")).await, Err(StoreError::Unavailable(_))));
        assert!(!first.is_finished());
        tokio::time::resume();
        gate.add_permits(1);
        assert!(first.await.unwrap().is_ok());
        assert!(writer.run(put("third")).await.is_ok());
        let there = |key: &str| tables.snapshot().contains_key(&tables.engine.keyspaces.meta, key).unwrap();
        assert!(there("first") && !there("second") && there("third"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_write_whose_caller_is_cancelled_changes_nothing() {
        let (_directory, tables, writer) = open();
        in_one_group(&writer, async {
            let mut given_up = Box::pin(writer.run(put("given up")));
            assert!(futures_util::poll!(&mut given_up).is_pending());
            drop(given_up);
            assert!(writer.run(put("behind")).await.is_ok());
        })
        .await;
        let there = |key: &str| tables.snapshot().contains_key(&tables.engine.keyspaces.meta, key).unwrap();
        assert!(there("behind") && !there("given up"));
    }

    #[tokio::test]
    async fn an_engine_that_panicked_is_unavailable_and_is_not_used_again() {
        let (_directory, tables, writer) = open();
        // Poisons a lock that every commit takes.
        let poisoner = Arc::clone(&tables);
        let panicked = std::thread::spawn(move || {
            poisoner.engine.database.keyspace("another", || panic!("as the test wants it")).is_ok()
        });
        assert!(panicked.join().is_err());
        for _ in 0..2 {
            assert!(matches!(writer.run(put("key")).await, Err(StoreError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_row_without_a_key_is_not_written_and_later_writes_succeed() {
        let (_directory, _tables, writer) = open();
        let keyless = writer.run(|tables, transaction| {
            transaction.insert(&tables.engine.keyspaces.meta, "", "value").map(Ok::<_, Infallible>)
        });
        assert!(matches!(keyless.await, Err(StoreError::Corrupt { .. })));
        let none = writer.run(|tables, transaction| {
            transaction.remove(&tables.engine.keyspaces.meta, "");
            transaction.remove(&tables.engine.keyspaces.meta, vec![b'x'; 100_000]);
            Ok(Ok::<_, Infallible>(()))
        });
        assert!(none.await.is_ok());
        assert!(writer.run(put("key")).await.is_ok());
    }

    #[tokio::test]
    async fn a_row_as_long_as_a_page_is_not_written() {
        let (_directory, tables, writer) = open();
        let put = |bytes: usize| {
            writer.run(move |tables, transaction| {
                transaction.insert(&tables.engine.keyspaces.meta, "key", vec![b'x'; bytes]).map(Ok::<(), Infallible>)
            })
        };
        let limit = super::super::transaction::MAX_ROW - "key".len();
        assert!(matches!(put(limit + 1).await, Err(StoreError::Corrupt { .. })));
        assert!(tables.engine.keyspaces.meta.get("key").unwrap().is_none());
        assert!(put(limit).await.is_ok());
    }
}

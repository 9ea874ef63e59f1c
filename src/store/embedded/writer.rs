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
use super::idle::{IdleDetector, WriteQueue};
use super::link_index;
use super::tables::EmbeddedTables;
use super::transaction::Transaction;
use crate::caller::CallerState;
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
    /// Who must still wait when the write begins; `None`: whoever called waits, or does not matter.
    caller: Option<CallerState>,
    reply: oneshot::Sender<Result<Result<R, E>, StoreError>>,
}

impl<R, E, W> WriteJob for CallerWrite<R, E, W>
where
    R: Send,
    E: Send,
    W: FnMut(&EmbeddedTables, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send,
{
    fn begin(&self) -> bool {
        self.caller.as_ref().is_none_or(CallerState::is_waiting) && !self.claimed.swap(true, Ordering::AcqRel)
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

    /// A writer without a thread, for measurements on one thread: its writes wait for [`ManualWriter::commit`].
    pub fn manual(tables: Arc<EmbeddedTables>) -> (Self, ManualWriter) {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        (Self { jobs }, ManualWriter { tables, waiting, health: EngineHealth::Sound })
    }

    /// Runs `write` in a transaction and returns once it is durable.
    ///
    /// `write` makes all its checks before its first change: one that returns `Ok(Err(refusal))` has changed nothing.
    /// It may be called several times; only the last call counts.
    ///
    /// If it does not begin in time, or its caller is cancelled or [waits no longer](CallerState) before it begins, nothing is
    /// changed. Once it has begun, this waits for its outcome.
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
        let caller = CallerState::of_this_call();
        let job = Box::new(CallerWrite { act: write, outcome: None, claimed: Arc::clone(&claimed), caller, reply });
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

/// Commits queued writes when its owner calls it, instead of the writing thread. The store cannot be closed while it exists.
pub struct ManualWriter {
    tables: Arc<EmbeddedTables>,
    waiting: mpsc::Receiver<Box<dyn WriteJob>>,
    health: EngineHealth,
}

impl ManualWriter {
    /// Commits the writes that wait, as one group; returns how many there were.
    pub fn commit(&mut self) -> usize {
        let waiting = std::iter::from_fn(|| self.waiting.try_recv().ok());
        let group: Vec<_> = waiting.filter(|job| job.begin()).collect();
        let count = group.len();
        if count > 0 {
            let mut thread = WriterThread { tables: &self.tables, health: self.health };
            thread.commit_group(group);
            self.health = thread.health;
        }
        count
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
        let mut idle = IdleDetector::default();
        while let Some(job) = waiting.next(|| self.check(&mut idle)) {
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
            self.check(&mut idle);
        }
        if let Err(error) = self.end() {
            tracing::error!(%error, "store: closed with an error; all answered writes are durable");
        }
    }

    fn check(&self, idle: &mut IdleDetector) {
        // Nothing is written to a failed engine.
        if self.health == EngineHealth::Sound {
            idle.check(&self.tables.engine);
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
mod tests;

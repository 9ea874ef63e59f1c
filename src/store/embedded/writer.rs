//! One thread writes: it gathers what waits into one transaction, fsyncs it, and only then answers.
//!
//! So writes are serial (what one checks can't change under it), and many share the price of an fsync.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fjall::{PersistMode, SingleWriterWriteTx as WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::engine::{Engine, engine_error};
use crate::store::StoreError;

/// Writes that may wait before callers are held back. A group of them commits in milliseconds.
const QUEUE: usize = 4096;
/// Writes in one transaction at the most: bounds its memory and how long the first waits for the last.
const GROUP: usize = 1024;
/// The engine blocks a commit while its disk is stuck; callers do not wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// A write: checks, writes into the transaction, and says what to do once it is known whether that is durable.
type Job = Box<dyn FnOnce(&Engine, &mut WriteTransaction<'_>) -> Result<Answer, StoreError> + Send>;
type Answer = Box<dyn FnOnce() + Send>;

/// The way to the writing thread.
#[derive(Clone)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    /// Starts the thread; it ends when every `Writer` is gone and what was asked is done.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(engine: Arc<Engine>) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || run(&engine, waiting))?;
        Ok((Self { jobs }, thread))
    }

    /// Runs `write` in a transaction and answers once it is durable.
    ///
    /// `write` makes all its checks before its first change: one that returns `Ok(Err(refusal))` has changed nothing,
    /// and one that returns `Err` takes back everything that shares its transaction.
    pub async fn run<R, E, W>(&self, write: W) -> Result<Result<R, E>, StoreError>
    where
        R: Send + 'static,
        E: Send + 'static,
        W: FnOnce(&Engine, &mut WriteTransaction<'_>) -> Result<Result<R, E>, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |engine, transaction| {
            let outcome = write(engine, transaction)?;
            Ok(Box::new(move || drop(reply.send(outcome))))
        });
        self.jobs.send(job).await.map_err(|_| closed())?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => Err(StoreError::Unavailable("the write was not committed".into())),
            Err(_) => Err(StoreError::Unavailable("the write took too long".into())),
        }
    }
}

pub fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn run(engine: &Engine, mut waiting: mpsc::Receiver<Job>) {
    let mut group = Vec::with_capacity(GROUP);
    while let Some(job) = waiting.blocking_recv() {
        group.push(job);
        while group.len() < GROUP
            && let Ok(job) = waiting.try_recv()
        {
            group.push(job);
        }
        let committed = catch_unwind(AssertUnwindSafe(|| commit(engine, group.drain(..))));
        match committed {
            Ok(Ok(answers)) => answers.into_iter().for_each(|answer| answer()),
            // Callers whose answer is dropped learn that their write was not committed.
            Ok(Err(error)) => tracing::error!(%error, "store: a group of writes was not committed"),
            Err(_) => tracing::error!("store: a write panicked; its group was not committed"),
        }
    }
}

fn commit(engine: &Engine, group: impl Iterator<Item = Job>) -> Result<Vec<Answer>, StoreError> {
    let mut transaction = engine.database.write_tx().durability(Some(PersistMode::SyncData));
    let answers = group.map(|job| job(engine, &mut transaction)).collect::<Result<Vec<_>, _>>()?;
    transaction.commit().map_err(|error| engine_error(&error))?;
    Ok(answers)
}

//! One thread writes: it gathers what waits into one transaction, fsyncs it, and only then answers.
//!
//! So writes are serial (what one checks can't change under it), and many share the price of an fsync. They do not share
//! each other's failures: where one fails or panics, those before it and those behind it are run again without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::engine::Engine;
use super::known_links;
use super::transaction::Transaction;
use crate::store::StoreError;
use crate::threads::in_background;

/// Writes that may wait before callers are held back. A group of them commits in milliseconds.
const QUEUE: usize = 4096;
/// Writes in one transaction at the most: bounds its memory and how long the first waits for the last.
const GROUP: usize = 1024;
/// The engine blocks a commit while its disk is stuck; callers do not wait for ever until theirs begins.
const PATIENCE: Duration = Duration::from_secs(20);

/// A write that waits for its turn.
trait Job: Send {
    /// Whether to run it: not where its caller has given it up.
    fn begin(&self) -> bool;

    /// Checks, and writes into the transaction. Called again, in a new one, when the transaction was taken back.
    fn run(&mut self, engine: &Engine, transaction: &mut Transaction<'_>) -> Result<(), StoreError>;

    /// Tells the caller whether what the last run did is durable.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Write<R, E, W> {
    act: W,
    outcome: Option<Result<R, E>>,
    /// Set by who comes first: the writer when it begins, or the caller when it gives up.
    claimed: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Result<R, E>, StoreError>>,
}

impl<R, E, W> Job for Write<R, E, W>
where
    R: Send,
    E: Send,
    W: FnMut(&Engine, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send,
{
    fn begin(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    fn run(&mut self, engine: &Engine, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.outcome = Some((self.act)(engine, transaction)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { outcome, reply, .. } = *self;
        // A caller that waits no more is not told.
        drop(reply.send(committed.and_then(|()| outcome.ok_or_else(not_committed))));
    }
}

/// Keeps the writer from beginning a write whose caller is gone.
struct ClaimedOnDrop(Arc<AtomicBool>);

impl Drop for ClaimedOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The way to the writing thread.
#[derive(Clone)]
pub struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl Writer {
    /// Starts the thread. Once every `Writer` is gone it does what was asked, syncs, and ends.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        // Nobody joins it: whoever closes the store waits for the engine to be gone instead, and not for ever.
        let write = move || {
            if run(&engine, waiting) != Health::Sound {
                engine.leave();
            }
        };
        drop(in_background("store-writer", write)?);
        Ok(Self { jobs })
    }

    /// Runs `write` in a transaction and answers once it is durable.
    ///
    /// `write` makes all its checks before its first change: one that returns `Ok(Err(refusal))` has changed nothing. It
    /// may be called several times; only what it does in the last one counts.
    ///
    /// Where it had to wait for too long until it began, or its caller waits no more, nothing of it is done. Once it has begun, what becomes of it is for
    /// the disk to say, and is waited for.
    pub async fn run<R, E, W>(&self, write: W) -> Result<Result<R, E>, StoreError>
    where
        R: Send + 'static,
        E: Send + 'static,
        W: FnMut(&Engine, &mut Transaction<'_>) -> Result<Result<R, E>, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let claimed = Arc::new(AtomicBool::new(false));
        // Whose time is up was told so: what has not begun by then is not to be done behind its back.
        let _given_up = ClaimedOnDrop(Arc::clone(&claimed));
        let job = Box::new(Write { act: write, outcome: None, claimed: Arc::clone(&claimed), reply });
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

pub fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn not_committed() -> StoreError {
    StoreError::Unavailable("the write was not committed".into())
}

fn run(engine: &Engine, mut waiting: mpsc::Receiver<Box<dyn Job>>) -> Health {
    let mut health = Health::Sound;
    while let Some(job) = waiting.blocking_recv() {
        let mut group = vec![job];
        while group.len() < GROUP
            && let Ok(job) = waiting.try_recv()
        {
            group.push(job);
        }
        group.retain(|job| job.begin());
        if group.is_empty() {
            continue;
        }
        commit_group(engine, group, &mut health);
    }
    let ended = if health == Health::Broken { Ok(()) } else { engine.sync().and_then(|()| engine.flush()) };
    // An engine that has failed is not written to.
    let kept = || if health == Health::Sound { known_links::keep(engine) } else { Ok(()) };
    if let Err(error) = ended.and_then(|()| kept()) {
        tracing::error!(%error, "store: closed with an error; all answered writes are durable");
    }
    health
}

/// How the engine does, so that a lasting failure is logged once and not with every write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// The last commit failed.
    Failing,
    /// The engine itself panicked: it is not touched again, for nobody knows what state it is in.
    Broken,
}

/// Why a transaction was taken back.
enum Failure {
    /// For one of its writes.
    Of(usize, StoreError),
    /// It could not be committed; that is logged.
    OfAll,
}

fn commit_group(engine: &Engine, group: Vec<Box<dyn Job>>, health: &mut Health) {
    // A stack: what is left to do, the next on top.
    let mut groups = vec![group];
    while let Some(mut group) = groups.pop() {
        match try_commit(engine, &mut group, health) {
            Ok(()) => group.into_iter().for_each(|job| job.answer(Ok(()))),
            Err(Failure::Of(index, error)) => {
                let behind = group.split_off(index + 1);
                if let Some(failed) = group.pop() {
                    failed.answer(Err(error));
                }
                groups.extend([behind, group].into_iter().filter(|group| !group.is_empty()));
            }
            Err(Failure::OfAll) => group.into_iter().for_each(|job| job.answer(Err(not_committed()))),
        }
    }
}

fn try_commit(engine: &Engine, group: &mut [Box<dyn Job>], health: &mut Health) -> Result<(), Failure> {
    // What is only to be refused must not even be tried: ids of new links would be known that never come to be.
    if *health == Health::Broken || *health == Health::Failing && engine.probe().is_err() {
        return Err(Failure::OfAll);
    }
    let committed = catch_unwind(AssertUnwindSafe(|| {
        let transaction = run_all(engine, group)?;
        Ok(transaction.commit())
    }));
    match committed {
        Ok(Ok(Ok(()))) => {
            *health = Health::Sound;
            Ok(())
        }
        Ok(Ok(Err(error))) => {
            if *health == Health::Sound {
                tracing::error!(%error, "store: can't commit writes");
                *health = Health::Failing;
            }
            Err(Failure::OfAll)
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            tracing::error!("store: the engine panicked; all writes are refused until a restart");
            *health = Health::Broken;
            Err(Failure::OfAll)
        }
    }
}

fn run_all<'a>(engine: &'a Engine, group: &mut [Box<dyn Job>]) -> Result<Transaction<'a>, Failure> {
    let mut transaction = Transaction::begin(engine);
    for (index, job) in group.iter_mut().enumerate() {
        // Caught here and no further out, where nothing of the engine's is held: it is as sound as before.
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(engine, &mut transaction)));
        let ran = ran.unwrap_or_else(|_| {
            tracing::error!("store: a write panicked and was rolled back");
            Err(not_committed())
        });
        ran.map_err(|error| Failure::Of(index, error))?;
    }
    Ok(transaction)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fjall::Readable;
    use tokio::sync::Semaphore;

    use super::*;

    type Outcome = Result<Result<(), Infallible>, StoreError>;

    fn open() -> (tempfile::TempDir, Arc<Engine>, Writer) {
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(&directory.path().join("store"), 1 << 20).unwrap().0);
        let writer = Writer::start(Arc::clone(&engine)).unwrap();
        (directory, engine, writer)
    }

    fn put(key: &'static str) -> impl FnMut(&Engine, &mut Transaction<'_>) -> Outcome + Send + 'static {
        move |engine, transaction| transaction.insert(&engine.tables.meta, key, "value").map(Ok)
    }

    fn panicking(_: &Engine, _: &mut Transaction<'_>) -> Outcome {
        panic!("as the test wants it");
    }

    fn failing(engine: &Engine, transaction: &mut Transaction<'_>) -> Outcome {
        transaction.insert(&engine.tables.meta, "half done", "")?;
        Err(StoreError::Corrupt { table: "test", reason: "as the test wants it".into() })
    }

    /// Keeps the writer busy, so that what is asked meanwhile ends up in one group.
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
            // Polled once, all are in the queue; then the writer may go on.
            let polled = futures_util::poll!(&mut asked);
            assert!(polled.is_pending());
            gate.add_permits(1);
            asked.await;
        };
        let (done, ()) = futures_util::future::join(first, others).await;
        done.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_write_that_fails_or_panics_fails_alone_and_leaves_nothing() {
        let (_directory, engine, writer) = open();
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
        let there = |key: &str| engine.database.snapshot().contains_key(&engine.tables.meta, key).unwrap();
        assert!(there("before") && there("after") && !there("half done"));
        assert!(writer.run(put("later")).await.is_ok());
    }

    #[tokio::test]
    async fn of_a_write_that_is_given_up_nothing_is_done_and_one_that_has_begun_is_waited_for() {
        let (_directory, engine, writer) = open();
        let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (signal, wait, runtime) = (Arc::clone(&begun), Arc::clone(&gate), tokio::runtime::Handle::current());
        let first = tokio::spawn({
            let writer = writer.clone();
            async move {
                let stuck = writer.run(move |engine, transaction| {
                    signal.add_permits(1);
                    drop(runtime.block_on(wait.acquire()).unwrap());
                    transaction.insert(&engine.tables.meta, "first", "value").map(Ok::<(), Infallible>)
                });
                stuck.await
            }
        });
        drop(begun.acquire().await.unwrap());
        // From here on every wait is over at once.
        tokio::time::pause();
        assert!(matches!(writer.run(put("second")).await, Err(StoreError::Unavailable(_))));
        assert!(!first.is_finished());
        tokio::time::resume();
        gate.add_permits(1);
        assert!(first.await.unwrap().is_ok());
        assert!(writer.run(put("third")).await.is_ok());
        let there = |key: &str| engine.database.snapshot().contains_key(&engine.tables.meta, key).unwrap();
        assert!(there("first") && !there("second") && there("third"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn of_a_write_whose_caller_is_gone_nothing_is_done() {
        let (_directory, engine, writer) = open();
        in_one_group(&writer, async {
            let mut given_up = Box::pin(writer.run(put("given up")));
            assert!(futures_util::poll!(&mut given_up).is_pending());
            drop(given_up);
            assert!(writer.run(put("behind")).await.is_ok());
        })
        .await;
        let there = |key: &str| engine.database.snapshot().contains_key(&engine.tables.meta, key).unwrap();
        assert!(there("behind") && !there("given up"));
    }

    #[tokio::test]
    async fn an_engine_that_panicked_answers_unavailable_and_is_not_asked_again() {
        let (_directory, engine, writer) = open();
        // Poisons a lock that every commit takes.
        let poisoner = Arc::clone(&engine);
        let panicked = std::thread::spawn(move || {
            poisoner.database.keyspace("another", || panic!("as the test wants it")).is_ok()
        });
        assert!(panicked.join().is_err());
        for _ in 0..2 {
            assert!(matches!(writer.run(put("key")).await, Err(StoreError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_row_without_a_key_is_not_written_and_the_engine_goes_on() {
        let (_directory, _engine, writer) = open();
        let keyless = writer
            .run(|engine, transaction| transaction.insert(&engine.tables.meta, "", "value").map(Ok::<_, Infallible>));
        assert!(matches!(keyless.await, Err(StoreError::Corrupt { .. })));
        let none = writer.run(|engine, transaction| {
            transaction.remove(&engine.tables.meta, "");
            transaction.remove(&engine.tables.meta, vec![b'x'; 100_000]);
            Ok(Ok::<_, Infallible>(()))
        });
        assert!(none.await.is_ok());
        assert!(writer.run(put("key")).await.is_ok());
    }

    #[tokio::test]
    async fn a_row_as_long_as_a_page_is_not_written() {
        let (_directory, engine, writer) = open();
        let put = |bytes: usize| {
            writer.run(move |engine, transaction| {
                transaction.insert(&engine.tables.meta, "key", vec![b'x'; bytes]).map(Ok::<(), Infallible>)
            })
        };
        let limit = super::super::transaction::MAX_ROW - "key".len();
        assert!(matches!(put(limit + 1).await, Err(StoreError::Corrupt { .. })));
        assert!(engine.tables.meta.get("key").unwrap().is_none());
        assert!(put(limit).await.is_ok());
    }
}

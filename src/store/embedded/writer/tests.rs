use std::convert::Infallible;

use fjall::Readable;
use tokio::sync::Semaphore;

use super::*;
use crate::caller::CallerGuard;

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
async fn a_write_does_not_begin_once_its_request_was_answered() {
    let (_directory, tables, writer) = open();
    let ((waits, waiting), (gone, left)) = (CallerGuard::new(), CallerGuard::new());
    in_one_group(&writer, async {
        // Within another call the outer one counts.
        let within =
            || left.writes_while_waiting(async { waiting.writes_while_waiting(writer.run(put("within"))).await });
        let (mut late, mut within) = (Box::pin(left.writes_while_waiting(writer.run(put("late")))), Box::pin(within()));
        let mut in_time = Box::pin(waiting.writes_while_waiting(writer.run(put("in time"))));
        assert!(futures_util::poll!(&mut late).is_pending());
        assert!(futures_util::poll!(&mut within).is_pending());
        assert!(futures_util::poll!(&mut in_time).is_pending());
        drop(gone);
        let refused = futures_util::future::join(late, within);
        let ((late, within), in_time) = futures_util::future::join(refused, in_time).await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        assert!(matches!(within, Err(StoreError::Unavailable(_))), "{within:?}");
        assert!(in_time.is_ok(), "{in_time:?}");
    })
    .await;
    drop(waits);
    // Others do not depend on it.
    assert!(writer.run(put("other")).await.is_ok());
    let there = |key: &str| tables.snapshot().contains_key(&tables.engine.keyspaces.meta, key).unwrap();
    assert!(there("in time") && there("other") && !there("late") && !there("within"));
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

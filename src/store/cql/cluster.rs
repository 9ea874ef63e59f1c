//! The connection of one process to the cluster, which all tables share.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use scylla::errors::PrepareError;
use scylla::policies::timestamp_generator::TimestampGenerator;
use thiserror::Error;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::datacenters::DatacenterFault;
use super::outcome::CqlError;
use super::session::{Cql, OpenSessionError, ScyllaSettings};
use super::statements::Statements;
use crate::domain::calendar::Timestamp;
use crate::store::StoreError;

/// Concurrent requests of one operation: enough to keep a cluster busy without flooding it.
pub const AT_ONCE: usize = 128;
/// Rows that are read to check whether the cluster answers; none of them exists.
const READY_ROWS: u32 = 16;
/// How long to wait before a request that failed is sent again.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// The longest time to live that clusters take: 20 years.
const LONGEST_LIFE: u64 = 630_720_000;
/// How long to wait before a task that panicked is restarted.
const RESTART_AFTER: Duration = Duration::from_secs(3);

/// Why the store can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Session(#[from] OpenSessionError),
    #[error("the schema is not what this release needs: {0}")]
    Schema(#[from] PrepareError),
    #[error(transparent)]
    Datacenter(#[from] DatacenterFault),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session, its statements, and the id of this process.
pub struct Cluster {
    pub cql: Cql,
    pub statements: Statements,
    /// The id of this run of this node, in its claims and publications.
    pub process: Uuid,
    /// The number of this process's last claim, of links or of deliveries.
    last_claim: AtomicI32,
    closing: AtomicBool,
    /// The row that was read last to check whether the cluster answers.
    last_ready: AtomicU32,
}

impl Cluster {
    pub async fn connect(settings: &ScyllaSettings) -> Result<Self, OpenError> {
        let cql = Cql::connect(settings).await?;
        if let Some(fault) = cql.datacenter_fault().await.map_err(StoreError::from)? {
            return Err(fault.into());
        }
        let statements = Box::pin(Statements::prepare(&cql)).await?;
        Ok(Self {
            cql,
            statements,
            process: Uuid::new_v4(),
            last_claim: AtomicI32::new(0),
            closing: AtomicBool::new(false),
            last_ready: AtomicU32::new(0),
        })
    }

    pub async fn ready(&self) -> Result<(), StoreError> {
        // A different row each time: if some partitions are unreachable, the cluster as a whole is not.
        let number = self.last_ready.fetch_add(1, Ordering::Relaxed) % READY_ROWS;
        self.cql.read_one::<(Option<i64>,)>(&self.statements.ready, (format!("ready {number}"),)).await?;
        Ok(())
    }

    /// Closes the store; returns whether it was closed before.
    pub fn close(&self) -> bool {
        self.closing.swap(true, Ordering::AcqRel)
    }

    pub fn check_open(&self) -> Result<(), StoreError> {
        if self.closing.load(Ordering::Acquire) {
            Err(StoreError::Unavailable("the store is closed".into()))
        } else {
            Ok(())
        }
    }

    /// The time by which the driver stamps its writes.
    pub fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.cql.timestamps.next_timestamp() / 1_000).unwrap_or(0))
    }

    /// How long it is until `end`, in seconds: the time to live of what is kept until then. `None` if that has passed.
    pub fn seconds_until(&self, end: Timestamp) -> Option<i32> {
        let seconds = end.since(self.cql.settings.clock.now()).as_secs().min(LONGEST_LIFE);
        i32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }

    /// Calls `each` for all items, many at a time; stops at the first failure.
    pub async fn all<T, F>(
        &self,
        items: impl IntoIterator<Item = T>,
        each: impl FnMut(T) -> F,
    ) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        stream::iter(items.into_iter().map(Ok)).try_for_each_concurrent(AT_ONCE, each).await
    }

    /// A number that no claim of this process had before.
    pub fn next_claim(&self) -> i32 {
        self.last_claim.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Retries until the cluster answers or the store closes: for operations that must not be left half done.
    pub async fn until_closed<R, F>(&self, ask: impl Fn() -> F + Send) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, CqlError>> + Send,
    {
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(_) => {}
            }
            self.check_open()?;
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }
}

/// Starts a task that runs for as long as the store is open, and restarts it after a panic: without it this node would
/// have no queue until its next start.
pub fn forever<T, F>(part: &Arc<T>, task: fn(Weak<T>) -> F) -> JoinHandle<()>
where
    T: Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let part = Arc::downgrade(part);
    tokio::spawn(async move {
        while let Err(error) = tokio::spawn(task(Weak::clone(&part))).await
            && error.is_panic()
        {
            tracing::error!("a background task of the store restarted after a panic");
            tokio::time::sleep(RESTART_AFTER).await;
        }
    })
}

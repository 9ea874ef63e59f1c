//! The wait between attempts to create a segment while there is no space, and the count of hits lost meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Why a hit was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// Uncounted hits use the journal's whole disk budget. Space is freed when they are counted.
    #[error("the journal's disk budget is full")]
    BudgetFull,
    /// The operating system can't create a segment: the disk is full or broken.
    #[error("can't create a journal file: {}", io::Error::from_raw_os_error(*os_error))]
    Disk {
        /// The system's error number.
        os_error: i32,
    },
}

impl NotRecorded {
    pub(super) fn disk(error: &io::Error) -> Self {
        Self::Disk { os_error: error.raw_os_error().unwrap_or(UNKNOWN_ERROR) }
    }
}

/// `EIO`, for errors without a number.
const UNKNOWN_ERROR: i32 = 5;

/// Whether a system error means that the disk is full, which may change later.
pub(super) fn is_full(os_error: i32) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|full| full.raw_os_error() == os_error)
}

const BUDGET_FULL: i32 = 0;
const NO_WAIT: u64 = 0;

/// Refuses appends for a while after a segment could not be created, so that not every hit tries to create one.
#[derive(Debug)]
pub(super) struct AppendBackoff {
    opened: Instant,
    interval: Duration,
    /// The time of the next attempt, in nanoseconds since `opened`; 0 if there is no wait.
    until: AtomicU64,
    /// The system's error number, or 0 if the disk budget was full.
    cause: AtomicI32,
    /// Whether the last attempt failed.
    failing: AtomicBool,
    not_recorded: AtomicU64,
}

impl AppendBackoff {
    pub fn new(interval: Duration) -> Self {
        Self {
            opened: Instant::now(),
            interval,
            until: AtomicU64::new(NO_WAIT),
            cause: AtomicI32::new(BUDGET_FULL),
            failing: AtomicBool::new(false),
            not_recorded: AtomicU64::new(0),
        }
    }

    /// `Err` during the wait.
    pub fn check(&self) -> Result<(), NotRecorded> {
        let until = self.until.load(Ordering::Relaxed);
        if until == NO_WAIT || until <= nanos(self.opened.elapsed()) {
            return Ok(());
        }
        Err(match self.cause.load(Ordering::Relaxed) {
            BUDGET_FULL => NotRecorded::BudgetFull,
            os_error => NotRecorded::Disk { os_error },
        })
    }

    /// Starts a wait, because a segment could not be created.
    pub fn start(&self, cause: NotRecorded) {
        let number = match cause {
            NotRecorded::BudgetFull => BUDGET_FULL,
            NotRecorded::Disk { os_error } => os_error,
        };
        self.cause.store(number, Ordering::Relaxed);
        self.until.store(nanos(self.opened.elapsed() + self.interval), Ordering::Relaxed);
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(error = %cause, "hits are not recorded");
        }
    }

    /// A segment was created, so hits are recorded again.
    pub fn end(&self) {
        self.retry_at_once();
        if self.failing.swap(false, Ordering::Relaxed) {
            let not_recorded = self.hits_not_recorded();
            tracing::warn!(not_recorded, "hits are recorded again");
        }
    }

    /// Ends the wait: the next append tries to create a segment.
    pub fn retry_at_once(&self) {
        self.until.store(NO_WAIT, Ordering::Relaxed);
    }

    /// Counts a hit that was not recorded.
    pub fn count_hit(&self) {
        self.not_recorded.fetch_add(1, Ordering::Relaxed);
    }

    pub fn hits_not_recorded(&self) -> u64 {
        self.not_recorded.load(Ordering::Relaxed)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! The clock by which entries of the caches become invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the start of the machine. This clock runs on while the process is stopped and while the machine
/// sleeps, so that no entry outlives its time.
#[derive(Clone, Debug, Default)]
pub enum CacheClock {
    #[default]
    OfMachine,
    /// A test moves it.
    Test(Arc<AtomicU64>),
}

impl CacheClock {
    pub fn now(&self) -> u64 {
        match self {
            Self::OfMachine => {
                let now = clock_gettime(ClockId::Boottime);
                let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
                seconds * 1_000 + nanos / 1_000_000
            }
            Self::Test(clock) => clock.load(Ordering::SeqCst),
        }
    }
}

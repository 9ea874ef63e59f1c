//! Log lines of which there may be very many: one in a while, with how many it stands for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets a line of its kind through once in a while, and counts those in between.
pub struct LogLimit {
    every: Duration,
    lines: Mutex<Lines>,
}

struct Lines {
    /// When one was let through last.
    told_at: Option<Instant>,
    /// Since then.
    kept_back: u64,
}

impl LogLimit {
    pub const fn new(every: Duration) -> Self {
        Self { every, lines: Mutex::new(Lines { told_at: None, kept_back: 0 }) }
    }

    /// Whether to write a line now: then it stands for so many, itself and those kept back since the one before.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        // Nothing panics while this lock is held.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.told_at.is_some_and(|told_at| now.saturating_duration_since(told_at) < self.every) {
            lines.kept_back += 1;
            return None;
        }
        lines.told_at = Some(now);
        Some(std::mem::take(&mut lines.kept_back) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_while_tells_how_many_there_were() {
        let (limit, began) = (LogLimit::new(Duration::from_secs(1)), Instant::now());
        let at = |millis| limit.admit_at(began + Duration::from_millis(millis));
        assert_eq!([at(0), at(1), at(999), at(1_000), at(1_001)], [Some(1), None, None, Some(3), None]);
        assert_eq!([at(60_000), at(61_000)], [Some(2), Some(1)]);
    }
}

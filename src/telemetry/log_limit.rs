//! Rate limit for frequent log lines: one line per interval, with the number of lines that it represents.

use crate::locks::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Admits a line once per interval, and counts the lines in between.
pub struct LogLimit {
    every: Duration,
    lines: Mutex<Lines>,
}

struct Lines {
    /// When a line was last admitted.
    admitted_at: Option<Instant>,
    /// Lines that were suppressed since then.
    suppressed: u64,
}

impl LogLimit {
    pub const fn new(every: Duration) -> Self {
        Self { every, lines: Mutex::new(Lines { admitted_at: None, suppressed: 0 }) }
    }

    /// Whether to write a line now. Returns the number of lines that it represents: itself and the suppressed ones
    /// before it.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut lines = lock(&self.lines);
        if lines.admitted_at.is_some_and(|at| now.saturating_duration_since(at) < self.every) {
            lines.suppressed += 1;
            return None;
        }
        lines.admitted_at = Some(now);
        Some(std::mem::take(&mut lines.suppressed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_interval_has_the_number_of_lines() {
        let (limit, began) = (LogLimit::new(Duration::from_secs(1)), Instant::now());
        let at = |millis| limit.admit_at(began + Duration::from_millis(millis));
        assert_eq!([at(0), at(1), at(999), at(1_000), at(1_001)], [Some(1), None, None, Some(3), None]);
        assert_eq!([at(60_000), at(61_000)], [Some(2), Some(1)]);
    }
}

//! Log lines about something that fails repeatedly: one line when an outage begins, one a minute while it lasts, one
//! when it ends.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The minimum interval between two lines about failures, even if outages repeat.
const EVERY: Duration = Duration::from_mins(1);

/// Logs an outage and its end.
pub struct OutageLog {
    /// The messages for failures, and for the end of the outage.
    fails: &'static str,
    is_over: &'static str,
    outage: Option<Outage>,
    logged_at: Option<Instant>,
}

struct Outage {
    began: Instant,
    failures: u64,
    is_logged: bool,
}

impl OutageLog {
    pub const fn new(fails: &'static str, is_over: &'static str) -> Self {
        Self { fails, is_over, outage: None, logged_at: None }
    }

    pub fn failed(&mut self, error: &dyn Display) {
        if let Some(failures) = self.failed_at(Instant::now()) {
            tracing::warn!(%error, failures, "{}", self.fails);
        }
    }

    pub fn succeeded(&mut self) {
        if let Some((failures, took)) = self.succeeded_at(Instant::now()) {
            tracing::info!(failures, ?took, "{}", self.is_over);
        }
    }

    /// The number of failures that the next line represents, if a line is due.
    fn failed_at(&mut self, now: Instant) -> Option<u64> {
        let outage = self.outage.get_or_insert(Outage { began: now, failures: 0, is_logged: false });
        outage.failures += 1;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < EVERY) {
            return None;
        }
        (outage.is_logged, self.logged_at) = (true, Some(now));
        Some(outage.failures)
    }

    /// The end of an outage that was logged.
    fn succeeded_at(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let outage = self.outage.take().filter(|outage| outage.is_logged)?;
        Some((outage.failures, now.saturating_duration_since(outage.began)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_ends() {
        let (mut log, began) = (OutageLog::new("it fails", "it is over"), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(log.succeeded_at(began), None, "there was none");
        assert_eq!([0, 1, 59, 60, 61].map(|time| log.failed_at(at(time))), [Some(1), None, None, Some(4), None]);
        assert_eq!(log.succeeded_at(at(70)), Some((5, Duration::from_secs(70))));
        assert_eq!(log.succeeded_at(at(71)), None, "logged once");
        // Of outages that begin repeatedly, not each begin and end is logged.
        assert_eq!((log.failed_at(at(72)), log.succeeded_at(at(73))), (None, None));
        assert_eq!((log.failed_at(at(130)), log.succeeded_at(at(131))), (Some(1), Some((1, Duration::from_secs(1)))));
    }
}

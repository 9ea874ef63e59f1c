//! Log lines of something that is asked again and again while it does not answer: one when that begins, one a minute while it
//! lasts, one when it is over.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// At most one line of a failure in this time, however often it begins anew.
const EVERY: Duration = Duration::from_mins(1);

/// Tells of an outage, and of its end.
pub struct OutageLog {
    /// What fails, and what is said when it no longer does.
    fails: &'static str,
    is_over: &'static str,
    outage: Option<Outage>,
    told_at: Option<Instant>,
}

struct Outage {
    began: Instant,
    failures: u64,
    is_told: bool,
}

impl OutageLog {
    pub const fn new(fails: &'static str, is_over: &'static str) -> Self {
        Self { fails, is_over, outage: None, told_at: None }
    }

    /// It has failed.
    pub fn failed(&mut self, error: &dyn Display) {
        if let Some(failures) = self.failed_at(Instant::now()) {
            tracing::warn!(%error, failures, "{}", self.fails);
        }
    }

    /// It has not failed.
    pub fn succeeded(&mut self) {
        if let Some((failures, took)) = self.succeeded_at(Instant::now()) {
            tracing::info!(failures, ?took, "{}", self.is_over);
        }
    }

    /// How many failures the line stands for that is to be written, if one is.
    fn failed_at(&mut self, now: Instant) -> Option<u64> {
        let outage = self.outage.get_or_insert(Outage { began: now, failures: 0, is_told: false });
        outage.failures += 1;
        if self.told_at.is_some_and(|told_at| now.saturating_duration_since(told_at) < EVERY) {
            return None;
        }
        (outage.is_told, self.told_at) = (true, Some(now));
        Some(outage.failures)
    }

    /// The end of an outage of which a line was written.
    fn succeeded_at(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let outage = self.outage.take().filter(|outage| outage.is_told)?;
        Some((outage.failures, now.saturating_duration_since(outage.began)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_when_it_begins_once_a_minute_and_when_it_is_over() {
        let (mut log, began) = (OutageLog::new("it fails", "it is over"), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(log.succeeded_at(began), None, "there was none");
        assert_eq!([0, 1, 59, 60, 61].map(|time| log.failed_at(at(time))), [Some(1), None, None, Some(4), None]);
        assert_eq!(log.succeeded_at(at(70)), Some((5, Duration::from_secs(70))));
        assert_eq!(log.succeeded_at(at(71)), None, "told once");
        // One that begins again and again is not told each time, nor is its end.
        assert_eq!((log.failed_at(at(72)), log.succeeded_at(at(73))), (None, None));
        assert_eq!((log.failed_at(at(130)), log.succeeded_at(at(131))), (Some(1), Some((1, Duration::from_secs(1)))));
    }
}

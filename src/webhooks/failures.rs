//! Tells of tries that fail: one line a minute and host, with how many there were.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::flow::Host;

/// What one line stands for at the least.
const EVERY: Duration = Duration::from_mins(1);
/// How often it is looked whether a line is due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Hosts that are told one by one; beyond these, all others share a line.
const MOST_HOSTS: usize = 1_024;
const OTHERS: &str = "other hosts";

/// A line to be written.
#[derive(Debug, PartialEq, Eq)]
struct FailureLine {
    host: Host,
    failures: u64,
    /// The last reason.
    error: String,
}

impl FailureLine {
    fn write(&self) {
        tracing::warn!(host = &*self.host, failures = self.failures, error = self.error, "webhooks fail");
    }
}

/// Failures of a host since its last line.
struct Untold {
    told_at: Instant,
    failures: u64,
    error: String,
}

/// The hosts whose tries have failed within the last minutes. The first failure of one is told at once.
#[derive(Default)]
pub struct FailureLog(Mutex<HashMap<Host, Untold>>);

impl FailureLog {
    fn hosts(&self) -> MutexGuard<'_, HashMap<Host, Untold>> {
        // Nothing in here is left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A try has failed.
    pub fn failed(&self, host: &Host, error: &str) {
        let line = self.failed_at(Instant::now(), host, error);
        line.iter().for_each(FailureLine::write);
    }

    /// Tells what is not told yet, for ever.
    pub async fn keep_telling(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.due_at(Instant::now()).iter().for_each(FailureLine::write);
        }
    }

    /// Tells all that is not told yet, at the end.
    pub fn tell_all(&self) {
        self.due_at(Instant::now() + EVERY).iter().for_each(FailureLine::write);
    }

    fn failed_at(&self, now: Instant, host: &Host, error: &str) -> Option<FailureLine> {
        let mut hosts = self.hosts();
        let host = if hosts.len() < MOST_HOSTS || hosts.contains_key(host) { Arc::clone(host) } else { OTHERS.into() };
        if let Some(untold) = hosts.get_mut(&host) {
            untold.failures += 1;
            error.clone_into(&mut untold.error);
            return None;
        }
        hosts.insert(Arc::clone(&host), Untold { told_at: now, failures: 0, error: String::new() });
        Some(FailureLine { host, failures: 1, error: error.to_owned() })
    }

    /// Lines that are due. A host that has not failed since its last one is forgotten.
    fn due_at(&self, now: Instant) -> Vec<FailureLine> {
        let mut lines = Vec::new();
        self.hosts().retain(|host, untold| {
            if now.saturating_duration_since(untold.told_at) < EVERY {
                return true;
            }
            let failures = std::mem::take(&mut untold.failures);
            if failures > 0 {
                untold.told_at = now;
                lines.push(FailureLine { host: Arc::clone(host), failures, error: std::mem::take(&mut untold.error) });
            }
            failures > 0
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(host: &str, failures: u64, error: &str) -> FailureLine {
        FailureLine { host: host.into(), failures, error: error.to_owned() }
    }

    #[test]
    fn a_host_that_fails_is_told_at_once_and_then_once_a_minute() {
        let (log, began) = (FailureLog::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let [one, two] = ["a:80", "b:443"].map(Host::from);
        assert_eq!(log.failed_at(at(0), &one, "http 500"), Some(line("a:80", 1, "http 500")));
        assert_eq!(log.failed_at(at(1), &one, "http 500"), None);
        assert_eq!(log.failed_at(at(2), &one, "timed out"), None);
        assert_eq!(log.failed_at(at(30), &two, "dns"), Some(line("b:443", 1, "dns")));
        assert_eq!(log.due_at(at(59)), []);
        assert_eq!(log.due_at(at(60)), [line("a:80", 2, "timed out")]);
        assert_eq!(log.due_at(at(90)), [], "the other has not failed since");
        assert_eq!(log.failed_at(at(95), &two, "dns"), Some(line("b:443", 1, "dns")));
        assert_eq!(log.failed_at(at(96), &one, "tls"), None);
        assert_eq!(log.due_at(at(96) + EVERY), [line("a:80", 1, "tls")], "at the end all is told");
    }

    #[test]
    fn of_very_many_hosts_most_share_a_line() {
        let (log, now) = (FailureLog::default(), Instant::now());
        let hosts = (0..MOST_HOSTS + 500).map(|host| Host::from(host.to_string()));
        let lines = hosts.filter_map(|host| log.failed_at(now, &host, "timed out")).count();
        assert_eq!(lines, MOST_HOSTS + 1);
        assert_eq!(log.due_at(now + EVERY), [line(OTHERS, 499, "timed out")]);
        assert_eq!(log.hosts().len(), 1);
    }
}

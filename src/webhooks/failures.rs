//! Logs failed attempts: one line for each host and minute, with the number of failures. Two bounds keep a key with ever-new hosts
//! from filling the log: a number of hosts for each key, and a number of hosts in all.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::flow::{Flow, Host};
use crate::domain::key::KeyId;
use crate::locks::lock;

/// The shortest time between two lines of the same host or key.
const EVERY: Duration = Duration::from_mins(1);
/// How often to look for lines that are due.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Hosts with lines of their own, of one key. The further ones share a line of the key.
const MOST_HOSTS_OF_KEY: usize = 20;
/// Hosts with lines of their own, of all keys. The further ones share a line.
const MOST_HOSTS: usize = 1_024;
/// Hosts that are remembered to count the further hosts of keys. Beyond them the counts are too low.
const MOST_FURTHER_HOSTS: usize = 8_192;
const OTHERS: &str = "other hosts";

/// A line to be written.
#[derive(Debug, PartialEq, Eq)]
enum FailureLine {
    /// The last of the errors is shown.
    Host {
        host: Host,
        failures: u64,
        error: String,
    },
    FurtherHosts {
        key: KeyId,
        hosts: usize,
        failures: u64,
        error: String,
    },
}

impl FailureLine {
    fn write(&self) {
        match self {
            Self::Host { host, failures, error } => {
                tracing::warn!(host = &**host, failures, error, "webhooks fail");
            }
            Self::FurtherHosts { key, hosts, failures, error } => {
                tracing::warn!(%key, hosts, failures, error, "webhooks of a key fail at further hosts");
            }
        }
    }
}

/// Failures of a host since its last line.
struct HostFailures {
    /// The key whose attempt failed first; `None` for the line that hosts share.
    key: Option<KeyId>,
    logged_at: Instant,
    failures: u64,
    error: String,
}

/// The failures of a key whose hosts are logged.
#[derive(Default)]
struct KeyFailures {
    /// How many of its hosts have lines of their own.
    logged_hosts: usize,
    further: Option<FurtherHosts>,
}

/// Failures of a key since its last line, at hosts that have no lines of their own.
struct FurtherHosts {
    since: Instant,
    hosts: HashSet<Host>,
    failures: u64,
    error: String,
}

#[derive(Default)]
struct Failures {
    hosts: HashMap<Host, HostFailures>,
    keys: HashMap<KeyId, KeyFailures>,
    /// How many further hosts the keys have.
    further_hosts: usize,
}

/// The hosts whose attempts failed within the last minutes. The first failure of a host is logged at once.
#[derive(Default)]
pub struct FailureLog(Mutex<Failures>);

impl FailureLog {
    fn failures(&self) -> MutexGuard<'_, Failures> {
        lock(&self.0)
    }

    /// Counts and logs a failed attempt.
    pub fn failed(&self, flow: &Flow, error: &str) {
        let line = self.failures().add(Instant::now(), flow, error);
        line.iter().for_each(FailureLine::write);
    }

    /// Writes the lines that become due, for ever.
    pub async fn write_due_lines(&self) {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            self.due_at(Instant::now()).iter().for_each(FailureLine::write);
        }
    }

    /// Writes lines for all failures that are not logged yet, at the end of the process.
    pub fn write_all_lines(&self) {
        self.due_at(Instant::now() + EVERY).iter().for_each(FailureLine::write);
    }

    fn due_at(&self, now: Instant) -> Vec<FailureLine> {
        self.failures().take_due(now)
    }
}

impl Failures {
    /// Counts a failure; returns a line if it is the first one of its host.
    fn add(&mut self, now: Instant, flow: &Flow, error: &str) -> Option<FailureLine> {
        let (mut key, mut host) = (Some(flow.owner), Arc::clone(&flow.host));
        if !self.hosts.contains_key(&host) {
            if self.keys.get(&flow.owner).is_some_and(|key| key.logged_hosts >= MOST_HOSTS_OF_KEY) {
                self.add_further(now, flow, error);
                return None;
            }
            if self.hosts.len() >= MOST_HOSTS {
                (key, host) = (None, OTHERS.into());
            }
        }
        if let Some(known) = self.hosts.get_mut(&host) {
            known.failures += 1;
            error.clone_into(&mut known.error);
            return None;
        }
        if let Some(key) = key {
            self.keys.entry(key).or_default().logged_hosts += 1;
        }
        let nothing_yet = HostFailures { key, logged_at: now, failures: 0, error: String::new() };
        self.hosts.insert(Arc::clone(&host), nothing_yet);
        Some(FailureLine::Host { host, failures: 1, error: error.to_owned() })
    }

    fn add_further(&mut self, now: Instant, flow: &Flow, error: &str) {
        let new = || FurtherHosts { since: now, hosts: HashSet::new(), failures: 0, error: String::new() };
        let further = self.keys.entry(flow.owner).or_default().further.get_or_insert_with(new);
        further.failures += 1;
        error.clone_into(&mut further.error);
        if self.further_hosts < MOST_FURTHER_HOSTS && further.hosts.insert(Arc::clone(&flow.host)) {
            self.further_hosts += 1;
        }
    }

    /// Returns the lines that are due. Hosts and keys without a failure since their last lines are forgotten.
    fn take_due(&mut self, now: Instant) -> Vec<FailureLine> {
        let is_due = |since: Instant| now.saturating_duration_since(since) >= EVERY;
        let Self { hosts, keys, further_hosts } = self;
        let mut lines = Vec::new();
        hosts.retain(|host, known| {
            if !is_due(known.logged_at) {
                return true;
            }
            let failures = std::mem::take(&mut known.failures);
            if failures > 0 {
                known.logged_at = now;
                let error = std::mem::take(&mut known.error);
                lines.push(FailureLine::Host { host: Arc::clone(host), failures, error });
            } else if let Some(key) = known.key.and_then(|key| keys.get_mut(&key)) {
                key.logged_hosts -= 1;
            }
            failures > 0
        });
        keys.retain(|key, known| {
            if let Some(FurtherHosts { hosts, failures, error, .. }) =
                known.further.take_if(|further| is_due(further.since))
            {
                *further_hosts -= hosts.len();
                lines.push(FailureLine::FurtherHosts { key: *key, hosts: hosts.len(), failures, error });
            }
            known.logged_hosts > 0 || known.further.is_some()
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn line(host: &str, failures: u64, error: &str) -> FailureLine {
        FailureLine::Host { host: host.into(), failures, error: error.to_owned() }
    }

    fn flow(key: usize, host: &str) -> Flow {
        Flow { owner: KeyId(Uuid::from_u128(key as u128)), host: host.into() }
    }

    #[test]
    fn a_host_that_fails_is_logged_at_once_and_then_once_a_minute() {
        let (log, began) = (FailureLog::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let failed = |seconds, flow, error| log.failures().add(at(seconds), flow, error);
        let [one, two] = ["a:80", "b:443"].map(|host| flow(1, host));
        assert_eq!(failed(0, &one, "http 500"), Some(line("a:80", 1, "http 500")));
        assert_eq!(failed(1, &one, "http 500"), None);
        assert_eq!(failed(2, &one, "timed out"), None);
        assert_eq!(failed(30, &two, "dns"), Some(line("b:443", 1, "dns")));
        assert_eq!(log.due_at(at(59)), []);
        assert_eq!(log.due_at(at(60)), [line("a:80", 2, "timed out")]);
        assert_eq!(log.due_at(at(90)), [], "the other has not failed since");
        assert_eq!(failed(95, &two, "dns"), Some(line("b:443", 1, "dns")));
        assert_eq!(failed(96, &one, "tls"), None);
        assert_eq!(log.due_at(at(96) + EVERY), [line("a:80", 1, "tls")], "at the end all are logged");
    }

    #[test]
    fn of_very_many_hosts_most_share_a_line() {
        let (log, now) = (FailureLog::default(), Instant::now());
        let flows = (0..MOST_HOSTS + 500).map(|number| flow(number / MOST_HOSTS_OF_KEY, &number.to_string()));
        let lines = flows.filter_map(|flow| log.failures().add(now, &flow, "timed out")).count();
        assert_eq!(lines, MOST_HOSTS + 1);
        assert_eq!(log.due_at(now + EVERY), [line(OTHERS, 499, "timed out")]);
        assert_eq!(log.failures().hosts.len(), 1);
    }

    #[test]
    fn a_key_with_ever_new_hosts_has_a_bounded_number_of_lines_a_minute() {
        let (log, began) = (FailureLog::default(), Instant::now());
        let mut lines: Vec<(u64, FailureLine)> = Vec::new();
        for second in 0..600 {
            let now = began + Duration::from_secs(second);
            for host in 0..10 {
                let failed = |host: &str| log.failures().add(now, &flow(1, host), "timed out");
                lines.extend(failed(&format!("{second}-{host}")).map(|line| (second, line)));
                lines.extend(failed(&format!("{host}")).map(|line| (second, line)));
            }
            lines.extend(log.due_at(now).into_iter().map(|line| (second, line)));
        }
        let most = (0..540).map(|from| lines.iter().filter(|(at, _)| (from..from + 60).contains(at)).count()).max();
        assert_eq!(most, Some(MOST_HOSTS_OF_KEY + 1));
        let of_key = |(_, line): &(u64, FailureLine)| match line {
            FailureLine::FurtherHosts { hosts, failures, .. } => Some((*hosts as u64, *failures)),
            FailureLine::Host { .. } => None,
        };
        let of_key: Vec<_> = lines.iter().filter_map(of_key).collect();
        assert_eq!(of_key.len(), 9, "one a minute");
        assert!(of_key.iter().all(|(hosts, failures)| *hosts >= 500 && failures >= hosts), "{of_key:?}");

        // Another key has lines of its own, and at the end nothing is remembered.
        let now = began + Duration::from_mins(10);
        assert_eq!(log.failures().add(now, &flow(2, "x"), "dns"), Some(line("x", 1, "dns")));
        let logged: u64 = lines.iter().map(|(_, line)| failures_of(line)).sum();
        let last: u64 = log.due_at(now + EVERY).iter().map(failures_of).sum();
        assert_eq!(logged + last, 600 * 20, "all failures are logged");
        log.due_at(now + 2 * EVERY);
        let failures = log.failures();
        assert_eq!((failures.hosts.len(), failures.keys.len(), failures.further_hosts), (0, 0, 0));
    }

    fn failures_of(line: &FailureLine) -> u64 {
        match line {
            FailureLine::Host { failures, .. } | FailureLine::FurtherHosts { failures, .. } => *failures,
        }
    }
}

//! One contestant under one closed-loop load: a column of the contest.

use std::{fmt, path::PathBuf};

use loadtests::{
    closed_loop::{self, CONNECTIONS},
    measure::Figures,
    operator,
    requests::{Load, MIXED_EVERY, Requests},
    server::Server,
    way::Way,
    wrk,
};

use super::files::Files;

/// How all of the answers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Redirects; those of the program are in its counters, each once.
    Redirect,
    NotFound,
    /// Refused, but for what the limit lets in.
    Limited,
    /// Redirects, and one request in [`MIXED_EVERY`] to the API.
    Mixed,
    /// 200, and none of a redirect's counters moves.
    Document,
    /// 200 for each, and as many links more.
    Created,
}

/// Who sends the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    Own,
    Wrk,
}

/// What is measured.
pub struct Cell<'a> {
    pub title: String,
    pub way: Way,
    pub server: &'a Server,
    pub load: Load,
    pub generator: Generator,
    pub outcome: Outcome,
    /// Each request comes over a connection of its own.
    pub closing: bool,
    /// Where the files of the server's store are at the beginning, if that matters.
    pub files: Option<(PathBuf, Files)>,
}

/// One run of a cell, or the runs of a round combined.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Microseconds of CPU of all the server did for a request, until it was at rest again.
    pub cpu: f64,
    pub per_second: f64,
    /// p50, p99, p99.9 in milliseconds.
    pub percentiles: [f64; 3],
    /// MiB after the run, and the highest so far.
    pub resident: f64,
    pub peak: f64,
    /// CPU time over the time of the run: 1 is a core that had no rest.
    pub busy: f64,
    /// The same of the load generator: where it is at 1 and the server is not, the throughput is the generator's.
    pub generator_busy: f64,
    /// Whether files that were to be in memory were locked there, so that the kernel dropped none.
    pub locked: bool,
}

impl Run {
    /// Combines runs of the same length: CPU and rates of all, the median of each percentile, the memory of the last.
    pub fn of(pieces: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| pieces.iter().map(of).sum::<f64>() / pieces.len() as f64;
        Self {
            cpu: mean(|run| run.cpu * run.per_second) / mean(|run| run.per_second),
            per_second: mean(|run| run.per_second),
            percentiles: std::array::from_fn(|at| Figures::of(pieces, |run| run.percentiles[at]).median()),
            busy: mean(|run| run.busy),
            generator_busy: mean(|run| run.generator_busy),
            locked: pieces.iter().all(|run| run.locked),
            ..*pieces.last().unwrap()
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} µs, {:.0}/s, p99 {:.2} ms", self.cpu, self.per_second, self.percentiles[1])
    }
}

impl Cell<'_> {
    /// Measures; `Err` where what was counted can't be right. The server has nothing left to do at the end.
    pub fn run(&self, seconds: u32, number: u32) -> Result<Run, String> {
        let (server, operator) = (self.server, self.server.operator.as_ref());
        let locked = self.files.as_ref().and_then(|(store, files)| files.bring(store));
        let counts = operator.map(operator::Operator::counts);
        let (connected, cpu) = (connections_accepted(), server.cpu());
        // Ids go on where the run before can't have come.
        let (address, first) = (server.address, u64::from(number) * 382_000);
        let answered = match self.generator {
            Generator::Own => closed_loop::run(self.way, address, &self.load, seconds, first, self.closing),
            Generator::Wrk => wrk::run(self.way, address, &self.load, seconds, first),
        };
        let accepted = connections_accepted() - connected;
        server.rest()?;
        let cpu = server.cpu() - cpu;
        let failed = |what: &str| Err(format!("{}: {what}: {answered:?}", self.title));
        if answered.socket_errors > 0 {
            return failed("connections failed");
        }
        let refused = match self.outcome {
            Outcome::Redirect | Outcome::Mixed | Outcome::Document | Outcome::Created => answered.refused == 0,
            Outcome::NotFound => answered.refused == answered.requests,
            Outcome::Limited => answered.refused * 100 >= answered.requests * 99,
        };
        if !refused {
            return failed("answers with another status");
        }
        if self.closing && accepted < answered.requests {
            return failed(&format!("only {accepted} connections were accepted"));
        }
        if let (Some(operator), Some(before)) = (operator, counts) {
            let counts = operator.counts().since(before);
            // A generator leaves at most one request of each connection unanswered, or its answer unread.
            let as_answered = |count: u64| (answered.requests..=answered.requests + CONNECTIONS).contains(&count);
            let redirects = counts.found + counts.not_found + counts.limited;
            let most = answered.requests + CONNECTIONS;
            let to_api = |requests| Requests::hits_with(MIXED_EVERY, requests);
            let mixed = answered.requests - to_api(most)..=most - to_api(answered.requests);
            let adds_up = counts.hits == counts.found
                && match self.outcome {
                    Outcome::Redirect => as_answered(counts.found) && redirects == counts.found,
                    Outcome::Mixed => mixed.contains(&counts.found) && redirects == counts.found,
                    Outcome::NotFound => as_answered(counts.not_found) && redirects == counts.not_found,
                    Outcome::Limited => as_answered(redirects) && counts.not_found == 0,
                    Outcome::Document => redirects == 0,
                    Outcome::Created => as_answered(counts.links),
                };
            if !adds_up {
                return failed(&format!("counts that do not add up: {counts:?}"));
            }
        }
        Ok(Run {
            cpu: cpu as f64 / answered.requests as f64,
            per_second: answered.requests as f64 / answered.micros as f64 * 1e6,
            percentiles: answered.percentiles.map(|micros| micros / 1e3),
            resident: server.resident_mib("VmRSS"),
            peak: server.resident_mib("VmHWM"),
            busy: cpu as f64 / answered.micros as f64,
            generator_busy: answered.own_cpu as f64 / answered.micros as f64,
            locked: locked.is_some(),
        })
    }
}

/// Connections that this machine has accepted since its start.
fn connections_accepted() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "PassiveOpens").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

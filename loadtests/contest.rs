//! The contest: the program's redirects beside nginx's, and what else it does under load.
//!
//! ```text
//! loadtests/run [SCENARIO…] [--rounds N] [--seconds N] [--links N] [--out FILE] [--program PATH]
//! ```
//!
//! Starts every contestant on loopback, loads them by turns, and writes `loadtests/results/<date>-contest.md` with plots
//! beside it. Bounds that are missed are told in the report; the run fails, without a report, where its figures can't be
//! trusted: a count that does not add up, an error, rounds that lie too far apart or are too few, or a late load generator.
//!
//! A failed operation ends the program: `unwrap` is right here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a measuring program: it stops at the first fault, and its numbers are small"
)]

#[path = "contest/analytics.rs"]
mod analytics;
#[path = "contest/block.rs"]
mod block;
#[path = "contest/cell.rs"]
mod cell;
#[path = "contest/creation.rs"]
mod creation;
#[path = "micro/store_engines/creations.rs"]
#[allow(dead_code, reason = "shared")]
mod creations;
#[path = "micro/store_engines/data.rs"]
#[allow(dead_code, reason = "shared")]
mod data;
#[path = "contest/deliveries.rs"]
mod deliveries;
#[path = "micro/store_engines/engines.rs"]
#[allow(dead_code, clippy::trivially_copy_pass_by_ref, reason = "shared")]
mod engines;
#[path = "contest/files.rs"]
mod files;
#[path = "contest/head.rs"]
mod head;
#[path = "contest/http.rs"]
mod http;
#[path = "contest/latency.rs"]
mod latency;
#[path = "webhooks/measure.rs"]
#[allow(dead_code, reason = "shared")]
mod measure;
#[path = "contest/nginx.rs"]
mod nginx;
#[path = "contest/open_loop.rs"]
mod open_loop;
#[path = "contest/plot.rs"]
#[allow(dead_code, reason = "shared")]
mod plot;
#[path = "webhooks/receiver.rs"]
#[allow(dead_code, reason = "shared")]
mod receiver;
#[path = "contest/redirects.rs"]
mod redirects;
#[path = "contest/report.rs"]
mod report;
#[path = "contest/requests.rs"]
mod requests;
#[path = "contest/seed.rs"]
mod seed;
#[path = "contest/server.rs"]
mod server;
#[path = "contest/signpost.rs"]
mod signpost;
#[path = "contest/way.rs"]
mod way;
#[path = "contest/wrk.rs"]
mod wrk;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, ValueEnum};
use report::Report;
use requests::Requests;
use seed::Seed;
use signpost::Program;
use way::Way;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The hot redirect, server and load generator on a core each; always measured, for others are compared with it.
    Hot,
    /// The hot redirect as people run servers.
    Unpinned,
    /// Redirects and, on the same connections, one API request in twenty.
    Mixed,
    /// Unknown ids.
    NotFound,
    /// One client over its limit.
    Limited,
    /// Redirects of many links, a fifth of the look-ups in cache.
    Wide,
    /// A connection for each request.
    Connections,
    /// QR codes, PNG and SVG.
    Qr,
    /// Latency of the hot redirect at a fixed rate.
    Latency,
    /// Durable creations at 64 in flight, beside the bare engine's.
    Creation,
    /// Analytics of links with many hits.
    Analytics,
    /// Redirects while 5,000 webhooks a second are delivered.
    Deliveries,
}

/// Redirects beside nginx's, and what else the program does under load.
#[derive(Debug, Parser)]
#[command(name = "loadtests/run")]
pub struct Options {
    /// What to measure; all of it when none is named.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// Rounds, in which all contestants have their turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each is loaded in a round.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Links of the wide redirect. Their store is filled once and kept under target/.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    links: u64,
    /// Where the report goes; plots go beside it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The program to measure, instead of the one that was just built.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_signpost"))]
    program: PathBuf,
    /// Report even where the figures can't be trusted, or rounds are fewer than five, and say so.
    #[arg(long)]
    even_if_noisy: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Fewer say nothing of how far they lie apart.
const FEWEST_ROUNDS: u32 = 5;

/// A directory for what contestants keep; it is removed when it is dropped.
pub struct Home(pub PathBuf);

impl Home {
    /// Under `target`, which is on the disk that the sources are on.
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("contest-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let kind = measure::file_system(&path);
        assert!(kind != "tmpfs", "{} is in memory: nothing durable can be measured there", path.display());
        Self(path)
    }

    /// A directory of its own for one contestant.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name.replace([' ', ','], "-"));
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// What every scenario needs.
pub struct Contest {
    pub options: Options,
    pub program: Program,
    pub home: Home,
}

impl Contest {
    fn wants(&self, scenario: Scenario) -> bool {
        self.options.scenarios.is_empty() || self.options.scenarios.contains(&scenario)
    }

    /// A directory with a store that has the hot links.
    fn hot_links(&self, name: &str) -> PathBuf {
        let home = self.home.directory(&format!("signpost-{name}"));
        seed::fill(&self.program, &home, &Seed { links: requests::HOT_LINKS, all_hit: false, past: &[] });
        home
    }

    /// Where loads are written.
    fn requests(&self) -> Requests {
        Requests(self.home.directory("loads"))
    }

    /// A figure that can't be trusted ends the run, unless it was told to go on; then the report says so.
    fn doubt(&self, report: &mut Report, check: Result<(), String>) -> Result<(), String> {
        match check {
            Err(reason) if self.options.even_if_noisy => {
                eprintln!("not to be trusted: {reason}");
                report.doubts.push(reason);
                Ok(())
            }
            check => check,
        }
    }

    fn run(&self, report: &mut Report) -> Result<(), String> {
        let rounds = self.options.rounds;
        let few = || format!("{rounds} rounds are fewer than {FEWEST_ROUNDS}");
        self.doubt(report, (rounds >= FEWEST_ROUNDS).then_some(()).ok_or_else(few))?;
        let field = redirects::Field::start(self, Way::Pinned);
        let block = redirects::pinned(self, &field, report)?;
        if self.wants(Scenario::Latency) {
            latency::measure(self, &field, &block, report)?;
        }
        drop(field);
        if self.wants(Scenario::Unpinned) {
            redirects::unpinned(self, report)?;
        }
        if self.wants(Scenario::Creation) {
            creation::measure(self, report)?;
        }
        if self.wants(Scenario::Analytics) {
            analytics::measure(self, report)?;
        }
        if self.wants(Scenario::Deliveries) {
            deliveries::measure(self, &block, report)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let role: Option<fn(&[String])> = match arguments.first().map(String::as_str) {
        Some(open_loop::ROLE) => Some(open_loop::serve),
        Some(creation::ROLE) => Some(creation::serve),
        Some(receiver::ROLE) => {
            Some(|arguments| receiver::run(arguments[0].parse().unwrap(), arguments[1] == "silent"))
        }
        _ => None,
    };
    if let Some(serve) = role {
        serve(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("no report: server and load generator need a core each");
        return ExitCode::FAILURE;
    }
    let mut report = Report::new(options.out.clone());
    let program = Program(fs::canonicalize(&options.program).unwrap());
    let contest = Contest { options, program, home: Home::new() };
    if let Err(reason) = contest.run(&mut report) {
        eprintln!("no report: {reason}");
        return ExitCode::FAILURE;
    }
    eprintln!("{}", report.write().display());
    ExitCode::SUCCESS
}

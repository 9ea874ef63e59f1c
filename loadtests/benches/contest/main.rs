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

mod analytics;
mod bare_engine;
mod block;
mod cell;
mod creation;
mod deliveries;
mod files;
mod idle;
mod latency;
mod nginx;
mod redirects;
mod report;
mod streams;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use loadtests::{
    closed_loop,
    home::Home,
    listeners, open_loop,
    program::Program,
    receiver,
    requests::{HOT_LINKS, Requests},
    seed::{self, Seed},
    way::Way,
};

use report::Report;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The hot redirect, server and load generator on a core each; always measured, for others are compared with it.
    Hot,
    /// The hot redirect as people run servers.
    Unpinned,
    /// The hot redirect by `wrk`, too.
    Wrk,
    /// Redirects and one API request in twenty, on the same connections or on connections of their own.
    Mixed,
    /// Unknown ids.
    NotFound,
    /// One client over its limit.
    Limited,
    /// Redirects of many links, a fifth of the look-ups in cache.
    Wide,
    /// A connection for each request.
    Connections,
    /// Memory of 10,000 idle kept connections.
    Idle,
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
    /// Redirects while a thousand clients listen to live streams of hits.
    Streams,
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
    /// The program to measure, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Report even where the figures can't be trusted, or rounds are fewer than five, and say so.
    #[arg(long)]
    even_if_noisy: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Fewer say nothing of how far they lie apart.
const FEWEST_ROUNDS: u32 = 5;

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
        seed::fill(&self.program, &home, &Seed { links: HOT_LINKS, all_hit: false, past: &[] });
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
        if self.wants(Scenario::Idle) {
            idle::measure(self, report)?;
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
        if self.wants(Scenario::Streams) {
            streams::measure(self, report)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let role: Option<fn(&[String])> = match arguments.first().map(String::as_str) {
        Some(closed_loop::ROLE) => Some(closed_loop::serve),
        Some(open_loop::ROLE) => Some(open_loop::serve),
        Some(creation::ROLE) => Some(creation::serve),
        Some(listeners::ROLE) => Some(listeners::serve),
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
    let program = Program::at(options.program.as_deref());
    let mut report = Report::new(options.out.clone());
    let contest = Contest { options, program, home: Home::durable("contest") };
    if let Err(reason) = contest.run(&mut report) {
        eprintln!("no report: {reason}");
        return ExitCode::FAILURE;
    }
    eprintln!("{}", report.write().display());
    ExitCode::SUCCESS
}

//! Webhooks under load: the real program, a receiver, and a bare loop of requests as the limit to compare with.
//!
//! ```text
//! cargo bench -p loadtests --bench webhooks -- [sustained] [latency] [backlog] [--out FILE] [sizes]
//! ```
//!
//! Prints a Markdown report; `--help` tells the sizes. Each of these is a process of its own: the program (release
//! profile, its defaults but for a root key, the permission to call loopback and no limit for clients), the receiver
//! and the bare loop (this program again, in another role). The client is here.
//!
//! 1. `sustained`: deliveries a second and CPU a delivery, with 10 webhooks a link and with 1, in rounds by turns with
//!    the bare loop; in each round every delivery must have come exactly once.
//! 2. `latency`: from hit to delivery at half of that rate.
//! 3. `backlog`: a million pending deliveries: memory, start after `kill -9`, others' deliveries meanwhile, drain.
//!
//! A failed operation or a wrong count ends the program: `unwrap` is right here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a measuring program: it stops at the first fault, and its numbers are small"
)]

mod backlog;
mod bare;
mod latency;
mod sustained;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use loadtests::{home, measure, product, program::Program, receiver};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Sustained,
    Latency,
    Backlog,
}

/// Webhooks under load.
#[derive(Debug, Parser)]
pub struct Options {
    /// What to measure; all of it when none is named. `latency` takes its rate from `sustained`, which runs before it.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// Deliveries in a round of `sustained`.
    #[arg(long, default_value_t = 100_000)]
    deliveries: u64,
    /// Rounds of `sustained`.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Over how many hosts (addresses of one receiver) the webhooks of `sustained` are spread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=250))]
    hosts: u8,
    /// How long `latency` takes for each link.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Deliveries in `backlog`.
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u64,
    /// How many of them to drain: all, unless it is fewer.
    #[arg(long)]
    drain: Option<u64>,
    /// Over how many hosts the webhooks that do not answer are spread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=250))]
    dead_hosts: u8,
    /// Another setting for the program, such as `SIGNPOST_WEBHOOKS__WORKERS=128`.
    #[arg(long)]
    set: Vec<String>,
    /// Report even where the rounds of the bare loop lie far apart.
    #[arg(long)]
    even_if_noisy: bool,
    /// The program to measure, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the report goes, besides standard output.
    #[arg(long)]
    out: Option<PathBuf>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn settings(&self) -> Vec<(String, String)> {
        let others = self.set.iter().map(|set| set.split_once('=').expect("NAME=VALUE"));
        let others = others.map(|(name, value)| (name.to_owned(), value.to_owned()));
        product::settings().into_iter().chain(others).collect()
    }

    fn wants(&self, scenario: Scenario) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }
}

fn head(begun: &str, load: &str) -> String {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    format!(
        "# Webhooks under load\n\n- Command: `cargo bench -p loadtests --bench webhooks -- {}`\n- Date: {begun}. Commit: {}\n- Machine: \
         {}; {}\n- Load average before / after: {load} / {}\n- The receiver, the client of the redirects and the program \
         share these cores.\n\n",
        arguments.join(" "),
        measure::commit(),
        measure::machine(&home::scratch()),
        measure::output_of("rustc", &["--version"]),
        measure::load(),
    )
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments[at].parse().unwrap();
    match arguments.get(1).map(String::as_str) {
        Some(receiver::ROLE) => {
            receiver::run(arguments[2].parse().unwrap(), arguments[3] == "silent");
            return ExitCode::SUCCESS;
        }
        Some(bare::ROLE) => {
            bare::run(bare::Peer::parse(&arguments[2]), number(3), number(4) as usize);
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let options = Options::parse();
    let program = Program::at(options.program.as_deref());
    let (begun, load) = (chrono::Utc::now().format("%Y-%m-%d %H:%M UTC").to_string(), measure::load());
    let mut text = String::new();
    if options.wants(Scenario::Sustained) || options.wants(Scenario::Latency) {
        let rates = match sustained::measure(&options, &program) {
            Ok((part, rates)) => {
                text += &part;
                rates
            }
            Err(reason) => {
                eprintln!("no report: {reason}");
                return ExitCode::FAILURE;
            }
        };
        if options.wants(Scenario::Latency) {
            text += &latency::measure(&options, &program, &rates);
        }
    }
    if options.wants(Scenario::Backlog) {
        text += &backlog::measure(&options, &program);
    }
    let report = head(&begun, &load) + text.trim_end();
    println!("{report}");
    if let Some(path) = &options.out {
        std::fs::write(home::repository().join(path), report + "\n").unwrap();
    }
    ExitCode::SUCCESS
}

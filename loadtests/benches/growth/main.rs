//! What grows with links and hits, and what must not.
//!
//! ```text
//! cargo bench -p loadtests --bench growth -- [counting] [distinct] [links] [analytics] [--out FILE] [sizes]
//! ```
//!
//! Prints a Markdown report; `--help` tells the sizes.
//!
//! 1. `counting`: a sustained rate of hits on few links, fed to the journal of this process with the real counter and
//!    store behind it: CPU a hit by what it is for, and what the journal and the memory do meanwhile.
//! 2. `distinct`: the same with every hit on a link of its own.
//!
//! 3. `links`: the real program on stores of 1 to 10 million links: disk, start after a clean stop and after `kill -9`,
//!    memory, redirects of links that are not in its cache; with `--edits`, again after one link in five was edited.
//! 4. `analytics`: the real program, asked for the analytics of links with few and many hits.
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

mod counting;
mod links;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use loadtests::{
    head::Head,
    home::{self, Home},
    program::Program,
};

use counting::Load;

/// As the program has it: what it allocates costs the same here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Counting,
    Distinct,
    Links,
    Analytics,
}

/// What grows with links and hits.
#[derive(Debug, Parser)]
struct Options {
    /// What to measure; all of it when none is named.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// Hits a second.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// How long `counting` is fed, and each link of `analytics` asked.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Links in `counting`.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    hot_links: u64,
    /// Sites that half of the hits come from.
    #[arg(long, default_value_t = 10)]
    referrers: u64,
    /// Hits in `distinct`, each on a link of its own.
    #[arg(long, default_value_t = 10_000_000)]
    distinct_hits: u64,
    /// `distinct` hits each link on so many days.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=28))]
    days: u64,
    /// How many links the stores of `links` have.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 2_000_000, 5_000_000, 10_000_000])]
    links: Vec<u64>,
    /// Redirects of links that are not in the cache, in `links`.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    asked: u64,
    /// Edits one in five links in `links`, and looks again.
    #[arg(long)]
    edits: bool,
    /// Links created before the `kill -9` of `links`.
    #[arg(long, default_value_t = 200_000)]
    made: u64,
    /// Requests a second in `analytics`.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    analytics_rate: u32,
    /// The program to measure, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the report goes, instead of `loadtests/results`; the plots of `links` go beside it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, scenario: Scenario) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let needs_program = options.wants(Scenario::Links) || options.wants(Scenario::Analytics);
    let program = needs_program.then(|| Program::at(options.program.as_deref()));
    let head = Head::new("growth", options.out.clone());
    let home = Home::durable("growth");
    let mut text = String::new();
    let Options { rate, referrers, .. } = options;
    if options.wants(Scenario::Counting) {
        let load =
            Load { links: options.hot_links, distinct: false, days: 1, rate, hits: rate * options.seconds, referrers };
        text += "## A sustained rate\n\n";
        text += &counting::run(&home.0, "counting", load);
    }
    if options.wants(Scenario::Distinct) {
        let hits = options.distinct_hits;
        let (days, links) = (options.days, (hits / options.days).max(1));
        let load = Load { links, distinct: true, days, rate, hits: links * days, referrers: 0 };
        text += "\n## A link for every hit of a day\n\n";
        text += &counting::run(&home.0, "distinct", load);
    }
    if let Some(program) = &program {
        text += &of_program(&options, &home, program, &head);
    }
    let report = head.text("Growth", "cargo bench -p loadtests --bench growth --", &home::scratch(), &[]) + &text;
    println!("{report}");
    head.write(&report);
    ExitCode::SUCCESS
}

/// What is measured of the program as a process.
fn of_program(options: &Options, home: &Home, program: &Program, head: &Head) -> String {
    let mut text = String::new();
    if options.wants(Scenario::Links) {
        let steps: Vec<_> = options
            .links
            .iter()
            .map(|&links| links::step(program, &home.0, links, options.asked.min(links), options.made, options.edits))
            .collect();
        text += "\n## More and more links\n\n";
        text += &links::report(&steps);
        text += &links::bounds(&steps);
        text += &links::plots(&steps, head);
    }
    if options.wants(Scenario::Analytics) {
        text += "\n## Analytics of a link with many hits\n\n";
        text += &links::analytics(program, &home.0, options.analytics_rate, options.seconds as u32);
    }
    text
}

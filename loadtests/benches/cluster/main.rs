//! The store on a CQL cluster: creations, uncached redirects and counters, each beside what the bare driver does of the
//! same kind on the same cluster.
//!
//! ```text
//! cargo bench -p loadtests --bench cluster -- [--nodes 1|3] [--seconds S] [--rounds N] [--out FILE]
//! ```
//!
//! Starts the engine of the tests (`tests/cluster/up`), or uses the nodes that `SIGNPOST_TEST_CQL_NODES` names. Prints a
//! Markdown report. A failed operation or a wrong count ends the program: `unwrap` is right here.

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

mod bare;
mod through;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use loadtests::{
    engine::Engine,
    home::{self, Home},
    measure::{self, Figures},
    program::Program,
};

use bare::Bare;
use through::Through;

/// Requests under way at once, of the product and of the bare driver alike.
const IN_FLIGHT: usize = 64;
/// A link with a new target, in the lists of its key and of all keys, by time and by target.
const OTHER_ROWS_OF_A_LINK: f64 = 4.0;
/// Rounds of the bare driver that lie further apart are no measure.
const WIDEST_SPREAD: f64 = 0.5;

/// The store on a CQL cluster.
#[derive(Debug, Parser)]
struct Options {
    /// Nodes of the engine that is started.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: u8,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each part of a round takes.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rows in one flush of the counters.
    #[arg(long, default_value_t = 20_000)]
    rows: u32,
    /// The program to measure, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the report goes besides the terminal.
    #[arg(long)]
    out: Option<PathBuf>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What was done a second, in every round.
#[derive(Default)]
struct Rates {
    creations: Figures,
    single_creations: Figures,
    bulk_creations: Figures,
    bare_lwts: Figures,
    bare_inserts: Figures,
    redirects: Figures,
    bare_reads: Figures,
    rows_anew: Figures,
    rows_again: Figures,
    bare_rows: Figures,
}

impl Rates {
    fn rows(&self) -> [(&'static str, &Figures); 10] {
        [
            ("bare driver: inserts of a link, unconditional", &self.bare_inserts),
            ("bare driver: inserts of a link, `IF NOT EXISTS`", &self.bare_lwts),
            ("the store: creations of links (id settled, month counted)", &self.creations),
            ("the store: creations of one client, one after another", &self.single_creations),
            ("the store: creations of one client, 500 links at once", &self.bulk_creations),
            ("bare driver: reads of a link", &self.bare_reads),
            ("the program: redirects of links that are not in its cache, over HTTP", &self.redirects),
            ("bare driver: inserts of counter rows", &self.bare_rows),
            ("the store: counter rows at the flush, links it has not counted before", &self.rows_anew),
            ("the store: counter rows at the flush, links it counted a moment ago", &self.rows_again),
        ]
    }

    /// Reads that are each followed by the insert of a counter row.
    fn bare_hits(&self) -> Figures {
        one_after_another(&self.bare_reads, 1.0, &self.bare_rows)
    }

    /// LWTs that are each followed by the inserts of the other rows of a link.
    fn bare_creations(&self) -> Figures {
        one_after_another(&self.bare_lwts, OTHER_ROWS_OF_A_LINK, &self.bare_inserts)
    }
}

/// What could be done a second of one thing and several of another.
fn one_after_another(one: &Figures, times: f64, other: &Figures) -> Figures {
    Figures(one.0.iter().zip(&other.0).map(|(one, other)| 1.0 / (1.0 / one + times / other)).collect())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(&options));
    println!("{report}");
    if let Some(out) = &options.out {
        std::fs::write(home::repository().join(out), report).unwrap();
    }
    ExitCode::SUCCESS
}

async fn run(options: &Options) -> String {
    let program = Program::at(options.program.as_deref());
    let engine = Engine::start(options.nodes);
    let home = Home::durable("cluster");
    let load_before = measure::load();
    let through = Through::open(&program, &engine, &home.0).await;
    let bare = Bare::open(&engine, through::KEYSPACE).await;
    let mut rates = Rates::default();
    for round in 0..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        if round == 1 {
            // What the engine compiles and caches on the way was part of the round before.
            rates = Rates::default();
        }
        bare.idle().await;
        rates.bare_lwts.0.push(bare.insert_by_lwt(options.seconds).await);
        bare.idle().await;
        rates.creations.0.push(through.create(options.seconds).await);
        bare.idle().await;
        rates.single_creations.0.push(through.create_one_by_one(options.seconds).await);
        bare.idle().await;
        rates.bulk_creations.0.push(through.create_in_bulk(options.seconds).await);
        bare.idle().await;
        rates.bare_inserts.0.push(bare.insert(options.seconds).await);
        bare.idle().await;
        rates.bare_reads.0.push(bare.read(options.seconds, through.links()).await);
        bare.idle().await;
        rates.redirects.0.push(through.redirect(options.seconds));
        bare.idle().await;
        rates.bare_rows.0.push(bare.write_rows(options.rows, round).await);
        bare.idle().await;
        let (anew, again) = through.flush(options.rows, round).await;
        rates.rows_anew.0.push(anew);
        rates.rows_again.0.push(again);
        for (name, figures) in rates.rows() {
            eprintln!("  {:>8.0} {name}", figures.0.last().copied().unwrap_or_default());
        }
    }
    through.close().await;
    let spread = [&rates.bare_lwts, &rates.bare_reads, &rates.bare_rows].map(Figures::spread);
    let widest = spread.into_iter().fold(0.0, f64::max);
    assert!(widest < WIDEST_SPREAD, "the bare driver's rounds lie {widest:.2} apart: the machine had other work");
    report(options, &engine, &home.0, &load_before, &rates)
}

fn report(options: &Options, engine: &Engine, home: &std::path::Path, load_before: &str, rates: &Rates) -> String {
    let ratio = |of: &Figures, to: &Figures| {
        let each = of.0.iter().zip(&to.0).map(|(of, to)| format!("{:.2}", of / to)).collect::<Vec<_>>().join(", ");
        format!("{:.2} | {each}", of.median() / to.median())
    };
    let (seconds, rows) = (options.seconds, options.rows);
    let mut text = format!(
        "# The store on a CQL cluster\n\n\
         - Command: `cargo bench -p loadtests --bench cluster -- --nodes {} --rounds {} --seconds {seconds} --rows {rows}`\n\
         - Date: {} UTC. Commit: {}\n- Machine: {}\n- Engine: {}\n- Load average before / after: {load_before} / {}\n\
         - Engine, program and client share these cores.\n\n\
         {IN_FLIGHT} requests in flight, by turns in {} rounds; consistency LOCAL_QUORUM, LWTs LOCAL_SERIAL, for both.\n\n\
         | a second | min | median | max |\n|---|---|---|---|\n",
        options.nodes,
        options.rounds,
        measure::output_of("date", &["-u", "+%Y-%m-%d %H:%M"]),
        measure::commit(),
        measure::machine(home),
        engine.description(),
        measure::load(),
        options.rounds,
    );
    for (name, figures) in rates.rows() {
        writeln!(text, "| {name} | {} |", figures.cells(0)).unwrap();
    }
    text += "\n| ratio | of medians | of each round |\n|---|---|---|\n";
    for (name, of, to) in [
        ("creations / inserts `IF NOT EXISTS`", &rates.creations, &rates.bare_lwts),
        ("creations / an LWT and four inserts, for as many rows", &rates.creations, &rates.bare_creations()),
        ("creations / unconditional inserts", &rates.creations, &rates.bare_inserts),
        ("bulk creations / creations one after another", &rates.bulk_creations, &rates.single_creations),
        ("bulk creations / creations", &rates.bulk_creations, &rates.creations),
        ("uncached redirects / reads", &rates.redirects, &rates.bare_reads),
        ("uncached redirects / a read and an insert of a counter row", &rates.redirects, &rates.bare_hits()),
        ("counter rows, new / inserts", &rates.rows_anew, &rates.bare_rows),
        ("counter rows, known / inserts", &rates.rows_again, &rates.bare_rows),
    ] {
        writeln!(text, "| {name} | {} |", ratio(of, to)).unwrap();
    }
    text
}

//! The store on a CQL cluster: creations, uncached redirects and counters, each beside what the bare driver does of the
//! same kind on the same cluster.
//!
//! ```text
//! cargo bench -p loadtests --bench cluster -- [--nodes 1|3] [--keys N] [--seconds S] [--rounds N] [--out FILE]
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
use std::time::Instant;

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
    /// Keys that create links. Each creation is counted in the month of its key, and those of one key that wait are counted together.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    keys: u8,
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

/// How many operations were done, and in which time.
pub struct Done {
    pub count: f64,
    pub seconds: f64,
}

impl Done {
    pub fn since(begun: Instant, count: u64) -> Self {
        Self { count: count as f64, seconds: begun.elapsed().as_secs_f64() }
    }
}

/// One kind of operation, in every round.
#[derive(Default)]
struct Part {
    a_second: Figures,
    /// CPU time of the engine for one of them, in microseconds. Unlike the rate, it tells little of what else the machine does.
    engine_cpu: Figures,
}

impl Part {
    /// Notes the rate of `operations`, and what they took of the engine, with what it puts off.
    async fn measure(&mut self, engine: &Engine, bare: &Bare, operations: impl Future<Output = Done>) {
        let before = engine.cpu();
        let done = operations.await;
        self.a_second.0.push(done.count / done.seconds);
        bare.idle().await;
        if let (Some(before), Some(after)) = (before, engine.cpu()) {
            self.engine_cpu.0.push((after - before) as f64 / done.count);
        }
    }

    fn cells(&self) -> String {
        let cpu = if self.engine_cpu.0.is_empty() { "not known".into() } else { self.engine_cpu.cells(0) };
        format!("{} | {cpu}", self.a_second.cells(0))
    }
}

#[derive(Default)]
struct Parts {
    creations: Part,
    single_creations: Part,
    bulk_creations: Part,
    bare_lwts: Part,
    bare_inserts: Part,
    redirects: Part,
    bare_reads: Part,
    rows_anew: Part,
    rows_again: Part,
    bare_rows: Part,
}

impl Parts {
    fn rows(&self) -> [(&'static str, &Part); 10] {
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
fn one_after_another(one: &Part, times: f64, other: &Part) -> Figures {
    let (one, other) = (&one.a_second, &other.a_second);
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
    let through = Through::open(&program, &engine, &home.0, options.keys).await;
    let bare = Bare::open(&engine, through::KEYSPACE).await;
    let mut parts = Parts::default();
    let seconds = options.seconds;
    for round in 0..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        if round == 1 {
            // What the engine compiles and caches on the way was part of the round before.
            parts = Parts::default();
        }
        parts.bare_lwts.measure(&engine, &bare, bare.insert_by_lwt(seconds)).await;
        parts.creations.measure(&engine, &bare, through.create(seconds)).await;
        parts.single_creations.measure(&engine, &bare, through.create_one_by_one(seconds)).await;
        parts.bulk_creations.measure(&engine, &bare, through.create_in_bulk(seconds)).await;
        parts.bare_inserts.measure(&engine, &bare, bare.insert(seconds)).await;
        parts.bare_reads.measure(&engine, &bare, bare.read(seconds, through.links())).await;
        parts.redirects.measure(&engine, &bare, async { through.redirect(seconds) }).await;
        parts.bare_rows.measure(&engine, &bare, bare.write_rows(options.rows, round)).await;
        parts.rows_anew.measure(&engine, &bare, through.flush(options.rows, round)).await;
        parts.rows_again.measure(&engine, &bare, through.flush(options.rows, round)).await;
        for (name, part) in parts.rows() {
            let last = |figures: &Figures| figures.0.last().copied().unwrap_or_default();
            eprintln!(
                "  {:>8.0} a second, {:>5.0} µs of the engine's CPU: {name}",
                last(&part.a_second),
                last(&part.engine_cpu)
            );
        }
    }
    through.close().await;
    let spread =
        [&parts.bare_lwts, &parts.bare_inserts, &parts.bare_reads, &parts.bare_rows].map(|part| part.a_second.spread());
    let widest = spread.into_iter().fold(0.0, f64::max);
    assert!(widest < WIDEST_SPREAD, "the bare driver's rounds lie {widest:.2} apart: the machine had other work");
    report(options, &engine, &home.0, &load_before, &parts)
}

fn report(options: &Options, engine: &Engine, home: &std::path::Path, load_before: &str, parts: &Parts) -> String {
    let ratio = |of: &Figures, to: &Figures| {
        let each = of.0.iter().zip(&to.0).map(|(of, to)| format!("{:.2}", of / to)).collect::<Vec<_>>().join(", ");
        format!("{:.2} | {each}", of.median() / to.median())
    };
    let (seconds, rows) = (options.seconds, options.rows);
    let mut text = format!(
        "# The store on a CQL cluster\n\n\
         - Command: `cargo bench -p loadtests --bench cluster -- --nodes {} --keys {} --rounds {} --seconds {seconds} --rows {rows}{}`\n\
         - Date: {} UTC. Commit: {}\n- Machine: {}\n- Engine: {}\n- Load average before / after: {load_before} / {}\n\
         - Engine, program and client share these cores.\n\n\
         {IN_FLIGHT} requests in flight, creations by {} keys, by turns in {} rounds; consistency LOCAL_QUORUM, LWTs LOCAL_SERIAL, for both.\n\n\
         CPU is that of the engine for one operation, in µs.\n\n\
         | | a second: min | median | max | CPU: min | median | max |\n|---|---|---|---|---|---|---|\n",
        options.nodes,
        options.keys,
        options.rounds,
        // Whose program it is, the reader has to say.
        options.program.as_ref().map_or("", |_| " --program PROGRAM"),
        measure::output_of("date", &["-u", "+%Y-%m-%d %H:%M"]),
        measure::commit(),
        measure::machine(home),
        engine.description(),
        measure::load(),
        options.keys,
        options.rounds,
    );
    for (name, part) in parts.rows() {
        writeln!(text, "| {name} | {} |", part.cells()).unwrap();
    }
    text += "\n| ratio | of medians | of each round | of the engine's CPU for one |\n|---|---|---|---|\n";
    let row = |name: &str, of: &Part, to: &Part| {
        let cpu = if of.engine_cpu.0.is_empty() {
            String::new()
        } else {
            format!("{:.2}", of.engine_cpu.median() / to.engine_cpu.median())
        };
        format!("| {name} | {} | {cpu} |\n", ratio(&of.a_second, &to.a_second))
    };
    text += &row("creations / inserts `IF NOT EXISTS`", &parts.creations, &parts.bare_lwts);
    text += &row("creations / unconditional inserts", &parts.creations, &parts.bare_inserts);
    text += &row("bulk creations / creations one after another", &parts.bulk_creations, &parts.single_creations);
    text += &row("bulk creations / creations", &parts.bulk_creations, &parts.creations);
    text += &row("uncached redirects / reads", &parts.redirects, &parts.bare_reads);
    text += &row("counter rows, new / inserts", &parts.rows_anew, &parts.bare_rows);
    text += &row("counter rows, known / inserts", &parts.rows_again, &parts.bare_rows);
    for (name, of, to) in [
        ("creations / an LWT and four inserts, for as many rows", &parts.creations, &parts.bare_creations()),
        ("uncached redirects / a read and an insert of a counter row", &parts.redirects, &parts.bare_hits()),
    ] {
        writeln!(text, "| {name} | {} | |", ratio(&of.a_second, to)).unwrap();
    }
    text
}

//! Many links: bulk creation beside single creations, and pages of lists of few and of many links of one key.
//!
//! ```text
//! cargo bench -p loadtests --bench many_links -- [bulk] [lists] [--cql] [--out FILE] [sizes]
//! ```
//!
//! Prints a Markdown report; `--help` tells the sizes.
//!
//! 1. `bulk`: links a second and CPU a link of `POST /shorten/bulk` with 500 links and of `POST /shorten`, by turns, over one
//!    connection.
//! 2. `lists`: how long a page of `GET /links` takes where the key has a thousand links, and where it has ten million.
//!
//! With `--cql`, the links are in the engine of the tests (`tests/cluster/up`) or on the nodes that `SIGNPOST_TEST_CQL_NODES`
//! names; else in the embedded store. A failed operation or a wrong count ends the program: `unwrap` is right here.

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

mod bulk;
mod lists;

use std::cell::Cell;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use loadtests::{
    engine::{self, Engine},
    head::Head,
    home::{self, Home},
    product::{self, Product},
    program::Program,
};
use serde_json::{Value, json};
use signpost::store::cql::session::{ScyllaSettings, connect};

/// How long the engine may take to merge a million links.
const IDLE_WITHIN: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Bulk creation beside single creations.
    Bulk,
    /// Pages of lists of few and of many links.
    Lists,
}

/// Bulk creation, and lists of many links.
#[derive(Debug, Parser)]
struct Options {
    /// What to measure; all of it when none is named.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// Keeps the links on a CQL cluster.
    #[arg(long)]
    cql: bool,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each way of creation takes in a round.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Links of the key that has few, and of the one that has many, in `lists`.
    #[arg(long, value_delimiter = ',', num_args = 2, default_values_t = [1_000, 10_000_000])]
    links: Vec<u64>,
    /// Pages of each kind in a round.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pages: u32,
    /// The program to measure, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the report goes, instead of `loadtests/results`.
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

/// Where programs keep their links.
struct Stores {
    program: Program,
    engine: Option<Engine>,
    home: Home,
    /// How many programs were started: each has a store of its own.
    started: Cell<u32>,
}

impl Stores {
    /// Starts the program with an empty store.
    fn start(&self) -> Product {
        let number = self.started.replace(self.started.get() + 1);
        let home = self.home.directory(&number.to_string());
        let Some(engine) = &self.engine else {
            return Product::start(&self.program, &home, &product::settings());
        };
        let settings = engine.settings_of_program(&format!("many_links_{}_{number}", std::process::id()));
        let migrated = self.program.plain(&settings).current_dir(&home).arg("migrate").status().unwrap();
        assert!(migrated.success(), "signpost migrate");
        Product::start(&self.program, &home, &settings)
    }

    /// Waits until the engine of a cluster has written and merged all that was created.
    fn settle(&self) {
        let Some(engine) = &self.engine else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let session = connect(&ScyllaSettings::new(engine.nodes().to_vec(), "system".to_owned())).await.unwrap();
            engine::idle(&session, IDLE_WITHIN).await;
        });
    }
}

/// A figure that is to be reached.
struct Bound {
    what: String,
    wanted: String,
    figure: f64,
    is_reached: bool,
}

impl Bound {
    fn at_most(what: impl Into<String>, bound: f64, figure: f64) -> Self {
        Self { what: what.into(), wanted: format!("at most {bound:.2}"), figure, is_reached: figure <= bound }
    }

    fn at_least(what: impl Into<String>, bound: f64, figure: f64) -> Self {
        Self { what: what.into(), wanted: format!("at least {bound:.2}"), figure, is_reached: figure >= bound }
    }
}

/// The body of `POST /shorten` that makes a link.
fn creation(target: &str) -> Value {
    json!({"redirect_url": target})
}

fn main() -> ExitCode {
    let options = Options::parse();
    let name = if options.cql { "many-links-cql" } else { "many-links" };
    let head = Head::new(name, options.out.clone());
    let program = Program::at(options.program.as_deref());
    let engine = options.cql.then(|| Engine::start(1));
    let stores = Stores { program, engine, home: Home::durable("many-links"), started: Cell::new(0) };
    let (mut text, mut bounds) = (String::new(), Vec::new());
    if options.wants(Scenario::Bulk) {
        text += &bulk::measure(&stores, &options, &mut bounds);
    }
    if options.wants(Scenario::Lists) {
        text += &lists::measure(&stores, &options, &mut bounds);
    }
    let store = stores.engine.as_ref().map_or("embedded".to_owned(), Engine::description);
    let command = "cargo bench -p loadtests --bench many_links --";
    let mut report = head.text("Many links", command, &home::scratch(), &[format!("Store: {store}")]);
    report += "| | wanted | figure | |\n|---|---|---|---|\n";
    for Bound { what, wanted, figure, is_reached } in bounds {
        let is_reached = if is_reached { "reached" } else { "**missed**" };
        writeln!(report, "| {what} | {wanted} | {figure:.2} | {is_reached} |").unwrap();
    }
    report += &text;
    head.write(&report);
    println!("{report}");
    ExitCode::SUCCESS
}

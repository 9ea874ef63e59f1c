//! Durable creations at 64 in flight, beside the bare engine's.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use loadtests::{
    measure::{self, Figures},
    way::Way,
};

use super::{
    Contest,
    bare_engine::Engine,
    block::three,
    cell::{Cell, Generator, Outcome},
    report::{Report, row},
};

pub const ROLE: &str = "role-bare-creations";

/// In the child: creates links for a while on the engine alone, and tells how many a second, p50 and p99 in milliseconds.
pub fn serve(arguments: &[String]) {
    let [directory, seconds, first] = arguments else { panic!("{arguments:?}") };
    let (seconds, first): (u64, u64) = (seconds.parse().unwrap(), first.parse().unwrap());
    let engine = Engine::open(Path::new(directory));
    let stop = AtomicBool::new(false);
    let mut created = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(seconds));
            stop.store(true, Relaxed);
        });
        engine.create_links(&AtomicU64::new(first), &stop)
    });
    created.sort_unstable();
    let millis = |share: f64| created[(created.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{} {} {}", created.len() as f64 / seconds as f64, millis(0.5), millis(0.99));
}

/// Creations a second, p50 and p99 in milliseconds.
fn bare(directory: &Path, seconds: u32, round: u32) -> [f64; 3] {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let first = u64::from(round) << 32;
    command.arg(ROLE).arg(directory).args([seconds.to_string(), first.to_string()]);
    measure::numbers_of(&mut command).unwrap_or_else(|said| panic!("{said}"))
}

pub fn measure(contest: &Contest, report: &mut Report) -> Result<(), String> {
    let engine = contest.home.directory("bare-engine");
    let server = contest.program.start("signpost", Way::Unpinned, &contest.hot_links("creation"), &[]);
    let cell = Cell {
        title: "signpost: creations".into(),
        way: Way::Unpinned,
        server: &server,
        load: contest.requests().creations(),
        generator: Generator::Own,
        outcome: Outcome::Created,
        closing: false,
        files: None,
    };
    let (rounds, seconds) = (contest.options.rounds, contest.options.seconds);
    cell.run(1, rounds)?;
    let (mut alone, mut own) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        alone.push(bare(&engine, seconds, round));
        own.push(cell.run(seconds, round)?);
    }
    let _ = fs::remove_dir_all(engine);
    let of_engine = |at: usize| Figures::of(&alone, |figures| figures[at]);
    let of_own = |of: fn(&super::cell::Run) -> f64| Figures::of(&own, of);
    let rate = of_own(|run| run.per_second);
    let times = Figures(own.iter().zip(&alone).map(|(own, alone)| own.per_second / alone[0]).collect());
    report.add(
        "## Creation at 64 in flight\n\nDurable: answered when it is on disk, many with one sync. The bare engine (fjall) \
         does what a creation writes, without HTTP, keys and checks, in a process of its own; by turns, neither pinned. \
         Each as min / median / max over the rounds.\n\n\
         | | creations/s | p50, ms | p99, ms |\n|---|---|---|---|\n",
    );
    report.add(&row("bare engine", &[(of_engine(0), 0), (of_engine(1), 2), (of_engine(2), 2)]));
    let percentile = [of_own(|run| run.percentiles[0]), of_own(|run| run.percentiles[1])];
    let [p50, p99] = percentile;
    report.add(&row("signpost", &[(rate.clone(), 0), (p50, 2), (p99, 2)]));
    report.add(&format!("\nA creation costs signpost {} µs of CPU.\n\n", three(&of_own(|run| run.cpu), 1)));
    // The one or the other has to be reached: a slow disk is no fault of the program.
    if rate.median() >= 5_000.0 {
        report.at_least("Creations a second (or else half of the bare engine's)", 5_000.0, &rate);
    } else {
        report.at_least("Creations: × the bare engine (fewer than 5,000 a second)", 0.5, &times);
    }
    report.add(&format!("× the bare engine: {}.\n\n", three(&times, 2)));
    let bars = [("bare engine", of_engine(0)), ("signpost", rate)];
    report.plot(
        "creation",
        "Durable creations at 64 in flight",
        "a second, min / median / max over the rounds",
        bars.into_iter(),
        None,
    );
    Ok(())
}

//! The soak: mixed traffic at half of the machine's throughput, with a fault every minute, and an account of every request.
//!
//! ```text
//! cargo bench -p loadtests --bench soak -- [--short | --minutes 60] [--out FILE]
//! ```
//!
//! Starts the real program with its data on a small tmpfs of its own, loads it, makes one fault after another, and compares what
//! clients and receivers saw with what the program tells. Writes `loadtests/results/<date>-soak.md` with plots beside it, and
//! fails where a claim does not hold. It needs a C compiler, and the right to mount (as root, or in a user namespace).
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

mod beside;
mod claims;
mod course;
mod crowd;
mod disk;
mod faults;
mod hooks;
mod ledger;
mod mix;
mod report;
mod sample;
mod scene;
mod server;
mod shim;
mod told;
mod traffic;

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use loadtests::{head::Head, home::Home, program::Program};

use beside::Beside;
use claims::{Claim, Evidence};
use course::Course;
use faults::{Fault, Past};
use hooks::{Deliveries, Hooks};
use mix::{Mix, Rates};
use sample::{Sample, Sampler};
use scene::{FIRST_EDITED, Quota, REPLAYED, Scene};
use server::Soak;
use told::{Exported, Told};
use traffic::{Pace, Second, Traffic};

/// How long the throughput is measured.
const MEASURED_FOR: Duration = Duration::from_secs(15);
/// Not measured: connections, caches.
const WARM_UP: usize = 3;
/// After that, streams have told of what is counted.
const TOLD_AFTER: Duration = Duration::from_secs(4);
/// How long the program may take to work off what is left when the traffic has ended.
const DRAINED_WITHIN: Duration = Duration::from_mins(2);

/// Mixed traffic with a fault every minute, and an account of every request.
#[derive(Debug, Parser)]
#[command(name = "soak")]
pub struct Options {
    /// How long: 20 if not given.
    #[arg(long)]
    minutes: Option<f64>,
    /// Seconds from one fault to the next: 60 if not given.
    #[arg(long)]
    period: Option<f64>,
    /// Seconds that a fault lasts: 25 if not given.
    #[arg(long)]
    fault: Option<f64>,
    /// One round of faults within five minutes, if nothing else is given.
    #[arg(long)]
    short: bool,
    /// Only these, by turns.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Room on the program's disk, in MiB.
    #[arg(long, default_value_t = 4_096)]
    disk_mib: u64,
    /// Requests a second, in the place of half of the throughput.
    #[arg(long)]
    rate: Option<f64>,
    /// Where the report goes; plots go beside it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The program, instead of the one that these sources make.
    #[arg(long)]
    program: Option<PathBuf>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// In seconds: the run, from one fault to the next, and a fault.
struct Times {
    seconds: f64,
    period: f64,
    fault: f64,
}

impl Options {
    fn times(&self) -> Times {
        let [minutes, period, fault] = if self.short { [5.0, 42.0, 12.0] } else { [20.0, 60.0, 25.0] };
        let seconds = self.minutes.unwrap_or(minutes) * 60.0;
        Times { seconds, period: self.period.unwrap_or(period), fault: self.fault.unwrap_or(fault) }
    }
}

/// All that was seen.
pub struct Run {
    throughput: f64,
    rates: Rates,
    quota: Quota,
    disk_mib: u64,
    faults: Vec<Past>,
    seconds: Vec<Second>,
    samples: Vec<Sample>,
    period: f64,
}

impl Run {
    fn course(&self) -> Course<'_> {
        Course { faults: &self.faults, seconds: &self.seconds, samples: &self.samples, period: self.period }
    }
}

/// Requests a second of the same mixture in a closed loop, on a store of its own.
fn throughput(options: &Options, program: &Program, home: &Home) -> f64 {
    let quota = Quota { links: 1_000, deliveries: 1_000 };
    let (soak, scene) = Soak::begin(options, program, home, "throughput", quota);
    let traffic = Traffic::begin(soak.address, Mix::of(scene), Pace::Closed);
    thread::sleep(MEASURED_FOR);
    let seconds = traffic.seconds.lock().unwrap().clone();
    traffic.end();
    let measured = &seconds[WARM_UP.min(seconds.len() - 1)..];
    let all: u64 = measured.iter().map(|second| second.redirects + second.api).sum();
    all as f64 / measured.len() as f64
}

/// Waits until nothing is left to be counted or delivered, or for as long as may be.
fn drain(soak: &Soak) {
    let (begun, mut last, mut empty) = (Instant::now(), None, 0);
    while empty < 3 && begun.elapsed() < DRAINED_WITHIN {
        // The number of pending deliveries is a second old.
        thread::sleep(Duration::from_millis(1_100));
        let left = told::left(soak.admin);
        empty = if left == Some((0, 0)) { empty + 1 } else { 0 };
        if left != last {
            eprintln!("{:.0?}: bytes not counted, deliveries pending: {left:?}", begun.elapsed());
        }
        last = left;
    }
}

/// Hits that the journal had no room for: the last word of each process.
fn not_recorded(samples: &[Sample]) -> u64 {
    let ends = samples.iter().enumerate().filter_map(|(at, sample)| {
        let same_goes_on =
            samples[at + 1..].iter().any(|later| later.process == sample.process && later.not_recorded.is_some());
        (!same_goes_on).then_some(sample.not_recorded?)
    });
    ends.sum::<f64>() as u64
}

fn run(options: &Options, program: &Program, home: &Home) -> (Run, Vec<Claim>) {
    let throughput = options.rate.map_or_else(|| throughput(options, program, home), |rate| rate * 2.0);
    let rates = Rates::of_total(throughput / 2.0);
    eprintln!("{throughput:.0} requests a second in a closed loop; {rates:?}");
    let Times { seconds: lasts, period, fault: fault_lasts } = options.times();
    let quota = Quota::for_run(rates, lasts);
    let (mut soak, scene) = Soak::begin(options, program, home, "soak", quota);
    let beside = Beside::begin(soak.address, &scene);
    let traffic = Traffic::begin(soak.address, Mix::of(scene.clone()), Pace::Fixed(rates));
    let begun = traffic.begun;
    let sampler = Sampler::begin(soak.admin, soak.pid(), begun);
    soak.shown_to(&sampler, begun);
    let mut faults = Vec::new();
    let wait_until = |seconds: f64| thread::sleep(Duration::from_secs_f64(seconds).saturating_sub(begun.elapsed()));
    for number in 0..(lasts / period) as usize {
        wait_until((number as f64 + 0.25) * period);
        let fault = Fault::nth(number, &options.only);
        faults.push(faults::make(&mut soak, fault, Duration::from_secs_f64(fault_lasts), begun));
    }
    wait_until(lasts);
    let seconds = traffic.seconds.lock().unwrap().clone();
    let mut ledger = traffic.end();
    let beside = beside.end();
    drain(&soak);
    // They are told within 2 s.
    thread::sleep(TOLD_AFTER);
    let seen = beside.end();
    for (link, read) in seen.edits.links.iter().enumerate() {
        ledger.links[FIRST_EDITED + link] += read.followed;
    }
    ledger.links[REPLAYED].answered += beside::HITS;
    let looks = sampler.end();
    let mut told = Told::by_api(soak.address, &scene);
    told.not_recorded = not_recorded(&looks);
    let (breaks, ends) = (soak.breaks(), soak.ends);
    let (deliveries, exported) = soak.end();
    told.exported = exported;
    let disk_mib = options.disk_mib;
    let run = Run { throughput, rates, quota, disk_mib, faults, seconds, samples: looks, period };
    let evidence = Evidence {
        scene: &scene,
        quota,
        ledger: &ledger,
        deliveries: &deliveries,
        told: &told,
        breaks: &breaks,
        seen: &seen,
        faults: &run.faults,
        ends,
    };
    let mut claims = evidence.claims();
    claims.extend(run.course().claims());
    (run, claims)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(hooks::ROLE) {
        hooks::run();
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    disk::move_inside();
    server::allow_many_files();
    let program = Program::at(options.program.as_deref());
    let head = Head::new("soak", options.out.clone());
    let home = Home::new("soak");
    let (run, claims) = run(&options, &program, &home);
    eprintln!("{}", report::write(&head, &home.0, &run, &claims).display());
    let failed = claims.iter().filter(|claim| claim.held == Some(false)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

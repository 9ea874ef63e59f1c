//! Two engines for the embedded store, fjall and redb, under the store's own work.
//!
//! ```text
//! cargo bench --bench store_engines -- [--links 10000000] [--dir DIR]
//! ```
//!
//! Prints a Markdown table. What is measured, each on a database that already holds `--links`
//! links and half as many counter rows:
//!
//! 1. durable link creations, 64 in flight, grouped into one fsynced commit by one writer thread;
//! 2. a flush of 20,000 counter rows (read, add, write) as one durable transaction;
//! 3. look-ups of present and missing ids, with the page cache dropped where the system lets us;
//! 4. recovery after `SIGKILL` under the load of 1: time to the first read, and whether every
//!    acknowledged link is there;
//! 5. bytes on disk, time of a clean start, resident memory after it.
//!
//! redb stands in the table twice: with its default one-phase commit, and with `quick_repair`,
//! which saves the allocator's state in each commit so that a crash needs no walk of the file.
//! Both engines get the same cache. A failed operation ends the program: `unwrap` is right here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    reason = "a measuring program: it stops at the first fault, and its numbers are small"
)]

#[path = "store_engines/creations.rs"]
mod creations;
#[path = "store_engines/data.rs"]
mod data;
#[path = "store_engines/engines.rs"]
mod engines;
#[path = "store_engines/measure.rs"]
mod measure;

use creations::{Created, create_links};
use data::{add, counter_key, id, mix, row};
use engines::{CACHE_BYTES, Engine, Kind};
use measure::{Report, bytes_written, disk_bytes, drop_page_cache, percentiles, read_all, resident_kib};
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const LOAD_BATCH: u64 = 50_000;
const FLUSH_ROWS: usize = 20_000;
const LOOK_UPS: u64 = 20_000;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);
/// Indexes from here on name ids that no phase has written.
const MISSING: u64 = 1 << 40;

// ------------------------------------------------------------------------- loading

fn load_links(engine: &dyn Engine, links: u64) {
    for start in (0..links).step_by(LOAD_BATCH as usize) {
        let mut batch: Vec<_> = (start..links.min(start + LOAD_BATCH)).map(|i| (id(i), row(i))).collect();
        batch.sort_unstable();
        engine.commit(&mut |rows| batch.iter().for_each(|(id, row)| rows.put_link(id, row)));
    }
}

/// In key order, for this table's load is not measured and either engine does that fastest.
fn load_counters(engine: &dyn Engine, rows: u64) {
    let mut keys: Vec<_> = (0..rows).map(|n| counter_key(n, 20_000)).collect();
    keys.sort_unstable();
    for batch in keys.chunks(LOAD_BATCH as usize) {
        engine.commit(&mut |rows| batch.iter().for_each(|key| rows.put_counter(key, &[1; 24])));
    }
}

// --------------------------------------------------------------- 1. creating links

fn measure_creations(engines: &[Box<dyn Engine>; 3], next: &AtomicU64, report: &mut Report) {
    let mut totals = [(); 3].map(|()| (Created::default(), 0));
    for _ in 0..ROUNDS {
        for (engine, (total, written)) in engines.iter().zip(&mut totals) {
            let stop = AtomicBool::new(false);
            let before = bytes_written();
            let round = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(ROUND);
                    stop.store(true, Relaxed);
                });
                create_links(&**engine, next, &stop, &|_| ())
            });
            engine.settle();
            *written += bytes_written() - before;
            total.commits += round.commits;
            total.latencies.extend(round.latencies);
        }
    }
    let seconds = (ROUND * ROUNDS as u32).as_secs_f64();
    let count = |total: &Created| total.latencies.len() as f64;
    report.row(
        "1. durable creations, 64 in flight: links/s",
        totals.each_ref().map(|(t, _)| format!("{:.0}", count(t) / seconds)),
    );
    report.row("1. a creation, p50 / p99, ms", totals.each_mut().map(|(t, _)| percentiles(&mut t.latencies, 1e3)));
    report.row("1. commits/s", totals.each_ref().map(|(t, _)| format!("{:.0}", t.commits as f64 / seconds)));
    report.row("1. links a commit", totals.each_ref().map(|(t, _)| format!("{:.1}", count(t) / t.commits as f64)));
    report.row(
        "1. KiB handed to the disk a link",
        totals.each_ref().map(|(t, w)| format!("{:.1}", *w as f64 / 1024.0 / count(t))),
    );
}

// ------------------------------------------------------------ 2. flushing counters

fn measure_flushes(engines: &[Box<dyn Engine>; 3], counters: u64, report: &mut Report) {
    let mut took = [(); 3].map(|()| Vec::new());
    let mut written = [0; 3];
    for round in 0..7 {
        for (which, engine) in engines.iter().enumerate() {
            // Keys of its own, for the two redb share a cache. One row in ten is new: a link's first hit of a day.
            let pick = |n| mix((round << 8 | which as u64) << 32 | n) % counters;
            let keys: Vec<_> =
                (0..FLUSH_ROWS as u64).map(|n| counter_key(pick(n), 20_000 + u64::from(n % 10 == 0))).collect();
            let before = bytes_written();
            let begun = Instant::now();
            engine.commit(&mut |rows| keys.iter().for_each(|key| add(rows, key, [3, 2, 1])));
            took[which].push(begun.elapsed());
            engine.settle();
            written[which] += bytes_written() - before;
        }
    }
    report.row(
        "2. flush of 20,000 counter rows, median / worst, ms",
        took.map(|mut t| {
            t.sort_unstable();
            format!("{:.0} / {:.0}", t[t.len() / 2].as_secs_f64() * 1e3, t[t.len() - 1].as_secs_f64() * 1e3)
        }),
    );
    report.row("2. MiB handed to the disk a flush", written.map(|w| format!("{:.1}", w as f64 / 7.0 / 1_048_576.0)));
}

// ------------------------------------------------------------------- 3. looking up

fn measure_look_ups(base: &Path, links: u64, report: &mut Report) {
    for (threads, missing, cold) in
        [(1, false, true), (1, true, true), (4, false, true), (4, true, true), (1, false, false), (1, true, false)]
    {
        let cells = Kind::ALL.map(|kind| {
            if kind == Kind::RedbQuickRepair {
                return "as redb".to_owned();
            }
            let engine = kind.open(base);
            engine.settle();
            if cold {
                drop_page_cache();
            } else {
                read_all(&kind.path(base));
            }
            let mut latencies: Vec<Duration> = thread::scope(|scope| {
                let look_up = |thread: u64| {
                    let engine = &*engine;
                    move || -> Vec<Duration> {
                        let pick = |n| mix(thread << 40 | u64::from(missing) << 50 | u64::from(cold) << 51 | n);
                        let at = |n| if missing { MISSING + pick(n) % MISSING } else { pick(n) % links };
                        (0..LOOK_UPS / threads)
                            .map(|n| {
                                let (id, begun) = (id(at(n)), Instant::now());
                                assert_eq!(engine.link(&id).is_some(), !missing);
                                begun.elapsed()
                            })
                            .collect()
                    }
                };
                let running: Vec<_> = (0..threads).map(|thread| scope.spawn(look_up(thread))).collect();
                running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            percentiles(&mut latencies, 1e6)
        });
        let (which, state) = (if missing { "missing" } else { "present" }, if cold { "cold" } else { "warm" });
        report.row(&format!("3. look-up, {which}, {state}, {threads} thread(s): p50 / p99, µs"), cells);
    }
}

// -------------------------------------- 4. and 5. starting, after a crash or clean

/// Starts this program again as `role` for `kind`.
fn child(role: &str, kind: Kind, base: &Path, index: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([role, &(kind as usize).to_string()]).arg(base).arg(index.to_string()).stdout(Stdio::piped());
    command
}

/// In the child: creates links until killed; each acknowledged index goes up the pipe.
fn write_until_killed(engine: &dyn Engine, first: u64) {
    create_links(engine, &AtomicU64::new(first), &AtomicBool::new(false), &|index| {
        // One write(2) of 9 bytes on a pipe is atomic; a BufWriter would hold acknowledgements back.
        std::io::stdout().write_all(&[&index.to_le_bytes()[..], b"\n"].concat()).unwrap();
    });
}

/// In the child: how long from nothing to the first read, and the memory that takes.
fn start_and_read(kind: Kind, base: &Path, index: u64) {
    let begun = Instant::now();
    let engine = kind.open(base);
    assert!(engine.link(&id(index)).is_some());
    let took = begun.elapsed();
    println!("{:.0} {:.0}", took.as_secs_f64() * 1e3, resident_kib() as f64 / 1024.0);
}

/// Milliseconds to the first read and MiB resident, in a fresh process with a cold page cache.
fn start(kind: Kind, base: &Path, index: u64) -> (u64, u64) {
    drop_page_cache();
    let output = child("start-and-read", kind, base, index).output().unwrap();
    assert!(output.status.success(), "{} did not open", kind.name());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn measure_recovery(base: &Path, next: &AtomicU64, report: &mut Report) {
    let mut starts = [const { Vec::new() }; 3];
    let mut kept = [(0, 0); 3];
    for _ in 0..3 {
        for kind in Kind::ALL {
            let first = next.fetch_add(10_000_000, Relaxed);
            let mut writer = child("write-until-killed", kind, base, first).spawn().unwrap();
            let mut pipe = writer.stdout.take().unwrap();
            let reader = thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            });
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
            thread::sleep(Duration::from_millis(4_000 + mix(now) % 2_000));
            writer.kill().unwrap(); // SIGKILL
            writer.wait().unwrap();
            let bytes = reader.join().unwrap();
            let acknowledged: Vec<_> =
                bytes.chunks_exact(9).map(|a| u64::from_le_bytes(a[..8].try_into().unwrap())).collect();
            let last = *acknowledged.last().expect("the child wrote before it was killed");
            let (millis, _) = start(kind, base, last);
            let engine = kind.open(base);
            let found = acknowledged.iter().filter(|index| engine.link(&id(**index)).is_some()).count();
            let cell = kind as usize;
            kept[cell] = (kept[cell].0 + found, kept[cell].1 + acknowledged.len());
            starts[cell].push(millis.to_string());
        }
    }
    report
        .row("4. SIGKILL under load: open to first read, cold, ms (3 kills)", starts.map(|millis| millis.join(" / ")));
    report.row("4. acknowledged links found / acknowledged", kept.map(|(found, of)| format!("{found} / {of}")));
}

// ----------------------------------------------------------------------- all of it

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |flag: &str| arguments.iter().position(|a| a == flag).map(|at| arguments[at + 1].clone());
    if let Some(role @ ("write-until-killed" | "start-and-read")) = arguments.get(1).map(String::as_str) {
        let kind = Kind::ALL[arguments[2].parse::<usize>().unwrap()];
        let (base, index) = (Path::new(&arguments[3]), arguments[4].parse().unwrap());
        return match role {
            "start-and-read" => start_and_read(kind, base, index),
            _ => write_until_killed(&*kind.open(base), index),
        };
    }

    let links: u64 = after("--links").map_or(10_000_000, |n| n.parse().unwrap());
    let counters = links / 2;
    let base = after("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    let base = base.join(format!("store-engines-{}", std::process::id()));
    fs::create_dir_all(&base).unwrap();
    let mut report = Report::default();
    let not_apart = || "as redb".to_owned();

    let mut loading = [const { String::new() }; 3];
    let mut sizes = loading.clone();
    let mut starts = loading.clone();
    let mut resident = loading.clone();
    for kind in Kind::LOADED {
        let engine = kind.open(&base);
        let begun = Instant::now();
        load_links(&*engine, links);
        let written = begun.elapsed();
        engine.settle();
        let cell = kind as usize;
        loading[cell] = format!("{:.0} / {:.0}", written.as_secs_f64(), begun.elapsed().as_secs_f64());
        drop(engine);
        sizes[cell] = format!("{:.0}", disk_bytes(&kind.path(&base)) as f64 / links as f64);
        let engine = kind.open(&base);
        load_counters(&*engine, counters);
        engine.settle();
        drop(engine);
        let (millis, mebibytes) = start(kind, &base, 0);
        (starts[cell], resident[cell]) = (millis.to_string(), mebibytes.to_string());
    }
    for cells in [&mut loading, &mut sizes, &mut starts, &mut resident] {
        cells[2] = not_apart();
    }
    report.row("3. load in random order, durable batches of 50,000: written / settled, s", loading);
    report.row("5. bytes on disk a link, after the load", sizes);
    report.row("5. clean start to first read, cold, ms", starts);
    report.row("5. resident after that, MiB", resident);

    let next = AtomicU64::new(links);
    {
        let engines = Kind::open_all(&base);
        measure_creations(&engines, &next, &mut report);
        measure_flushes(&engines, counters, &mut report);
    }
    measure_look_ups(&base, links, &mut report);
    measure_recovery(&base, &next, &mut report);
    let total = [Kind::Fjall, Kind::Redb, Kind::Redb].map(|kind| disk_bytes(&kind.path(&base)) / 1_048_576);
    report.row("5. MiB on disk at the end", total.map(|mebibytes| mebibytes.to_string()));

    println!(
        "\n| {links} links, {counters} counters, cache {} MiB | fjall | redb | redb quick_repair |",
        CACHE_BYTES >> 20
    );
    println!("|---|---|---|---|\n{}", report.0);
    fs::remove_dir_all(&base).unwrap();
}

//! The real program on stores of more and more links: disk, start, memory, redirects of links that are not in its cache;
//! and analytics of a link with a long past.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use loadtests::head::Head;
use loadtests::http;
use loadtests::measure;
use loadtests::operator;
use loadtests::plot::{self, Line};
use loadtests::product::Connection;
use loadtests::program::{HIGH_LIMIT, Program};
use loadtests::seed::{self, Past, Seed, mix};
use loadtests::server::Server;
use loadtests::way::Way;

/// What the program takes at its defaults, whatever it stores, and what each link adds, mostly to the index of known links. Just
/// after that has doubled it takes up to 21 bytes for each.
const RESIDENT_MIB: f64 = 400.0;
const RESIDENT_BYTES: f64 = 16.0;
/// Connections that create links at once.
const CREATORS: u64 = 16;

/// What was seen with so many links.
pub struct Step {
    pub links: u64,
    filled: Duration,
    disk: u64,
    start_clean: Duration,
    start_killed: Duration,
    resident_started: f64,
    resident: f64,
    /// Of uncached redirects, in order.
    redirects: Vec<Duration>,
    /// The store once some of the links were edited, beside a copy of it from before.
    edited: Option<Edited>,
}

/// What was seen after one link in [`EDITED_ONE_IN`] was edited once, and of a copy from before, by turns.
pub struct Edited {
    editing: Duration,
    disk: u64,
    before: Turns,
    after: Turns,
}

/// What was seen of a store in several turns.
#[derive(Default)]
struct Turns {
    start_clean: Vec<Duration>,
    start_killed: Vec<Duration>,
    resident_started: Vec<f64>,
    /// Of uncached redirects, of all turns.
    redirects: Vec<Duration>,
}

/// Of so many links, one is edited.
const EDITED_ONE_IN: u64 = 5;
/// Turns of each of two stores. One run of each does not tell them apart: two starts of one store differ by half.
const TURNS: u64 = 5;

impl Step {
    fn redirect(&self, part: f64) -> f64 {
        quantile(&self.redirects, part).as_secs_f64() * 1e6
    }

    pub fn figures(&self) -> [(&'static str, &'static str, f64); 7] {
        [
            ("bytes on disk a link", "bytes", self.disk as f64 / self.links as f64),
            ("start after a clean stop", "ms", self.start_clean.as_secs_f64() * 1e3),
            ("start after kill -9", "ms", self.start_killed.as_secs_f64() * 1e3),
            ("resident after the start", "MiB", self.resident_started),
            ("resident at most, during redirects and creations", "MiB", self.resident),
            ("uncached redirect, p50", "µs", self.redirect(0.5)),
            ("uncached redirect, p99", "µs", self.redirect(0.99)),
        ]
    }
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

fn started(program: &Program, home: &Path) -> (Server, Duration) {
    let began = Instant::now();
    let server = program.start("signpost", Way::Unpinned, home, &[HIGH_LIMIT]);
    (server, began.elapsed())
}

/// Fills a store with `links` links and looks at it. `asked` links are redirected, and `made` ones created, so that a
/// `kill -9` leaves as much to recover as it can.
pub fn step(program: &Program, home: &Path, links: u64, asked: u64, made: u64, edits: bool) -> Step {
    let home = home.join(format!("links-{links}"));
    fs::create_dir_all(&home).unwrap();
    let began = Instant::now();
    seed::fill(program, &home, &Seed { links, all_hit: false, past: &[] });
    let filled = began.elapsed();
    eprintln!("{links} links: filled in {filled:.0?}");
    // What the import left to be merged is merged by the first start.
    let (server, _) = started(program, &home);
    server.rest().unwrap();
    // Ends it in order.
    drop(server);
    let disk = measure::disk_bytes(&home.join("data"));
    let (server, start_clean) = started(program, &home);
    server.rest().unwrap();
    let resident_started = server.resident_mib("VmRSS");
    let mut redirects = redirect(server.address, links, asked);
    redirects.sort_unstable();
    create(server.address, made);
    let resident = server.resident_mib("VmHWM");
    kill(server);
    let (server, start_killed) = started(program, &home);
    drop(server);
    let edited = edits.then(|| after_edits(program, &home, links, asked));
    fs::remove_dir_all(&home).unwrap();
    let step = Step { links, filled, disk, start_clean, start_killed, resident_started, resident, redirects, edited };
    eprintln!("{links} links: {:?}", step.figures());
    step
}

/// Edits some of the links, and looks at the store and at a copy of it from before by turns.
fn after_edits(program: &Program, home: &Path, links: u64, asked: u64) -> Edited {
    // What the killed process left is in the store.
    let (server, _) = started(program, home);
    server.rest().unwrap();
    drop(server);
    let copy = home.with_extension("before");
    assert!(Command::new("cp").arg("-a").args([home, &copy]).status().unwrap().success());
    let (server, _) = started(program, home);
    let began = Instant::now();
    edit(server.address, links);
    let editing = began.elapsed();
    server.rest().unwrap();
    drop(server);
    let disk = measure::disk_bytes(&home.join("data"));
    let (mut before, mut after) = (Turns::default(), Turns::default());
    for _ in 0..TURNS {
        for (store, turns) in [(&*copy, &mut before), (home, &mut after)] {
            take_turn(program, store, turns, links, asked / TURNS);
        }
    }
    fs::remove_dir_all(&copy).unwrap();
    for turns in [&mut before, &mut after] {
        turns.redirects.sort_unstable();
        turns.start_clean.sort_unstable();
        turns.start_killed.sort_unstable();
        turns.resident_started.sort_unstable_by(f64::total_cmp);
    }
    Edited { editing, disk, before, after }
}

/// Starts the program on a store, asks for links, kills it, starts it again and ends it in order.
fn take_turn(program: &Program, home: &Path, turns: &mut Turns, links: u64, asked: u64) {
    let (server, start) = started(program, home);
    turns.start_clean.push(start);
    server.rest().unwrap();
    turns.resident_started.push(server.resident_mib("VmRSS"));
    turns.redirects.extend(redirect(server.address, links, asked));
    kill(server);
    let (server, start) = started(program, home);
    turns.start_killed.push(start);
    server.rest().unwrap();
    drop(server);
}

impl Turns {
    /// Medians, and the 99th percentile of all redirects: name, unit, value.
    fn figures(&self) -> [(&'static str, &'static str, f64); 4] {
        let resident = self.resident_started[self.resident_started.len() / 2];
        [
            ("start after a clean stop", "ms", quantile(&self.start_clean, 0.5).as_secs_f64() * 1e3),
            ("start after kill -9", "ms", quantile(&self.start_killed, 0.5).as_secs_f64() * 1e3),
            ("resident after the start", "MiB", resident),
            ("uncached redirect, p99", "µs", quantile(&self.redirects, 0.99).as_secs_f64() * 1e6),
        ]
    }
}

/// Gives one link in [`EDITED_ONE_IN`] a target of the same length.
fn edit(address: SocketAddr, links: u64) {
    std::thread::scope(|scope| {
        for editor in 0..CREATORS {
            scope.spawn(move || {
                let mut connection = Connection::open(address).unwrap();
                for index in (editor * EDITED_ONE_IN..links).step_by((CREATORS * EDITED_ONE_IN) as usize) {
                    let target = seed::target(index).replace("autumn", "winter");
                    let body = format!("{{\"redirect_url\":\"{target}\"}}");
                    connection.send("PATCH", &format!("/links/{}", seed::id(index)), &body);
                }
            });
        }
    });
}

/// Ends the program by `kill -9`.
fn kill(server: Server) {
    let pid = the_child();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    drop(server);
}

/// The process that this one has started: there is one at a time.
fn the_child() -> u32 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children = children.collect::<String>();
    let mut pids = children.split_whitespace();
    let (Some(pid), None) = (pids.next(), pids.next()) else { panic!("not one child: {children}") };
    pid.parse().unwrap()
}

/// Asks for links that nobody asked for before.
fn redirect(address: SocketAddr, links: u64, asked: u64) -> Vec<Duration> {
    let mut connection = Connection::open(address).unwrap();
    let mut times = Vec::new();
    for n in 0..asked {
        // Spread over all of them, none twice.
        let index = (n * (links / asked) + mix(n) % (links / asked)).min(links - 1);
        let link = seed::id(index);
        let began = Instant::now();
        connection.hit(&link);
        times.push(began.elapsed());
    }
    times
}

fn create(address: SocketAddr, made: u64) {
    std::thread::scope(|scope| {
        for creator in 0..CREATORS {
            scope.spawn(move || {
                let mut connection = Connection::open(address).unwrap();
                for n in 0..made / CREATORS {
                    let target = seed::target(creator << 32 | n);
                    let body = format!("{{\"redirect_url\":\"{target}\"}}");
                    connection.send("POST", "/shorten", &body);
                }
            });
        }
    });
}

pub fn report(steps: &[Step]) -> String {
    let row = |name: String, cells: Vec<String>| format!("| {name} | {} |\n", cells.join(" | "));
    let of_each = |cell: &dyn Fn(&Step) -> String| steps.iter().map(cell).collect::<Vec<_>>();
    let mut text = row(String::new(), of_each(&|step| format!("{} links", step.links)));
    text += &row("---".to_owned(), vec!["---".to_owned(); steps.len()]);
    text += &row(
        "filling it by `signpost import`, s".to_owned(),
        of_each(&|step| format!("{:.0}", step.filled.as_secs_f64())),
    );
    for (at, (name, unit, _)) in steps[0].figures().into_iter().enumerate() {
        text += &row(format!("{name}, {unit}"), of_each(&|step| format!("{:.0}", step.figures()[at].2)));
    }
    if steps.iter().any(|step| step.edited.is_some()) {
        text += &report_edits(steps);
    }
    text
}

fn report_edits(steps: &[Step]) -> String {
    let mut text = format!(
        "\nOne link in {EDITED_ONE_IN} was edited once. The store and a copy from before the edits take {TURNS} turns each. Starts and memory \
         are medians.\n"
    );
    for step in steps {
        let Some(edited) = &step.edited else { continue };
        writeln!(
            text,
            "\n{} links, edited in {:.0} s; then {:.0} bytes on disk a link:\n\n| | before | after |\n|---|---|---|",
            step.links,
            edited.editing.as_secs_f64(),
            edited.disk as f64 / step.links as f64,
        )
        .unwrap();
        for ((name, unit, before), (.., after)) in edited.before.figures().into_iter().zip(edited.after.figures()) {
            writeln!(text, "| {name}, {unit} | {before:.0} | {after:.0} |").unwrap();
        }
    }
    text
}

/// What they are to be, and whether they are.
pub fn bounds(steps: &[Step]) -> String {
    let fewest = steps.iter().min_by_key(|step| step.links).unwrap();
    let most = steps.iter().max_by_key(|step| step.links).unwrap();
    let highest = |of: &dyn Fn(&Step) -> f64| steps.iter().map(of).fold(0.0, f64::max);
    let start = |step: &Step| step.start_clean.max(step.start_killed).as_secs_f64() * 1e3;
    let resident = |step: &Step| step.resident / (RESIDENT_MIB + step.links as f64 * RESIDENT_BYTES / 1_048_576.0);
    let mut rows = vec![
        ("every start, ms".to_owned(), highest(&start), 2_000.0),
        (
            format!(
                "resident at most, during redirects and creations, × {RESIDENT_MIB} MiB and {RESIDENT_BYTES} bytes a link"
            ),
            highest(&resident),
            1.0,
        ),
    ];
    if most.links > fewest.links {
        let what = format!("uncached redirect, p99: {} links × {} links", most.links, fewest.links);
        rows.push((what, most.redirect(0.99) / fewest.redirect(0.99), 1.25));
    }
    for (step, edited) in steps.iter().filter_map(|step| Some((step, step.edited.as_ref()?))) {
        let ratios = edited.before.figures().into_iter().zip(edited.after.figures());
        rows.extend(ratios.map(|((what, _, before), (.., after))| {
            (format!("{what}: {} links, after × before edits", step.links), after / before, 1.2)
        }));
    }
    let mut text = "\n| | at most | figure | |\n|---|---|---|---|\n".to_owned();
    for (what, figure, bound) in rows {
        let is_reached = if figure <= bound { "reached" } else { "**missed**" };
        writeln!(text, "| {what} | {bound} | {figure:.2} | {is_reached} |").unwrap();
    }
    text
}

/// Draws how the figures grow, in files beside the report, and answers what shows them there.
pub fn plots(steps: &[Step], head: &Head) -> String {
    let line = |row: usize, label: &str| Line {
        label: label.to_owned(),
        points: steps.iter().map(|step| (step.links as f64 / 1e6, step.figures()[row].2)).collect(),
    };
    let charts = [
        ("start", "Start", "ms", vec![line(1, "after a clean stop"), line(2, "after kill -9")]),
        ("resident", "Resident", "MiB", vec![line(3, "after the start"), line(4, "after redirects and creations")]),
        ("redirect", "A redirect that is not in the cache", "µs", vec![line(5, "p50"), line(6, "p99")]),
        ("disk", "Disk", "bytes a link", vec![line(0, "bytes a link")]),
    ];
    let mut text = String::new();
    for (name, title, unit, lines) in charts {
        let (file, path) = head.plot(name);
        plot::lines(&path, title, ("million links", unit), &lines, false);
        write!(text, "\n![{title}]({file})").unwrap();
    }
    text + "\n"
}

/// Analytics of links with a past of 400 days and full lists of labels, `rate` times a second for `seconds`.
pub fn analytics(program: &Program, home: &Path, rate: u32, seconds: u32) -> String {
    const HITS: [u64; 3] = [100_000, 1_000_000, 10_000_000];
    let home: PathBuf = home.join("analytics");
    fs::create_dir_all(&home).unwrap();
    let past: Vec<Past> = (0..).zip(HITS).map(|(link, hits)| Past { link, hits, days: 400 }).collect();
    seed::fill(program, &home, &Seed { links: 10, all_hit: false, past: &past });
    let (server, _) = started(program, &home);
    server.rest().unwrap();
    let mut text = format!(
        "{rate} requests a second for {seconds} s, each by schedule; from when it was due to the end of its answer.\n\n\
         | link | p50, ms | p99, ms | at most, ms | CPU a request, ms |\n|---|---|---|---|---|\n"
    );
    let links = past.iter().map(|past| (past.link, format!("{} hits over 400 days, 56,000 labels", past.hits)));
    for (link, name) in std::iter::once((9, "no hits".to_owned())).chain(links) {
        let request = operator::get(&format!("/links/{}/analytics", seed::id(link)));
        let cpu = server.cpu();
        let mut times = Vec::new();
        let began = Instant::now();
        for n in 0..rate * seconds {
            let due = began + Duration::from_secs(1) * n / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let answer = http::exchange(server.address, &request).unwrap();
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
            times.push(due.elapsed());
        }
        times.sort_unstable();
        let cpu = (server.cpu() - cpu) as f64 / 1e3 / f64::from(rate * seconds);
        let [half, most, all] = [0.5, 0.99, 1.0].map(|part| quantile(&times, part).as_secs_f64() * 1e3);
        writeln!(text, "| {name} | {half:.2} | {most:.2} | {all:.2} | {cpu:.2} |").unwrap();
    }
    drop(server);
    fs::remove_dir_all(&home).unwrap();
    text
}

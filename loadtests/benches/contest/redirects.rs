//! As fast as answers come: redirects of every kind, and QR codes, all by turns in one block.

use std::{fmt::Write, time::Duration};

use loadtests::{
    home,
    measure::Figures,
    program::{HIGH_LIMIT, NO_QR_LIMIT},
    requests::{Load, MIXED_EVERY},
    seed,
    server::Server,
    way::Way,
};

use super::{
    Contest, Scenario,
    block::{Block, CPU, P99, RATE, RESIDENT, Series, check_spread, tables, three},
    cell::{Cell, Generator, Outcome, Run},
    files::Files,
    nginx::{self, Duty},
    report::{Report, answers},
};

/// The program's hot redirect, which the others are compared with.
pub const HOT: &str = "signpost";
/// nginx with its usual duties and nothing else: what it is all compared with.
pub const RECORD: &str = "nginx, log";
const LIMIT_AND_LOG: &str = "nginx, limit and log";
/// What is given back a second or so after it was used is gone by then.
const AT_REST_AFTER: Duration = Duration::from_secs(5);
/// A fast path that takes more of the dispatcher's CPU than this is not worth its code.
const MOST_OF_DISPATCHED: f64 = 0.92;

/// The contestants in a hot redirect.
pub struct Field {
    pub peers: [Server; 3],
    pub signpost: Server,
    /// MiB that each had resident right after its start.
    started: Vec<f64>,
}

impl Field {
    pub fn start(contest: &Contest, way: Way) -> Self {
        let directory = |name: &str| contest.home.directory(&format!("{name}-{way:?}"));
        let peers = [Duty::Constant, Duty::Log, Duty::LimitAndLog];
        let peers = peers.map(|duty| nginx::start(duty, way, &directory(duty.name())));
        let settings = [HIGH_LIMIT, NO_QR_LIMIT];
        let signpost = contest.program.start(HOT, way, &contest.hot_links(&format!("{way:?}")), &settings);
        let mut field = Self { peers, signpost, started: Vec::new() };
        field.started = field.at_rest();
        field
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.peers.iter().chain([&self.signpost])
    }

    /// MiB that each has resident when it has had nothing to do for some seconds.
    fn at_rest(&self) -> Vec<f64> {
        std::thread::sleep(AT_REST_AFTER);
        self.servers().map(|server| server.resident_mib("VmRSS")).collect()
    }

    /// A redirect of the hot links by each of them.
    fn cells<'a>(&'a self, way: Way, load: &'a Load) -> impl Iterator<Item = Cell<'a>> {
        self.servers().map(move |server| redirect(server.name, way, server, load.clone()))
    }
}

fn redirect<'a>(title: &str, way: Way, server: &'a Server, load: Load) -> Cell<'a> {
    let (generator, outcome) = (Generator::Own, Outcome::Redirect);
    Cell { title: title.to_owned(), way, server, load, generator, outcome, closing: false, files: None }
}

/// Measures the pinned way, and answers its block.
pub fn pinned(contest: &Contest, field: &Field, report: &mut Report) -> Result<Block, String> {
    let requests = contest.requests();
    let (hot, signpost, way) = (requests.hot(), &field.signpost, Way::Pinned);
    let mut cells: Vec<Cell> = field.cells(way, &hot).collect();
    let limited = contest
        .wants(Scenario::Limited)
        .then(|| contest.program.start("signpost, limit of 100", way, &contest.hot_links("limited"), &[]));
    let wide = contest.wants(Scenario::Wide).then(|| {
        let home = seed::kept(&contest.program, &home::scratch(), contest.options.links);
        (contest.program.start("signpost, wide", way, &home, &[HIGH_LIMIT]), home)
    });
    let of = |title, server, load, outcome| Cell { outcome, ..redirect(title, way, server, load) };
    if contest.wants(Scenario::Wrk) {
        for (title, server) in BY_WRK.into_iter().zip([&field.peers[1], signpost]) {
            cells.push(Cell { generator: Generator::Wrk, ..redirect(title, way, server, hot.clone()) });
        }
    }
    cells.push(redirect(DISPATCHED, way, signpost, requests.dispatched()));
    if contest.wants(Scenario::Mixed) {
        cells.push(of(MIXED, signpost, requests.mixed(), Outcome::Mixed));
        cells.push(of(MIXED_APART, signpost, requests.mixed_apart(), Outcome::Mixed));
        cells.push(of(MIXED_DISPATCHED, signpost, requests.mixed_dispatched(), Outcome::Mixed));
        cells.push(of(API, signpost, requests.api(), Outcome::Document));
    }
    if contest.wants(Scenario::NotFound) {
        cells.push(of(NOT_FOUND, signpost, requests.unknown(), Outcome::NotFound));
    }
    if let Some(server) = &limited {
        cells.push(of(LIMITED, server, requests.one_client(), Outcome::Limited));
    }
    if let Some((server, home)) = &wide {
        for (title, files, salt) in [(WIDE, Files::InMemory, 3), (WIDE_ON_DISK, Files::OnDisk, 4)] {
            let load = requests.wide(contest.options.links, salt);
            cells.push(Cell { files: Some((home.clone(), files)), ..redirect(title, way, server, load) });
        }
        cells.push(of(WIDE_NOT_FOUND, server, requests.unknown(), Outcome::NotFound));
    }
    let deferred = contest
        .wants(Scenario::Connections)
        .then(|| nginx::start(Duty::LogDeferred, way, &contest.home.directory(&format!("nginx-deferred-{way:?}"))));
    if let Some(deferred) = &deferred {
        let [_, log, limit_and_log] = &field.peers;
        for (title, server) in CLOSINGS.into_iter().zip([log, deferred, limit_and_log, signpost]) {
            cells.push(Cell { closing: true, ..redirect(title, way, server, requests.closing()) });
        }
    }
    if contest.wants(Scenario::Qr) {
        cells.push(of(PNG, signpost, requests.qr("png", ""), Outcome::Document));
        cells.push(of(SVG, signpost, requests.qr("svg", "?format=svg"), Outcome::Document));
    }
    let block = Block::run(&cells, contest.options.rounds, contest.options.seconds)?;
    contest.doubt(report, check_spread(block.of(RECORD), block.of(HOT)))?;
    tell(&block, field, &hot, report);
    tell_memory(field, &block, report);
    Ok(block)
}

/// Memory before any load, under it and after it.
fn tell_memory(field: &Field, block: &Block, report: &mut Report) {
    let after = field.at_rest();
    let mut text = format!(
        "## Memory\n\nResident memory of all of a server's processes, in MiB: `VmRSS` {0} s after its start, right after a run of hot \
         redirects (the median over the rounds), and {0} s after the last load above has ended; and `VmHWM`, the most that was resident \
         so far.\n\n| | at rest after the start | under load | at rest after the load | at most |\n|---|---|---|---|---|\n",
        AT_REST_AFTER.as_secs()
    );
    for ((server, started), after) in field.servers().zip(&field.started).zip(&after) {
        let (under, most) = (block.of(server.name).figures(RESIDENT).median(), server.resident_mib("VmHWM"));
        writeln!(text, "| {} | {started:.1} | {under:.1} | {after:.1} | {most:.1} |", server.name).unwrap();
    }
    report.add(&(text + "\n"));
    let own = |all: &[f64]| Figures(vec![all[all.len() - 1]]);
    report.at_most("Memory at rest after the start, MiB", 64.0, &own(&field.started));
    report.at_most("Memory at rest after the load, MiB", 64.0, &own(&after));
}

const BY_WRK: [&str; 2] = ["nginx, log: by wrk", "signpost: by wrk"];
const DISPATCHED: &str = "signpost: by the dispatcher";
const MIXED: &str = "signpost: 5 % API requests";
const MIXED_APART: &str = "signpost: 5 % API requests, on connections of their own";
const MIXED_DISPATCHED: &str = "signpost: 5 % API requests, by the dispatcher";
const API: &str = "signpost: API requests";
const NOT_FOUND: &str = "signpost: unknown ids";
const WIDE_NOT_FOUND: &str = "signpost: wide, unknown ids";
const LIMITED: &str = "signpost: over the limit";
const WIDE: &str = "signpost: wide";
const WIDE_ON_DISK: &str = "signpost: wide, from disk";
const NGINX_CLOSING: &str = "nginx, log: a connection each";
const CLOSING: &str = "signpost: a connection each";
const CLOSINGS: [&str; 4] =
    [NGINX_CLOSING, "nginx, log, deferred: a connection each", "nginx, limit and log: a connection each", CLOSING];
const PNG: &str = "signpost: QR, PNG";
const SVG: &str = "signpost: QR, SVG";

fn tell(block: &Block, field: &Field, hot: &Load, report: &mut Report) {
    let names: Vec<&str> = field.servers().map(|server| server.name).collect();
    let (record, own) = (block.of(RECORD), block.of(HOT));
    report.add(
        "## Hot redirect, pinned\n\nA thousand links, drawn by Zipf's law, asked for by 4,096 clients through a trusted \
         proxy, over 64 connections in a closed loop. The server with one worker and all of its threads has one core, the load \
         generator another. CPU is user and system time of all of a server's processes, read again when it has nothing left to do: \
         the hits are in the store then, each 302 once, and nginx has written its log. A round is measured in pieces of a second, by turns: \
         its CPU and throughput are those of all pieces, its percentiles the medians of theirs. Where the generator has no rest and the server \
         has, the throughput is what the generator can take, which has more to read of nginx's answers. There is no database of places, as by default.\n\n",
    );
    report.add(&tables(&block.some(&names), record));
    for (name, what, unit, of) in [
        ("cpu", "CPU a request", "µs", CPU),
        ("throughput", "throughput", "requests a second", RATE),
        ("closed-loop-p99", "p99 in a closed loop", "ms", P99),
        ("resident", "resident", "MiB", RESIDENT),
    ] {
        report.plot(
            name,
            &format!("Hot redirect, pinned: {what}"),
            &format!("{unit}, min / median / max over the rounds"),
            block.some(&names).map(|series| (&*series.title, series.figures(of))),
            None,
        );
    }
    report.add(
        "What nginx is: *constant* is `return 302` alone. *Log*, the peer of record, writes the access log, buffered; a \
         `limit_req` beside `return` would be without effect there, for nginx answers a `return` before it looks at limits \
         (tried with one request a second: all were let in). *Limit and log* looks at a limit for each client and answers \
         with the same `return` from a named location.\n\n",
    );
    let limit_and_log = block.of(LIMIT_AND_LOG);
    report.add(&format!(
        "signpost beside \"{LIMIT_AND_LOG}\": CPU × {}, throughput × {}.\n\n",
        three(&own.times(limit_and_log, CPU), 2),
        three(&own.times(limit_and_log, RATE), 2)
    ));
    if let Some(peer) = block.get(BY_WRK[0]) {
        report.add(
            "The same requests from `wrk -t1 -c64`, which takes more CPU for a request than the generator above. When `wrk` is the \
             limit, a faster server gets fewer requests at a time, and asks the kernel more often.\n\n",
        );
        report.add(&tables(&block.some(&BY_WRK), peer));
    }
    report.add(&answers(&field.servers().collect::<Vec<_>>(), hot));
    report.at_most("Hot redirect, pinned: CPU, × nginx, log", 0.85, &own.times(record, CPU));
    report.at_most("Hot redirect, pinned: CPU, × nginx, limit and log", 0.80, &own.times(limit_and_log, CPU));
    report.at_least("Hot redirect, pinned: throughput, × nginx, log", 1.0, &own.times(record, RATE));
    report.at_most("Hot redirect, pinned: p99, × nginx, log", 1.0, &own.times(record, P99));

    report.add(
        "## Other requests, pinned\n\nIn the same rounds: hot redirects that are answered behind actix's dispatcher, to \
         which they are left for an `Upgrade` field; both with one request in twenty for a link's record, on the same connections, \
         or with these on others, and these alone; 16,384 unknown ids in turns; one client over the default limit; of the wide store, in which each link was hit before, unknown ids, and \
         redirects, a fifth of the look-ups for the hot links and the others for any, each other; QR codes of the hot links at \
         their defaults, never a 304. Before each turn of a wide redirect the kernel is brought to have all of the store's files \
         in memory, or none.",
    );
    if let Some(wide) = block.some(&[WIDE]).next() {
        let locked = wide.runs.iter().filter(|run| run.locked).count();
        report.add(&format!(" In memory they were locked until its end in {locked} of {} rounds.", wide.runs.len()));
    }
    report.add("\n\n");
    let redirects =
        [HOT, DISPATCHED, MIXED, MIXED_APART, MIXED_DISPATCHED, NOT_FOUND, WIDE_NOT_FOUND, LIMITED, WIDE, WIDE_ON_DISK];
    report.add(&tables(&block.some(&[&redirects[..], &[API, PNG, SVG]].concat()), own));
    for (name, what, titles) in [("others", "redirects", &redirects[..]), ("qr", "QR codes", &[PNG, SVG])] {
        if block.some(titles).next().is_some() {
            report.plot(
                name,
                &format!("CPU a request, pinned: {what}"),
                "µs, min / median / max over the rounds",
                block.some(titles).map(|series| (&*series.title, series.figures(CPU))),
                None,
            );
        }
    }
    for (what, title) in [
        ("Unknown ids: CPU, × hot redirect", NOT_FOUND),
        ("Unknown ids where links are many: CPU, × hot redirect", WIDE_NOT_FOUND),
        ("Over the limit: CPU, × hot redirect", LIMITED),
    ] {
        if let Some(series) = block.get(title) {
            report.at_most(what, 1.0, &series.times(own, CPU));
        }
    }
    tell_fast_path(block, report);
    if let Some(wide) = block.get(WIDE) {
        report.at_least("Wide redirect: throughput, × hot redirect", 0.5, &wide.times(own, RATE));
    }
    for (what, title) in [("QR, PNG: µs of CPU", PNG), ("QR, SVG: µs of CPU", SVG)] {
        if let Some(series) = block.get(title) {
            report.at_most(what, 200.0, &series.figures(CPU));
        }
    }
    tell_connections(block, report);
}

/// A connection for each request.
fn tell_connections(block: &Block, report: &mut Report) {
    if let Some(peer) = block.get(NGINX_CLOSING) {
        report.add(
            "## A connection for each request, pinned\n\nClients send `Connection: close`. nginx accepts connections as it does by \
             default, and, *deferred*, with `listen … deferred`: the kernel keeps a connection until its request is there \
             (`TCP_DEFER_ACCEPT`), as the program has it.\n\n",
        );
        report.add(&tables(&block.some(&CLOSINGS), peer));
        report.plot(
            "connections",
            "A connection for each request, pinned: CPU a request",
            "µs, min / median / max over the rounds",
            block.some(&CLOSINGS).map(|series| (&*series.title, series.figures(CPU))),
            None,
        );
        report.at_most("A connection for each request: CPU, × nginx, log", 1.0, &block.of(CLOSING).times(peer, CPU));
    }
}

/// What the fast path saves beside the dispatcher.
fn tell_fast_path(block: &Block, report: &mut Report) {
    let (own, dispatched) = (block.of(HOT), block.of(DISPATCHED));
    report.at_most("Hot redirect: CPU, × by the dispatcher", MOST_OF_DISPATCHED, &own.times(dispatched, CPU));
    let (Some(mixed), Some(mixed_apart), Some(mixed_dispatched), Some(api)) =
        (block.get(MIXED), block.get(MIXED_APART), block.get(MIXED_DISPATCHED), block.get(API))
    else {
        return;
    };
    let share = 1.0 / MIXED_EVERY as f64;
    // Of a mixed load's CPU a request, what its redirects took each.
    let redirects = |series: &Series| {
        let of = |(run, api): (&Run, &Run)| (run.cpu - share * api.cpu) / (1.0 - share);
        series.runs.iter().zip(&api.runs).map(of).collect::<Vec<_>>()
    };
    let [fast, apart, slow] = [mixed, mixed_apart, mixed_dispatched].map(|series| Figures(redirects(series)));
    report.add(&format!(
        "With 5 % API requests on the same connections, less what these cost by themselves, a redirect takes {} µs of CPU on the \
         fast path, to which connections come back after each API request, and {} µs by the dispatcher. With as many API requests \
         on connections of their own it takes {} µs. The extra cost of API requests beside redirects is included in the redirects' \
         figure, and so a redirect takes {} times as much CPU as without API requests.\n\n",
        three(&fast, 2),
        three(&slow, 2),
        three(&apart, 2),
        three(&fast.times(&own.figures(CPU)), 2),
    ));
    report.at_most(
        "Redirect beside 5 % API requests: CPU, × by the dispatcher",
        MOST_OF_DISPATCHED,
        &fast.times(&slow),
    );
    let what = "Redirect beside 5 % API requests: CPU, × with these on connections of their own";
    report.at_most(what, 1.03, &fast.times(&apart));
}

/// Measures hot redirects as people run servers.
pub fn unpinned(contest: &Contest, report: &mut Report) -> Result<(), String> {
    let field = Field::start(contest, Way::Unpinned);
    let hot = contest.requests().hot();
    let cells: Vec<Cell> = field.cells(Way::Unpinned, &hot).collect();
    let block = Block::run(&cells, contest.options.rounds, contest.options.seconds)?;
    let (record, own) = (block.of(RECORD), block.of(HOT));
    let what = "Hot redirect, unpinned: CPU, × nginx";
    if let Err(reason) = contest.doubt(report, check_spread(record, own)) {
        // What was measured before, on cores of its own, stands without it.
        eprintln!("unpinned, no report: {reason}");
        report.add(&format!("## Hot redirect, unpinned\n\nNot reported: {reason}.\n\n"));
        report.withheld(what, 1.0);
        return Ok(());
    }
    report.add(
        "## Hot redirect, unpinned\n\nThe same with as many workers as each takes by itself, and a load generator of two threads on the same \
         cores, for which they compete.\n\n",
    );
    let names: Vec<&str> = field.servers().map(|server| server.name).collect();
    report.add(&tables(&block.some(&names), record));
    report.at_most(what, 1.0, &own.times(record, CPU));
    Ok(())
}

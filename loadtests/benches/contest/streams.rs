//! Redirects while a thousand clients listen to live streams of hits.

use std::time::{Duration, Instant};

use loadtests::{
    listeners::{Heard, Listeners},
    measure::Figures,
    open_loop,
    program::HIGH_LIMIT,
    requests::{HOT_LINKS, Load},
    seed::{self, Seed},
    server::Server,
    way::Way,
};

use super::{
    Contest,
    block::three,
    latency::{Latencies, P99, table},
    report::Report,
};

const PER_SECOND: f64 = 20_000.0;
const LISTENERS: u64 = 1_000;
/// How long the last hits may be on their way.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// Who listens, from which link's index on; `None`: nobody.
const CROWDS: [(&str, Option<u64>); 3] = [
    ("nobody listens", None),
    ("a thousand listen to links that nobody follows", Some(HOT_LINKS)),
    ("a thousand listen to the links that are followed, one to each", Some(0)),
];

/// One run.
#[derive(Clone, Copy)]
struct Turn {
    cpu: f64,
    resident: f64,
    heard: Heard,
}

pub fn measure(contest: &Contest, report: &mut Report) -> Result<(), String> {
    let home = contest.home.directory("streams");
    seed::fill(&contest.program, &home, &Seed { links: HOT_LINKS + LISTENERS, all_hit: false, past: &[] });
    let server = contest.program.start("signpost", Way::Pinned, &home, &[HIGH_LIMIT]);
    let hot = contest.requests().hot();
    let mut latencies = CROWDS.map(|(title, _)| Latencies::new(title));
    let mut turns = CROWDS.map(|_| Vec::new());
    for _ in 0..contest.options.rounds {
        for (((_, first), latencies), turns) in CROWDS.iter().zip(&mut latencies).zip(&mut turns) {
            let (turn, kept) = turn(&server, &hot, contest.options.seconds, *first)?;
            eprintln!("{}: {:.2} µs, {:?}, {kept:?}", latencies.title, turn.cpu, turn.heard);
            contest.doubt(report, kept.check(&latencies.title))?;
            latencies.rounds.push(kept);
            turns.push(turn);
        }
    }
    add(report, &latencies, &turns);
    Ok(())
}

fn turn(server: &Server, hot: &Load, seconds: u32, first: Option<u64>) -> Result<(Turn, open_loop::Kept), String> {
    let mut listeners = first.map(|first| Listeners::start(Way::Pinned, server.address, first, LISTENERS));
    server.rest()?;
    let before = server.cpu();
    let kept = open_loop::run(server.address, &hot.texts, PER_SECOND, seconds.into(), 302)?;
    let mut heard = listeners.as_mut().map(Listeners::heard).unwrap_or_default();
    if first == Some(0) {
        let until = Instant::now() + TOLD_WITHIN;
        while heard.hits + heard.skipped < kept.answered && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
            heard = listeners.as_mut().map(Listeners::heard).unwrap_or_default();
        }
    }
    server.rest()?;
    let cpu = (server.cpu() - before) as f64 / kept.answered as f64;
    let resident = server.resident_mib("VmRSS");
    let expected = if first == Some(0) { kept.answered } else { 0 };
    if heard.hits + heard.skipped != expected {
        return Err(format!("of {expected} hits of the streams' links, {heard:?} were told"));
    }
    Ok((Turn { cpu, resident, heard }, kept))
}

fn add(report: &mut Report, latencies: &[Latencies; 3], turns: &[Vec<Turn>; 3]) {
    let figures = |turns: &[Turn], of: fn(&Turn) -> f64| Figures::of(turns, of);
    report.add(&format!(
        "## Live streams\n\n{PER_SECOND:.0} redirects a second by schedule, pinned; {LISTENERS} clients, which share the load \
         generator's core. Each hit of a link that has a listener was told or told as skipped, once. CPU is all of the \
         program's, with what streams take.\n\n\
         | | CPU a redirect, µs | resident, MiB | told a second | skipped a second |\n|---|---|---|---|---|\n"
    ));
    for (latencies, turns) in latencies.iter().zip(turns) {
        let seconds = latencies.rounds[0].answered as f64 / PER_SECOND;
        let [told, skipped] = [
            turns.iter().map(|turn| turn.heard.hits as f64 / seconds).collect(),
            turns.iter().map(|turn| turn.heard.skipped as f64 / seconds).collect(),
        ];
        report.add(&format!(
            "| {} | {} | {} | {} | {} |\n",
            latencies.title,
            three(&figures(turns, |turn| turn.cpu), 2),
            three(&figures(turns, |turn| turn.resident), 1),
            three(&Figures(told), 0),
            three(&Figures(skipped), 0),
        ));
    }
    report.add("\n");
    report.add(&table(latencies, &latencies[0]));
    let [nobody, quiet, told] = turns;
    let times = quiet.iter().zip(nobody).map(|(turn, peer)| turn.cpu / peer.cpu).collect();
    report.at_most("A thousand listeners of other links: CPU of a redirect, ×", 1.03, &Figures(times));
    // Events cost CPU of their own. What they cost the redirects shows in the time of the answers.
    report.at_most("A thousand listeners who are told: p99 of a redirect, ms", 20.0, &latencies[2].figures(P99));
    let more = told.iter().zip(nobody).map(|(turn, peer)| turn.resident - peer.resident).collect();
    report.at_most("A thousand listeners who are told: MiB more", 128.0, &Figures(more));
}

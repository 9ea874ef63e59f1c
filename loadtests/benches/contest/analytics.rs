//! Analytics of links with many hits: 400 days, and full lists of labels in each month.

use loadtests::{
    measure::Figures,
    open_loop,
    operator::get,
    seed::{self, Past, Seed},
    way::Way,
};

use super::{
    Contest,
    block::three,
    latency::{Latencies, P99, table},
    report::Report,
};

const PER_SECOND: f64 = 50.0;
/// Seconds of a run for each of a closed-loop run: there are few requests a second.
const LONGER: u32 = 2;

pub fn measure(contest: &Contest, report: &mut Report) -> Result<(), String> {
    let home = contest.home.directory("analytics");
    let past = [1_000_000, 10_000_000].map(|hits| Past { link: hits / 1_000_000, hits, days: 400 });
    seed::fill(&contest.program, &home, &Seed { links: 100, all_hit: false, past: &past });
    let server = contest.program.start("signpost", Way::Pinned, &home, &[]);
    let operator = server.operator.as_ref().expect("it tells of itself");
    let mut cpu = [Vec::new(), Vec::new()];
    let mut all = past.each_ref().map(|past| Latencies::new(&format!("a link with {} hits", past.hits)));
    for _ in 0..contest.options.rounds {
        for ((past, latencies), cpu) in past.iter().zip(&mut all).zip(&mut cpu) {
            let path = format!("/links/{}/analytics", seed::id(past.link));
            let shown = operator.document(&path);
            if shown["total_hits"] != past.hits || shown["referrers"].as_array().is_none_or(|top| top.len() != 10) {
                return Err(format!("analytics that are not as they were filled in: {shown}"));
            }
            let load = contest.requests().same("analytics", &get(&path));
            let seconds = f64::from(contest.options.seconds * LONGER);
            let before = server.cpu();
            let kept = open_loop::run(server.address, &load.texts, PER_SECOND, seconds, 200)?;
            cpu.push((server.cpu() - before) as f64 / kept.answered as f64 / 1e3);
            eprintln!("{}: {kept:?}", latencies.title);
            contest.doubt(report, kept.check(&latencies.title))?;
            latencies.rounds.push(kept);
        }
    }
    let [small, big] = &all;
    report.add(&format!(
        "## Analytics of big links\n\n{PER_SECOND} requests a second by schedule, pinned, of links with hits on each of 400 \
         days and 1,000 labels in every list of every month. The store is as it was filled: nothing is hit meanwhile.\n\n"
    ));
    report.add(&table(&all, small));
    let [small_cpu, big_cpu] = cpu.map(|millis| three(&Figures(millis), 2));
    report.add(&format!("CPU a request, ms: {small_cpu} and {big_cpu}.\n\n"));
    report.at_most("Analytics of 10 million hits: p99, ms", 20.0, &big.figures(P99));
    report.at_most("Analytics: p99 of 10 million hits, × that of 1 million", 1.25, &big.times(small, P99));
    Ok(())
}

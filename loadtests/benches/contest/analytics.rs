//! Analytics of links with many hits: 400 days, and full lists of labels in each month and each of the last days.

use chrono::{Days, Utc};
use loadtests::{
    measure::Figures,
    open_loop,
    operator::{Operator, get},
    seed::{self, Past, Seed},
    way::Way,
};
use serde_json::Value;

use super::{
    Contest,
    block::three,
    latency::{Latencies, P99, table},
    report::Report,
};

const PER_SECOND: f64 = 50.0;
/// Seconds of a run for each of a closed-loop run: there are few requests a second.
const LONGER: u32 = 2;

/// What is asked of a link.
struct Question {
    title: &'static str,
    path: String,
    /// Whether an answer has what the store was filled with.
    is_right: fn(&Value, &Past) -> bool,
    bounds: [&'static str; 2],
}

fn questions() -> [Question; 5] {
    let today = Utc::now().date_naive();
    let before = |days: u64| today - Days::new(days);
    [
        Question {
            title: "The record",
            path: String::new(),
            is_right: |shown, past| shown["total_hits"] == past.hits && has_ten(&shown["referrers"]),
            bounds: ["Analytics of 10 million hits: p99, ms", "Analytics: p99 of 10 million hits, × that of 1 million"],
        },
        Question {
            title: "A series of hours in a zone",
            path: format!("/series?interval=hour&timezone=Asia/Kolkata&bots=exclude&from={}&until={today}", before(33)),
            is_right: |shown, _| shown["points"].as_array().is_some_and(|points| points.len() == 33 * 24),
            bounds: [
                "Series by hour of 10 million hits: p99, ms",
                "Series by hour: p99 of 10 million hits, × that of 1 million",
            ],
        },
        Question {
            title: "A series of 400 days",
            path: format!("/series?from={}&until={today}", before(399)),
            is_right: |shown, past| shown["total"] == past.hits / past.days * 399,
            bounds: [
                "Series by day of 10 million hits: p99, ms",
                "Series by day: p99 of 10 million hits, × that of 1 million",
            ],
        },
        Question {
            title: "A breakdown of all months",
            path: "/breakdown?dimension=city".to_owned(),
            is_right: |shown, past| shown["total"] == past.hits && has_ten(&shown["labels"]),
            bounds: [
                "Breakdown of all months, 10 million hits: p99, ms",
                "Breakdown of all months: p99 of 10 million hits, × that of 1 million",
            ],
        },
        Question {
            title: "A breakdown of 88 days",
            path: format!("/breakdown?dimension=city&bots=exclude&from={}&until={today}", before(88)),
            is_right: |shown, _| has_ten(&shown["labels"]),
            bounds: [
                "Breakdown of 88 days, 10 million hits: p99, ms",
                "Breakdown of 88 days: p99 of 10 million hits, × that of 1 million",
            ],
        },
    ]
}

fn has_ten(labels: &Value) -> bool {
    labels.as_array().is_some_and(|labels| labels.len() == 10)
}

pub fn measure(contest: &Contest, report: &mut Report) -> Result<(), String> {
    let home = contest.home.directory("analytics");
    let past = [1_000_000, 10_000_000].map(|hits| Past { link: hits / 1_000_000, hits, days: 400 });
    seed::fill(&contest.program, &home, &Seed { links: 100, all_hit: false, past: &past });
    let server = contest.program.start("signpost", Way::Pinned, &home, &[]);
    let operator = server.operator.as_ref().expect("it tells of itself");
    report.add(&format!(
        "## Analytics of big links\n\n{PER_SECOND} requests a second by schedule, pinned, of links with hits on each of 400 \
         days, 1,000 labels in the lists of every month and 200 in those of each of the last 90 days. The store is as it was \
         filled: nothing is hit meanwhile.\n\n"
    ));
    for question in questions() {
        let mut cpu = [Vec::new(), Vec::new()];
        let mut all = past.each_ref().map(|past| Latencies::new(&format!("a link with {} hits", past.hits)));
        for _ in 0..contest.options.rounds {
            for ((past, latencies), cpu) in past.iter().zip(&mut all).zip(&mut cpu) {
                let request = request(operator, &question, past)?;
                let load = contest.requests().same("analytics", &request);
                let seconds = f64::from(contest.options.seconds * LONGER);
                let before = server.cpu();
                let kept = open_loop::run(server.address, &load.texts, PER_SECOND, seconds, 200)?;
                cpu.push((server.cpu() - before) as f64 / kept.answered as f64 / 1e3);
                eprintln!("{}, {}: {kept:?}", question.title, latencies.title);
                contest.doubt(report, kept.check(&latencies.title))?;
                latencies.rounds.push(kept);
            }
        }
        let [small, big] = &all;
        report.add(&format!("### {}\n\n`GET /links/{{short_id}}/analytics{}`\n\n", question.title, question.path));
        report.add(&table(&all, small));
        let [small_cpu, big_cpu] = cpu.map(|millis| three(&Figures(millis), 2));
        report.add(&format!("CPU a request, ms: {small_cpu} and {big_cpu}.\n\n"));
        let [slowest, growth] = question.bounds;
        report.at_most(slowest, 20.0, &big.figures(P99));
        report.at_most(growth, 1.25, &big.times(small, P99));
    }
    Ok(())
}

/// The request, whose answer is right.
fn request(operator: &Operator, question: &Question, past: &Past) -> Result<String, String> {
    let path = format!("/links/{}/analytics{}", seed::id(past.link), question.path);
    let shown = operator.document(&path);
    if !(question.is_right)(&shown, past) {
        return Err(format!("analytics that are not as they were filled in: {path}: {shown}"));
    }
    Ok(get(&path))
}

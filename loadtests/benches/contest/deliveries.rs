//! Redirects while webhooks are delivered.

use std::process::Command;

use loadtests::{
    http,
    measure::Figures,
    open_loop,
    operator::ROOT_KEY,
    program::{HIGH_LIMIT, WEBHOOKS_TO_LOOPBACK},
    receiver::Receiver,
    requests::Requests,
    server::Server,
    way::Way,
};
use serde_json::json;

use super::{
    Contest,
    block::{Block, RATE, three},
    latency::{Latencies, table},
    redirects::RECORD,
    report::Report,
};

const DELIVERIES_PER_SECOND: f64 = 5_000.0;
const WEBHOOKS: usize = 10;
/// Of the deliveries that are due, so many must be made while the load lasts.
const KEPT_UP: f64 = 0.95;

/// Makes a link with webhooks.
fn shorten(server: &Server, webhooks: &[String]) -> String {
    let body = json!({"redirect_url": "https://shop.example.com/autumn", "webhooks": webhooks}).to_string();
    let request = format!(
        "POST /shorten HTTP/1.1\r\nHost: signpost\r\nX-API-Key: {ROOT_KEY}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = http::exchange(server.address, &request).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    answer["short_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

pub fn measure(contest: &Contest, block: &Block, report: &mut Report) -> Result<(), String> {
    // Deliveries need the same core as the redirects, so these take but a quarter of what nginx has reached.
    let per_second = block.of(RECORD).figures(RATE).median() / 4.0;
    let mut receiver = Receiver::start(1, false);
    // It shares the load generator's core, which gives way to it.
    let taskset = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", "1"])
        .arg(receiver.pid().to_string())
        .output();
    assert!(taskset.is_ok_and(|output| output.status.success()), "the receiver has its core");
    let settings = [HIGH_LIMIT, WEBHOOKS_TO_LOOPBACK];
    let server = contest.program.start("signpost", Way::Pinned, &contest.hot_links("deliveries"), &settings);
    let operator = server.operator.as_ref().expect("it tells of itself");
    let link = shorten(&server, &receiver.hooks(WEBHOOKS));
    let every = (per_second / (DELIVERIES_PER_SECOND / WEBHOOKS as f64)).round() as u64;
    let requests = contest.requests();
    let loads = [requests.hot(), requests.hot_with(&link, every)];
    let mut all = ["redirects alone", "redirects while 5,000 deliveries a second go out"].map(Latencies::new);
    let (mut made, mut cpu) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..contest.options.rounds {
        for (which, (load, latencies)) in loads.iter().zip(&mut all).enumerate() {
            server.rest()?;
            receiver.ask("reset");
            let (before, cpu_before) = (operator.counts(), server.cpu());
            let seconds = f64::from(contest.options.seconds);
            let kept = open_loop::run(server.address, &load.texts, per_second, seconds, 302)?;
            let soon = receiver.count().distinct;
            server.rest()?;
            cpu[which].push((server.cpu() - cpu_before) as f64 / kept.answered as f64);
            let counts = operator.counts().since(before);
            let at_rest = receiver.count();
            eprintln!("{} at {per_second:.0}/s: {kept:?}, {at_rest:?}", latencies.title);
            if counts.hits != kept.answered {
                return Err(format!("{} redirects were answered, and counted are {counts:?}", kept.answered));
            }
            if which == 1 {
                let expected = Requests::hits_with(every, kept.answered) * WEBHOOKS as u64;
                if (at_rest.requests, at_rest.distinct, at_rest.repeats) != (expected, expected, 0) {
                    return Err(format!("{expected} deliveries were due, and came: {at_rest:?}"));
                }
                made.push(soon as f64 / expected as f64);
            }
            contest.doubt(report, kept.check(&latencies.title))?;
            latencies.rounds.push(kept);
        }
    }
    report.add(&format!(
        "## Redirects while webhooks go out, pinned\n\n{per_second:.0} redirects a second by schedule; one in {every} of them \
         is of a link with ten webhooks, which makes 5,000 deliveries a second. The receiver shares the load generator's \
         core. Every delivery came exactly once.\n\n"
    ));
    report.add(&table(&all, &all[0]));
    let [alone, beside] = cpu.map(Figures);
    let made = Figures(made);
    report.add(&format!(
        "CPU a redirect, µs: {} alone, {} with its share of the deliveries. Of the deliveries due, {} had come when the last \
         redirect was answered.\n\n",
        three(&alone, 2),
        three(&beside, 2),
        three(&made, 3)
    ));
    report.at_least("Deliveries at 5,000 a second: share that has come at once", KEPT_UP, &made);
    Ok(())
}

//! The time from a hit to its delivery, at half the rate that is sustained.

use std::fmt::Write;

use loadtests::{home::Home, measure::Figures, product::Product, program::Program, receiver::Receiver};

use super::{
    Options,
    sustained::{Links, Rates, check_exactly_once, hit_by_schedule, wait_for},
};

/// Before what is measured: connections, caches, the clock of the CPU.
const WARM_UP_SECONDS: f64 = 2.0;

pub fn measure(options: &Options, program: &Program, rates: &Rates) -> String {
    let home = Home::durable("webhooks-latency");
    let mut receiver = Receiver::start(1, false);
    let product = Product::start(program, &home.0, &options.settings());
    let links = Links::make(&product, &receiver);
    let mut text = format!(
        "## Latency\n\nHits by schedule, not one after the other's answer, for {} s, so that deliveries come at half the \
         sustained rate. From `hit_at` to receipt, in ms; `hit_at` is cut to the millisecond, so each is up to 1 ms too \
         long. Every delivery came exactly once.\n\n\
         | webhooks | deliveries/s | deliveries | p50 | p90 | p99 | max | hits late, p99 |\n|---|---|---|---|---|---|---|---|\n",
        options.seconds
    );
    for (webhooks, sustained) in [(10, rates.ten), (1, rates.one)] {
        let (rate, link) = (sustained / 2.0, links.with(webhooks));
        let hits_per_second = rate / webhooks as f64;
        let mut client = product.connect();
        let mut phase = |seconds: f64| {
            receiver.ask("reset");
            let hits = (seconds * hits_per_second).ceil() as u64;
            let mut late = Figures(hit_by_schedule(&mut client, link, hits, hits_per_second));
            wait_for(&mut receiver, hits * webhooks);
            check_exactly_once(&product, &mut receiver, link, hits * webhooks);
            late.0.sort_by(f64::total_cmp);
            (hits * webhooks, late.0[(late.0.len() - 1) * 99 / 100])
        };
        phase(WARM_UP_SECONDS);
        let (deliveries, late) = phase(options.seconds);
        let cells = receiver.latencies().map(|millis| format!("{millis:.1}")).join(" | ");
        writeln!(text, "| {webhooks} | {rate:.0} | {deliveries} | {cells} | {late:.1} |").unwrap();
        eprintln!("latency, {webhooks} webhooks: {cells}");
    }
    text + "\n"
}

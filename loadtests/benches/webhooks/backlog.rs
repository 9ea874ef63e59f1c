//! A long queue: what it costs while it waits, over a `kill -9`, and when it drains.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use loadtests::{
    home::Home,
    measure::{self, Figures},
    product::{Product, STANDS_STILL, Sums},
    program::Program,
    receiver::Receiver,
};

use super::{Options, sustained::wait_for};

/// Fresh hits whose deliveries are timed.
const FRESH_HITS: u64 = 20;
/// A delivery ends where a period of the product does, so the pauses until the next hit are spread over a second: hits
/// then fall on all parts of a period.
const FRESH_PAUSE: std::ops::Range<f64> = 0.3..1.3;
const LOOK: Duration = Duration::from_millis(100);
const WEBHOOKS: u64 = 10;
/// What the product is left alone for, before its memory is read.
const REST: Duration = Duration::from_secs(5);

struct Table(String);

impl Table {
    fn row(&mut self, what: &str, figure: &str) {
        eprintln!("{what}: {figure}");
        writeln!(self.0, "| {what} | {figure} |").unwrap();
    }

    fn resident(&mut self, when: &str, product: &Product) {
        let sizes = ["VmRSS", "RssAnon", "VmHWM"].map(|name| measure::resident_mib(product.pid(), name));
        let sizes = sizes.map(|mebibytes| format!("{mebibytes:.0}")).join(" / ");
        self.row(&format!("resident {when}, MiB: all / without mapped files / highest since the start"), &sizes);
    }

    /// How long deliveries of another link take, one at a time.
    fn fresh(&mut self, when: &str, product: &Product, receiver: &mut Receiver, link: &str) {
        let mut client = product.connect();
        receiver.ask("reset");
        for hit in 1..=FRESH_HITS {
            client.hit(link);
            wait_for(receiver, hit);
            // Multiples of the golden ratio leave no gaps.
            let part = (hit as f64 * 0.618_034).fract();
            std::thread::sleep(Duration::from_secs_f64(
                FRESH_PAUSE.start + part * (FRESH_PAUSE.end - FRESH_PAUSE.start),
            ));
        }
        let [median, _, _, highest] = receiver.latencies();
        self.row(
            &format!("{FRESH_HITS} fresh hits of another link, {when}, hit to delivery, ms: p50 / max"),
            &format!("{median:.0} / {highest:.0}"),
        );
    }
}

/// Makes the backlog, and waits until all of it is in the store.
fn make(product: &Product, link: &str, hits: u64) -> Duration {
    let (mut client, begun) = (product.connect(), Instant::now());
    (0..hits).for_each(|_| client.hit(link));
    eprintln!("{hits} hits in {:?}", begun.elapsed());
    product.wait_for_sums(link, |sums| sums.pending == hits * WEBHOOKS);
    begun.elapsed()
}

/// Lets the dead receiver answer, and watches what the product does.
fn drain(table: &mut Table, product: &Product, dead: &mut Receiver, link: &str, backlog: u64, part: u64) {
    let (begun, cpu) = (Instant::now(), product.cpu());
    dead.ask("answer");
    let (mut highest, mut last, mut since) = (0.0_f64, 0, Instant::now());
    let mut first = None;
    let count = loop {
        highest = highest.max(measure::resident_mib(product.pid(), "VmRSS"));
        let count = dead.count();
        if count.distinct >= part {
            break count;
        }
        if count.distinct > last {
            first.get_or_insert_with(|| begun.elapsed());
            (last, since) = (count.distinct, Instant::now());
        }
        assert!(since.elapsed() < STANDS_STILL, "{count:?} of {part} deliveries drained, and no more come");
        std::thread::sleep(LOOK);
    };
    let (took, cpu) = (begun.elapsed(), product.cpu() - cpu);
    let drained = count.distinct;
    table.row("the receiver answers again: seconds until the first delivery (at most 0.1 too long)", &{
        format!("{:.1}", first.unwrap_or(took).as_secs_f64())
    });
    table.row(
        &format!("drain of {drained} deliveries: s / a second / µs of CPU each"),
        &format!(
            "{:.0} / {:.0} / {:.1}",
            took.as_secs_f64(),
            drained as f64 / took.as_secs_f64(),
            cpu as f64 / drained as f64
        ),
    );
    table.row("resident while it drained, MiB, highest", &format!("{highest:.0}"));
    if part < backlog {
        return;
    }
    product.wait_for_sums(link, |sums| sums.pending == 0);
    product.settle();
    let (sums, count) = (product.sums(link), dead.count());
    assert_eq!(sums, Sums { delivered: backlog, ..Sums::default() }, "the status endpoint's sums");
    assert_eq!((count.distinct, count.misplaced), (backlog, 0), "the receiver's count: {count:?}");
    table.row("of the backlog delivered / of these more than once", &format!("{} / {}", count.distinct, count.repeats));
    table.resident("after the drain", product);
}

pub fn measure(options: &Options, program: &Program) -> String {
    let home = Home::durable("webhooks-backlog");
    let settings = options.settings();
    let hits = options.backlog / WEBHOOKS;
    let (backlog, part) = (hits * WEBHOOKS, options.drain.unwrap_or(u64::MAX).min(hits * WEBHOOKS));
    let mut table = Table(format!(
        "## Backlog\n\n{hits} hits of a link with {WEBHOOKS} webhooks at {} receiver(s) that take requests and never \
         answer. No setting keeps the deliveries pending: each try ends by its time-out and is due again behind all \
         others.\n\n| | |\n|---|---|\n",
        options.dead_hosts
    ));
    let mut dead = Receiver::start(options.dead_hosts, true);
    let mut fast = Receiver::start(1, false);
    let product = Product::start(program, &home.0, &settings);
    let (waiting, other) = (product.shorten(&dead.hooks(WEBHOOKS as usize)), product.shorten(&fast.hooks(1)));
    table.row("start with nothing stored until ready, s", &seconds(product.ready_after));
    table.fresh("nothing waits", &product, &mut fast, &other);
    table.resident("with nothing pending", &product);

    let took = make(&product, &waiting, hits);
    table.row(&format!("{backlog} deliveries pending in the store, s after the first hit"), &seconds(took));
    std::thread::sleep(REST);
    table.resident("with the backlog", &product);
    table.row("data directory, MiB", &format!("{}", measure::disk_bytes(&home.0) >> 20));
    table.fresh("the backlog waits", &product, &mut fast, &other);

    product.kill();
    let product = Product::start(program, &home.0, &settings);
    table.row("start after `kill -9` until ready (page cache warm), s", &seconds(product.ready_after));
    fast.ask("reset");
    product.connect().hit(&other);
    wait_for(&mut fast, 1);
    let first = Figures(vec![fast.latencies()[3]]);
    table.row("the first fresh hit after that, hit to delivery, ms", &format!("{:.0}", first.median()));
    let kept = product.sums(&waiting);
    assert_eq!(kept, Sums { pending: backlog, ..Sums::default() }, "pending after the restart");
    std::thread::sleep(REST);
    table.resident("after the restart", &product);
    table.fresh("the backlog waits after the restart", &product, &mut fast, &other);

    drain(&mut table, &product, &mut dead, &waiting, backlog, part);
    table.0 + "\n"
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

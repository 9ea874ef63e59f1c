//! How many deliveries a second, and what one costs.

use std::{fmt::Write, time::Duration};

use loadtests::{
    home::Home,
    measure::{Figures, unix_micros},
    product::{Connection, Product, STANDS_STILL, configured},
    program::Program,
    receiver::Receiver,
};

use super::{
    Options,
    bare::{self, BareRound, Peer},
};

/// Deliveries that hits are ahead of the receiver, so that the queue is never empty.
const AHEAD: u64 = 10_000;
/// How often the client looks whether more hits are wanted.
const LOOK: Duration = Duration::from_millis(10);
/// Rounds of the bare loop that lie farther apart say that the machine had other work.
const MOST_SPREAD: f64 = 0.25;

/// The links of one product: without webhooks, with one and with ten.
pub struct Links {
    pub plain: String,
    pub one: String,
    pub ten: String,
}

impl Links {
    pub fn make(product: &Product, receiver: &Receiver) -> Self {
        let with = |count| product.shorten(&receiver.hooks(count));
        Self { plain: with(0), one: with(1), ten: with(10) }
    }

    pub fn with(&self, webhooks: u64) -> &str {
        if webhooks == 10 { &self.ten } else { &self.one }
    }
}

/// What a number of deliveries took.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    pub deliveries: u64,
    /// From the first hit until the receiver had the last delivery.
    pub took: Duration,
    /// Microseconds of all the product did for them, until it had nothing more to do.
    pub cpu: u64,
}

impl Delivered {
    pub fn per_second(self) -> f64 {
        self.deliveries as f64 / self.took.as_secs_f64()
    }

    fn micros_each(self) -> f64 {
        self.cpu as f64 / self.deliveries as f64
    }
}

/// Waits until the receiver has `expected` different deliveries.
pub fn wait_for(receiver: &mut Receiver, expected: u64) {
    let (mut last, mut since) = (0, std::time::Instant::now());
    loop {
        let distinct = receiver.count().distinct;
        if distinct >= expected {
            return;
        }
        if distinct > last {
            (last, since) = (distinct, std::time::Instant::now());
        }
        assert!(
            since.elapsed() < STANDS_STILL,
            "{distinct} of {expected} deliveries came, and no more in {STANDS_STILL:?}"
        );
        std::thread::sleep(LOOK);
    }
}

/// Ends the run unless the receiver and the status endpoint tell the same: each of `expected` deliveries, once.
pub fn check_exactly_once(product: &Product, receiver: &mut Receiver, link: &str, expected: u64) {
    product.wait_for_sums(link, |sums| sums.pending == 0);
    product.settle();
    let count = receiver.count();
    assert!(
        (count.requests, count.distinct, count.repeats, count.misplaced) == (expected, expected, 0, 0),
        "of {expected} deliveries the receiver got: {count:?}; the status endpoint tells {:?}",
        product.sums(link)
    );
}

/// `hits` hits of a link with `webhooks` webhooks, as fast as deliveries are made.
fn deliver(product: &Product, receiver: &mut Receiver, link: &str, webhooks: u64, hits: u64) -> Delivered {
    receiver.ask("reset");
    let known = product.sums(link).delivered;
    let mut client = product.connect();
    let (mut made, expected) = (0, hits * webhooks);
    let (before, begun) = (product.cpu(), unix_micros());
    while made < hits {
        let waiting = made * webhooks - receiver.count().distinct;
        let wanted = AHEAD.saturating_sub(waiting).div_ceil(webhooks).min(hits - made);
        (0..wanted).for_each(|_| client.hit(link));
        made += wanted;
        if wanted == 0 {
            std::thread::sleep(LOOK);
        }
    }
    wait_for(receiver, expected);
    check_exactly_once(product, receiver, link, expected);
    let sums = product.sums(link);
    assert_eq!((sums.delivered - known, sums.failed), (expected, 0), "the status endpoint's sums");
    let took = Duration::from_micros(receiver.count().last_at - begun);
    Delivered { deliveries: expected, took, cpu: product.cpu() - before }
}

/// Makes `hits` hits at a pace, whatever the answers take; answers how late each was, in milliseconds.
pub fn hit_by_schedule(client: &mut Connection, link: &str, hits: u64, per_second: f64) -> Vec<f64> {
    let begun = std::time::Instant::now();
    let late = |hit: u64| {
        let due = Duration::from_secs_f64(hit as f64 / per_second);
        if let Some(early) = due.checked_sub(begun.elapsed()) {
            std::thread::sleep(early);
        }
        let late = begun.elapsed().saturating_sub(due).as_secs_f64() * 1e3;
        client.hit(link);
        late
    };
    (0..hits).map(late).collect()
}

/// CPU of the product for a redirect of a link without webhooks, in microseconds.
fn redirects(product: &Product, link: &str, hits: u64, per_second: f64) -> f64 {
    let (mut client, before) = (product.connect(), product.cpu());
    hit_by_schedule(&mut client, link, hits, per_second);
    product.settle();
    (product.cpu() - before) as f64 / hits as f64
}

/// Deliveries, and as many requests of the bare loop just before them.
struct Pair {
    bare: BareRound,
    /// The same loop over the product's own HTTP client.
    by_client: BareRound,
    delivered: Delivered,
}

struct Round {
    ten: Pair,
    one: Pair,
    /// Microseconds of CPU a redirect.
    redirect: f64,
}

/// What the other scenarios take from this one: deliveries a second with one webhook and with ten.
pub struct Rates {
    pub one: f64,
    pub ten: f64,
}

/// Measures and reports; `Err` with the reason when the figures are not worth a report.
pub fn measure(options: &Options, program: &Program) -> Result<(String, Rates), String> {
    let home = Home::durable("webhooks-sustained");
    let settings = options.settings();
    let configured = |key| configured(program, &home.0, &settings, key);
    let per_host = configured("in_flight_per_host");
    let mut receiver = Receiver::start(options.hosts, false);
    let product = Product::start(program, &home.0, &settings);
    let links = Links::make(&product, &receiver);
    // The first deliveries open connections and fill caches, and one of them is the bare loop's pattern.
    deliver(&product, &mut receiver, &links.ten, 10, 100);
    deliver(&product, &mut receiver, &links.one, 1, 1000);
    let sample = receiver.ask("sample");
    let per_round = options.deliveries / 10 * 10;
    let mut pair = |webhooks: u64| {
        let hooks = receiver.hooks(webhooks as usize);
        let hosts = hooks.len().min(usize::from(options.hosts));
        receiver.ask("reset");
        let in_flight = (per_host * hosts).min(configured("workers"));
        let bare = bare::measure(Peer::Reqwest, &sample, &hooks, per_round, in_flight);
        assert_eq!(receiver.count().requests, per_round, "requests of the bare loop");
        let by_client = bare::measure(Peer::ProductClient, &sample, &hooks, per_round, in_flight);
        let delivered = deliver(&product, &mut receiver, links.with(webhooks), webhooks, per_round / webhooks);
        let each = |cpu: u64| cpu as f64 / per_round as f64;
        eprintln!(
            "{webhooks} webhooks: {:.1} µs each in {:.1?}; bare loop: {:.1} µs in {:.1?}, with the product's client {:.1} µs",
            each(delivered.cpu),
            delivered.took,
            each(bare.cpu),
            bare.took,
            each(by_client.cpu)
        );
        Pair { bare, by_client, delivered }
    };
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let (ten, one) = (pair(10), pair(1));
        let redirect = redirects(&product, &links.plain, per_round, one.delivered.per_second());
        rounds.push(Round { ten, one, redirect });
    }
    report(options, &rounds, per_round, per_host)
}

fn report(options: &Options, rounds: &[Round], per_round: u64, per_host: usize) -> Result<(String, Rates), String> {
    let figures = |of: &dyn Fn(&Round) -> f64| Figures::of(rounds, of);
    let pairs = || rounds.iter().flat_map(|round| [&round.ten, &round.one]);
    let bare = |pair: &Pair| pair.bare.cpu as f64 / per_round as f64;
    let ten = |round: &Round| round.ten.delivered.micros_each();
    let one = |round: &Round| round.one.delivered.micros_each();
    let ten_own = |round: &Round| ten(round) - round.redirect / 10.0;
    let one_own = |round: &Round| one(round) - round.redirect;

    let bare_rate = Figures(pairs().map(|pair| per_round as f64 / pair.bare.took.as_secs_f64()).collect());
    let bare_cpu = Figures(pairs().map(bare).collect());
    let client_cpu = Figures(pairs().map(|pair| pair.by_client.cpu as f64 / per_round as f64).collect());
    let ten_rate = figures(&|round| round.ten.delivered.per_second());
    let one_rate = figures(&|round| round.one.delivered.per_second());
    for (what, spread) in [("requests a second", bare_rate.spread()), ("CPU a request", bare_cpu.spread())] {
        if spread > MOST_SPREAD && !options.even_if_noisy {
            return Err(format!(
                "the rounds of the bare loop lie {:.0} % apart in {what}, more than {:.0} %: the machine has other work",
                spread * 100.0,
                MOST_SPREAD * 100.0
            ));
        }
    }
    let ratio = |of: &dyn Fn(&Round) -> f64, with: &dyn Fn(&Round) -> &Pair| {
        let medians = figures(of).median() / bare_cpu.median();
        let each: Vec<String> = rounds.iter().map(|round| format!("{:.2}", of(round) / bare(with(round)))).collect();
        format!("{medians:.2} | {}", each.join(", "))
    };
    let (ten_ratio, one_ratio) =
        (|of| ratio(of, &|round: &Round| &round.ten), |of| ratio(of, &|round: &Round| &round.one));
    let mut text = format!(
        "## Sustained\n\n{} rounds, each: the bare loop over `reqwest`, the same over the product's HTTP client, hits of a \
         link with 10 webhooks, both loops again, hits of a link with 1, hits of a link with none. {per_round} requests or deliveries each time to one receiver ({} host(s), \
         {per_host} in flight to each at the most, for both); hits keep up to {AHEAD} deliveries ahead. Every round's \
         deliveries came exactly once, by `webhook-id`, and the status endpoint's sums are the same.\n\n\
         | per second | min | median | max |\n|---|---|---|---|\n",
        rounds.len(),
        options.hosts
    );
    let row = |text: &mut String, name: &str, cells: String| writeln!(text, "| {name} | {cells} |").unwrap();
    row(&mut text, "bare loop: requests", bare_rate.cells(0));
    row(&mut text, "10 webhooks: deliveries", ten_rate.cells(0));
    row(&mut text, "1 webhook: deliveries", one_rate.cells(0));
    text += "\n| µs of CPU | min | median | max |\n|---|---|---|---|\n";
    row(&mut text, "bare loop: a request", bare_cpu.cells(1));
    row(&mut text, "bare loop over the product's HTTP client: a request", client_cpu.cells(1));
    row(&mut text, "10 webhooks: a delivery and a tenth of its redirect", figures(&ten).cells(1));
    row(&mut text, "1 webhook: a delivery and its redirect", figures(&one).cells(1));
    row(
        &mut text,
        "a redirect without webhooks, at the pace of 1 webhook's",
        figures(&|round| round.redirect).cells(1),
    );
    row(&mut text, "10 webhooks: a delivery's own share", figures(&ten_own).cells(1));
    row(&mut text, "1 webhook: a delivery's own share", figures(&one_own).cells(1));
    text += "\n| times the bare loop's CPU | of medians | of each round |\n|---|---|---|\n";
    row(&mut text, "10 webhooks: a delivery and a tenth of its redirect", ten_ratio(&ten));
    row(&mut text, "10 webhooks: a delivery's own share", ten_ratio(&ten_own));
    row(&mut text, "1 webhook: a delivery and its redirect", one_ratio(&one));
    row(&mut text, "1 webhook: a delivery's own share", one_ratio(&one_own));
    text += "\nA delivery's CPU is that of the whole process for all it did for them, until it was idle again: redirect, \
             journal, counting, queue, signature, sending, writing down, the store's own upkeep. Its own share is that \
             less a redirect (or a tenth of one), which is measured in the same round and has a hit's journal and \
             counting in it.\n\n";
    Ok((text, Rates { one: one_rate.median(), ten: ten_rate.median() }))
}

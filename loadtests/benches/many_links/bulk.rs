//! Bulk creation beside single creations, over one connection.

use std::fmt::Write;
use std::time::{Duration, Instant};

use loadtests::measure::Figures;
use loadtests::product::Product;
use loadtests::seed;
use serde_json::{Value, json};

use super::{Bound, Options, Stores, creation};

/// Links of a bulk creation: as many as one may have.
const LINKS: u64 = 500;
/// Single creations that are made ready for a second, more than can be made. A bulk creation takes as long as many of them.
const MOST_REQUESTS: f64 = 10_000.0;
const REQUESTS_OF_A_BULK: usize = 50;

/// What a way of creation does in each round.
#[derive(Default)]
struct Way {
    per_second: Figures,
    /// Microseconds of CPU of the program a link.
    cpu: Figures,
}

impl Way {
    /// Sends requests that were made before, one after the other, until `seconds` are over; each makes so many links. Answers are looked at
    /// afterwards, so that the program is never without a request.
    fn round(
        &mut self,
        product: &Product,
        seconds: f64,
        (path, links): (&str, u64),
        bodies: &[String],
        check: impl Fn(&[u8]),
    ) {
        product.settle();
        let mut connection = product.connect();
        let (cpu, begun, mut answers) = (product.cpu(), Instant::now(), Vec::new());
        for body in bodies {
            answers.push(connection.send("POST", path, body));
            if begun.elapsed() >= Duration::from_secs_f64(seconds) {
                break;
            }
        }
        let elapsed = begun.elapsed().as_secs_f64();
        product.settle();
        for answer in &answers {
            check(answer);
        }
        let links = answers.len() as u64 * links;
        self.per_second.0.push(links as f64 / elapsed);
        self.cpu.0.push((product.cpu() - cpu) as f64 / links as f64);
    }
}

pub fn measure(stores: &Stores, options: &Options, bounds: &mut Vec<Bound>) -> String {
    let product = stores.start();
    let (mut single, mut bulk) = (Way::default(), Way::default());
    let mut next = 0;
    for round in 0..=options.rounds {
        eprintln!("bulk: round {round} of {}", options.rounds);
        if round == 1 {
            // The round before was to warm up.
            (single, bulk) = (Way::default(), Way::default());
        }
        let mut target = || {
            next += 1;
            seed::target(next)
        };
        let requests = (MOST_REQUESTS * options.seconds) as usize;
        let bodies: Vec<String> = (0..requests).map(|_| creation(&target()).to_string()).collect();
        single.round(&product, options.seconds, ("/shorten", 1), &bodies, |_| ());
        let mut many = || {
            let links: Vec<Value> = (0..LINKS).map(|_| creation(&target())).collect();
            json!({"links": links}).to_string()
        };
        let bodies: Vec<String> = (0..requests.div_ceil(REQUESTS_OF_A_BULK)).map(|_| many()).collect();
        bulk.round(&product, options.seconds, ("/shorten/bulk", LINKS), &bodies, |answer| {
            let answer: Value = serde_json::from_slice(answer).unwrap();
            assert_eq!(answer["created"], LINKS);
        });
    }
    let (faster, cheaper) = (bulk.per_second.times(&single.per_second), bulk.cpu.times(&single.cpu));
    bounds.push(Bound::at_least("bulk creation: × the links a second of single ones", 10.0, faster.median()));
    bounds.push(Bound::at_most("bulk creation: × the CPU a link of single ones", 1.0 / 3.0, cheaper.median()));
    let mut text = format!(
        "\n## Bulk creation\n\nOver one connection, durable, by turns in {} rounds of {} s each; {LINKS} links a call. Requests are made before a round, and \
         answers looked at after it.\n\n\
         | | min | median | max |\n|---|---|---|---|\n",
        options.rounds, options.seconds
    );
    for (name, figures, decimals) in [
        ("single creations: links a second", &single.per_second, 0),
        ("bulk creations: links a second", &bulk.per_second, 0),
        ("single creations: CPU a link, µs", &single.cpu, 1),
        ("bulk creations: CPU a link, µs", &bulk.cpu, 1),
        ("bulk × single, links a second", &faster, 1),
        ("bulk × single, CPU a link", &cheaper, 2),
    ] {
        writeln!(text, "| {name} | {} |", figures.cells(decimals)).unwrap();
    }
    text
}

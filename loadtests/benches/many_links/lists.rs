//! Pages of lists: of a key with few links, and of one with many.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadtests::measure::Figures;
use loadtests::product::{Connection, Product};
use loadtests::seed;
use serde_json::{Value, json};

use super::{Bound, Options, Stores, creation};

/// Links of one bulk creation of those that fill a store.
const LINKS: u64 = 500;
/// Connections that fill a store.
const CREATORS: u64 = 8;
/// One link in so many has the tag, and one the slug.
const TAGGED_ONE_IN: u64 = 10;
/// p99 with many links, times that with few.
const MOST: f64 = 1.2;

/// A kind of list: its name, and its query. Pages go on by the cursor, to the end, and then from the start.
const KINDS: [(&str, &str); 6] = [
    ("newest first", ""),
    ("oldest first", "order=oldest"),
    ("with hits", "include=hits"),
    ("by tag", "tag=sale"),
    ("by slug prefix", "slug_prefix=item-"),
    ("by target", "target=TARGET"),
];

/// What was seen of one program: for each kind, for each round, p50 and p99 in milliseconds.
struct Seen {
    product: Product,
    links: u64,
    filled: Duration,
    cursors: [Option<String>; KINDS.len()],
    half: [Figures; KINDS.len()],
    most: [Figures; KINDS.len()],
}

pub fn measure(stores: &Stores, options: &Options, bounds: &mut Vec<Bound>) -> String {
    let mut all: Vec<Seen> = options.links.iter().map(|&links| filled(stores, links)).collect();
    for seen in &all {
        seen.product.settle();
    }
    stores.settle();
    for round in 0..=options.rounds {
        eprintln!("lists: round {round} of {}", options.rounds);
        if round == 1 {
            // The round before was to warm up.
            for seen in &mut all {
                (seen.half, seen.most) = Default::default();
            }
        }
        for kind in 0..KINDS.len() {
            for seen in &mut all {
                seen.ask(kind, options.pages);
            }
        }
    }
    let [few, many] = &all[..] else { panic!("two sizes") };
    report(options, few, many, bounds)
}

/// A program with so many links, made by bulk creation.
fn filled(stores: &Stores, links: u64) -> Seen {
    let product = stores.start();
    let (next, created) = (AtomicU64::new(0), AtomicU64::new(0));
    let (begun, on_cluster) = (Instant::now(), stores.engine.is_some());
    std::thread::scope(|scope| {
        for _ in 0..CREATORS {
            scope.spawn(|| {
                let mut connection = product.connect();
                loop {
                    let first = next.fetch_add(LINKS, Ordering::Relaxed);
                    if first >= links {
                        return;
                    }
                    let bodies: Vec<Value> = (first..links.min(first + LINKS)).map(body).collect();
                    let count = bodies.len() as u64;
                    let body = json!({"links": bodies}).to_string();
                    let answer = if on_cluster {
                        connection.create("/shorten/bulk", &format!("links-from-{first}"), &body)
                    } else {
                        // The answers that are kept for repeated requests would take more space than the links.
                        connection.send("POST", "/shorten/bulk", &body)
                    };
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    let made = answer["created"].as_u64().unwrap();
                    // Of links of one call, a few may be answered 503 while the cluster compacts.
                    assert!(on_cluster || made == count, "{made} of {count} links");
                    created.fetch_add(made, Ordering::Relaxed);
                }
            });
        }
    });
    let (filled, asked_for, links) = (begun.elapsed(), links, created.into_inner());
    assert!(links * 100 >= asked_for * 99, "{links} of {asked_for} links");
    eprintln!("{links} links: filled in {filled:.0?}");
    Seen { product, links, filled, cursors: Default::default(), half: Default::default(), most: Default::default() }
}

fn body(index: u64) -> Value {
    let mut body = creation(&seed::target(index));
    if index.is_multiple_of(TAGGED_ONE_IN) {
        body["tags"] = json!(["sale"]);
        body["slug"] = json!(format!("item-{index:010}"));
    }
    body
}

impl Seen {
    fn ask(&mut self, kind: usize, pages: u32) {
        let mut connection = self.product.connect();
        let mut times: Vec<Duration> = (0..pages).map(|page| self.page(&mut connection, kind, page)).collect();
        times.sort_unstable();
        let quantile = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e3;
        self.half[kind].0.push(quantile(0.5));
        self.most[kind].0.push(quantile(0.99));
    }

    fn page(&mut self, connection: &mut Connection, kind: usize, page: u32) -> Duration {
        // Each target is of one link.
        let target = seed::target(seed::mix(u64::from(page)) % self.links).replace('&', "%26").replace('?', "%3F");
        let mut path = format!("/links?{}", KINDS[kind].1.replace("TARGET", &target));
        if let Some(cursor) = &self.cursors[kind] {
            write!(path, "&cursor={cursor}").unwrap();
        }
        let begun = Instant::now();
        let answer = connection.send("GET", &path, "");
        let elapsed = begun.elapsed();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        self.cursors[kind] = answer["next_cursor"].as_str().map(str::to_owned);
        let count = answer["links"].as_array().unwrap().len();
        // One link has the target. Any other page is full, but for the last and those that look for matches in parts.
        let is_whole = if KINDS[kind].1.contains("TARGET") { count == 1 } else { count > 0 };
        assert!(is_whole, "{count} links: {path}");
        elapsed
    }
}

fn report(options: &Options, few: &Seen, many: &Seen, bounds: &mut Vec<Bound>) -> String {
    let Options { rounds, pages, .. } = options;
    let mut text = format!(
        "\n## Lists\n\n{} and {} links of one key, one in {TAGGED_ONE_IN} of them with a tag and a slug, made by bulk creation in {:.0} s and \
         {:.0} s. Pages of 25 links, each from where the one before ended, over one connection; by turns in {rounds} rounds of {pages} pages of \
         each kind. Medians over the rounds.\n\n\
         | | {} links: p50, ms | p99, ms | {} links: p50, ms | p99, ms | p99 × p99, in each round |\n|---|---|---|---|---|---|\n",
        few.links,
        many.links,
        few.filled.as_secs_f64(),
        many.filled.as_secs_f64(),
        few.links,
        many.links
    );
    for (kind, (name, _)) in KINDS.into_iter().enumerate() {
        let ratios = many.most[kind].times(&few.most[kind]);
        let medians = [&few.half[kind], &few.most[kind], &many.half[kind], &many.most[kind]];
        let medians = medians.map(|figures| format!("{:.2}", figures.median())).join(" | ");
        let each = ratios.0.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ");
        writeln!(text, "| {name} | {medians} | {each} |").unwrap();
        bounds.push(Bound::at_most(format!("lists {name}: p99, many links × few"), MOST, ratios.median()));
    }
    text
}

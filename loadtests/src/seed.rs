//! Stores with links and hits in them, filled by `signpost import` from a file that is written here.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufWriter, Write},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Datelike};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};

use crate::{
    program::{Program, hex},
    way::Way,
};

/// How many ids there are: 62⁷.
const IDS: u64 = 62u64.pow(7);
/// Prime to [`IDS`], so that each index has an id of its own; neighbours lie far apart.
const STRIDE: u64 = 1_234_567_890_173;

/// splitmix64: the same index gives the same "random" number in every process.
pub fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The id of the link with this index. Indexes above the number of links give ids that no link has.
pub fn id(index: u64) -> String {
    const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = (u128::from(index) * u128::from(STRIDE) % u128::from(IDS)) as u64;
    (0..7)
        .map(|_| {
            let digit = BASE62[(rest % 62) as usize];
            rest /= 62;
            char::from(digit)
        })
        .collect()
}

/// Where the link leads: all of one length, so that all answers are.
pub fn target(index: u64) -> String {
    format!("https://shop.example.com/autumn/sale/item-{index:08}?utm_source=newsletter&utm_medium=mail")
}

/// Hits of a link: `hits` in all, spread evenly over `days` days up to today, with full lists of labels in each month
/// and in each of the last days.
pub struct Past {
    pub link: u64,
    pub hits: u64,
    pub days: u64,
}

/// As many labels as a list of a month, and a sheet of a day, may have.
const LABELS: u64 = 1_000;
const SHEET_LABELS: u64 = 200;
/// The dimensions whose labels are texts, but for languages and destinations: there are fewer.
const TEXTS: [&str; 8] =
    ["referrer", "region", "city", "utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"];
/// For so many days back, quarters and sheets are kept.
const QUARTER_DAYS: i64 = 37;
const SHEET_DAYS: i64 = 90;
const QUARTERS: u64 = 96;
const DAY_SECONDS: i64 = 86_400;

/// What a store is to have.
pub struct Seed<'a> {
    pub links: u64,
    /// Each link has been hit once, a month ago: whoever counts hits of it finds a row.
    pub all_hit: bool,
    pub past: &'a [Past],
}

/// Fills the store in `home`, which holds nothing yet.
pub fn fill(program: &Program, home: &Path, seed: &Seed) {
    let empty = home.join("empty");
    fs::create_dir_all(&empty).unwrap();
    // The first start makes the root key; the export of that store is what the file begins and ends with.
    drop(program.start("signpost, to make a root key", Way::Unpinned, &empty, &[]));
    program.run(&empty, &["export", "keys.jsonl"]);
    let file = home.join("import.jsonl");
    write_file(&fs::read_to_string(empty.join("keys.jsonl")).unwrap(), &file, seed);
    fs::remove_dir_all(&empty).unwrap();
    program.run(home, &["import", "import.jsonl"]);
    fs::remove_file(file).unwrap();
}

/// Counted up whenever stores are filled otherwise.
const FILLING: u32 = 1;

/// A store with `links` links that stays for the next run of the same program, worn in: each was hit before.
pub fn kept(program: &Program, under: &Path, links: u64) -> PathBuf {
    let home = under.join(format!("contest-{links}-links"));
    let done = home.join("complete");
    // Another program may keep things otherwise, and would measure what it does not make.
    let made_by = format!("{FILLING} {}", program.digest());
    if fs::read_to_string(&done).ok().as_ref() != Some(&made_by) {
        eprintln!("filling a store with {links} links, once: {}", home.display());
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        fill(program, &home, &Seed { links, all_hit: true, past: &[] });
        fs::write(done, made_by).unwrap();
        // Else that goes on for the first rounds.
        rustix::fs::sync();
    }
    home
}

// ------------------------------------------------------------------------- the file

struct File {
    out: BufWriter<fs::File>,
    hash: Context,
    counters: u64,
}

impl File {
    fn line(&mut self, text: &str) {
        for piece in [text.as_bytes(), b"\n"] {
            self.hash.update(piece);
            self.out.write_all(piece).unwrap();
        }
    }

    fn counter(&mut self, record: &Value) {
        self.counted(&record.to_string());
    }

    fn counted(&mut self, line: &str) {
        self.line(line);
        self.counters += 1;
    }
}

/// Writes the file for `signpost import`: what `exported` says of the root key, with links and counters between.
fn write_file(exported: &str, path: &Path, seed: &Seed) {
    let of = |start: &'static str| exported.lines().filter(move |line| line.starts_with(start));
    let root: Value = serde_json::from_str(of("{\"key\":").next().unwrap()).unwrap();
    let (owner, created_at) = (&root["key"]["id"], &root["key"]["created_at"]);
    let out = BufWriter::with_capacity(1 << 20, fs::File::create(path).unwrap());
    let mut file = File { out, hash: Context::new(&SHA256), counters: 0 };
    of("{\"signpost_export\":").chain(of("{\"key\":")).for_each(|line| file.line(line));
    for index in 0..seed.links {
        // By hand: ten million times.
        file.line(&format!(
            r#"{{"link":{{"id":"{}","target":"{}","data":"{{}}","webhooks":[],"tracked":true,"owner":{owner},"created_at":{created_at}}}}}"#,
            id(index),
            target(index)
        ));
    }
    if seed.all_hit {
        let day = today() - 30;
        for index in 0..seed.links {
            file.counted(&format!(r#"{{"day":{{"link":"{}","day":{day},"devices":[1,0,0]}}}}"#, id(index)));
        }
    }
    seed.past.iter().for_each(|past| write_past(&mut file, past));
    let names = of("{\"name\":").count();
    of("{\"name\":").for_each(|line| file.line(line));
    let counts = json!({"keys": 1, "links": seed.links, "counters": file.counters, "others": names});
    let sha256 = hex(file.hash.clone().finish().as_ref());
    writeln!(file.out, "{}", json!({"end": {"counts": counts, "sha256": sha256}})).unwrap();
    file.out.flush().unwrap();
}

fn today() -> i64 {
    chrono::Utc::now().timestamp() / DAY_SECONDS
}

/// Counters of the link's days, of each month's labels and of the last days' sheets.
fn write_past(file: &mut File, past: &Past) {
    let each = past.hits / past.days;
    let today = today();
    let days = today - past.days as i64 + 1..=today;
    write_days(file, &id(past.link), days.clone(), each);
    let mut months = BTreeMap::<i64, u64>::new();
    for day in days {
        let date = DateTime::from_timestamp(day * DAY_SECONDS, 0).unwrap();
        *months.entry(i64::from(date.year()) * 12 + i64::from(date.month0())).or_default() += each;
    }
    write_months(file, &id(past.link), &months);
    for day in today - SHEET_DAYS.min(past.days as i64) + 1..=today {
        // Each hit has a device.
        let of_device = ["desktop", "mobile", "tablet"].into_iter().zip(by_device(each));
        let of_device = of_device.map(|(label, count)| ("device", label.to_owned(), count));
        let entries: Vec<_> = labels(SHEET_LABELS, each)
            .chain(of_device)
            .map(|(dimension, label, count)| json!([dimension, label, count - count / 8, count / 8]))
            .collect();
        file.counter(&json!({"sheet": {"link": id(past.link), "day": day, "entries": entries}}));
    }
}

fn by_device(hits: u64) -> [u64; 3] {
    [hits / 2, hits / 3, hits - hits / 2 - hits / 3]
}

/// One hit in eight is a bot's. Of the last days, each quarter of an hour has its hits.
fn write_days(file: &mut File, link: &str, days: RangeInclusive<i64>, each: u64) {
    let today = *days.end();
    for day in days {
        let devices = by_device(each);
        let mut record = json!({"link": link, "day": day, "devices": devices, "bots": devices.map(|count| count / 8)});
        if day > today - QUARTER_DAYS {
            let count = each / QUARTERS;
            let quarters: Vec<_> = (0..QUARTERS).map(|quarter| [quarter, count - count / 8, count / 8]).collect();
            record["quarters"] = json!(quarters);
        }
        file.counter(&json!({"day": record}));
    }
}

/// By month: the hits of its days.
fn write_months(file: &mut File, link: &str, months: &BTreeMap<i64, u64>) {
    for (month, hits) in months {
        for (dimension, label, count) in labels(LABELS, *hits) {
            let record = json!({"link": link, "month": month, "dimension": dimension, "label": label, "count": count});
            file.counter(&json!({"label": record}));
        }
    }
}

/// Full lists of all dimensions with texts or countries, the first labels more often.
fn labels(most: u64, hits: u64) -> impl Iterator<Item = (&'static str, String, u64)> {
    let count = move |label: u64| (hits / (label + 8) / 8).max(1);
    let letter = |number: u64| char::from(b'A' + (number % 26) as u8);
    let countries = (0..most.min(250)).map(move |label| {
        let country = format!("{}{}", letter(label / 26), letter(label));
        ("country", country, count(label))
    });
    let texts = TEXTS.into_iter().flat_map(move |dimension| {
        (0..most).map(move |label| (dimension, format!("{dimension}-{label:03}.example"), count(label)))
    });
    countries.chain(texts)
}

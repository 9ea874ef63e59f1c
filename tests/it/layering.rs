//! The direction of use between the parts of the program, held by reading its source.
//!
//! `main → app → http → service → webhooks → actors → {counting, journal, cache, limits} → feed → store → domain`, each using what stands
//! to its right, and less than that where the table says so. In the middle, `actors` uses `counting` and `journal` (the hit
//! counter reads the journal), and knows neither the cache nor the clients' limits, which belong to redirects; of these four
//! only `counting` uses another, `journal`, and only the cache asks the store. `feed` passes counted hits on to live streams.
//! `caller`, `config`, `cli`, `locks`, `memory`, `readiness`, `threads` and `tls` are leaves that use nothing here, `dns` uses `locks` alone; `telemetry` knows only locks, TLS and threads, `clock` what a time is, and locks.

use std::fs;
use std::path::{Path, PathBuf};

/// A part, and the parts that it may use.
const MAY_USE: [(&str, &[&str]); 25] = [
    ("main", &["app", "cli", "config", "memory", "telemetry", "threads", "transfer"]),
    (
        "app",
        &[
            "actors",
            "cache",
            "clock",
            "config",
            "dns",
            "domain",
            "counting",
            "feed",
            "http",
            "journal",
            "limits",
            "readiness",
            "service",
            "store",
            "telemetry",
            "threads",
            "transfer",
            "webhooks",
        ],
    ),
    ("transfer", &["domain", "store"]),
    (
        "http",
        &[
            "actors",
            "cache",
            "clock",
            "domain",
            "feed",
            "limits",
            "readiness",
            "service",
            "store",
            "telemetry",
            "threads",
        ],
    ),
    (
        "service",
        &["actors", "cache", "caller", "clock", "domain", "feed", "journal", "limits", "store", "webhooks", "locks"],
    ),
    ("webhooks", &["actors", "clock", "dns", "domain", "store", "telemetry", "tls", "locks"]),
    ("actors", &["clock", "counting", "domain", "feed", "journal", "memory", "store", "telemetry", "threads", "locks"]),
    ("counting", &["domain", "feed", "journal", "threads"]),
    ("feed", &["domain", "store", "locks"]),
    ("journal", &["domain", "threads", "locks"]),
    ("cache", &["domain", "store", "locks"]),
    ("limits", &["memory"]),
    ("store", &["caller", "clock", "domain", "memory", "telemetry", "threads", "tls", "locks"]),
    ("clock", &["domain", "locks"]),
    ("domain", &[]),
    ("config", &[]),
    ("telemetry", &["threads", "tls", "locks"]),
    ("caller", &[]),
    ("cli", &[]),
    ("dns", &["locks"]),
    ("locks", &[]),
    ("memory", &[]),
    ("readiness", &[]),
    ("threads", &[]),
    ("tls", &[]),
];

/// A crate or a name, and the only places that may have it.
const ONLY_IN: [(&str, &[&str]); 18] = [
    ("actix_web", &["http/", "app.rs", "app/", "main.rs"]),
    // Logging names it to quiet it.
    ("actix_http", &["http/", "telemetry/logging.rs"]),
    ("actix_service", &["http/"]),
    ("actix", &["actors/", "webhooks/", "app.rs", "app/"]),
    ("fjall", &["store/embedded/"]),
    ("jiff", &["domain/time_zone.rs"]),
    ("hickory_proto", &["dns/", "telemetry/logging.rs"]),
    ("memmap2", &["journal/segment.rs", "memory/words.rs"]),
    ("maxminddb", &["counting/places.rs"]),
    ("reqwest", &["webhooks/preparation.rs", "webhooks/sender.rs", "telemetry/traces/export.rs"]),
    (
        "unsafe",
        &[
            "http/fast_path/plain_lines.rs",
            "http/server/listener.rs",
            "journal/segment.rs",
            "limits/mod.rs",
            "main.rs",
            "memory/words.rs",
            "threads.rs",
        ],
    ),
    // A segment's header says when it was made, an answer its `Date`; all else asks the clock that is handed in.
    // The times of spans are the system's.
    (
        "SystemTime",
        &["clock.rs", "journal/mod.rs", "http/fast_path/encode.rs", "telemetry/traces.rs", "telemetry/traces/"],
    ),
    ("clap", &["cli.rs", "main.rs"]),
    ("metrics_exporter_prometheus", &["telemetry/"]),
    ("opentelemetry", &["telemetry/traces.rs", "telemetry/traces/"]),
    ("opentelemetry_http", &["telemetry/traces/"]),
    ("opentelemetry_otlp", &["telemetry/traces/"]),
    ("opentelemetry_sdk", &["telemetry/traces.rs", "telemetry/traces/"]),
];

/// What a part that does no I/O, asks for no time and is written nowhere can't have.
const NOT_IN_DOMAIN: [&str; 16] = [
    "tokio",
    "actix_rt",
    "futures_util",
    "fs",
    "io",
    "env",
    "process",
    "thread",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "Instant",
    "now_v7",
    // A change of the domain must not change what is on disk or in answers.
    "Serialize",
    "Deserialize",
];

const LONGEST_FILE: usize = 450;

struct Source {
    /// From `src/` on.
    path: String,
    /// The part it belongs to.
    part: String,
    lines: usize,
    /// Its code without comments, and without its unit tests.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // An icon is no source, and the console is no part of the program.
    let is_source =
        |file: &PathBuf| file.extension().is_none_or(|kind| kind != "ico") && !file.starts_with(root.join("console"));
    let files = files(&root).into_iter().filter(is_source);
    let mut sources: Vec<_> = files
        .map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let part = path.split(['/', '.']).next().unwrap().to_owned();
            let text = fs::read_to_string(&file).unwrap();
            let tested = text.split("#[cfg(test)]").next().unwrap();
            let code = tested.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
            Source { path, part, lines: text.lines().count(), code }
        })
        .collect();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 50, "the source is somewhere else");
    sources
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Names, in order, each with what stands behind it.
fn names(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c| !is_part(c));
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let name;
        (name, rest) = rest.split_at(end);
        (!name.is_empty()).then_some((name, rest))
    })
}

/// The parts that paths from the crate's root lead to: `crate::a`, `crate::{a, b::c}`.
fn used_parts(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (name, behind) in names(code) {
        let Some(path) = behind.strip_prefix("::").filter(|_| name == "crate" || name == "signpost") else { continue };
        let Some(group) = path.strip_prefix('{') else {
            used.extend(names(path).next().map(|(part, _)| part.to_owned()));
            continue;
        };
        let (mut depth, mut element) = (0_usize, String::new());
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => used.extend(names(&std::mem::take(&mut element)).next().map(|n| n.0.to_owned())),
                c => element.push(c),
            }
        }
        used.extend(names(&element).next().map(|(part, _)| part.to_owned()));
    }
    used
}

/// How many `super` the longest chain of them has.
fn longest_super_chain(code: &str) -> usize {
    let (mut longest, mut chain) = (0, 0);
    for (name, behind) in names(code) {
        chain = if name == "super" && behind.starts_with("::") { chain + 1 } else { 0 };
        longest = longest.max(chain);
    }
    longest
}

#[test]
fn each_part_uses_only_what_stands_to_its_right() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.part != "lib") {
        let rule = MAY_USE.iter().find(|(part, _)| *part == source.part);
        let (_, allowed) = rule.unwrap_or_else(|| panic!("a part that the table does not have: {}", source.path));
        for used in used_parts(&source.code) {
            if used != source.part && !allowed.contains(&&*used) {
                faults.push(format!("{} uses {used}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn no_part_is_left_by_way_of_super() {
    for source in sources() {
        let depth = source.path.trim_end_matches("/mod.rs").split('/').count();
        assert!(longest_super_chain(&source.code) < depth, "{} reaches the root by `super`", source.path);
    }
}

#[test]
fn every_use_that_the_table_allows_is_made() {
    let sources = sources();
    for (part, allowed) in MAY_USE {
        for used in allowed {
            let mut of_part = sources.iter().filter(|source| source.part == part);
            let is_made = of_part.any(|source| used_parts(&source.code).iter().any(|name| name == used));
            assert!(is_made, "{part} no longer uses {used}: take it off the table");
        }
    }
}

#[test]
fn crates_and_unsafe_code_stay_where_they_belong() {
    let mut faults = Vec::new();
    for source in sources() {
        for (crate_or_name, places) in ONLY_IN {
            let has_it = names(&source.code).any(|(name, _)| name == crate_or_name);
            if has_it && !places.iter().any(|place| source.path.starts_with(place)) {
                faults.push(format!("{} has {crate_or_name}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_domain_does_no_input_or_output_and_asks_for_no_time() {
    for source in sources().iter().filter(|source| source.part == "domain") {
        for forbidden in NOT_IN_DOMAIN {
            let is_there = names(&source.code).any(|(name, _)| name == forbidden);
            assert!(!is_there, "{} has {forbidden}", source.path);
        }
    }
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    for source in sources() {
        assert!(source.lines < LONGEST_FILE, "{} has {} lines", source.path, source.lines);
    }
}

#[test]
fn paths_are_read_whatever_their_form() {
    assert_eq!(used_parts("use crate::a::{b, c}; let x = crate::d();"), ["a", "d"]);
    assert_eq!(used_parts("use crate::{a::{b, c}, d, e::f};"), ["a", "d", "e"]);
    assert_eq!(used_parts("mycrate::a signpost::b \"signpost\""), ["b"]);
    assert_eq!(longest_super_chain("use super::super::a; super::b"), 2);
}

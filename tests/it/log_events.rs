//! `docs/log-events.md` lists every event that the program logs at the default level, as the source has them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const LEVELS: [&str; 3] = ["error", "warn", "info"];
/// Where the table begins; what stands above it is written by hand.
const TABLE: &str = "| event | level | fields | source |\n";

/// An event of the log, as its macro's call has it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    message: String,
    level: &'static str,
    fields: Vec<String>,
    source: String,
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text up to the parenthesis that closes what was opened before it.
fn arguments(text: &str) -> &str {
    let (mut depth, mut is_string, mut is_escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_string => is_escaped = true,
            '"' => is_string = !is_string,
            '(' | '[' | '{' if !is_string => depth += 1,
            ')' | ']' | '}' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    panic!("a call without an end: {text:.80}");
}

/// Splits at the commas that are in no string and no parentheses.
fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut depth, mut is_string) = (vec![String::new()], 0, false);
    for c in arguments.chars() {
        match c {
            '"' => is_string = !is_string,
            '(' | '[' | '{' if !is_string => depth += 1,
            ')' | ']' | '}' if !is_string => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 && !is_string {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// A message on one line: a string literal that goes on in the next line has a backslash before it.
fn message(literal: &str) -> String {
    let lines = literal.trim_matches('"').split("\\\n").map(str::trim_start);
    lines.collect::<String>()
}

/// The field's name: `%error`, `path = %path.display()`, `links`.
fn field(argument: &str) -> String {
    let name = argument.split_once(" = ").map_or(argument, |(name, _)| name);
    name.trim_start_matches(['%', '?']).rsplit('.').next().unwrap().to_owned()
}

fn events(file: &Path) -> Vec<Event> {
    let text = fs::read_to_string(file).unwrap();
    // What stands in comments, and unit tests, logs nothing.
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let text: String = text.split_inclusive('\n').filter(|line| !is_comment(line)).collect();
    let source = file.strip_prefix(Path::new(ROOT).join("src")).unwrap().display().to_string();
    let calls = LEVELS.iter().flat_map(|level| {
        let name = format!("tracing::{level}!(");
        text.match_indices(&name).map(|(at, name)| (*level, arguments(&text[at + name.len()..]))).collect::<Vec<_>>()
    });
    let outages = text.match_indices("OutageLog::new(").flat_map(|(at, name)| {
        let messages = split(arguments(&text[at + name.len()..]));
        let fields = [("warn", vec!["error", "failures"]), ("info", vec!["failures", "took"])];
        messages
            .into_iter()
            .zip(fields)
            .map(|(literal, (level, fields))| Event {
                message: message(&literal),
                level,
                fields: fields.into_iter().map(str::to_owned).collect(),
                source: source.clone(),
            })
            .collect::<Vec<_>>()
    });
    let outages: Vec<_> = outages.filter(|event| !source.contains("outage_log") && !event.message.is_empty()).collect();
    let event = |(level, arguments)| {
        let parts = split(arguments);
        let (literals, fields): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.starts_with('"'));
        Event {
            message: literals.first().map(|literal| message(literal)).unwrap_or_default(),
            level,
            fields: fields.iter().map(|argument| field(argument)).collect(),
            source: source.clone(),
        }
    };
    calls.map(event).filter(|event| event.message != "{}").chain(outages).collect()
}

#[test]
fn the_page_of_log_events_lists_what_the_source_logs() {
    let mut files = Vec::new();
    sources(&Path::new(ROOT).join("src"), &mut files);
    let mut events: Vec<_> = files.iter().flat_map(|file| events(file)).collect();
    events.sort();
    assert!(events.len() > 50, "the source is not read as it is written: {events:?}");
    let mut table = TABLE.to_owned() + "|---|---|---|---|\n";
    for Event { message, level, fields, source } in &events {
        assert!(!message.is_empty(), "an event without a message in {source}");
        let fields: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
        writeln!(table, "| {message} | {level} | {} | `{source}` |", fields.join(", ")).unwrap();
    }

    let path = Path::new(ROOT).join("docs/log-events.md");
    let page = fs::read_to_string(&path).unwrap();
    let (introduction, _) = page.split_once(TABLE).unwrap();
    let written = format!("{introduction}{table}");
    if std::env::var_os("SIGNPOST_TEST_WRITE_DOCS").is_some() {
        fs::write(&path, written).unwrap();
    } else {
        assert!(
            page == written,
            "docs/log-events.md is of other events: SIGNPOST_TEST_WRITE_DOCS=1 cargo test log_events"
        );
    }
}

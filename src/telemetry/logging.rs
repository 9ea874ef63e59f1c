//! Structured logs on standard error, and what a command says besides them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;

use serde::Serialize;
use tracing::field::display;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, time};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Begins to log, once for the process.
///
/// # Errors
/// When something else has begun to log already.
pub fn init(level: LevelFilter, format: Format) -> Result<(), TryInitError> {
    // Dependencies speak up only where something is wrong.
    // The dispatcher calls every malformed request an error of its stream: it is the client's, who is told.
    let filter = Targets::new()
        .with_target("signpost", level)
        .with_target("actix_http", LevelFilter::OFF)
        // Whoever answers for a name could have it write lines.
        .with_target("hickory_proto", LevelFilter::OFF)
        .with_default(level.min(LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Colours are for people at a terminal; in a file they would be noise.
    let lines = lines.with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }?;
    std::panic::set_hook(Box::new(panicked));
    Ok(())
}

/// What a command says itself: that it has done its work, or why it can't. Unlike a line of the log it is said at every level,
/// and before there is a log; its form is the log's.
#[derive(Clone, Copy, Debug)]
pub struct Console(pub Format);

impl Console {
    /// Says on standard output what was done.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn say(self, text: &str) -> io::Result<()> {
        let text = text.trim_end();
        let line = match self.0 {
            Format::Text => format!("{text}\n"),
            Format::Json => json_line("INFO", text),
        };
        io::stdout().write_all(line.as_bytes())
    }

    /// Says on standard error what the operator has to know.
    pub fn warn(self, text: &str) {
        self.complain("WARN", text);
    }

    /// Says on standard error why the process ends.
    pub fn fail(self, error: &dyn Display) {
        self.complain("ERROR", &error.to_string());
    }

    fn complain(self, level: &'static str, text: &str) {
        let line = match self.0 {
            Format::Text => format!("signpost: {text}\n"),
            Format::Json => json_line(level, text),
        };
        // Where even this can't be written, the exit code has to do.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// A line with the fields that lines of the log have.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: &'a str,
    level: &'static str,
    message: &'a str,
    target: &'static str,
}

fn json_line(level: &'static str, message: &str) -> String {
    let mut timestamp = String::new();
    // Writing to a string does not fail.
    let _ = time().format_time(&mut Writer::new(&mut timestamp));
    let line = Line { timestamp: &timestamp, level, message, target: "signpost" };
    // Texts are always JSON.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// In the place of several lines of plain text, which who reads the log line by line could not.
fn panicked(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let (reason, location) = (panic.payload_as_str().unwrap_or_default(), panic.location().map(display));
    // Where the environment asks for it, as without this hook.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    // As text, for that is written without breaks of lines.
    tracing::error!(thread = thread.name(), location, backtrace = backtrace.as_deref(), reason, "panicked");
}

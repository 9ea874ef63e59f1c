//! Structured logs on standard error, and the output of commands.

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

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Starts logging, once for the process.
///
/// # Errors
/// If logging was started before.
pub fn init(level: LevelFilter, format: Format) -> Result<(), TryInitError> {
    // Dependencies log warnings and errors only. actix-http logs every malformed request as an error of its stream,
    // but that is an error of the client, which gets an answer.
    let filter = Targets::new()
        .with_target("signpost", level)
        .with_target("actix_http", LevelFilter::OFF)
        // Anyone who controls a name's DNS answers could flood the log.
        .with_target("hickory_proto", LevelFilter::OFF)
        .with_default(level.min(LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Colours only on a terminal.
    let lines = lines.with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }?;
    std::panic::set_hook(Box::new(panicked));
    Ok(())
}

/// The output of a command: its result or its error. Unlike a log line, it is written at every log level and before
/// logging starts, in the format of the log.
#[derive(Clone, Copy, Debug)]
pub struct CommandOutput(pub Format);

impl CommandOutput {
    /// Writes a result to standard output.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn say(self, text: &str) -> io::Result<()> {
        let text = text.trim_end();
        let line = match self.0 {
            Format::Text => format!("{text}\n"),
            Format::Json => json_line("INFO", text),
        };
        io::stdout().write_all(line.as_bytes())
    }

    /// Writes a warning to standard error.
    pub fn warn(self, text: &str) {
        self.write_to_stderr("WARN", text);
    }

    /// Writes the reason for which the process ends to standard error.
    pub fn fail(self, error: &dyn Display) {
        self.write_to_stderr("ERROR", &error.to_string());
    }

    fn write_to_stderr(self, level: &'static str, text: &str) {
        let line = match self.0 {
            Format::Text => format!("signpost: {text}\n"),
            Format::Json => json_line(level, text),
        };
        // If even this fails, only the exit code reports the error.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// A line with the fields of log lines.
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
    // Strings can always be serialized.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Logs a panic as one line. The default hook writes several lines, which log collectors can't parse.
fn panicked(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let (reason, location) = (panic.payload_as_str().unwrap_or_default(), panic.location().map(display));
    // Captured only if the environment asks for it, as without this hook.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    // As a string, so that the log line has no line breaks.
    tracing::error!(thread = thread.name(), location, backtrace = backtrace.as_deref(), reason, "panicked");
}

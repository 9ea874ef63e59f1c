//! Structured logs on standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing::field::display;
use tracing_subscriber::filter::{LevelFilter, Targets};
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

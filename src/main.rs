//! Parses arguments, loads the configuration, runs.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use signpost::app::App;
use signpost::cli::{Cli, Command};
use signpost::config::{Config, LogFormat, LogLevel};
use signpost::http::openapi;
use signpost::telemetry::logging;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.command == Some(Command::Openapi) {
        return print(&openapi::document_text());
    }
    let config = match Config::load(cli.config.as_deref(), std::env::vars_os(), Path::new(".")) {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    match cli.command.unwrap_or_default() {
        Command::CheckConfig => print(&config.effective()),
        Command::Migrate => print("The embedded store needs no migration."),
        Command::Serve | Command::Openapi => serve(&config),
    }
}

fn serve(config: &Config) -> ExitCode {
    let level = match config.log.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let format = match config.log.format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    };
    if let Err(error) = logging::init(level, format) {
        return fail(&error);
    }
    actix_web::rt::System::new().block_on(async {
        let app = match App::build(config).await {
            Ok(app) => app,
            Err(error) => return fail(&error),
        };
        if let Err(error) = greet(&app) {
            return fail(&error);
        }
        match app.run(told_to_stop()).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    })
}

/// Shows, once in the life of a store, the secrets that its first start made, and how to use them.
fn greet(app: &App) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let first = &app.first_start;
    if first.secret.is_some() || first.webhook_secret.is_some() {
        writeln!(out, "This is the first start. Keep what follows: it is not shown again.\n")?;
    }
    if let Some(secret) = &first.secret {
        writeln!(out, "  root key        {}", secret.reveal())?;
    }
    if let Some(secret) = &first.webhook_secret {
        writeln!(out, "  webhook secret  {}", secret.reveal())?;
    }
    if let Some(secret) = &first.secret {
        writeln!(
            out,
            "\nMake a short link:\n\n  curl -sS {}/shorten -H 'X-API-Key: {}' -H 'Content-Type: application/json' -d \
             '{{\"redirect_url\":\"https://example.com/\"}}'\n",
            app.base_url,
            secret.reveal()
        )?;
    }
    writeln!(
        out,
        "Signpost {} serves on {} (API reference: {}/docs)",
        env!("CARGO_PKG_VERSION"),
        app.address,
        app.base_url
    )?;
    out.flush()
}

/// Waits for SIGTERM or SIGINT. A second one ends the process at once: whatever was answered is safe already.
async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals can't be listened for; only SIGKILL ends this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("ended at once by a second signal");
        std::process::exit(130);
    });
}

fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    // Where even this can't be written, the exit code has to do.
    let _ = writeln!(io::stderr(), "signpost: {error}");
    ExitCode::FAILURE
}

//! Parses arguments, loads the configuration, runs.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use signpost::app::{self, App, News};
use signpost::cli::{Cli, Command};
use signpost::config::{Config, LogFormat, LogLevel, StoreKind};
use signpost::telemetry::logging;
use signpost::transfer::Imported;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;

/// Measured on the delivery of webhooks, a sixth of whose CPU was the system's allocator: this one takes half of that. It
/// also gives memory back after a backlog. Hot redirects, which allocate next to nothing, cost as much with the system's, and so do
/// creations (`loadtests/run hot creation --seconds 1`, 2026-11-23: 55 µs a creation with either).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Within 30 s of the first signal the process has ended, even where a disk hangs.
const LONGEST_DRAIN: Duration = Duration::from_secs(29);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::load(cli.config.as_deref(), std::env::vars_os(), Path::new(".")) {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    match cli.command.unwrap_or_default() {
        Command::CheckConfig => check_config(&config),
        Command::Migrate => migrate(&config),
        Command::Export { file } => export(&config, &file),
        Command::Import { file } => import(&config, &file),
        Command::Healthcheck => healthcheck(&config),
        Command::Openapi => print(&app::api_document(&config)),
        Command::Serve => serve(&config),
    }
}

fn check_config(config: &Config) -> ExitCode {
    for renamed in config.renamed() {
        // Where even this can't be written, the configuration is printed all the same.
        let _ = writeln!(io::stderr(), "signpost: {renamed}");
    }
    match app::check(config) {
        Ok(()) => print(&config.effective()),
        Err(error) => fail(&error),
    }
}

fn healthcheck(config: &Config) -> ExitCode {
    match app::readiness_of_server(config) {
        Ok(answer) if answer.ready => print("ready"),
        Ok(answer) => fail(&format!("not ready: {}", answer.status_line)),
        Err(error) => fail(&format!("{} does not answer: {error}", config.admin.listen)),
    }
}

fn migrate(config: &Config) -> ExitCode {
    if config.store.kind == StoreKind::Embedded {
        return print("The embedded store needs no migration.");
    }
    match actix_web::rt::System::new().block_on(app::migrate(config)) {
        Ok(files) if files.is_empty() => print("Nothing to do."),
        Ok(files) => print(&format!("Applied {}.", files.join(", "))),
        Err(error) => fail(&error),
    }
}

fn export(config: &Config, file: &Path) -> ExitCode {
    match actix_web::rt::System::new().block_on(app::export(config, file)) {
        Ok(exported) => {
            if exported.leaves_deliveries {
                let warning = "deliveries of webhooks are pending: they are not exported, and stay with this store";
                // Where even this can't be written, the file is there all the same.
                let _ = writeln!(io::stderr(), "signpost: {warning}");
            }
            if !exported.has_master_key {
                let warning = "the master key of this store is not here, and the export can be imported with it alone: keep it, too";
                let _ = writeln!(io::stderr(), "signpost: {warning}");
            }
            let counts = exported.counts;
            print(&format!("Exported {} links, {} keys, {} counters.", counts.links, counts.keys, counts.counters))
        }
        Err(error) => fail(&error),
    }
}

fn import(config: &Config, file: &Path) -> ExitCode {
    match actix_web::rt::System::new().block_on(app::import(config, file)) {
        Ok(Imported::Now(counts)) => {
            print(&format!("Imported {} links, {} keys, {} counters.", counts.links, counts.keys, counts.counters))
        }
        Ok(Imported::Before) => print("Nothing to do: the store has all of this file."),
        Err(error) => fail(&error),
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
    for renamed in config.renamed() {
        tracing::warn!(%renamed, "a setting is set by its old name");
    }
    have_small_pages();
    actix_web::rt::System::new().block_on(async {
        let signals = match EndSignals::listen() {
            Ok(signals) => signals,
            Err(error) => return fail(&error),
        };
        let app = match App::build(config, &tell).await {
            Ok(app) => app,
            Err(error) => return fail(&error),
        };
        if let Err(error) = greet(&app) {
            return fail(&error);
        }
        match app.run(signals.first_while_serving()).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    })
}

/// Has memory come in pages of the usual size. The allocator asks for huge ones, and a few kilobytes in each of them took 48 MiB of
/// a process at rest.
fn have_small_pages() {
    // Where it is refused, more memory is resident, and all goes on.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory may come in huge pages");
    }
}

/// Shows, once in the life of a store, the secrets that its first start makes, and how to use them.
fn tell(news: News<'_>, base_url: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match news {
        News::Made { secret, webhook_secret } => {
            writeln!(out, "This is the first start. Keep what follows: it is not shown again.\n")?;
            if let Some(secret) = secret {
                writeln!(out, "  root key        {}", secret.reveal())?;
            }
            writeln!(out, "  webhook secret  {}", webhook_secret.reveal())?;
            if let Some(secret) = secret {
                writeln!(
                    out,
                    "\nMake a short link:\n\n  curl -sS {base_url}/shorten -H 'X-API-Key: {}' -H 'Content-Type: \
                     application/json' -d '{{\"redirect_url\":\"https://example.com/\"}}'\n",
                    secret.reveal()
                )?;
            }
        }
        News::MadeBefore => {
            let others = "Another node, or an earlier start, was quicker: what is shown above is of no use, but what was shown there.";
            writeln!(out, "{others}\n")?;
        }
        News::Uncertain => {
            let hint = "It is not known whether these are kept. If the next start shows others, those are; if it shows none, these are.";
            writeln!(out, "{hint}\n")?;
        }
    }
    out.flush()
}

fn greet(app: &App) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "Signpost {} serves on {} (API reference: {}/docs)",
        env!("CARGO_PKG_VERSION"),
        app.address,
        app.base_url
    )?;
    out.flush()
}

/// The signals that end the process, SIGTERM and SIGINT. They are waited for on a thread of its own, which depends on nothing
/// that may be what hangs.
struct EndSignals {
    is_serving: Arc<AtomicBool>,
    first: oneshot::Receiver<()>,
}

impl EndSignals {
    /// From here on they no longer end the process by themselves.
    fn listen() -> io::Result<Self> {
        let is_serving = Arc::<AtomicBool>::default();
        let (ask, first) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let next = async move || {
            tokio::select! {
                _ = terminate.recv() => EndSignal::Terminate,
                _ = interrupt.recv() => EndSignal::Interrupt,
            }
        };
        let obeyed = obey(next, Arc::clone(&is_serving), ask);
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(obeyed))?;
        Ok(Self { is_serving, first })
    }

    /// Waits for the first, which is for whoever serves from this call on.
    fn first_while_serving(self) -> impl Future<Output = ()> {
        self.is_serving.store(true, Ordering::Release);
        // An error would say that the thread has ended, and then the process has.
        async { drop(self.first.await) }
    }
}

/// A signal that ends the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndSignal {
    Terminate,
    Interrupt,
}

/// SIGTERM again within this time is the same one: supervisors send it to the process and to its group.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// A signal during the start ends it at once: nothing was promised to anybody yet. Later the first one asks for a drain; a
/// second one ends the process at once, and so does a drain that does not come to its end: whatever was answered is safe
/// already.
async fn obey(mut next: impl AsyncFnMut() -> EndSignal, is_serving: Arc<AtomicBool>, ask: oneshot::Sender<()>) {
    let first = next().await;
    let began = Instant::now();
    if !is_serving.load(Ordering::Acquire) {
        std::process::exit(0);
    }
    // Nobody waits for it where the service has ended by itself.
    let _ = ask.send(());
    let second = async {
        while next().await == first && first == EndSignal::Terminate && began.elapsed() < SAME_SIGNAL_WITHIN {}
    };
    if tokio::time::timeout(LONGEST_DRAIN, second).await.is_ok() {
        tracing::warn!("ended at once by a second signal");
        std::process::exit(130);
    }
    tracing::error!("the drain took too long and was cut short");
    std::process::exit(0);
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

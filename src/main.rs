//! The program: parses arguments, loads the configuration, runs a command.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use signpost::app::{self, App, FirstStartSecrets};
use signpost::cli::{Cli, Command};
use signpost::config::{Config, LogFormat, LogLevel, StoreKind};
use signpost::telemetry::logging::{self, CommandOutput, Format};
use signpost::transfer::Imported;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;
use uuid::Uuid;

/// Chosen by measuring webhook delivery, where the system's allocator took a sixth of the CPU time: mimalloc takes
/// half of that, and returns memory after a backlog. Hot redirects, which allocate almost nothing, and creations cost
/// the same with both (`loadtests/run hot creation --seconds 1`, 2026-11-23: 55 µs a creation with either).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The process ends within 30 s of the first signal, even if a disk hangs.
const LONGEST_DRAIN: Duration = Duration::from_secs(29);

#[expect(unsafe_code, reason = "the allocator's crate has no safe function for it")]
fn release_memory() {
    // SAFETY: it takes no pointer, and any thread may call it at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

fn main() -> ExitCode {
    signpost::memory::set_release(release_memory);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer_command_line(&error),
    };
    let (file, directory) = (cli.config.as_deref(), Path::new("."));
    let config = match Config::load(file, std::env::vars_os(), directory) {
        Ok(config) => config,
        Err(error) => {
            let format = Config::log_format(file, std::env::vars_os(), directory);
            return fail(output_of(format), &error);
        }
    };
    let output = output_of(config.log.format);
    let command = cli.command.unwrap_or_default();
    // The server logs them itself.
    if !matches!(command, Command::Serve) {
        for renamed in config.renamed() {
            output.warn(&renamed.to_string());
        }
    }
    // Before there are other threads.
    signpost::threads::use_short_time_slices();
    match command {
        Command::CheckConfig => check_config(&config, output),
        Command::Migrate => migrate(&config, output),
        Command::Export { file, lost_nodes } => export(&config, &file, &lost_nodes, output),
        Command::Import { file } => import(&config, &file, output),
        Command::Healthcheck => healthcheck(&config, output),
        Command::Openapi => print(&app::api_document(&config)),
        Command::Bots { agent } => describe_agent(&config, &agent, output),
        Command::Serve => serve(&config, output),
    }
}

/// Help and version are plain text in every log format.
fn answer_command_line(error: &clap::Error) -> ExitCode {
    let output = output_of(Config::log_format(None, std::env::vars_os(), Path::new(".")));
    if !error.use_stderr() || output.0 == Format::Text {
        error.exit();
    }
    output.fail(&error.to_string().trim_end());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
}

fn output_of(format: LogFormat) -> CommandOutput {
    CommandOutput(match format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    })
}

fn check_config(config: &Config, output: CommandOutput) -> ExitCode {
    match app::check(config) {
        Ok(()) => print(&config.effective()),
        Err(error) => fail(output, &error),
    }
}

fn describe_agent(config: &Config, agent: &str, output: CommandOutput) -> ExitCode {
    match app::describe_agent(config, agent) {
        Ok(description) => say(output, &description),
        Err(error) => fail(output, &error),
    }
}

fn healthcheck(config: &Config, output: CommandOutput) -> ExitCode {
    match app::readiness_of_server(config) {
        Ok(answer) if answer.ready => say(output, "ready"),
        Ok(answer) => fail(output, &format!("not ready: {}", answer.status_line)),
        Err(error) => fail(output, &format!("{} does not answer: {error}", config.admin.listen)),
    }
}

fn migrate(config: &Config, output: CommandOutput) -> ExitCode {
    if config.store.kind == StoreKind::Embedded {
        return say(output, "The embedded store needs no migration.");
    }
    log_for_collectors(config, output);
    match actix_web::rt::System::new().block_on(app::migrate(config)) {
        Ok(files) if files.is_empty() => say(output, "Nothing to do."),
        Ok(files) => say(output, &format!("Applied {}.", files.join(", "))),
        Err(error) => fail(output, &error),
    }
}

fn export(config: &Config, file: &Path, lost_nodes: &[Uuid], output: CommandOutput) -> ExitCode {
    log_for_collectors(config, output);
    match actix_web::rt::System::new().block_on(app::export(config, file, lost_nodes)) {
        Ok(exported) => {
            if exported.leaves_deliveries {
                output.warn("webhook deliveries are pending: they are not exported and remain in this store");
            }
            match exported.uncounted_hits {
                Ok(0) => {}
                Ok(hits) => output.warn(&format!(
                    "{hits} hits are only in the journal: they are not exported. Start and stop the service, and export again to have them"
                )),
                Err(error) => output.warn(&format!("hits that are only in the journal are not exported: {error}")),
            }
            if !exported.has_master_key {
                output.warn("importing this export requires this store's master key, which is not on this machine: keep that key");
            }
            let counts = exported.counts;
            let (links, keys, counters) = (counts.links, counts.keys, counts.counters);
            say(output, &format!("Exported {links} links, {keys} keys, {counters} counters."))
        }
        Err(error) => fail(output, &error),
    }
}

fn import(config: &Config, file: &Path, output: CommandOutput) -> ExitCode {
    log_for_collectors(config, output);
    match actix_web::rt::System::new().block_on(app::import(config, file)) {
        Ok(Imported::Now(counts)) => {
            let (links, keys, counters) = (counts.links, counts.keys, counts.counters);
            say(output, &format!("Imported {links} links, {keys} keys, {counters} counters."))
        }
        Ok(Imported::Before) => say(output, "Nothing to do: the file was already imported."),
        Err(error) => fail(output, &error),
    }
}

/// With `log.format = "json"` a command logs its progress. As text, it prints its result only.
fn log_for_collectors(config: &Config, output: CommandOutput) {
    if output.0 == Format::Json {
        // Fails only if logging was started before.
        let _ = logging::init(level_of(config), output.0);
    }
}

fn level_of(config: &Config) -> LevelFilter {
    match config.log.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn serve(config: &Config, output: CommandOutput) -> ExitCode {
    if let Err(error) = logging::init(level_of(config), output.0) {
        return fail(output, &error);
    }
    for renamed in config.renamed() {
        tracing::warn!(%renamed, "a setting has its old name");
    }
    disable_huge_pages();
    actix_web::rt::System::new().block_on(async {
        let signals = match EndSignals::listen() {
            Ok(signals) => signals,
            Err(error) => return fail(output, &error),
        };
        let has_console = config.console.enabled;
        let show = |secrets: FirstStartSecrets<'_>, base_url: &str| show_secrets(secrets, base_url, has_console);
        let app = match App::build(config, &show).await {
            Ok(app) => app,
            Err(error) => return fail(output, &error),
        };
        if let Err(error) = print_address(&app, has_console, output) {
            return fail(output, &error);
        }
        warn_about_base_url(config, &app);
        match app.run(Box::pin(signals.first_while_serving())).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(output, &error),
        }
    })
}

/// Disables transparent huge pages. The allocator requests them and uses a few kilobytes of each: they took 48 MiB of
/// an idle process.
fn disable_huge_pages() {
    // If this fails, more memory is resident, without other effects.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "can't disable transparent huge pages");
    }
}

/// Shows the secrets that a first start creates, once for each store, and how to use them. They are plain text in
/// every log format.
fn show_secrets(secrets: FirstStartSecrets<'_>, base_url: &str, has_console: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match secrets {
        FirstStartSecrets::Created { secret, webhook_secret } => {
            writeln!(out, "This is the first start. Save these secrets: they are not shown again.\n")?;
            if let Some(secret) = secret {
                writeln!(out, "  root key        {}", secret.reveal())?;
            }
            writeln!(out, "  webhook secret  {}", webhook_secret.reveal())?;
            if has_console {
                writeln!(out, "\nSign in with the root key: {base_url}/console")?;
            }
            if let Some(secret) = secret {
                writeln!(
                    out,
                    "\nCreate a short link:\n\n  curl -sS {base_url}/shorten -H 'X-API-Key: {}' -H 'Content-Type: \
                     application/json' -d '{{\"redirect_url\":\"https://example.com/\"}}'\n",
                    secret.reveal()
                )?;
            }
        }
        FirstStartSecrets::Superseded => {
            let others = "Another node or an earlier start created the root key first. Ignore the secrets above; use those shown there.";
            writeln!(out, "{others}\n")?;
        }
        FirstStartSecrets::Uncertain => {
            let hint = "It is unknown whether these secrets were stored. If the next start shows others, use those; if it shows none, use these.";
            writeln!(out, "{hint}\n")?;
        }
    }
    out.flush()
}

/// With JSON the log line "serving" takes its place, a moment later.
fn print_address(app: &App, has_console: bool, output: CommandOutput) -> io::Result<()> {
    if output.0 == Format::Json {
        return Ok(());
    }
    let (version, address, base_url) = (env!("CARGO_PKG_VERSION"), app.address, &app.base_url);
    let page = if has_console { format!("console: {base_url}/console, ") } else { String::new() };
    output.say(&format!("Signpost {version} serves on {address} ({page}API reference: {base_url}/docs)"))
}

/// Without `http.base_url`, short links begin with the listen address, often `0.0.0.0`, which other machines can't
/// reach.
fn warn_about_base_url(config: &Config, app: &App) {
    if config.http.base_url.is_none() && !app.address.ip().to_canonical().is_loopback() {
        tracing::warn!(
            base_url = app.base_url,
            setting = "http.base_url",
            "the base URL is not set: short links begin with the listen address"
        );
    }
}

/// The signals that end the process, SIGTERM and SIGINT. A thread of its own waits for them, which does not depend on
/// parts that may hang.
struct EndSignals {
    is_serving: Arc<AtomicBool>,
    first: oneshot::Receiver<()>,
}

impl EndSignals {
    /// Installs the handlers. From now on the signals do not end the process directly.
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
        let handling = handle_signals(next, Arc::clone(&is_serving), ask);
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(handling))?;
        Ok(Self { is_serving, first })
    }

    /// Waits for the first signal. From this call on it asks for a drain.
    fn first_while_serving(self) -> impl Future<Output = ()> {
        self.is_serving.store(true, Ordering::Release);
        // An error means that the thread has ended, which ends the process.
        async { drop(self.first.await) }
    }
}

/// A signal that ends the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndSignal {
    Terminate,
    Interrupt,
}

/// A second SIGTERM within this time counts as the same signal: process managers send it to the process and to its
/// group.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// A signal during the start ends the process at once: no request was answered yet. Later, the first signal asks for
/// a drain. A second one, or a drain that takes too long, ends the process at once: every answered request is safe on
/// disk.
async fn handle_signals(
    mut next: impl AsyncFnMut() -> EndSignal,
    is_serving: Arc<AtomicBool>,
    ask: oneshot::Sender<()>,
) {
    let first = next().await;
    let began = Instant::now();
    if !is_serving.load(Ordering::Acquire) {
        std::process::exit(0);
    }
    // The receiver is gone if the service has stopped without a signal.
    let _ = ask.send(());
    let second = async {
        while next().await == first && first == EndSignal::Terminate && began.elapsed() < SAME_SIGNAL_WITHIN {}
    };
    if tokio::time::timeout(LONGEST_DRAIN, second).await.is_ok() {
        tracing::warn!("stopped at once by a second signal");
        std::process::exit(130);
    }
    tracing::error!("shutdown took too long and was aborted");
    std::process::exit(0);
}

/// Prints a command's output, which has the same format in every log format.
fn print(text: &str) -> ExitCode {
    CommandOutput(Format::Text).say(text).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn say(output: CommandOutput, text: &str) -> ExitCode {
    output.say(text).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn fail(output: CommandOutput, error: &dyn std::fmt::Display) -> ExitCode {
    output.fail(error);
    ExitCode::FAILURE
}

//! A whole server inside the test's process: its own data directory, loopback ports that the system gave it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use signpost::actors::key_shard::KeyShards;
use signpost::app::{App, FirstStartSecrets, TestSeams};
use signpost::clock::Clock;
use signpost::config::Config;
use signpost::store::Store;
use signpost::webhooks::dispatcher::WebhookPool;
use tokio::sync::oneshot;

use super::client::Client;
use super::stores::Home;

/// Long enough for the configuration, and no secret.
pub const ROOT_KEY: &str = "root-key-of-a-test-0123456789-0123456789";

type WrapStore = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

/// How a server is to be.
pub struct ServerBuilder {
    settings: Vec<(OsString, OsString)>,
    clock: Clock,
    wrap_store: Option<WrapStore>,
    directory: Option<Arc<Home>>,
}

/// A running server. It drains and ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub clock: Clock,
    pub shards: Arc<KeyShards>,
    pub webhooks: Arc<WebhookPool>,
    /// `None` when the root key came from the settings.
    pub first_secret: Option<String>,
    directory: Arc<Home>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        let builder = Self { settings: Vec::new(), clock: Clock::system(), wrap_store: None, directory: None };
        builder
            .set("SIGNPOST_HTTP__LISTEN", "127.0.0.1:0")
            .set("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:0")
            .set("SIGNPOST_ROOT_KEY", ROOT_KEY)
            .set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "127.0.0.0/8")
            .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "0")
            .set("SIGNPOST_LIMITS__QR_PER_MINUTE", "0")
            .set("SIGNPOST_LIMITS__UNAUTHORIZED_PER_MINUTE", "0")
            .set("SIGNPOST_JOURNAL__SEGMENT_BYTES", "1048576")
            .set("SIGNPOST_JOURNAL__DISK_BUDGET_BYTES", "67108864")
            .set("SIGNPOST_STORE__CACHE_BYTES", "16777216")
            .set("SIGNPOST_LIMITS__TABLE_SIZE", "4096")
            .set("SIGNPOST_HTTP__WORKERS", "2")
    }
}

impl ServerBuilder {
    /// Sets an environment variable for this server alone; the last one wins.
    pub fn set(mut self, variable: &str, value: &str) -> Self {
        self.settings.retain(|(known, _)| known != variable);
        self.settings.push((variable.into(), value.into()));
        self
    }

    pub fn unset(mut self, variable: &str) -> Self {
        self.settings.retain(|(known, _)| known != variable);
        self
    }

    /// Gives the server a clock that the test moves.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets all of `settings` that are not set yet.
    fn set_others(mut self, settings: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        for (variable, value) in settings {
            if self.settings.iter().all(|(known, _)| known != variable) {
                self = self.set(variable, &value);
            }
        }
        self
    }

    /// Puts something around the server's store.
    pub fn wrap_store(mut self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send + 'static) -> Self {
        self.wrap_store = Some(Box::new(wrap));
        self
    }

    /// Lives on the data of a server that has ended.
    pub fn directory(mut self, directory: Arc<Home>) -> Self {
        self.directory = Some(directory);
        self
    }

    /// Starts the server, or tells why it does not start.
    pub fn try_start(mut self) -> Result<Server, String> {
        let directory = self.directory.take().unwrap_or_else(|| Arc::new(Home::new()));
        self = self.set_others(directory.settings());
        let config = Config::load(None, self.settings, directory.path()).map_err(|error| error.to_string())?;
        let (started, starting) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (clock, seams) = (self.clock.clone(), TestSeams { clock: self.clock, wrap_store: self.wrap_store });
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async {
                let first_secret = RefCell::new(None);
                let tell = |news: FirstStartSecrets<'_>, _: &str| {
                    if let FirstStartSecrets::Created { secret: Some(secret), .. } = news {
                        *first_secret.borrow_mut() = Some(secret.reveal().to_owned());
                    }
                    Ok(())
                };
                let app = match App::build_with(&config, &tell, seams).await {
                    Ok(app) => app,
                    Err(error) => return started.send(Err(error.to_string())).unwrap(),
                };
                let handles = app.test_handles();
                let addresses = (app.address, app.admin_address);
                let answer = (addresses, handles, first_secret.take());
                // First looked at when it is ready.
                let end = async {
                    started.send(Ok(answer)).unwrap();
                    drop(stopped.await);
                };
                app.run(Box::pin(end)).await.unwrap();
            });
        });
        let answer = starting.recv().unwrap_or_else(|_| Err("the server's thread panicked".into()));
        let ((address, admin), (shards, webhooks), first_secret) = match answer {
            Ok(started) => started,
            Err(error) => {
                thread.join().unwrap();
                return Err(error);
            }
        };
        Ok(Server {
            address,
            admin,
            clock,
            shards,
            webhooks,
            first_secret,
            directory,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|error| panic!("the server did not start: {error}"))
    }
}

impl Server {
    /// A server as most tests want it: no client limits, root key [`ROOT_KEY`], webhooks to loopback allowed.
    pub fn start() -> Self {
        ServerBuilder::default().start()
    }

    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// A client that sends the root key.
    pub fn root(&self) -> Client {
        Client::new(&format!("http://{}", self.address), Some(ROOT_KEY))
    }

    /// A client that sends no key.
    pub fn anonymous(&self) -> Client {
        Client::new(&format!("http://{}", self.address), None)
    }

    /// A client that sends `key`.
    pub fn with_key(&self, key: &str) -> Client {
        Client::new(&format!("http://{}", self.address), Some(key))
    }

    /// A client of the operator's listener.
    pub fn operator(&self) -> Client {
        Client::new(&format!("http://{}", self.admin), None)
    }

    /// Follows a link, so many times.
    pub async fn click(&self, id: &str, times: usize) {
        for _ in 0..times {
            self.anonymous().get(&format!("/{id}")).await.expect(302);
        }
    }

    /// All metrics, as they are at one moment.
    pub async fn metrics(&self) -> String {
        self.operator().get("/metrics").await.expect(200).text()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.data_dir()
    }

    /// Drains and ends the server; its data stay for the next one, see [`ServerBuilder::directory`].
    pub fn stop(mut self) -> Arc<Home> {
        self.end();
        // Its workers' threads let go of it when they end, a moment later; a process that ends takes them along.
        let journal = self.data_dir().join("journal");
        super::soon("the journal is let go of", || signpost::journal::lock_directory(&journal).is_ok());
        Arc::clone(&self.directory)
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The value of one metric, labels and all in its name; none where there is no such line.
pub fn metric(metrics: &str, name: &str) -> Option<f64> {
    value(metrics, name).map(|value| value.parse().unwrap())
}

/// As [`metric`], of one that counts and is there.
#[track_caller]
pub fn count(metrics: &str, name: &str) -> u64 {
    value(metrics, name).unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

fn value<'a>(metrics: &'a str, name: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

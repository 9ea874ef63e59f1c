//! The program under test.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    http, seed,
    server::{Server, free_address},
    way::{Side, Way},
};

pub const ROOT_KEY: &str = "root-key-of-a-load-test-0123456789-0123456789";
/// Of a load test, too: exports and imports need it to be the same.
const MASTER_KEY: &str = "bG9hZHRlc3QtbG9hZHRlc3QtbG9hZHRlc3QtbG9hZHQ=";
/// So high that nobody reaches it: the limit is looked at for every request all the same.
const HIGH: &str = "1000000";

/// A setting and its value.
pub type Setting = (&'static str, &'static str);

/// For redirects: the height of the client limit.
pub const HIGH_LIMIT: Setting = ("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", HIGH);
pub const NO_QR_LIMIT: Setting = ("SIGNPOST_LIMITS__QR_PER_MINUTE", "0");
pub const WEBHOOKS_TO_LOOPBACK: Setting = ("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "127.0.0.0/8");

/// The built program, and what is set besides its defaults.
pub struct Program(pub PathBuf);

impl Program {
    /// Tells it from any other.
    pub fn digest(&self) -> String {
        seed::hex(ring::digest::digest(&ring::digest::SHA256, &std::fs::read(&self.0).unwrap()).as_ref())
    }

    /// Starts it on the data in `home`.
    pub fn start(&self, name: &'static str, way: Way, home: &Path, settings: &[Setting]) -> Server {
        self.start_at(name, way, home, (free_address(), free_address()), settings)
    }

    /// The same on an address for everybody and one for the operator.
    pub fn start_at(
        &self,
        name: &'static str,
        way: Way,
        home: &Path,
        (address, admin): (SocketAddr, SocketAddr),
        settings: &[(&str, &str)],
    ) -> Server {
        let command = self.command(way, (address, admin), settings);
        Server::start(name, command, address, Some(Operator { address, admin }), home)
    }

    /// What starts it so.
    pub fn command(&self, way: Way, (address, admin): (SocketAddr, SocketAddr), settings: &[(&str, &str)]) -> Command {
        let mut command = way.command(Side::Server, &self.0);
        prepare(&mut command);
        command
            .env("SIGNPOST_HTTP__LISTEN", address.to_string())
            .env("SIGNPOST_ADMIN__LISTEN", admin.to_string())
            .env("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.0/8")
            .envs(settings.iter().copied());
        if way.is_pinned() {
            command.env("SIGNPOST_HTTP__WORKERS", "1");
        }
        command
    }

    /// Runs one of its other commands in `home`, to its end.
    pub fn run(&self, home: &Path, arguments: &[&str]) {
        let mut command = Command::new(&self.0);
        prepare(&mut command);
        let output = command.current_dir(home).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "signpost {}: {text}", arguments.join(" "));
    }
}

/// What the surroundings set must not change what is measured.
fn prepare(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SIGNPOST_") {
            command.env_remove(name);
        }
    }
    command.env("SIGNPOST_ROOT_KEY", ROOT_KEY).env("SIGNPOST_MASTER_KEY", MASTER_KEY);
}

/// What the program tells of itself.
pub struct Operator {
    address: SocketAddr,
    admin: SocketAddr,
}

/// Its counts since the start, and `hits` of the month, which are read from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub found: u64,
    pub not_found: u64,
    pub limited: u64,
    pub hits: u64,
    pub links: u64,
}

impl Counts {
    pub fn since(self, earlier: Self) -> Self {
        Self {
            found: self.found - earlier.found,
            not_found: self.not_found - earlier.not_found,
            limited: self.limited - earlier.limited,
            hits: self.hits - earlier.hits,
            links: self.links - earlier.links,
        }
    }
}

impl Operator {
    pub fn is_ready(&self) -> bool {
        http::exchange(self.admin, &get("/readyz")).is_ok_and(|answer| answer.status == 200)
    }

    /// Whether every hit is in the store.
    pub fn has_counted_all(&self) -> bool {
        metric(&self.metrics(), "signpost_journal_unread_bytes") == 0
    }

    fn metrics(&self) -> String {
        String::from_utf8(http::exchange(self.admin, &get("/metrics")).unwrap().body).unwrap()
    }

    /// A document of the API, as the root key sees it.
    pub fn document(&self, path: &str) -> Value {
        let answer = http::exchange(self.address, &get(path)).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    pub fn counts(&self) -> Counts {
        let metrics = self.metrics();
        let outcome = |outcome: &str| metric(&metrics, &format!("signpost_redirects_total{{outcome=\"{outcome}\"}}"));
        let usage = self.document("/usage");
        let current = |name: &str| usage["usage"][name]["current"].as_u64().unwrap();
        assert_eq!(outcome("unavailable"), 0, "redirects that the store did not answer");
        Counts {
            found: outcome("found"),
            not_found: outcome("not_found"),
            limited: outcome("limited"),
            hits: current("hits_served"),
            links: current("links_created"),
        }
    }

    /// Deliveries that reached their receiver, and those that wait.
    pub fn deliveries(&self) -> (u64, u64) {
        let metrics = self.metrics();
        let delivered = metric(&metrics, "signpost_webhook_deliveries_total{outcome=\"delivered\"}");
        (delivered, metric(&metrics, "signpost_webhook_pending"))
    }
}

/// A request that bears the root key.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: signpost\r\nX-API-Key: {ROOT_KEY}\r\n\r\n")
}

fn metric(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value: f64 = line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap();
    value as u64
}

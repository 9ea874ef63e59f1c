//! The program under test.

use std::{
    env,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::{
    home,
    operator::{Operator, ROOT_KEY},
    server::{Server, free_address},
    way::{Side, Way, ends_with_this_program},
};

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
#[derive(Clone)]
pub struct Program(pub PathBuf);

impl Program {
    /// The one at `path`; the one that users build from these sources, where there is no path.
    pub fn at(path: Option<&Path>) -> Self {
        Self(path.map_or_else(build, |path| fs::canonicalize(path).expect("the program")))
    }

    /// Tells it from any other.
    pub fn digest(&self) -> String {
        hex(digest(&SHA256, &fs::read(&self.0).unwrap()).as_ref())
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

    /// What starts it without any setting but those of `settings`.
    pub fn plain(&self, settings: &[(String, String)]) -> Command {
        let mut command = ends_with_this_program();
        command.arg(&self.0);
        forget_settings(&mut command);
        command.envs(settings.iter().cloned());
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

fn prepare(command: &mut Command) {
    forget_settings(command);
    command.env("SIGNPOST_ROOT_KEY", ROOT_KEY).env("SIGNPOST_MASTER_KEY", MASTER_KEY);
}

/// What the surroundings set must not change what is measured.
fn forget_settings(command: &mut Command) {
    forget(command, |name| name.starts_with("SIGNPOST_"));
}

fn forget(command: &mut Command, is_unwanted: impl Fn(&str) -> bool) {
    for (name, _) in env::vars_os() {
        if is_unwanted(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
}

/// Builds the program by its own package alone, so with the features that users get, and answers where it is.
fn build() -> PathBuf {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells of this package would make build scripts run again.
    forget(&mut command, |name| ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.starts_with(start)));
    command.args(["build", "--release", "--locked", "--bin", "signpost", "--message-format=json-render-diagnostics"]);
    let output = command.current_dir(home::repository()).stderr(Stdio::inherit()).output().expect("cargo");
    assert!(output.status.success(), "the program does not build");
    let messages = output.stdout.split(|&byte| byte == b'\n');
    let mut programs = messages.filter_map(|message| {
        let message: Value = serde_json::from_slice(message).ok()?;
        Some(message["executable"].as_str()?.into())
    });
    programs.next().expect("cargo tells where the program is")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

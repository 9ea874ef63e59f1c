//! Configuration: built-in defaults, a file and the environment, laid over one another, read into
//! types and checked.
//!
//! `defaults.toml` names and documents every setting. A name that is not in it, or a value that
//! its section refuses, is an error of one line that says which setting and where it was set.

mod admin;
mod cache;
mod effective;
mod error;
mod geo;
mod http;
mod journal;
mod layers;
mod limits;
mod log;
mod read;
mod redact;
mod renamed;
mod scylla;
mod secrets;
mod store;
mod suggest;
mod telemetry;
mod tiers;
mod webhooks;

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use self::layers::Settings;
pub use self::{
    admin::Admin,
    cache::Cache,
    error::{ConfigError, Origin, SettingError},
    geo::Geo,
    http::{BaseUrl, Http},
    journal::Journal,
    layers::{DEFAULTS, Setting, Value},
    limits::Limits,
    log::{Log, LogFormat, LogLevel},
    renamed::RenamedSetting,
    scylla::{Consistency, CqlNode, Scylla, SerialConsistency},
    secrets::{MasterKey, RootKey, ScyllaPassword, Secrets},
    store::{Store, StoreKind},
    telemetry::Telemetry,
    tiers::{Tier, Tiers},
    webhooks::Webhooks,
};

/// The file that is read where none is named, if it is there.
const USUAL_FILE: &str = "./signpost.toml";

/// Everything that can be set, checked. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory for the embedded store and the hit journal.
    pub data_dir: PathBuf,
    /// The public listener.
    pub http: Http,
    /// The operator's listener.
    pub admin: Admin,
    /// Where links, keys and counters are kept.
    pub store: Store,
    /// The cluster, where the store is one.
    pub scylla: Scylla,
    /// The hit journal.
    pub journal: Journal,
    /// What is kept in memory in front of the store.
    pub cache: Cache,
    /// Requests by client.
    pub limits: Limits,
    /// What the keys of each tier may do.
    pub tiers: Tiers,
    /// Delivery of hits.
    pub webhooks: Webhooks,
    /// Places of hits.
    pub geo: Geo,
    /// What is written to standard error.
    pub log: Log,
    /// What is told to collectors.
    pub telemetry: Telemetry,
    /// What must not be shown.
    pub secrets: Secrets,
    settings: Settings,
}

impl Config {
    /// Loads the defaults, then `file` (or `./signpost.toml` where that exists), then
    /// `environment`. Relative paths are looked up from `directory`, the one the program was
    /// started in.
    ///
    /// # Errors
    /// A file that can't be read or is not TOML, an unknown setting, or a bad value: the first
    /// one met.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        let mut settings = Settings::defaults()?;
        if let Some((path, text)) = read_file(file, directory)? {
            settings.apply_file(&path, &text)?;
        }
        // In the order of their names, so that the same environment gives the same message.
        let mut variables: Vec<_> = environment.into_iter().collect();
        variables.sort();
        settings.apply_environment(&variables)?;
        let config = Self::read(settings, Secrets::read(&variables)?, directory)?;
        config.check()?;
        Ok(config)
    }

    /// `log.format` as far as it can be told where [`load`](Self::load) refuses the configuration: so what it refuses is said in
    /// the form that was asked for.
    pub fn log_format(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        directory: &Path,
    ) -> LogFormat {
        let variable = layers::variable_of("log.format");
        let set = environment.into_iter().find(|(name, _)| *name == *variable);
        let in_file = || layers::text_in_file(&read_file(file, directory).ok()??.1, "log", "format");
        let word = set.and_then(|(_, value)| value.into_string().ok()).or_else(in_file);
        word.and_then(|word| LogFormat::parse(&word)).unwrap_or(LogFormat::Text)
    }

    fn read(mut settings: Settings, secrets: Secrets, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            data_dir: settings.parsed("data_dir", "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?,
            http: Http::read(&mut settings)?,
            admin: Admin::read(&mut settings)?,
            store: Store::read(&mut settings)?,
            scylla: Scylla::read(&mut settings, directory)?,
            journal: Journal::read(&mut settings)?,
            cache: Cache::read(&mut settings)?,
            limits: Limits::read(&mut settings)?,
            tiers: Tiers::read(&mut settings)?,
            webhooks: Webhooks::read(&mut settings)?,
            geo: Geo::read(&mut settings, directory)?,
            log: Log::read(&mut settings)?,
            telemetry: Telemetry::read(&mut settings)?,
            secrets,
            settings,
        })
    }

    /// What no section can see alone.
    fn check(&self) -> Result<(), SettingError> {
        if collide(self.http.listen, self.admin.listen) {
            let message =
                format!("http.listen {} and admin.listen {} are the same place", self.http.listen, self.admin.listen);
            let names = ["admin.listen", "http.listen"];
            return Err(self.settings.conflict(&names, &message));
        }
        self.scylla.check_login(&self.settings, &self.secrets)?;
        match self.store.kind {
            StoreKind::Embedded => Ok(()),
            StoreKind::Scylla => self.scylla.check_in_use(&self.settings, &self.secrets),
        }
    }

    /// Where a setting's value came from, for a fault that shows only when it is used. A name that
    /// is no setting counts as a default.
    pub fn origin(&self, setting: &str) -> Origin {
        self.settings.find(setting).map_or(Origin::Default, |found| found.origin().clone())
    }

    /// Every setting there is, with its value and origin, in the order of the defaults file.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// Settings that were set by names which the next release does not know.
    pub fn renamed(&self) -> &[RenamedSetting] {
        self.settings.renamed()
    }

    /// The effective configuration as TOML, each value with its origin in a comment, secrets
    /// masked. Loaded as a file it gives the same configuration again.
    pub fn effective(&self) -> String {
        effective::render(&self.settings, &self.secrets)
    }
}

/// The configuration file's text and the name to give it in messages; none where none was named
/// and the usual one is not there.
fn read_file(named: Option<&Path>, directory: &Path) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = named.unwrap_or(Path::new(USUAL_FILE));
    match fs::read_to_string(directory.join(path)) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConfigError::Unreadable { path: path.to_owned(), error }),
    }
}

/// Whether two listeners would take the same port of the same address. Port 0 takes a free one.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let covers =
        |x: SocketAddr, y: SocketAddr| x.ip().is_unspecified() && x.is_ipv4() == y.is_ipv4() || x.ip() == y.ip();
    a.port() == b.port() && a.port() != 0 && (covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    use super::collide;

    #[test]
    fn listeners_collide_on_one_port_of_one_address() {
        for (a, b, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("[::1]:80", "127.0.0.1:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let (a, b) = (a.parse().expect(a), b.parse().expect(b));
            assert_eq!(collide(a, b), expected, "{a} {b}");
        }
    }
}

//! Configuration: built-in defaults, a file and the environment, applied over one another, then parsed and checked.
//!
//! `defaults.toml` names and documents every setting. An unknown name, or a value that its section refuses, is a
//! one-line error with the setting and its origin.

mod abuse;
mod admin;
mod analytics;
mod bots;
mod cache;
mod effective;
mod error;
mod geo;
mod http;
mod journal;
mod layers;
mod limits;
mod links;
mod log;
mod pages;
mod privacy;
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

use self::layers::LayeredSettings;
pub use self::{
    abuse::AbuseConfig,
    admin::AdminConfig,
    analytics::AnalyticsConfig,
    bots::BotsConfig,
    cache::CacheConfig,
    error::{ConfigError, Origin, SettingError},
    geo::GeoConfig,
    http::{HttpBaseUrl, HttpConfig},
    journal::JournalConfig,
    layers::{DEFAULTS, Setting, SettingValue},
    limits::LimitsConfig,
    links::LinksConfig,
    log::{LogConfig, LogFormat, LogLevel},
    pages::{ConsoleConfig, FallbacksConfig, PagesConfig, RedirectConfig},
    privacy::{PrivacyConfig, PrivacyRespect},
    renamed::RenamedSetting,
    scylla::{Consistency, CqlNode, ScyllaConfig, SerialConsistency},
    secrets::{MasterKey, RootKey, ScyllaPassword, Secrets},
    store::{StoreConfig, StoreKind},
    telemetry::TelemetryConfig,
    tiers::{TierConfig, TiersConfig},
    webhooks::WebhooksConfig,
};

/// The file that is read if none is given and this one exists.
const USUAL_FILE: &str = "./signpost.toml";

/// All settings, checked. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory for the embedded store and the hit journal.
    pub data_dir: PathBuf,
    /// The public listener.
    pub http: HttpConfig,
    /// What redirects have.
    pub redirect: RedirectConfig,
    /// Where visitors are sent for whom there is no link.
    pub fallbacks: FallbacksConfig,
    /// Pages in the place of the service's own.
    pub pages: PagesConfig,
    /// The page for people with a key.
    pub console: ConsoleConfig,
    /// What links may not lead to.
    pub abuse: AbuseConfig,
    /// How hits of bots are told from those of people.
    pub bots: BotsConfig,
    /// Visitors who ask not to be tracked.
    pub privacy: PrivacyConfig,
    /// What is kept of hits.
    pub analytics: AnalyticsConfig,
    /// The operator's listener.
    pub admin: AdminConfig,
    /// Where links, keys and counts are stored.
    pub store: StoreConfig,
    /// The cluster, if the store is on one.
    pub scylla: ScyllaConfig,
    /// The hit journal.
    pub journal: JournalConfig,
    /// Caches in front of the store.
    pub cache: CacheConfig,
    /// Links: expiry and names.
    pub links: LinksConfig,
    /// Limits of requests by client.
    pub limits: LimitsConfig,
    /// Limits and quotas of the keys of each tier.
    pub tiers: TiersConfig,
    /// Delivery of hits.
    pub webhooks: WebhooksConfig,
    /// Places of hits.
    pub geo: GeoConfig,
    /// The log on standard error.
    pub log: LogConfig,
    /// Traces.
    pub telemetry: TelemetryConfig,
    /// Secrets, which are never shown.
    pub secrets: Secrets,
    settings: LayeredSettings,
}

impl Config {
    /// Loads the defaults, then `file` (or `./signpost.toml` if it exists), then `environment`. Relative paths start
    /// from `directory`, the working directory.
    ///
    /// # Errors
    /// The first of: a file that can't be read or is not TOML, an unknown setting, an invalid value.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        let mut settings = LayeredSettings::defaults()?;
        if let Some((path, text)) = read_file(file, directory)? {
            settings.apply_file(&path, &text)?;
        }
        // In the order of their names, so that the same environment results in the same message.
        let mut variables: Vec<_> = environment.into_iter().collect();
        variables.sort();
        settings.apply_environment(&variables)?;
        let config = Self::read(settings, Secrets::read(&variables)?, directory)?;
        config.check()?;
        Ok(config)
    }

    /// `log.format`, as far as it can be read from a configuration that [`load`](Self::load) refuses: the refusal is
    /// reported in that format.
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

    fn read(mut settings: LayeredSettings, secrets: Secrets, directory: &Path) -> Result<Self, SettingError> {
        Ok(Self {
            data_dir: settings.parsed("data_dir", "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?,
            http: HttpConfig::read(&mut settings)?,
            redirect: RedirectConfig::read(&mut settings)?,
            fallbacks: FallbacksConfig::read(&mut settings)?,
            pages: PagesConfig::read(&mut settings, directory)?,
            console: ConsoleConfig::read(&mut settings)?,
            abuse: AbuseConfig::read(&mut settings, directory)?,
            bots: BotsConfig::read(&mut settings, directory)?,
            privacy: PrivacyConfig::read(&mut settings)?,
            analytics: AnalyticsConfig::read(&mut settings)?,
            admin: AdminConfig::read(&mut settings)?,
            store: StoreConfig::read(&mut settings)?,
            scylla: ScyllaConfig::read(&mut settings, directory)?,
            journal: JournalConfig::read(&mut settings)?,
            cache: CacheConfig::read(&mut settings)?,
            links: LinksConfig::read(&mut settings)?,
            limits: LimitsConfig::read(&mut settings)?,
            tiers: TiersConfig::read(&mut settings)?,
            webhooks: WebhooksConfig::read(&mut settings)?,
            geo: GeoConfig::read(&mut settings, directory)?,
            log: LogConfig::read(&mut settings)?,
            telemetry: TelemetryConfig::read(&mut settings)?,
            secrets,
            settings,
        })
    }

    /// Checks settings of different sections against each other.
    fn check(&self) -> Result<(), SettingError> {
        if collide(self.http.listen, self.admin.listen) {
            let message =
                format!("http.listen {} and admin.listen {} are the same address", self.http.listen, self.admin.listen);
            let names = ["admin.listen", "http.listen"];
            return Err(self.settings.conflict(&names, &message));
        }
        self.scylla.check_login(&self.settings, &self.secrets)?;
        match self.store.kind {
            StoreKind::Embedded => Ok(()),
            StoreKind::Scylla => self.scylla.check_in_use(&self.settings, &self.secrets),
        }
    }

    /// Where a setting's value was set. The origin of an unknown name is [`Origin::Default`].
    pub fn origin(&self, setting: &str) -> Origin {
        self.settings.find(setting).map_or(Origin::Default, |found| found.origin().clone())
    }

    /// The error of a setting whose value turns out to be unusable when it is used.
    pub fn refuse(&self, setting: &str, message: impl Into<String>) -> SettingError {
        match self.settings.find(setting) {
            Some(found) => found.refuse(message),
            None => SettingError::new(setting, message, Origin::Default),
        }
    }

    /// All settings with value and origin, in the order of the defaults file.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// Settings that were set under old names, which the next release does not read.
    pub fn renamed(&self) -> &[RenamedSetting] {
        self.settings.renamed()
    }

    /// The effective configuration as TOML, each value with its origin in a comment, secrets masked. Loaded as a
    /// file, it results in the same configuration.
    pub fn effective(&self) -> String {
        effective::render(&self.settings, &self.secrets)
    }
}

/// The configuration file's path for messages, and its text. `None` if no file is given and the default file does not
/// exist.
fn read_file(named: Option<&Path>, directory: &Path) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = named.unwrap_or(Path::new(USUAL_FILE));
    match fs::read_to_string(directory.join(path)) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConfigError::Unreadable { path: path.to_owned(), error }),
    }
}

/// Whether two listeners would use the same port of the same address. Port 0 means any free port.
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

//! Configuration: which layer wins, what a value means, and what is shown.

mod refusals;
mod scylla;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use signpost::config::{
    Config, Consistency, DEFAULTS, LogFormat, LogLevel, Origin, SerialConsistency, SettingError, SettingValue,
    StoreKind,
};
use signpost::http::endpoints;

const ROOT_KEY: &str = "a-root-key-that-is-32-characters";
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PASSWORD: &str = "an open sesame";

/// A directory to start the program in, gone at the end of the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("signpost-config-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn with(name: &str, text: &str) -> Self {
        let directory = Self::new();
        fs::write(directory.0.join(name), text).expect("the directory can be written");
        directory
    }

    /// Loads as the program does that is started here.
    fn load(&self, file: Option<&str>, environment: &[(&str, &str)]) -> Result<Config, String> {
        let variables = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Config::load(file.map(Path::new), variables, &self.0).map_err(|error| error.to_string())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with_environment(environment: &[(&str, &str)]) -> Result<Config, String> {
    Directory::new().load(None, environment)
}

fn with_file(text: &str) -> Result<Config, String> {
    Directory::with("signpost.toml", text).load(None, &[])
}

fn defaults() -> Config {
    with_environment(&[]).expect("the defaults are valid")
}

/// The line that stops the start.
fn refusal(result: Result<Config, String>) -> String {
    let line = result.expect_err("the configuration is bad");
    assert_eq!(line.lines().count(), 1, "not one line: {line:?}");
    line
}

#[test]
fn the_defaults_are_the_documented_numbers() {
    let config = defaults();
    assert_eq!(config.data_dir, Path::new("./data"));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.store.kind, StoreKind::Embedded);
    assert_eq!(config.scylla.keyspace, "signpost");
    assert_eq!(config.scylla.replication_factor, 3);
    assert_eq!(config.scylla.consistency, Consistency::LocalQuorum);
    assert_eq!(config.scylla.serial_consistency, SerialConsistency::LocalSerial);
    assert_eq!(config.scylla.request_timeout, Duration::from_secs(5));
    assert_eq!(config.scylla.speculative_after, Duration::from_millis(100));
    assert!(!config.scylla.tls && !config.scylla.migrate_at_start);
    assert_eq!(config.http.workers, None);
    assert_eq!(config.webhooks.timeout, Duration::from_secs(10));
    let delays = [Duration::from_secs(1), Duration::from_secs(5)];
    assert_eq!(config.webhooks.retry_delays, delays);
    assert_eq!(config.log.level, LogLevel::Info);
    assert_eq!(config.log.format, LogFormat::Text);
    assert!(!config.log.requests);
    assert_eq!(config.geo.database, None);
    assert_eq!(config.links.delete_expired_after, None);

    let number = |limit: Option<std::num::NonZeroU32>| limit.map(std::num::NonZeroU32::get);
    assert_eq!(number(config.limits.redirect_per_minute), Some(100));
    assert_eq!(number(config.limits.per_minute("qr_per_minute")), Some(60));
    assert_eq!(number(config.limits.unauthorized_per_minute), Some(100));
    let rates = [&config.tiers.free, &config.tiers.pro].map(|tier| {
        ["shorten", "analytics", "summary", "usage", "status", "link", "api_keys"]
            .map(|name| number(tier.per_minute(&format!("{name}_per_minute"))).unwrap_or(0))
    });
    assert_eq!(rates[0], [10, 30, 30, 60, 60, 60, 30]);
    assert_eq!(rates[1], [60, 120, 120, 120, 120, 120, 60]);
    assert_eq!(config.tiers.free.links_per_month, Some(100));
    assert_eq!(config.tiers.pro.links_per_month, None);
    assert_eq!(config.tiers.free.webhook_deliveries_per_month, Some(1_000));
    assert_eq!(config.tiers.pro.webhook_deliveries_per_month, Some(50_000));
    assert_eq!((config.tiers.free.child_keys, config.tiers.pro.child_keys), (10, 100));
}

#[test]
fn every_rate_limit_of_an_endpoint_has_a_setting_in_each_tier_and_every_setting_an_endpoint() {
    let limits: BTreeSet<&str> = endpoints::rate_limits().into_iter().map(|limit| limit.setting).collect();
    let config = defaults();
    for tier in [&config.tiers.free, &config.tiers.pro] {
        assert_eq!(tier.rates().collect::<BTreeSet<_>>(), limits);
    }
    let by_client: BTreeSet<&str> = endpoints::client_limits().map(|(_, limit)| limit.setting).collect();
    assert_eq!(config.limits.rates().collect::<BTreeSet<_>>(), by_client);
}

#[test]
fn a_later_layer_wins() {
    let directory = Directory::with("signpost.toml", "[http]\nlisten = \"127.0.0.1:1001\"\nworkers = 3\n");
    let environment = [("SIGNPOST_HTTP__LISTEN", "127.0.0.1:1002")];
    let config = directory.load(None, &environment).expect("valid");
    assert_eq!(config.http.listen.port(), 1002);
    assert_eq!(config.http.workers.map(usize::from), Some(3));
    assert_eq!(config.http.max_connections, defaults().http.max_connections);

    let variable = "SIGNPOST_HTTP__LISTEN".to_owned();
    let path = PathBuf::from("./signpost.toml");
    let environment = Origin::Environment { variable };
    assert_eq!(config.origin("http.listen"), environment);
    assert_eq!(config.origin("http.workers"), Origin::File { path, line: 3 });
    assert_eq!(config.origin("http.max_connections"), Origin::Default);
}

#[test]
fn a_named_file_is_read_in_place_of_the_usual_one() {
    let directory = Directory::with("signpost.toml", "[http]\nworkers = 3\n");
    let other = "data_dir = \"/elsewhere\"\n";
    fs::write(directory.0.join("other.toml"), other).expect("written");
    let config = directory.load(Some("other.toml"), &[]).expect("valid");
    assert_eq!(config.http.workers, None);
    assert_eq!(config.data_dir, Path::new("/elsewhere"));
}

/// A value for a setting that is valid and, where there is another one, not its default.
fn another_value(directory: &Directory, name: &str, default: &SettingValue) -> Option<String> {
    let candidates: Vec<String> = match default {
        SettingValue::Boolean(value) => vec![(!value).to_string()],
        SettingValue::Integer(0) => vec!["1".to_owned()],
        SettingValue::Integer(value) => vec![(value * 2).to_string()],
        SettingValue::Fraction(_) => vec!["0.5".to_owned()],
        SettingValue::List(_) => ["192.0.2.0/24", "250ms"].map(str::to_owned).into(),
        _ => {
            let texts = ["127.0.0.1:18099", "https://go.example/s", "a.file", "250ms", "2h", "json", "warn", "7"];
            texts.into_iter().chain(["scylla", "QUORUM", "SERIAL", "gpc", "."]).map(str::to_owned).collect()
        }
    };
    let variable = variable(name);
    candidates
        .into_iter()
        .find(|value| directory.load(None, &[companions(name), &[(&variable, value)]].concat()).is_ok())
}

/// What must be set too for a setting to have another value than its default.
fn companions(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "store.kind" => &[("SIGNPOST_SCYLLA__NODES", "db-1"), ("SIGNPOST_MASTER_KEY", MASTER_KEY)],
        "scylla.username" => &[("SIGNPOST_SCYLLA_PASSWORD", PASSWORD)],
        "scylla.tls_ca" => &[("SIGNPOST_SCYLLA__TLS", "true")],
        _ => &[],
    }
}

fn variable(name: &str) -> String {
    format!("SIGNPOST_{}", name.replace('.', "__").to_uppercase())
}

#[test]
fn every_setting_can_be_set_in_the_environment_and_arrives() {
    let directory = Directory::with("a.file", "");
    for setting in defaults().settings() {
        assert_eq!(setting.variable(), variable(setting.name()));
        let value =
            another_value(&directory, setting.name(), setting.value()).unwrap_or_else(|| panic!("{}", setting.name()));
        let variable = setting.variable();
        let changed =
            directory.load(None, &[companions(setting.name()), &[(&variable, &value)]].concat()).expect("valid");
        let origin = Origin::Environment { variable };
        assert_eq!(changed.origin(setting.name()), origin);
        let before = unless_set(&directory, setting.name());
        let (changed, before) = (format!("{changed:?}"), format!("{before:?}"));
        assert_ne!(changed, before, "{} has no effect", setting.name());
    }
}

/// The configuration with all that a setting needs beside it, but not the setting. Without a user the password is refused,
/// so it is put in.
fn unless_set(directory: &Directory, name: &str) -> Config {
    if name != "scylla.username" {
        return directory.load(None, companions(name)).expect("valid");
    }
    let mut config = defaults();
    let named = [companions(name), &[("SIGNPOST_SCYLLA__USERNAME", "other")]].concat();
    config.secrets = directory.load(None, &named).expect("valid").secrets;
    config
}

#[test]
fn the_defaults_file_sets_nothing_anew() {
    let config = with_file(DEFAULTS).expect("the defaults are a valid file");
    assert_eq!(format!("{config:?}"), format!("{:?}", defaults()));
}

#[test]
fn the_effective_configuration_loads_as_itself() {
    let environment = [
        ("SIGNPOST_ROOT_KEY", ROOT_KEY),
        ("SIGNPOST_DATA_DIR", "a \"strange\" \\ path\t"),
        ("SIGNPOST_HTTP__WORKERS", "8"),
        ("SIGNPOST_HTTP__TRUSTED_PROXIES", "10.0.0.1, fd00::/8"),
        ("SIGNPOST_FALLBACKS__NOT_FOUND", "https://example.com/@us?from=short#top"),
        ("SIGNPOST_LOG__REQUESTS", "true"),
        ("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "unlimited"),
        ("SIGNPOST_TIERS__PRO__LINKS_PER_MONTH", "7"),
    ];
    let config = with_environment(&environment).expect("valid");
    let mut again = with_file(&config.effective()).expect("a valid file");
    again.secrets = config.secrets.clone();
    assert_eq!(format!("{again:?}"), format!("{config:?}"));
}

#[test]
fn the_effective_configuration_says_where_each_value_came_from() {
    let directory = Directory::with("signpost.toml", "\n[log]\nformat = \"json\"\n");
    let environment = [("SIGNPOST_HTTP__WORKERS", "8"), ("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "1s,2s")];
    let text = directory.load(None, &environment).expect("valid").effective();
    for line in [
        "data_dir = \"./data\"  # default",
        "workers = 8  # from environment SIGNPOST_HTTP__WORKERS",
        "retry_delays = [\"1s\", \"2s\"]  # from environment SIGNPOST_WEBHOOKS__RETRY_DELAYS",
        "format = \"json\"  # in ./signpost.toml, line 3",
        "# root_key = \"not set\"  # SIGNPOST_ROOT_KEY",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for setting in defaults().settings() {
        let key = setting.name().rsplit('.').next().expect("a name has a part");
        assert!(text.contains(&format!("{key} = ")), "{}", setting.name());
    }
}

#[test]
fn secrets_are_never_shown() {
    let environment = [
        ("SIGNPOST_ROOT_KEY", ROOT_KEY),
        ("SIGNPOST_MASTER_KEY", MASTER_KEY),
        ("SIGNPOST_SCYLLA_PASSWORD", PASSWORD),
        ("SIGNPOST_SCYLLA__USERNAME", "signpost"),
    ];
    let config = with_environment(&environment).expect("valid");
    let root_key = config.secrets.root_key.as_ref().expect("set");
    let master_key = config.secrets.master_key.as_ref().expect("set");
    assert_eq!(root_key.expose(), ROOT_KEY);
    assert_eq!(master_key.expose()[..3], [0, 1, 2]);
    assert_eq!(config.secrets.scylla_password.as_ref().expect("set").expose(), PASSWORD);

    let shown = [format!("{config:?}"), format!("{config:#?}"), config.effective()];
    for text in &shown {
        assert!(!text.contains(ROOT_KEY) && !text.contains(MASTER_KEY) && !text.contains(PASSWORD), "{text}");
        assert!(!text.contains("[0, 1, 2") && text.contains("masked"), "{text}");
    }
    assert!(shown[2].contains("root_key = \"set (masked)\""));
    assert!(shown[2].contains("master_key = \"set (masked)\""));
    assert!(shown[2].contains("scylla_password = \"set (masked)\""));
}

#[test]
fn an_empty_secret_is_none() {
    let environment = [("SIGNPOST_ROOT_KEY", ""), ("SIGNPOST_MASTER_KEY", ""), ("SIGNPOST_SCYLLA_PASSWORD", "")];
    let secrets = with_environment(&environment).expect("valid").secrets;
    assert!(secrets.root_key.is_none() && secrets.master_key.is_none() && secrets.scylla_password.is_none());
}

#[test]
fn lists_stand_between_commas_in_the_environment() {
    let proxies = |text| {
        let environment = [("SIGNPOST_HTTP__TRUSTED_PROXIES", text)];
        let config = with_environment(&environment).expect("valid");
        let networks = config.http.trusted_proxies.iter();
        networks.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(proxies(""), Vec::<String>::new());
    assert_eq!(proxies("10.0.0.1"), ["10.0.0.1/32"]);
    assert_eq!(proxies("10.1.2.3/8 , ::1,fd00::/8"), ["10.0.0.0/8", "::1/128", "fd00::/8"]);
    for text in ["10.0.0.1,", "10.0.0.1,,10.0.0.2", "10.0.0.0/33", "proxy"] {
        let line = refusal(with_environment(&[("SIGNPOST_HTTP__TRUSTED_PROXIES", text)]));
        assert!(line.contains("is not an address or a network in CIDR form"), "{line}");
    }
}

#[test]
fn lists_in_a_file_are_lists_of_strings() {
    let config = with_file("[webhooks]\nretry_delays = [\n  \"1ms\",\n  \"2ms\",\n]\n");
    let delays = config.expect("valid").webhooks.retry_delays;
    assert_eq!(delays, [1, 2].map(Duration::from_millis));
    for text in ["retry_delays = [1, 2]", "retry_delays = \"1s\""] {
        let line = refusal(with_file(&format!("[webhooks]\n{text}\n")));
        assert!(line.contains("expected a list of strings, found a "), "{line}");
    }
}

#[test]
fn a_limit_of_zero_is_none_and_a_quota_of_zero_is_zero() {
    let environment = [
        ("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "0"),
        ("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "0"),
        ("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "0"),
        ("SIGNPOST_TIERS__FREE__CHILD_KEYS", "0"),
    ];
    let config = with_environment(&environment).expect("valid");
    assert_eq!(config.tiers.free.child_keys, 0);
    assert_eq!(config.limits.redirect_per_minute, None);
    assert_eq!(config.tiers.free.per_minute("shorten_per_minute"), None);
    assert_eq!(config.tiers.free.links_per_month, Some(0));
}

#[test]
fn the_base_url_is_the_listen_address_where_none_is_set() {
    let bound = "127.0.0.1:4321".parse().expect("an address");
    let unset = with_environment(&[("SIGNPOST_HTTP__BASE_URL", "")]).expect("valid");
    assert_eq!(unset.http.base_url_at(bound).as_str(), "http://127.0.0.1:4321");
    let environment = [("SIGNPOST_HTTP__BASE_URL", "https://go.example/s/")];
    let set = with_environment(&environment).expect("valid");
    assert_eq!(set.http.base_url_at(bound).as_str(), "https://go.example/s");
}

#[test]
fn a_place_is_looked_up_from_the_directory_of_the_start() {
    let directory = Directory::with("places.mmdb", "");
    let environment = [("SIGNPOST_GEO__DATABASE", "places.mmdb")];
    let config = directory.load(None, &environment).expect("the file is there");
    assert_eq!(config.geo.database.as_deref(), Some(Path::new("places.mmdb")));

    let origin = config.origin("geo.database");
    let error = SettingError::new("geo.database", "is no MaxMind DB", origin);
    let expected = "geo.database: is no MaxMind DB (from environment SIGNPOST_GEO__DATABASE)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn renamed_settings_are_read_under_their_old_names_and_told() {
    let config = with_file("[http]\nclient_limit_cells = 2048\n").unwrap();
    assert_eq!(config.limits.table_size, 2048);
    let told: Vec<_> = config.renamed().iter().map(ToString::to_string).collect();
    let line = "http.client_limit_cells is now named limits.table_size (in ./signpost.toml, line 2); the next release does \
                not read the old name";
    assert_eq!(told, [line]);

    let config = with_environment(&[("SIGNPOST_TELEMETRY__OTLP_ONE_IN", "4")]).unwrap();
    assert!((config.telemetry.trace_sample_ratio - 0.25).abs() < f64::EPSILON);
    assert_eq!(config.renamed().len(), 1);
    assert!(defaults().renamed().is_empty());
    // What check-config prints has the new names alone.
    let effective = config.effective();
    assert!(effective.contains("trace_sample_ratio = 0.25  #") && !effective.contains("otlp_one_in ="), "{effective}");
}

#[test]
fn an_old_name_is_refused_beside_the_new_one_in_the_same_layer() {
    let new = ("SIGNPOST_LIMITS__TABLE_SIZE", "4096");
    let old = ("SIGNPOST_HTTP__CLIENT_LIMIT_CELLS", "2048");
    assert_eq!(
        refusal(with_environment(&[new, old])),
        "limits.table_size: is set twice: http.client_limit_cells is its old name (from environment \
         SIGNPOST_HTTP__CLIENT_LIMIT_CELLS) (from environment SIGNPOST_LIMITS__TABLE_SIZE)"
    );
    assert_eq!(
        refusal(with_file("[limits]\ntable_size = 4096\n[http]\nclient_limit_cells = 2048\n")),
        "http.client_limit_cells: is the old name of limits.table_size, which is set too (in ./signpost.toml, line 4)"
    );
    // In another layer the later one wins, by whatever name.
    let directory = Directory::with("signpost.toml", "[limits]\ntable_size = 4096\n");
    assert_eq!(directory.load(None, &[old]).unwrap().limits.table_size, 2048);
}

#[test]
fn a_bad_value_is_reported_under_the_old_name_that_was_written() {
    assert_eq!(
        refusal(with_file("[http]\nclient_limit_cells = 5\n")),
        "http.client_limit_cells (now limits.table_size): 5 is not between 1024 and 268435456 (in ./signpost.toml, line 2)"
    );
    assert_eq!(
        refusal(with_environment(&[("SIGNPOST_HTTP__CLIENT_LIMIT_CELLS", "many")])),
        "http.client_limit_cells (now limits.table_size): \"many\" is not a whole number (from environment \
         SIGNPOST_HTTP__CLIENT_LIMIT_CELLS)"
    );
    assert_eq!(
        refusal(with_environment(&[("SIGNPOST_TELEMETRY__OTLP_ONE_IN", "0")])),
        "telemetry.otlp_one_in (now telemetry.trace_sample_ratio): is not between 1 and 1000000 (from environment \
         SIGNPOST_TELEMETRY__OTLP_ONE_IN)"
    );
    // A later layer that uses the new name is reported under the new name.
    let directory = Directory::with("signpost.toml", "[http]\nclient_limit_cells = 2048\n");
    assert_eq!(
        refusal(directory.load(None, &[("SIGNPOST_LIMITS__TABLE_SIZE", "5")])),
        "limits.table_size: 5 is not between 1024 and 268435456 (from environment SIGNPOST_LIMITS__TABLE_SIZE)"
    );
}

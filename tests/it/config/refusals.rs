//! What stops the start: each fault in one line that names the setting and its place.

use std::{ffi::OsString, fs};

use signpost::config::Config;

use super::{Directory, MASTER_KEY, ROOT_KEY, refusal, variable, with_environment, with_file};

#[test]
fn a_named_file_must_be_there_and_the_usual_one_need_not() {
    let directory = Directory::new();
    assert!(directory.load(None, &[]).is_ok());
    let line = refusal(directory.load(Some("gone.toml"), &[]));
    assert!(line.starts_with("gone.toml: can't be read: "), "{line}");
}

#[test]
fn a_usual_file_that_cannot_be_read_is_not_passed_over() {
    let directory = Directory::new();
    fs::create_dir(directory.0.join("signpost.toml")).expect("created");
    let line = refusal(directory.load(None, &[]));
    assert!(line.starts_with("./signpost.toml: can't be read: "), "{line}");
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_line() {
    for text in ["[http]\nlisten = \n", "[http]\nlisten\n", "[http]\n\"a\nb\" = 1\n"] {
        let line = refusal(with_file(text));
        assert!(line.starts_with("./signpost.toml, line 2: "), "{line}");
    }
    let twice = refusal(with_file("[http]\nworkers = 1\nworkers = 2\n"));
    assert!(twice.starts_with("./signpost.toml, line 3: "), "{twice}");
}

#[test]
fn a_bad_secret_is_refused_without_being_shown() {
    let short_of_32_bytes = &MASTER_KEY[4..];
    for (variable, value) in [
        ("SIGNPOST_ROOT_KEY", &ROOT_KEY[1..]),
        ("SIGNPOST_ROOT_KEY", "a root key with white space in it"),
        ("SIGNPOST_ROOT_KEY", "ein-schlüssel-mit-umlaut-darinnen"),
        ("SIGNPOST_MASTER_KEY", short_of_32_bytes),
        ("SIGNPOST_MASTER_KEY", "not base64 at all, whatever its size"),
    ] {
        let line = refusal(with_environment(&[(variable, value)]));
        assert!(line.ends_with(&format!("(from environment {variable})")), "{line}");
        assert!(!line.contains(value), "{line}");
    }
}

#[test]
fn a_secret_in_a_file_is_refused_without_being_shown() {
    let line = refusal(with_file(&format!("root_key = \"{ROOT_KEY}\"\n")));
    let expected = "root_key: is a secret, taken from the environment only \
                    (SIGNPOST_ROOT_KEY) (in ./signpost.toml, line 1)";
    assert_eq!(line, expected);
}

#[test]
fn an_unknown_name_in_a_file_is_refused_with_its_place() {
    for (text, expected) in [
        (
            "\n[http]\nlissten = \"127.0.0.1:1\"\n",
            "http.lissten: unknown setting (in ./signpost.toml, line 3); \
             did you mean http.listen?",
        ),
        (
            "[htpp]\nlisten = \"127.0.0.1:1\"\n",
            "htpp: unknown section (in ./signpost.toml, line 1); did you mean http?",
        ),
        ("colour = 1\n", "colour: unknown setting (in ./signpost.toml, line 1)"),
        (
            "[tiers.free]\nlink_per_month = 1\n",
            "tiers.free.link_per_month: unknown setting (in ./signpost.toml, line 2); \
             did you mean tiers.free.links_per_month?",
        ),
        ("http = 1\n", "http: is a section, not a setting (in ./signpost.toml, line 1)"),
        ("\"a\\nb\" = 1\n", "\"a\\nb\": unknown setting (in ./signpost.toml, line 1)"),
        (
            "\"http.listen\" = \"127.0.0.1:1\"\n",
            "\"http.listen\": unknown setting (in ./signpost.toml, line 1); \
             did you mean http.listen?",
        ),
    ] {
        assert_eq!(refusal(with_file(text)), expected);
    }
}

#[test]
fn an_unknown_name_in_the_environment_is_refused_with_its_place() {
    for (variable, expected) in [
        (
            "SIGNPOST_HTTP__LISSTEN",
            "http.lissten: unknown setting (from environment SIGNPOST_HTTP__LISSTEN); \
             did you mean SIGNPOST_HTTP__LISTEN?",
        ),
        (
            "SIGNPOST_HTTP_LISTEN",
            "http_listen: unknown setting (from environment SIGNPOST_HTTP_LISTEN); \
             did you mean SIGNPOST_HTTP__LISTEN?",
        ),
        ("SIGNPOST_COLOUR", "colour: unknown setting (from environment SIGNPOST_COLOUR)"),
        ("SIGNPOST_A\nB", "a\\nb: unknown setting (from environment SIGNPOST_A\\nB)"),
    ] {
        assert_eq!(refusal(with_environment(&[(variable, "1")])), expected);
    }
}

#[test]
fn other_variables_and_those_of_the_tests_and_of_the_client_are_passed_over() {
    let environment = [
        ("PATH", "/bin"),
        ("signpost_http__listen", "x"),
        ("SIGNPOST", "x"),
        ("SIGNPOST_TEST_ANYTHING", "x"),
        ("SIGNPOST_API_URL", "https://go.example"),
        ("SIGNPOST_API_KEY", "x"),
    ];
    assert!(with_environment(&environment).is_ok());
}

#[test]
fn a_bad_value_in_the_environment_is_refused_in_one_line() {
    for (name, value, message) in [
        ("http.listen", "foo", "\"foo\" is not an address and port"),
        ("http.listen", "", "\"\" is not an address and port"),
        ("http.listen", "a\nb", "\"a\\nb\" is not an address and port"),
        (
            "http.base_url",
            "ftp://go.example",
            "\"ftp://go.example\" is not an http or https URL with a host and without \
             credentials, query or fragment",
        ),
        ("http.workers", "-1", "-1 is not between 0 and 512"),
        ("http.workers", "many", "\"many\" is not a whole number"),
        ("http.workers", "99999999999999999999", "\"99999999999999999999\" is not a whole number"),
        ("http.request_timeout", "10", "\"10\" is not a duration from \"100ms\" to \"5m\""),
        ("limits.table_size", "1", "1 is not between 1024 and 268435456"),
        ("store.kind", "sqlite", "\"sqlite\" is not one of embedded, scylla"),
        ("scylla.nodes", "db-1,db-2:x", "\"db-2:x\" is not a host or host:port"),
        ("scylla.consistency", "ONE", "\"ONE\" is not one of LOCAL_QUORUM, QUORUM, ALL"),
        ("scylla.serial_consistency", "QUORUM", "\"QUORUM\" is not one of LOCAL_SERIAL, SERIAL"),
        ("scylla.replication_factor", "0", "0 is not between 1 and 100"),
        ("scylla.request_timeout", "2m", "\"2m\" is not a duration from \"100ms\" to \"1m\""),
        ("scylla.speculative_after", "0s", "\"0s\" is not a duration from \"1ms\" to \"10s\""),
        ("scylla.tls_ca", "gone.pem", "\"gone.pem\" is not an existing file"),
        ("scylla.username", "signpost", "has no password: SIGNPOST_SCYLLA_PASSWORD is not set"),
        ("journal.segment_bytes", "65537", "65537 is not a multiple of 65536"),
        ("cache.keys_ttl", "5s", "\"5s\" is not a duration from \"1ms\" to \"4s\""),
        ("links.delete_expired_after", "11y", "\"11y\" is not \"never\" or a duration from \"0s\" to \"10years\""),
        ("limits.redirect_per_minute", "-5", "-5 is not between 0 and 1000000"),
        ("tiers.free.links_per_month", "-1", "-1 is neither a count from 0 up nor \"unlimited\""),
        ("tiers.free.links_per_month", "lots", "\"lots\" is neither a count from 0 up nor \"unlimited\""),
        ("tiers.free.child_keys", "1001", "1001 is not between 0 and 1000"),
        ("tiers.pro.child_keys", "unlimited", "\"unlimited\" is not a whole number"),
        ("webhooks.retry_delays", "1s,x", "\"x\" is not a duration from \"0s\" to \"1h\""),
        ("webhooks.retry_delays", "1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s", "has 11 delays; the maximum is 10"),
        ("webhooks.suspend_after", "1000001", "1000001 is not between 0 and 1000000"),
        ("bots.list", "gone.json", "\"gone.json\" is not an existing file"),
        ("bots.networks", "gone", "\"gone\" is not an existing file"),
        ("privacy.respect", "dnt", "\"dnt\" is not one of none, gpc, gpc+dnt"),
        ("analytics.sheet_days", "367", "367 is not between 0 and 366"),
        ("geo.database", "gone.mmdb", "\"gone.mmdb\" is not an existing file"),
        ("geo.database", ".", "\".\" is not an existing file"),
        ("log.level", "loud", "\"loud\" is not one of off, error, warn, info, debug, trace"),
        ("log.format", "xml", "\"xml\" is not one of text, json"),
        ("log.requests", "yes", "\"yes\" is not true or false"),
        (
            "telemetry.otlp_endpoint",
            "collector:4318",
            "\"collector:4318\" is not an http or https URL with a host and without credentials, query or fragment",
        ),
        ("telemetry.trace_sample_ratio", "1.5", "\"1.5\" is not a number from 0 to 1"),
        ("telemetry.trace_sample_ratio", "half", "\"half\" is not a number from 0 to 1"),
        ("data_dir", "", "\"\" is not a path"),
    ] {
        let variable = variable(name);
        let line = refusal(with_environment(&[(&variable, value)]));
        assert_eq!(line, format!("{name}: {message} (from environment {variable})"));
    }
}

#[test]
fn a_value_of_the_wrong_type_in_a_file_is_refused_in_one_line() {
    for (setting, message) in [
        ("listen = 8080", "listen: expected a string, found a whole number"),
        ("listen = {}", "listen: expected a string, found a section"),
        ("workers = \"8\"", "workers: expected a whole number, found a string"),
        ("workers = 1.5", "workers: expected a whole number, found a fraction"),
        ("workers = true", "workers: expected a whole number, found a boolean"),
        ("workers = 2026-11-21", "workers: expected a whole number, found a date or time"),
        ("workers = 0xffffffffffffffff", "workers: expected a whole number, found a number beyond 64 bits"),
        ("base_url = []", "base_url: expected a string, found a list"),
    ] {
        let line = refusal(with_file(&format!("[http]\n{setting}\n")));
        assert_eq!(line, format!("http.{message} (in ./signpost.toml, line 2)"));
    }
    let line = refusal(with_file("[log]\nrequests = \"true\"\n"));
    let expected = "log.requests: expected a boolean, found a string (in ./signpost.toml, line 2)";
    assert_eq!(line, expected);
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf_8_is_refused() {
    use std::os::unix::ffi::OsStringExt;

    let variable = OsString::from("SIGNPOST_DATA_DIR");
    let value = OsString::from_vec(vec![b'.', 0xff]);
    let error = Config::load(None, [(variable, value)], &Directory::new().0).expect_err("not a valid value");
    let expected = "data_dir: is not valid UTF-8 (from environment SIGNPOST_DATA_DIR)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn settings_that_do_not_go_together_are_blamed_on_the_one_set_last() {
    let file = "[journal]\nsegment_bytes = 65536\ndisk_budget_bytes = 131072\n";
    let directory = Directory::with("signpost.toml", file);
    for (variable, value, setting) in [
        ("SIGNPOST_HTTP__LISTEN", "127.0.0.1:8081", "http.listen"),
        ("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:8080", "admin.listen"),
        ("SIGNPOST_JOURNAL__DISK_BUDGET_BYTES", "131071", "journal.disk_budget_bytes"),
        ("SIGNPOST_JOURNAL__SEGMENT_BYTES", "131072", "journal.segment_bytes"),
        ("SIGNPOST_WEBHOOKS__BUFFER", "511", "webhooks.buffer"),
        ("SIGNPOST_WEBHOOKS__WORKERS", "513", "webhooks.workers"),
        ("SIGNPOST_SCYLLA__SPECULATIVE_AFTER", "5s", "scylla.speculative_after"),
        ("SIGNPOST_SCYLLA__REQUEST_TIMEOUT", "100ms", "scylla.request_timeout"),
    ] {
        let line = refusal(directory.load(None, &[(variable, value)]));
        assert!(line.starts_with(&format!("{setting}: ")), "{line}");
        assert!(line.ends_with(&format!("(from environment {variable})")), "{line}");
    }
}

#[test]
fn a_bad_value_is_refused_without_the_password_in_it() {
    for setting in ["http.base_url", "telemetry.otlp_endpoint", "http.listen", "scylla.nodes", "http.trusted_proxies"] {
        for value in [
            "http://ada:sekrit@host.example/",
            "http://ada:sek@rit/sekrit@host/",
            "ada:sekrit@host:x",
            "http://h/?key=sekrit",
        ] {
            let by_environment = refusal(with_environment(&[(&variable(setting), value)]));
            let (section, key) = setting.split_once('.').unwrap();
            let is_list = ["scylla.nodes", "http.trusted_proxies"].contains(&setting);
            let literal = if is_list { format!("[\"{value}\"]") } else { format!("\"{value}\"") };
            let by_file = refusal(with_file(&format!("[{section}]\n{key} = {literal}\n")));
            for line in [by_environment, by_file] {
                assert!(line.starts_with(setting) && line.contains("***"), "{line}");
                assert!(!line.contains("sekrit") && !line.contains("ada") && !line.contains("rit/"), "{line}");
            }
        }
    }
}

/// A password is in a value that is taken, or refused, of every setting, from a file and from the environment.
#[test]
fn no_password_in_a_value_is_shown() {
    const SECRET: &str = "hunter2-s3cret";
    let defaults = with_environment(&[]).expect("valid");
    let names = defaults.settings().map(|setting| {
        (
            setting.name().to_owned(),
            setting.variable(),
            matches!(setting.value(), signpost::config::SettingValue::List(_)),
        )
    });
    for (name, variable, is_list) in names.collect::<Vec<_>>() {
        for url in [
            "http://operator:SECRET@host:1/path",
            "http://operator:SECRET",
            "http:/operator:SECRET@host",
            "http://host/?token=SECRET",
            "ftp://operator:SECRET@host",
            "operator:SECRET@host:9042",
        ] {
            if name.starts_with("fallbacks.") && url.contains('?') {
                // Visitors are sent there: its query is no secret.
                continue;
            }
            let url = url.replace("SECRET", SECRET);
            let value = if is_list { format!("[{url:?}]") } else { format!("{url:?}") };
            let (section, key) = name.rsplit_once('.').unwrap_or(("", &name));
            let text = if section.is_empty() {
                format!("{key} = {value}\n")
            } else {
                format!("[{section}]\n{key} = {value}\n")
            };
            for loaded in [with_file(&text), with_environment(&[(&variable, &url)])] {
                let shown = match loaded {
                    Ok(config) if url.contains("://") => config.effective(),
                    Ok(_) => continue,
                    Err(line) => line,
                };
                assert!(!shown.contains(SECRET), "{name}: {shown}");
            }
        }
    }
}

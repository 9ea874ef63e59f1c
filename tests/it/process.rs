//! The program as its operator meets it: the command line, the first start, the log.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signpost::telemetry::logging::{self, Format};
use tracing_subscriber::filter::LevelFilter;

use crate::support::children::{child, child_directory};
use crate::support::process::{Ended, Process, Program, shown};
use crate::support::server::ROOT_KEY;
use crate::support::soon;
use crate::support::wire::WireAnswer;

const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn run(arguments: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let ended = Program::at(directory.path()).arguments(arguments).run();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "a command that only prints leaves nothing behind");
    ended
}

/// What a command printed that is to succeed and to complain about nothing.
#[track_caller]
fn printed(ended: Ended) -> String {
    assert!(ended.code() == Some(0) && ended.stderr.is_empty(), "{ended:?}");
    ended.stdout
}

#[test]
fn the_version_is_told() {
    assert_eq!(printed(run(&["--version"])), format!("signpost {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_names_every_command() {
    let help = printed(run(&["--help"]));
    for word in ["serve", "check-config", "migrate", "export", "import", "openapi", "bots", "--config", "--version"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn what_the_command_line_does_not_know_is_refused_by_name() {
    for argument in ["sevre", "--cofnig"] {
        let ended = run(&[argument]);
        assert!(ended.code() == Some(2) && ended.stderr.contains(argument), "{ended:?}");
    }
}

#[test]
fn the_description_of_the_api_is_printed_as_json() {
    let document: Value = serde_json::from_str(&printed(run(&["openapi"]))).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{document}");
    assert!(document["paths"].is_object(), "{document}");
}

#[test]
fn the_health_check_fails_where_no_server_is_ready_and_succeeds_where_one_is() {
    let directory = tempfile::tempdir().unwrap();
    // An address that no other test uses, also while nobody listens there.
    let admin = std::net::TcpListener::bind("127.0.7.2:0").unwrap().local_addr().unwrap().to_string();
    let check =
        || Program::at(directory.path()).arguments(&["healthcheck"]).set("SIGNPOST_ADMIN__LISTEN", &admin).run();
    let ended = check();
    assert!(ended.code() == Some(1) && ended.stderr.contains(&admin), "{ended:?}");
    let _process = Program::at(directory.path()).set("SIGNPOST_ADMIN__LISTEN", &admin).serve();
    assert!(printed(check()).contains("ready"));
}

#[test]
fn where_few_files_may_be_open_connections_leave_enough_for_the_store() {
    const LIMIT: u32 = 300;
    let directory = tempfile::tempdir().unwrap();
    let process = Program::with_open_files(directory.path(), LIMIT)
        .set("SIGNPOST_ROOT_KEY", ROOT_KEY)
        .set("SIGNPOST_HTTP__WORKERS", "2")
        .serve();
    assert!(process.stderr().contains("max_connections=75"), "{}", process.stderr());
    let mut first = process.connect().unwrap();
    first.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap().expect(200);
    let idle: Vec<_> = (0..LIMIT + 50).map(|_| process.connect().unwrap()).collect();
    let open_files = || fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap().count();
    soon("all connections are accepted that may be", || open_files() > 150);
    std::thread::sleep(Duration::from_millis(300));
    assert!(open_files() < LIMIT as usize - 30, "{}", open_files());
    first.post("/shorten", ROOT_KEY, r#"{"redirect_url":"https://example.com/"}"#).unwrap().expect(200);
    drop(idle);
}

#[test]
fn the_embedded_store_needs_no_migration_and_says_so() {
    assert!(printed(run(&["migrate"])).contains("no migration"));
}

#[test]
fn what_an_agent_is_taken_for_is_told_with_the_reason() {
    for (agent, expected) in [
        ("Googlebot/2.1 (+http://www.google.com/bot.html)", "crawler: matches Googlebot\\/ of the built-in list"),
        ("ExampleBot/1.0", "crawler: has the word \"bot\""),
        ("", "tool: the user agent is empty"),
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0",
            "not a bot: no pattern of the built-in",
        ),
    ] {
        let told = printed(run(&["bots", agent]));
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn an_own_list_of_bots_is_used_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bots.json");
    let told =
        || Program::at(directory.path()).arguments(&["bots", "probe/1"]).set("SIGNPOST_BOTS__LIST", "bots.json").run();
    fs::write(&path, r#"[{"pattern": "^probe/", "kind": "monitor"}]"#).unwrap();
    assert_eq!(printed(told()), "monitor: matches ^probe/ of bots.json\n");
    fs::write(&path, r#"[{"pattern": "(?=probe)", "kind": "monitor"}]"#).unwrap();
    told().refused(&["bots.list", "bots.json", "entry 1", "look-around"]);
    let check = || Program::at(directory.path()).arguments(&["check-config"]);
    check().set("SIGNPOST_BOTS__LIST", "bots.json").run().refused(&["bots.list", "bots.json", "entry 1"]);
    fs::write(&path, b"[\xff]").unwrap();
    told().refused(&["bots.list", "bots.json", "not UTF-8"]);
    fs::write(&path, " ".repeat(1024 * 1024 + 1)).unwrap();
    told().refused(&["bots.list", "bots.json", "larger than 1048576 bytes"]);
    fs::write(&path, vec![b'#'; 16 * 1024 * 1024 + 1]).unwrap();
    check().set("SIGNPOST_BOTS__NETWORKS", "bots.json").run().refused(&["bots.networks", "larger than 16777216 bytes"]);
}

#[test]
fn the_effective_configuration_is_printed_without_secrets_and_can_be_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let check = || {
        Program::at(directory.path())
            .arguments(&["check-config"])
            .set("SIGNPOST_ROOT_KEY", ROOT_KEY)
            .set("SIGNPOST_MASTER_KEY", MASTER_KEY)
            .set("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", "7")
    };
    let text = printed(check().run());
    assert!(!text.contains(ROOT_KEY) && !text.contains(MASTER_KEY), "{text}");
    assert!(text.contains("masked") && text.contains("links_per_month = 7"), "{text}");
    assert!(text.contains("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH"), "{text}");
    fs::write(directory.path().join("again.toml"), &text).unwrap();
    let again = Program::at(directory.path()).arguments(&["check-config", "--config", "again.toml"]).run();
    assert!(printed(again).contains("links_per_month = 7  # in again.toml"));
}

#[test]
fn an_unknown_setting_is_named_with_the_place_it_came_from() {
    let directory = tempfile::tempdir().unwrap();
    for command in ["serve", "check-config"] {
        let ended = Program::at(directory.path()).arguments(&[command]).set("SIGNPOST_HTTP__LISTENN", "x").run();
        ended.refused(&["http.listenn", "SIGNPOST_HTTP__LISTENN", "SIGNPOST_HTTP__LISTEN?"]);
        let ended = Program::at(directory.path()).arguments(&[command]).set("SIGNPOST_HTTP__WORKERS", "many").run();
        ended.refused(&["http.workers", "many", "SIGNPOST_HTTP__WORKERS"]);
    }
    let file = directory.path().join("signpost.toml");
    fs::write(&file, "[http]\nworkers = 1\nworkres = 2\n").unwrap();
    Program::at(directory.path()).run().refused(&["http.workres", "signpost.toml, line 3"]);
    fs::write(&file, "[http\n").unwrap();
    Program::at(directory.path()).run().refused(&["signpost.toml, line 1"]);
    Program::at(directory.path()).arguments(&["--config", "gone.toml"]).run().refused(&["gone.toml"]);
    let ended = Program::at(tempfile::tempdir().unwrap().path()).set("SIGNPOST_ROOT_KEY", "too-short").run();
    ended.refused(&["root_key", "32", "SIGNPOST_ROOT_KEY"]);
    assert!(!ended.stderr.contains("too-short"), "{ended:?}");
}

fn started(directory: &Path) -> (Process, String) {
    let process = Program::at(directory).serve();
    soon("what a start prints", || process.stdout().contains("serves on"));
    let stdout = process.stdout();
    (process, stdout)
}

fn bash(line: &str) -> Output {
    Command::new("bash").args(["-c", line]).output().unwrap()
}

#[test]
fn the_first_start_prints_secrets_once_and_a_line_that_works_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (process, stdout) = started(directory.path());
    let key = shown(&stdout, "root key").unwrap();
    let webhook_secret = shown(&stdout, "webhook secret").unwrap();
    assert!(key.len() == 46 && key.starts_with("sp_"), "{stdout}");
    assert!(webhook_secret.starts_with("whsec_"), "{stdout}");
    let page = stdout.lines().find_map(|line| line.strip_prefix("Sign in with the root key: ")).unwrap();
    let shown_page = bash(&format!("curl -sS {page}"));
    assert!(shown_page.stdout.starts_with(b"<!doctype html>"), "{page}: {shown_page:?}");
    assert!(stdout.contains(&format!("(console: {page}, ")), "{stdout}");
    let command = stdout.lines().map(str::trim).find(|line| line.starts_with("curl ")).unwrap();
    let output = bash(command);
    let link: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{command}: {output:?}"));
    assert_eq!(link.as_object().unwrap().len(), 4, "{link}");
    let followed = bash(&format!("curl -sS -o /dev/null -w '%{{http_code}}' {}", link["short_url"].as_str().unwrap()));
    assert_eq!(followed.stdout, b"302", "{followed:?}");
    let log = process.terminate().stderr;
    assert!(!log.contains(&key) && !log.contains(&webhook_secret), "{log}");

    let (process, stdout) = started(directory.path());
    for secret in [&*key, &webhook_secret, "sp_", "whsec_", "curl", "first start"] {
        assert!(!stdout.contains(secret), "{stdout}");
    }
    // And the key is still the same.
    let mut root = process.connect().unwrap();
    root.get("/usage", &[("X-API-Key", &key)]).unwrap().expect(200);
    assert_eq!(process.terminate().code(), Some(0));
}

#[test]
fn a_console_that_is_turned_off_is_not_named() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::at(directory.path()).set("SIGNPOST_CONSOLE__ENABLED", "false").serve();
    soon("what a start prints", || process.stdout().contains("serves on"));
    let stdout = process.terminate().stdout;
    assert!(stdout.contains("root key") && !stdout.contains("console"), "{stdout}");
}

#[test]
fn a_root_key_that_the_operator_chose_is_not_printed() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path()).serve();
    let mut root = process.connect().unwrap();
    root.get("/usage", &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200);
    let ended = process.terminate();
    assert!(!ended.stdout.contains(ROOT_KEY) && !ended.stderr.contains(ROOT_KEY), "{ended:?}");
    assert!(shown(&ended.stdout, "webhook secret").is_some(), "{ended:?}");
}

/// One request of each kind; answers the log of it all, and what must not be in it.
fn logged(program: Program) -> (Ended, Vec<String>) {
    let process =
        program.set("SIGNPOST_HTTP__TRUSTED_PROXIES", "127.0.0.1").set("SIGNPOST_PRIVACY__RESPECT", "gpc").serve();
    let mut root = process.connect().unwrap();
    let forwarded = ("X-Forwarded-For", "203.0.113.77");
    let key = ("X-API-Key", ROOT_KEY);
    let json = ("Content-Type", "application/json");
    let mut send = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| -> WireAnswer {
        let headers = [headers, &[forwarded, ("User-Agent", "an-agent"), ("Referer", "http://a-referrer/")]].concat();
        root.request(method, path, &headers, body).unwrap()
    };
    let made = send("POST", "/api-keys", &[key, json], r#"{"name":"a"}"#).expect(201).json();
    let link = r#"{"redirect_url":"https://target.example/","data":{"private":"data-of-a-link"}}"#;
    let id = send("POST", "/shorten", &[key, json], link).expect(200).json()["short_id"].as_str().unwrap().to_owned();
    let visitor = [("Accept-Language", "qx-ZQ"), ("Sec-GPC", "1"), ("Sec-Purpose", "prefetch")];
    send("GET", &format!("/{id}?utm_source=a-campaign"), &[], "").expect(302);
    send("GET", &format!("/{id}?utm_source=a-campaign"), &visitor, "").expect(302);
    send("GET", &format!("/links/{id}/analytics"), &[key], "").expect(200);
    send("GET", "/usage", &[("X-API-Key", "sp_a-wrong-key-0123456789")], "").expect(401);
    send("POST", "/shorten", &[key, json, ("X-Request-Id", "an-id-of-a-client")], "{").expect(400);
    let mut never = vec![ROOT_KEY.to_owned(), "sp_a-wrong-key-0123456789".into(), "203.0.113.77".into()];
    never.extend(["an-agent", "a-referrer", "data-of-a-link", "target.example"].map(str::to_owned));
    never.extend(["qx-ZQ", "qx-zq", "a-campaign"].map(str::to_owned));
    never.extend(["key", "webhook_secret"].map(|secret| made[secret].as_str().unwrap().to_owned()));
    (process.terminate(), never)
}

#[test]
fn json_logs_are_json_line_by_line_without_secrets_or_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::under_load(directory.path()).set("SIGNPOST_LOG__FORMAT", "json");
    let (ended, never) = logged(program.set("SIGNPOST_LOG__REQUESTS", "true").set("SIGNPOST_LOG__LEVEL", "trace"));
    let lines: Vec<Value> = ended.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    for secret in never {
        assert!(!ended.stderr.contains(&secret), "{secret}: {}", ended.stderr);
    }
    // A client's address is in no line; the only addresses are those listened on.
    let others = lines.iter().filter(|line| line["message"] != "serving").map(Value::to_string);
    assert!(others.clone().all(|line| !line.contains("127.0.0.1")), "{:?}", others.collect::<Vec<_>>());
}

#[test]
fn child_that_panics() {
    if child_directory().is_none() {
        return;
    }
    logging::init(LevelFilter::ERROR, Format::Json).unwrap();
    let thread = std::thread::Builder::new().name("a-part".into());
    thread.spawn(|| panic!("of a reason\nin two lines")).unwrap().join().unwrap_err();
}

#[test]
fn a_panic_is_one_line_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let output = child(module_path!(), "child_that_panics", directory.path(), &[])
        .stderr(Stdio::piped())
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap();
    let line: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&line["message"], &line["level"], &line["thread"]),
        (&json!("panicked"), &json!("ERROR"), &json!("a-part"))
    );
    assert_eq!(line["reason"], "of a reason\nin two lines");
    assert!(line["location"].as_str().unwrap().contains("process.rs:"), "{line}");
}

/// From the id of a request to the tries of its webhooks.
#[test]
fn a_request_can_be_followed_through_the_journal_to_its_deliveries() {
    let directory = tempfile::tempdir().unwrap();
    let process = Program::under_load(directory.path())
        .set("SIGNPOST_LOG__FORMAT", "json")
        .set("SIGNPOST_LOG__REQUESTS", "true")
        .set("SIGNPOST_LOG__LEVEL", "debug")
        .serve();
    let mut connection = process.connect().unwrap();
    // Nobody listens there.
    let body = r#"{"redirect_url":"https://example.com/","webhooks":["http://127.0.0.1:9/"]}"#;
    let link = connection.post("/shorten", ROOT_KEY, body).unwrap().expect(200).json();
    let path = format!("/{}", link["short_id"].as_str().unwrap());
    connection.get(&path, &[("X-Request-Id", "the-id-of-a-click")]).unwrap().expect(302);
    let lines =
        || -> Vec<Value> { process.stderr().lines().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    let began = Instant::now();
    let tried = loop {
        let tried: Vec<Value> = lines().into_iter().filter(|line| line["message"] == "webhook attempt ended").collect();
        if !tried.is_empty() {
            break tried;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{}", process.stderr());
        std::thread::sleep(Duration::from_millis(20));
    };
    let request = lines().into_iter().find(|line| line.to_string().contains("the-id-of-a-click")).unwrap();
    assert!(request["hit"].is_string(), "{request}");
    assert_eq!(tried[0]["hit"], request["hit"], "{request}");
}

#[test]
fn requests_are_logged_with_their_id_when_asked_for_and_else_not() {
    let directory = tempfile::tempdir().unwrap();
    let (ended, _) = logged(Program::under_load(directory.path()));
    assert!(!ended.stderr.contains("/shorten") && !ended.stderr.contains("method"), "{}", ended.stderr);

    let directory = tempfile::tempdir().unwrap();
    let program = Program::under_load(directory.path()).set("SIGNPOST_LOG__REQUESTS", "true");
    let (ended, never) = logged(program);
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("request method=")).collect();
    assert_eq!(lines.len(), 7, "one line a request: {}", ended.stderr);
    let failed = lines.iter().find(|line| line.contains("an-id-of-a-client")).unwrap();
    for part in ["POST", "/shorten", "400"] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    for secret in never {
        assert!(!ended.stderr.contains(&secret), "{secret}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains('\u{1b}'), "no colours in a file: {}", ended.stderr);
}

//! Webhooks at names whose look-up hangs: nothing else waits for them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::name_server::{NameServer, Reply};
use crate::support::process::{Process, Program};
use crate::support::receiver::Receiver;
use crate::support::server::{ROOT_KEY, metric};
use crate::support::{SOON, until};

const LINKS: usize = 200;
const WEBHOOKS: usize = 10;
/// Longer than what is measured, and shorter than look-ups hang.
const TRY_WITHIN: Duration = Duration::from_secs(5);
/// Less than a drain takes that waits for anything but tries that are under way.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);
/// A look-up has one socket. The process has few other files open, and no connections but those of the test.
const MOST_FILES: usize = 400;

fn new_key(process: &Process) -> String {
    let body = r#"{"name":"sound","tier":"Pro"}"#;
    let made = process.connect().unwrap().post("/api-keys", ROOT_KEY, body).unwrap().expect(201).json();
    made["key"].as_str().unwrap().to_owned()
}

fn new_link(process: &Process, key: &str, webhooks: &[String]) -> String {
    let body = json!({"redirect_url": "https://example.com/", "webhooks": webhooks}).to_string();
    let made = process.connect().unwrap().post("/shorten", key, &body).unwrap().expect(200).json();
    made["short_id"].as_str().unwrap().to_owned()
}

fn click(process: &Process, link: &str) {
    process.connect().unwrap().get(&format!("/{link}"), &[]).unwrap().expect(302);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_whose_look_up_hangs_hold_up_neither_other_webhooks_nor_the_api_nor_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let names = NameServer::start(|_| Reply::Silence);
    let resolv_conf = directory.path().join("resolv.conf");
    std::fs::write(&resolv_conf, names.line() + "options timeout:30 attempts:2").unwrap();
    let process = Program::under_load(directory.path())
        .set("SIGNPOST_WEBHOOKS__RESOLV_CONF", resolv_conf.to_str().unwrap())
        .set("SIGNPOST_WEBHOOKS__TIMEOUT", &format!("{}s", TRY_WITHIN.as_secs()))
        .serve();

    let receiver = Receiver::start().await;
    let key = new_key(&process);
    let sound = new_link(&process, &key, &[receiver.url("/")]);
    click(&process, &sound);
    receiver.wait_for(1, SOON).await;

    let hanging: Vec<String> = (0..LINKS)
        .map(|link| {
            let host = |webhook| format!("http://{webhook}.{link}.hangs.example/");
            new_link(&process, ROOT_KEY, &(0..WEBHOOKS).map(host).collect::<Vec<_>>())
        })
        .collect();
    for link in &hanging {
        click(&process, link);
    }
    let under_way = || metric(&process.metrics(), "signpost_webhook_in_flight").unwrap_or_default();
    until("many look-ups hang", SOON, || under_way() >= 100.0);

    let began = Instant::now();
    click(&process, &sound);
    receiver.wait_for(2, SOON).await;
    eprintln!("a sound delivery while {} look-ups hang: {:?}", under_way(), began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(3), "delivered after {:?}", began.elapsed());
    for path in [format!("/links/{}", hanging[0]), format!("/links/{}/analytics/summary", hanging[0])] {
        let began = Instant::now();
        process.connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200);
        eprintln!("{path}: {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(1), "{path} after {:?}", began.elapsed());
    }
    // Those that are given up end.
    let asked = names.asked().len();
    until("as many others have their turn", SOON, || names.asked().len() >= 2 * asked);
    let files = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap().count();
    assert!(files < MOST_FILES, "{files} files are open");
    assert!(under_way() >= 100.0, "look-ups no longer hang");

    let began = Instant::now();
    let ended = process.terminate();
    let took = began.elapsed();
    eprintln!("{files} open files; drained in {took:?}");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(took < DRAINED_WITHIN, "{took:?}: {ended:?}");
    assert!(
        !ended.stderr.contains("not stopped within the shutdown timeout") && !ended.stderr.contains("ERROR"),
        "{ended:?}"
    );
}

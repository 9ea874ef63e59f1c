//! A cluster that is gone: who needs it is told so at once, and it is back at work as soon as it answers.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::store::samples::{key_id, link, node, short_id};
use crate::support::cluster::Cluster;
use crate::support::keyspaces::Place;
use crate::support::process::{Process, Program};
use crate::support::server::{ROOT_KEY, metric};
use crate::support::wire::WireAnswer;
use crate::support::{middle, until};

/// What the service may take to come right on a machine that compiles meanwhile.
const AT_LAST: Duration = Duration::from_mins(1);
/// As promised, once it is known that the store is out of reach.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// Less than the driver waits between two tries to connect by itself, which is ten seconds by then.
const BACK_WITHIN: Duration = Duration::from_secs(6);
/// So long the cluster is gone at least: the driver tries ever more seldom.
const GONE_FOR: Duration = Duration::from_secs(25);
const BODY: &str = r#"{"redirect_url":"https://example.com/"}"#;

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_cluster_that_is_known_to_be_gone_keeps_nobody_waiting() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = Cluster::start(1, None).unwrap();
    let mut faults = runtime.block_on(cluster.faults());
    let place = Place::fresh(&cluster);
    let directory = tempfile::tempdir().unwrap();
    // Links that this process has not seen.
    runtime.block_on(async {
        let store = place.open_store(node(7)).await;
        for number in 1..9 {
            signpost::store::LinkStore::create_link(&store, link(number, key_id(7)), None).await.unwrap();
        }
        signpost::store::Lifecycle::close(&store).await;
    });
    let process = program(directory.path(), &place).serve();
    let seen = post(&process, "/shorten").expect(200).json()["short_id"].as_str().unwrap().to_owned();
    assert_eq!((reachable(&process), process.ready_status()), (Some(1.0), Some(200)));

    faults.kill(1);
    let killed = Instant::now();
    until("it is known", AT_LAST, || reachable(&process) == Some(0.0));

    assert_eq!(process.ready_status(), Some(503));
    let lines_before = lines_of_503(&process);
    let began = Instant::now();
    let mut refused = 0;
    let asked: [(&str, &dyn Fn(u32) -> WireAnswer); 5] = [
        ("POST /shorten", &|_| post(&process, "/shorten")),
        ("POST /api-keys", &|_| post_body(&process, "/api-keys", r#"{"name":"new"}"#)),
        ("GET /links/{id}", &|_| get(&process, &format!("/links/{seen}"))),
        ("GET analytics", &|_| get(&process, &format!("/links/{seen}/analytics"))),
        ("a redirect that is in no cache", &|number| get(&process, &format!("/{}", short_id(number).as_str()))),
    ];
    for (what, ask) in asked {
        let times = [1, 2, 3, 4, 5].map(|number| {
            let asked = Instant::now();
            let answer = ask(number);
            assert_eq!(answer.status, 503, "{what}: {answer:?}");
            assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{answer:?}");
            refused += 1;
            asked.elapsed()
        });
        assert!(middle(&times) < REFUSED_WITHIN, "{what}: {times:?}");
    }
    // One line a second, for all of them.
    let most_lines = began.elapsed().as_secs() + 2;
    assert!(most_lines > refused || lines_of_503(&process) - lines_before <= most_lines, "{}", process.stderr());
    // What is in cache needs nobody, but to be counted.
    get(&process, &format!("/{seen}")).expect(302);

    std::thread::sleep(GONE_FOR.saturating_sub(killed.elapsed()));
    faults.start(1);
    let started = Instant::now();
    until("a link is made", AT_LAST, || post(&process, "/shorten").status == 200);
    let took = started.elapsed();
    eprintln!("at work again after {took:?}");
    assert!(took < BACK_WITHIN, "{took:?}: {}", process.stderr());
    until("it is ready", AT_LAST, || process.ready_status() == Some(200));
    assert_eq!(reachable(&process), Some(1.0));
    get(&process, &format!("/{}", short_id(8).as_str())).expect(302);
    // What asks again and again tells when that begins, once a minute, and when it is over.
    let lines = |text: &str| process.stderr().lines().filter(|line| line.contains(text)).count() as u64;
    for (fails, is_over) in [
        ("the store did not answer: webhooks wait", "webhooks are delivered again"),
        ("the store did not take hits", "the store takes hits again"),
    ] {
        until(is_over, AT_LAST, || lines(is_over) >= 1);
        let minutes = killed.elapsed().as_secs() / 60 + 1;
        assert!((1..=minutes).contains(&lines(fails)), "{fails}: {}", process.stderr());
        assert!(lines(is_over) <= lines(fails), "{is_over}: {}", process.stderr());
    }
    let ended = process.terminate();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

fn program(directory: &Path, place: &Place) -> Program {
    Program::under_load(directory).sharing(place)
}

fn reachable(process: &Process) -> Option<f64> {
    metric(&process.metrics(), "signpost_store_reachable")
}

fn lines_of_503(process: &Process) -> u64 {
    process.stderr().lines().filter(|line| line.contains("answered 503")).count() as u64
}

fn get(process: &Process, path: &str) -> WireAnswer {
    process.connect().unwrap().get(path, &[("X-API-Key", ROOT_KEY)]).unwrap()
}

fn post(process: &Process, path: &str) -> WireAnswer {
    post_body(process, path, BODY)
}

fn post_body(process: &Process, path: &str, body: &str) -> WireAnswer {
    process.connect().unwrap().post(path, ROOT_KEY, body).unwrap()
}

//! Two processes on one cluster hold one limit.

use std::time::Duration;

use crate::support::keyspaces::Keyspace;
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;

/// Of a Free key, for `GET /usage`.
const LIMIT: usize = 60;
/// What the others have let in is known by then.
const KNOWN_AFTER: Duration = Duration::from_millis(2_500);

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_process_that_was_never_asked_for_a_key_lets_in_nothing_past_its_limit() {
    let keyspace = Keyspace::empty_blocking();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(keyspace.migrate());
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [here, there] =
        directories.each_ref().map(|directory| Program::under_load(directory.path()).sharing(&keyspace).serve());

    // Of three keys, for the engine may stand still for the moment in which one is looked up.
    let mut let_in_there: Vec<usize> = (0..3)
        .map(|_| {
            let key = new_key(&here);
            assert_eq!(let_in(&here, &key, LIMIT), LIMIT);
            std::thread::sleep(KNOWN_AFTER);
            let_in(&there, &key, 26)
        })
        .collect();

    let_in_there.sort_unstable();
    assert_eq!(let_in_there[1], 0, "{let_in_there:?}");
    // And none is refused that has something left.
    let key = new_key(&here);
    assert_eq!(let_in(&here, &key, LIMIT / 2), LIMIT / 2);
    std::thread::sleep(KNOWN_AFTER);
    assert!(let_in(&there, &key, LIMIT) >= LIMIT / 2);
}

fn new_key(process: &Process) -> String {
    let made = process.connect().unwrap().post("/api-keys", ROOT_KEY, r#"{"name":"limited"}"#).unwrap();
    made.expect(201).json()["key"].as_str().unwrap().to_owned()
}

/// How many of so many requests were let in; the others were refused for the limit.
fn let_in(process: &Process, key: &str, times: usize) -> usize {
    let mut connection = process.connect().unwrap();
    let statuses = (0..times).map(|_| connection.get("/usage", &[("X-API-Key", key)]).unwrap().status);
    let statuses: Vec<u16> = statuses.collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

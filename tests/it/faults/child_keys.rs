//! Keys that a key creates, over several processes on one cluster.

use std::time::Instant;

use serde_json::Value;

use crate::support::keyspaces::Keyspace;
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::{SOON, until};

/// Of a Free key.
const LIMIT: usize = 10;
const CREATIONS: usize = 100;
/// As promised of a revoked key.
const REFUSED_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_hundred_creations_over_three_processes_are_as_many_as_the_limit_says_and_all_are_revoked_with_their_creator() {
    let keyspace = Keyspace::empty_blocking();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(keyspace.migrate());
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let processes = directories.each_ref().map(|directory| {
        let program = Program::under_load(directory.path()).sharing(&keyspace);
        program.set("SIGNPOST_TIERS__FREE__API_KEYS_PER_MINUTE", "0").serve()
    });
    let body = r#"{"name":"manager","scopes":["usage:read","keys:manage"]}"#;
    let manager = processes[0].connect().unwrap().post("/api-keys", ROOT_KEY, body).unwrap().expect(201).json();

    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CREATIONS)
            .map(|n| {
                let (process, key) = (&processes[n % 3], text(&manager["key"]));
                scope.spawn(move || {
                    let answer = process.connect().unwrap().post("/api-keys", key, r#"{"name":"child"}"#).unwrap();
                    (answer.status, answer.json())
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });

    let created: Vec<&Value> = answers.iter().filter(|(status, _)| *status == 201).map(|(_, key)| key).collect();
    let is_refusal = |(status, problem): &&(u16, Value)| {
        *status == 403 && (problem["limit"].as_u64(), problem["current"].as_u64()) == (Some(10), Some(10))
    };
    assert_eq!((created.len(), answers.iter().filter(is_refusal).count()), (LIMIT, CREATIONS - LIMIT), "{answers:?}");

    // All have them in memory.
    let keys: Vec<&str> = created.iter().map(|key| text(&key["key"])).chain([text(&manager["key"])]).collect();
    for process in &processes {
        assert_eq!(statuses(process, &keys), [200; LIMIT + 1]);
    }
    let path = format!("/api-keys/{}?descendants=revoke", text(&manager["key_id"]));
    let mut connection = processes[0].connect().unwrap();
    connection.request("DELETE", &path, &[("X-API-Key", ROOT_KEY)], "").unwrap().expect(204);
    let revoked = Instant::now();
    assert_eq!(statuses(&processes[0], &keys), [401; LIMIT + 1]);
    for process in &processes[1..] {
        until("the others refuse them", SOON, || statuses(process, &keys) == [401; LIMIT + 1]);
    }
    assert!(revoked.elapsed() < REFUSED_WITHIN, "{:?}", revoked.elapsed());
}

#[test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
fn a_key_that_is_changed_at_one_process_is_changed_at_the_other() {
    let keyspace = Keyspace::empty_blocking();
    tokio::runtime::Runtime::new().unwrap().block_on(keyspace.migrate());
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // The other process is asked again and again until it follows.
    let program = |directory: &tempfile::TempDir| {
        Program::under_load(directory.path()).set("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0")
    };
    let [here, there] = directories.each_ref().map(|directory| program(directory).sharing(&keyspace).serve());
    let record = here.connect().unwrap().post("/api-keys", ROOT_KEY, r#"{"name":"x"}"#).unwrap().expect(201).json();
    let (key, path) = ([text(&record["key"])], format!("/api-keys/{}", text(&record["key_id"])));
    let change = |body: &str| {
        let headers = [("X-API-Key", ROOT_KEY), ("Content-Type", "application/merge-patch+json")];
        here.connect().unwrap().request("PATCH", &path, &headers, body).unwrap().expect(200);
        Instant::now()
    };
    assert_eq!([&here, &there].map(|process| statuses(process, &key)), [[200], [200]]);
    for (body, expected) in [
        (r#"{"scopes":["links:write"]}"#, 403),
        (r#"{"scopes":["usage:read"],"expires_at":"2099-01-01T00:00:00Z"}"#, 200),
    ] {
        let changed = change(body);
        assert_eq!(statuses(&here, &key), [expected]);
        until("the other follows", SOON, || statuses(&there, &key) == [expected]);
        assert!(changed.elapsed() < REFUSED_WITHIN, "{:?}", changed.elapsed());
    }
    let own = there.connect().unwrap().get("/api-keys/self", &[("X-API-Key", key[0])]).unwrap().expect(200).json();
    assert_eq!(text(&own["expires_at"]), "2099-01-01T00:00:00.000Z");
    let both = [r#"{"name":"both"}"#, r#"{"tier":"Pro"}"#];
    std::thread::scope(|scope| {
        for (process, body) in [&here, &there].into_iter().zip(both) {
            let path = &path;
            scope.spawn(move || {
                let mut connection = process.connect().unwrap();
                connection.request("PATCH", path, &[("X-API-Key", ROOT_KEY)], body).unwrap().expect(200);
            });
        }
    });
    let own = there.connect().unwrap().get("/api-keys/self", &[("X-API-Key", key[0])]).unwrap().expect(200).json();
    assert_eq!((text(&own["name"]), text(&own["tier"])), ("both", "Pro"));
}

/// What a process answers with each of these keys.
fn statuses(process: &Process, keys: &[&str]) -> Vec<u16> {
    let mut connection = process.connect().unwrap();
    keys.iter().map(|key| connection.get("/usage", &[("X-API-Key", key)]).unwrap().status).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

//! The schema on a cluster: applied once whoever does it, and refused where it is not this program's.

use std::collections::HashSet;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use signpost::store::cql::migrate::{self, Applied, FILES, MigrateError, SchemaFile};
use uuid::Uuid;

use crate::support::cluster::{ANSWERED_WITHIN, cluster, fresh_keyspace_name};
use crate::support::process::Program;

async fn connect() -> Session {
    let builder = SessionBuilder::new().known_nodes(cluster(1).await.contact_points());
    let builder = builder.connection_timeout(ANSWERED_WITHIN);
    builder.fetch_schema_metadata(false).refresh_metadata_on_auto_schema_agreement(false).build().await.unwrap()
}

async fn migrate(session: &Session, keyspace: &str) -> Result<Vec<Applied>, MigrateError> {
    let copies = u32::try_from(cluster(1).await.replication_factor()).unwrap();
    migrate::migrate(session, keyspace, copies, None).await
}

/// A keyspace that is up to date, and a session that uses it.
async fn migrated() -> (Session, String) {
    let (session, keyspace) = (connect().await, fresh_keyspace_name());
    migrate(&session, &keyspace).await.unwrap();
    (session, keyspace)
}

async fn change(session: &Session, statement: &str) {
    session.query_unpaged(statement, ()).await.unwrap();
}

async fn tables(session: &Session, keyspace: &str) -> Vec<String> {
    let statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let result = session.query_unpaged(statement, (keyspace,)).await.unwrap().into_rows_result().unwrap();
    result.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect()
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_schema_is_applied_once_and_then_found_up_to_date() {
    let (session, keyspace) = (connect().await, fresh_keyspace_name());
    let missing = migrate::check(&session, &keyspace).await.unwrap_err();
    assert!(matches!(missing, MigrateError::Missing { .. }), "{missing}");

    let applied = migrate(&session, &keyspace).await.unwrap();
    assert_eq!(applied, FILES.iter().map(|file| Applied { name: file.name }).collect::<Vec<_>>());
    migrate::check(&session, &keyspace).await.unwrap();
    let tables = tables(&session, &keyspace).await;
    for file in FILES {
        for table in file.text.lines().filter_map(|line| line.strip_prefix("CREATE TABLE IF NOT EXISTS ")) {
            assert!(tables.contains(&table.trim_end_matches(" (").to_owned()), "{table}");
        }
    }
    assert_eq!(migrate(&session, &keyspace).await.unwrap(), []);
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn of_those_who_migrate_at_once_one_applies_each_file() {
    let (one, other) = tokio::join!(connect(), connect());
    for _ in 0..3 {
        let keyspace = fresh_keyspace_name();
        let (a, b) = tokio::join!(migrate(&one, &keyspace), migrate(&other, &keyspace));
        let applied: Vec<_> = [a, b].into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(applied.len(), FILES.len(), "{applied:?}");
        assert_eq!(applied.iter().map(|file| file.name).collect::<HashSet<_>>().len(), FILES.len());
        migrate::check(&one, &keyspace).await.unwrap();
    }
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_file_that_was_applied_as_another_text_is_refused_by_its_name() {
    let (session, keyspace) = migrated().await;
    change(&session, "UPDATE migrations SET sha256 = 'another' WHERE name = '0003_keys.cql'").await;
    for error in
        [migrate::check(&session, &keyspace).await.unwrap_err(), migrate(&session, &keyspace).await.unwrap_err()]
    {
        assert!(matches!(error, MigrateError::Changed { name: "0003_keys.cql", .. }), "{error}");
    }
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_schema_that_is_newer_is_refused_and_left_as_it_is() {
    let (session, keyspace) = migrated().await;
    change(&session, "INSERT INTO migrations (name, sha256) VALUES ('9999_later.cql', 'x')").await;
    change(&session, "DELETE FROM migrations WHERE name = '0007_windows.cql'").await;
    change(&session, "DROP TABLE windows").await;
    for error in
        [migrate::check(&session, &keyspace).await.unwrap_err(), migrate(&session, &keyspace).await.unwrap_err()]
    {
        assert!(matches!(&error, MigrateError::Newer { name, .. } if name == "9999_later.cql"), "{error}");
    }
    assert!(!tables(&session, &keyspace).await.contains(&"windows".to_owned()));
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_schema_that_is_older_is_found_so_and_brought_up_to_date() {
    let (session, keyspace) = migrated().await;
    change(&session, "DELETE FROM migrations WHERE name = '0007_windows.cql'").await;
    change(&session, "DROP TABLE windows").await;
    let older = migrate::check(&session, &keyspace).await.unwrap_err();
    assert!(matches!(older, MigrateError::Older { name: "0007_windows.cql", .. }), "{older}");
    assert_eq!(migrate(&session, &keyspace).await.unwrap(), [Applied { name: "0007_windows.cql" }]);
    assert!(tables(&session, &keyspace).await.contains(&"windows".to_owned()));
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn work_that_died_on_the_way_is_taken_up_when_its_lock_has_run_out() {
    let (session, keyspace) = migrated().await;
    // As it stands when a process has died after the first of a file's statements.
    change(&session, "DELETE FROM migrations WHERE name = '0006_queues.cql'").await;
    change(&session, "DROP TABLE due").await;
    let lock = "INSERT INTO migration_lock (name, holder) VALUES ('schema', ?) IF NOT EXISTS USING TTL 5";
    let begun = std::time::Instant::now();
    session.query_unpaged(lock, (Uuid::now_v7(),)).await.unwrap();

    assert_eq!(migrate(&session, &keyspace).await.unwrap(), [Applied { name: "0006_queues.cql" }]);
    // The cluster counts a TTL in whole seconds.
    assert!(begun.elapsed() >= std::time::Duration::from_secs(4), "the lock was not waited for");
    assert!(tables(&session, &keyspace).await.contains(&"due".to_owned()));
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn a_column_is_added_where_it_is_missing_and_left_where_it_is_there() {
    const LATER: SchemaFile = SchemaFile {
        name: "9999_later.cql",
        text: "ALTER TABLE links ADD a text;\nALTER TABLE links ADD b map<text, text>;",
    };
    let (session, keyspace) = migrated().await;
    let copies = u32::try_from(cluster(1).await.replication_factor()).unwrap();
    let files = [FILES, &[LATER]].concat();
    // As it stands when a process has died after the first statement.
    change(&session, "ALTER TABLE links ADD a text").await;
    for _ in 0..2 {
        let applied = migrate::migrate_to(&files, &session, &keyspace, copies, None).await.unwrap();
        assert_eq!(applied, [Applied { name: LATER.name }]);
        change(&session, "SELECT a, b FROM links").await;
        change(&session, "DELETE FROM migrations WHERE name = '9999_later.cql'").await;
    }
    assert_eq!(migrate(&session, &keyspace).await.unwrap(), []);
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_lock_is_given_back_at_the_end() {
    let (session, keyspace) = migrated().await;
    change(&session, "UPDATE migrations SET sha256 = 'another' WHERE name = '0003_keys.cql'").await;
    migrate(&session, &keyspace).await.unwrap_err();
    let locks = session.query_unpaged("SELECT holder FROM migration_lock", ()).await.unwrap();
    assert_eq!(locks.into_rows_result().unwrap().rows_num(), 0);
}

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn the_command_says_what_it_has_applied_and_then_that_there_is_nothing_to_do() {
    let (session, keyspace) = (connect().await, fresh_keyspace_name());
    let nodes = cluster(1).await.contact_points().join(",");
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Program::at(directory.path())
            .arguments(arguments)
            .set("SIGNPOST_STORE__KIND", "scylla")
            .set("SIGNPOST_SCYLLA__NODES", &nodes)
            .set("SIGNPOST_SCYLLA__KEYSPACE", &keyspace)
            .set("SIGNPOST_SCYLLA__REPLICATION_FACTOR", "1")
            .set("SIGNPOST_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
            // All tables are 40 changes of the schema, which other tests change too.
            .spawn()
            .wait(std::time::Duration::from_mins(1))
    };
    let refused = run(&["serve"]);
    assert!(refused.code() == Some(1) && refused.stderr.contains("run `signpost migrate`"), "{refused:?}");

    let first = run(&["migrate"]);
    assert!(first.code() == Some(0) && first.stdout.starts_with("Applied 0001_names.cql, "), "{first:?}");
    migrate::check(&session, &keyspace).await.unwrap();
    let again = run(&["migrate"]);
    assert_eq!((again.code(), again.stdout.as_str()), (Some(0), "Nothing to do.\n"), "{again:?}");
}

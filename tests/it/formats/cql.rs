//! Rows on a CQL cluster, as JSON: a line a row.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use signpost::store::Store;

use super::{sample, to_write, version_of, versions};
use crate::store::samples::node;
use crate::support::keyspaces::Keyspace;

const NAME: &str = "cql.jsonl";
/// What the migrations keep for themselves, and what is forgotten after two minutes.
const LEFT_OUT: [&str; 3] = ["migrations", "migration_lock", "windows"];

#[tokio::test]
#[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
async fn rows_of_all_versions_are_read() {
    if let Some(fixture) = to_write(NAME) {
        let keyspace = Keyspace::empty().await;
        let store: Arc<dyn Store> = Arc::new(keyspace.open_store(node(1)).await);
        sample::fill(&store).await;
        store.close().await;
        let rows = keyspace.rows().await.into_iter().filter(|(table, _)| !LEFT_OUT.contains(&table.as_str()));
        let mut lines: Vec<_> = rows
            .map(|(table, row)| json!({ "table": table, "row": serde_json::from_slice::<Value>(&row).unwrap() }))
            .map(|line| format!("{line}\n"))
            .collect();
        lines.sort();
        fs::write(fixture, lines.concat()).unwrap();
    }
    for fixture in versions(NAME) {
        let keyspace = Keyspace::empty().await;
        keyspace.migrate().await;
        let session = keyspace.session().await;
        for line in fs::read_to_string(&fixture).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let table = line["table"].as_str().unwrap();
            // A column that has nothing stays without a tombstone.
            let statement = format!("INSERT INTO {}.{table} JSON ? DEFAULT UNSET", keyspace.name);
            let row = line["row"].as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
            let row: serde_json::Map<_, _> = row.map(|(name, value)| (name.clone(), value.clone())).collect();
            session.query_unpaged(statement, (Value::Object(row).to_string(),)).await.unwrap();
        }
        let (store, version): (Arc<dyn Store>, _) =
            (Arc::new(keyspace.open_store(node(1)).await), version_of(&fixture));
        sample::check(&store, version).await;
        store.close().await;
    }
}

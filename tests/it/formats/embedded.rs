//! Directories of the embedded store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;

use super::{THIS, all, keep, restore, sample, to_write, version_of, versions};

const NAME: &str = "embedded";

fn open(directory: &Path) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::open(directory, 8 << 20).unwrap())
}

async fn filled(directory: &Path) {
    let store = open(directory);
    sample::fill(&store).await;
    store.close().await;
}

#[tokio::test]
async fn stores_of_all_versions_are_read() {
    if let Some(fixture) = to_write(NAME) {
        let directory = tempfile::tempdir().unwrap();
        filled(&directory.path().join("store")).await;
        keep(&directory.path().join("store"), &fixture);
    }
    for fixture in versions(NAME) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        restore(&fixture, &path);
        let (store, version) = (open(&path), version_of(&fixture));
        sample::check(&store, version).await;
        sample::go_on(&store, version).await;
        store.close().await;
    }
}

/// All rows, by table and key. Left out is what is another one in each store: what tells the index's file from others.
fn rows(directory: &Path) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let database = fjall::Database::builder(directory).open().unwrap();
    let mut rows = BTreeMap::new();
    for name in database.list_keyspace_names() {
        let table = database.keyspace(&name, fjall::KeyspaceCreateOptions::default).unwrap();
        for row in table.iter() {
            let (key, value) = row.into_inner().unwrap();
            rows.insert((name.to_string(), key.to_vec()), value.to_vec());
        }
    }
    rows.retain(|(table, key), _| !(table == "meta" && key == b"i"));
    rows
}

/// Whoever changes a byte of a row makes a new version of its record, and a new version of the program.
#[tokio::test]
async fn rows_are_written_as_this_version_is_known_to_write_them() {
    let directory = tempfile::tempdir().unwrap();
    let (now, kept) = (directory.path().join("now"), directory.path().join("kept"));
    filled(&now).await;
    restore(&all().join(THIS).join(NAME), &kept);
    let (now, kept) = (rows(&now), rows(&kept));
    assert!(kept.len() > 300, "{}", kept.len());
    for (key, value) in &kept {
        assert_eq!(now.get(key), Some(value), "{key:?}");
    }
    assert_eq!(now.len(), kept.len());
}

//! Files that `signpost export` wrote.

use std::fs;
use std::sync::Arc;

use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;
use signpost::transfer::{Imported, export, import};

use super::{restore, sample, to_write, versions};
use crate::store::samples::noon;

const NAME: &str = "export.jsonl";

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn exports_of_all_versions_are_imported() {
    if let Some(fixture) = to_write(NAME) {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&directory.path().join("store"), 8 << 20).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        sample::fill(&store).await;
        store.close().await;
        drop(store);
        let store = EmbeddedStore::open(&directory.path().join("store"), 8 << 20).unwrap();
        let _ = fs::remove_file(&fixture);
        export(&store, &fixture, noon()).await.unwrap();
    }
    for fixture in versions(NAME) {
        let directory = tempfile::tempdir().unwrap();
        let imported = EmbeddedStore::open(&directory.path().join("imported"), 8 << 20).unwrap();
        assert!(matches!(import(&imported, &fixture).await.unwrap(), Imported::Now(_)));
        // The store of the same version gives what the import took.
        let kept = directory.path().join("kept");
        restore(&fixture.with_file_name("embedded"), &kept);
        let kept = EmbeddedStore::open(&kept, 8 << 20).unwrap();
        let (of_imported, of_kept) = (directory.path().join("a"), directory.path().join("b"));
        export(&imported, &of_imported, noon()).await.unwrap();
        export(&kept, &of_kept, noon()).await.unwrap();
        let (of_imported, of_kept) = [of_imported, of_kept].map(|path| fs::read_to_string(path).unwrap()).into();
        // 0.1.0 did not check the texts of countries: the import counts what is none as other.
        let of_kept = of_kept.replace("\"Country a\"", "\"(other)\"");
        // Not what tells of the file itself.
        let records = |text: &str| -> Vec<String> {
            let is_record =
                |line: &&str| !["{\"signpost_export\"", "{\"place\"", "{\"end\""].iter().any(|it| line.starts_with(it));
            lines(text).into_iter().filter(is_record).map(ToOwned::to_owned).collect()
        };
        assert!(records(&of_kept).len() > 200);
        // Too much to be shown whole.
        for (imported, kept) in records(&of_imported).iter().zip(records(&of_kept)) {
            assert_eq!(*imported, kept);
        }
        assert_eq!(records(&of_imported).len(), records(&of_kept).len());
    }
}

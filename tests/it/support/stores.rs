//! Which store a test runs on: one written once runs on each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use signpost::domain::hit::NodeId;
use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;
use tempfile::TempDir;
use uuid::Uuid;

use super::keyspaces::Keyspace;

pub use macro_rules_attribute::apply;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Embedded,
    Cql,
}

tokio::task_local! {
    static KIND: StoreKind;
}

impl StoreKind {
    /// The one that the test runs on which asks.
    pub fn of_this_test() -> Self {
        KIND.try_with(|kind| *kind).unwrap_or(Self::Embedded)
    }

    /// Runs a test on this one.
    pub async fn run(self, test: impl Future<Output = ()>) {
        KIND.scope(self, test).await;
    }
}

/// Makes two tests of one, `…::embedded` and `…::cql`: `#[apply(on_each_store)]` in the place of `#[tokio::test]`.
macro_rules! on_each_store {
    ($(#[$attribute:meta])* async fn $name:ident() $body:block) => {
        $(#[$attribute])*
        async fn $name() $body

        mod $name {
            use $crate::support::stores::StoreKind;

            #[tokio::test]
            async fn embedded() {
                StoreKind::Embedded.run(super::$name()).await;
            }

            #[tokio::test]
            #[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
            async fn cql() {
                StoreKind::Cql.run(super::$name()).await;
            }
        }
    };
}
pub(crate) use on_each_store;

/// Where a server keeps its data: a directory of its own, and on a cluster a keyspace besides.
pub struct Home {
    directory: TempDir,
    kind: StoreKind,
    keyspace: OnceLock<Keyspace>,
}

impl Home {
    /// On the store that this test runs on.
    pub fn new() -> Self {
        let kind = StoreKind::of_this_test();
        Self { directory: tempfile::tempdir().unwrap(), kind, keyspace: OnceLock::new() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    /// What tells a server to keep its data here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("SIGNPOST_DATA_DIR", self.data_dir().to_str().unwrap().to_owned())];
        if self.kind == StoreKind::Cql {
            settings.extend(self.keyspace().settings());
        }
        settings
    }

    /// Opens the store that a server has here while no server runs, as a node of its own.
    pub async fn open_store(&self) -> Arc<dyn Store> {
        match self.kind {
            StoreKind::Embedded => {
                let path = self.data_dir().join("store");
                fs::create_dir_all(&path).unwrap();
                Arc::new(EmbeddedStore::open(&path, 16 << 20).unwrap())
            }
            StoreKind::Cql => {
                let node = NodeId(Uuid::now_v7());
                Arc::new(self.keyspace().open_store(node).await)
            }
        }
    }

    /// All that is kept here, with the place where it stands: files, and rows as JSON, in which bytes are hex.
    pub async fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let (mut contents, mut folders) = (Vec::new(), vec![self.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    contents.push((path.display().to_string(), fs::read(&path).unwrap()));
                }
            }
        }
        if self.kind == StoreKind::Cql {
            contents.extend(self.keyspace().rows().await);
        }
        contents
    }

    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace.get_or_init(Keyspace::empty_blocking)
    }
}

//! Stores: the promises of the trait, which each of them keeps, and what is the embedded one's own.

mod conformance;
mod cql;
mod cql_child_keys;
mod cql_faults;
mod cql_hits;
mod cql_links;
mod cql_lists;
mod cql_once;
mod cql_queues;
mod cql_windows;
mod embedded;
mod embedded_links;
mod faulty;
mod hit_model;
mod log;
mod model;
mod reach;
pub mod samples;
mod scylla_migrate;

use std::sync::Arc;

use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tempfile::TempDir;

use conformance::Ground;

use crate::support::keyspaces::Keyspace;

/// A directory for an embedded store.
pub struct Embedded(TempDir);

impl Embedded {
    pub fn path(&self) -> std::path::PathBuf {
        self.0.path().join("store")
    }

    pub fn open_here(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.path(), 8 << 20).unwrap()
    }
}

impl Ground for Embedded {
    async fn fresh() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.open_here())
    }
}

/// A faulty store without faults in front of an embedded one: it passes everything on as it is.
pub struct BehindFaulty(Embedded);

impl Ground for BehindFaulty {
    async fn fresh() -> Self {
        Self(Embedded::fresh().await)
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(FaultyStore::new(self.0.open().await, FaultSwitch::default()))
    }
}

/// A keyspace of the tests' cluster, for the store of one node.
pub struct OnCql(Keyspace);

impl Ground for OnCql {
    async fn fresh() -> Self {
        Self(Keyspace::empty().await)
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.0.open_store(samples::node(1)).await)
    }
}

mod embedded_conformance {
    super::conformance::every_promise!(super::Embedded);
}

mod faulty_conformance {
    super::conformance::every_promise!(super::BehindFaulty);
}

mod cql_conformance {
    super::conformance::every_promise!(
        #[cfg_attr(not(cql_engine), ignore = "no CQL engine: needs Java 17 and Maven, or SIGNPOST_TEST_CQL_NODES")]
        super::OnCql
    );
}

//! Stores: the promises of the trait, which each of them keeps, and what is the embedded one's own.

mod conformance;
mod cql;
mod embedded;
mod faulty;
mod log;
mod model;
pub mod samples;
mod scylla_migrate;

use std::sync::Arc;

use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;
use signpost::store::faulty::{FaultSwitch, FaultyStore};
use tempfile::TempDir;

use conformance::Ground;

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

mod embedded_conformance {
    super::conformance::every_promise!(super::Embedded);
}

mod faulty_conformance {
    super::conformance::every_promise!(super::BehindFaulty);
}

//! Keyspaces of the tests' engine.
//!
//! An engine gets slower with each table that it has, and needs seconds to make all tables. So an engine of the tests' own
//! is given few keyspaces. On one node, each is of one test at a time, and emptied for the next. Over three nodes there is
//! one for all tests, which is not emptied: a write of an LWT that some replica has not seen yet, as where a process or a
//! node was killed, may be committed there after the table was emptied, and the next test would read a part of a row. On a
//! cluster that was there before, each test has its own, which is dropped when the test ends.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use signpost::domain::hit::NodeId;
use signpost::store::cql::ScyllaStore;
use signpost::store::cql::migrate::migrate;
use signpost::store::cql::session::{self, ScyllaSettings};

use super::cluster::{self, ANSWERED_WITHIN, Cluster, apart};

/// 32 bytes that are no secret.
const MASTER_KEY: &str = "dGhpcyBpcyBub3Qgc2VjcmV0LCBpdCBpcyBhIHRlc3Q=";
/// What the schema's own keeping needs: it is the same for all tests.
const KEPT_TABLES: [&str; 2] = ["migrations", "migration_lock"];

/// Those that tests of this process have done with.
static LEFT: Mutex<VecDeque<Keyspace>> = Mutex::new(VecDeque::new());
/// The one over three nodes, once there is one.
static SHARED: Mutex<Option<Arc<Keyspace>>> = Mutex::new(None);

/// A keyspace on a cluster, and how to get there.
#[derive(Clone, Debug)]
pub struct Place {
    pub name: String,
    pub contact_points: Vec<String>,
    pub replication_factor: usize,
}

impl Place {
    /// One that nobody has.
    pub fn fresh(cluster: &Cluster) -> Self {
        Self {
            name: cluster::fresh_keyspace_name(),
            contact_points: cluster.contact_points().to_vec(),
            replication_factor: cluster.replication_factor(),
        }
    }

    /// What tells a server to keep its data here.
    pub fn settings(&self) -> [(&'static str, String); 6] {
        [
            ("SIGNPOST_STORE__KIND", "scylla".to_owned()),
            ("SIGNPOST_SCYLLA__NODES", self.contact_points.join(",")),
            ("SIGNPOST_SCYLLA__KEYSPACE", self.name.clone()),
            ("SIGNPOST_SCYLLA__REPLICATION_FACTOR", self.replication_factor.to_string()),
            ("SIGNPOST_SCYLLA__MIGRATE_AT_START", "true".to_owned()),
            ("SIGNPOST_MASTER_KEY", MASTER_KEY.to_owned()),
        ]
    }

    /// How a store is opened here.
    pub fn store_settings(&self) -> ScyllaSettings {
        ScyllaSettings::new(self.contact_points.clone(), self.name.clone())
    }

    /// Makes the tables, if they are not there.
    pub async fn migrate(&self) {
        let session = session::connect(&self.store_settings()).await.unwrap();
        let replication_factor = self.replication_factor.try_into().unwrap();
        migrate(&session, &self.name, replication_factor, None).await.unwrap();
    }

    /// Opens the store for a node; makes its tables before, if they are not there.
    pub async fn open_store(&self, node: NodeId) -> ScyllaStore {
        self.migrate().await;
        ScyllaStore::open(&self.store_settings(), node).await.unwrap()
    }

    /// All rows as JSON, each with its table's name.
    pub async fn rows(&self) -> Vec<(String, Vec<u8>)> {
        let (session, mut all) = (self.session().await, Vec::new());
        for table in self.tables(&session).await {
            let statement = format!("SELECT JSON * FROM {}.{table}", self.name);
            let rows = session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap();
            let rows = rows.rows::<(String,)>().unwrap().map(Result::unwrap);
            all.extend(rows.map(|(row,)| (table.clone(), row.into_bytes())));
        }
        all
    }

    async fn tables(&self, session: &Session) -> Vec<String> {
        let statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let tables = session.query_unpaged(statement, (&self.name,)).await.unwrap().into_rows_result().unwrap();
        tables.rows::<(String,)>().unwrap().map(|table| table.unwrap().0).collect()
    }

    /// A connection of the test's own, in this keyspace if it is there.
    pub async fn session(&self) -> Session {
        let profile = ExecutionProfile::builder().request_timeout(Some(ANSWERED_WITHIN)).build();
        let session = SessionBuilder::new()
            .known_nodes(&self.contact_points)
            .connection_timeout(ANSWERED_WITHIN)
            .fetch_schema_metadata(false)
            .default_execution_profile_handle(profile.into_handle());
        let session = session.build().await.unwrap();
        // It may not be there yet.
        let _ = session.use_keyspace(&self.name, false).await;
        session
    }
}

/// A keyspace for tests; who migrates first makes it, if it is not there. Others may have it when this is dropped: all
/// that writes to it has to be ended before.
pub struct Keyspace {
    place: Place,
    cluster: &'static Cluster,
    /// How often each table was written to when it was last known to be empty.
    writes_when_empty: HashMap<String, i64>,
}

impl Deref for Keyspace {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Keyspace {
    /// One without rows, on one node.
    pub async fn empty() -> Self {
        tokio::task::spawn_blocking(Self::empty_blocking).await.unwrap()
    }

    /// As [`Keyspace::empty`], for tests without a runtime.
    pub fn empty_blocking() -> Self {
        let cluster = cluster::cluster_blocking(1);
        // The one that was left first: whatever was under way there has long ended.
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match left {
            Some(mut keyspace) => {
                apart(keyspace.empty_tables());
                keyspace
            }
            None => Self::fresh(cluster),
        }
    }

    /// The one over three nodes, with all tables, and with what earlier tests wrote: a test looks at what it has made itself,
    /// as the users of a cluster do. To be used in the test's turn ([`Cluster::turn`]). Blocks until the engine runs.
    pub fn shared() -> Arc<Self> {
        let cluster = cluster::cluster_blocking(3);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keyspace) = &*shared {
            return Arc::clone(keyspace);
        }
        let keyspace = Arc::new(Self::fresh(cluster));
        apart(keyspace.migrate());
        if cluster.is_own() {
            *shared = Some(Arc::clone(&keyspace));
        }
        keyspace
    }

    fn fresh(cluster: &'static Cluster) -> Self {
        Self { place: Place::fresh(cluster), cluster, writes_when_empty: HashMap::new() }
    }

    /// Empties all tables that may have been written to, though there be no row: what was removed would hide what is written
    /// with an earlier timestamp.
    async fn empty_tables(&mut self) {
        let session = self.session().await;
        let name = &self.name;
        if self.writes_when_empty.is_empty() {
            // Rows that are to be thrown away need no log; without one a table is emptied without being written first.
            // It is not there if the test came to no migration.
            let without_log = format!("ALTER KEYSPACE IF EXISTS {name} WITH durable_writes = false");
            session.query_unpaged(without_log, ()).await.unwrap();
        }
        let all_writes = self.writes(&session).await;
        for (table, writes) in &all_writes {
            if self.writes_when_empty.get(table).unwrap_or(&0) != writes {
                truncate(&session, name, table).await;
            }
        }
        self.writes_when_empty = all_writes;
    }

    /// How often each table was written to.
    async fn writes(&self, session: &Session) -> HashMap<String, i64> {
        let statement =
            "SELECT table_name, count FROM system_views.local_write_latency WHERE keyspace_name = ? ALLOW FILTERING";
        let answer = session.query_unpaged(statement, (&self.name,)).await.unwrap().into_rows_result().unwrap();
        answer.rows::<(String, i64)>().unwrap().map(Result::unwrap).collect()
    }

    async fn drop_all(&self) {
        let statement = format!("DROP KEYSPACE IF EXISTS {}", self.name);
        self.session().await.query_unpaged(statement, ()).await.unwrap();
    }
}

async fn truncate(session: &Session, keyspace: &str, table: &str) {
    if !KEPT_TABLES.contains(&table) {
        session.query_unpaged(format!("TRUNCATE {keyspace}.{table}"), ()).await.unwrap();
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if !self.cluster.is_own() {
            apart(self.drop_all());
        } else if !std::thread::panicking() {
            // Not that of a test that failed: who knows what still writes to it.
            let (place, writes_when_empty) = (self.place.clone(), std::mem::take(&mut self.writes_when_empty));
            let keyspace = Self { place, cluster: self.cluster, writes_when_empty };
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push_back(keyspace);
        }
    }
}

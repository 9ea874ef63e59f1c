//! The store on a cluster, as the settings describe it.

use scylla::client::session::Session;
use scylla::frame::types::{Consistency, SerialConsistency};

use super::StartError;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::domain::hit::NodeId;
use crate::store::cql::ScyllaStore;
use crate::store::cql::migrate::{self, Applied};
use crate::store::cql::session::{self, Credentials, ScyllaSettings, Tls};
use crate::store::cql::transfer::ScyllaTransfer;

/// A connection to the cluster. The schema is not changed yet.
pub struct ClusterConnection<'a> {
    config: &'a Config,
    session: Session,
}

/// Connects to the cluster. The schema may be missing or of another version.
pub async fn reach(config: &Config) -> Result<ClusterConnection<'_>, StartError> {
    Ok(ClusterConnection { config, session: session::connect(&settings(config)).await? })
}

impl ClusterConnection<'_> {
    /// The value stored under a name. `None` also if the schema is missing.
    pub async fn stored(&self, name: &str) -> Result<Option<Vec<u8>>, StartError> {
        Ok(migrate::kept(&self.session, &self.config.scylla.keyspace, name).await?)
    }

    /// Applies the missing parts of the schema.
    pub async fn migrate(&self) -> Result<Vec<Applied>, StartError> {
        let cluster = &self.config.scylla;
        let datacenter = cluster.datacenter.as_deref();
        Ok(migrate::migrate(&self.session, &cluster.keyspace, cluster.replication_factor, datacenter).await?)
    }

    /// Opens the store for a node, once its schema is up to date.
    pub async fn open(self, node: NodeId, clock: &Clock) -> Result<ScyllaStore, StartError> {
        let settings = ScyllaSettings { clock: clock.clone(), ..self.prepared().await? };
        Ok(ScyllaStore::open(&settings, node).await?)
    }

    /// Opens the tables for an export or an import.
    pub async fn open_transfer(self) -> Result<ScyllaTransfer, StartError> {
        Ok(ScyllaTransfer::open(&self.prepared().await?).await?)
    }

    /// Checks that the schema is up to date. With `scylla.migrate_at_start` it is migrated first.
    async fn prepared(self) -> Result<ScyllaSettings, StartError> {
        let cluster = &self.config.scylla;
        if cluster.migrate_at_start {
            for file in self.migrate().await? {
                tracing::info!(file = file.name, "applied a schema file");
            }
        } else {
            migrate::check(&self.session, &cluster.keyspace).await?;
        }
        Ok(settings(self.config))
    }
}

fn settings(config: &Config) -> ScyllaSettings {
    let cluster = &config.scylla;
    let password = config.secrets.scylla_password.as_ref();
    let login = cluster.username.as_ref().zip(password);
    ScyllaSettings {
        nodes: cluster.nodes.iter().map(ToString::to_string).collect(),
        keyspace: cluster.keyspace.clone(),
        datacenter: cluster.datacenter.clone(),
        consistency: match cluster.consistency {
            config::Consistency::LocalQuorum => Consistency::LocalQuorum,
            config::Consistency::Quorum => Consistency::Quorum,
            config::Consistency::All => Consistency::All,
        },
        serial_consistency: match cluster.serial_consistency {
            config::SerialConsistency::LocalSerial => SerialConsistency::LocalSerial,
            config::SerialConsistency::Serial => SerialConsistency::Serial,
        },
        request_timeout: cluster.request_timeout,
        speculative_after: cluster.speculative_after,
        credentials: login.map(|(username, password)| Credentials {
            username: username.clone(),
            password: password.expose().to_owned(),
        }),
        tls: cluster.tls.then(|| cluster.tls_ca.clone().map_or(Tls::SystemRoots, Tls::Authority)),
        sheet_days: config.analytics.sheet_days,
        clock: Clock::system(),
    }
}

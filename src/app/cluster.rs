//! The cluster, as the settings name it.

use scylla::frame::types::{Consistency, SerialConsistency};

use super::StartError;
use crate::config::{self, Config};
use crate::domain::hit::NodeId;
use crate::store::cql::ScyllaStore;
use crate::store::cql::migrate::{self, Applied};
use crate::store::cql::session::{self, Credentials, ScyllaSettings, Tls};
use crate::store::cql::transfer::ScyllaTransfer;

/// Applies what is missing of the schema.
pub async fn migrate(config: &Config) -> Result<Vec<Applied>, StartError> {
    let cluster = &config.scylla;
    let session = session::connect(&settings(config)).await?;
    let datacenter = cluster.datacenter.as_deref();
    Ok(migrate::migrate(&session, &cluster.keyspace, cluster.replication_factor, datacenter).await?)
}

/// Opens the store for a node, once its schema is up to date.
pub async fn open(config: &Config, node: NodeId) -> Result<ScyllaStore, StartError> {
    prepare(config).await?;
    Ok(ScyllaStore::open(&settings(config), node).await?)
}

/// Opens the tables for whoever carries all of them.
pub async fn open_transfer(config: &Config) -> Result<ScyllaTransfer, StartError> {
    prepare(config).await?;
    Ok(ScyllaTransfer::open(&settings(config)).await?)
}

/// Makes sure that the schema is up to date.
async fn prepare(config: &Config) -> Result<(), StartError> {
    if config.scylla.migrate_at_start {
        for file in migrate(config).await? {
            tracing::info!(file = file.name, "changed the schema");
        }
    } else {
        let session = session::connect(&settings(config)).await?;
        migrate::check(&session, &config.scylla.keyspace).await?;
    }
    Ok(())
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
    }
}

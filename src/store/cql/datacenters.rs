//! Whether reads see all that was written, in a cluster of several datacenters.

use std::collections::HashMap;

use scylla::frame::types::{Consistency, SerialConsistency};

use super::outcome::CqlError;
use super::session::Cql;

impl Cql {
    /// Whether reads see all that was written before on any node: a majority of one datacenter is not enough if LWTs are
    /// settled by several.
    pub async fn sees_all_writes(&self) -> Result<bool, CqlError> {
        let is_of_one = self.settings.consistency == Consistency::LocalQuorum;
        Ok(!is_of_one
            || self.settings.serial_consistency == SerialConsistency::LocalSerial
            || self.datacenters().await? <= 1)
    }

    /// How many datacenters have the keyspace's rows.
    async fn datacenters(&self) -> Result<usize, CqlError> {
        let statement = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let answer = self.session().query_unpaged(statement, (&self.settings.keyspace,)).await;
        let answer = answer.map_err(|error| CqlError::of(&error, false).of_read())?;
        let rows = answer.into_rows_result().map_err(|error| CqlError::Unusable(error.to_string()))?;
        let row = rows.maybe_first_row::<(HashMap<String, String>,)>();
        let (replication,) = row.map_err(|error| CqlError::Unusable(error.to_string()))?.unwrap_or_default();
        // The others are the class, and the factor of a strategy that does not know datacenters.
        let is_datacenter = |option: &String| option != "class" && option != "replication_factor";
        Ok(replication.keys().filter(|option| is_datacenter(option)).count())
    }
}

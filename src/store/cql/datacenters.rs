//! Whether reads see all that was written, in a cluster of several datacenters.

use std::collections::HashMap;

use scylla::frame::types::{Consistency, SerialConsistency};
use thiserror::Error;

use super::outcome::CqlError;
use super::session::Cql;

/// Why the settings do not fit a keyspace in several datacenters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DatacenterFault {
    #[error(
        "with scylla.serial_consistency = \"SERIAL\", a keyspace in several datacenters needs scylla.consistency = \"QUORUM\": \
         else nodes do not see each other's changes of links"
    )]
    Consistency,
    #[error(
        "a keyspace in several datacenters needs scylla.datacenter, or scylla.consistency = \"QUORUM\" and \
         scylla.serial_consistency = \"SERIAL\": else each datacenter decides on quotas and names by itself"
    )]
    NotNamed,
}

/// A majority of one datacenter is not enough for reads if LWTs are settled by several. And a level is local to the node that is asked:
/// where the driver asks nodes of any datacenter, two LWTs of one row would be settled by different ones.
fn fault_of(consistency: Consistency, serial: SerialConsistency, is_named: bool) -> Option<DatacenterFault> {
    match (consistency, serial) {
        (Consistency::LocalQuorum, SerialConsistency::Serial) => Some(DatacenterFault::Consistency),
        (Consistency::LocalQuorum, _) | (_, SerialConsistency::LocalSerial) if !is_named => {
            Some(DatacenterFault::NotNamed)
        }
        _ => None,
    }
}

impl Cql {
    /// Whether reads see all that was written before on any node.
    pub async fn datacenter_fault(&self) -> Result<Option<DatacenterFault>, CqlError> {
        let settings = &self.settings;
        let fault = fault_of(settings.consistency, settings.serial_consistency, settings.datacenter.is_some());
        Ok(if fault.is_some() && self.datacenters().await? > 1 { fault } else { None })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_levels_need_one_datacenter_that_is_named() {
        use Consistency::{All, LocalQuorum, Quorum};
        for (consistency, serial, unnamed, named) in [
            (LocalQuorum, SerialConsistency::LocalSerial, Some(DatacenterFault::NotNamed), None),
            (
                LocalQuorum,
                SerialConsistency::Serial,
                Some(DatacenterFault::Consistency),
                Some(DatacenterFault::Consistency),
            ),
            (Quorum, SerialConsistency::LocalSerial, Some(DatacenterFault::NotNamed), None),
            (Quorum, SerialConsistency::Serial, None, None),
            (All, SerialConsistency::Serial, None, None),
        ] {
            let faults = [false, true].map(|is_named| fault_of(consistency, serial, is_named));
            assert_eq!(faults, [unnamed, named], "{consistency:?} {serial:?}");
        }
    }
}

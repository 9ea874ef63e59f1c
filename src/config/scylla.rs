//! `[scylla]`: the cluster, where the store is one.

use std::{
    fmt,
    net::Ipv6Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{error::SettingError, layers::Settings, secrets::Secrets};

/// The port on which CQL is spoken where a node names no other.
const CQL_PORT: u16 = 9042;

/// Longest name of a keyspace that clusters allow.
const LONGEST_KEYSPACE: usize = 48;

/// How the cluster is reached and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scylla {
    /// Nodes to begin with; they name the others. Not empty where the store is a cluster.
    pub nodes: Vec<CqlNode>,
    /// The keyspace of all tables: a letter, then letters, digits and underscores, all small.
    pub keyspace: String,
    /// The nearest datacenter; none: that of the node which is reached first.
    pub datacenter: Option<String>,
    /// Copies of each row in the datacenter, for a keyspace that is yet to be made.
    pub replication_factor: u32,
    /// How many copies answer a read or take a write.
    pub consistency: Consistency,
    /// Among which copies a conditional write is settled.
    pub serial_consistency: SerialConsistency,
    /// Longest time for one request to the cluster.
    pub request_timeout: Duration,
    /// How long a read waits before another replica is asked too; shorter than the request's time.
    pub speculative_after: Duration,
    /// Who logs in, with the password in [`Secrets::scylla_password`]; none: nobody does.
    pub username: Option<String>,
    /// Whether connections are encrypted, and nodes prove who they are.
    pub tls: bool,
    /// A PEM file with the authorities that vouch for the nodes; none: those of the system.
    pub tls_ca: Option<PathBuf>,
    /// Whether the schema is brought up to date at every start.
    pub migrate_at_start: bool,
}

/// One node of the cluster: a name or an address, and a port. Displayed as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqlNode {
    /// A host's name or an address, an IPv6 one without brackets.
    pub host: String,
    /// Where it speaks CQL.
    pub port: u16,
}

/// How many copies of a row answer a read or take a write: only those with which every read sees every write before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Most of those in the nearest datacenter.
    LocalQuorum,
    /// Most of those in all datacenters together.
    Quorum,
    /// Every one.
    All,
}

/// Among which copies a conditional write is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SerialConsistency {
    /// Those in the nearest datacenter.
    LocalSerial,
    /// Those in all datacenters.
    Serial,
}

impl Scylla {
    /// `directory` is what a relative path starts from.
    pub(super) fn read(settings: &mut Settings, directory: &Path) -> Result<Self, SettingError> {
        let consistencies =
            [("LOCAL_QUORUM", Consistency::LocalQuorum), ("QUORUM", Consistency::Quorum), ("ALL", Consistency::All)];
        let serial = [("LOCAL_SERIAL", SerialConsistency::LocalSerial), ("SERIAL", SerialConsistency::Serial)];
        let scylla = Self {
            nodes: settings.list("scylla.nodes", "a host or host:port", CqlNode::parse)?,
            keyspace: settings.parsed("scylla.keyspace", KEYSPACE, keyspace)?,
            datacenter: settings.optional("scylla.datacenter", "a datacenter's name", plain)?,
            replication_factor: settings.integer("scylla.replication_factor", 1..=100)?,
            consistency: settings.choice("scylla.consistency", &consistencies)?,
            serial_consistency: settings.choice("scylla.serial_consistency", &serial)?,
            request_timeout: settings
                .duration("scylla.request_timeout", Duration::from_millis(100)..=Duration::from_mins(1))?,
            speculative_after: settings
                .duration("scylla.speculative_after", Duration::from_millis(1)..=Duration::from_secs(10))?,
            username: settings.optional("scylla.username", "a user's name", plain)?,
            tls: settings.boolean("scylla.tls")?,
            tls_ca: settings.optional("scylla.tls_ca", "a file that is there", |text| {
                let is_file = directory.join(text).is_file();
                is_file.then(|| PathBuf::from(text))
            })?,
            migrate_at_start: settings.boolean("scylla.migrate_at_start")?,
        };
        scylla.check(settings)?;
        Ok(scylla)
    }

    /// What holds whether the store is a cluster or not.
    fn check(&self, settings: &Settings) -> Result<(), SettingError> {
        if self.speculative_after >= self.request_timeout {
            let message = "another replica is to be asked (scylla.speculative_after) before the request's time is over \
                           (scylla.request_timeout)";
            return Err(settings.conflict(&["scylla.speculative_after", "scylla.request_timeout"], message));
        }
        // Whoever names authorities believes that the connection is encrypted.
        if self.tls_ca.is_some() && !self.tls {
            let message = "scylla.tls_ca is of no use while scylla.tls is false";
            return Err(settings.conflict(&["scylla.tls_ca", "scylla.tls"], message));
        }
        Ok(())
    }

    /// A user without a password can't log in, nor a password without a user.
    pub(super) fn check_login(&self, settings: &Settings, secrets: &Secrets) -> Result<(), SettingError> {
        let message = match (&self.username, &secrets.scylla_password) {
            (Some(_), None) => "has no password: SIGNPOST_SCYLLA_PASSWORD is not set",
            (None, Some(_)) => "is empty, but SIGNPOST_SCYLLA_PASSWORD is set",
            _ => return Ok(()),
        };
        Err(settings.conflict(&["scylla.username"], message))
    }

    /// What a store on a cluster can't do without.
    pub(super) fn check_in_use(&self, settings: &Settings, secrets: &Secrets) -> Result<(), SettingError> {
        if self.nodes.is_empty() {
            return Err(settings.conflict(&["scylla.nodes"], "is empty, but store.kind is \"scylla\""));
        }
        // One made for this machine alone would make secrets that no other node can read.
        if secrets.master_key.is_none() {
            let message = "\"scylla\" needs SIGNPOST_MASTER_KEY, the same on all nodes, which is not set";
            return Err(settings.conflict(&["store.kind"], message));
        }
        Ok(())
    }
}

impl CqlNode {
    /// Reads `host`, `host:port`, and IPv6 addresses with or without brackets (with them where a port follows).
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            address.parse::<Ipv6Addr>().ok()?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (address, port)
        } else {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if host.is_empty() || !host.chars().all(is_named) {
                return None;
            }
            (host, port)
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0)?,
            None => CQL_PORT,
        };
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for CqlNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

const KEYSPACE: &str = "a keyspace's name: a small letter, then at most 47 small letters, digits and underscores";

/// One that needs no quotes in CQL, and is not one of the cluster's own.
fn keyspace(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = text.len() <= LONGEST_KEYSPACE
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(is_plain)
        && !text.starts_with("system");
    is_name.then(|| text.to_owned())
}

fn plain(text: &str) -> Option<String> {
    (!text.contains(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_with_its_port_or_the_usual_one() {
        for (text, node) in [
            ("10.0.0.1", "10.0.0.1:9042"),
            ("10.0.0.1:9142", "10.0.0.1:9142"),
            ("db_1.internal", "db_1.internal:9042"),
            ("db-1:19042", "db-1:19042"),
            ("::1", "[::1]:9042"),
            ("[::1]", "[::1]:9042"),
            ("[fd00::7]:9142", "[fd00::7]:9142"),
        ] {
            assert_eq!(CqlNode::parse(text).expect(text).to_string(), node);
        }
    }

    #[test]
    fn what_is_no_node_is_refused() {
        for text in
            ["", ":9042", "db:", "db:0", "db:65536", "db:x", "a b", "cql://db", "u@db", "[db]:1", "[::1]9042", "a,b"]
        {
            assert_eq!(CqlNode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_keyspace_needs_no_quotes_and_is_not_the_clusters_own() {
        let longest = "k".repeat(LONGEST_KEYSPACE);
        for text in ["signpost", "s", "signpost_2", &longest] {
            assert_eq!(keyspace(text).as_deref(), Some(text));
        }
        for text in ["", "Signpost", "2signpost", "_s", "sign-post", "s\"", "system_auth", &format!("{longest}k")] {
            assert_eq!(keyspace(text), None, "{text}");
        }
    }
}

//! `[scylla]`: settings of the cluster, if the store is on one.

use std::{
    fmt,
    net::Ipv6Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{error::SettingError, layers::LayeredSettings, secrets::Secrets};

/// The default port of CQL.
const CQL_PORT: u16 = 9042;

/// The longest name of a keyspace that clusters allow.
const LONGEST_KEYSPACE: usize = 48;

/// How to reach and use the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScyllaConfig {
    /// Contact points, which name the other nodes. Not empty if the store is on a cluster.
    pub nodes: Vec<CqlNode>,
    /// The keyspace of all tables: a lowercase letter, then lowercase letters, digits and underscores.
    pub keyspace: String,
    /// The datacenter whose nodes are used. `None`: the nodes of all datacenters.
    pub datacenter: Option<String>,
    /// Copies of each row in the datacenter, used when the keyspace is created.
    pub replication_factor: u32,
    /// Consistency level of reads and writes.
    pub consistency: Consistency,
    /// Consistency level of conditional writes (Paxos).
    pub serial_consistency: SerialConsistency,
    /// Time limit of one request to the cluster.
    pub request_timeout: Duration,
    /// How long a read waits before another replica is asked too; shorter than `request_timeout`.
    pub speculative_after: Duration,
    /// The user name. The password is [`Secrets::scylla_password`]. `None`: no authentication.
    pub username: Option<String>,
    /// Whether connections use TLS and certificates of nodes are checked.
    pub tls: bool,
    /// A PEM file with the certificate authorities of the nodes. `None`: the system's.
    pub tls_ca: Option<PathBuf>,
    /// Whether each start migrates the schema.
    pub migrate_at_start: bool,
}

/// A node of the cluster: a host name or address, and a port. Displayed as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqlNode {
    /// A host name or an address. An IPv6 address has no brackets.
    pub host: String,
    /// The port of CQL.
    pub port: u16,
}

/// Consistency levels of reads and writes: only levels with which every read sees every earlier write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// A majority in the nearest datacenter.
    LocalQuorum,
    /// A majority in all datacenters together.
    Quorum,
    /// All replicas.
    All,
}

/// Consistency levels of conditional writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SerialConsistency {
    /// Replicas in the nearest datacenter.
    LocalSerial,
    /// Replicas in all datacenters.
    Serial,
}

impl ScyllaConfig {
    /// Relative paths start from `directory`.
    pub(super) fn read(settings: &mut LayeredSettings, directory: &Path) -> Result<Self, SettingError> {
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
            tls_ca: settings.optional("scylla.tls_ca", "an existing file", |text| {
                let is_file = directory.join(text).is_file();
                is_file.then(|| PathBuf::from(text))
            })?,
            migrate_at_start: settings.boolean("scylla.migrate_at_start")?,
        };
        scylla.check(settings)?;
        Ok(scylla)
    }

    /// Checks that apply to both kinds of stores.
    fn check(&self, settings: &LayeredSettings) -> Result<(), SettingError> {
        if self.speculative_after >= self.request_timeout {
            let message = "scylla.speculative_after must be less than scylla.request_timeout";
            return Err(settings.conflict(&["scylla.speculative_after", "scylla.request_timeout"], message));
        }
        // An operator who sets authorities expects an encrypted connection.
        if self.tls_ca.is_some() && !self.tls {
            let message = "scylla.tls_ca has no effect if scylla.tls is false";
            return Err(settings.conflict(&["scylla.tls_ca", "scylla.tls"], message));
        }
        Ok(())
    }

    /// Authentication needs both a user and a password.
    pub(super) fn check_login(&self, settings: &LayeredSettings, secrets: &Secrets) -> Result<(), SettingError> {
        let message = match (&self.username, &secrets.scylla_password) {
            (Some(_), None) => "has no password: SIGNPOST_SCYLLA_PASSWORD is not set",
            (None, Some(_)) => "is empty, but SIGNPOST_SCYLLA_PASSWORD is set",
            _ => return Ok(()),
        };
        Err(settings.conflict(&["scylla.username"], message))
    }

    /// Checks what a store on a cluster requires.
    pub(super) fn check_in_use(&self, settings: &LayeredSettings, secrets: &Secrets) -> Result<(), SettingError> {
        if self.nodes.is_empty() {
            return Err(settings.conflict(&["scylla.nodes"], "is empty, but store.kind is \"scylla\""));
        }
        // A key that is generated on this node would encrypt secrets that no other node can decrypt.
        if secrets.master_key.is_none() {
            let message = "\"scylla\" needs SIGNPOST_MASTER_KEY, the same on all nodes, which is not set";
            return Err(settings.conflict(&["store.kind"], message));
        }
        Ok(())
    }
}

impl CqlNode {
    /// Parses `host`, `host:port`, and IPv6 addresses with or without brackets (with brackets if a port follows).
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

const KEYSPACE: &str = "a keyspace's name: a lowercase letter, then at most 47 lowercase letters, digits and underscores, not beginning with system";

/// A name that needs no quotes in CQL and is not a system keyspace.
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
    fn an_invalid_node_is_refused() {
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

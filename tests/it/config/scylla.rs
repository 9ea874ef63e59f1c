//! The settings of a cluster: what it needs, and where its password stands.

use super::{Directory, MASTER_KEY, PASSWORD, refusal, with_environment, with_file};
use signpost::config::{Config, StoreKind};

const KIND: (&str, &str) = ("SIGNPOST_STORE__KIND", "scylla");
const NODES: (&str, &str) = ("SIGNPOST_SCYLLA__NODES", "db-1, 10.0.0.2:9142, [fd00::3]:9242, ::1");
const MASTER: (&str, &str) = ("SIGNPOST_MASTER_KEY", MASTER_KEY);
const SECRET: (&str, &str) = ("SIGNPOST_SCYLLA_PASSWORD", PASSWORD);

fn nodes(config: &Config) -> Vec<String> {
    config.scylla.nodes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_cluster_needs_nodes_and_a_master_key() {
    let config = with_environment(&[KIND, NODES, MASTER]).expect("valid");
    assert_eq!(config.store.kind, StoreKind::Scylla);
    assert_eq!(nodes(&config), ["db-1:9042", "10.0.0.2:9142", "[fd00::3]:9242", "[::1]:9042"]);

    let line = refusal(with_environment(&[KIND, MASTER]));
    assert_eq!(line, "scylla.nodes: is empty, but store.kind is \"scylla\" (default)");
    let line = refusal(with_environment(&[KIND, NODES]));
    let expected = "store.kind: \"scylla\" needs SIGNPOST_MASTER_KEY, the same on all nodes, which is not set \
                    (from environment SIGNPOST_STORE__KIND)";
    assert_eq!(line, expected);
}

#[test]
fn a_user_and_a_password_go_together() {
    let user = ("SIGNPOST_SCYLLA__USERNAME", "signpost");
    let config = with_environment(&[user, SECRET]).expect("valid");
    assert_eq!(config.scylla.username.as_deref(), Some("signpost"));
    let line = refusal(with_environment(&[SECRET]));
    assert_eq!(line, "scylla.username: is empty, but SIGNPOST_SCYLLA_PASSWORD is set (default)");
}

#[test]
fn a_password_is_taken_from_nowhere_else() {
    let line = refusal(with_file(&format!("[scylla]\npassword = \"{PASSWORD}\"\n")));
    let expected = "scylla.password: is a secret, taken from the environment only (SIGNPOST_SCYLLA_PASSWORD) \
                    (in ./signpost.toml, line 2)";
    assert_eq!(line, expected);
    let line = refusal(with_environment(&[("SIGNPOST_SCYLLA__PASSWORD", PASSWORD)]));
    let expected = "scylla.password: unknown setting (from environment SIGNPOST_SCYLLA__PASSWORD); \
                    did you mean SIGNPOST_SCYLLA_PASSWORD?";
    assert_eq!(line, expected);
}

#[test]
fn authorities_are_refused_where_nothing_is_encrypted() {
    let directory = Directory::with("ca.pem", "");
    let authorities = ("SIGNPOST_SCYLLA__TLS_CA", "ca.pem");
    assert!(directory.load(None, &[authorities, ("SIGNPOST_SCYLLA__TLS", "true")]).is_ok());
    let line = refusal(directory.load(None, &[authorities]));
    assert!(line.starts_with("scylla.tls_ca: scylla.tls_ca has no effect if scylla.tls is false"), "{line}");
}

//! TLS of outgoing connections.

use rustls::{ClientConfig, RootCertStore};

/// The system's certificate authorities.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// As [`system_roots`], or Mozilla's certificate authorities if the system has none. For public servers.
pub fn web_roots() -> RootCertStore {
    let mut roots = system_roots();
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// TLS that trusts `roots`, and shows no certificate of its own.
///
/// # Errors
/// When there is nothing in common with any server.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

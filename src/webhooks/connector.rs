//! Connects to the receivers of webhooks: looks names up, checks every address, and makes TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::dns::Resolver;
use crate::domain::guard::AddressGuard;
use crate::tls;

/// A connection to a receiver, with TLS or without.
pub type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections. The addresses of a name are tried one after another within each family, and the second family begins 0.3 s after
/// the first one.
pub type Connector = HttpsConnector<HttpConnector<GuardedResolver>>;

/// A connector with TLS 1.2 and 1.3. It trusts the system's certificate authorities, or Mozilla's if the system has
/// none (as in a bare container), and `extra_roots`. The addresses of a family share `timeout`, so that one that never answers leaves time for
/// the others.
pub fn connector(
    lookup: Arc<dyn Lookup>,
    guard: Arc<AddressGuard>,
    extra_roots: Vec<CertificateDer<'static>>,
    timeout: Duration,
) -> Result<Connector, rustls::Error> {
    let mut roots = tls::web_roots();
    for root in extra_roots {
        roots.add(root)?;
    }
    let mut tcp = HttpConnector::new_with_resolver(GuardedResolver { lookup, guard });
    // A request is one write, so waiting for more of it only delays it.
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    // It divides this by the number of addresses.
    tcp.set_connect_timeout(Some(timeout));
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls::client_config(roots)?);
    Ok(builder.https_or_http().enable_http1().wrap_connector(tcp))
}

/// The addresses of a host.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Finds the addresses of a host name. An abandoned attempt drops the future, which must end the look-up.
pub trait Lookup: Send + Sync {
    fn lookup(&self, host: &str) -> LookupFuture;
}

impl Lookup for Resolver {
    fn lookup(&self, host: &str) -> LookupFuture {
        let (resolver, host) = (self.clone(), host.to_owned());
        Box::pin(async move { resolver.look_up(&host).await.map_err(io::Error::other) })
    }
}

/// Why a host name has no address to connect to.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("can't look the host name up")]
    Lookup(#[from] io::Error),
    #[error("the host name has no address")]
    NoAddress,
    #[error("the host name has no permitted address")]
    Blocked,
}

/// Returns only the addresses that the guard permits. The connector calls it at every connection and has no other
/// source, so a response that changes in between (DNS rebinding) is checked again.
#[derive(Clone)]
pub struct GuardedResolver {
    lookup: Arc<dyn Lookup>,
    guard: Arc<AddressGuard>,
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.lookup.lookup(name.as_str());
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let permitted = permitted(lookup.await, &guard)?;
            // The connector replaces port 0 by the port of the URL.
            let addresses: Vec<_> = permitted.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(addresses.into_iter())
        })
    }
}

fn permitted(found: io::Result<Vec<IpAddr>>, guard: &AddressGuard) -> Result<Vec<IpAddr>, ResolveError> {
    let mut addresses = found?;
    if addresses.is_empty() {
        return Err(ResolveError::NoAddress);
    }
    addresses.retain(|&address| guard.permits(address));
    if addresses.is_empty() {
        return Err(ResolveError::Blocked);
    }
    Ok(addresses)
}

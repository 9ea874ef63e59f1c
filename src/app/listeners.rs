//! The listeners: bound before anything else, then served.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::{App as Router, web};

use super::{StartError, meters, refused};
use crate::config::Config;
use crate::domain::link::BaseUrl;
use crate::http::edge::service::EdgeFactory;
use crate::http::{Api, admin, endpoints, routes, server};
use crate::readiness::Readiness;
use crate::telemetry::metrics::Metrics;

/// The longest queue of connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// The send buffer of a connection: at most this much of an answer waits for the client, and as much again for the
/// kernel's own use.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// How long actix waits for requests to end at a shutdown, in seconds.
const SHUTDOWN_SECONDS: u64 = 10;

/// The bound sockets, and the addresses that follow from them.
pub struct Listeners {
    pub public: TcpListener,
    pub admin: TcpListener,
    pub address: SocketAddr,
    pub admin_address: SocketAddr,
    pub base_url: BaseUrl,
}

impl Listeners {
    /// Binds both sockets.
    ///
    /// # Errors
    /// If an address can't be bound.
    pub fn bind(config: &Config) -> Result<Self, StartError> {
        let public = bind(config, "http.listen", config.http.listen)?;
        let admin = bind(config, "admin.listen", config.admin.listen)?;
        let (address, admin_address) = (local_address(&public)?, local_address(&admin)?);
        let base_url = BaseUrl::new(config.http.base_url_at(address).as_url().clone());
        Ok(Self { public, admin, address, admin_address, base_url })
    }
}

/// The operator's listener, and what it shows.
pub struct OperatorServer {
    pub metrics: Arc<Metrics>,
    pub readiness: Readiness,
    pub server: admin::AdminServer,
}

impl OperatorServer {
    /// Starts to answer on the socket: alive, and not ready.
    ///
    /// # Errors
    /// If the server can't be started.
    pub async fn start(socket: TcpListener) -> Result<Self, StartError> {
        let address = local_address(&socket)?;
        let metrics = Arc::new(Metrics::new(
            routes::PATTERNS.iter().copied(),
            routes::REDIRECT,
            endpoints::client_limits().map(|(_, limit)| limit.name),
        ));
        let readiness = Readiness::default();
        meters::show_readiness(&metrics, &readiness);
        let server = admin::serve(socket, readiness.clone(), Arc::clone(&metrics)).await;
        let server = server.map_err(|source| StartError::Bind { address, source })?;
        Ok(Self { metrics, readiness, server })
    }
}

/// Serves requests on the public socket. In a drain a connection may stay idle for `drain_idle_timeout`.
pub fn serve_public(
    config: &Config,
    socket: TcpListener,
    api: Arc<Api>,
    drain_idle_timeout: Duration,
) -> Result<Server, StartError> {
    let address = config.http.listen;
    let workers =
        config.http.workers.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let settings = server::Settings {
        workers: workers.min(server::MAX_WORKERS),
        max_connections: config.http.max_connections,
        keep_alive: Some(config.http.keep_alive).filter(|time| !time.is_zero()),
        head_timeout: config.http.request_timeout,
        send_timeout: config.http.send_timeout,
        disconnect_timeout: Duration::from_secs(1),
        drain_idle_timeout,
        shutdown_seconds: SHUTDOWN_SECONDS,
    };
    let server = server::serve(socket, settings, Arc::clone(&api), move || {
        let router = Router::new().app_data(web::Data::from(Arc::clone(&api))).configure(routes::configure);
        EdgeFactory::new(Arc::clone(&api), router)
    });
    server.map_err(|source| StartError::Bind { address, source })
}

fn bind(config: &Config, setting: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    };
    let listener = socket.and_then(|socket| {
        // So that a restart does not wait for the connections of the previous process.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit it. It bounds the kernel memory for a client that does not read its answer.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    });
    listener.map_err(|error| refused(config, setting, format!("can't listen on {address}: {error}")))
}

fn local_address(socket: &TcpListener) -> Result<SocketAddr, StartError> {
    socket.local_addr().map_err(StartError::Thread)
}

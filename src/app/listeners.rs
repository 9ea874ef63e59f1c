//! The listeners: bound before anything else, then served.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App as Router, web};

use super::{StartError, meters, open_files, refused};
use crate::config::Config;
use crate::domain::link::BaseUrl;
use crate::http::edge::service::EdgeFactory;
use crate::http::server::{self, PublicServer, sockets};
use crate::http::{Api, admin, endpoints, routes};
use crate::readiness::Readiness;
use crate::telemetry::metrics::Metrics;

/// How long requests may take to end at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The bound sockets, and the addresses that follow from them.
pub struct Listeners {
    /// One for each worker.
    pub public: Vec<TcpListener>,
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
        let workers =
            config.http.workers.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let (listen, admin_listen) = (config.http.listen, config.admin.listen);
        let public = sockets::bind_shared(listen, workers.min(server::MAX_WORKERS));
        let public = public.map_err(|error| cant_listen(config, "http.listen", listen, &error))?;
        let admin = sockets::bind(admin_listen);
        let admin = admin.map_err(|error| cant_listen(config, "admin.listen", admin_listen, &error))?;
        let (address, admin_address) = (local_address(&public[0])?, local_address(&admin)?);
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

/// Serves requests on the public sockets. In a drain a connection may stay idle for `drain_idle_timeout`.
///
/// # Errors
/// If a worker can't be started.
pub fn serve_public(
    config: &Config,
    sockets: Vec<TcpListener>,
    api: &Arc<Api>,
    drain_idle_timeout: Duration,
) -> Result<PublicServer, StartError> {
    let settings = server::Settings {
        max_connections: open_files::connections_of_worker(config, sockets.len(), open_files::raise_limit()),
        keep_alive: Some(config.http.keep_alive).filter(|time| !time.is_zero()),
        head_timeout: config.http.request_timeout,
        send_timeout: config.http.send_timeout,
        disconnect_timeout: Duration::from_secs(1),
        drain_idle_timeout,
        shutdown_timeout: SHUTDOWN_TIMEOUT,
    };
    let server = PublicServer::start(sockets, settings, api, {
        let api = Arc::clone(api);
        move || {
            let router = Router::new().app_data(web::Data::from(Arc::clone(&api))).configure(routes::configure);
            EdgeFactory::new(Arc::clone(&api), router)
        }
    });
    server.map_err(StartError::Thread)
}

fn cant_listen(config: &Config, setting: &'static str, address: SocketAddr, error: &io::Error) -> StartError {
    refused(config, setting, format!("can't listen on {address}: {error}"))
}

fn local_address(socket: &TcpListener) -> Result<SocketAddr, StartError> {
    socket.local_addr().map_err(StartError::Thread)
}

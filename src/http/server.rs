//! The public listener: its threads, and the way of a connection from the lane to the dispatcher.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::body::MessageBody;
use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Request, Response};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{Service, ServiceFactory, ServiceFactoryExt};
use actix_web::Error;
use futures_util::future::LocalBoxFuture;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Api;
use super::lane::{Lane, LaneWorker, Left, Patience};
use super::wire::Wire;

/// More threads than this the server refuses to start.
pub const MAX_WORKERS: usize = 512;

/// How connections are served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Threads, at most [`MAX_WORKERS`].
    pub workers: usize,
    /// Most connections at once on each of them.
    pub max_connections: usize,
    /// How long an idle connection stays open; `None`: until its first answer.
    pub keep_alive: Option<Duration>,
    /// Longest time for the head of a request.
    pub head_timeout: Duration,
    /// Longest time in which a client takes no byte of an answer.
    pub send_timeout: Duration,
    /// Longest time for a client to take note that its connection is closed.
    pub disconnect_timeout: Duration,
    /// How long connections may stay idle after the server was told to stop: time for their next request, whose answer
    /// says that it is the last.
    pub farewell: Duration,
    /// How long requests may go on after the server was told to stop, in seconds.
    pub shutdown_seconds: u64,
}

/// Serves `api` on `socket`: short links in the lane, and all else by what `routes` makes for each worker. The server runs
/// when it is awaited.
///
/// # Errors
/// When the socket can't be listened on.
pub fn serve<F, S, B>(socket: TcpListener, settings: Settings, api: Arc<Api>, routes: F) -> io::Result<Server>
where
    F: Fn() -> S + Send + Clone + 'static,
    S: ServiceFactory<Request, Config = (), Error = Error, InitError = ()> + 'static,
    S::Response: Into<Response<B>> + 'static,
    S::Future: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let address = socket.local_addr()?;
    let server = Server::build()
        .workers(settings.workers)
        .max_concurrent_connections(settings.max_connections)
        .shutdown_timeout(settings.shutdown_seconds)
        .disable_signals();
    let leave = Leave {
        signal: server.graceful_shutdown_signal(),
        has_begun: Arc::new(AtomicBool::new(false)),
        farewell: settings.farewell,
    };
    let server = server.listen("public", socket, move || {
        let dispatcher = HttpService::build()
            .graceful_shutdown_signal({
                let leave = leave.clone();
                move || leave.clone().ended()
            })
            .keep_alive(KeepAlive::from(settings.keep_alive))
            .client_request_timeout(settings.head_timeout)
            .client_disconnect_timeout(settings.disconnect_timeout)
            .local_addr(address)
            .on_connect_ext(|wire: &Wire, data| drop(data.insert(wire.handlers())))
            .h1(routes().map_err(|error: Error| error.error_response()));
        ConnectionsFactory { dispatcher, api: Arc::clone(&api), settings, leave: leave.clone() }
    })?;
    Ok(server.run())
}

/// The end of the service, as its connections see it.
#[derive(Clone)]
struct Leave {
    signal: GracefulShutdownSignal,
    has_begun: Arc<AtomicBool>,
    farewell: Duration,
}

impl Leave {
    /// Ready when the server was told to stop, and idle connections have had their time for a last request.
    async fn ended(self) {
        self.signal.notified().await;
        self.has_begun.store(true, Ordering::Relaxed);
        if !self.farewell.is_zero() {
            sleep(self.farewell).await;
        }
    }
}

/// Makes the [`Connections`] of each worker.
struct ConnectionsFactory<D> {
    dispatcher: D,
    api: Arc<Api>,
    settings: Settings,
    leave: Leave,
}

impl<D> ServiceFactory<TcpStream> for ConnectionsFactory<D>
where
    D: ServiceFactory<(Wire, Option<SocketAddr>), Config = (), Response = (), Error = DispatchError, InitError = ()>,
    D::Service: 'static,
    D::Future: 'static,
{
    type Response = ();
    type Error = DispatchError;
    type Config = ();
    type Service = Connections<D::Service>;
    type InitError = ();
    type Future = LocalBoxFuture<'static, Result<Self::Service, ()>>;

    fn new_service(&self, (): ()) -> Self::Future {
        let dispatcher = self.dispatcher.new_service(());
        let Settings { head_timeout, send_timeout, keep_alive, .. } = self.settings;
        let lanes = LaneWorker::new(Arc::clone(&self.api), Patience { head_timeout, send_timeout, keep_alive });
        // The lane tells nobody of requests.
        let has_lane = !self.api.reporting.is_on();
        let leave = self.leave.clone();
        Box::pin(async move {
            let dispatcher = Rc::new(dispatcher.await?);
            Ok(Connections { dispatcher, lanes: Rc::new(lanes), has_lane, head_timeout, send_timeout, leave })
        })
    }
}

/// Serves the connections of one worker.
struct Connections<D> {
    dispatcher: Rc<D>,
    lanes: Rc<LaneWorker>,
    has_lane: bool,
    head_timeout: Duration,
    send_timeout: Duration,
    leave: Leave,
}

impl<D> Service<TcpStream> for Connections<D>
where
    D: Service<(Wire, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
{
    type Response = ();
    type Error = DispatchError;
    type Future = LocalBoxFuture<'static, Result<(), DispatchError>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), DispatchError>> {
        self.dispatcher.poll_ready(context)
    }

    fn call(&self, mut stream: TcpStream) -> Self::Future {
        let peer = stream.peer_addr().ok();
        let (dispatcher, lanes, leave) = (Rc::clone(&self.dispatcher), Rc::clone(&self.lanes), self.leave.clone());
        let (has_lane, head_timeout, send_timeout) = (self.has_lane, self.head_timeout, self.send_timeout);
        Box::pin(async move {
            let mut already_read = Vec::new();
            if has_lane {
                let mut lane = Lane::new(stream, peer, lanes, Box::pin(leave.clone().ended()));
                match (&mut lane).await {
                    Left::Closed => return Ok(()),
                    Left::ForDispatcher(bytes) => already_read = bytes,
                }
                stream = lane.into_stream();
            }
            let wire = Wire::new(stream, &already_read, (head_timeout, send_timeout), leave.has_begun);
            // In a box of its own: most connections never need the dispatcher's room.
            Box::pin(dispatcher.call((wire, peer))).await
        })
    }
}

//! The public listener: its threads, and the way of a connection between the fast path and the dispatcher.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
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
use super::edge::shared::SharedStream;
use super::edge::stream::{ErrorRewritingStream, StreamSettings};
use super::fast_path::{FastPathConnection, FastPathWorker, Timeouts};
use super::{edge, fast_path};

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
    pub drain_idle_timeout: Duration,
    /// How long requests may go on after the server was told to stop, in seconds.
    pub shutdown_seconds: u64,
}

/// Serves `api` on `socket`: short links on the fast path, and all else by what `routes` makes for each worker. The server runs
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
    let leave = Leave { signal: server.graceful_shutdown_signal(), drain_idle_timeout: settings.drain_idle_timeout };
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
            .on_connect_ext(|stream: &SharedStream, data| drop(data.insert(stream.handlers())))
            .h1(routes().map_err(|error: Error| error.error_response()));
        ConnectionsFactory { dispatcher, api: Arc::clone(&api), settings, leave: leave.clone() }
    })?;
    Ok(server.run())
}

/// The end of the service, as its connections see it.
#[derive(Clone)]
struct Leave {
    signal: GracefulShutdownSignal,
    drain_idle_timeout: Duration,
}

impl Leave {
    /// Ready when the server was told to stop, and idle connections have had their time for a last request.
    async fn ended(self) {
        self.signal.notified().await;
        if !self.drain_idle_timeout.is_zero() {
            sleep(self.drain_idle_timeout).await;
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
    D: ServiceFactory<
            (SharedStream, Option<SocketAddr>),
            Config = (),
            Response = (),
            Error = DispatchError,
            InitError = (),
        >,
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
        let timeouts = Timeouts { head: head_timeout, send: send_timeout, keep_alive };
        let worker = FastPathWorker::new(Arc::clone(&self.api), timeouts);
        // The fast path logs and traces no requests.
        let fast_path = (!self.api.reporting.is_on()).then(|| self.api.readiness.clone());
        let stream = StreamSettings { head_timeout, send_timeout, fast_path };
        let leave = self.leave.clone();
        Box::pin(async move {
            let dispatcher = Rc::new(dispatcher.await?);
            Ok(Connections { dispatcher, worker: Rc::new(worker), stream, leave })
        })
    }
}

/// Serves the connections of one worker.
struct Connections<D> {
    dispatcher: Rc<D>,
    worker: Rc<FastPathWorker>,
    stream: StreamSettings,
    leave: Leave,
}

impl<D> Service<TcpStream> for Connections<D>
where
    D: Service<(SharedStream, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
{
    type Response = ();
    type Error = DispatchError;
    type Future = LocalBoxFuture<'static, Result<(), DispatchError>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), DispatchError>> {
        self.dispatcher.poll_ready(context)
    }

    fn call(&self, stream: TcpStream) -> Self::Future {
        let peer = stream.peer_addr().ok();
        let (dispatcher, settings) = (Rc::clone(&self.dispatcher), self.stream.clone());
        if settings.fast_path.is_none() {
            let stream = ErrorRewritingStream::new(stream, &[], settings);
            return Box::pin(async move { edge::serve(&*dispatcher, stream, peer).await.map(|_| ()) });
        }
        let worker = Rc::clone(&self.worker);
        let close_idle = Box::pin(self.leave.clone().ended());
        let mut connection = FastPathConnection::new(stream, peer, Rc::clone(&worker), close_idle);
        Box::pin(async move {
            loop {
                let unread = match (&mut connection).await {
                    fast_path::Left::Closed => return Ok(()),
                    fast_path::Left::ForDispatcher(unread) => unread,
                };
                let (stream, close_idle) = connection.into_parts();
                let stream = ErrorRewritingStream::new(stream, &unread, settings.clone());
                // In a box of its own: most connections never need the dispatcher's room.
                let (stream, unread) = match Box::pin(edge::serve(&*dispatcher, stream, peer)).await? {
                    edge::Left::Closed => return Ok(()),
                    edge::Left::ForFastPath { stream, unread } => (stream, unread),
                };
                connection =
                    FastPathConnection::new(stream, peer, Rc::clone(&worker), close_idle).back_from_dispatcher(unread);
            }
        })
    }
}

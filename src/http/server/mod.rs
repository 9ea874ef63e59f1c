//! The public listener: a thread for each worker, with a socket of its own.
//!
//! Each worker accepts its connections itself (`worker`), answers what it can at once, and hands connections to
//! another worker where it has many more than that one (`balance`). What is not answered at once goes on as a task
//! of the worker, on the fast path or behind the dispatcher (`connection`).

mod balance;
mod connection;
mod listener;
pub mod sockets;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use actix_http::body::MessageBody;
use actix_http::{HttpService, KeepAlive, Request, Response};
use actix_service::{Service, ServiceFactory, ServiceFactoryExt};
use actix_web::Error;
use tokio::sync::{mpsc as tokio_mpsc, watch};

use self::balance::{Balance, Workers};
use self::connection::Connections;
use self::worker::{WorkerMessage, WorkerThread};
use super::Api;
use super::edge::Dispatcher;
use super::edge::shared::SharedStream;
use super::edge::stream::StreamSettings;
use super::fast_path::{FastPathWorker, Timeouts};

/// The largest number of worker threads.
pub const MAX_WORKERS: usize = 512;

/// How connections are served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most connections at once on each worker.
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
    /// How long requests may go on after the server was told to stop.
    pub shutdown_timeout: Duration,
}

/// The workers, which run until they are told to stop.
pub struct PublicServer {
    workers: Workers,
    stopping: watch::Sender<bool>,
    threads: Vec<WorkerThread>,
}

impl PublicServer {
    /// Serves `api` with a worker for each of `sockets`: short links on the fast path, and all else by what `routes`
    /// makes for each worker.
    ///
    /// # Errors
    /// When a worker can't be started.
    pub fn start<F, S, B>(sockets: Vec<TcpListener>, settings: Settings, api: &Arc<Api>, routes: F) -> io::Result<Self>
    where
        F: Fn() -> S + Send + Clone + 'static,
        S: ServiceFactory<Request, Config = (), Error = Error, InitError = ()> + 'static,
        S::Response: Into<Response<B>> + 'static,
        S::Future: 'static,
        <S::Service as Service<Request>>::Future: 'static,
        B: MessageBody + 'static,
    {
        let address = sockets.first().ok_or(io::ErrorKind::InvalidInput)?.local_addr()?;
        let (stopping, stop) = watch::channel(false);
        let (senders, inboxes): (Vec<_>, Vec<_>) = sockets.iter().map(|_| tokio_mpsc::unbounded_channel()).unzip();
        let workers = Workers::new(senders, settings.max_connections);
        let (started, starting) = mpsc::channel();
        let mut server = Self { workers, stopping, threads: Vec::new() };
        for (number, (socket, inbox)) in sockets.into_iter().zip(inboxes).enumerate() {
            let (api, routes) = (Arc::clone(api), routes.clone());
            let balance = server.workers.balance_of(number);
            let drain = DrainSignal { stop: stop.clone(), drain_idle_timeout: settings.drain_idle_timeout };
            // Made in the worker's thread, where it stays.
            let make = async move || make_connections(address, settings, api, drain, balance, routes).await;
            let thread = WorkerThread::start(number, socket, inbox, settings.shutdown_timeout, make, started.clone())?;
            server.threads.push(thread);
        }
        drop(started);
        for _ in &server.threads {
            starting.recv().unwrap_or_else(|_| Err(io::Error::other("a worker ended while it started")))?;
        }
        Ok(server)
    }

    /// Accepts no more connections, and waits until those that are open have ended, or their time is over.
    ///
    /// # Errors
    /// When a worker has panicked.
    pub async fn stop(&mut self) -> io::Result<()> {
        self.stopping.send_replace(true);
        self.workers.send_all(|| WorkerMessage::Stop);
        for thread in &mut self.threads {
            thread.ended().await?;
        }
        Ok(())
    }

    /// The connections of each worker that are open now, but for those that are answered at once.
    pub fn connections(&self) -> Vec<usize> {
        self.workers.connections()
    }
}

/// Tells connections that the server stops.
#[derive(Clone)]
struct DrainSignal {
    stop: watch::Receiver<bool>,
    drain_idle_timeout: Duration,
}

impl DrainSignal {
    /// Ready when the server was told to stop, and idle connections have had their time for a last request.
    async fn idle_time_over(mut self) {
        // An error: the server is gone.
        let _ = self.stop.wait_for(|stopping| *stopping).await;
        if !self.drain_idle_timeout.is_zero() {
            tokio::time::sleep(self.drain_idle_timeout).await;
        }
    }
}

/// Makes what serves the connections of one worker.
async fn make_connections<F, S, B>(
    address: SocketAddr,
    settings: Settings,
    api: Arc<Api>,
    drain: DrainSignal,
    balance: Balance,
    routes: F,
) -> io::Result<Connections<impl Dispatcher>>
where
    F: Fn() -> S,
    S: ServiceFactory<Request, Config = (), Error = Error, InitError = ()> + 'static,
    S::Response: Into<Response<B>> + 'static,
    S::Future: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let Settings { head_timeout, send_timeout, keep_alive, disconnect_timeout, .. } = settings;
    let dispatcher = HttpService::build()
        .graceful_shutdown_signal({
            let drain = drain.clone();
            move || drain.clone().idle_time_over()
        })
        .keep_alive(KeepAlive::from(keep_alive))
        .client_request_timeout(head_timeout)
        .client_disconnect_timeout(disconnect_timeout)
        .local_addr(address)
        .on_connect_ext(|stream: &SharedStream, data| drop(data.insert(stream.handlers())))
        .h1(routes().map_err(|error: Error| error.error_response()));
    let dispatcher = dispatcher.new_service(()).await;
    let dispatcher = dispatcher.map_err(|()| io::Error::other("the routes can't be made"))?;
    // The fast path logs and traces no requests.
    let fast_path = (!api.reporting.is_on()).then(|| api.readiness.clone());
    let stream = StreamSettings { head_timeout, send_timeout, noindex: api.pages.noindex, fast_path };
    let fast_path = FastPathWorker::new(api, Timeouts { head: head_timeout, send: send_timeout, keep_alive });
    Ok(Connections::new(dispatcher, fast_path, stream, drain, balance))
}

//! Around actix's dispatcher, which serves what the fast path leaves to it: between it and the socket an
//! [`ErrorRewritingStream`], between it and the routes the [`EdgeService`](service::EdgeService).

mod bare_answer;
mod final_answer;
mod framing;
pub mod handlers;
mod head_timer;
pub mod service;
pub mod shared;
pub mod stream;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use actix_http::error::DispatchError;
use actix_service::Service;
use tokio::net::TcpStream;

use self::shared::SharedStream;
use self::stream::ErrorRewritingStream;

/// What serves requests that the fast path does not answer: actix's HTTP service.
pub trait Dispatcher:
    Service<(SharedStream, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static
{
}

impl<D> Dispatcher for D where
    D: Service<(SharedStream, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static
{
}

/// How a connection left the dispatcher.
pub enum DispatcherExit {
    Closed,
    /// It has answered all that it was given; `unread` is to be answered before what the socket still has.
    ForFastPath {
        socket: TcpStream,
        unread: Vec<u8>,
    },
}

/// The dispatcher of one connection. It stays while the fast path serves the connection: to make a new one for each API
/// request between redirects costs as much as a redirect.
pub struct DispatchedConnection<F> {
    stream: SharedStream,
    dispatcher: Pin<Box<F>>,
    /// When it last left the connection to the fast path.
    parked_at: Instant,
}

impl<F: Future<Output = Result<(), DispatchError>>> DispatchedConnection<F> {
    pub fn new<D>(dispatcher: &D, stream: ErrorRewritingStream, peer: Option<SocketAddr>) -> Self
    where
        D: Service<(SharedStream, Option<SocketAddr>), Response = (), Error = DispatchError, Future = F>,
    {
        let stream = SharedStream::new(stream);
        let dispatcher = Box::pin(dispatcher.call((stream.clone(), peer)));
        Self { stream, dispatcher, parked_at: Instant::now() }
    }

    /// Has the dispatcher serve the connection, until it is closed or the fast path can go on with it.
    ///
    /// # Errors
    /// When the dispatcher ended without closing the connection as it should.
    pub async fn serve(&mut self) -> Result<DispatcherExit, DispatchError> {
        let Self { stream, dispatcher, parked_at } = self;
        let ended = poll_fn(|context| match dispatcher.as_mut().poll(context) {
            Poll::Pending if stream.may_return() => Poll::Ready(None),
            served => served.map(Some),
        });
        if let Some(ended) = ended.await {
            poll_fn(|context| stream.poll_final_answer(context)).await;
            return ended.map(|()| DispatcherExit::Closed);
        }
        *parked_at = Instant::now();
        let parts = stream.take_socket();
        Ok(parts.map_or(DispatcherExit::Closed, |(socket, unread)| DispatcherExit::ForFastPath { socket, unread }))
    }

    /// When it last left the connection to the fast path.
    pub fn parked_at(&self) -> Instant {
        self.parked_at
    }

    /// Whether it may serve the connection again. It counts its own idle time, whatever the fast path has answered meanwhile,
    /// and closes the connection `keep_alive` after its own last answer. Until then the next head has to be there, for which
    /// the client has up to twice `head_timeout`.
    pub fn can_resume(&self, keep_alive: Option<Duration>, head_timeout: Duration) -> bool {
        keep_alive.is_some_and(|keep_alive| self.parked_at.elapsed() + 2 * head_timeout < keep_alive)
    }

    /// Gives it the socket again, and bytes that are to be answered before what the socket still has.
    pub fn resume(&self, socket: TcpStream, unread: &[u8]) {
        self.stream.put_socket(socket, unread);
    }
}

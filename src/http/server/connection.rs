//! A connection from its first byte to its end, on the fast path and behind the dispatcher.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::DrainSignal;
use super::balance::Balance;
use super::listener::Accepted;
use crate::http::edge::stream::{ErrorRewritingStream, StreamSettings};
use crate::http::edge::{DispatchedConnection, Dispatcher, DispatcherExit};
use crate::http::fast_path::{Begun, FastPathConnection, FastPathExit, FastPathWorker};
use crate::readiness::Readiness;

/// The connections of one worker, and what serves them.
pub struct Connections<D> {
    dispatcher: D,
    fast_path: Rc<FastPathWorker>,
    stream: StreamSettings,
    drain: DrainSignal,
    pub balance: Balance,
    /// Who is woken when a connection closes.
    waiting: Cell<Option<Waker>>,
}

impl<D: Dispatcher> Connections<D> {
    pub fn new(
        dispatcher: D,
        fast_path: FastPathWorker,
        stream: StreamSettings,
        drain: DrainSignal,
        balance: Balance,
    ) -> Self {
        Self { dispatcher, fast_path: Rc::new(fast_path), stream, drain, balance, waiting: Cell::new(None) }
    }

    /// Has idle connections closed when it is time for that.
    pub fn start(&self) {
        let (fast_path, drain) = (Rc::clone(&self.fast_path), self.drain.clone());
        spawn_local(async move {
            drain.idle_time_over().await;
            fast_path.end_idle();
        });
        let fast_path = Rc::clone(&self.fast_path);
        spawn_local(async move { fast_path.watch_idle().await });
    }

    /// Serves a connection that was accepted here, or has another worker serve it.
    pub fn place(self: &Rc<Self>, accepted: Accepted) {
        if let Some(accepted) = self.balance.place(accepted) {
            self.serve(accepted);
        }
    }

    /// Serves a connection that was accepted here.
    pub fn serve(self: &Rc<Self>, accepted: Accepted) {
        // Before the client has an answer: other workers then see that the place is taken, before its next connection comes.
        self.balance.opened();
        self.serve_counted(accepted);
    }

    /// Serves a connection that is counted already.
    pub fn serve_counted(self: &Rc<Self>, accepted: Accepted) {
        // Its place is free again also after a panic.
        let open = OpenConnection(Rc::clone(self));
        let Ok(begun) = self.begin(&accepted) else { return };
        let Accepted { socket, peer } = accepted;
        // An error: there is no memory for it. It is closed.
        let Ok(stream) = TcpStream::from_std(socket.into()) else { return };
        match begun {
            Some(begun) => {
                let connection = FastPathConnection::new(stream, peer, Rc::clone(&self.fast_path), begun);
                spawn_local(open.serve(connection, peer))
            }
            None => spawn_local(open.serve_by_dispatcher(stream, peer)),
        };
    }

    /// Answers what the client has sent by now. Most connections have one request, and are over then: nothing was made for
    /// them. `None` where there is no fast path.
    fn begin(&self, accepted: &Accepted) -> Result<Option<Begun>, Closed> {
        if self.stream.fast_path.is_none() {
            return Ok(None);
        }
        self.fast_path.begin(&accepted.socket, accepted.peer).map(Some).ok_or(Closed)
    }

    /// Whether a dispatcher goes on with its connection. While the process drains, it would close it at once.
    fn can_resume(&self, parked: &DispatchedConnection<D::Future>) -> bool {
        self.stream.fast_path.as_ref().is_some_and(Readiness::is_serving)
            && parked.can_resume(self.fast_path.keep_alive(), self.stream.head_timeout)
    }

    /// Wakes the task when the next connection closes.
    pub fn wake_at_next_close(&self, context: &Context<'_>) {
        self.waiting.set(Some(context.waker().clone()));
    }

    /// Ready when there are no connections.
    pub fn poll_all_closed(&self, context: &Context<'_>) -> Poll<()> {
        if self.balance.own_connections() == 0 {
            return Poll::Ready(());
        }
        self.wake_at_next_close(context);
        Poll::Pending
    }
}

/// A connection is over.
struct Closed;

/// Counts a connection as long as it is there.
struct OpenConnection<D>(Rc<Connections<D>>);

impl<D> Drop for OpenConnection<D> {
    fn drop(&mut self) {
        self.0.balance.closed();
        if let Some(waiting) = self.0.waiting.take() {
            waiting.wake();
        }
    }
}

impl<D: Dispatcher> OpenConnection<D> {
    /// On the fast path, and by the dispatcher whenever the client asks for more than short links.
    async fn serve(self, mut connection: FastPathConnection, peer: Option<SocketAddr>) {
        let Connections { dispatcher, fast_path, stream: settings, .. } = &*self.0;
        // In a box: most connections never need the dispatcher's room.
        let mut parked: Option<Box<DispatchedConnection<D::Future>>> = None;
        loop {
            let exit = poll_fn(|context| {
                // At the next event once it is of no use: a connection that goes on without it does not keep its buffers.
                parked = parked.take().filter(|parked| self.0.can_resume(parked));
                Pin::new(&mut connection).poll(context)
            });
            let FastPathExit::ForDispatcher(unread) = exit.await else { return };
            let socket = connection.into_socket();
            let mut dispatched = if let Some(parked) = parked.take() {
                parked.resume(socket, &unread);
                parked
            } else {
                let stream = ErrorRewritingStream::new(socket, &unread, settings.clone());
                Box::new(DispatchedConnection::new(dispatcher, stream, peer))
            };
            let Ok(DispatcherExit::ForFastPath { socket, unread }) = dispatched.serve().await else { return };
            let begun = Begun::behind_dispatcher(unread, dispatched.parked_at());
            connection = FastPathConnection::new(socket, peer, Rc::clone(fast_path), begun);
            parked = Some(dispatched);
        }
    }

    /// By the dispatcher alone.
    async fn serve_by_dispatcher(self, stream: TcpStream, peer: Option<SocketAddr>) {
        let Connections { dispatcher, stream: settings, .. } = &*self.0;
        let stream = ErrorRewritingStream::new(stream, &[], settings.clone());
        // An error: the client is told, or gone.
        drop(DispatchedConnection::new(dispatcher, stream, peer).serve().await);
    }
}

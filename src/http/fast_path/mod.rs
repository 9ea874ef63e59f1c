//! The fast path: where every connection begins, and where it is as long as it asks for nothing but short links.
//!
//! A redirect from cache is what the service is for. The dispatcher makes a request, a response and two timers of each, and
//! takes 1.10 times the CPU, with the kernel's ([docs/performance.md](../../../docs/performance.md)). Here a request is read into
//! the worker's one buffer, parsed where it lies, answered into the worker's other one, and nothing of it is kept.
//!
//! Whatever else comes (another path, a body, half a head, something malformed) goes to the dispatcher with the connection,
//! which comes back with the next head that is whole, plain and of a short link ([`super::edge`]). So the fast path knows only
//! such heads, and one judge decides on all others. While the process drains, everything goes to the dispatcher: it closes
//! connections as a drain needs it.

pub mod encode;
mod head;
mod idle;
mod responder;

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tracing::Instrument;

use self::encode::{last_answer, too_slow};
pub use self::head::is_fast;
use self::idle::Idle;
use self::responder::PendingRequest;
pub use self::responder::{Next, Responder};
use super::Api;
use super::stall::Stall;
use crate::cache::links::Entry;
use crate::store::StoreError;

/// Bytes read at once. A request has some 500.
const INBOX_BYTES: usize = 16 * 1024;

/// How long connections on the fast path may be idle.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Before the first request.
    pub head: Duration,
    /// For a client that takes no byte of its answers.
    pub send: Duration,
    /// Between requests; `None`: closed after each answer.
    pub keep_alive: Option<Duration>,
}

/// What the connections of one worker share.
pub struct FastPathWorker {
    api: Arc<Api>,
    timeouts: Timeouts,
    shared: RefCell<Shared>,
}

struct Shared {
    responder: Responder,
    inbox: Box<[u8]>,
}

impl FastPathWorker {
    pub fn new(api: Arc<Api>, timeouts: Timeouts) -> Self {
        let responder = Responder::new(Arc::clone(&api), timeouts.keep_alive.is_none());
        let shared = Shared { responder, inbox: vec![0; INBOX_BYTES].into() };
        Self { api, timeouts, shared: RefCell::new(shared) }
    }
}

/// Ready when the process stops, and idle connections have had their time for a last request.
pub type CloseIdle = LocalBoxFuture<'static, ()>;

/// How a connection left the fast path.
pub enum Left {
    Closed,
    /// With bytes that are to be read before what the socket still has.
    ForDispatcher(Vec<u8>),
}

/// A connection on the fast path; ready when it leaves.
pub struct FastPathConnection {
    stream: TcpStream,
    peer: Option<SocketAddr>,
    worker: Rc<FastPathWorker>,
    state: ConnectionState,
    idle: Idle,
    close_idle: CloseIdle,
    awaits_close_idle: bool,
}

enum ConnectionState {
    Reading,
    /// Bytes that were read already, and are to be answered before others are read.
    Unread(Vec<u8>),
    Loading {
        load: LocalBoxFuture<'static, std::thread::Result<Loaded>>,
        pending: Box<PendingRequest>,
        /// What came behind the request.
        rest: Vec<u8>,
    },
    /// The socket has not taken all of the answers.
    Writing {
        unsent: Vec<u8>,
        next: Next,
        stall: Stall,
    },
}

type Loaded = Result<Entry, Arc<StoreError>>;

impl FastPathConnection {
    /// A connection that was just accepted.
    ///
    /// `close_idle` is polled once at the beginning, to be woken by it, and from then on only while the process drains.
    pub fn new(stream: TcpStream, peer: Option<SocketAddr>, worker: Rc<FastPathWorker>, close_idle: CloseIdle) -> Self {
        let (state, idle) = (ConnectionState::Reading, Idle::default());
        Self { stream, peer, worker, state, idle, close_idle, awaits_close_idle: false }
    }

    /// The same for one that comes back from the dispatcher, with bytes that are to be answered before others are read.
    #[must_use]
    pub fn back_from_dispatcher(mut self, unread: Vec<u8>) -> Self {
        self.state = ConnectionState::Unread(unread);
        self
    }

    /// What another connection on the fast path is made of.
    pub fn into_parts(self) -> (TcpStream, CloseIdle) {
        (self.stream, self.close_idle)
    }

    /// Reads, and answers what has come.
    fn poll_reading(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let worker = Rc::clone(&self.worker);
        let Shared { responder, inbox } = &mut *worker.shared.borrow_mut();
        let mut read = ReadBuf::new(inbox);
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
        let bytes = read.filled();
        if outcome.is_err() || bytes.is_empty() {
            return Poll::Ready(Next::Close);
        }
        self.poll_answering(context, responder, bytes)
    }

    /// Answers, and sends it. Pending is only that the socket is full: the state says so then.
    fn poll_answering(&mut self, context: &mut Context<'_>, responder: &mut Responder, bytes: &[u8]) -> Poll<Next> {
        if !self.worker.api.readiness.is_serving() {
            return Poll::Ready(Next::HandOver(bytes.to_vec()));
        }
        let peer = self.peer;
        // A panic ends the connection that it concerns, not the worker.
        let next = catch_unwind(AssertUnwindSafe(|| responder.answer(peer, bytes)))
            .unwrap_or_else(|_| responder.answer_after_panic(bytes));
        self.poll_sending(context, responder.answers(), next)
    }

    /// The same for a request whose link was waited for.
    fn poll_answering_loaded(&mut self, context: &mut Context<'_>, loaded: std::thread::Result<Loaded>) -> Poll<Next> {
        let ConnectionState::Loading { pending, rest, .. } =
            std::mem::replace(&mut self.state, ConnectionState::Reading)
        else {
            return Poll::Ready(Next::Read);
        };
        let worker = Rc::clone(&self.worker);
        let responder = &mut worker.shared.borrow_mut().responder;
        let next = loaded
            .and_then(|loaded| catch_unwind(AssertUnwindSafe(|| responder.answer_loaded(&pending, &loaded, rest))))
            .unwrap_or_else(|_| responder.answer_after_failed_load(&pending));
        self.poll_sending(context, responder.answers(), next)
    }

    fn poll_sending(&mut self, context: &mut Context<'_>, answers: &[u8], next: Next) -> Poll<Next> {
        self.idle.has_progressed();
        if answers.is_empty() {
            return Poll::Ready(next);
        }
        let sent = match Pin::new(&mut self.stream).poll_write(context, answers) {
            Poll::Ready(Ok(sent)) => sent,
            Poll::Ready(Err(_)) => return Poll::Ready(Next::Close),
            Poll::Pending => 0,
        };
        if sent == answers.len() {
            return Poll::Ready(next);
        }
        self.state = ConnectionState::Writing { unsent: answers[sent..].to_vec(), next, stall: Stall::default() };
        self.poll_writing(context)
    }

    fn poll_writing(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let limit = self.worker.timeouts.send;
        let ConnectionState::Writing { unsent, next, stall } = &mut self.state else { return Poll::Ready(Next::Read) };
        while !unsent.is_empty() {
            match ready!(stall.poll_write(&mut self.stream, limit, context, unsent)) {
                Ok(sent @ 1..) => drop(unsent.drain(..sent)),
                Ok(0) | Err(_) => return Poll::Ready(Next::Close),
            }
            self.idle.has_progressed();
        }
        Poll::Ready(std::mem::replace(next, Next::Close))
    }

    /// Goes on with the work that the state names.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match &mut self.state {
            ConnectionState::Reading => self.poll_reading(context),
            ConnectionState::Unread(bytes) => {
                let bytes = std::mem::take(bytes);
                self.state = ConnectionState::Reading;
                let worker = Rc::clone(&self.worker);
                let responder = &mut worker.shared.borrow_mut().responder;
                self.poll_answering(context, responder, &bytes)
            }
            ConnectionState::Loading { load, .. } => {
                let loaded = ready!(load.poll_unpin(context));
                self.poll_answering_loaded(context, loaded)
            }
            ConnectionState::Writing { .. } => self.poll_writing(context),
        }
    }

    /// How the connection ends while there is nothing to do; also what wakes it then.
    fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        // A write that stalls ends by itself.
        if !matches!(self.state, ConnectionState::Reading) {
            return Poll::Pending;
        }
        if !self.awaits_close_idle || !self.worker.api.readiness.is_serving() {
            self.awaits_close_idle = true;
            // Whatever this connection has done in this turn: it must be heard when the time has come.
            if pin!(unconstrained(&mut self.close_idle)).poll(context).is_ready() {
                return Poll::Ready(Next::Close);
            }
        }
        let Timeouts { head, keep_alive, .. } = self.worker.timeouts;
        let is_new = self.idle.is_new();
        if !self.idle.is_over(if is_new { head } else { keep_alive.unwrap_or(head) }, context) {
            return Poll::Pending;
        }
        if is_new {
            self.idle.has_progressed();
            self.state = ConnectionState::Writing {
                unsent: last_answer(&too_slow()),
                next: Next::Close,
                stall: Stall::default(),
            };
            return self.poll_writing(context);
        }
        Poll::Ready(Next::Close)
    }
}

impl Future for FastPathConnection {
    type Output = Left;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Left> {
        loop {
            let next = match self.poll_work(context) {
                Poll::Ready(next) => next,
                Poll::Pending => ready!(self.poll_ending(context)),
            };
            self.state = match next {
                Next::Read => ConnectionState::Reading,
                Next::Continue(unread) => ConnectionState::Unread(unread),
                Next::Load { pending, rest } => {
                    let (api, id, span) = (Arc::clone(&self.worker.api), pending.id(), pending.span());
                    let load = async move { api.redirects.load(id).await }.instrument(span);
                    ConnectionState::Loading { load: Box::pin(AssertUnwindSafe(load).catch_unwind()), pending, rest }
                }
                Next::HandOver(unread) => return Poll::Ready(Left::ForDispatcher(unread)),
                Next::Close => return Poll::Ready(Left::Closed),
            };
        }
    }
}

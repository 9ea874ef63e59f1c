//! The fast path: where every connection begins, and where it is as long as it asks for nothing but short links.
//!
//! A redirect from cache is what the service is for. The dispatcher makes a request, a response and two timers of each, and
//! takes 1.10 times the CPU, with the kernel's ([docs/performance.md](../../../docs/performance.md)). Here a request is read into
//! the worker's one buffer, parsed where it lies, answered into the worker's other one, and nothing of it is kept.
//!
//! Whatever else comes (another path, a body, half a head, something malformed) goes to the dispatcher with the connection,
//! which comes back when that is answered ([`super::edge`]). So the fast path knows only heads that are whole, plain and of a
//! short link, and all others are validated in one place. While the process drains, everything goes to the dispatcher: it closes
//! connections as a drain needs it.

pub mod encode;
mod head;
mod idle;
mod lines;
#[cfg(target_arch = "x86_64")]
mod plain_lines;
mod responder;

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tracing::Instrument;

use self::encode::{last_answer, too_slow};
pub use self::head::Head;
use self::idle::{IdleConnections, IdleEntry};
pub use self::lines::{Room, without_empty_lines};
use self::responder::PendingRequest;
pub use self::responder::{Next, Responder};
use super::Api;
use super::stall::Stall;
use crate::cache::link::Entry;
use crate::store::StoreError;
use crate::threads::yield_to_background;

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

impl Timeouts {
    fn shortest(&self) -> Duration {
        self.keep_alive.map_or(self.head, |keep_alive| keep_alive.min(self.head))
    }
}

/// What the connections of one worker share.
pub struct FastPathWorker {
    api: Arc<Api>,
    timeouts: Timeouts,
    shared: RefCell<Shared>,
    idle: Rc<IdleConnections>,
}

struct Shared {
    responder: Responder,
    inbox: Box<[u8]>,
}

impl FastPathWorker {
    pub fn new(api: Arc<Api>, timeouts: Timeouts) -> Self {
        let responder = Responder::new(Arc::clone(&api), timeouts.keep_alive.is_none());
        let shared = RefCell::new(Shared { responder, inbox: vec![0; INBOX_BYTES].into() });
        Self { api, timeouts, shared, idle: Rc::new(IdleConnections::new(timeouts.shortest())) }
    }

    /// How long a connection may be idle between requests; `None`: it is closed after each answer.
    pub fn keep_alive(&self) -> Option<Duration> {
        self.timeouts.keep_alive
    }

    /// Ends the connections that wait for their client's next request, now and from now on.
    pub fn end_idle(&self) {
        self.idle.end_all();
    }

    /// Ends connections whose client does not come back in time, for as long as it is awaited.
    pub async fn watch_idle(&self) {
        self.idle.watch().await;
    }

    /// Reads from a socket that was just accepted, and answers what has come. `None` where the connection is over then.
    ///
    /// Most connections have one request, which is there when they are accepted. They cost no task, and no registration.
    pub fn begin(&self, socket: &OwnedFd, peer: Option<SocketAddr>) -> Option<Begun> {
        let Shared { responder, inbox } = &mut *self.shared.borrow_mut();
        let read = match recv(socket, &mut inbox[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return None,
            Ok((read, _)) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Some(Begun::new()),
            Err(_) => return None,
        };
        let next = self.answer(responder, peer, &inbox[..read]);
        let answers = responder.answers();
        let is_last = matches!(next, Next::Close);
        // The kernel holds the last answer back until the connection is shut down, so that one packet has both.
        let more = if is_last { SendFlags::MORE } else { SendFlags::empty() };
        let sent = if answers.is_empty() { 0 } else { send_now(socket, answers, more).ok()? };
        let unsent = answers[sent..].to_vec();
        if is_last && unsent.is_empty() {
            // A close alone would drop the answer where the client has sent more than its request.
            let _ = shutdown(socket, Shutdown::Write);
            return None;
        }
        Some(Begun { unsent, next, is_new: false, waits_since: responder.began() })
    }

    /// Answers what was read; the answers are the responder's.
    fn answer(&self, responder: &mut Responder, peer: Option<SocketAddr>, bytes: &[u8]) -> Next {
        if !self.api.readiness.is_serving() {
            responder.clear();
            return Next::HandOver(bytes.to_vec());
        }
        yield_to_background(responder.began());
        // A panic ends the connection that it concerns, not the worker.
        catch_unwind(AssertUnwindSafe(|| responder.answer(peer, bytes)))
            .unwrap_or_else(|_| responder.answer_after_panic(bytes))
    }
}

/// Sends what the socket takes of `bytes`.
fn send_now(socket: impl AsFd, bytes: &[u8], more: SendFlags) -> Result<usize, Errno> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => sent,
    }
}

/// How far a connection has come when its task begins.
pub struct Begun {
    /// Answers that the socket has not taken yet.
    unsent: Vec<u8>,
    next: Next,
    /// Whether nothing has come yet.
    is_new: bool,
    /// When it was accepted, or something was last read.
    waits_since: Instant,
}

impl Begun {
    /// A connection on which nothing has come yet.
    fn new() -> Self {
        Self { unsent: Vec::new(), next: Next::Read, is_new: true, waits_since: Instant::now() }
    }

    /// A connection that the dispatcher has left at that time, with bytes that are to be answered before others are read.
    pub fn behind_dispatcher(unread: Vec<u8>, waits_since: Instant) -> Self {
        let next = if unread.is_empty() { Next::Read } else { Next::Continue(unread) };
        Self { unsent: Vec::new(), next, is_new: false, waits_since }
    }
}

/// How a connection left the fast path.
pub enum FastPathExit {
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
    /// Whether nothing has come yet.
    is_new: bool,
    /// When it was accepted, or something was last read or sent.
    waits_since: Instant,
    idle: IdleEntry,
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
    pub fn new(stream: TcpStream, peer: Option<SocketAddr>, worker: Rc<FastPathWorker>, begun: Begun) -> Self {
        let Begun { unsent, next, is_new, waits_since } = begun;
        let state = ConnectionState::Writing { unsent, next, stall: Stall::default() };
        let idle = IdleEntry::new(Rc::clone(&worker.idle));
        Self { stream, peer, worker, state, is_new, waits_since, idle }
    }

    /// The socket.
    pub fn into_socket(self) -> TcpStream {
        self.stream
    }

    /// Reads, and answers what has come.
    fn poll_reading(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let worker = Rc::clone(&self.worker);
        let Shared { responder, inbox } = &mut *worker.shared.borrow_mut();
        match ready!(self.poll_receive(context, inbox)) {
            Ok(read @ 1..) => self.poll_answering(context, responder, &inbox[..read]),
            Ok(0) | Err(_) => Poll::Ready(Next::Close),
        }
    }

    /// As tokio reads, but without libc: there, each call that can block first looks whether its thread is cancelled.
    fn poll_receive(&self, context: &mut Context<'_>, inbox: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let receive = || Ok(recv(&self.stream, &mut *inbox, RecvFlags::DONTWAIT)?.0);
            match self.stream.try_io(Interest::READABLE, receive) {
                // There is no more than that, and the runtime tells when more has come.
                Ok(read) if (1..inbox.len()).contains(&read) => {
                    let _ =
                        self.stream.try_io(Interest::READABLE, || io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
                    return Poll::Ready(Ok(read));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// Answers, and sends it. Pending is only that the socket is full: the state says so then.
    fn poll_answering(&mut self, context: &mut Context<'_>, responder: &mut Responder, bytes: &[u8]) -> Poll<Next> {
        // In front of the first request, the client has its time for a head.
        let bytes = if self.is_new { bytes } else { without_empty_lines(bytes) };
        if bytes.is_empty() {
            return Poll::Ready(Next::Read);
        }
        let next = self.worker.answer(responder, self.peer, bytes);
        self.poll_sending(context, responder, next)
    }

    /// The same for a request whose link was waited for.
    fn poll_answering_loaded(&mut self, context: &mut Context<'_>, loaded: std::thread::Result<Loaded>) -> Poll<Next> {
        let ConnectionState::Loading { mut pending, rest, .. } =
            std::mem::replace(&mut self.state, ConnectionState::Reading)
        else {
            return Poll::Ready(Next::Read);
        };
        let worker = Rc::clone(&self.worker);
        let responder = &mut worker.shared.borrow_mut().responder;
        let next = loaded
            .and_then(|loaded| catch_unwind(AssertUnwindSafe(|| responder.answer_loaded(&mut pending, &loaded, rest))))
            .unwrap_or_else(|_| responder.answer_after_failed_load(&pending));
        self.poll_sending(context, responder, next)
    }

    fn poll_sending(&mut self, context: &mut Context<'_>, responder: &Responder, next: Next) -> Poll<Next> {
        (self.is_new, self.waits_since) = (false, responder.began());
        let answers = responder.answers();
        if answers.is_empty() {
            return Poll::Ready(next);
        }
        let Ok(sent) = send_now(&self.stream, answers, SendFlags::empty()) else { return Poll::Ready(Next::Close) };
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
            self.waits_since = Instant::now();
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
        let Timeouts { head, keep_alive, .. } = self.worker.timeouts;
        let longest = if self.is_new { head } else { keep_alive.unwrap_or(head) };
        ready!(self.idle.poll_over(self.waits_since + longest, context));
        if self.is_new && !self.worker.idle.have_ended() {
            self.is_new = false;
            self.state = ConnectionState::Writing {
                unsent: last_answer(&too_slow(), self.worker.api.pages.noindex),
                next: Next::Close,
                stall: Stall::default(),
            };
            return self.poll_writing(context);
        }
        Poll::Ready(Next::Close)
    }
}

impl Future for FastPathConnection {
    type Output = FastPathExit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FastPathExit> {
        loop {
            let next = match self.poll_work(context) {
                Poll::Ready(next) => next,
                Poll::Pending => ready!(self.poll_ending(context)),
            };
            self.state = match next {
                Next::Read => ConnectionState::Reading,
                Next::Continue(unread) => ConnectionState::Unread(unread),
                Next::Load { pending, rest } => {
                    let (api, name, span) = (Arc::clone(&self.worker.api), pending.name(), pending.span());
                    let load = async move { api.redirects.load(&name).await }.instrument(span);
                    ConnectionState::Loading { load: Box::pin(AssertUnwindSafe(load).catch_unwind()), pending, rest }
                }
                Next::HandOver(unread) => return Poll::Ready(FastPathExit::ForDispatcher(unread)),
                Next::Close => return Poll::Ready(FastPathExit::Closed),
            };
        }
    }
}

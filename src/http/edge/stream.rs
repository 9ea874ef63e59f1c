//! What stands between the dispatcher and the socket.
//!
//! The HTTP dispatcher answers by itself what never becomes a request: bytes that are no HTTP (400), heads that are too
//! large (431) or too slow (408). It does so without a body, and closes at once, so that a client that still sends may
//! lose the answer to a reset. An [`ErrorRewritingStream`]
//!
//! - puts a whole problem document in the place of such a bare answer, and waits a moment for the client to have it;
//! - answers a connection that ends in the middle of its first head;
//! - answers where the dispatcher closes the connection without an answer (a body whose chunks are malformed);
//! - bounds the time for a head also on later requests of a connection, and for the rest of a body that no handler reads: there the
//!   dispatcher's own clock has stopped;
//! - hands over one request at a time, the next when the one before is answered (see `framing.rs`);
//! - tells when the fast path can go on with the connection.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::bare_answer::{bare_answer, keeps_alive};
use super::final_answer::FinalAnswer;
use super::framing::Framing;
use super::handlers::Handlers;
use super::head_timer::HeadTimer;
use crate::http::fast_path::encode::{last_answer, too_slow};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::stall::Stall;
use crate::readiness::Readiness;

/// How a stream treats its client.
#[derive(Clone)]
pub struct StreamSettings {
    /// The longest time for a head.
    pub head_timeout: Duration,
    /// For a client that takes no byte of its answers.
    pub send_timeout: Duration,
    /// Whether errors have `X-Robots-Tag: noindex`.
    pub noindex: bool,
    /// Where there is a fast path: it takes back connections as long as the process serves.
    pub fast_path: Option<Readiness>,
}

/// A connection that the dispatcher serves.
pub struct ErrorRewritingStream {
    /// `None` while the fast path has it.
    socket: Option<TcpStream>,
    /// What was read, before the dispatcher came too, and not yet handed over.
    inbox: BytesMut,
    /// What the dispatcher may have: of one request, until it is answered.
    handed_over: BytesMut,
    framing: Framing,
    /// The number of requests that were handed over; it wraps around.
    requests: u64,
    /// Who waits for the next request while one is at work.
    reader: Option<Waker>,
    handlers: Handlers,
    /// Whether bytes have come since something was last written.
    unanswered: bool,
    /// How often something was written, or a request ended; it wraps around.
    answers: u64,
    settings: StreamSettings,
    stall: Stall,
    timer: HeadTimer,
    ending: Option<FinalAnswer>,
    /// Whether nothing can be written any more.
    is_over: bool,
    /// Whether the answer to the request at work tells the client that the connection goes on; `None` until it comes.
    keeps_alive: Option<bool>,
    /// Whether the fast path can go on with the connection: the dispatcher has answered all that it was given, and its last
    /// answer did not close the connection. It is decided once for each request, so that the read that waits and the owner of the
    /// dispatcher agree on it also where a drain begins in between.
    may_return: bool,
}

/// Bytes read at once. Requests of the API have some 500.
const READ_AT_ONCE: usize = 8 * 1024;

/// What came of reading.
enum Read {
    /// The dispatcher may have something.
    Some,
    /// The client sends no more.
    End,
}

impl ErrorRewritingStream {
    pub fn new(stream: TcpStream, already_read: &[u8], settings: StreamSettings) -> Self {
        Self {
            socket: Some(stream),
            inbox: BytesMut::from(already_read),
            handed_over: BytesMut::new(),
            framing: Framing::default(),
            requests: 0,
            reader: None,
            handlers: Handlers::default(),
            unanswered: !already_read.is_empty(),
            answers: 0,
            settings,
            stall: Stall::default(),
            timer: HeadTimer::default(),
            ending: None,
            is_over: false,
            keeps_alive: None,
            may_return: false,
        }
    }

    /// The requests of this connection that are with their handlers.
    pub fn handlers(&self) -> Handlers {
        self.handlers.clone()
    }

    /// Whether the fast path can go on with the connection.
    pub fn may_return(&self) -> bool {
        self.may_return
    }

    /// Lends the fast path the socket, and gives it what was read and not handed over.
    pub fn take_socket(&mut self) -> Option<(TcpStream, Vec<u8>)> {
        let socket = self.socket.take()?;
        Some((socket, std::mem::take(&mut self.inbox).into()))
    }

    /// Takes the socket back, with bytes that come before what it still has. The dispatcher answers them, whatever they are.
    pub fn put_socket(&mut self, socket: TcpStream, unread: &[u8]) {
        self.socket = Some(socket);
        self.unanswered |= !unread.is_empty();
        self.inbox.extend_from_slice(unread);
        self.keeps_alive = None;
        self.may_return = false;
    }

    /// Reads until there is something that the dispatcher may have.
    fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Read>> {
        loop {
            if self.may_return {
                // Whatever comes next is read by the fast path.
                return Poll::Pending;
            }
            if self.framing.advance(&mut self.inbox, &mut self.handed_over) {
                self.requests = self.requests.wrapping_add(1);
                self.keeps_alive = None;
            }
            if !self.handed_over.is_empty() {
                self.unanswered = true;
                return Poll::Ready(Ok(Read::Some));
            }
            let is_whole = self.framing.is_whole();
            if is_whole {
                self.reader = Some(context.waker().clone());
                // What comes behind the request waits. An answer that goes on for long has to know when its client leaves.
                if self.keeps_alive.is_none() || self.inbox.len() >= READ_AT_ONCE {
                    return Poll::Pending;
                }
            }
            if ready!(self.poll_receive(context))? == 0 {
                self.handlers.client_left();
                if self.inbox.is_empty() {
                    return Poll::Ready(Ok(Read::End));
                }
                if is_whole {
                    return Poll::Pending;
                }
                // A request that ends early is the dispatcher's to refuse.
                self.unanswered = true;
                self.handed_over.unsplit(self.inbox.split());
                return Poll::Ready(Ok(Read::Some));
            }
        }
    }

    /// Reads into the inbox; ready with how many bytes.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [const { MaybeUninit::uninit() }; READ_AT_ONCE];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(here(&mut self.socket)?).poll_read(context, &mut read))?;
        self.unanswered |= !read.filled().is_empty();
        self.inbox.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// The request that was handed over is answered, and the answer written: the next one may come.
    fn answered(&mut self) {
        if self.framing.is_whole() && self.handed_over.is_empty() && self.handlers.are_done_with(self.requests) {
            self.framing.answered();
            // The next request has a time limit of its own.
            self.answers = self.answers.wrapping_add(1);
            self.may_return =
                self.keeps_alive == Some(true) && self.settings.fast_path.as_ref().is_some_and(Readiness::is_serving);
            let reader = self.reader.take();
            if let Some(reader) = reader
                && !self.may_return
            {
                reader.wake();
            }
        }
    }

    /// Makes `problem` the last answer of this connection.
    fn end_with(&mut self, problem: &Problem) {
        self.ending = Some(FinalAnswer::new(last_answer(problem, self.settings.noindex)));
    }

    /// Whether the client has sent something that is never looked at. To close then would reset the connection, and could take
    /// the last answer away from the client.
    fn has_unread(&mut self, context: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let Ok(socket) = here(&mut self.socket) else { return false };
        let peeked = socket.poll_peek(context, &mut ReadBuf::new(&mut byte));
        !self.inbox.is_empty() || matches!(peeked, Poll::Ready(Ok(1..)))
    }

    /// Whether the client has sent a part of a request and not the rest of it.
    fn is_request_incomplete(&self) -> bool {
        if self.framing.is_at_head() { !self.inbox.is_empty() && !self.may_return } else { !self.framing.is_whole() }
    }

    /// Whether the request that was handed over has its answer, although the client may not have sent all of it.
    fn is_answered(&self) -> bool {
        self.keeps_alive.is_some() && !self.framing.is_at_head()
    }

    /// Whether nothing has moved on for one to two times the head's time-out, while no handler is at work.
    ///
    /// The head of the first request is watched by the dispatcher.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if self.answers == 0 {
            return false;
        }
        let is_at_work = self.handlers.are_at_work();
        self.timer.is_overdue(self.settings.head_timeout, self.answers, is_at_work, context)
    }

    /// Sends the last answer and waits until the client has read it.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { socket: Some(socket), ending: Some(ending), .. } = self else { return Poll::Ready(()) };
        ending.poll(socket, context)
    }

    /// Sends the final answer that the dispatcher did not: on malformed chunks it ends without one.
    pub fn poll_final_answer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.unanswered && !self.is_answered() && !self.is_over && self.ending.is_none() {
            self.end_with(&Problem::new(
                ProblemKind::MalformedBody,
                "The body broke off, or its chunks are malformed.",
            ));
        }
        self.poll_end(context)
    }
}

/// How long a client of a long answer may acknowledge nothing. A client that comes back over another connection does so soon,
/// and is to find its place free.
const LOSS_NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Makes the kernel close the connection if the client has acknowledged nothing for this long after something was sent. Otherwise rare
/// small writes would not fill the send buffer for hours, and the loss would go unnoticed.
fn notice_loss(socket: &TcpStream, after: Duration) {
    let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    // Without it, the kernel gives up after some 15 minutes.
    let _ = set_tcp_user_timeout(socket, millis);
}

/// The socket, where the fast path does not have it.
fn here(socket: &mut Option<TcpStream>) -> io::Result<&mut TcpStream> {
    socket.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

impl AsyncRead for ErrorRewritingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ending.is_some() {
            return Poll::Ready(Ok(()));
        }
        match self.poll_request(context) {
            Poll::Ready(Ok(Read::Some)) => {
                let count = self.handed_over.len().min(buffer.remaining());
                buffer.put_slice(&self.handed_over.split_to(count));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(read) => Poll::Ready(read.map(|_| ())),
            Poll::Pending if self.is_request_incomplete() && self.is_overdue(context) => {
                if self.is_answered() {
                    self.ending = Some(FinalAnswer::new(Vec::new()));
                } else {
                    self.end_with(&too_slow());
                }
                // To the dispatcher, the client has closed; `poll_shutdown` has the last word.
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for ErrorRewritingStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut now = bytes;
        if self.ending.is_none()
            && let Some((at, problem)) = bare_answer(bytes)
        {
            if at == 0 {
                self.end_with(&problem);
            }
            // What stands before it are answers to earlier requests.
            now = &bytes[..at];
        }
        if self.ending.is_some() {
            ready!(self.poll_end(context));
            return Poll::Ready(Ok(bytes.len()));
        }
        let Self { socket, stall, settings, handlers, .. } = &mut *self;
        if handlers.takes_long_answer() {
            notice_loss(here(socket)?, settings.send_timeout.min(LOSS_NOTICED_WITHIN));
        }
        let written = ready!(stall.poll_write(here(socket)?, settings.send_timeout, context, now));
        self.is_over = written.is_err();
        self.unanswered = false;
        self.answers = self.answers.wrapping_add(1);
        if self.keeps_alive.is_none() {
            // Only now: the dispatcher may end before it has written an answer.
            self.keeps_alive = keeps_alive(now);
            if self.keeps_alive.is_some()
                && self.handlers.are_at_work()
                && let Some(reader) = self.reader.take()
            {
                // The answer goes on: from now on the client is watched.
                reader.wake();
            }
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The dispatcher flushes when all that it had to write is written.
        self.answered();
        if self.is_answered() && self.is_request_incomplete() {
            // No handler reads the rest of the body, and it may never come. The timer wakes the dispatcher, which reads then.
            self.is_overdue(context);
        }
        Pin::new(here(&mut self.socket)?).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() && self.unanswered && self.answers == 0 {
            let stops = self.settings.fast_path.as_ref().is_some_and(|readiness| !readiness.is_serving());
            self.end_with(&if stops {
                Problem::unavailable()
            } else {
                Problem::new(ProblemKind::MalformedBody, "The connection ended in the middle of a request.")
            });
        }
        if self.ending.is_none() && self.has_unread(context) {
            self.ending = Some(FinalAnswer::new(Vec::new()));
        }
        if self.ending.is_some() {
            ready!(self.poll_end(context));
            return Poll::Ready(Ok(()));
        }
        self.is_over = true;
        Pin::new(here(&mut self.socket)?).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::shared::SharedStream;
    use super::*;

    const FIRST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const NEXT: &str = "GET /Abc1234 HTTP/1.1\r\nHost: a\r\n\r\n";

    /// What the dispatcher reads after it has answered `FIRST` with `answer`; `None` where the fast path goes on with `NEXT`.
    async fn read_after(answer: &str, fast_path: Option<bool>) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let fast_path = fast_path.map(|serves| {
            let readiness = Readiness::default();
            readiness.set_serving(serves);
            readiness
        });
        let second = Duration::from_secs(1);
        let settings = StreamSettings { head_timeout: second, send_timeout: second, noindex: true, fast_path };
        let (socket, _) = listener.accept().await.unwrap();
        let stream =
            SharedStream::new(ErrorRewritingStream::new(socket, (FIRST.to_owned() + NEXT).as_bytes(), settings));
        let (mut dispatcher, mut bytes) = (stream.clone(), [0; 1024]);
        let count = dispatcher.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..count], FIRST.as_bytes());
        assert!(dispatcher.read(&mut bytes).now_or_never().is_none(), "before it is answered");
        drop(stream.handlers().enter());
        dispatcher.write_all(answer.as_bytes()).await.unwrap();
        assert!(!stream.may_return(), "before it is flushed");
        dispatcher.flush().await.unwrap();
        if !stream.may_return() {
            let count = dispatcher.read(&mut bytes).now_or_never().unwrap().unwrap();
            return Some(String::from_utf8_lossy(&bytes[..count]).into_owned());
        }
        assert!(dispatcher.read(&mut bytes).now_or_never().is_none());
        let (socket, kept) = stream.take_socket().unwrap();
        assert_eq!(kept, NEXT.as_bytes());
        // It comes back with what the fast path does not answer.
        stream.put_socket(socket, NEXT.as_bytes());
        assert!(!stream.may_return());
        let count = dispatcher.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..count], NEXT.as_bytes());
        None
    }

    #[tokio::test]
    async fn the_fast_path_goes_on_with_a_connection_once_an_answer_lets_it_go_on() {
        let keeps_alive = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: x\r\n\r\n{}";
        let closes = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\nx-request-id: x\r\n\r\n{}";
        assert_eq!(read_after(keeps_alive, Some(true)).await, None);
        for (answer, fast_path) in [
            (closes, Some(true)),
            // The process drains; there is no fast path.
            (keeps_alive, Some(false)),
            (keeps_alive, None),
        ] {
            assert_eq!(read_after(answer, fast_path).await.as_deref(), Some(NEXT), "{answer} {fast_path:?}");
        }
    }
}

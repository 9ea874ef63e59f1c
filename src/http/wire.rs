//! The connections that the dispatcher serves.
//!
//! The HTTP dispatcher answers by itself what never becomes a request: bytes that are no HTTP (400), heads that are too
//! large (431) or too slow (408). It does so without a body, and closes at once, so that a client that still sends may
//! lose the answer to a reset. Between it and the socket stands a [`Wire`], which
//!
//! - puts a whole problem document in the place of such a bare answer, and waits a moment for the client to have it;
//! - answers a connection that ends in the middle of its first head;
//! - answers where the dispatcher hangs up without a word (a body whose chunks are malformed);
//! - bounds the time for a head also on later requests of a connection, where the dispatcher's own clock has stopped;
//! - hands over one request at a time, the next when the one before is answered (see `framing.rs`).

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime};

use actix_web::http::header::HttpDate;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::framing::Framing;
use super::h1::{CannedProblem, Stamp};
use super::problem::{Kind, Problem};
use super::request_id::new_id;
use super::stall::Stall;

/// How many requests of a connection are with their handlers: while there are any, the time is theirs, not the client's.
#[derive(Clone, Debug, Default)]
pub struct Handlers(Rc<HandlerCounts>);

#[derive(Debug, Default)]
struct HandlerCounts {
    at_work: Cell<usize>,
    /// Those that ever came, around and around.
    begun: Cell<u64>,
}

impl Handlers {
    /// Counts one until the guard is dropped.
    pub fn enter(&self) -> HandlerGuard {
        self.0.at_work.set(self.0.at_work.get() + 1);
        self.0.begun.set(self.0.begun.get().wrapping_add(1));
        HandlerGuard(self.clone())
    }

    fn are_at_work(&self) -> bool {
        self.0.at_work.get() > 0
    }

    /// Whether all of so many requests came, and are with no handler any more.
    fn are_done_with(&self, requests: u64) -> bool {
        self.0.begun.get() == requests && !self.are_at_work()
    }
}

/// A request that is with its handler.
#[must_use]
pub struct HandlerGuard(Handlers);

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        let count = &self.0.0.at_work;
        count.set(count.get().saturating_sub(1));
    }
}

/// A connection.
pub struct Wire {
    stream: TcpStream,
    /// What was read, before the dispatcher came too, and not yet handed over.
    inbox: BytesMut,
    /// What the dispatcher may have: of one request, until it is answered.
    handed_over: BytesMut,
    framing: Framing,
    /// Requests that were handed over, around and around.
    requests: u64,
    /// Who waits for the next request while one is at work.
    reader: Option<Waker>,
    handlers: Handlers,
    /// Whether bytes have come since something was last written.
    unanswered: bool,
    /// How often something was written, around and around.
    answers: u64,
    head_timeout: Duration,
    send_timeout: Duration,
    stall: Stall,
    is_stopping: Arc<AtomicBool>,
    watch: Option<Watch>,
    ending: Option<Ending>,
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

/// Looks, once in a head's time and at no cost to the requests in between, whether the connection has moved on.
struct Watch {
    sleep: Pin<Box<Sleep>>,
    /// [`Wire::answers`] when it began.
    answers: u64,
}

/// The last answer of a connection on its way.
struct Ending {
    document: Vec<u8>,
    written: usize,
    stage: Stage,
    deadline: Pin<Box<Sleep>>,
    /// How many bytes of what the client still sends are taken.
    patience: usize,
}

#[derive(Clone, Copy)]
enum Stage {
    Writing,
    /// Closed for writing; a reset for unread bytes would take the answer away from the client.
    Lingering,
    Over,
}

impl Wire {
    const LINGER: Duration = Duration::from_secs(1);
    const LINGER_BYTES: usize = 1 << 20;

    /// The times are those of a head, and of a client that takes no byte of its answers.
    pub fn new(
        stream: TcpStream,
        already_read: &[u8],
        (head_timeout, send_timeout): (Duration, Duration),
        is_stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            stream,
            inbox: BytesMut::from(already_read),
            handed_over: BytesMut::new(),
            framing: Framing::default(),
            requests: 0,
            reader: None,
            handlers: Handlers::default(),
            unanswered: false,
            answers: 0,
            head_timeout,
            send_timeout,
            stall: Stall::default(),
            is_stopping,
            watch: None,
            ending: None,
        }
    }

    /// The requests of this connection that are with their handlers.
    pub fn handlers(&self) -> Handlers {
        self.handlers.clone()
    }

    /// Reads until there is something that the dispatcher may have.
    fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Read>> {
        loop {
            if self.framing.advance(&mut self.inbox, &mut self.handed_over) {
                self.requests = self.requests.wrapping_add(1);
            }
            if !self.handed_over.is_empty() {
                self.unanswered = true;
                return Poll::Ready(Ok(Read::Some));
            }
            if self.framing.is_whole() {
                self.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            let mut bytes = [const { MaybeUninit::uninit() }; READ_AT_ONCE];
            let mut read = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                if self.inbox.is_empty() {
                    return Poll::Ready(Ok(Read::End));
                }
                // A request that ends early is the dispatcher's to refuse.
                self.unanswered = true;
                self.handed_over.unsplit(self.inbox.split());
                return Poll::Ready(Ok(Read::Some));
            }
            self.unanswered = true;
            self.inbox.extend_from_slice(read.filled());
        }
    }

    /// The request that was handed over is answered, and the answer written: the next one may come.
    fn answered(&mut self) {
        if self.framing.is_whole() && self.handed_over.is_empty() && self.handlers.are_done_with(self.requests) {
            self.framing.answered();
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
    }

    /// Makes `problem` the last answer of this connection.
    fn end_with(&mut self, problem: &Problem) {
        self.end_with_bytes(last_answer(problem));
    }

    /// Whether the client has sent something that is never looked at. To close then would reset the connection, and could take
    /// the last answer away from the client.
    fn has_unread(&mut self, context: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let peeked = self.stream.poll_peek(context, &mut ReadBuf::new(&mut byte));
        !self.inbox.is_empty() || matches!(peeked, Poll::Ready(Ok(1..)))
    }

    /// Makes `document` the last that is written to this connection.
    fn end_with_bytes(&mut self, document: Vec<u8>) {
        self.ending = Some(Ending {
            document,
            written: 0,
            stage: Stage::Writing,
            deadline: Box::pin(sleep(Self::LINGER)),
            patience: Self::LINGER_BYTES,
        });
    }

    /// Whether the client has sent a part of a request and not the rest of it, for one to two times the head's time-out.
    ///
    /// The first request is watched by the dispatcher.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if self.answers == 0 {
            return false;
        }
        let Self { watch, answers, handlers, head_timeout, .. } = self;
        let watch = match watch {
            Some(watch) if !watch.sleep.is_elapsed() => return false,
            Some(watch) if watch.answers == *answers && !handlers.are_at_work() => return true,
            Some(watch) => {
                watch.sleep.as_mut().reset(Instant::now() + *head_timeout);
                watch.answers = *answers;
                watch
            }
            None => watch.insert(Watch { sleep: Box::pin(sleep(*head_timeout)), answers: *answers }),
        };
        // Only to be woken when it is over, also where this connection has used up its turn.
        let _ = pin!(unconstrained(watch.sleep.as_mut())).poll(context);
        false
    }

    /// Sends the last answer and waits until the client has read it; bounded by [`Self::LINGER`].
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { stream, ending: Some(ending), .. } = self else { return Poll::Ready(()) };
        if ending.deadline.as_mut().poll(context).is_ready() {
            ending.stage = Stage::Over;
        }
        let mut stream = Pin::new(stream);
        loop {
            ending.stage = match ending.stage {
                Stage::Writing if ending.written == ending.document.len() => {
                    let closed = ready!(stream.as_mut().poll_shutdown(context));
                    if closed.is_ok() { Stage::Lingering } else { Stage::Over }
                }
                Stage::Writing => {
                    let rest = &ending.document[ending.written..];
                    match ready!(stream.as_mut().poll_write(context, rest)) {
                        Ok(count @ 1..) => {
                            ending.written += count;
                            Stage::Writing
                        }
                        Ok(0) | Err(_) => Stage::Over,
                    }
                }
                Stage::Lingering => {
                    let mut bytes = [0; 4096];
                    let mut unread = ReadBuf::new(&mut bytes);
                    let read = ready!(stream.as_mut().poll_read(context, &mut unread));
                    let count = unread.filled().len();
                    ending.patience = ending.patience.saturating_sub(count);
                    if read.is_err() || count == 0 || ending.patience == 0 { Stage::Over } else { Stage::Lingering }
                }
                Stage::Over => return Poll::Ready(()),
            }
        }
    }
}

impl Drop for Wire {
    /// The dispatcher hangs up without an answer on malformed chunks, and is dropped with its requests when a stop takes
    /// too long. The first is for the client to know.
    fn drop(&mut self) {
        if self.unanswered && self.ending.is_none() && !self.is_stopping.load(Ordering::Relaxed) {
            let answer =
                last_answer(&Problem::new(Kind::MalformedBody, "The body broke off, or its chunks are malformed."));
            // As far as it goes: where the client has gone away, or does not read, there is nobody to tell.
            let _ = self.stream.try_write(&answer);
        }
    }
}

impl AsyncRead for Wire {
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
            Poll::Pending if self.unanswered && self.is_overdue(context) => {
                self.end_with(&too_slow());
                // To the dispatcher, the client has closed; `poll_shutdown` has the last word.
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Wire {
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
        let Self { stream, stall, send_timeout, .. } = &mut *self;
        let written = ready!(stall.poll_write(stream, *send_timeout, context, now));
        self.unanswered = false;
        self.answers = self.answers.wrapping_add(1);
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The dispatcher flushes when all that it had to write is written.
        self.answered();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() && self.unanswered && self.answers == 0 {
            self.end_with(&Problem::new(Kind::MalformedBody, "The connection ended in the middle of a request."));
        }
        if self.ending.is_none() && self.has_unread(context) {
            self.end_with_bytes(Vec::new());
        }
        if self.ending.is_some() {
            ready!(self.poll_end(context));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

pub fn too_slow() -> Problem {
    Problem::new(Kind::RequestTimeout, "The head of the request did not arrive in time; send it at once.")
}

/// Finds the dispatcher's own answer, the last of its connection, at the end of what is to be written.
///
/// It is told from those of the handlers by having no header field but length, connection and date: theirs have at least
/// a request id. Answers end in a body or in other fields, so that a look at a few bytes is enough for nearly all.
fn bare_answer(bytes: &[u8]) -> Option<(usize, Problem)> {
    const DATE: &[u8] = b"date: Thu, 01 Jan 1970 00:00:00 GMT";
    let head = bytes.strip_suffix(b"\r\n\r\n")?;
    let (head, date) = head.split_at_checked(head.len().checked_sub(DATE.len())?)?;
    if !date.starts_with(b"date: ") {
        return None;
    }
    let head = [&b"connection: close\r\n"[..], b"connection: keep-alive\r\n", b"connection: upgrade\r\n"]
        .iter()
        .find_map(|connection| head.strip_suffix(*connection))
        .unwrap_or(head);
    let head = head.strip_suffix(b"\r\ncontent-length: 0\r\n")?;
    let start = head.windows(7).rposition(|window| window == b"HTTP/1.")?;
    let status = head[start..].get(9..12)?;
    let problem = match status {
        b"400" => Problem::new(Kind::MalformedBody, "The request is not well-formed HTTP/1.1."),
        b"408" => too_slow(),
        b"431" => Problem::new(
            Kind::HeadersTooLarge,
            "The head of a request may have at most 96 header fields and 131072 bytes in all.",
        ),
        [b'4' | b'5', ..] => Problem::internal(),
        _ => return None,
    };
    Some((start, problem))
}

/// An answer as it goes over the wire, after which the connection is closed.
pub fn last_answer(problem: &Problem) -> Vec<u8> {
    let mut answer = Vec::new();
    let date = HttpDate::from(SystemTime::now()).to_string();
    let stamp = Stamp { request_id: &new_id(), date: &date, is_last: true };
    CannedProblem::new(problem).write(&mut answer, true, stamp);
    answer
}

//! The lane: where every connection begins, and stays as long as it asks for nothing but short links.
//!
//! A redirect from cache is what the whole product is for, and the dispatcher makes a request, a response and two timers of
//! each: 1.2 to 1.4 times the CPU, with the kernel's (`loadtests/run`, the row "by the dispatcher", 2026-11-23). In the lane a
//! request is read into the worker's one buffer, looked at where it lies, answered into the worker's other one, and nothing of
//! it is kept.
//!
//! Whatever else comes (another path, a body, half a head, something malformed) goes to the dispatcher with the
//! connection, which stays there. So the lane knows only whole and plain heads, and one judge decides on all others.
//! While the process drains, everything goes that way: the dispatcher knows how to take leave.

mod head;
mod teller;

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
use tokio::time::{Instant, Sleep, sleep};
use tracing::Instrument;

use self::teller::Loaded;
pub use self::teller::{Next, Teller};
use super::Api;
use super::stall::Stall;
use super::wire::{last_answer, too_slow};

/// Bytes read at once. A request has some 500.
const INBOX_BYTES: usize = 16 * 1024;

/// How long connections in the lane may do nothing.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Before the first request.
    pub head_timeout: Duration,
    /// For a client that takes no byte of its answers.
    pub send_timeout: Duration,
    /// Between requests; `None`: closed after each answer.
    pub keep_alive: Option<Duration>,
}

/// What the lanes of one worker share.
pub struct LaneWorker {
    api: Arc<Api>,
    patience: Patience,
    desk: RefCell<Desk>,
}

struct Desk {
    teller: Teller,
    inbox: Box<[u8]>,
}

impl LaneWorker {
    pub fn new(api: Arc<Api>, patience: Patience) -> Self {
        let teller = Teller::new(Arc::clone(&api), patience.keep_alive.is_none());
        let desk = Desk { teller, inbox: vec![0; INBOX_BYTES].into() };
        Self { api, patience, desk: RefCell::new(desk) }
    }
}

/// How a connection left the lane.
pub enum Left {
    Closed,
    /// With bytes that are to be read before what the socket still has.
    ForDispatcher(Vec<u8>),
}

/// A connection in the lane; ready when it leaves.
pub struct Lane {
    stream: TcpStream,
    peer: Option<SocketAddr>,
    worker: Rc<LaneWorker>,
    state: State,
    idle: Idle,
    /// Ready when the process stops, and idle connections have had their time for a last request.
    farewell: LocalBoxFuture<'static, ()>,
    awaits_farewell: bool,
}

enum State {
    Reading,
    Loading {
        load: LocalBoxFuture<'static, std::thread::Result<Loaded>>,
        rest: Vec<u8>,
    },
    /// The socket has not taken all of the answers.
    Writing {
        unsent: Vec<u8>,
        next: Next,
        stall: Stall,
    },
}

impl Lane {
    /// `farewell` is polled once at the beginning, to be woken by it, and from then on only while the process drains.
    pub fn new(
        stream: TcpStream,
        peer: Option<SocketAddr>,
        worker: Rc<LaneWorker>,
        farewell: LocalBoxFuture<'static, ()>,
    ) -> Self {
        Self { stream, peer, worker, state: State::Reading, idle: Idle::default(), farewell, awaits_farewell: false }
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Reads, and answers what has come.
    fn poll_reading(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let worker = Rc::clone(&self.worker);
        let Desk { teller, inbox } = &mut *worker.desk.borrow_mut();
        let mut read = ReadBuf::new(inbox);
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
        let bytes = read.filled();
        if outcome.is_err() || bytes.is_empty() {
            return Poll::Ready(Next::Close);
        }
        if !worker.api.readiness.is_serving() {
            return Poll::Ready(Next::HandOver(bytes.to_vec()));
        }
        self.poll_answering(context, teller, bytes, None)
    }

    /// Answers, and sends it. Pending is only that the socket is full: the state says so then.
    fn poll_answering(
        &mut self,
        context: &mut Context<'_>,
        teller: &mut Teller,
        bytes: &[u8],
        loaded: Option<Loaded>,
    ) -> Poll<Next> {
        let peer = self.peer;
        // A panic ends the connection that it concerns, not the worker.
        let next = catch_unwind(AssertUnwindSafe(|| teller.answer(peer, bytes, loaded)))
            .unwrap_or_else(|_| teller.answer_after_panic(bytes));
        self.poll_sending(context, teller.answers(), next)
    }

    fn poll_sending(&mut self, context: &mut Context<'_>, answers: &[u8], next: Next) -> Poll<Next> {
        self.idle.has_moved();
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
        self.state = State::Writing { unsent: answers[sent..].to_vec(), next, stall: Stall::default() };
        self.poll_writing(context)
    }

    fn poll_writing(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let limit = self.worker.patience.send_timeout;
        let State::Writing { unsent, next, stall } = &mut self.state else { return Poll::Ready(Next::Read) };
        while !unsent.is_empty() {
            match ready!(stall.poll_write(&mut self.stream, limit, context, unsent)) {
                Ok(sent @ 1..) => drop(unsent.drain(..sent)),
                Ok(0) | Err(_) => return Poll::Ready(Next::Close),
            }
            self.idle.has_moved();
        }
        Poll::Ready(std::mem::replace(next, Next::Close))
    }

    /// Goes on with the work that the state names.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match &mut self.state {
            State::Reading => self.poll_reading(context),
            State::Loading { load, rest } => {
                let loaded = ready!(load.poll_unpin(context));
                let rest = std::mem::take(rest);
                self.state = State::Reading;
                let worker = Rc::clone(&self.worker);
                let teller = &mut worker.desk.borrow_mut().teller;
                let Ok(loaded) = loaded else {
                    let next = teller.answer_after_failed_load(&rest);
                    return self.poll_sending(context, teller.answers(), next);
                };
                self.poll_answering(context, teller, &rest, Some(loaded))
            }
            State::Writing { .. } => self.poll_writing(context),
        }
    }

    /// How the connection ends while there is nothing to do; also what wakes it then.
    fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        // A write that stalls ends by itself.
        if !matches!(self.state, State::Reading) {
            return Poll::Pending;
        }
        if !self.awaits_farewell || !self.worker.api.readiness.is_serving() {
            self.awaits_farewell = true;
            // Whatever this connection has done in this turn: it must be heard when the time has come.
            if pin!(unconstrained(&mut self.farewell)).poll(context).is_ready() {
                return Poll::Ready(Next::Close);
            }
        }
        if !self.idle.is_over(self.worker.patience, context) {
            return Poll::Pending;
        }
        if self.idle.moves == 0 {
            self.state =
                State::Writing { unsent: last_answer(&too_slow()), next: Next::Close, stall: Stall::default() };
            self.idle.has_moved();
            return self.poll_writing(context);
        }
        Poll::Ready(Next::Close)
    }
}

impl Future for Lane {
    type Output = Left;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Left> {
        loop {
            let next = match self.poll_work(context) {
                Poll::Ready(next) => next,
                Poll::Pending => ready!(self.poll_ending(context)),
            };
            self.state = match next {
                Next::Read => State::Reading,
                Next::Load { id, admitted, rest } => {
                    let (api, span) = (Arc::clone(&self.worker.api), admitted.span());
                    let load = async move { Loaded { entry: api.redirects.load(id).await, admitted } };
                    State::Loading { load: Box::pin(AssertUnwindSafe(load.instrument(span)).catch_unwind()), rest }
                }
                Next::HandOver(rest) => return Poll::Ready(Left::ForDispatcher(rest)),
                Next::Close => return Poll::Ready(Left::Closed),
            };
        }
    }
}

/// How long nothing has moved, at no cost to what moves: it looks whether something has, once in the time that is allowed,
/// so that a connection is given up after one to two times of it.
#[derive(Default)]
struct Idle {
    sleep: Option<Pin<Box<Sleep>>>,
    moves: u64,
    /// [`Self::moves`] when the sleep began.
    seen: u64,
}

impl Idle {
    fn has_moved(&mut self) {
        self.moves += 1;
    }

    fn is_over(&mut self, patience: Patience, context: &mut Context<'_>) -> bool {
        let Self { sleep: slot, moves, seen } = self;
        let time =
            if *moves == 0 { patience.head_timeout } else { patience.keep_alive.unwrap_or(patience.head_timeout) };
        let sleep = match slot {
            Some(sleep) if !sleep.is_elapsed() => return false,
            Some(_) if seen == moves => return true,
            Some(sleep) => {
                sleep.as_mut().reset(Instant::now() + time);
                sleep
            }
            None => slot.insert(Box::pin(sleep(time))),
        };
        *seen = *moves;
        // Only to be woken when it is over, also where this connection has used up its turn.
        let _ = pin!(unconstrained(sleep.as_mut())).poll(context);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::time::timeout;

    use super::*;

    /// A connection whose client sends without a pause has no turn left when it first waits.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_used_up_its_turn_is_still_given_up_when_nothing_moves() {
        let second = Duration::from_secs(1);
        let patience = Patience { head_timeout: second, send_timeout: second, keep_alive: Some(second) };
        let mut idle = Idle::default();
        let mut first = true;
        let over = poll_fn(|context| {
            if std::mem::take(&mut first) {
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(context);
                }
            }
            if idle.is_over(patience, context) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(10 * second, over).await.expect("nobody woke it");
    }
}

//! The stream of a connection, which outlives the dispatcher that it is given to.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::handlers::Handlers;
use super::stream::ErrorRewritingStream;

/// An [`ErrorRewritingStream`] that the dispatcher has, and that lends its socket to the fast path.
#[derive(Clone)]
pub struct SharedStream(Rc<RefCell<ErrorRewritingStream>>);

impl SharedStream {
    pub fn new(stream: ErrorRewritingStream) -> Self {
        Self(Rc::new(RefCell::new(stream)))
    }

    /// As [`ErrorRewritingStream::handlers`].
    pub fn handlers(&self) -> Handlers {
        self.0.borrow().handlers()
    }

    /// As [`ErrorRewritingStream::may_return`].
    pub fn may_return(&self) -> bool {
        self.0.borrow().may_return()
    }

    /// As [`ErrorRewritingStream::poll_final_answer`].
    pub fn poll_final_answer(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.borrow_mut().poll_final_answer(context)
    }

    /// As [`ErrorRewritingStream::take_socket`].
    pub fn take_socket(&self) -> Option<(TcpStream, Vec<u8>)> {
        self.0.borrow_mut().take_socket()
    }

    /// As [`ErrorRewritingStream::put_socket`].
    pub fn put_socket(&self, socket: TcpStream, unread: &[u8]) {
        self.0.borrow_mut().put_socket(socket, unread);
    }

    fn poll<R>(&self, poll: impl FnOnce(Pin<&mut ErrorRewritingStream>) -> Poll<R>) -> Poll<R> {
        poll(Pin::new(&mut *self.0.borrow_mut()))
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(context))
    }
}

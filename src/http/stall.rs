//! Disconnects clients that take no byte of their answer.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendFlags, send};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

/// A write that waits for the client.
///
/// The socket becomes writable only when a third of its buffer is free, for which a slow reader may need longer than
/// the limit. TCP's user timeout (RFC 5482) does not work either: Linux counts from when the receiver's window closes
/// until it has space for a whole segment. So after the limit the bytes are written without waiting: whether the
/// kernel accepts any shows whether the client has taken any.
#[derive(Default)]
pub struct Stall(Option<Pin<Box<Sleep>>>);

impl Stall {
    /// Writes, as [`AsyncWrite::poll_write`] does. Fails if the client took nothing for one to two times `limit`.
    pub fn poll_write(
        &mut self,
        stream: &mut TcpStream,
        limit: Duration,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(context, bytes) {
            self.0 = None;
            return Poll::Ready(written);
        }
        let waiting = self.0.get_or_insert_with(|| Box::pin(sleep(limit)));
        // Unconstrained, so that it is woken at the limit even if this task has used up its budget.
        ready!(pin!(unconstrained(waiting.as_mut())).poll(context));
        self.0 = None;
        Poll::Ready(match send(&*stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => {
                // The kernel drops the buffered bytes at once.
                let _ = set_socket_linger(&*stream, Some(Duration::ZERO));
                Err(io::ErrorKind::TimedOut.into())
            }
            sent => sent.map_err(io::Error::from),
        })
    }
}

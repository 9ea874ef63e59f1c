//! Gives up clients that take no byte of their answer.

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
/// The socket tells that it is writable only when a third of its buffer is free, which a slow reader may take longer for than
/// the limit. TCP's user timeout (RFC 5482) is no measure either: Linux counts from when the receiver's window closes until
/// it has room for a whole segment. So when the limit has passed, the bytes are sent without asking: whether the kernel takes
/// any tells whether the client has taken any.
#[derive(Default)]
pub struct Stall(Option<Pin<Box<Sleep>>>);

impl Stall {
    /// Writes, as [`AsyncWrite::poll_write`] does; fails when the client took nothing for one to two times `limit`.
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
        // Only to be woken when it is over, also where this connection has used up its turn.
        ready!(pin!(unconstrained(waiting.as_mut())).poll(context));
        self.0 = None;
        Poll::Ready(match send(&*stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => {
                // What the kernel holds for the client is dropped at once.
                let _ = set_socket_linger(&*stream, Some(Duration::ZERO));
                Err(io::ErrorKind::TimedOut.into())
            }
            sent => sent.map_err(io::Error::from),
        })
    }
}

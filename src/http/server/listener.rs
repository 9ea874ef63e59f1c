//! A listening socket in a worker's runtime, whose connections are not in it yet.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How long a connection may be there without a byte before it is accepted.
const DEFERRED_SECONDS: libc::c_int = 1;

/// A connection that was accepted.
pub struct Accepted {
    pub socket: OwnedFd,
    pub peer: Option<SocketAddr>,
}

/// A listener. Tokio's own would register each connection with the runtime, and remove it again where it is over at once:
/// two system calls and an allocation.
pub struct Listener(AsyncFd<TcpListener>);

/// What came of accepting.
pub enum Acceptance {
    Connection(Accepted),
    /// The process has no descriptors or no memory for a further one.
    Failed(Errno),
    /// The runtime ends.
    Over,
}

impl Listener {
    /// # Errors
    /// When the runtime can't watch the socket.
    pub fn new(socket: TcpListener) -> io::Result<Self> {
        defer_accept(&socket);
        // SAFETY: a `TcpListener` owns its descriptor, and the `AsyncFd` owns the listener: nobody closes or replaces it before.
        #[allow(unsafe_code, reason = "tokio has no safe constructor of this type")]
        let listener = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self(listener))
    }

    /// Accepts one connection; ready as long as any waits.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Acceptance> {
        loop {
            let Ok(mut guard) = ready!(self.0.poll_read_ready(context)) else { return Poll::Ready(Acceptance::Over) };
            match self.accept() {
                Some(acceptance) => return Poll::Ready(acceptance),
                None => guard.clear_ready(),
            }
        }
    }

    /// Accepts one connection, if any waits.
    pub fn accept(&self) -> Option<Acceptance> {
        loop {
            match acceptfrom_with(self.0.get_ref(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Some(Acceptance::Connection(Accepted { socket, peer }));
                }
                Err(Errno::AGAIN) => return None,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Some(Acceptance::Failed(error));
                }
                // It concerns the one connection, which is gone.
                Err(_) => {}
            }
        }
    }
}

/// Has the kernel keep connections until their first bytes are there, or [`DEFERRED_SECONDS`] are over. So most requests can
/// be read when their connection is accepted, and no connection costs anything before its client says something.
fn defer_accept(socket: &TcpListener) {
    let seconds = DEFERRED_SECONDS;
    let length = size_of_val(&seconds).try_into().unwrap_or_default();
    // SAFETY: the descriptor is the listener's, and the kernel reads as many bytes as the integer has.
    #[allow(unsafe_code, reason = "neither rustix nor socket2 has this option")]
    let outcome = unsafe {
        let value = (&raw const seconds).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value, length)
    };
    if outcome != 0 {
        // Connections are accepted all the same, only earlier.
        tracing::debug!(error = %io::Error::last_os_error(), "can't defer the acceptance of connections");
    }
}

//! The last answer of a connection on its way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// Sends a last answer and waits until the client has read it; bounded by [`LINGER`].
pub struct FinalAnswer {
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

impl FinalAnswer {
    /// Makes `document` the last that is written to a connection.
    pub fn new(document: Vec<u8>) -> Self {
        Self { document, written: 0, stage: Stage::Writing, deadline: Box::pin(sleep(LINGER)), patience: LINGER_BYTES }
    }

    pub fn poll(&mut self, stream: &mut TcpStream, context: &mut Context<'_>) -> Poll<()> {
        if self.deadline.as_mut().poll(context).is_ready() {
            self.stage = Stage::Over;
        }
        let mut stream = Pin::new(stream);
        loop {
            self.stage = match self.stage {
                Stage::Writing if self.written == self.document.len() => {
                    let closed = ready!(stream.as_mut().poll_shutdown(context));
                    if closed.is_ok() { Stage::Lingering } else { Stage::Over }
                }
                Stage::Writing => {
                    let rest = &self.document[self.written..];
                    match ready!(stream.as_mut().poll_write(context, rest)) {
                        Ok(count @ 1..) => {
                            self.written += count;
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
                    self.patience = self.patience.saturating_sub(count);
                    if read.is_err() || count == 0 || self.patience == 0 { Stage::Over } else { Stage::Lingering }
                }
                Stage::Over => return Poll::Ready(()),
            }
        }
    }
}

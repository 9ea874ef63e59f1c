//! The thread of a worker: it accepts connections, and runs those that are not answered at once.

use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};

use super::connection::Connections;
use super::listener::{Acceptance, Accepted, Listener};
use crate::http::edge::Dispatcher;

/// Connections that are accepted in one turn. Then those that are open have theirs.
const ACCEPTED_AT_ONCE: usize = 32;
/// How long no connection is accepted when the process has no more descriptors or memory for one, or after a panic.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(500);
/// How often a full worker looks whether another one has room.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(50);

/// What a worker is told.
pub enum WorkerMessage {
    /// To serve a connection that another worker has accepted; it is counted already.
    Connection(Accepted),
    /// To accept no more connections.
    Stop,
}

/// A worker that was started.
pub struct WorkerThread {
    ended: oneshot::Receiver<()>,
}

impl WorkerThread {
    /// Starts one; `make` makes, in its thread, what serves its connections. `started` is told how that went.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start<D: Dispatcher>(
        number: usize,
        socket: TcpListener,
        inbox: UnboundedReceiver<WorkerMessage>,
        shutdown_timeout: Duration,
        make: impl AsyncFnOnce() -> io::Result<Connections<D>> + Send + 'static,
        started: mpsc::Sender<io::Result<()>>,
    ) -> io::Result<Self> {
        let (ends, ended) = oneshot::channel();
        let run = move || {
            // What is left of connections is dropped with it.
            let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async move {
                let worker = async {
                    let connections = Rc::new(make().await?);
                    let listener = Listener::new(socket)?;
                    io::Result::Ok(Worker { listener, inbox, connections, pause: None, next_look: None })
                };
                match worker.await {
                    Ok(worker) => {
                        let _ = started.send(Ok(()));
                        drop(started);
                        worker.run(shutdown_timeout).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
            drop(runtime);
            let _ = ends.send(());
        };
        std::thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
        Ok(Self { ended })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it has panicked.
    pub async fn ended(&mut self) -> io::Result<()> {
        (&mut self.ended).await.map_err(|_| io::Error::other("a worker of the public listener has panicked"))
    }
}

struct Worker<D> {
    listener: Listener,
    inbox: UnboundedReceiver<WorkerMessage>,
    connections: Rc<Connections<D>>,
    /// Until it is over, nothing is accepted.
    pause: Option<Pin<Box<Sleep>>>,
    /// When a full worker looks at the others again.
    next_look: Option<Pin<Box<Sleep>>>,
}

impl<D: Dispatcher> Worker<D> {
    /// Accepts connections until it is told to stop, and then waits for their end.
    async fn run(mut self, shutdown_timeout: Duration) {
        self.connections.start();
        // A worker that ends with a panic would be gone until the stop, with the connections in its socket's queue.
        poll_catching_panics(&mut self, Self::poll_accepting, Self::pause_after_panic).await;
        let Self { listener, mut inbox, connections, .. } = self;
        // Connections that have come until now are answered.
        while let Some(Acceptance::Connection(accepted)) = listener.accept() {
            connections.serve(accepted);
        }
        drop(listener);
        let closed = poll_fn(|context| {
            while let Poll::Ready(Some(message)) = inbox.poll_recv(context) {
                if let WorkerMessage::Connection(accepted) = message {
                    connections.serve_counted(accepted);
                }
            }
            connections.poll_all_closed(context)
        });
        // Those that are open after it are dropped with the runtime.
        let _ = timeout(shutdown_timeout, closed).await;
    }

    /// Serves what comes; ready when the worker is told to stop.
    fn poll_accepting(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(message) = self.inbox.poll_recv(context) {
            match message {
                Some(WorkerMessage::Connection(accepted)) => self.connections.serve_counted(accepted),
                Some(WorkerMessage::Stop) | None => return Poll::Ready(()),
            }
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            ready!(self.poll_room(context));
            match ready!(self.listener.poll_accept(context)) {
                Acceptance::Connection(accepted) => self.connections.place(accepted),
                Acceptance::Failed(error) => {
                    tracing::warn!(%error, "can't accept connections; trying again in 500 ms");
                    self.pause = Some(Box::pin(sleep(PAUSE_AFTER_ERROR)));
                }
                Acceptance::Over => return Poll::Ready(()),
            }
        }
        // The connections that are open have their turn.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn pause_after_panic(&mut self) {
        tracing::error!("a panic while accepting connections; going on in 500 ms");
        self.pause = Some(Box::pin(sleep(PAUSE_AFTER_ERROR)));
    }

    /// Ready when one more connection may be accepted.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        while !self.connections.balance.has_room() {
            // A connection of this worker wakes it when it closes; one of another worker does not.
            self.connections.wake_at_next_close(context);
            let next_look = self.next_look.get_or_insert_with(|| Box::pin(sleep(LOOK_FOR_ROOM_EVERY)));
            ready!(next_look.as_mut().poll(context));
            self.next_look = None;
        }
        Poll::Ready(())
    }
}

/// Ready when `poll` is, which is polled again after a panic.
async fn poll_catching_panics<W>(
    worker: &mut W,
    poll: fn(&mut W, &mut Context<'_>) -> Poll<()>,
    after_panic: fn(&mut W),
) {
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| poll(worker, context))).unwrap_or_else(|_| {
            after_panic(worker);
            context.waker().wake_by_ref();
            Poll::Pending
        })
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_goes_on_after_a_panic() {
        #[derive(Debug, Default, PartialEq)]
        struct Polls {
            all: u32,
            panicked: u32,
        }
        let poll = |polls: &mut Polls, _: &mut Context<'_>| {
            polls.all += 1;
            assert!(polls.all > 2, "a panic of the test");
            Poll::Ready(())
        };
        let mut polls = Polls::default();
        poll_catching_panics(&mut polls, poll, |polls| polls.panicked += 1).await;
        assert_eq!(polls, Polls { all: 3, panicked: 2 });
    }
}

//! How connections are shared among workers.
//!
//! The kernel gives each new connection to one of the sockets by a hash of its addresses. That is fair among many short
//! connections, but 64 long ones would be 26 for one of two workers and 38 for the other every tenth time. So a worker
//! that has many more connections than another gives it the next one. A worker that has none to spare looks at nobody.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use super::listener::Accepted;
use super::worker::WorkerMessage;

/// A worker with fewer connections than this hands none over. Others hand one over only if another worker has at least this many fewer.
const FEW: usize = 4;

/// What others see of a worker. On cache lines of its own: it is written for each connection.
#[repr(align(128))]
struct Load {
    connections: AtomicUsize,
    sender: UnboundedSender<WorkerMessage>,
}

/// All workers.
#[derive(Clone)]
pub struct Workers {
    loads: Arc<[Load]>,
    max_connections: usize,
}

impl Workers {
    pub fn new(senders: Vec<UnboundedSender<WorkerMessage>>, max_connections: usize) -> Self {
        let load = |sender| Load { connections: AtomicUsize::new(0), sender };
        Self { loads: senders.into_iter().map(load).collect(), max_connections }
    }

    /// The worker of that number among the others.
    pub fn balance_of(&self, own: usize) -> Balance {
        Balance { workers: self.clone(), own, next: Cell::new(own) }
    }

    pub fn send_all(&self, message: impl Fn() -> WorkerMessage) {
        for load in &*self.loads {
            // A worker that has ended needs no message.
            let _ = load.sender.send(message());
        }
    }

    pub fn connections(&self) -> Vec<usize> {
        self.loads.iter().map(|load| load.connections.load(Ordering::Relaxed)).collect()
    }
}

/// One worker among the others.
pub struct Balance {
    workers: Workers,
    own: usize,
    /// Who was looked at last.
    next: Cell<usize>,
}

impl Balance {
    fn own(&self) -> &Load {
        &self.workers.loads[self.own]
    }

    /// Whether this worker, or another one in its place, may have one more connection.
    pub fn has_room(&self) -> bool {
        let max = self.workers.max_connections;
        self.own_connections() < max
            || self.workers.loads.iter().any(|load| load.connections.load(Ordering::Relaxed) < max)
    }

    /// Counts a connection of this worker's, from now to [`closed`](Self::closed).
    pub fn opened(&self) {
        self.own().connections.fetch_add(1, Ordering::Relaxed);
    }

    pub fn closed(&self) {
        self.own().connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn own_connections(&self) -> usize {
        self.own().connections.load(Ordering::Relaxed)
    }

    /// Chooses who serves a connection. `None`: another worker, to which it was sent.
    ///
    /// Where several workers choose the same one at once, it has a few more than it may.
    pub fn place(&self, accepted: Accepted) -> Option<Accepted> {
        let Workers { loads, max_connections } = &self.workers;
        let mine = self.own_connections();
        if loads.len() == 1 || mine < FEW {
            return Some(accepted);
        }
        if mine >= *max_connections {
            let mut others = (1..loads.len()).map(|_| self.next_other());
            return match others.find(|load| load.connections.load(Ordering::Relaxed) < *max_connections) {
                Some(other) => Self::send(other, accepted),
                None => Some(accepted),
            };
        }
        // One other at a time: to look at all of them would cost each worker the cache lines of all.
        let other = self.next_other();
        let theirs = other.connections.load(Ordering::Relaxed);
        if theirs + theirs / 8 + FEW <= mine { Self::send(other, accepted) } else { Some(accepted) }
    }

    fn next_other(&self) -> &Load {
        let count = self.workers.loads.len();
        let mut next = (self.next.get() + 1) % count;
        if next == self.own {
            next = (next + 1) % count;
        }
        self.next.set(next);
        &self.workers.loads[next]
    }

    fn send(other: &Load, accepted: Accepted) -> Option<Accepted> {
        // Counted before it arrives, so that others see at once that it comes.
        other.connections.fetch_add(1, Ordering::Relaxed);
        match other.sender.send(WorkerMessage::Connection(accepted)) {
            Err(SendError(WorkerMessage::Connection(accepted))) => {
                other.connections.fetch_sub(1, Ordering::Relaxed);
                Some(accepted)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn accepted() -> Accepted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Accepted { socket: stream.into(), peer: None }
    }

    /// Places `count` connections that all stay open, as the kernel might give them: all to the first worker.
    fn placed(count: usize, workers: usize, max_connections: usize) -> (Vec<usize>, usize) {
        let (senders, _inboxes): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        let workers = Workers::new(senders, max_connections);
        let first = workers.balance_of(0);
        let mut refused = 0;
        for _ in 0..count {
            if !first.has_room() {
                refused += 1;
            } else if first.place(accepted()).is_some() {
                first.opened();
            }
        }
        (workers.connections(), refused)
    }

    #[test]
    fn connections_that_stay_are_shared_though_the_kernel_gives_all_to_one() {
        let (connections, refused) = placed(200, 4, 1_000);
        assert_eq!((connections.iter().sum::<usize>(), refused), (200, 0));
        assert!(connections.iter().all(|&count| (40..=60).contains(&count)), "{connections:?}");
    }

    #[test]
    fn a_few_connections_stay_where_they_came() {
        assert_eq!(placed(4, 4, 1_000).0, [4, 0, 0, 0]);
    }

    #[test]
    fn each_worker_has_at_most_its_number_and_all_places_are_used() {
        assert_eq!(placed(35, 3, 10), (vec![10, 10, 10], 5));
        assert_eq!(placed(4, 1, 3), (vec![3], 1));
    }

    #[test]
    fn a_connection_that_closes_makes_room() {
        let (sender, _inbox) = unbounded_channel();
        let only = Workers::new(vec![sender], 1).balance_of(0);
        only.opened();
        assert!(!only.has_room());
        only.closed();
        assert!(only.has_room());
    }
}

//! A load generator whose schedule is fixed in advance: a request is due when it is due, whether the server keeps up or not,
//! and its time counts from then on (so there is no coordinated omission). In the manner of wrk2.
//!
//! A process of its own, for it stays on a core of its own and never sleeps. A due request takes whichever connection is
//! idle; where none is, it waits, and that counts as the server's time. What counts as the generator's own lateness is the
//! time from when a request was due and a connection idle until it was sent.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream};

use crate::{
    http,
    measure::{self, Figures},
    requests::read_texts,
    way::{Side, Way},
};

pub const ROLE: &str = "role-open-loop";
const CONNECTIONS: usize = 64;
/// Before what is measured, for connections and caches.
const WARM_UP_SECONDS: f64 = 0.5;
/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Later than this, in more than one request of a hundred, the schedule was not kept.
const MOST_LATE_MILLIS: f64 = 0.5;

/// What a run came to. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Those of the warm-up too.
    pub answered: u64,
    /// p50, p99, p99.9 and the longest, from when a request was due to its whole answer.
    pub percentiles: [f64; 4],
    /// p99 of how late the generator itself was.
    pub late: f64,
}

/// Sends `per_second` requests a second for `seconds`; each answer must have `status`.
pub fn run(address: SocketAddr, texts: &Path, per_second: f64, seconds: f64, status: u16) -> Result<Kept, String> {
    let mut command = Way::Pinned.command(Side::Generator, std::env::current_exe().unwrap());
    command.arg(ROLE).arg(address.to_string()).arg(texts);
    command.args([per_second.to_string(), seconds.to_string(), status.to_string()]);
    let [answered, p50, p99, p999, longest, late] =
        measure::numbers_of(&mut command).map_err(|said| format!("the load generator failed: {said}"))?;
    Ok(Kept { answered: answered as u64, percentiles: [p50, p99, p999, longest], late })
}

impl Kept {
    /// Combines runs of the same length: the median of each percentile, and the longest of all.
    #[must_use]
    pub fn of(pieces: &[Self]) -> Self {
        let most = |of: fn(&Self) -> f64| pieces.iter().map(of).fold(0.0, f64::max);
        let [p50, p99, p999] = [0, 1, 2].map(|at| Figures::of(pieces, |kept| kept.percentiles[at]).median());
        Self {
            answered: pieces.iter().map(|kept| kept.answered).sum(),
            percentiles: [p50, p99, p999, most(|kept| kept.percentiles[3])],
            late: most(|kept| kept.late),
        }
    }

    /// `Err` where the figures say more of the generator than of the server.
    pub fn check(&self, title: &str) -> Result<(), String> {
        if self.late > MOST_LATE_MILLIS {
            return Err(format!("{title}: the load generator did not keep its schedule: p99 {:.2} ms late", self.late));
        }
        Ok(())
    }
}

// ------------------------------------------------------------------ in the process itself

struct Connection {
    stream: TcpStream,
    /// When the request under way was due, since the beginning.
    due: Option<Duration>,
    answer: Vec<u8>,
}

struct Generator {
    texts: Vec<Vec<u8>>,
    status: u16,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    begun: Instant,
    /// Since when a connection is idle.
    idle_since: Duration,
    /// What is due earlier is not recorded.
    record_from: Duration,
    answered: u64,
    latency: Histogram<u64>,
    late: Histogram<u64>,
}

/// In the child.
pub fn serve(arguments: &[String]) {
    let [address, texts, per_second, seconds, status] = arguments else { panic!("{arguments:?}") };
    let (per_second, seconds): (f64, f64) = (per_second.parse().unwrap(), seconds.parse().unwrap());
    let address: SocketAddr = address.parse().unwrap();
    let texts = read_texts(Path::new(texts));
    let mut poll = Poll::new().unwrap();
    let connections: Vec<_> = (0..CONNECTIONS).map(|token| connect(&poll, address, token)).collect();
    let mut generator = Generator {
        texts,
        status: status.parse().unwrap(),
        connections,
        idle: (0..CONNECTIONS).collect(),
        begun: Instant::now(),
        idle_since: Duration::ZERO,
        record_from: Duration::from_secs_f64(WARM_UP_SECONDS),
        answered: 0,
        latency: measure::nanoseconds(),
        late: measure::nanoseconds(),
    };
    let requests = (per_second * (WARM_UP_SECONDS + seconds)) as u64;
    generator.run(&mut poll, per_second, requests);
    let millis = |histogram: &Histogram<u64>, q| histogram.value_at_quantile(q) as f64 / 1e6;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| millis(&generator.latency, q));
    let (longest, late) = (generator.latency.max() as f64 / 1e6, millis(&generator.late, 0.99));
    println!("{} {p50} {p99} {p999} {longest} {late}", generator.answered);
}

fn connect(poll: &Poll, address: SocketAddr, token: usize) -> Connection {
    let stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut stream = TcpStream::from_std(stream);
    poll.registry().register(&mut stream, Token(token), Interest::READABLE).unwrap();
    Connection { stream, due: None, answer: Vec::with_capacity(64 * 1024) }
}

impl Generator {
    fn run(&mut self, poll: &mut Poll, per_second: f64, requests: u64) {
        let mut events = Events::with_capacity(CONNECTIONS);
        let mut sent = 0;
        self.begun = Instant::now();
        let due = |request: u64| Duration::from_secs_f64(request as f64 / per_second);
        while self.answered < requests {
            let now = self.begun.elapsed();
            while sent < requests && due(sent) <= now && !self.idle.is_empty() {
                self.send(sent, due(sent));
                sent += 1;
            }
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            for event in &events {
                self.receive(event.token().0);
            }
            if events.is_empty() {
                // Others on this core, such as a receiver of webhooks, get their turn at once.
                std::thread::yield_now();
            }
            assert!(now < due(requests) + PATIENCE, "{} of {requests} requests were answered", self.answered);
        }
    }

    fn send(&mut self, request: u64, due: Duration) {
        let token = self.idle.pop_front().unwrap();
        let text = &self.texts[request as usize % self.texts.len()];
        let connection = &mut self.connections[token];
        // A request is far smaller than the socket's buffer, which is empty.
        assert_eq!(connection.stream.write(text).unwrap(), text.len(), "a request is sent at once");
        connection.due = Some(due);
        if due >= self.record_from {
            let late = self.begun.elapsed().saturating_sub(due.max(self.idle_since));
            self.late.saturating_record(late.as_nanos() as u64);
        }
    }

    fn receive(&mut self, token: usize) {
        let connection = &mut self.connections[token];
        let mut piece = [0; 16 * 1024];
        loop {
            match connection.stream.read(&mut piece) {
                Ok(0) => panic!("the server closed a connection"),
                Ok(read) => connection.answer.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let whole =
            http::lengths(&connection.answer).is_some_and(|(head, body)| connection.answer.len() == head + body);
        if !whole {
            return;
        }
        assert_eq!(http::status(&connection.answer), self.status, "the status of an answer");
        connection.answer.clear();
        let (now, due) = (self.begun.elapsed(), connection.due.take().expect("a request was under way"));
        if due >= self.record_from {
            self.latency.saturating_record(now.saturating_sub(due).as_nanos() as u64);
        }
        self.answered += 1;
        if self.idle.is_empty() {
            self.idle_since = now;
        }
        self.idle.push_back(token);
    }
}

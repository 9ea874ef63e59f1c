//! A load generator in a closed loop: the next request is sent when the answer to the one before is there, so requests come as fast as
//! answers do. For each request it makes one `read` and one `write`, reads the clock twice and looks for the end of the answer. So
//! the server, and not the generator, is meant to limit the throughput.
//!
//! A process of its own: its CPU time is known, and where it is pinned it has a core of its own.

use std::{
    collections::VecDeque,
    fs,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream};

use crate::{
    http, measure,
    requests::{APART, FRESH, FRESH_ID_LENGTH, Load, read_texts},
    way::{Side, Way},
};

pub const ROLE: &str = "role-closed-loop";
/// Requests under way at once.
pub const CONNECTIONS: u64 = 64;
/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub requests: u64,
    pub micros: u64,
    /// CPU time of the generator itself, in microseconds.
    pub own_cpu: u64,
    /// Connections that failed and answers that did not come.
    pub socket_errors: u64,
    /// Answers with a status of 400 and above.
    pub refused: u64,
    /// p50, p99 and p99.9 in microseconds, of these requests and of those that were under way at the end. In a closed loop a slow answer holds up the requests that would have met the
    /// same, so these flatter.
    pub percentiles: [f64; 3],
}

/// Loads `address` for `seconds`; `first` is the first of the load's fresh ids to be sent. `closing` says that the server closes a
/// connection after its answer.
pub fn run(way: Way, address: SocketAddr, load: &Load, seconds: u32, first: u64, closing: bool) -> Answered {
    let mut command = way.command(Side::Generator, std::env::current_exe().unwrap());
    let threads = if way.is_pinned() { 1 } else { 2 };
    command.arg(ROLE).arg(address.to_string()).args([seconds, threads].map(|number| number.to_string()));
    command.arg(closing.to_string()).arg(&load.texts);
    if let Some(ids) = &load.ids {
        command.arg(ids).arg(first.to_string());
    }
    let before = measure::cpu_of_ended_children();
    let [requests, micros, socket_errors, refused, p50, p99, p999] =
        measure::numbers_of(&mut command).unwrap_or_else(|said| panic!("the load generator failed: {said}"));
    Answered {
        own_cpu: measure::cpu_of_ended_children() - before,
        requests: requests as u64,
        micros: micros as u64,
        socket_errors: socket_errors as u64,
        refused: refused as u64,
        percentiles: [p50, p99, p999],
    }
}

// ------------------------------------------------------------------ in the process itself

/// A request made in advance.
struct Text {
    bytes: Vec<u8>,
    /// Where [`FRESH`] stands.
    fresh: Option<usize>,
    /// Whether it goes over a connection that only such requests use.
    is_apart: bool,
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        let apart = bytes.strip_prefix(&[APART as u8]);
        let bytes = apart.unwrap_or(bytes).to_vec();
        Self { fresh: bytes.iter().position(|byte| *byte == FRESH as u8), is_apart: apart.is_some(), bytes }
    }
}

/// Requests, in turns.
#[derive(Clone)]
struct Texts {
    requests: Arc<[Text]>,
    next: usize,
    /// In the place of [`FRESH`], one after the other.
    ids: Arc<[u8]>,
    next_id: usize,
}

impl Texts {
    /// Threads begin at different places.
    fn of_thread(&self, number: usize) -> Self {
        let next = number * self.requests.len() / 7;
        let ids = self.ids.len() / FRESH_ID_LENGTH;
        let next_id = if ids == 0 { 0 } else { (self.next_id + number * ids / 2) % ids };
        Self { next, next_id, ..self.clone() }
    }

    /// Puts the next one into `out`, and returns whether it goes apart.
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        let Text { bytes, fresh, is_apart } = &self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        out.clear();
        let Some(fresh) = *fresh else {
            out.extend_from_slice(bytes);
            return *is_apart;
        };
        let at = self.next_id * FRESH_ID_LENGTH;
        self.next_id = (self.next_id + 1) % (self.ids.len() / FRESH_ID_LENGTH);
        out.extend_from_slice(&bytes[..fresh]);
        out.extend_from_slice(&self.ids[at..at + FRESH_ID_LENGTH]);
        out.extend_from_slice(&bytes[fresh + 1..]);
        *is_apart
    }
}

struct Connection {
    stream: TcpStream,
    /// When the request under way was sent.
    sent_at: Option<Instant>,
    /// What is there of an answer that came in pieces.
    answer: Vec<u8>,
}

/// Results of a thread.
struct Tally {
    answered: u64,
    refused: u64,
    socket_errors: u64,
    latency: Histogram<u64>,
}

struct Generator {
    address: SocketAddr,
    closing: bool,
    texts: Texts,
    poll: Poll,
    /// Requests under way at once.
    under_way: usize,
    /// Those for requests that go apart are in the second half.
    connections: Vec<Connection>,
    /// Connections that wait for nothing: the usual ones, and those for requests that go apart. The one that has waited longest comes
    /// first: all are used alike, and none only because what the server keeps of it is still in its caches.
    idle: [VecDeque<usize>; 2],
    request: Vec<u8>,
    /// Whether nothing is sent any more.
    is_over: bool,
    tally: Tally,
}

/// In the child.
pub fn serve(arguments: &[String]) {
    let [address, seconds, threads, closing, texts, ids @ ..] = arguments else { panic!("{arguments:?}") };
    let (address, seconds): (SocketAddr, u64) = (address.parse().unwrap(), seconds.parse().unwrap());
    let (threads, closing): (usize, bool) = (threads.parse().unwrap(), closing.parse().unwrap());
    let requests = read_texts(Path::new(texts)).iter().map(|text| Text::of(text)).collect();
    let (ids, first) = match ids {
        [ids, first] => (fs::read(ids).unwrap(), first.parse().unwrap()),
        _ => (Vec::new(), 0),
    };
    let texts = Texts { requests, next: 0, next_id: first, ids: ids.into() };
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let run = |number| {
            let texts = texts.of_thread(number);
            scope.spawn(move || Generator::begin(address, closing, texts, CONNECTIONS as usize / threads).run(until))
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let micros = seconds * 1_000_000;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let mut latency = measure::nanoseconds();
    for tally in &tallies {
        latency.add(&tally.latency).unwrap();
    }
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| latency.value_at_quantile(q) as f64 / 1e3);
    let [answered, errors, refused] = [sum(|of| of.answered), sum(|of| of.socket_errors), sum(|of| of.refused)];
    println!("{answered} {micros} {errors} {refused} {p50} {p99} {p999}");
}

fn connect(poll: &Poll, address: SocketAddr, token: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    poll.registry().register(&mut stream, Token(token), Interest::READABLE).unwrap();
    stream
}

impl Generator {
    fn begin(address: SocketAddr, closing: bool, texts: Texts, under_way: usize) -> Self {
        let poll = Poll::new().unwrap();
        let kinds = if texts.requests.iter().any(|text| text.is_apart) { 2 } else { 1 };
        let connection = |token| {
            let stream = connect(&poll, address, token);
            Connection { stream, sent_at: None, answer: Vec::new() }
        };
        let connections: Vec<_> = (0..kinds * under_way).map(connection).collect();
        let idle = [(0..under_way).collect(), (under_way..connections.len()).collect()];
        let tally = Tally { answered: 0, refused: 0, socket_errors: 0, latency: measure::nanoseconds() };
        Self { address, closing, texts, poll, under_way, connections, idle, request: Vec::new(), is_over: false, tally }
    }

    fn run(mut self, until: Instant) -> Tally {
        for _ in 0..self.under_way {
            self.send();
        }
        let mut piece = vec![0; 64 * 1024];
        self.receive_until(until, &mut piece);
        self.is_over = true;
        self.receive_until(until + PATIENCE, &mut piece);
        self.tally.socket_errors += self.waiting() as u64;
        self.tally
    }

    fn waiting(&self) -> usize {
        self.connections.len() - self.idle.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Goes on until then, or until no answer is due.
    fn receive_until(&mut self, until: Instant, piece: &mut [u8]) {
        let mut events = Events::with_capacity(self.connections.len());
        while self.waiting() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match self.poll.poll(&mut events, Some(left)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.unwrap(),
            }
            for event in &events {
                self.receive(event.token().0, piece);
            }
        }
    }

    /// Sends the next request over a connection that waits for nothing: there are as many of each kind as requests under way. On this
    /// machine a connection is there when `connect` has returned.
    fn send(&mut self) {
        let is_apart = self.texts.next(&mut self.request);
        let token = self.idle[usize::from(is_apart)].pop_front().expect("a connection waits for nothing");
        let connection = &mut self.connections[token];
        connection.sent_at = Some(Instant::now());
        // A request is far smaller than the socket's buffer, which is empty.
        let sent = connection.stream.write(&self.request);
        assert_eq!(sent.unwrap(), self.request.len(), "a request is sent at once");
    }

    /// Reads what is there. A read that does not fill the buffer has taken all: what comes later is told as a new event.
    fn receive(&mut self, token: usize, piece: &mut [u8]) {
        loop {
            let Connection { stream, sent_at, answer } = &mut self.connections[token];
            let read = match stream.read(piece) {
                Ok(read) if read > 0 => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => return self.lose(token),
            };
            let Some(sent) = *sent_at else { return self.lose(token) };
            let mut whole = &piece[..read];
            if !answer.is_empty() {
                answer.extend_from_slice(whole);
                whole = answer;
            }
            if let Some((head, body)) = http::lengths(whole)
                && whole.len() >= head + body
            {
                assert_eq!(whole.len(), head + body, "an answer that was not asked for");
                assert!(!self.closing || closes(&whole[..head]), "the server keeps the connection");
                let took = sent.elapsed();
                self.tally.latency.saturating_record(took.as_nanos() as u64);
                self.tally.socket_errors += u64::from(took > PATIENCE);
                if !self.is_over {
                    self.tally.answered += 1;
                    self.tally.refused += u64::from(http::status(whole) >= 400);
                }
                answer.clear();
                *sent_at = None;
                if self.closing {
                    self.connect_anew(token);
                }
                self.idle[token / self.under_way].push_back(token);
                if !self.is_over {
                    self.send();
                }
                return;
            }
            if answer.is_empty() {
                answer.extend_from_slice(&piece[..read]);
            }
            if read < piece.len() {
                return;
            }
        }
    }

    /// A connection has ended that was to be kept. Where it was idle, the server may do that.
    fn lose(&mut self, token: usize) {
        self.connect_anew(token);
        if self.connections[token].sent_at.take().is_some() {
            self.tally.socket_errors += 1;
            self.idle[token / self.under_way].push_back(token);
            if !self.is_over {
                self.send();
            }
        }
    }

    fn connect_anew(&mut self, token: usize) {
        let connection = &mut self.connections[token];
        connection.stream = connect(&self.poll, self.address, token);
        connection.answer.clear();
    }
}

/// Whether the server says that it closes the connection.
fn closes(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n').any(|line| line.trim_ascii().eq_ignore_ascii_case(b"connection: close"))
}

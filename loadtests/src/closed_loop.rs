//! A load generator in a closed loop: a connection sends its next request when it has the answer, so requests come as fast as
//! answers do. It does one `read` and one `write` for a request and looks for the end of the answer, and nothing else, so that the
//! server is the one of the two that has no rest.
//!
//! A process of its own: its CPU time is known, and it stays on a core of its own.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream};

use crate::{
    http, measure,
    requests::{APART, FRESH, FRESH_ID_LENGTH, Load},
    way::{Side, Way},
};

pub const ROLE: &str = "role-closed-loop";
/// Requests under way at once.
pub const CONNECTIONS: u64 = 64;
/// An answer that takes longer is one that did not come.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a run came to.
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
    /// p50, p99 and p99.9 in microseconds. In a closed loop a slow answer holds up the requests that would have met the
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
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [requests, micros, socket_errors, refused, p50, p99, p999] = numbers[..] else {
        panic!("the load generator failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    };
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
#[derive(Clone)]
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
    requests: Vec<Text>,
    next: usize,
    /// In the place of [`FRESH`], one after the other.
    ids: Vec<u8>,
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

    /// Puts the next one into `out`, and answers whether it goes over a connection of another kind.
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
    sent_at: Instant,
    /// What is there of an answer that came in pieces.
    answer: Vec<u8>,
}

/// What a thread came to.
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
    /// Connections that wait for nothing: the usual ones, and those for requests that go apart.
    idle: [Vec<usize>; 2],
    request: Vec<u8>,
    tally: Tally,
}

/// In the child.
pub fn serve(arguments: &[String]) {
    let [address, seconds, threads, closing, texts, ids @ ..] = arguments else { panic!("{arguments:?}") };
    let (address, seconds): (SocketAddr, u64) = (address.parse().unwrap(), seconds.parse().unwrap());
    let (threads, closing): (usize, bool) = (threads.parse().unwrap(), closing.parse().unwrap());
    let texts = fs::read(texts).unwrap();
    let requests = texts.split(|&byte| byte == 0).filter(|text| !text.is_empty()).map(Text::of).collect();
    let (ids, first) = match ids {
        [ids, first] => (fs::read(ids).unwrap(), first.parse().unwrap()),
        _ => (Vec::new(), 0),
    };
    let texts = Texts { requests, next: 0, next_id: first, ids };
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
    let micros = begun.elapsed().as_micros();
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let mut latency = nanoseconds();
    for tally in &tallies {
        latency.add(&tally.latency).unwrap();
    }
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| latency.value_at_quantile(q) as f64 / 1e3);
    let [answered, errors, refused] = [sum(|of| of.answered), sum(|of| of.socket_errors), sum(|of| of.refused)];
    println!("{answered} {micros} {errors} {refused} {p50} {p99} {p999}");
}

fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap()
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
            Connection { stream, sent_at: Instant::now(), answer: Vec::new() }
        };
        let connections: Vec<_> = (0..kinds * under_way).map(connection).collect();
        let idle = [(0..under_way).collect(), (under_way..connections.len()).collect()];
        let tally = Tally { answered: 0, refused: 0, socket_errors: 0, latency: nanoseconds() };
        Self { address, closing, texts, poll, under_way, connections, idle, request: Vec::new(), tally }
    }

    fn run(mut self, until: Instant) -> Tally {
        for _ in 0..self.under_way {
            self.send();
        }
        let mut events = Events::with_capacity(self.connections.len());
        let mut piece = vec![0; 64 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.poll.poll(&mut events, Some(left)).unwrap();
            for event in &events {
                self.receive(event.token().0, &mut piece);
            }
        }
        let waits = |token: &usize| !self.idle.iter().flatten().any(|idle| idle == token);
        let is_late = |token: &usize| waits(token) && self.connections[*token].sent_at.elapsed() > PATIENCE;
        self.tally.socket_errors += (0..self.connections.len()).filter(is_late).count() as u64;
        self.tally
    }

    /// Sends the next request over a connection that waits for nothing: there are as many of each kind as requests under way. On this
    /// machine a connection is there when `connect` has returned.
    fn send(&mut self) {
        let is_apart = self.texts.next(&mut self.request);
        let token = self.idle[usize::from(is_apart)].pop().expect("a connection waits for nothing");
        let connection = &mut self.connections[token];
        connection.sent_at = Instant::now();
        // A request is far smaller than the socket's buffer, which is empty.
        match connection.stream.write(&self.request) {
            Ok(sent) => assert_eq!(sent, self.request.len(), "a request is sent at once"),
            Err(_) => self.tally.socket_errors += 1,
        }
    }

    /// Reads what is there. A read that does not fill the buffer has taken all: what comes later is told as a new event.
    fn receive(&mut self, token: usize, piece: &mut [u8]) {
        loop {
            let Connection { stream, sent_at, answer } = &mut self.connections[token];
            let read = match stream.read(piece) {
                Ok(read) if read > 0 => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => {
                    self.tally.socket_errors += 1;
                    self.connect_anew(token);
                    return self.send_after(token);
                }
            };
            let mut whole = &piece[..read];
            if !answer.is_empty() {
                answer.extend_from_slice(whole);
                whole = answer;
            }
            if http::lengths(whole).is_some_and(|(head, body)| whole.len() == head + body) {
                self.tally.answered += 1;
                self.tally.refused += u64::from(http::status(whole) >= 400);
                self.tally.latency.saturating_record(sent_at.elapsed().as_nanos() as u64);
                answer.clear();
                if self.closing {
                    self.connect_anew(token);
                }
                return self.send_after(token);
            }
            if answer.is_empty() {
                answer.extend_from_slice(&piece[..read]);
            }
            if read < piece.len() {
                return;
            }
        }
    }

    /// Sends the next request when that over `token` has ended.
    fn send_after(&mut self, token: usize) {
        self.idle[token / self.under_way].push(token);
        self.send();
    }

    fn connect_anew(&mut self, token: usize) {
        let connection = &mut self.connections[token];
        connection.stream = connect(&self.poll, self.address, token);
        connection.answer.clear();
    }
}

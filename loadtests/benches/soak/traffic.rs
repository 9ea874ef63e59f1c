//! The load generator: mixed traffic by a schedule that does not wait for the server, over connections that are made anew
//! when they are cut; every request is accounted for.
//!
//! Requests for short ids and those to the API have connections of their own, so that the ones are not held up by what the
//! others wait for. What finds no idle connection within a second from when it was due is not sent, and counted as that.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use loadtests::{http, seed::target};
use mio::{Events, Interest, Poll, Token, net::TcpStream};

use super::{
    ledger::{Asked, Creation, Ledger, Tally},
    mix::{Ask, Mix, Rates},
    scene::LIMITED,
};

const REDIRECT_CONNECTIONS: usize = 48;
const API_CONNECTIONS: usize = 16;
/// How long a request that is due waits for a connection.
const SENT_WITHIN: Duration = Duration::from_secs(1);
/// Longer than any time limit of the server's.
const ANSWERED_WITHIN: Duration = Duration::from_secs(40);
/// A keyed request that is not answered so long after its body has arrived is answered 503.
const TIME_IS_UP: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_millis(200);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(1);

/// How fast requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The next one of a connection when it has its answer, to see what the server can do.
    Closed,
    Fixed(Rates),
}

/// What happened in one second.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Since the traffic began.
    pub at: f64,
    /// Answered, with whatever status: short ids, and the API.
    pub redirects: u64,
    pub api: u64,
    /// Answered 429, and 403.
    pub limited: u64,
    pub refused: u64,
    /// Answered 5xx.
    pub failed: u64,
    /// Sent and not answered.
    pub cut: u64,
    /// Due and not sent.
    pub unsent: u64,
    /// p50 and p99 of redirects, p99 of the API, in milliseconds from when they were due.
    pub latency: [f64; 3],
}

impl Second {
    /// Requests that did not get the answer that was due to them.
    pub fn errors(&self) -> u64 {
        self.failed + self.cut + self.unsent
    }
}

/// Traffic under way.
pub struct Traffic {
    thread: JoinHandle<Ledger>,
    stop: Arc<AtomicBool>,
    pub seconds: Arc<Mutex<Vec<Second>>>,
    pub begun: Instant,
}

impl Traffic {
    pub fn begin(address: SocketAddr, mix: Mix, pace: Pace) -> Self {
        let (stop, seconds, begun) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Second>>>::default(), Instant::now());
        let (told, told_seconds) = (Arc::clone(&stop), Arc::clone(&seconds));
        let thread = std::thread::spawn(move || {
            let mut generator = Generator::new(address, mix, pace, begun, told_seconds);
            generator.run(&told);
            generator.ledger
        });
        Self { thread, stop, seconds, begun }
    }

    /// Sends no more, and waits for the answers that are due.
    pub fn end(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A request under way.
struct UnderWay {
    ask: Ask,
    /// The number of a creation.
    number: usize,
    due: Duration,
    sent: Duration,
}

struct Connection {
    /// Index of its lane.
    lane: usize,
    stream: Option<TcpStream>,
    under_way: Option<UnderWay>,
    answer: Vec<u8>,
}

/// Connections for one sort of requests.
struct Lane {
    /// Requests a second; `None` where each follows the one before.
    rate: Option<f64>,
    idle: VecDeque<usize>,
    /// Requests sent, or given up.
    next: u64,
    latency: Histogram<u64>,
}

impl Lane {
    fn due(&self) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(self.next as f64 / rate))
    }
}

struct Generator {
    address: SocketAddr,
    mix: Mix,
    poll: Poll,
    begun: Instant,
    connections: Vec<Connection>,
    /// For short ids, and for the API.
    lanes: [Lane; 2],
    /// Connections to be made, and when.
    broken: VecDeque<(Duration, usize)>,
    ledger: Ledger,
    second: Second,
    seconds: Arc<Mutex<Vec<Second>>>,
}

impl Generator {
    fn new(address: SocketAddr, mix: Mix, pace: Pace, begun: Instant, seconds: Arc<Mutex<Vec<Second>>>) -> Self {
        let rates = match pace {
            Pace::Closed => [None; 2],
            Pace::Fixed(rates) => [Some(rates.redirects), Some(rates.api)],
        };
        let latency = Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap();
        let lane = |rate| Lane { rate, idle: VecDeque::new(), next: 0, latency: latency.clone() };
        let new = |lane| Connection { lane, stream: None, under_way: None, answer: Vec::with_capacity(16 * 1024) };
        let connections: Vec<_> = (0..REDIRECT_CONNECTIONS + API_CONNECTIONS)
            .map(|at| new(usize::from(at >= REDIRECT_CONNECTIONS)))
            .collect();
        let broken = (0..connections.len()).map(|at| (Duration::ZERO, at)).collect();
        let ledger = Ledger { links: vec![Tally::default(); mix.links()], ..Ledger::default() };
        let (poll, lanes) = (Poll::new().unwrap(), rates.map(lane));
        Self { address, mix, poll, begun, connections, lanes, broken, ledger, second: Second::default(), seconds }
    }

    fn run(&mut self, stop: &AtomicBool) {
        let mut events = Events::with_capacity(256);
        while !stop.load(Ordering::Relaxed) {
            self.connect();
            self.send_due();
            self.turn(&mut events);
        }
        while self.connections.iter().any(|connection| connection.under_way.is_some()) {
            self.turn(&mut events);
        }
    }

    fn turn(&mut self, events: &mut Events) {
        match self.poll.poll(events, Some(TICK)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
            polled => polled.unwrap(),
        }
        for event in &*events {
            self.receive(event.token().0);
        }
        if self.begun.elapsed().as_secs_f64() >= self.second.at + 1.0 {
            self.end_second();
        }
    }

    fn end_second(&mut self) {
        let millis = |histogram: &Histogram<u64>, q| histogram.value_at_quantile(q) as f64 / 1e6;
        let [redirects, api] = &mut self.lanes;
        self.second.latency =
            [millis(&redirects.latency, 0.5), millis(&redirects.latency, 0.99), millis(&api.latency, 0.99)];
        redirects.latency.reset();
        api.latency.reset();
        let next = Second { at: self.second.at + 1.0, ..Second::default() };
        self.seconds.lock().unwrap().push(std::mem::replace(&mut self.second, next));
        let now = self.begun.elapsed();
        for at in 0..self.connections.len() {
            if self.connections[at].under_way.as_ref().is_some_and(|one| now > one.sent + ANSWERED_WITHIN) {
                self.cut(at);
            }
        }
    }

    fn connect(&mut self) {
        let now = self.begun.elapsed();
        while let Some(&(_, at)) = self.broken.front().filter(|(due, _)| *due <= now) {
            self.broken.pop_front();
            let Ok(stream) = std::net::TcpStream::connect_timeout(&self.address, CONNECT_WITHIN) else {
                self.broken.push_back((now + CONNECT_AGAIN_AFTER, at));
                continue;
            };
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut stream = TcpStream::from_std(stream);
            self.poll.registry().register(&mut stream, Token(at), Interest::READABLE).unwrap();
            let connection = &mut self.connections[at];
            connection.stream = Some(stream);
            self.lanes[connection.lane].idle.push_back(at);
        }
    }

    fn send_due(&mut self) {
        let now = self.begun.elapsed();
        for lane in 0..self.lanes.len() {
            loop {
                let due = match self.lanes[lane].rate {
                    Some(_) => self.lanes[lane].due(),
                    // The API's share is the same whoever is slower.
                    None if lane == 1 => {
                        let share = self.lanes[0].next as f64 * Rates::api_per_redirect();
                        if (self.lanes[1].next as f64) < share { now } else { break }
                    }
                    None => now,
                };
                if due > now {
                    break;
                }
                if now > due + SENT_WITHIN {
                    self.second.unsent += 1;
                    self.lanes[lane].next += 1;
                    continue;
                }
                let Some(at) = self.lanes[lane].idle.pop_front() else { break };
                let number = self.lanes[lane].next;
                self.lanes[lane].next += 1;
                self.send(at, number, due);
            }
        }
    }

    fn send(&mut self, at: usize, request: u64, due: Duration) {
        let sent = self.begun.elapsed();
        let api;
        let prepared = if self.connections[at].lane == 0 {
            &self.mix.redirects[request as usize % self.mix.redirects.len()]
        } else {
            api = self.mix.api(request, self.ledger.creations.len() as u64);
            &api
        };
        let number = self.ledger.creations.len();
        if let Ask::Creation { key } = prepared.ask {
            self.ledger.creations.push((key, Creation::Unanswered));
        }
        let connection = &mut self.connections[at];
        connection.under_way = Some(UnderWay { ask: prepared.ask, number, due, sent });
        // A request is far smaller than the socket's buffer, which is empty.
        let written = connection.stream.as_mut().map(|stream| stream.write(&prepared.text));
        if !matches!(written, Some(Ok(length)) if length == prepared.text.len()) {
            self.cut(at);
        }
    }

    fn receive(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let Some(stream) = &mut connection.stream else { return };
        let mut piece = [0; 16 * 1024];
        let ended = loop {
            match stream.read(&mut piece) {
                Ok(0) => break true,
                Ok(read) => connection.answer.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        let whole =
            http::lengths(&connection.answer).is_some_and(|(head, body)| connection.answer.len() >= head + body);
        if whole {
            self.answered(at);
        }
        if ended {
            self.cut(at);
        }
    }

    fn answered(&mut self, at: usize) {
        let now = self.begun.elapsed();
        let connection = &mut self.connections[at];
        let (answer, lane) = (std::mem::take(&mut connection.answer), connection.lane);
        let Some(one) = connection.under_way.take() else {
            return self.ledger.note_odd(|| format!("unasked: {}", String::from_utf8_lossy(&answer)));
        };
        let status = http::status(&answer);
        self.count(lane, status, now.saturating_sub(one.due));
        self.settle(&one, Some((status, &answer)), now);
        let connection = &mut self.connections[at];
        let closes = answer.windows(17).any(|window| window.eq_ignore_ascii_case(b"connection: close"));
        connection.answer = answer;
        connection.answer.clear();
        if closes {
            self.disconnect(at);
        } else {
            self.lanes[lane].idle.push_back(at);
        }
    }

    fn count(&mut self, lane: usize, status: u16, took: Duration) {
        self.lanes[lane].latency.saturating_record(took.as_nanos() as u64);
        if lane == 0 {
            self.second.redirects += 1;
        } else {
            self.second.api += 1;
        }
        match status {
            403 => self.second.refused += 1,
            429 => self.second.limited += 1,
            500.. => self.second.failed += 1,
            _ => {}
        }
    }

    /// Notes the outcome of a request: its answer, or that there is none.
    fn settle(&mut self, one: &UnderWay, answer: Option<(u16, &[u8])>, ended: Duration) {
        let status = answer.map(|(status, _)| status);
        let let_in = status.map(|status| status != 429);
        let asked = Asked { sent: one.sent, ended, let_in };
        match (one.ask, status) {
            (Ask::Redirect { link, .. }, Some(302)) => {
                self.ledger.links[link as usize].answered += 1;
                let wanted = target(u64::from(link));
                let found = answer.and_then(|(_, answer)| http::field(answer, "location"));
                if found != Some(&wanted) {
                    self.ledger.note_odd(|| format!("link {link} leads to {found:?}, not to {wanted}"));
                }
            }
            (Ask::Redirect { link, .. }, None) => self.ledger.links[link as usize].unanswered += 1,
            // The request's time was up while its commit was under way: the answer can't tell its outcome.
            (Ask::Creation { .. }, Some(503)) if ended.saturating_sub(one.sent) >= TIME_IS_UP => {}
            (Ask::Creation { .. }, Some(status @ (403 | 429 | 503))) => {
                self.ledger.creations[one.number].1 = Creation::Refused(status);
            }
            (Ask::Creation { .. }, Some(200)) => match answer.and_then(|(_, answer)| short_id(answer)) {
                Some(id) => self.ledger.creations[one.number].1 = Creation::Made(id),
                None => self.ledger.note_odd(|| "a creation without an id".to_owned()),
            },
            (Ask::Redirect { busy: true, .. } | Ask::Qr, Some(429))
            | (Ask::Unknown, Some(404) | None)
            // As it was noted when it was sent.
            | (Ask::Creation { .. }, None)
            | (Ask::Qr | Ask::Read, Some(200) | None)
            // Where the store does not answer.
            | (Ask::Redirect { .. } | Ask::Unknown | Ask::Qr | Ask::Read, Some(503)) => {}
            (ask, _) => self.ledger.note_odd(|| {
                format!("{ask:?}: {}", String::from_utf8_lossy(answer.map_or(&[], |(_, answer)| answer)))
            }),
        }
        match one.ask {
            Ask::Redirect { busy: true, .. } => self.ledger.limited_client.push(asked),
            Ask::Creation { key } if usize::from(key) == LIMITED => self.ledger.limited_key.push(asked),
            _ => {}
        }
    }

    /// The connection is of no more use.
    fn cut(&mut self, at: usize) {
        let now = self.begun.elapsed();
        if let Some(one) = self.connections[at].under_way.take() {
            self.second.cut += 1;
            self.settle(&one, None, now);
        }
        self.disconnect(at);
    }

    fn disconnect(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let lane = connection.lane;
        connection.answer.clear();
        if let Some(mut stream) = connection.stream.take() {
            let _ = self.poll.registry().deregister(&mut stream);
            self.lanes[lane].idle.retain(|&idle| idle != at);
            self.broken.push_back((self.begun.elapsed(), at));
        }
    }
}

fn short_id(answer: &[u8]) -> Option<[u8; 7]> {
    let name = b"\"short_id\":\"";
    let at = answer.windows(name.len()).position(|window| window == name)? + name.len();
    answer.get(at..at + 7)?.try_into().ok()
}

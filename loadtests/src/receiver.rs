//! The receiver of webhooks: a process of its own that takes requests, counts them, and tells when asked.
//!
//! HTTP/1.1 by hand, as little of it as the senders here need: heads in lower or any case, bodies with a
//! `Content-Length`. One thread. It is asked by lines on standard input and answers by lines on standard output.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::measure::unix_micros;

pub const ROLE: &str = "role-receiver";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What it has got since the last `reset`.
#[derive(Default)]
struct Received {
    requests: u64,
    ids: HashSet<(u128, u8)>,
    /// Requests whose `webhook-id` came before, and those whose id does not fit their path.
    repeats: u64,
    misplaced: u64,
    last_at: u64,
    /// Microseconds from `hit_at` to receipt.
    latencies: Vec<u32>,
    sample: Vec<u8>,
}

// ------------------------------------------------------------------------- parsing

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

pub fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let (start, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// The lengths of head and body, once both are there.
pub fn request_in(buffer: &[u8]) -> Option<(usize, usize)> {
    let head = find(buffer, b"\r\n\r\n")? + 4;
    let length = header(&buffer[..head], b"content-length").and_then(|text| std::str::from_utf8(text).ok());
    let body: usize = length.map_or(0, |text| text.parse().unwrap());
    (buffer.len() >= head + body).then_some((head, body))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Milliseconds since the epoch of `2026-11-21T07:49:42.028Z`.
fn millis_of(time: &[u8]) -> u64 {
    let number =
        |range: std::ops::Range<usize>| time[range].iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    // Days since the epoch, years beginning in March so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    ((days * 24 + number(11..13)) * 60 + number(14..16)) * 60_000 + number(17..19) * 1000 + number(20..23)
}

impl Received {
    fn take(&mut self, head: &[u8], body: &[u8]) {
        self.last_at = unix_micros();
        self.requests += 1;
        let id = header(head, b"webhook-id").and_then(|id| std::str::from_utf8(id).ok()).unwrap();
        let (hit, url) = id.strip_prefix("msg_").and_then(|rest| rest.split_once('_')).unwrap();
        let url: u8 = url.parse().unwrap();
        if !self.ids.insert((u128::from_str_radix(hit, 16).unwrap(), url)) {
            self.repeats += 1;
        }
        // `POST /hook/3 HTTP/1.1`
        let path = head.split(|&byte| byte == b' ').nth(1).unwrap();
        if path.strip_prefix(b"/hook/") != Some(url.to_string().as_bytes()) {
            self.misplaced += 1;
        }
        let hit_at = find(body, b"\"hit_at\":\"").unwrap() + 10;
        let waited = self.last_at.saturating_sub(millis_of(&body[hit_at..]) * 1000);
        self.latencies.push(u32::try_from(waited).unwrap_or(u32::MAX));
        if self.sample.is_empty() {
            self.sample = [head, body].concat();
        }
    }

    /// Sorts what is there: p50, p90, p99 and the highest.
    fn percentiles(&mut self) -> [u32; 4] {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        [0.5, 0.9, 0.99, 1.0].map(|share| self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0))
    }
}

// ---------------------------------------------------------------- the process itself

async fn serve(mut stream: TcpStream, received: Arc<Mutex<Received>>, mut silent: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(16 * 1024);
    loop {
        let (head, body) = loop {
            if let Some(lengths) = request_in(&buffer) {
                break lengths;
            }
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        };
        if *silent.borrow_and_update() {
            // Held until the sender gives up or the silence ends; then closed, not answered, so that what is
            // counted here is what the sender has been told.
            tokio::select! {
                _ = stream.read_u8() => {}
                _ = silent.changed() => {}
            }
            return;
        }
        received.lock().unwrap().take(&buffer[..head], &buffer[head..head + body]);
        buffer.drain(..head + body);
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
}

/// In the child: `hosts` listeners, on 127.0.0.1, 127.0.0.2 and so on.
pub fn run(hosts: u8, begins_silent: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let received = Arc::<Mutex<Received>>::default();
    let silent = watch::Sender::new(begins_silent);
    runtime.block_on(async {
        let mut addresses = Vec::new();
        for host in 1..=hosts {
            let listener = TcpListener::bind((std::net::Ipv4Addr::new(127, 0, 0, host), 0)).await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let (received, silent) = (Arc::clone(&received), silent.subscribe());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&received), silent.clone()));
                }
            });
        }
        println!("{}", addresses.join(" "));
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            answer_questions(&received, &silent);
            let _ = ended.send(());
        });
        let _ = end.await;
    });
}

/// Until standard input ends.
fn answer_questions(received: &Mutex<Received>, silent: &watch::Sender<bool>) {
    for question in std::io::stdin().lines() {
        let mut received = received.lock().unwrap();
        let answer = match question.unwrap().as_str() {
            "reset" => {
                let sample = std::mem::take(&mut received.sample);
                *received = Received { sample, ..Received::default() };
                "done".into()
            }
            "answer" => {
                silent.send_replace(false);
                "done".into()
            }
            "count" => {
                let Received { requests, ids, repeats, misplaced, last_at, .. } = &*received;
                format!("{requests} {} {repeats} {misplaced} {last_at}", ids.len())
            }
            "latencies" => received.percentiles().map(|micros| micros.to_string()).join(" "),
            "sample" => hex(&received.sample),
            other => panic!("{other}?"),
        };
        drop(received);
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}

// -------------------------------------------------------------- the parent's end of it

/// What a receiver has got.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub requests: u64,
    /// Different `webhook-id`s.
    pub distinct: u64,
    pub repeats: u64,
    pub misplaced: u64,
    /// When the last one came, in microseconds since the Unix epoch.
    pub last_at: u64,
}

/// A running receiver. It ends when it is dropped.
pub struct Receiver {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub addresses: Vec<SocketAddr>,
}

impl Receiver {
    pub fn start(hosts: u8, silent: bool) -> Self {
        Self::in_role(&[ROLE, &hosts.to_string(), if silent { "silent" } else { "answer" }])
    }

    /// A child with these arguments that tells its addresses first, and then answers questions.
    pub fn in_role(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut receiver = Self { child, questions, answers, addresses: Vec::new() };
        receiver.addresses = receiver.line().split(' ').map(|address| address.parse().unwrap()).collect();
        receiver
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the receiver ended");
        line.trim_end().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn ask(&mut self, question: &str) -> String {
        writeln!(self.questions.as_mut().unwrap(), "{question}").unwrap();
        self.line()
    }

    fn numbers<const N: usize>(&mut self, question: &str) -> [u64; N] {
        let numbers: Vec<u64> = self.ask(question).split(' ').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    pub fn count(&mut self) -> Count {
        let [requests, distinct, repeats, misplaced, last_at] = self.numbers("count");
        Count { requests, distinct, repeats, misplaced, last_at }
    }

    /// From `hit_at` to receipt, in milliseconds: p50, p90, p99 and the highest.
    pub fn latencies(&mut self) -> [f64; 4] {
        self.numbers("latencies").map(|micros: u64| micros as f64 / 1e3)
    }

    /// URLs for `count` webhooks, over all its hosts in turn.
    pub fn hooks(&self, count: usize) -> Vec<String> {
        let host = |index: usize| self.addresses[index % self.addresses.len()];
        (0..count).map(|index| format!("http://{}/hook/{index}", host(index))).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}

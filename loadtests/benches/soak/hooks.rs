//! The receiver of webhooks: a process of its own that can be dead in two ways, and knows of each delivery in which lives of
//! the program it has accepted it. It is asked like the receiver of the library, of whose parts it is made.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use loadtests::receiver::{Receiver, header, request_in};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

pub const ROLE: &str = "role-soak-receiver";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// How it treats those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Accepts.
    Answers,
    /// Takes requests, and neither accepts nor answers.
    Silent,
    /// Does not listen.
    Gone,
}

/// What was accepted.
#[derive(Default)]
struct Accepted {
    /// The number of the program's life, told by whoever starts it.
    life: u32,
    /// By hit and index of the URL: for which link, and in which life last.
    deliveries: HashMap<(u128, u8), (u32, u32)>,
    requests: u64,
    /// Accepted again in a later life, by the life in which they had been accepted before.
    repeats_after: BTreeMap<u32, u64>,
    /// Accepted again in the same life.
    repeats_within: u64,
    /// Whose id, path and body don't fit together.
    misplaced: u64,
    /// Of the link whose deliveries are replayed: requests by hit.
    replayed: HashMap<u128, u64>,
    open: u64,
}

impl Accepted {
    fn take(&mut self, life: u32, head: &[u8], body: &[u8]) {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let id = text(header(head, b"webhook-id").unwrap());
        let (hit, url) = id.strip_prefix("msg_").and_then(|rest| rest.split_once('_')).unwrap();
        let hit = u128::from_str_radix(hit, 16).unwrap();
        // `POST /hook/4001/1 HTTP/1.1`
        let path = text(head.split(|&byte| byte == b' ').nth(1).unwrap());
        let (kind, rest) = path.trim_start_matches('/').split_once('/').unwrap();
        let (link, place) = rest.split_once('/').unwrap();
        if place != url || !text(body).contains(&format!("{{\"link\":{link}}}")) {
            self.misplaced += 1;
        }
        if kind == "replay" {
            *self.replayed.entry(hit).or_default() += 1;
            return;
        }
        self.requests += 1;
        let link = link.parse().unwrap();
        let key = (hit, url.parse().unwrap());
        match self.deliveries.insert(key, (link, life)) {
            None => {}
            Some((_, before)) if before == life => self.repeats_within += 1,
            Some((_, before)) => *self.repeats_after.entry(before).or_default() += 1,
        }
    }
}

type Shared = Arc<Mutex<Accepted>>;

async fn serve(mut stream: TcpStream, accepted: Shared, mut mode: watch::Receiver<Mode>) {
    let _ = stream.set_nodelay(true);
    let life = {
        let mut accepted = accepted.lock().unwrap();
        accepted.open += 1;
        accepted.life
    };
    let mut buffer = Vec::with_capacity(4 * 1024);
    'requests: loop {
        let (head, body) = loop {
            if let Some(lengths) = request_in(&buffer) {
                break lengths;
            }
            tokio::select! {
                read = stream.read_buf(&mut buffer) => if !matches!(read, Ok(1..)) { break 'requests },
                _ = mode.wait_for(|mode| *mode == Mode::Gone) => break 'requests,
            }
        };
        let now = *mode.borrow_and_update();
        if now != Mode::Answers {
            // Held until the sender gives up or the mode changes; then closed and not answered.
            tokio::select! {
                _ = stream.read_u8() => {}
                _ = mode.changed() => {}
            }
            break;
        }
        accepted.lock().unwrap().take(life, &buffer[..head], &buffer[head..head + body]);
        buffer.drain(..head + body);
        if stream.write_all(ANSWER).await.is_err() {
            break;
        }
    }
    drop(stream);
    accepted.lock().unwrap().open -= 1;
}

async fn listen(
    address: SocketAddr,
    accepted: Shared,
    mut mode: watch::Receiver<Mode>,
    mut first: Option<TcpListener>,
) {
    loop {
        let listener = match first.take() {
            Some(listener) => listener,
            None => TcpListener::bind(address).await.unwrap(),
        };
        let mut told = mode.clone();
        loop {
            tokio::select! {
                Ok((stream, _)) = listener.accept() => {
                    tokio::spawn(serve(stream, Arc::clone(&accepted), mode.clone()));
                }
                _ = told.wait_for(|mode| *mode == Mode::Gone) => break,
            }
        }
        drop(listener);
        let _ = mode.wait_for(|mode| *mode != Mode::Gone).await;
    }
}

/// In the child.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        println!("{address}");
        let (accepted, mode) = (Shared::default(), watch::Sender::new(Mode::Answers));
        tokio::spawn(listen(address, Arc::clone(&accepted), mode.subscribe(), Some(listener)));
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            for question in std::io::stdin().lines() {
                println!("{}", answer(&question.unwrap(), &accepted, &mode));
                std::io::stdout().flush().unwrap();
            }
            let _ = ended.send(());
        });
        let _ = end.await;
    });
}

fn answer(question: &str, accepted: &Shared, mode: &watch::Sender<Mode>) -> String {
    let set = |to| {
        mode.send_replace(to);
        "done".to_owned()
    };
    match question {
        "answer" => return set(Mode::Answers),
        "silent" => return set(Mode::Silent),
        "gone" => return set(Mode::Gone),
        _ => {}
    }
    let mut accepted = accepted.lock().unwrap();
    match question {
        "life" => {
            accepted.life += 1;
            accepted.life.to_string()
        }
        "open" => accepted.open.to_string(),
        "count" => {
            let Accepted { requests, deliveries, repeats_within, misplaced, replayed, .. } = &*accepted;
            let (least, most) = (replayed.values().min().unwrap_or(&0), replayed.values().max().unwrap_or(&0));
            let replayed = replayed.len();
            format!("{requests} {} {repeats_within} {misplaced} {replayed} {least} {most}", deliveries.len())
        }
        "repeats" => {
            let all = accepted.repeats_after.iter().map(|(life, repeats)| format!("{life}:{repeats}"));
            all.collect::<Vec<_>>().join(" ")
        }
        "links" => {
            let mut links: BTreeMap<(u32, u8), u64> = BTreeMap::new();
            for ((_, url), (link, _)) in &accepted.deliveries {
                *links.entry((*link, *url)).or_default() += 1;
            }
            let all = links.iter().map(|((link, url), count)| format!("{link}:{url}:{count}"));
            all.collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other}?"),
    }
}

// -------------------------------------------------------------- the parent's end of it

/// What the receiver got.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    /// Accepted requests, different deliveries, repeats within a life, misplaced ones.
    pub requests: u64,
    pub distinct: u64,
    pub repeats_within: u64,
    pub misplaced: u64,
    /// Of the link whose deliveries are replayed: hits, and how often one was accepted at the least and at the most.
    pub replayed: u64,
    pub replays: [u64; 2],
    /// By the life whose end made them necessary.
    pub repeats_after: Vec<u64>,
    /// Different deliveries, by index of the link and of the URL.
    pub by_url: HashMap<(usize, u64), u64>,
}

pub struct Hooks(Receiver);

impl Hooks {
    pub fn start() -> Self {
        Self(Receiver::in_role(&[ROLE]))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.addresses[0]
    }

    /// `answer`, `silent` or `gone`.
    pub fn be(&mut self, mode: &str) {
        self.0.ask(mode);
    }

    /// Begins a new life of the program, once all is read that the last one sent.
    pub fn end_of_a_life(&mut self) {
        let begun = std::time::Instant::now();
        while self.0.ask("open") != "0" {
            assert!(begun.elapsed().as_secs() < 20, "connections end with their process");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.0.ask("life");
    }

    pub fn deliveries(&mut self) -> Deliveries {
        let numbers = |text: &str, between: &[char]| -> Vec<u64> {
            text.split(between).filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
        };
        let counts = numbers(&self.0.ask("count"), &[' ']);
        let repeats = numbers(&self.0.ask("repeats"), &[' ', ':']);
        let urls = numbers(&self.0.ask("links"), &[' ', ':']);
        Deliveries {
            requests: counts[0],
            distinct: counts[1],
            repeats_within: counts[2],
            misplaced: counts[3],
            replayed: counts[4],
            replays: [counts[5], counts[6]],
            repeats_after: repeats.chunks(2).map(|pair| pair[1]).collect(),
            by_url: urls.chunks(3).map(|one| ((one[0] as usize, one[1]), one[2])).collect(),
        }
    }
}

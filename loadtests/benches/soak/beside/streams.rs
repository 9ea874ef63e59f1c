//! Listeners of live streams that come back after each cut, from where they were.

use std::{
    collections::HashSet,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use loadtests::operator::ROOT_KEY;

use super::{AGAIN_AFTER, Odd};
use crate::scene::{PLAIN, Scene, request_with};

/// A comment comes every 15 s.
const SILENT_FOR: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A stream is complete from then on.
const COMPLETE_AFTER: Duration = Duration::from_secs(3);

/// What a listener was told.
#[derive(Default)]
pub struct Stream {
    pub path: String,
    hits: HashSet<String>,
    /// Hits that were left out by a known number, and how often the number was not known.
    pub skipped: u64,
    pub unknown: u64,
    /// Connections that began a stream, one after the other.
    pub connections: u64,
    pub odd: Odd,
    last_id: String,
}

impl Stream {
    /// Different hits.
    pub fn told(&self) -> u64 {
        self.hits.len() as u64
    }
}

pub struct Listener {
    thread: JoinHandle<Stream>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    pub fn end(self) -> Stream {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// One listener of a link with webhooks, and one of all links of the root key. Returns when their streams are complete.
pub fn listen(address: SocketAddr, scene: &Scene) -> Vec<Listener> {
    let paths = [format!("/links/{}/hits/stream", scene.links[PLAIN].id), "/hits/stream".to_owned()];
    let listener = |path: String| {
        let (stop, begun) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (told, has_begun) = (Arc::clone(&stop), Arc::clone(&begun));
        let thread = thread::spawn(move || {
            let mut stream = Stream { path, ..Stream::default() };
            while !told.load(Ordering::Relaxed) {
                stream.follow(address, &told, &has_begun);
                thread::sleep(AGAIN_AFTER);
            }
            stream
        });
        while !begun.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        Listener { thread, stop }
    };
    let listeners: Vec<_> = paths.map(listener).into();
    thread::sleep(COMPLETE_AFTER);
    listeners
}

impl Stream {
    /// One connection, until it is cut or it is to stop.
    fn follow(&mut self, address: SocketAddr, stop: &AtomicBool, begun: &AtomicBool) {
        let field = match &*self.last_id {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        let Ok(mut connection) = TcpStream::connect(address) else { return };
        connection.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        if connection.write_all(request_with(ROOT_KEY, "GET", &self.path, &field, None).as_bytes()).is_err() {
            return;
        }
        let (mut bytes, mut piece, mut is_open) = (Vec::new(), [0; 16 * 1024], false);
        let mut heard = Instant::now();
        while !stop.load(Ordering::Relaxed) && heard.elapsed() < SILENT_FOR {
            match connection.read(&mut piece) {
                Ok(0) => return,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return,
            }
            heard = Instant::now();
            if !is_open {
                if bytes.len() < 12 {
                    continue;
                }
                if !bytes.starts_with(b"HTTP/1.1 200 ") {
                    // The store may be away.
                    if !bytes.starts_with(b"HTTP/1.1 503 ") {
                        self.odd.note(|| String::from_utf8_lossy(&bytes).into_owned());
                    }
                    return;
                }
                (is_open, self.connections) = (true, self.connections + 1);
                begun.store(true, Ordering::Relaxed);
            }
            // The length of a chunk stands on a line of its own, and is none of an event's lines.
            while let Some(end) = bytes.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = bytes.drain(..end + 2).collect();
                self.take(&String::from_utf8_lossy(&event));
            }
        }
    }

    fn take(&mut self, event: &str) {
        let field = |name: &str| event.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let (kind, data) = (field("event").unwrap_or_default(), field("data").unwrap_or_default());
        let document: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        match kind {
            "hit" => match document["hit_id"].as_str() {
                Some(hit) if self.hits.insert(hit.to_owned()) => {}
                told => self.odd.note(|| format!("told again, or without an id: {told:?}")),
            },
            "skipped" => match document["count"].as_u64() {
                Some(count) => self.skipped += count,
                None => self.unknown += 1,
            },
            "" => {}
            other => self.odd.note(|| format!("an event {other}")),
        }
        if let Some(id) = field("id") {
            id.clone_into(&mut self.last_id);
        }
    }
}

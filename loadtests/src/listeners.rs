//! Listeners of live streams of hits: a process of its own, which counts what they are told.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, net::TcpStream};

use crate::{
    operator::get,
    seed::id,
    way::{Side, Way},
};

pub const ROLE: &str = "role-listeners";
/// How often it looks whether it is asked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What all listeners together were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub hits: u64,
    /// Hits that they were told of as left out.
    pub skipped: u64,
    pub bytes: u64,
}

/// The running process; its connections end with it.
pub struct Listeners {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Listeners {
    /// One listener of each link from index `first` on.
    pub fn start(way: Way, address: SocketAddr, first: u64, number: u64) -> Self {
        let mut command = way.command(Side::Generator, std::env::current_exe().unwrap());
        command.arg(ROLE).arg(address.to_string()).args([first.to_string(), number.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut listeners = Self { child, input, output };
        // It answers when all streams have begun.
        listeners.heard();
        listeners
    }

    pub fn heard(&mut self) -> Heard {
        writeln!(self.input).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [hits, skipped, bytes] = numbers[..] else { panic!("the listeners failed: {line}") };
        Heard { hits, skipped, bytes }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// ------------------------------------------------------------------ in the process itself

struct Listener {
    stream: TcpStream,
    /// The beginning of a line.
    line: Vec<u8>,
}

/// In the child.
pub fn serve(arguments: &[String]) {
    let [address, first, number] = arguments else { panic!("{arguments:?}") };
    let (address, first): (SocketAddr, u64) = (address.parse().unwrap(), first.parse().unwrap());
    let mut poll = Poll::new().unwrap();
    let listen = |index: u64| listen(&poll, address, first + index, index as usize);
    let mut listeners: Vec<Listener> = (0..number.parse().unwrap()).map(listen).collect();
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_asked);
    std::thread::spawn(move || {
        for _line in std::io::stdin().lines() {
            asked.store(true, Ordering::SeqCst);
        }
        std::process::exit(0);
    });
    let mut events = Events::with_capacity(1_024);
    let mut heard = Heard::default();
    loop {
        poll.poll(&mut events, Some(LOOK_EVERY)).unwrap();
        for event in &events {
            listeners[event.token().0].read(&mut heard);
        }
        if is_asked.swap(false, Ordering::SeqCst) {
            println!("{} {} {}", heard.hits, heard.skipped, heard.bytes);
        }
    }
}

/// A stream that has begun.
fn listen(poll: &Poll, address: SocketAddr, link: u64, token: usize) -> Listener {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(get(&format!("/links/{}/hits/stream", id(link))).as_bytes()).unwrap();
    let mut begin = Vec::new();
    let mut piece = [0; 1_024];
    while !begin.windows(6).any(|window| window == b"retry:") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "a stream ends: {}", String::from_utf8_lossy(&begin));
        begin.extend_from_slice(&piece[..read]);
    }
    assert!(begin.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&begin));
    stream.set_nonblocking(true).unwrap();
    let mut stream = TcpStream::from_std(stream);
    poll.registry().register(&mut stream, Token(token), Interest::READABLE).unwrap();
    Listener { stream, line: Vec::new() }
}

impl Listener {
    fn read(&mut self, heard: &mut Heard) {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => panic!("the server closed a stream"),
                Ok(read) => {
                    heard.bytes += read as u64;
                    self.line.extend_from_slice(&piece[..read]);
                    self.count_lines(heard);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The lengths of chunks are lines, too, and mean nothing here.
    fn count_lines(&mut self, heard: &mut Heard) {
        let whole = self.line.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in self.line[..whole].split(|&byte| byte == b'\n') {
            if line == b"event: hit" {
                heard.hits += 1;
            } else if let Some(count) = line.strip_prefix(b"data: {\"count\":") {
                let count = String::from_utf8_lossy(count);
                heard.skipped += count.trim_end_matches('}').parse::<u64>().expect("a known number");
            }
        }
        self.line.drain(..whole);
    }
}

//! Connections that do nothing, or next to nothing.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::{
    net::TcpSocket,
    runtime::{Builder, Runtime},
};

/// Connections from one source address: there are fewer than 30,000 ports for one.
const PER_ADDRESS: usize = 5_000;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const HEAD: &str = "GET /slowest HTTP/1.1\r\nHost: go.example\r\nX-Padding: ";

/// Opens connections from several local addresses.
struct Opener {
    runtime: Runtime,
    address: SocketAddr,
}

impl Opener {
    fn new(address: SocketAddr) -> Self {
        Self { runtime: Builder::new_current_thread().enable_all().build().unwrap(), address }
    }

    /// One that does not block.
    fn open(&self, number: usize) -> Option<TcpStream> {
        let host = u8::try_from(2 + number / PER_ADDRESS).unwrap_or(u8::MAX);
        let connected = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into())?;
            let stream = tokio::time::timeout(CONNECT_WITHIN, socket.connect(self.address)).await??;
            stream.into_std()
        };
        self.runtime.block_on(connected).ok()
    }
}

/// Whether nothing came and it is not closed; it must not block.
fn is_open(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1024]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Connections that have had one answer each and then stay as they are.
pub struct Idle(Vec<TcpStream>);

impl Idle {
    pub fn open(address: SocketAddr, count: usize) -> Self {
        let opener = Opener::new(address);
        let request = b"GET / HTTP/1.1\r\nHost: go.example\r\n\r\n";
        let all = (0..count).filter_map(|number| {
            let mut stream = opener.open(number)?;
            stream.write(request).is_ok_and(|sent| sent == request.len()).then_some(stream)
        });
        let mut all: Vec<_> = all.collect();
        let begun = Instant::now();
        all.retain_mut(|stream| has_answered(stream, begun));
        Self(all)
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.0.iter().filter(|stream| is_open(stream)).count()
    }
}

/// Waits for an answer, which is shorter than a buffer.
fn has_answered(stream: &mut TcpStream, begun: Instant) -> bool {
    loop {
        match stream.read(&mut [0; 2048]) {
            Ok(read) => return read > 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < CONNECT_WITHIN => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return false,
        }
    }
}

/// Connections that send a byte of their head each second, for ever, and come again when they are closed.
pub struct Loris {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    /// How often one was closed on.
    pub closed: Arc<AtomicU64>,
}

impl Loris {
    pub fn begin(address: SocketAddr, count: usize) -> Self {
        let (stop, closed) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (told, noted) = (Arc::clone(&stop), Arc::clone(&closed));
        let thread = std::thread::spawn(move || {
            let opener = Opener::new(address);
            let mut all: Vec<(Option<TcpStream>, usize)> = (0..count).map(|number| (opener.open(number), 0)).collect();
            while !told.load(Ordering::Relaxed) {
                for (number, (stream, sent)) in all.iter_mut().enumerate() {
                    let byte = HEAD.as_bytes().get(*sent).copied().unwrap_or(b'x');
                    let goes_on = stream.as_mut().is_some_and(|stream| {
                        let open = is_open(stream);
                        open && stream.write(&[byte]).is_ok()
                    });
                    *sent += 1;
                    if !goes_on {
                        noted.fetch_add(1, Ordering::Relaxed);
                        (*stream, *sent) = (opener.open(number), 0);
                    }
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self { thread, stop, closed }
    }

    /// Answers how many were closed on meanwhile.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.closed.load(Ordering::Relaxed)
    }
}

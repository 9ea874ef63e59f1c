//! The program under test as a child process, and the client that uses it.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{measure, operator::ROOT_KEY, program::Program, server::free_address};

/// What a start may take.
const STARTED_WITHIN: Duration = Duration::from_mins(5);
/// How long a count may stand still before the run is given up.
pub const STANDS_STILL: Duration = Duration::from_mins(1);

/// What the product is given besides its defaults.
pub fn settings() -> Vec<(String, String)> {
    [
        ("SIGNPOST_ROOT_KEY", ROOT_KEY),
        ("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "127.0.0.0/8"),
        ("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn command(program: &Program, directory: &Path, settings: &[(String, String)]) -> Command {
    let mut command = program.plain(settings);
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// A number of `[webhooks]` in the effective configuration, as `check-config` shows it.
pub fn configured(program: &Program, directory: &Path, settings: &[(String, String)], key: &str) -> usize {
    let output = command(program, directory, settings).arg("check-config").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let webhooks = text.lines().skip_while(|line| *line != "[webhooks]");
    // `key = value  # where it comes from`
    let mut values =
        webhooks.filter_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('=')?.split('#').next());
    let value = values.next().unwrap_or_else(|| panic!("no {key}: {}", String::from_utf8_lossy(&output.stderr)));
    value.trim().parse().unwrap()
}

// ------------------------------------------------------------------------ a client

/// An HTTP/1.1 connection that is kept.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024] })
    }

    /// Sends a request and reads the answer: status and body.
    pub fn exchange(&mut self, request: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request)?;
        let mut have = 0;
        loop {
            if have == self.buffer.len() {
                self.buffer.resize(have * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[have..])?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            have += read;
            let answer = &self.buffer[..have];
            let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let text = std::str::from_utf8(&answer[..head]).unwrap();
            let length = text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            let end = head + 4 + length.unwrap_or(0);
            if have < end {
                continue;
            }
            return Ok((text[9..12].parse().unwrap(), answer[head + 4..end].to_vec()));
        }
    }

    /// Sends a body as the root key does; anything but a 200 ends the run.
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let (status, answer) = self.request(method, path, "", body);
        assert_eq!(status, 200, "{method} {path}: {}", String::from_utf8_lossy(&answer));
        answer
    }

    /// Sends a body that creates something as the root key does, and again with the same `Idempotency-Key` while the store is out
    /// of reach (503) or the first request is in progress (409); any other answer than a 200 ends the run.
    pub fn create(&mut self, path: &str, once: &str, body: &str) -> Vec<u8> {
        loop {
            let (status, answer) = self.request("POST", path, &format!("Idempotency-Key: {once}\r\n"), body);
            if status == 200 {
                return answer;
            }
            assert!([409, 503].contains(&status), "POST {path}: {status} {}", String::from_utf8_lossy(&answer));
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn request(&mut self, method: &str, path: &str, fields: &str, body: &str) -> (u16, Vec<u8>) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: signpost\r\nX-API-Key: {ROOT_KEY}\r\nContent-Type: application/json\r\n\
             {fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.exchange(request.as_bytes()).unwrap()
    }

    /// One hit of `link`; anything but a redirect ends the run.
    pub fn hit(&mut self, link: &str) {
        let request = format!("GET /{link} HTTP/1.1\r\nHost: signpost\r\nUser-Agent: loadtest\r\n\r\n");
        let (status, _) = self.exchange(request.as_bytes()).unwrap();
        assert_eq!(status, 302, "a redirect");
    }
}

// --------------------------------------------------------------------- the product

/// A running product. It is killed when it is dropped.
pub struct Product {
    child: Child,
    pub address: SocketAddr,
    /// From the start of the process until it was ready.
    pub ready_after: Duration,
}

/// What the status endpoint tells of a link: sums over its webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub pending: u64,
    pub delivered: u64,
    pub failed: u64,
}

impl Product {
    /// Starts it on the data in `directory` and waits until it is ready.
    pub fn start(program: &Program, directory: &Path, settings: &[(String, String)]) -> Self {
        let (address, admin) = (free_address(), free_address());
        let log_path = directory.join("signpost.log");
        let log = fs::OpenOptions::new().create(true).append(true).open(&log_path).unwrap();
        let text = || fs::read_to_string(&log_path).unwrap_or_default();
        let begun = Instant::now();
        let child = command(program, directory, settings)
            .env("SIGNPOST_HTTP__LISTEN", address.to_string())
            .env("SIGNPOST_ADMIN__LISTEN", admin.to_string())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut product = Self { child, address, ready_after: Duration::ZERO };
        let is_ready = || {
            let mut operator = Connection::open(admin).ok()?;
            operator.exchange(b"GET /readyz HTTP/1.1\r\nHost: signpost\r\n\r\n").ok()
        };
        while is_ready().is_none_or(|(status, _)| status != 200) {
            let ended = product.child.try_wait().unwrap();
            assert!(ended.is_none(), "signpost ended: {}", text());
            assert!(begun.elapsed() < STARTED_WITHIN, "signpost is not ready: {}", text());
            std::thread::sleep(Duration::from_millis(2));
        }
        product.ready_after = begun.elapsed();
        eprintln!("signpost {} is ready after {:?}", product.pid(), product.ready_after);
        product
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cpu(&self) -> u64 {
        measure::cpu(self.pid())
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address).unwrap()
    }

    /// Makes a link, and answers its id.
    pub fn shorten(&self, webhooks: &[String]) -> String {
        let data = json!({"campaign": "autumn", "customer": {"id": 4711, "plan": "pro"}});
        let target = "https://shop.example.com/autumn/sale?utm_source=mail";
        let body = json!({"redirect_url": target, "webhooks": webhooks, "data": data}).to_string();
        let answer = self.connect().send("POST", "/shorten", &body);
        serde_json::from_slice::<Value>(&answer).unwrap()["short_id"].as_str().unwrap().to_owned()
    }

    /// What the status endpoint tells of each webhook of `link`.
    pub fn status(&self, link: &str) -> Vec<Sums> {
        let request =
            format!("GET /{link}/webhooks/status?limit=1 HTTP/1.1\r\nHost: signpost\r\nX-API-Key: {ROOT_KEY}\r\n\r\n");
        let (status, answer) = self.connect().exchange(request.as_bytes()).unwrap();
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let number = |webhook: &Value, name: &str| webhook[name].as_u64().unwrap();
        let sums = |of: &Value| Sums {
            pending: number(of, "pending"),
            delivered: number(of, "delivered"),
            failed: number(of, "failed"),
        };
        answer["webhooks"].as_array().unwrap().iter().map(sums).collect()
    }

    /// The same over all webhooks of the link.
    pub fn sums(&self, link: &str) -> Sums {
        self.status(link).into_iter().fold(Sums::default(), |total, of| Sums {
            pending: total.pending + of.pending,
            delivered: total.delivered + of.delivered,
            failed: total.failed + of.failed,
        })
    }

    /// Waits until the sums of `link` are as wanted; gives up when they no longer change.
    pub fn wait_for_sums(&self, link: &str, wanted: impl Fn(Sums) -> bool) {
        let (mut last, mut since) = (Sums::default(), Instant::now());
        loop {
            let sums = self.sums(link);
            if wanted(sums) {
                return;
            }
            if sums != last {
                (last, since) = (sums, Instant::now());
            }
            assert!(since.elapsed() < STANDS_STILL, "the status endpoint tells {sums:?}, and that no longer changes");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the process has next to nothing to do, so that what it puts off is counted to what caused it.
    pub fn settle(&self) {
        let begun = Instant::now();
        loop {
            let before = self.cpu();
            std::thread::sleep(Duration::from_millis(300));
            if self.cpu() - before <= 10_000 {
                return;
            }
            assert!(
                begun.elapsed() < STANDS_STILL,
                "the process has work after {STANDS_STILL:?}: its CPU time is not known"
            );
        }
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

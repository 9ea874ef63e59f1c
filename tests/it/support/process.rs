//! The real program as a child process: for what only a process can do, such as being killed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::keyspaces::Place;
use super::server::{ROOT_KEY, metric};
use super::wire::Connection;

/// What a start may take on a machine that compiles meanwhile.
pub const STARTED_WITHIN: Duration = Duration::from_secs(20);

/// The value that stands behind `label` in what a first start prints.
pub fn shown(stdout: &str, label: &str) -> Option<String> {
    let line = stdout.lines().find_map(|line| line.trim().strip_prefix(label))?;
    Some(line.trim().to_owned())
}

/// A command line of the program: no setting of this machine reaches it, and it listens on ports the system gives.
pub struct Program {
    command: Command,
}

impl Program {
    /// To be started in `directory`.
    pub fn at(directory: &Path) -> Self {
        Self::by(Command::new(env!("CARGO_BIN_EXE_signpost")), directory)
    }

    /// As [`Self::at`], with at most so many files open.
    pub fn with_open_files(directory: &Path, limit: u32) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &limit.to_string(), env!("CARGO_BIN_EXE_signpost")]);
        Self::by(shell, directory)
    }

    fn by(mut command: Command, directory: &Path) -> Self {
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SIGNPOST_") {
                command.env_remove(name);
            }
        }
        Self { command }.set("SIGNPOST_HTTP__LISTEN", "127.0.0.1:0").set("SIGNPOST_ADMIN__LISTEN", "127.0.0.1:0")
    }

    /// As load tests want it: root key [`ROOT_KEY`], no limit for clients, webhooks to loopback allowed, a small journal.
    pub fn under_load(directory: &Path) -> Self {
        Self::at(directory)
            .set("SIGNPOST_ROOT_KEY", ROOT_KEY)
            .set("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "127.0.0.0/8")
            .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "0")
            .set("SIGNPOST_LIMITS__QR_PER_MINUTE", "0")
            .set("SIGNPOST_LIMITS__UNAUTHORIZED_PER_MINUTE", "0")
            .set("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "0")
            .set("SIGNPOST_JOURNAL__SEGMENT_BYTES", "262144")
            .set("SIGNPOST_JOURNAL__DISK_BUDGET_BYTES", "67108864")
            .set("SIGNPOST_STORE__CACHE_BYTES", "16777216")
            .set("SIGNPOST_LIMITS__TABLE_SIZE", "4096")
            .set("SIGNPOST_HTTP__WORKERS", "2")
    }

    /// Keeps its data in this keyspace, all but its journal.
    pub fn sharing(mut self, place: &Place) -> Self {
        for (variable, value) in place.settings() {
            self = self.set(variable, &value);
        }
        self
    }

    pub fn set(mut self, variable: &str, value: &str) -> Self {
        self.command.env(variable, value);
        self
    }

    pub fn without(mut self, variable: &str) -> Self {
        self.command.env_remove(variable);
        self
    }

    /// As another user, which only root can.
    pub fn run_by(mut self, user: u32) -> Self {
        self.command.uid(user).gid(user);
        self
    }

    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// What it prints goes there, and not to the test.
    pub fn print_to(mut self, file: File) -> Self {
        self.command.stdout(file);
        self
    }

    /// Starts the service and waits until it is ready.
    pub fn serve(self) -> Process {
        let mut process = self.spawn();
        let began = Instant::now();
        loop {
            if process.find_addresses() && process.ready_status() == Some(200) {
                return process;
            }
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}: {}", process.stderr());
            assert!(began.elapsed() < STARTED_WITHIN, "not ready in time: {}", process.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs a command that ends by itself.
    pub fn run(self) -> Ended {
        self.spawn().wait(STARTED_WITHIN)
    }

    /// Starts the program and waits for nothing.
    pub fn spawn(mut self) -> Process {
        let mut child = self.command.spawn().unwrap();
        let out: Box<dyn Read + Send> = match child.stdout.take() {
            Some(out) => Box::new(out),
            None => Box::new(io::empty()),
        };
        let (out, err) = (Lines::of(out), Lines::of(child.stderr.take().unwrap()));
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        Process { child, out, err, address: unknown, admin: unknown }
    }
}

/// A running child. It is killed when it is dropped.
pub struct Process {
    child: Child,
    out: Lines,
    err: Lines,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

/// What is left of a child.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The exit code; `None` where a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Checks that the program refused to start, said why in one line, and that the line has all of `parts`.
    #[track_caller]
    pub fn refused(&self, parts: &[&str]) {
        assert_eq!((self.code(), self.stderr.lines().count()), (Some(1), 1), "{self:?}");
        assert!(self.stdout.is_empty() && self.stderr.starts_with("signpost: "), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part}: {self:?}");
        }
    }
}

/// Bytes of a process, or of "self", that are in memory in those mappings whose name is such; memory without a file has none.
pub fn resident_where(pid: &str, is_such: impl Fn(&str) -> bool) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut counts = false;
    let mut kib = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Rss:") if counts => kib += words.next().unwrap().parse::<u64>().unwrap(),
            // The line that begins a mapping: addresses, rights, offset, device, inode, name.
            Some(first) if !first.ends_with(':') => counts = is_such(words.nth(4).unwrap_or_default()),
            _ => {}
        }
    }
    kib * 1024
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> std::io::Result<Connection> {
        Connection::open(self.address)
    }

    /// What `/readyz` answers; `None` where nobody does.
    pub fn ready_status(&self) -> Option<u16> {
        let mut operator = Connection::open(self.admin).ok()?;
        operator.get("/readyz", &[]).ok().map(|answer| answer.status)
    }

    /// All metrics, as they are at one moment.
    pub fn metrics(&self) -> String {
        let mut operator = Connection::open(self.admin).unwrap();
        String::from_utf8(operator.get("/metrics", &[]).unwrap().expect(200).body).unwrap()
    }

    /// Whether each hit is counted that was answered before this.
    pub fn has_counted_all(&self) -> bool {
        metric(&self.metrics(), "signpost_journal_oldest_hit_age_seconds") == Some(0.0)
    }

    pub fn stdout(&self) -> String {
        self.out.text()
    }

    pub fn stderr(&self) -> String {
        self.err.text()
    }

    /// Sends `TERM` or `INT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.kill_in_place();
    }

    /// As [`Process::kill`]; what is left of it can tell what it has written.
    pub fn kill_in_place(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the process has ended.
    #[track_caller]
    pub fn wait(mut self, within: Duration) -> Ended {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < within, "still runs after {within:?}: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        };
        Ended { status, stdout: self.out.rest(), stderr: self.err.rest() }
    }

    /// SIGTERM, and what came of it.
    #[track_caller]
    pub fn terminate(self) -> Ended {
        self.signal("TERM");
        self.wait(Duration::from_secs(30))
    }

    /// Reads from the log where it listens; false if that is not there yet.
    fn find_addresses(&mut self) -> bool {
        let log = self.err.text();
        // That one line: others tell of the addresses of a cluster.
        let serving = log.lines().find(|line| line.contains("serving") && line.contains("admin"));
        let value = |name: &str| {
            let (_, behind) = serving?.split_once(name)?;
            behind.split(['"', ' ', ',']).next()?.parse().ok()
        };
        let found = value(" admin=").or_else(|| value("\"admin\":\""));
        let address = value(" address=").or_else(|| value("\"address\":\""));
        if let (Some(admin), Some(address)) = (found, address) {
            (self.admin, self.address) = (admin, address);
        }
        self.admin.port() != 0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a child has written so far.
struct Lines {
    text: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let lines = Arc::clone(&text);
        let reading = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                lines.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Self { text, reading: Some(reading) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// All of it, once the child has ended.
    fn rest(&mut self) -> String {
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        self.text()
    }
}

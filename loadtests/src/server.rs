//! A server under load: a process with its children, and what `/proc` tells of them.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{measure, operator::Operator};

/// What a start may take.
const STARTED_WITHIN: Duration = Duration::from_mins(5);
/// How long a server may take until it is at rest.
const AT_REST_WITHIN: Duration = Duration::from_mins(2);

/// What servers say, in their home.
pub const LOG: &str = "stderr.log";

/// A running server. It is ended when it is dropped.
pub struct Server {
    pub name: &'static str,
    pub address: SocketAddr,
    child: Child,
    /// What it tells of itself, if it does.
    pub operator: Option<Operator>,
}

/// An address that was free a moment ago.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts `command` in `home`, where what it says is added to a log.
pub fn spawn(command: &mut Command, home: &Path) -> Child {
    let output = fs::OpenOptions::new().create(true).append(true).open(home.join(LOG)).unwrap();
    command.current_dir(home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn().unwrap()
}

impl Server {
    /// Starts `command`, which is to listen on `address`, and waits until it is ready.
    pub fn start(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        operator: Option<Operator>,
        home: &Path,
    ) -> Self {
        let mut server = Self { name, address, child: spawn(&mut command, home), operator };
        let begun = Instant::now();
        while !server.is_ready() {
            let ended = server.child.try_wait().unwrap();
            let text = || fs::read_to_string(home.join(LOG)).unwrap_or_default();
            assert!(ended.is_none(), "{name} ended: {}", text());
            assert!(begun.elapsed() < STARTED_WITHIN, "{name} is not ready: {}", text());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn is_ready(&self) -> bool {
        match &self.operator {
            Some(operator) => operator.is_ready(),
            None => TcpStream::connect(self.address).is_ok(),
        }
    }

    /// The process and its children.
    fn processes(&self) -> Vec<u32> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        std::iter::once(own).chain(children.split_whitespace().map(|pid| pid.parse().unwrap())).collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// User and system time of all its processes and threads, in microseconds.
    pub fn cpu(&self) -> u64 {
        self.processes().into_iter().map(measure::cpu).sum()
    }

    /// `VmRSS` or `VmHWM` of all its processes, in MiB; pages that they share are counted for each.
    pub fn resident_mib(&self, which: &str) -> f64 {
        self.processes().into_iter().map(|pid| measure::resident_mib(pid, which)).sum()
    }

    /// Waits until it has nothing left to do, so that what it puts off (counting hits, writing its log, the store's own
    /// upkeep) is counted to what caused it.
    pub fn rest(&self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < AT_REST_WITHIN {
            let before = self.cpu();
            // nginx writes its buffered log once a second.
            std::thread::sleep(Duration::from_millis(1_100));
            if self.cpu() - before <= 10_000 && self.operator.as_ref().is_none_or(Operator::has_counted_all) {
                return Ok(());
            }
        }
        Err(format!("{} did not come to rest within {AT_REST_WITHIN:?}", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Not SIGKILL: nginx's workers would outlive it.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

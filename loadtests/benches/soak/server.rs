//! The program under test, at one address over all its lives, with its disk, its receiver and its shim.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use loadtests::{
    home::Home,
    http,
    operator::get,
    program::Program,
    server::{self, Server, free_address},
    way::Way,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Deliveries, Exported, Hooks, Options, Quota, Sampler, Scene, disk::Disk, shim::Shim};

/// For 10,000 connections, here and there.
pub fn allow_many_files() {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
}

pub struct Soak {
    program: Program,
    home: PathBuf,
    settings: Vec<(&'static str, String)>,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    server: Option<Server>,
    pub hooks: Hooks,
    pub shim: Shim,
    /// Since the traffic began.
    pub clock_moved_at: Vec<Duration>,
    restarted_at: Vec<Duration>,
    /// How often the process has ended.
    pub ends: u64,
    begun: Instant,
    /// Where the sampler looks which process there is.
    shown: Arc<AtomicU32>,
    /// Last: nothing may use it when it is unmounted.
    pub disk: Disk,
}

impl Soak {
    /// Starts it on a disk of its own, and makes the links and keys.
    pub fn begin(options: &Options, program: &Program, home: &Home, name: &str, quota: Quota) -> (Self, Scene) {
        let home = home.0.join(name);
        // Where the program keeps its data by default.
        let disk = Disk::mount(home.join("data"), options.disk_mib << 20);
        Scene::fill(program, &home);
        let shim = Shim::build(&home);
        let mut settings = quota.settings();
        settings.extend(shim.settings());
        let (address, admin) = (free_address(), free_address());
        let mut soak = Self {
            program: program.clone(),
            home,
            settings,
            address,
            admin,
            server: None,
            hooks: Hooks::start(),
            shim,
            clock_moved_at: Vec::new(),
            restarted_at: Vec::new(),
            ends: 0,
            begun: Instant::now(),
            shown: Arc::default(),
            disk,
        };
        soak.start();
        let scene = Scene::set(address, soak.hooks.address());
        (soak, scene)
    }

    /// Has the sampler see which process there is.
    pub fn shown_to(&mut self, sampler: &Sampler, begun: Instant) {
        self.begun = begun;
        self.shown = Arc::clone(&sampler.process);
        self.restarted_at.clear();
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().map_or(0, Server::pid)
    }

    fn borrowed(&self) -> Vec<(&str, &str)> {
        self.settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Starts it, and answers how long it took to be ready.
    pub fn start(&mut self) -> Duration {
        let began = Instant::now();
        let addresses = (self.address, self.admin);
        let server = self.program.start_at("signpost", Way::Unpinned, &self.home, addresses, &self.borrowed());
        self.shown.store(server.pid(), Ordering::Relaxed);
        self.server = Some(server);
        self.restarted_at.push(self.begun.elapsed());
        began.elapsed()
    }

    /// Starts it, kills it while it recovers, and starts it.
    pub fn start_and_kill_again(&mut self, after: Duration) -> Duration {
        let mut command = self.program.command(Way::Unpinned, (self.address, self.admin), &self.borrowed());
        let mut child = server::spawn(&mut command, &self.home);
        thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
        self.ends += 1;
        self.hooks.end_of_a_life();
        self.start()
    }

    fn end_life(&mut self, end: fn(Server)) {
        self.shown.store(0, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            self.restarted_at.push(self.begun.elapsed());
            end(server);
            self.ends += 1;
        }
        self.hooks.end_of_a_life();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.end_life(Server::kill);
    }

    /// Ends it in order.
    pub fn terminate(&mut self) {
        self.end_life(drop);
    }

    pub fn is_ready(&self) -> bool {
        http::exchange(self.admin, &get("/readyz")).is_ok_and(|answer| answer.status == 200)
    }

    /// When windows of limits may have begun anew.
    pub fn breaks(&self) -> Vec<Duration> {
        let mut all = [self.restarted_at.clone(), self.clock_moved_at.clone()].concat();
        all.sort_unstable();
        all
    }

    /// Ends the program, and answers what came of it all.
    pub fn end(mut self) -> (Deliveries, Exported) {
        self.terminate();
        let deliveries = self.hooks.deliveries();
        eprintln!("{:.0} MiB of the disk are in use", self.disk.used_mib());
        self.program.run(&self.home, &["export", "soak.jsonl"]);
        (deliveries, Exported::read(&self.home.join("soak.jsonl")))
    }
}

//! What the program's process and its metrics tell, once a second.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use loadtests::{http, measure, operator::get};

/// One look. What could not be read is as it was before, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Since the traffic began.
    pub at: f64,
    /// Whether the program said that it was ready.
    pub ready: bool,
    /// MiB: all that is resident, and what of it is not a file's.
    pub resident: f64,
    pub anonymous: f64,
    /// Cores in use since the last look.
    pub cpu: f64,
    pub files: usize,
    pub threads: usize,
    /// From its metrics; `None` where they did not come.
    pub unread: Option<f64>,
    pub pending: Option<f64>,
    pub not_recorded: Option<f64>,
    /// Where it read them: a process's counts begin anew with it.
    pub process: u32,
}

pub struct Sampler {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    /// The program's process; 0 while there is none.
    pub process: Arc<AtomicU32>,
    pub samples: Arc<Mutex<Vec<Sample>>>,
}

impl Sampler {
    pub fn begin(admin: SocketAddr, process: u32, begun: Instant) -> Self {
        let (stop, samples) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Sample>>>::default());
        let process = Arc::new(AtomicU32::new(process));
        let (told, all, of) = (Arc::clone(&stop), Arc::clone(&samples), Arc::clone(&process));
        let thread = std::thread::spawn(move || {
            let mut cpu = Cpu::default();
            let mut next = begun.elapsed();
            while !told.load(Ordering::Relaxed) {
                let sample = look(admin, of.load(Ordering::Relaxed), begun, &mut cpu);
                all.lock().unwrap().push(sample);
                next += Duration::from_secs(1);
                std::thread::sleep(next.saturating_sub(begun.elapsed()));
            }
        });
        Self { thread, stop, process, samples }
    }

    pub fn end(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        std::mem::take(&mut *self.samples.lock().unwrap())
    }
}

#[derive(Default)]
struct Cpu {
    process: u32,
    micros: u64,
    at: Duration,
}

fn look(admin: SocketAddr, process: u32, begun: Instant, cpu: &mut Cpu) -> Sample {
    let now = begun.elapsed();
    let mut sample = Sample { at: now.as_secs_f64(), process, ..Sample::default() };
    let entries = |what| fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, Iterator::count);
    // A process that has ended has no sizes.
    if let Some(resident) = size(process, "VmRSS:") {
        (sample.resident, sample.anonymous) = (resident, size(process, "RssAnon:").unwrap_or_default());
        (sample.files, sample.threads) = (entries("fd"), entries("task"));
        let micros = measure::cpu(process);
        if cpu.process == process {
            sample.cpu = (micros - cpu.micros) as f64 / now.saturating_sub(cpu.at).as_micros() as f64;
        }
        *cpu = Cpu { process, micros, at: now };
    }
    let asked = |path| http::exchange(admin, &get(path)).ok();
    sample.ready = asked("/readyz").is_some_and(|answer| answer.status == 200);
    if let Some(answer) = asked("/metrics") {
        let text = String::from_utf8_lossy(&answer.body);
        let number = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse().ok()
        };
        sample.unread = number("signpost_journal_unread_bytes");
        sample.pending = number("signpost_webhook_pending");
        sample.not_recorded = number("signpost_journal_hits_not_recorded_total");
    }
    sample
}

fn size(process: u32, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

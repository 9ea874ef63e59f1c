//! Reading `/proc`, and figures over rounds.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use hdrhistogram::Histogram;

/// `USER_HZ`: the unit of the times in `/proc/<pid>/stat`. Linux shows programs 100 on every usual architecture,
/// whatever the kernel's own tick.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of all threads of a process since its start, in microseconds.
pub fn cpu(pid: u32) -> u64 {
    times(&pid.to_string(), [11, 12])
}

/// The same of all children of this process that have ended.
pub fn cpu_of_ended_children() -> u64 {
    times("self", [13, 14])
}

/// The sum of two of the times in `/proc/<process>/stat`.
fn times(process: &str, fields: [usize; 2]) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The second field, the name in brackets, may hold blanks.
    let values: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields.iter().map(|&at| values[at].parse::<u64>().unwrap()).sum();
    ticks * 1_000_000 / TICKS_PER_SECOND
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A size of a process in MiB: `VmRSS`, what is resident; `RssAnon`, what of it is not a file's; `VmHWM`, the highest
/// that was resident so far.
pub fn resident_mib(pid: u32, name: &str) -> f64 {
    let kib = field(&format!("/proc/{pid}/status"), name).unwrap();
    kib.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Bytes on disk under `path`, as blocks in use.
pub fn disk_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        // A file; one that has just gone takes nothing.
        return fs::metadata(path).map_or(0, |it| it.blocks() * 512);
    };
    entries.flatten().map(|entry| disk_bytes(&entry.path())).sum()
}

/// Type of the file system that holds `path`.
pub fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|line| {
        let mut parts = line.split_whitespace().skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let holding = mounts.filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.len());
    holding.map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned())
}

pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The numbers that a command prints. `Err` has all that it printed, where they are not so many.
pub fn numbers_of<const N: usize>(command: &mut Command) -> Result<[f64; N], String> {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// A histogram of times in nanoseconds, up to two minutes.
pub fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap()
}

/// The machine, as a list for the report's head.
pub fn machine(data: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {model}; {memory}; Linux {}; data on {}", kernel.trim(), file_system(data))
}

/// Load averages of 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

pub fn commit() -> String {
    let changed = if output_of("git", &["status", "--porcelain"]).is_empty() { "" } else { ", with changes" };
    format!("{}{changed}", output_of("git", &["rev-parse", "--short", "HEAD"]))
}

/// Microseconds since the Unix epoch: what different processes can compare.
pub fn unix_micros() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64
}

/// One figure of every round.
#[derive(Clone, Debug, Default)]
pub struct Figures(pub Vec<f64>);

impl Figures {
    /// One figure of each round.
    pub fn of<R>(rounds: &[R], of: impl Fn(&R) -> f64) -> Self {
        Self(rounds.iter().map(of).collect())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    /// Ratios to `peer`, round by round.
    #[must_use]
    pub fn times(&self, peer: &Self) -> Self {
        Self(self.0.iter().zip(&peer.0).map(|(own, peers)| own / peers).collect())
    }

    /// How far the rounds lie apart: 0.25 when the highest is a quarter above the lowest.
    pub fn spread(&self) -> f64 {
        let sorted = self.sorted();
        sorted[sorted.len() - 1] / sorted[0] - 1.0
    }

    /// The cells `min | median | max`.
    pub fn cells(&self, decimals: usize) -> String {
        let sorted = self.sorted();
        let [min, median, max] = [sorted[0], self.median(), sorted[sorted.len() - 1]];
        format!("{min:.decimals$} | {median:.decimals$} | {max:.decimals$}")
    }
}

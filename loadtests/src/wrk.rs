//! `wrk`: requests in a closed loop, as fast as answers come.

use std::{net::SocketAddr, path::Path, process::Stdio};

use crate::{
    measure,
    requests::Load,
    way::{Side, Way},
};

/// Requests under way at once.
pub const CONNECTIONS: u64 = 64;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub requests: u64,
    pub micros: u64,
    /// CPU time of `wrk` itself, in microseconds.
    pub own_cpu: u64,
    /// Connections that failed and answers that did not come.
    pub socket_errors: u64,
    /// Answers with a status of 400 and above.
    pub refused: u64,
    /// p50, p99 and p99.9 in microseconds. In a closed loop a slow answer holds up the requests that would have met the
    /// same, so these flatter.
    pub percentiles: [f64; 3],
}

/// Loads `address` for `seconds`; `first` is the first of the load's fresh ids to be sent.
pub fn run(way: Way, address: SocketAddr, load: &Load, seconds: u32, first: u64) -> Answered {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/requests.lua");
    let threads = if way.is_pinned() { 1 } else { 2 };
    let mut command = way.command(Side::Generator, "wrk");
    command.args([format!("-t{threads}"), format!("-c{CONNECTIONS}"), format!("-d{seconds}"), "--timeout=10".into()]);
    command.arg("-s").arg(script).arg(format!("http://{address}/")).arg("--").arg(&load.texts);
    if let Some(ids) = &load.ids {
        command.arg(ids).arg(first.to_string());
    }
    let before = measure::cpu_of_ended_children();
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("contest\t"));
    let numbers: Vec<f64> =
        line.unwrap_or_else(|| panic!("wrk: {text}")).split('\t').map(|n| n.parse().unwrap()).collect();
    let whole = |at: usize| numbers[at] as u64;
    Answered {
        own_cpu: measure::cpu_of_ended_children() - before,
        requests: whole(0),
        micros: whole(1),
        socket_errors: whole(2),
        refused: whole(3),
        percentiles: [numbers[4], numbers[5], numbers[6]],
    }
}

//! `wrk`: requests in a closed loop, as fast as answers come.

use std::{net::SocketAddr, path::Path, process::Stdio};

use crate::{
    closed_loop::{Answered, CONNECTIONS},
    measure,
    requests::Load,
    way::{Side, Way},
};

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

//! The faults, how each begins and ends, and when.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;

use super::{
    Soak,
    crowd::{Idle, Loris},
};

const IDLE_CONNECTIONS: usize = 10_000;
const SLOW_CONNECTIONS: usize = 500;
/// By how much the clock is off, in seconds.
const CLOCK_MOVES: i64 = 3_600;
/// How long a process that was started is let be before it is killed once more, in its recovery.
const KILLED_AGAIN_AFTER: Duration = Duration::from_millis(60);
/// How long the store may take to be ready once its disk has room; after that the process is started anew, as the run-book
/// says.
const READY_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    Kill,
    StoreStalled,
    ReceiverGone,
    ClockForward,
    IdleConnections,
    SlowLoris,
    DiskFull,
    ReceiverSilent,
    ClockBack,
}

/// One round of all of them: what takes turns with another stands in every other round.
const ROUND: [[Fault; 2]; 7] = [
    [Fault::Kill, Fault::Kill],
    [Fault::StoreStalled, Fault::StoreStalled],
    [Fault::ReceiverGone, Fault::ReceiverSilent],
    [Fault::ClockForward, Fault::ClockBack],
    [Fault::IdleConnections, Fault::IdleConnections],
    [Fault::SlowLoris, Fault::SlowLoris],
    [Fault::DiskFull, Fault::DiskFull],
];
/// Rounds without the first fault and the last one, which end the process, follow each whole one: 20 faults in one life.
const ROUNDS_IN_A_LIFE: usize = 4;
const WITHOUT_ENDS: usize = ROUND.len() - 2;
const IN_A_CYCLE: usize = ROUND.len() + ROUNDS_IN_A_LIFE * WITHOUT_ENDS;

impl Fault {
    /// The `n`-th of a run, or of one that has `only` some.
    pub fn nth(n: usize, only: &[Self]) -> Self {
        if !only.is_empty() {
            return only[n % only.len()];
        }
        let (cycle, at) = (n / IN_A_CYCLE, n % IN_A_CYCLE);
        let (round, place) = match at.checked_sub(ROUND.len()) {
            None => (0, at),
            Some(at) => (1 + at / WITHOUT_ENDS, 1 + at % WITHOUT_ENDS),
        };
        ROUND[place][(cycle * (1 + ROUNDS_IN_A_LIFE) + round) % 2]
    }

    /// Whether requests must be answered as ever while it lasts.
    pub fn is_unseen_by_clients(self) -> bool {
        use Fault::{ClockBack, ClockForward, IdleConnections, ReceiverGone, ReceiverSilent, SlowLoris};
        matches!(self, ReceiverGone | ReceiverSilent | ClockForward | ClockBack | IdleConnections | SlowLoris)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill -9",
            Self::StoreStalled => "store stalled",
            Self::ReceiverGone => "receiver gone",
            Self::ReceiverSilent => "receiver silent",
            Self::ClockForward => "clock +1 h",
            Self::ClockBack => "clock -1 h",
            Self::IdleConnections => "10,000 idle",
            Self::SlowLoris => "slow-loris",
            Self::DiskFull => "disk full",
        })
    }
}

/// A fault that was.
#[derive(Clone, Debug)]
pub struct Past {
    pub fault: Fault,
    /// Seconds since the traffic began. It has ended when all is again as it was.
    pub from: f64,
    pub to: f64,
    pub note: String,
    /// Whether what was expected of the server during the fault was so; the note tells.
    pub as_expected: bool,
}

/// Makes a fault, and ends it; answers what was seen.
pub fn make(soak: &mut Soak, fault: Fault, lasts: Duration, begun: Instant) -> Past {
    let from = begun.elapsed().as_secs_f64();
    eprintln!("{from:.0} s: {fault}");
    let until = Instant::now() + lasts;
    let wait = || thread::sleep(until.saturating_duration_since(Instant::now()));
    let (mut note, mut as_expected, mut cause_ended) = (String::new(), true, None);
    match fault {
        Fault::Kill => {
            soak.kill();
            let ready = soak.start_and_kill_again(KILLED_AGAIN_AFTER);
            cause_ended = Instant::now().checked_sub(ready);
            note = format!("killed again while it recovered; then ready after {:.2} s", ready.as_secs_f64());
        }
        Fault::StoreStalled => {
            soak.shim.stall(true);
            wait();
            soak.shim.stall(false);
        }
        Fault::ReceiverGone | Fault::ReceiverSilent => {
            soak.hooks.be(if fault == Fault::ReceiverGone { "gone" } else { "silent" });
            wait();
            soak.hooks.be("answer");
        }
        Fault::ClockForward | Fault::ClockBack => {
            soak.shim.move_clock(if fault == Fault::ClockForward { CLOCK_MOVES } else { -CLOCK_MOVES });
            soak.clock_moved_at.push(begun.elapsed());
            wait();
            soak.shim.move_clock(0);
            soak.clock_moved_at.push(begun.elapsed());
        }
        Fault::IdleConnections => {
            let idle = Idle::open(soak.address, IDLE_CONNECTIONS);
            wait();
            let open = idle.count();
            as_expected = open == IDLE_CONNECTIONS;
            note = format!("{open} were open to the end");
        }
        Fault::SlowLoris => {
            let loris = Loris::begin(soak.address, SLOW_CONNECTIONS);
            wait();
            note = format!("{SLOW_CONNECTIONS} connections, {} times closed on", loris.end());
        }
        Fault::DiskFull => {
            let (room, seen) = disk_full(soak, until);
            (note, cause_ended) = (seen, Some(room));
        }
    }
    let to = cause_ended.unwrap_or_else(Instant::now).duration_since(begun).as_secs_f64();
    eprintln!("{to:.0} s: {fault} is over; {note}");
    Past { fault, from, to, note, as_expected }
}

/// Answers when there was room again, and what was seen.
fn disk_full(soak: &mut Soak, until: Instant) -> (Instant, String) {
    while Instant::now() < until {
        soak.disk.fill();
        thread::sleep(Duration::from_millis(100));
    }
    soak.disk.make_room();
    let room = Instant::now();
    while room.elapsed() < READY_WITHIN {
        if soak.is_ready() {
            return (room, format!("ready {:.1} s after there was room", room.elapsed().as_secs_f64()));
        }
        thread::sleep(Duration::from_millis(100));
    }
    soak.terminate();
    let ready = soak.start();
    let ready = ready.as_secs_f64();
    (room, format!("not ready {READY_WITHIN:?} after there was room: started anew, ready after {ready:.2} s"))
}

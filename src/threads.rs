//! Background threads, which have a lower priority than threads that answer redirects: they count, write, merge, and
//! create the journal's segments.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::{Duration, Instant};

/// The niceness of background threads: on a core shared with a thread that answers requests, they get a third of its
/// CPU weight. Not less, because counting has to keep up with a continuous load of redirects.
const NICENESS: i32 = 5;

/// Starts a background thread. Threads that it starts are in the background, too.
pub fn in_background<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    let work = move || {
        lower_priority();
        work()
    };
    Builder::new().name(name.into()).spawn(work)
}

/// Lowers the priority of the current thread and of all threads that it starts.
pub fn lower_priority() {
    // On Linux this affects the current thread only. If it fails, the priority stays as it is.
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "can't lower a thread's priority");
    }
}

/// How long background work runs before it yields: a thread that answers redirects on the same core waits at most
/// this long.
const SHORTEST_RUN: Duration = Duration::from_micros(100);
/// The same, if other threads always need the core.
const LONGEST_RUN: Duration = Duration::from_millis(5);

thread_local! {
    static NEXT_YIELD: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Yields the core to other threads from time to time. Long background work calls it between small steps.
///
/// Without it, the scheduler may switch to a waiting thread only at its next tick, milliseconds later: redirects' p99
/// at half of nginx's throughput was 2.0 times nginx's, with it 0.9 to 1.6 times in runs beside that one
/// (`loadtests/run latency`, server and all its threads on one core, 2026-11-22).
pub fn yield_periodically() {
    let now = Instant::now();
    if NEXT_YIELD.get().is_some_and(|then| now < then) {
        return;
    }
    yield_now();
    let back = Instant::now();
    NEXT_YIELD.set(Some(back + run_time_after(back - now)));
}

/// How long to run after other threads had the core for `away`, so that background work gets a third of the time. The
/// scheduler is assumed to let no thread wait for more than 10 ms under full load.
fn run_time_after(away: Duration) -> Duration {
    (away / 2).clamp(SHORTEST_RUN, LONGEST_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_runs_longer_after_others_took_more() {
        let after = |away| run_time_after(Duration::from_micros(away)).as_micros();
        assert_eq!([0, 150, 2_000, 4_000, 1_000_000].map(after), [100, 100, 1_000, 2_000, 5_000]);
    }
}

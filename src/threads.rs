//! Background threads, which have a lower priority than threads that answer redirects: they count, write, merge, and
//! create the journal's segments.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
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
const LONGEST_RUN: Duration = Duration::from_micros(200);
/// How long a thread that answers requests runs before it yields, while background threads wait for a core: twice as
/// long as they do, so that they get a third of a core that is always needed. Counting needs less than that.
const FOREGROUND_RUN: Duration = Duration::from_micros(400);

/// Background threads that have yielded and have not got a core again.
static WAITING: AtomicUsize = AtomicUsize::new(0);

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
    WAITING.fetch_add(1, Ordering::Relaxed);
    yield_now();
    WAITING.fetch_sub(1, Ordering::Relaxed);
    let back = Instant::now();
    NEXT_YIELD.set(Some(back + run_time_after(back - now)));
}

/// Yields the core to background threads from time to time, if any waits for one. Threads that answer requests call it
/// between answers; `now` is the time of the last one.
///
/// Without it, such a thread keeps a busy core until the scheduler's next tick, and background threads have to run
/// for as long, so that counting keeps up: then requests wait for milliseconds.
pub fn yield_to_background(now: Instant) {
    if WAITING.load(Ordering::Relaxed) == 0 || NEXT_YIELD.get().is_some_and(|then| now < then) {
        return;
    }
    yield_now();
    NEXT_YIELD.set(Some(Instant::now() + FOREGROUND_RUN));
}

/// How long to run after other threads had the core for `away`: half of that time, as far as requests may wait for it.
fn run_time_after(away: Duration) -> Duration {
    (away / 2).clamp(SHORTEST_RUN, LONGEST_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_runs_longer_after_others_took_more() {
        let after = |away| run_time_after(Duration::from_micros(away)).as_micros();
        assert_eq!([0, 150, 300, 2_000, 1_000_000].map(after), [100, 100, 150, 200, 200]);
    }
}

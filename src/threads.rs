//! Background threads, which have a lower priority than threads that answer redirects: they count, write, merge, and
//! create the journal's segments. Also values of which each thread has its own.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    set_time_slice(BACKGROUND_TIME_SLICE);
}

/// Sets a short scheduler time slice for the current thread and for all threads that it starts, except background threads. So the scheduler
/// runs them as soon as they are woken.
///
/// A thread that is woken takes the core from one whose time slice is longer. Among equal ones it waits until the other's time slice of some
/// milliseconds is over, whatever their priorities. So threads that answer requests together have equal time slices:
/// else they would take the core from each other for each message.
pub fn use_short_time_slices() {
    set_time_slice(FOREGROUND_TIME_SLICE);
}

/// The shortest time slice that the scheduler gives.
const FOREGROUND_TIME_SLICE: Duration = Duration::from_micros(100);
const BACKGROUND_TIME_SLICE: Duration = Duration::from_micros(200);

/// Asks the scheduler for a time slice of this length (Linux 6.12; earlier ones ignore it).
fn set_time_slice(slice: Duration) {
    let mut attributes = SchedulingAttributes::default();
    let size = SchedulingAttributes::BYTES;
    // SAFETY: the kernel writes at most `size` bytes, as many as the structure has; thread 0 is the current one.
    #[allow(unsafe_code, reason = "no library has this call")]
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    // Of real-time policies `runtime` is something else.
    if got != 0 || !matches!(i32::try_from(attributes.policy), Ok(libc::SCHED_OTHER | libc::SCHED_BATCH)) {
        return;
    }
    attributes.runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads as many bytes as the structure says that it has.
    #[allow(unsafe_code, reason = "no library has this call")]
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "can't set a thread's scheduler time slice");
    }
}

/// `struct sched_attr` of Linux, in its first version.
#[derive(Debug, Default)]
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl SchedulingAttributes {
    const BYTES: libc::c_uint = 48;
}

const _: () = assert!(size_of::<SchedulingAttributes>() == SchedulingAttributes::BYTES as usize);

/// How much CPU time background work takes before it yields. A thread that answers redirects on the same core waits for so long, and
/// until the step under way ends.
const SHORTEST_RUN: Duration = Duration::from_micros(40);
/// The same, if other threads always need the core.
const LONGEST_RUN: Duration = Duration::from_micros(60);
/// A run that has less left than this is over.
const SHORTEST_REST: Duration = Duration::from_micros(10);
/// How long a thread that answers requests runs before it yields, while there is background work on its core: more than twice
/// as long as that, so that background threads get a quarter of a core that is always needed. Counting needs less than that.
const FOREGROUND_RUN: Duration = Duration::from_micros(160);
/// There is background work on a core for so long after it was last seen there. A background thread waits for less than this.
const SEEN_FOR: Duration = Duration::from_millis(20);

/// When a background thread last ran on a core, as [`micros`]. Cores beyond `SLOTS` share.
static BACKGROUND_SEEN_AT: [CacheLines<AtomicU64>; SLOTS] = [const { CacheLines(AtomicU64::new(0)) }; SLOTS];

thread_local! {
    static NEXT_YIELD: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The thread's CPU time at the end of its run.
    static RUN_ENDS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Yields the core to other threads from time to time. Long background work calls it between small steps.
///
/// Without it, the scheduler may switch to a waiting thread only at its next tick, milliseconds later: redirects' p99
/// at half of nginx's throughput was 2.0 times nginx's, and with runs of 0.1 to 0.15 ms 0.9 to 1.6 times in measurements beside that one
/// (`loadtests/run latency`, server and all its threads on one core, 2026-11-22).
pub fn yield_periodically() {
    let now = Instant::now();
    if NEXT_YIELD.get().is_some_and(|then| now < then) {
        return;
    }
    note_background(now);
    let used = own_cpu_time();
    let left = RUN_ENDS.get().saturating_sub(used);
    if left > SHORTEST_REST {
        // The thread slept, or the scheduler gave the core to another thread: the run is not used up.
        NEXT_YIELD.set(Some(now + left));
        return;
    }
    yield_now();
    let back = Instant::now();
    note_background(back);
    let run = run_time_after(back - now);
    RUN_ENDS.set(used.saturating_add(run));
    NEXT_YIELD.set(Some(back + run));
}

/// Yields the core to background threads from time to time, if any is at work on it. Threads that answer requests call it
/// between answers; `last` is the time of the last one.
///
/// Without it, such a thread keeps a busy core until the scheduler's next tick, and background threads have to run
/// for as long, so that counting keeps up: then requests wait for milliseconds.
pub fn yield_to_background(last: Instant) {
    if NEXT_YIELD.get().is_some_and(|then| last < then) {
        return;
    }
    let now = Instant::now();
    let seen_at = Duration::from_micros(seen_on_this_core().load(Ordering::Relaxed));
    // This includes threads that wait because the scheduler took the core from them.
    if Duration::from_micros(micros(now)) <= seen_at + SEEN_FOR {
        yield_now();
    }
    NEXT_YIELD.set(Some(Instant::now() + FOREGROUND_RUN));
}

fn note_background(now: Instant) {
    seen_on_this_core().store(micros(now), Ordering::Relaxed);
}

fn seen_on_this_core() -> &'static AtomicU64 {
    &BACKGROUND_SEEN_AT[rustix::thread::sched_getcpu() % SLOTS].0
}

/// Microseconds since this was first asked for.
fn micros(now: Instant) -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let since = now.saturating_duration_since(*BEGAN.get_or_init(|| now));
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The CPU time of the current thread.
fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // Without it, each run counts as used up.
    Duration::try_from(time).unwrap_or(Duration::MAX)
}

/// How long to run after other threads had the core for `away`: half of that time, as far as requests may wait for it.
fn run_time_after(away: Duration) -> Duration {
    (away / 2).clamp(SHORTEST_RUN, LONGEST_RUN)
}

/// Puts a value that many threads change on cache lines of its own, which prevents false sharing. Two lines, because CPUs
/// fetch them in pairs. If two threads have counters on the same line, an addition takes up to 5 ns, otherwise 2 ns
/// (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CacheLines<T>(pub T);

/// A value that many threads change: one for each thread, on cache lines of its own.
///
/// Threads beyond `SLOTS` share, so values are atomics.
#[derive(Debug)]
pub struct PerThread<T>(Box<[CacheLines<T>; SLOTS]>);

const SLOTS: usize = 64;

/// The number of the next thread that changes such a value.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

fn thread_number() -> usize {
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

impl<T> PerThread<T> {
    /// The current thread's.
    pub fn own(&self) -> &T {
        &self.0[thread_number() % SLOTS].0
    }

    pub fn all(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.iter().map(|lines| &lines.0)
    }
}

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| CacheLines::default())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn threads_have_values_of_their_own_that_add_up() {
        let counts = PerThread::<AtomicU64>::default();
        let places: Vec<usize> = std::thread::scope(|scope| {
            let count = || {
                let own = counts.own();
                own.fetch_add(1, Ordering::Relaxed);
                std::ptr::from_ref(own) as usize
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(counts.all().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(), 3);
        assert!(places.iter().all(|place| place.is_multiple_of(128)), "{places:?}");
    }

    #[test]
    fn background_work_runs_longer_after_others_took_more() {
        let after = |away| run_time_after(Duration::from_micros(away)).as_micros();
        assert_eq!([0, 60, 100, 2_000, 1_000_000].map(after), [40, 40, 50, 60, 60]);
    }
}

//! Threads that stand back behind those that answer redirects: they count, write, merge, and make the journal's segments.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::{Duration, Instant};

/// How much they stand back: of a core that they share with a thread that answers, they have a third of its part. Not less, for
/// where redirects come without a pause the counting has to keep up.
const NICENESS: i32 = 5;

/// Starts a thread that stands back, with all that it starts.
pub fn in_background<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    let work = move || {
        stand_back();
        work()
    };
    Builder::new().name(name.into()).spawn(work)
}

/// Has the current thread, and all that it starts, stand back.
pub fn stand_back() {
    // On Linux that is of this thread only. Where it is refused, all goes on as it would without.
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "can't lower a thread's priority");
    }
}

/// How long work in the background goes on before it gives way: whoever answers redirects on the same core waits for it so long
/// at the most.
const STRETCH: Duration = Duration::from_micros(100);
/// The same where somebody always wants the core.
const LONGEST_STRETCH: Duration = Duration::from_millis(5);

thread_local! {
    static GIVES_WAY_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets others have the core now and then; to be called between the small parts of long work in the background.
///
/// The scheduler itself may look only at its next tick, milliseconds later, who waits for a core that is shared: without this,
/// redirects' p99 at half of nginx's throughput was 2.0 of nginx's, with it 0.9 to 1.6 in runs beside that one
/// (`loadtests/run latency`, server and all its threads on one core, 2026-11-22).
pub fn give_way() {
    let now = Instant::now();
    if GIVES_WAY_AT.get().is_some_and(|then| now < then) {
        return;
    }
    yield_now();
    let back = Instant::now();
    GIVES_WAY_AT.set(Some(back + stretch_after(back - now)));
}

/// How long to go on after others had the core for so long: a third of the time, where they never have enough of it and the
/// scheduler lets nobody wait for more than 10 ms.
fn stretch_after(away: Duration) -> Duration {
    (away / 2).clamp(STRETCH, LONGEST_STRETCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_way_goes_on_for_longer_where_others_take_more() {
        let after = |away| stretch_after(Duration::from_micros(away)).as_micros();
        assert_eq!([0, 150, 2_000, 4_000, 1_000_000].map(after), [100, 100, 1_000, 2_000, 5_000]);
    }
}

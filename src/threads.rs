//! Threads that stand back behind those that answer redirects: they count, write, merge, and make the journal's segments.

use std::io;
use std::thread::{Builder, JoinHandle};

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
        tracing::debug!(%error, "a thread's priority was not lowered");
    }
}

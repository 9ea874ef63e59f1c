//! What tests share: a real server on free ports, a client for its API, a receiver of webhooks, a CQL engine.

pub mod children;
pub mod client;
pub mod cluster;
pub mod collector;
pub mod events;
pub mod files;
pub mod journal;
pub mod keys;
pub mod keyspaces;
pub mod links;
pub mod name_server;
pub mod picture;
pub mod process;
pub mod rate_limits;
pub mod raw;
pub mod receiver;
pub mod server;
pub mod signature;
pub mod stores;
pub mod visits;
pub mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for what must happen: only what never happens takes longer, also on a machine that compiles meanwhile.
/// What is promised within a time has a test of its own.
pub const SOON: Duration = Duration::from_secs(20);

/// Asks again and again until `done` says so; for what the service promises to do soon, not at once.
pub async fn eventually<R>(what: &str, within: Duration, mut done: impl AsyncFnMut() -> Option<R>) -> R {
    let began = Instant::now();
    loop {
        if let Some(result) = done().await {
            return result;
        }
        let waited = began.elapsed();
        assert!(waited < within, "not within {within:?}: {what}");
        tokio::time::sleep(pause(waited, within)).await;
    }
}

/// How long to wait before the next look, after so much of `within`: looks cost CPU time that others need, so there are
/// fewer as time goes by.
fn pause(waited: Duration, within: Duration) -> Duration {
    (waited / 8).clamp(Duration::from_millis(20), Duration::from_millis(250)).min(within.saturating_sub(waited))
}

/// As [`eventually`], for tests without a runtime.
#[track_caller]
pub fn until(what: &str, within: Duration, done: impl FnMut() -> bool) {
    poll(what, within, |waited| pause(waited, within), done);
}

/// As [`until`], for what takes no time to look at, or must be seen at once.
#[track_caller]
pub fn soon(what: &str, done: impl FnMut() -> bool) {
    poll(what, SOON, |_| Duration::from_millis(1), done);
}

#[track_caller]
fn poll(what: &str, within: Duration, pause: impl Fn(Duration) -> Duration, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        let waited = began.elapsed();
        assert!(waited < within, "not within {within:?}: {what}");
        // What is waited for may need this core.
        std::thread::sleep(pause(waited));
    }
}

/// What was the middle of some times: what the machine has to do meanwhile makes single ones longer, and is not the service's.
pub fn middle(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Whether the file system of this directory tells without waiting what was just written there: not every one can.
pub fn tells_what_is_in_memory(directory: &Path) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let file = tempfile::tempfile_in(directory).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).unwrap();
    preadv2(&file, &mut [std::io::IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT) == Ok(1)
}

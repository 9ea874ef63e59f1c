//! The time by which old data is removed, kept in a file of the data directory: a start continues it, whatever the clock says then.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::files;
use crate::clock::Clock;
use crate::clock::removal::RemovalClock;
use crate::domain::calendar::Timestamp;

/// How often the time is written. After a start, the time is behind by the time since then, for an hour.
const KEEP_EVERY: Duration = Duration::from_mins(10);

/// Continues the time in the file. Without a file, it is the clock's.
pub fn open(path: &Path, clock: Clock) -> RemovalClock {
    let kept = fs::read_to_string(path).and_then(|text| Timestamp::parse(text.trim()).ok_or_else(damaged));
    if let Err(error) = &kept
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "can't read the time by which old data is removed: it is the clock's");
    }
    RemovalClock::new(clock, kept.ok())
}

/// Writes the time from time to time. Works for ever.
pub async fn keep(path: PathBuf, clock: Arc<RemovalClock>) {
    let mut is_reported = false;
    loop {
        let (path_of_file, now) = (path.clone(), clock.now());
        let written = tokio::task::spawn_blocking(move || write(&path_of_file, now)).await;
        if let Ok(Err(error)) = written
            && !std::mem::replace(&mut is_reported, true)
        {
            // The data directory may be read-only, but for the store and the journal.
            tracing::warn!(path = %path.display(), %error, "can't write the time by which old data is removed: the next start takes the clock's");
        }
        tokio::time::sleep(KEEP_EVERY).await;
    }
}

fn write(path: &Path, now: Timestamp) -> io::Result<()> {
    files::write_private(path, &now.to_string())
}

fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "not a time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_with_a_wrong_clock_continues_the_time_of_the_process_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("removal-time");
        let clock = Clock::standing_at(Timestamp(1_795_003_200_000));
        write(&path, open(&path, clock.clone()).now()).unwrap();
        let right = clock.now();
        clock.set_forward(Duration::from_hours(365 * 24));
        for _ in 0..2 {
            let removal = open(&path, clock.clone());
            assert_eq!(removal.now(), right);
            write(&path, removal.now()).unwrap();
        }
        fs::write(&path, "yesterday").unwrap();
        assert_eq!(open(&path, clock.clone()).now(), clock.now());
    }
}

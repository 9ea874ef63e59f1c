//! What only a process of its own can do: be killed, or run into the limits of the system.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::support::children::{self, IN_A_MOUNT_NAMESPACE, assert_passed, child_directory};

/// The command line that runs one test of this module in another process.
fn child(name: &str, directory: &Path, through: &[&str]) -> Command {
    children::child(module_path!(), name, directory, through)
}

#[test]
fn kill_9_in_mid_load_loses_no_acknowledged_hit_and_none_is_read_twice() {
    for kill_after in [1_000, 20_000, 60_000] {
        let directory = TempDir::new().unwrap();
        let mut writer =
            child("child_that_appends_until_killed", directory.path(), &[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut acknowledged = [0; 2];
        for line in BufReader::new(writer.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((thread, count)) = line.strip_prefix("acknowledged ").and_then(|it| it.split_once(' ')) {
                acknowledged[thread.parse::<usize>().unwrap()] = count.parse().unwrap();
            }
            if acknowledged.iter().sum::<u64>() >= kill_after {
                // SIGKILL; what is still in the pipe is read until it ends.
                let _ = writer.kill();
            }
        }
        writer.wait().unwrap();
        assert!(acknowledged.iter().sum::<u64>() >= kill_after, "the child ended by itself");

        let Journal { mut reader, .. } = open(directory.path(), &child_settings(), NODE, START).unwrap();
        let mut read = [0; 2];
        while !reader
            .read(1000, &mut |_, hit| {
                let read = &mut read[usize::from(hit.owner[0])];
                assert_eq!(hit.at_ms, *read, "in order, none missing, none twice");
                *read += 1;
            })
            .caught_up
        {}
        assert!(read[0] >= acknowledged[0] && read[1] >= acknowledged[1], "{read:?} {acknowledged:?}");
        assert!(reader.recovery().holes <= 2, "one a thread at most: {:?}", reader.recovery());
    }
}

fn child_settings() -> JournalSettings {
    JournalSettings { segment_bytes: 256 << 10, disk_budget: 1 << 30, ..JournalSettings::default() }
}

#[test]
fn child_that_appends_until_killed() {
    let Some(directory) = child_directory() else { return };
    let Journal { writer, upkeep, .. } = open(&directory, &child_settings(), NODE, START).unwrap();
    let _keeper = upkeep.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let writer = writer.clone();
            scope.spawn(move || {
                for number in 0.. {
                    writer.append(&hit(thread, number)).unwrap();
                    if number.is_multiple_of(16) {
                        // One write: a line is whole, or is not there.
                        let line = format!("\nacknowledged {thread} {}\n", number + 1);
                        if std::io::stdout().write_all(line.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn where_the_system_refuses_segments_no_journal_is_opened_and_one_that_is_open_counts_what_it_does_not_record() {
    let directory = TempDir::new().unwrap();
    // No file may be longer than 8 blocks of 512 bytes until the child lifts that, and asking for more is an error, not a signal.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -S -f 8; exec \"$0\" \"$@\""];
    let status = child("child_that_may_not_make_long_files", directory.path(), &limited);
    assert_passed(status);
}

#[test]
fn child_that_may_not_make_long_files() {
    const EFBIG: i32 = 27;
    let Some(directory) = child_directory() else { return };
    let settings = JournalSettings { segment_bytes: 1 << 20, disk_budget: 4 << 20, ..small(4) };
    let limit = getrlimit(Resource::Fsize);
    match open(&directory, &settings, NODE, START) {
        Err(JournalError::Directory { path, source }) => {
            assert_eq!((path, source.raw_os_error()), (directory.clone(), Some(EFBIG)));
        }
        opened => panic!("{opened:?}"),
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "the lock, and no half segment");

    setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let Journal { writer, mut reader, upkeep } = open(&directory, &settings, NODE, START).unwrap();
    setrlimit(Resource::Fsize, limit).unwrap();
    let mut appended = 0;
    let refused = loop {
        match writer.append(&hit(0, appended)) {
            Ok(_) => appended += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, NotRecorded::Disk { os_error: EFBIG });
    assert_eq!(upkeep.prepare_spare(), Err(refused));
    assert_eq!(read_all(&mut reader).len() as u64, appended);
    let stats = writer.stats();
    assert_eq!((stats.appended, stats.not_recorded, stats.segments), (appended, 1, 1));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "the lock, the full segment, and no half one");
}

#[test]
#[cfg_attr(not(mount_namespaces), ignore = "this system permits no mount namespaces")]
fn a_full_disk_refuses_hits_and_they_are_recorded_again_once_there_is_room() {
    let directory = TempDir::new().unwrap();
    // A disk of 256 KiB, in a mount namespace of its own, which ends with the child.
    let mount = "mount -t tmpfs -o size=256k none \"$SIGNPOST_TEST_DIRECTORY\" && exec \"$0\" \"$@\"";
    let through: Vec<_> = IN_A_MOUNT_NAMESPACE.into_iter().chain(["sh", "-c", mount]).collect();
    assert_passed(child("child_on_a_small_disk", directory.path(), &through));
}

#[test]
fn child_on_a_small_disk() {
    const ENOSPC: i32 = 28;
    let Some(directory) = child_directory() else { return };
    let settings = JournalSettings { segment_bytes: 64 << 10, disk_budget: 1 << 30, ..small(2) };
    let Journal { writer, mut reader, upkeep } = open(&directory, &settings, NODE, START).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let ballast = directory.join("ballast");
        fs::write(&ballast, vec![1; 100 << 10]).unwrap();
        let refused = loop {
            match writer.append(&hit(0, seen.len() as u64)) {
                Ok(_) => seen.push(seen.len() as u64),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, NotRecorded::Disk { os_error: ENOSPC });
        assert_eq!(upkeep.prepare_spare(), Err(refused));
        fs::remove_file(&ballast).unwrap();
        append_all(&writer, [seen.len() as u64]);
        seen.push(seen.len() as u64);
        let read = read_all(&mut reader);
        assert!(seen.ends_with(&numbers(&read)));
        reader.release(read.last().unwrap().0);
    }
    assert_eq!(writer.stats().not_recorded, 3);
    assert_eq!(writer.stats().appended, seen.len() as u64);
}

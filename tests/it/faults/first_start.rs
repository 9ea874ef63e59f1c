//! The secrets of the first start are never lost: not where it ends in the middle, not where nobody can see them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::process::{Process, Program, STARTED_WITHIN, shown};
use crate::support::soon;

/// How far a start has come.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// This is in its directory.
    Made(&'static str),
    /// This was printed.
    Printed(&'static str),
}

impl Point {
    const ALL: [Self; 8] = [
        Self::Made("data"),
        Self::Made("data/master.key"),
        Self::Made("data/node.id"),
        Self::Made("data/store"),
        Self::Printed("first start"),
        Self::Printed("root key"),
        Self::Printed("curl"),
        Self::Printed("serves on"),
    ];

    fn wait(self, directory: &Path, process: &Process) {
        soon(&format!("{self:?}"), || match self {
            Self::Made(name) => directory.join(name).exists(),
            Self::Printed(text) => process.stdout().contains(text),
        });
    }
}

/// Starts once more, to its end, and checks that the key that was printed last opens it.
fn the_last_key_works(directory: &Path, before: Option<String>, context: &str) {
    let process = Program::at(directory).serve();
    let key = shown(&process.stdout(), "root key").or(before);
    let key = key.unwrap_or_else(|| panic!("{context}: no start has shown a key: {}", process.stdout()));
    let answer = process.connect().unwrap().get("/usage", &[("X-API-Key", &key)]).unwrap();
    assert_eq!(answer.status, 200, "{context}");
    assert_eq!(process.terminate().code(), Some(0));
}

#[test]
fn a_first_start_that_is_killed_wherever_it_is_leaves_a_key_that_was_shown() {
    for point in Point::ALL {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Program::at(directory.path()).spawn();
        point.wait(directory.path(), &process);
        process.kill_in_place();
        let ended = process.wait(STARTED_WITHIN);
        the_last_key_works(directory.path(), shown(&ended.stdout, "root key"), &format!("{point:?}"));
    }
}

#[test]
fn a_first_start_that_is_told_to_end_does_so_in_order_wherever_it_is() {
    for point in Point::ALL {
        let directory = tempfile::tempdir().unwrap();
        let process = Program::at(directory.path()).spawn();
        point.wait(directory.path(), &process);
        let ended = process.terminate();
        assert_eq!(ended.code(), Some(0), "{point:?}: {ended:?}");
        the_last_key_works(directory.path(), shown(&ended.stdout, "root key"), &format!("{point:?}"));
    }
}

#[test]
fn a_first_start_that_can_not_show_its_secrets_is_refused_and_the_next_one_shows_them() {
    let directory = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    Program::at(directory.path())
        .print_to(full)
        .run()
        .refused(&["can't print the secrets of the first start", "No space left on device"]);
    the_last_key_works(directory.path(), None, "nothing was shown");
}

#[test]
fn a_first_start_with_a_file_that_does_not_fit_makes_nothing() {
    for setting in ["PAGES__DIRECTORY", "BOTS__LIST", "GEO__DATABASE", "ABUSE__BLOCKED_HOSTS", "FALLBACKS__ROOT"] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("not-found.html");
        std::fs::write(&file, "{{unknown}}").unwrap();
        let value = match setting {
            "PAGES__DIRECTORY" => directory.path(),
            "ABUSE__BLOCKED_HOSTS" => &directory.path().join("absent"),
            _ => &file,
        };
        let ended = Program::at(directory.path()).set(&format!("SIGNPOST_{setting}"), value.to_str().unwrap()).run();
        ended.refused(&[&setting.to_lowercase().replace("__", ".")]);
        assert_eq!(ended.stdout, "", "{setting}");
        assert!(!directory.path().join("data").exists(), "{setting}");
    }
}

#[test]
fn a_start_that_hangs_is_ended_by_a_signal_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    let pipe = directory.path().join("data/master.key");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in ["TERM", "INT"] {
        let process = Program::at(directory.path()).spawn();
        // A writer can open it so once there is a reader, which then waits for what is never written.
        let mut opening = File::options();
        opening.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let mut writer = None;
        soon("a reader of master.key", || {
            writer = opening.open(&pipe).ok();
            writer.is_some()
        });
        process.signal(signal);
        let ended = process.wait(STARTED_WITHIN);
        assert_eq!(ended.code(), Some(0), "{signal}: {ended:?}");
    }
}

#[test]
fn of_two_first_starts_at_once_none_spoils_the_others_data() {
    for _ in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let mut both = [(); 2].map(|()| Program::at(directory.path()).spawn());
        let serves = |process: &Process| process.stdout().contains("serves on");
        soon("an end of both starts", || both.iter_mut().all(|process| process.has_ended() || serves(process)));
        let serving = both.iter().filter(|process| serves(process)).count();
        assert!(serving <= 1, "{serving} serve from one directory");
        let outputs = both.map(|mut process| {
            if !process.has_ended() {
                process.kill_in_place();
            }
            process.wait(STARTED_WITHIN)
        });
        let key = outputs.iter().find_map(|ended| shown(&ended.stdout, "root key"));
        the_last_key_works(directory.path(), key, &format!("{outputs:?}"));
    }
}

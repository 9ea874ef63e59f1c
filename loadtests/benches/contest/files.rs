//! Where the files of a store are while it is measured: in the kernel's memory or on disk.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use loadtests::way::ends_with_this_program;

/// By itself it may be either: some machines drop what is asked for seldom, after a minute or after seconds, however much
/// memory is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    InMemory,
    OnDisk,
}

impl Files {
    /// Brings all of them there. Those in memory stay there until the answer is dropped, if this program may lock so much.
    pub fn bring(self, directory: &Path) -> Option<Locked> {
        // Only what is written can be dropped.
        rustix::fs::sync();
        self.bring_each(directory);
        (self == Self::InMemory).then(|| Locked::all_of(directory)).flatten()
    }

    fn bring_each(self, directory: &Path) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            // The program may merge files meanwhile.
            let (Ok(kind), Ok(mut file)) = (entry.file_type(), fs::File::open(entry.path())) else { continue };
            if kind.is_dir() {
                self.bring_each(&entry.path());
            } else if self == Self::InMemory {
                io::copy(&mut file, &mut io::sink()).unwrap();
            } else {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
        }
    }
}

/// Files that the kernel may not drop, for a process has them locked. They are let go of when this is dropped.
pub struct Locked(Child);

impl Locked {
    fn all_of(directory: &Path) -> Option<Self> {
        let child = ends_with_this_program()
            // It tells that all is locked, and does not end: by itself, what it tells into a pipe would stay in its buffer.
            .args(["stdbuf", "--output=L", "vmtouch", "-l"])
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv");
        let mut locked = Self(child);
        let mut said = String::new();
        BufReader::new(locked.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if !said.starts_with("LOCKED") {
            eprintln!("`vmtouch` has not locked the store's files in memory: is `ulimit -l` too low?");
            return None;
        }
        Some(locked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

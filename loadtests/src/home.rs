//! Where a load test finds the sources, and where it keeps what it makes.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::measure;

/// The sources of the program.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A directory for what is not needed any longer than the build: `target/tmp`, which cargo names only to benchmarks.
pub fn scratch() -> PathBuf {
    let program = env::current_exe().unwrap();
    let path = program.ancestors().nth(3).expect("target/<profile>/deps/<program>").join("tmp");
    fs::create_dir_all(&path).unwrap();
    path
}

/// A directory for what one run keeps; it is removed when it is dropped.
pub struct Home(pub PathBuf);

impl Home {
    pub fn new(name: &str) -> Self {
        let path = scratch().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// One that is on a disk.
    pub fn durable(name: &str) -> Self {
        let home = Self::new(name);
        let kind = measure::file_system(&home.0);
        assert!(kind != "tmpfs", "{} is in memory: nothing durable can be measured there", home.0.display());
        home
    }

    /// A directory of its own in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name.replace([' ', ','], "-"));
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

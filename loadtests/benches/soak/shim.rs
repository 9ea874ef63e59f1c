//! The shim that stalls the program's disk and moves its clock: `shim.c`, built when the soak begins.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Where each number stands in the file that steers the shim.
const CLOCK: u64 = 0;
const STALLED: u64 = 8;

pub struct Shim {
    library: PathBuf,
    steering: PathBuf,
    file: fs::File,
}

impl Shim {
    /// Builds it in `home`.
    pub fn build(home: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/soak/shim.c");
        let (library, steering) = (home.join("shim.so"), home.join("shim.control"));
        let built = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(built.is_ok_and(|status| status.success()), "a C compiler builds the shim");
        let options = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&steering);
        let shim = Self { library, steering, file: options.unwrap() };
        shim.move_clock(0);
        shim.stall(false);
        shim
    }

    /// What a program needs in its environment to be steered.
    pub fn settings(&self) -> [(&'static str, String); 2] {
        let text = |path: &Path| path.display().to_string();
        [("LD_PRELOAD", text(&self.library)), ("SOAK_CONTROL", text(&self.steering))]
    }

    /// Sets the program's clock this far ahead of the machine's.
    pub fn move_clock(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), CLOCK).unwrap();
    }

    /// Has the disk answer no sync, or answer again.
    pub fn stall(&self, stalled: bool) {
        self.file.write_all_at(&i64::from(stalled).to_ne_bytes(), STALLED).unwrap();
    }
}

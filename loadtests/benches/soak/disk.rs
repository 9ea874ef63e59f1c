//! A disk of the soak's own: a small tmpfs, which can be made full and roomy again.
//!
//! It is mounted in a mount namespace of the soak and what it starts, so that nothing is left of it whatever ends the soak,
//! and that no other program sees it.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Says that this process has a mount namespace of its own.
const INSIDE: &str = "SOAK_INSIDE";

/// Goes on in a mount namespace of its own.
pub fn move_inside() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg(std::env::current_exe().unwrap()).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    panic!("a mount namespace: {}", command.exec());
}

pub struct Disk {
    pub path: PathBuf,
    bytes: u64,
}

impl Disk {
    pub fn mount(path: PathBuf, bytes: u64) -> Self {
        fs::create_dir_all(&path).unwrap();
        let disk = Self { path, bytes };
        assert!(mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "soak"], &disk.path), "a tmpfs is mounted");
        disk
    }

    /// Takes all room that is left. What is deleted afterwards makes room again, until this is called once more.
    pub fn fill(&self) {
        // What is written between looking and resizing is in the way of that.
        for _ in 0..20 {
            let stat = rustix::fs::statvfs(&self.path).unwrap();
            let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
            if self.resize(used) {
                return;
            }
        }
    }

    pub fn make_room(&self) {
        assert!(self.resize(self.bytes), "the tmpfs is as large as before");
    }

    fn resize(&self, bytes: u64) -> bool {
        mount(&["-o", &format!("remount,size={bytes}")], &self.path)
    }

    /// MiB in use.
    pub fn used_mib(&self) -> f64 {
        let stat = rustix::fs::statvfs(&self.path).unwrap();
        ((stat.f_blocks - stat.f_bfree) * stat.f_frsize) as f64 / f64::from(1 << 20)
    }
}

fn mount(arguments: &[&str], path: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(path).stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

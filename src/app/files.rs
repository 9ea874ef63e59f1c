//! Paths in the data directory, and how its small files are written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::store::embedded::EmbeddedStore;

pub fn store(config: &Config) -> PathBuf {
    config.data_dir.join("store")
}

/// The files that the embedded store writes beside its directory.
pub fn beside_store(config: &Config) -> [PathBuf; 2] {
    EmbeddedStore::files_beside(&store(config))
}

pub fn journal(config: &Config) -> PathBuf {
    config.data_dir.join("journal")
}

/// What is noted for live streams.
pub fn streams(config: &Config) -> PathBuf {
    config.data_dir.join("streams")
}

/// The rules for bots of the batch that is being counted.
pub fn bot_rules(config: &Config) -> PathBuf {
    config.data_dir.join("bot-rules")
}

pub fn master_key(config: &Config) -> PathBuf {
    config.data_dir.join("master.key")
}

pub fn node_id(config: &Config) -> PathBuf {
    config.data_dir.join("node.id")
}

/// The time by which old data is removed.
pub fn removal_time(config: &Config) -> PathBuf {
    config.data_dir.join("removal-time")
}

/// Writes a line to a file that only its owner can read. A rename makes the file complete or absent.
pub fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

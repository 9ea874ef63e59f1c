//! Reads the file of blocked hosts, and reads it again when it changes.

use std::io;
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;

use super::{StartError, refused, watched_file};
use crate::config::Config;
use crate::domain::blocked_hosts::{BlockedHosts, HostList};

const SETTING: &str = "abuse.blocked_hosts";
/// Most bytes of the file: some million hosts.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The list of a service with these settings; empty without a file.
pub(super) fn open(config: &Config) -> Result<BlockedHosts, StartError> {
    let Some(path) = &config.abuse.blocked_hosts else { return Ok(BlockedHosts::default()) };
    let list =
        read(path).map_err(|error| refused(config, SETTING, format!("{} can't be read: {error}", path.display())))?;
    Ok(BlockedHosts::new(list))
}

/// Reads the file again whenever it has changed, and calls `has_changed` after the list has. Stop it by aborting it.
pub(super) fn watch(
    path: PathBuf,
    hosts: BlockedHosts,
    has_changed: impl Fn() + Send + Sync + 'static,
) -> JoinHandle<()> {
    watched_file::watch(SETTING, path, move |path| {
        let list = read(path)?;
        let count = list.len();
        if hosts.replace(list) {
            has_changed();
            tracing::info!(hosts = count, "the list of blocked hosts is replaced");
        }
        Ok(())
    })
}

fn read(path: &Path) -> io::Result<HostList> {
    let bytes = watched_file::read(path, MAX_BYTES)?;
    let (list, faults) = HostList::parse(&String::from_utf8_lossy(&bytes));
    if let Some(line) = faults.first() {
        let (path, faults) = (path.display(), faults.len());
        tracing::warn!(%path, line, faults, "skipped invalid lines in the list of blocked hosts");
    }
    Ok(list)
}

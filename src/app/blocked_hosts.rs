//! Reads the file of blocked hosts, and reads it again when it changes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{StartError, refused};
use crate::config::Config;
use crate::domain::blocked_hosts::{BlockedHosts, HostList};

/// Most bytes of the file: some million hosts.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// The interval in which the file is looked at. A change is in force within 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The list of a service with these settings; empty without a file.
pub(super) fn open(config: &Config) -> Result<BlockedHosts, StartError> {
    let Some(path) = &config.abuse.blocked_hosts else { return Ok(BlockedHosts::default()) };
    let list = read(path).map_err(|error| {
        refused(config, "abuse.blocked_hosts", format!("{} can't be read: {error}", path.display()))
    })?;
    Ok(BlockedHosts::new(list))
}

/// Reads the file again whenever it has changed, and calls `has_changed` after the list has. Stop it by aborting it.
pub(super) fn watch(path: PathBuf, hosts: BlockedHosts, has_changed: impl Fn() + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        // The file may have changed since it was read: it is read once more.
        let (mut known, mut has_warned) = (None, false);
        loop {
            let stamp = FileStamp::of(&path);
            if Some(&stamp) != known.as_ref() {
                let from = path.clone();
                match tokio::task::spawn_blocking(move || read(&from)).await {
                    Ok(Ok(list)) => {
                        (known, has_warned) = (Some(stamp), false);
                        let count = list.len();
                        if hosts.replace(list) {
                            has_changed();
                            tracing::info!(hosts = count, "the list of blocked hosts is replaced");
                        }
                    }
                    // It is read again until that succeeds.
                    Ok(Err(_)) if has_warned => {}
                    Ok(Err(error)) => {
                        has_warned = true;
                        tracing::warn!(path = %path.display(), %error, "can't read the list of blocked hosts: the last one stays in use");
                    }
                    Err(_) => return,
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
}

/// Changes when the file is written or replaced.
#[derive(PartialEq, Eq)]
struct FileStamp(Option<[i64; 6]>);

impl FileStamp {
    fn of(path: &Path) -> Self {
        Self(path.metadata().ok().map(|file| {
            let [inode, length] = [file.ino(), file.size()].map(u64::cast_signed);
            [inode, length, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()]
        }))
    }
}

fn read(path: &Path) -> io::Result<HostList> {
    // Opening a named pipe would block until another process writes to it.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "larger than 32 MiB"));
    }
    let (list, faults) = HostList::parse(&String::from_utf8_lossy(&bytes));
    if let Some(line) = faults.first() {
        let (path, faults) = (path.display(), faults.len());
        tracing::warn!(%path, line, faults, "the list of blocked hosts has lines that are no host: they are skipped");
    }
    Ok(list)
}

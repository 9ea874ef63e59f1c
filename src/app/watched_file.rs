//! Files of the settings that are read again when they change.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

/// The interval in which a file is looked at. A change is in force within 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The content of a regular file.
///
/// # Errors
/// If it can't be read, or is larger than that.
pub(super) fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // Opening a named pipe would block until another process writes to it.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("larger than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// Calls `take_in` whenever the file of a setting has changed, on a thread that may block. Stop it by aborting it.
pub(super) fn watch(
    setting: &'static str,
    path: PathBuf,
    take_in: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static,
) -> JoinHandle<()> {
    let take_in = Arc::new(take_in);
    tokio::spawn(async move {
        // The file may have changed since it was read: it is read once more.
        let (mut known, mut has_warned) = (None, false);
        loop {
            let stamp = FileStamp::of(&path);
            if Some(&stamp) != known.as_ref() {
                let (from, take_in) = (path.clone(), Arc::clone(&take_in));
                match tokio::task::spawn_blocking(move || take_in(&from)).await {
                    Ok(Ok(())) => (known, has_warned) = (Some(stamp), false),
                    // It is read again until that succeeds.
                    Ok(Err(_)) if has_warned => {}
                    Ok(Err(error)) => {
                        has_warned = true;
                        tracing::warn!(setting, path = %path.display(), %error, "can't read a file of the settings again: what was read last stays in use");
                    }
                    Err(error) if error.is_cancelled() => return,
                    // A panic, which is logged: the next change is read all the same.
                    Err(_) => known = Some(stamp),
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

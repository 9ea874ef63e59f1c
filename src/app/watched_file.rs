//! Reads files that the settings name, and reads some of them again when they change.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Calls `reload` whenever the file of a setting has changed, on a thread that may block. Stop it by aborting it.
pub(super) fn watch(
    setting: &'static str,
    path: PathBuf,
    reload: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static,
) -> JoinHandle<()> {
    let reload = Arc::new(reload);
    tokio::spawn(async move {
        // The file may have changed since it was read: it is read once more.
        let (mut known, mut warned) = (None, None);
        loop {
            let (from, reload) = (path.clone(), Arc::clone(&reload));
            // Also the look: a file system that is out of reach blocks.
            let looked = tokio::task::spawn_blocking(move || {
                let stamp = FileStamp::of(&from);
                // A panic is logged: the next change is read all the same.
                let read = (Some(&stamp) != known.as_ref()).then(|| catch_unwind(AssertUnwindSafe(|| reload(&from))));
                (known, stamp, read)
            });
            // It does not panic; it is cancelled when the process ends.
            let Ok((before, stamp, read)) = looked.await else { return };
            known = before;
            match read {
                None => {}
                Some(Ok(Ok(()))) => {
                    known = Some(stamp);
                    if warned.take().is_some() {
                        tracing::info!(setting, path = %path.display(), "a file of the settings can be read again");
                    }
                }
                // It is read again until that succeeds, also if it is the same file then.
                Some(Ok(Err(error))) if warned.as_ref() == Some(&error.to_string()) => known = None,
                Some(Ok(Err(error))) => {
                    (known, warned) = (None, Some(error.to_string()));
                    tracing::warn!(setting, path = %path.display(), %error, "can't reload a file of the settings: its previous content stays in use");
                }
                Some(Err(_)) => known = Some(stamp),
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

//! Whether what a start is going to write can be written, asked before it writes anything: a service that finds out later answers
//! redirects that it can't count.
//!
//! What is not there yet is made by the part whose it is, which says by itself where that fails. A full disk is for the parts, too:
//! it may have room again.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::{StartError, files};
use crate::config::{Config, StoreKind};
use crate::journal;

/// # Errors
/// [`StartError::NotWritable`], with the first path that can't be written.
pub fn check(config: &Config) -> Result<(), StartError> {
    if config.store.kind == StoreKind::Embedded {
        check_store(config)?;
    }
    let path = files::journal(config);
    directory(&path)?;
    match journal::files(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        files => files.map_err(|error| refused(&path, error))?.iter().try_for_each(|path| file(path)),
    }
}

/// As [`check`], of the embedded store alone.
pub fn check_store(config: &Config) -> Result<(), StartError> {
    // Files beside the store come and go with each start and end.
    directory(&config.data_dir)?;
    for beside in files::beside_store(config) {
        file(&beside)?;
    }
    let path = files::store(config);
    directory(&path)?;
    // The engine's own. It ignores all others, such as a file system's `lost+found`.
    let is_journal = |entry: &Path| entry.extension().is_some_and(|extension| extension == "jnl");
    each_entry(&path, |entry| match entry.file_name().and_then(OsStr::to_str) {
        Some("keyspaces") => tree(entry),
        Some(name) if ["lock", "version", "not-whole"].contains(&name) || is_journal(entry) => file(entry),
        _ => Ok(()),
    })
}

fn tree(path: &Path) -> Result<(), StartError> {
    directory(path)?;
    each_entry(path, |entry| if entry.is_dir() { tree(entry) } else { file(entry) })
}

fn each_entry(path: &Path, check: impl Fn(&Path) -> Result<(), StartError>) -> Result<(), StartError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| refused(path, error))?,
    };
    for entry in entries {
        check(&entry.map_err(|error| refused(path, error))?.path())?;
    }
    Ok(())
}

/// Whether entries of the directory can be listed, made and removed.
fn directory(path: &Path) -> Result<(), StartError> {
    if fs::metadata(path).is_ok_and(|there| !there.is_dir()) {
        return Err(refused(path, Errno::NOTDIR.into()));
    }
    ask(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
}

fn file(path: &Path) -> Result<(), StartError> {
    if path.is_dir() {
        return Err(refused(path, Errno::ISDIR.into()));
    }
    ask(path, Access::READ_OK | Access::WRITE_OK)
}

/// Asks for the rights of this process as it is, also those that it has beside its user.
fn ask(path: &Path, access: Access) -> Result<(), StartError> {
    let mut asked = accessat(CWD, path, access, AtFlags::EACCESS);
    if asked == Err(Errno::PERM) {
        // Older container runtimes answer so to system calls that they do not know. Without the flag it is an old one.
        asked = accessat(CWD, path, access, AtFlags::empty());
    }
    match asked.map_err(io::Error::from) {
        // Perhaps taken away just now by a process that uses the directory: the locks tell that.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        asked => asked.map_err(|error| refused(path, error)),
    }
}

fn refused(path: &Path, source: io::Error) -> StartError {
    StartError::NotWritable { path: path.to_owned(), source }
}

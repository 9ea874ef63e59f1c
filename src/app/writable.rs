//! Checks, before a start writes anything, that it can write the files it needs: a service that finds out later
//! answers redirects that it can't count.
//!
//! Only what a start really writes is checked, so a read-only data directory with writable mounts for store and
//! journal is accepted. A path that does not exist is created by the part that owns it, which reports a failure
//! itself. A full disk is not checked: space may become free.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::{StartError, files};
use crate::config::{Config, StoreKind};
use crate::journal;

/// Checks everything that a start writes.
///
/// # Errors
/// [`StartError::NotWritable`] for the first path without write access; [`StartError::NotAFile`] or
/// [`StartError::NotADirectory`] for one of the wrong kind.
pub fn check(config: &Config) -> Result<(), StartError> {
    let mut created = vec![files::node_id(config), files::journal(config)];
    if config.store.kind == StoreKind::Embedded {
        if config.secrets.master_key.is_none() {
            created.push(files::master_key(config));
        }
        check_store(config)?;
    } else {
        // A start writes the rules for bots when they have changed, beside the file that it replaces.
        check_directory(&config.data_dir)?;
        check_file(&files::bot_rules(config))?;
    }
    check_data_directory(config, &created)?;
    // It is replaced. A data directory may be read-only, but for the store and the journal: then the file stays as it is.
    if check_directory(&config.data_dir).is_ok() {
        check_file(&files::removal_time(config))?;
    }
    let path = files::journal(config);
    check_directory(&path)?;
    match journal::files(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        files => files.map_err(|error| unreadable(&path, error))?.iter().try_for_each(|path| check_file(path)),
    }
}

/// As [`check`], for the embedded store only.
pub fn check_store(config: &Config) -> Result<(), StartError> {
    let path = files::store(config);
    check_data_directory(config, std::slice::from_ref(&path))?;
    let beside = files::beside_store(config);
    // A start deletes them. If they are missing, and the data directory is read-only, the store works without them.
    if beside.iter().any(|path| !is_missing(path)) {
        check_directory(&config.data_dir)?;
    }
    beside.iter().try_for_each(|path| check_file(path))?;
    check_directory(&path)?;
    // The engine's own files. It ignores all others, such as a file system's `lost+found`.
    let is_journal = |entry: &Path| entry.extension().is_some_and(|extension| extension == "jnl");
    each_entry(&path, |entry| match entry.file_name().and_then(OsStr::to_str) {
        Some("keyspaces") => check_tree(entry),
        Some(name) if ["lock", "version", "not-whole"].contains(&name) || is_journal(entry) => check_file(entry),
        _ => Ok(()),
    })
}

/// Checks the data directory if one of `paths` in it has to be created.
fn check_data_directory(config: &Config, paths: &[PathBuf]) -> Result<(), StartError> {
    if paths.iter().any(|path| is_missing(path)) { check_directory(&config.data_dir) } else { Ok(()) }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn check_tree(path: &Path) -> Result<(), StartError> {
    check_directory(path)?;
    each_entry(path, |entry| if entry.is_dir() { check_tree(entry) } else { check_file(entry) })
}

fn each_entry(path: &Path, check: impl Fn(&Path) -> Result<(), StartError>) -> Result<(), StartError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| unreadable(path, error))?,
    };
    for entry in entries {
        check(&entry.map_err(|error| unreadable(path, error))?.path())?;
    }
    Ok(())
}

/// Checks that entries of the directory can be listed, created and removed.
fn check_directory(path: &Path) -> Result<(), StartError> {
    if fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
        return Err(StartError::NotADirectory { path: path.to_owned() });
    }
    check_access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
}

fn check_file(path: &Path) -> Result<(), StartError> {
    if path.is_dir() {
        return Err(StartError::NotAFile { path: path.to_owned() });
    }
    check_access(path, Access::READ_OK | Access::WRITE_OK)
}

/// Checks the effective rights of this process, including capabilities.
fn check_access(path: &Path, access: Access) -> Result<(), StartError> {
    let mut checked = accessat(CWD, path, access, AtFlags::EACCESS);
    if checked == Err(Errno::PERM) {
        // Older container runtimes answer EPERM to unknown system calls. Without the flag it is an old system call.
        checked = accessat(CWD, path, access, AtFlags::empty());
    }
    match checked.map_err(io::Error::from) {
        // Perhaps deleted just now by a process that uses the directory. The locks detect that process.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        checked => checked.map_err(|source| StartError::NotWritable { path: path.to_owned(), source }),
    }
}

fn unreadable(path: &Path, source: io::Error) -> StartError {
    StartError::File { path: path.display().to_string(), source }
}

//! The creation of a new store, which a crash or a full disk may interrupt: the engine can't open what is left then.
//!
//! A mark in the directory says that the store there is incomplete. A start that finds the mark deletes the store,
//! which was never used, and creates it again.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use crate::store::StoreError;

const MARK: &str = "not-whole";

/// Calls `make` to create a store if `directory` has none yet, or an incomplete one.
pub fn make_if_absent(directory: &Path, make: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::Unavailable(error.to_string());
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let Some(mark) = UnfinishedMark::take(directory).map_err(failed)? else { return Ok(()) };
    make()?;
    mark.remove().map_err(failed)
}

/// The mark of a directory in which this process, and no other, creates a store.
struct UnfinishedMark<'a> {
    directory: &'a Path,
    /// Locked. The kernel releases the lock when the process ends, however it ends.
    file: File,
}

impl<'a> UnfinishedMark<'a> {
    /// `None` if the directory has a store already, or other files. Otherwise it has nothing but the mark.
    fn take(directory: &'a Path) -> io::Result<Option<Self>> {
        let path = directory.join(MARK);
        let is_empty = fs::read_dir(directory)?.next().is_none();
        let new = if is_empty { File::create_new(&path) } else { Err(ErrorKind::AlreadyExists.into()) };
        let is_new = new.is_ok();
        let file = match new {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => OpenOptions::new().write(true).open(&path),
            new => new,
        };
        let file = match file {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another process is making it"),
            TryLockError::Error(error) => error,
        })?;
        let mark = Self { directory, file };
        // A process that created a store here meanwhile has removed the mark before releasing the lock.
        if !mark.exists()? {
            return Ok(None);
        }
        let all: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
        let mut others = all.iter().filter(|entry| entry.file_name() != MARK).peekable();
        if is_new && others.peek().is_some() {
            // It was empty a moment ago: another process has created a store.
            return mark.remove().map(|()| None);
        }
        for other in others {
            let path = other.path();
            if other.file_type()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }?;
        }
        mark.sync()?;
        Ok(Some(mark))
    }

    /// Whether the locked file is the one in the directory.
    fn exists(&self) -> io::Result<bool> {
        match fs::metadata(self.directory.join(MARK)) {
            Ok(there) => Ok(there.ino() == self.file.metadata()?.ino()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The store is complete. Synced: a mark that reappeared after a power cut would cause the store to be deleted.
    fn remove(self) -> io::Result<()> {
        fs::remove_file(self.directory.join(MARK))?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_store_whose_creation_was_interrupted_is_created_again() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        let refused = make_if_absent(&store, || {
            fs::create_dir(store.join("half")).unwrap();
            fs::write(store.join("half/file"), "").unwrap();
            Err(StoreError::Unavailable("interrupted".into()))
        });
        assert!(refused.is_err());
        make_if_absent(&store, || {
            assert_eq!(names(&store), [MARK]);
            fs::write(store.join("content"), "whole").unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(names(&store), ["content"]);
        make_if_absent(&store, || panic!("there is one")).unwrap();
        assert_eq!(fs::read(store.join("content")).unwrap(), b"whole");
    }

    #[test]
    fn two_processes_that_create_it_at_once_do_not_interfere() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        make_if_absent(&store, || {
            fs::write(store.join("content"), "whole").unwrap();
            let second = make_if_absent(&store, || panic!("it is being made"));
            assert!(matches!(second, Err(StoreError::Unavailable(why)) if why.contains("another process")));
            Ok(())
        })
        .unwrap();
        assert_eq!(names(&store), ["content"]);
    }

    #[test]
    fn other_files_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("lost+found")).unwrap();
        make_if_absent(root.path(), || panic!("it is not empty")).unwrap();
        assert_eq!(names(root.path()), ["lost+found"]);
        let file = root.path().join("file");
        fs::write(&file, "content").unwrap();
        assert!(make_if_absent(&file, || panic!("it is a file")).is_err());
        assert_eq!(fs::read(file).unwrap(), b"content");
    }
}

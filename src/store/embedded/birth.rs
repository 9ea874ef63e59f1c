//! A new store is made beside its place, and put there when it is whole: one that was interrupted in the making, by a crash
//! or a full disk, is not one that the engine could open.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::store::StoreError;

/// Has `make` make a store where there is nothing at `directory` yet.
pub fn make_if_absent(directory: &Path, make: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    if is_there(directory) {
        return Ok(());
    }
    let failed = |error: io::Error| StoreError::Unavailable(error.to_string());
    leftovers(directory).try_for_each(fs::remove_dir_all).map_err(failed)?;
    // No other process has the same: of two that were started by mistake, one puts its own there, whole.
    let making = beside(directory, &Uuid::new_v4().simple().to_string());
    make(&making)?;
    match fs::rename(&making, directory) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(&making).map_err(failed),
        renamed => renamed.map_err(failed),
    }
}

/// Whether there is anything; what can't be looked at is for the engine to complain of.
fn is_there(directory: &Path) -> bool {
    match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// What was interrupted in the making.
fn leftovers(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let beginning = beside(directory, "");
    let entries = directory.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter();
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    paths.filter(move |path| path.as_os_str().as_encoded_bytes().starts_with(beginning.as_os_str().as_encoded_bytes()))
}

fn beside(directory: &Path, ending: &str) -> PathBuf {
    directory.with_extension(format!("new-{ending}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn make(directory: &Path) {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("content"), "whole").unwrap();
    }

    fn names(directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_store_that_was_interrupted_in_the_making_is_made_anew_and_nothing_is_left_of_it() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        let refused = make_if_absent(&store, |directory| {
            fs::create_dir(directory).unwrap();
            Err(StoreError::Unavailable("interrupted".into()))
        });
        assert!(refused.is_err() && !store.exists());
        make_if_absent(&store, |making| {
            make(making);
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read(store.join("content")).unwrap(), b"whole");
        assert_eq!(names(root.path()), ["store"]);
        make_if_absent(&store, |_| panic!("there is one")).unwrap();
    }

    #[test]
    fn of_two_that_are_made_at_once_the_first_stays() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        make_if_absent(&store, |late| {
            fs::create_dir(&store).unwrap();
            fs::write(store.join("first"), "").unwrap();
            make(late);
            Ok(())
        })
        .unwrap();
        assert_eq!((names(root.path()), names(&store)), (vec!["store".into()], vec!["first".into()]));
    }
}

//! What is in a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// All files below a directory, whole.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = entries(directory).into_iter().filter(|path| path.is_file());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// All files and directories below a directory, in order.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let below: Vec<_> = entries.iter().filter(|path| path.is_dir()).flat_map(|path| self::entries(path)).collect();
    entries.extend(below);
    entries.sort();
    entries
}

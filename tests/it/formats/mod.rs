//! What released versions wrote, kept under `tests/data/formats/<version>/`: every later version has to read it.
//!
//! The files of a version are made once, by that version: `SIGNPOST_WRITE_FORMATS=1 cargo test --test it -- formats` writes
//! those of the version in `Cargo.toml`. They are never made again once the version is released.

mod cql;
mod embedded;
mod export;
mod journal;
mod process;
mod sample;
mod sample_hits;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The version that this source tree is.
const THIS: &str = env!("CARGO_PKG_VERSION");
/// Names files and folders of a fixture, with the length that each file has.
const LENGTHS: &str = "lengths.txt";

/// Fixtures of all versions.
fn all() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats")
}

/// The fixture of this name in each version that has it, oldest first; at least this version's.
fn versions(name: &str) -> Vec<PathBuf> {
    let folders = fs::read_dir(all()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = folders.map(|folder| folder.join(name)).filter(|path| path.exists()).collect();
    // By number: 0.10.0 comes after 0.9.0.
    let number = |path: &PathBuf| {
        let version = path.strip_prefix(all()).unwrap().iter().next().unwrap().to_str().unwrap().to_owned();
        version.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    paths.sort_by_key(number);
    assert!(!paths.is_empty(), "no version has {name}");
    paths
}

/// The version of a fixture.
fn version_of(fixture: &Path) -> &str {
    fixture.parent().unwrap().file_name().unwrap().to_str().unwrap()
}

/// Where this version's fixture of this name is to be written, where that is asked for.
fn to_write(name: &str) -> Option<PathBuf> {
    std::env::var_os("SIGNPOST_WRITE_FORMATS")?;
    let path = all().join(THIS).join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    Some(path)
}

/// Keeps a folder as a fixture. Files end with the last byte that is not zero: segments and the engine's journals are
/// allotted in full. Empty folders stand in the list alone: git would leave them behind when another branch is checked out.
fn keep(from: &Path, fixture: &Path) {
    let _ = fs::remove_dir_all(fixture);
    fs::create_dir_all(fixture).unwrap();
    let (mut lengths, mut folders) = (Vec::new(), vec![from.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(from).unwrap().to_str().unwrap().to_owned();
            let to = fixture.join(&name);
            if path.is_dir() {
                lengths.push(format!("{name}/\n"));
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                lengths.push(format!("{name} {}\n", bytes.len()));
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(to, &bytes[..end]).unwrap();
            }
        }
    }
    lengths.sort();
    fs::write(fixture.join(LENGTHS), lengths.concat()).unwrap();
}

/// Makes the folder that was kept as a fixture.
fn restore(fixture: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for line in fs::read_to_string(fixture.join(LENGTHS)).unwrap().lines() {
        if let Some(folder) = line.strip_suffix('/') {
            fs::create_dir_all(to.join(folder)).unwrap();
            continue;
        }
        let (name, length) = line.rsplit_once(' ').unwrap();
        let file = fs::File::create_new(to.join(name)).unwrap();
        file.write_all_at(&fs::read(fixture.join(name)).unwrap(), 0).unwrap();
        file.set_len(length.parse().unwrap()).unwrap();
    }
}

#[test]
fn each_release_that_the_changelog_names_has_its_formats_kept() {
    let changelog = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CHANGELOG.md")).unwrap();
    let released: Vec<_> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split_whitespace().next())
        .filter(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    assert!(released.contains(&THIS), "CHANGELOG.md has no section for {THIS}");
    for version in released {
        for name in ["embedded", "cql.jsonl", "export.jsonl", "journal", "process", "index"] {
            assert!(all().join(version).join(name).exists(), "{version} has no {name}");
        }
    }
}

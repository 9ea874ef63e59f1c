//! Reading clocks, files and `/proc`, and the table.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

pub fn percentiles(latencies: &mut [Duration], unit: f64) -> String {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * unit;
    format!("{:.1} / {:.1}", at(0.5), at(0.99))
}

fn proc_number(file: &str, field: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub fn bytes_written() -> u64 {
    proc_number("/proc/self/io", "write_bytes:")
}

pub fn resident_kib() -> u64 {
    proc_number("/proc/self/status", "VmRSS:")
}

pub fn drop_page_cache() {
    let _ = Command::new("sync").status();
    if fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        eprintln!("the page cache cannot be dropped here: read every `cold` as `warm`");
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return vec![path.to_owned()] };
    entries.flat_map(|entry| files(&entry.unwrap().path())).collect()
}

pub fn read_all(path: &Path) {
    for file in files(path) {
        let _ = std::io::copy(&mut fs::File::open(file).unwrap(), &mut std::io::sink());
    }
}

/// Blocks in use, so that a sparse file counts what it takes.
pub fn disk_bytes(path: &Path) -> u64 {
    files(path).iter().map(|file| fs::metadata(file).unwrap().blocks() * 512).sum()
}

#[derive(Default)]
pub struct Report(pub String);

impl Report {
    pub fn row(&mut self, measure: &str, cells: [String; 3]) {
        let line = format!("| {measure} | {} |\n", cells.join(" | "));
        eprint!("{line}");
        self.0 += &line;
    }
}

//! The file of the index, written at a clean end and read at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::index::{Index, read_u64};
use super::names::NameIndex;
use super::records::{Generation, RecordFile};
use super::{KnownLinks, MAX_SAVED_PARTS, RecordCounts, Stamp, path, records_path};

const MAGIC: [u8; 8] = *b"SP-IDS\x00\x03";
/// Bytes of one read or write.
const BUFFER: usize = 1 << 20;

impl KnownLinks {
    /// Writes the index's file. Ids that are added later are not in it.
    pub fn write(&self, stamp: Stamp) -> io::Result<()> {
        let new = unfinished(&self.path);
        let written = self.write_to(&new, stamp).and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            // Frees disk space. If this fails too, the next start removes the file.
            let _ = fs::remove_file(new);
        }
        written
    }

    fn write_to(&self, path: &Path, stamp: Stamp) -> io::Result<()> {
        // The records first: every position in a saved index is valid.
        self.records.sync()?;
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut out = BufWriter::with_capacity(BUFFER, Checksummed::new(file));
        out.write_all(&MAGIC)?;
        out.write_all(&stamp)?;
        out.write_all(&self.names.seed().to_le_bytes())?;
        out.write_all(&self.records.generation())?;
        out.write_all(&self.records.end().to_le_bytes())?;
        for count in [&self.counts.written, &self.counts.replaced] {
            out.write_all(&count.load(Ordering::Relaxed).to_le_bytes())?;
        }
        out.write_all(&(self.names.parts().count() as u64).to_le_bytes())?;
        self.names.parts().try_for_each(|part| part.write(&mut out))?;
        let Checksummed { inner: mut file, sum } = out.into_inner()?;
        file.write_all(&sum.finalize().to_le_bytes())?;
        file.sync_all()
    }

    /// Reads the files, if they are whole, have this stamp and not too many parts.
    pub fn read(directory: &Path, stamp: &[u8]) -> io::Result<Self> {
        let path = path(directory);
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let file = File::open(&path)?;
        let length = file.metadata()?.len();
        let content = length.checked_sub(size_of::<u32>() as u64).ok_or_else(invalid)?;
        let mut from = BufReader::with_capacity(BUFFER, Checksummed::new(file).take(content));
        let mut head = [0; MAGIC.len() + size_of::<Stamp>()];
        from.read_exact(&mut head)?;
        if head.strip_prefix(&MAGIC) != Some(stamp) {
            return Err(invalid());
        }
        let seed = read_u64(&mut from)?;
        let mut generation = Generation::default();
        from.read_exact(&mut generation)?;
        let end = read_u64(&mut from)?;
        let [written, replaced] = [read_u64(&mut from)?, read_u64(&mut from)?].map(AtomicU64::new);
        let count = read_u64(&mut from)?;
        if !(1..=MAX_SAVED_PARTS as u64).contains(&count) {
            return Err(invalid());
        }
        let parts = (0..count).map(|_| Index::read(&mut from, length)).collect::<io::Result<Vec<_>>>()?;
        let is_over = from.read(&mut [0])? == 0;
        let Checksummed { inner: mut file, sum } = from.into_inner().into_inner();
        if !is_over || read_u32(&mut file)? != sum.finalize() {
            return Err(invalid());
        }
        let records = RecordFile::up_to(&records_path(directory), generation, end)?;
        Ok(Self {
            path,
            names: NameIndex::of_parts(seed, parts),
            is_complete: AtomicBool::new(true),
            records,
            counts: RecordCounts { written, replaced },
        })
    }
}

/// The path of the file until it is whole.
pub fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("ids.new")
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Computes the checksum of what is read or written through it.
struct Checksummed<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T> Checksummed<T> {
    fn new(inner: T) -> Self {
        Self { inner, sum: crc32fast::Hasher::new() }
    }
}

impl<W: Write> Write for Checksummed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Checksummed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.sum.update(&bytes[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{finds_all, known, link, name};
    use super::*;

    #[test]
    fn a_file_is_read_back_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let stamp = [7; 16];
        let written = known(&store, 2_000, 5_000);
        written.write(stamp).unwrap();
        let read = KnownLinks::read(&store, &stamp).unwrap();
        assert!(finds_all(&read, 5_000));
        assert!((0..100_000).all(|number| written.lacks(&name(number)) == read.lacks(&name(number))));
        let new = read.insert(&link(70_000));
        read.place(&[new.unwrap()]);
        assert!(!read.lacks(&name(70_000)) && finds_all(&read, 5_000));

        let is_invalid = |stamp: &[u8]| KnownLinks::read(&store, stamp).is_err();
        assert!(is_invalid(&[8; 16]) && is_invalid(&[]));
        known(&store, 1_000, 5_000).write([9; 16]).unwrap();
        assert!(is_invalid(&[9; 16]), "three parts");
        known(&store, 2_000, 5_000).write(stamp).unwrap();
        let path = path(&store);
        let bytes = fs::read(&path).unwrap();
        for at in [0, 9, 30, 36, 44, 52, 60, 70, 80, 1_000, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(is_invalid(&stamp), "{at}");
        }
        for other in [&bytes[..bytes.len() / 2], &[&bytes[..], b"more"].concat()] {
            fs::write(&path, other).unwrap();
            assert!(is_invalid(&stamp));
        }
        fs::write(&path, bytes).unwrap();
        assert!(!is_invalid(&stamp));
        let records = fs::read(records_path(&store)).unwrap();
        fs::write(records_path(&store), &records[..100]).unwrap();
        assert!(is_invalid(&stamp), "records are missing");
        // Records of another generation, and longer.
        drop(known(&store, 20_000, 20_000));
        assert!(is_invalid(&stamp));
        fs::write(records_path(&store), records).unwrap();
        assert!(!is_invalid(&stamp));
    }

    /// The files are derived from the links: those of an older layout are not read, and are made anew.
    ///
    /// The fixtures are those of `tests/it/formats`, which says how they are created.
    #[test]
    fn files_of_all_versions_are_read() {
        const STAMP: Stamp = [7; 16];
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats");
        if std::env::var_os("SIGNPOST_WRITE_FORMATS").is_some() {
            let fixture = all.join(env!("CARGO_PKG_VERSION")).join("index");
            let _ = fs::remove_dir_all(&fixture);
            fs::create_dir_all(&fixture).unwrap();
            known(&fixture.join("store"), 50, 60).write(STAMP).unwrap();
        }
        let mut versions = 0;
        for version in fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()) {
            let directory = tempfile::tempdir().unwrap();
            for file in fs::read_dir(version.join("index")).unwrap().map(|entry| entry.unwrap()) {
                fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
            }
            let store = directory.path().join("store");
            if !fs::read(path(&store)).unwrap().starts_with(&MAGIC) {
                assert!(KnownLinks::read(&store, &STAMP).is_err());
                continue;
            }
            let read = KnownLinks::read(&store, &STAMP).unwrap();
            assert!(finds_all(&read, 60) && read.lacks(&name(60)));
            versions += 1;
        }
        assert!(versions > 0);
    }
}

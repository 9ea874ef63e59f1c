//! The file with links outside of the engine: one record for each link as it was created or changed, in the order of the
//! commits; after a rebuild, in the order of ids first. Records never change.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::domain::link::{Destination, Link, LinkName, ShortId};
use crate::store::records::destinations::{self, length};
use crate::store::records::link_details;

/// The first bytes of a file; its generation follows. So no record is at 0.
const MAGIC: [u8; 8] = *b"SP-LNK\x00\x03";
const HEAD: usize = MAGIC.len() + size_of::<Generation>();
/// Bytes of a redirect's first read, which the destination of nearly every link fits in. Reading more would mostly cost misses of
/// the processor's caches.
const FIRST_READ: usize = 192;

/// Records that are this near to each other are read together. Those of links that were made one after another are.
const NEAR: u64 = 2_048;

/// Random for each new file, so that no file is taken for another.
pub type Generation = [u8; 16];

/// The file. If a power cut left a record incomplete, the link is looked up.
pub struct RecordFile {
    /// `None` if it can't be created; then all links are looked up.
    file: Option<File>,
    generation: Generation,
    end: AtomicU64,
    /// Whether writing a record failed.
    has_failed: AtomicBool,
    /// Whether the file system does not support reads that return at once (`RWF_NOWAIT`).
    always_waits: AtomicBool,
}

impl RecordFile {
    /// Creates an empty file, or empties an existing one.
    pub fn create(path: &Path, generation: Generation) -> Self {
        let made = open(path).and_then(|file| {
            file.set_len(0)?;
            file.write_all_at(&[&MAGIC[..], &generation].concat(), 0)?;
            Ok(file)
        });
        let warn = |error: &io::Error| tracing::warn!(path = %path.display(), %error, "store: {SLOWER}");
        Self::with(made.inspect_err(warn).ok(), generation, HEAD as u64)
    }

    /// Opens the file of this generation, with the records up to `end`.
    pub fn up_to(path: &Path, generation: Generation, end: u64) -> io::Result<Self> {
        let file = open(path)?;
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0)?;
        if head.strip_prefix(&MAGIC) != Some(&generation) || file.metadata()?.len() < end {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.set_len(end)?;
        Ok(Self::with(Some(file), generation, end))
    }

    fn with(file: Option<File>, generation: Generation, end: u64) -> Self {
        if let Some(file) = &file {
            // Disables read-ahead. If this fails, reads are only slower.
            let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
        }
        let [has_failed, always_waits] = [file.is_none(), false].map(AtomicBool::new);
        Self { file, generation, end: AtomicU64::new(end), has_failed, always_waits }
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether all records were written.
    pub fn are_whole(&self) -> bool {
        !self.has_failed.load(Ordering::Acquire)
    }

    /// Syncs the records to disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Appends records and returns the position of the first; `None` if the write fails.
    pub fn append(&self, records: &[u8]) -> Option<u64> {
        let file = self.file.as_ref().filter(|_| self.are_whole())?;
        let at = self.end.fetch_add(records.len() as u64, Ordering::AcqRel);
        let warn = |error: &io::Error| {
            if !self.has_failed.swap(true, Ordering::AcqRel) {
                tracing::warn!(%error, "store: {SLOWER}");
            }
        };
        file.write_all_at(records, at).inspect_err(warn).ok().map(|()| at)
    }

    /// The destination of the record at this position, if that is in memory and of the link with this name: the call never
    /// waits for the disk. If it is not in memory, the kernel begins to read it (Linux 5.9 and later), so that the next call
    /// finds it.
    pub fn destination(&self, name: &LinkName, position: u64) -> Option<Destination> {
        let file = self.file.as_ref().filter(|_| !self.always_waits.load(Ordering::Relaxed))?;
        let read_into =
            |into: &mut [u8]| rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], position, ReadWriteFlags::NOWAIT);
        let mut bytes = [0; destinations::MAX_BYTES];
        let mut read = read_into(&mut bytes[..FIRST_READ]);
        if read.is_ok_and(|read| length(&bytes[..read]).is_some_and(|length| length > FIRST_READ)) {
            read = read_into(&mut bytes);
        }
        match read {
            Ok(read) => destinations::decode(&bytes[..read]).filter(|destination| destination.name == *name),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                if !self.always_waits.swap(true, Ordering::Relaxed) {
                    tracing::info!(
                        "store: redirects take a little longer, as this file system does not support RWF_NOWAIT"
                    );
                }
                None
            }
            Err(_) => None,
        }
    }

    /// The link of the record at this position, if it has this name. Waits for the disk.
    pub fn link(&self, name: &LinkName, position: u64) -> Option<Link> {
        let file = self.file.as_ref()?;
        let mut bytes = [0; link_details::MAX_BYTES];
        // Of most links the first read is all, and often one page that a look-up in memory has had read.
        [FIRST_READ, link_details::MAX_BYTES].into_iter().find_map(|count| {
            let read = file.read_at(&mut bytes[..count], position).unwrap_or_default();
            link_details::decode_named(name, &bytes[..read])
        })
    }

    /// The links of the records at these positions, where that is the one with this id. Waits for the disk.
    pub fn links(&self, wanted: &[(ShortId, Option<u64>)]) -> Vec<Option<Link>> {
        let mut links = vec![None; wanted.len()];
        let Some(file) = &self.file else { return links };
        let mut positions: Vec<(u64, usize)> =
            wanted.iter().zip(0..).filter_map(|((_, position), place)| Some(((*position)?, place))).collect();
        positions.sort_unstable();
        let mut bytes = Vec::new();
        let is_near = |(before, _): &(u64, usize), (position, _): &(u64, usize)| position - before <= NEAR;
        for near in positions.chunk_by(is_near) {
            let ([(first, _), ..], [.., (last, _)]) = (near, near) else { continue };
            // Without read-ahead, the kernel would read the pages that it does not have one after another. If this fails, it does.
            let length = NonZeroU64::new((last - first).saturating_add(link_details::MAX_BYTES as u64));
            let _ = rustix::fs::fadvise(file, *first, length, Advice::WillNeed);
        }
        for near in positions.chunk_by(is_near) {
            let ([(first, _), ..], [.., (last, _)]) = (near, near) else { continue };
            let offset = |position: &u64| usize::try_from(position - first).unwrap_or(usize::MAX);
            bytes.resize(offset(last).saturating_add(link_details::MAX_BYTES), 0);
            // The engine has those that can't be read.
            let read = file.read_at(&mut bytes, *first).unwrap_or_default();
            for (position, place) in near {
                let record = bytes[..read].get(offset(position)..).unwrap_or_default();
                links[*place] = link_details::decode(wanted[*place].0, record);
            }
        }
        links
    }
}

/// The consequence of every fault here, as log lines state it.
const SLOWER: &str = "lists, and redirects to links that are not in the cache, take a little longer";

/// It has users' links: readable by its owner only.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the file system of this directory supports reads that return at once.
#[cfg(test)]
pub fn reads_without_waiting(directory: &Path) -> bool {
    let file = open(&directory.join("probe")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use crate::domain::link::TargetUrl;
    use crate::store::records::destinations::HEAD_BYTES;
    use crate::store::records::link_details::encode;

    fn link(target: &str) -> Link {
        Link { target: TargetUrl::from_store(target.into()), ..tests::link(1) }
    }

    fn links_at(records: &RecordFile, id: ShortId, position: u64) -> Vec<Option<Link>> {
        records.links(&[(id, Some(position))])
    }

    #[test]
    fn records_are_appended_behind_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let link = link("https://example.com/");
        let name = link.name();
        let record = encode(&link).unwrap();
        let records = RecordFile::create(&path, [1; 16]);
        let first = records.append(&record).unwrap();
        let end = records.end();
        records.append(b"a record behind the end").unwrap();

        let records = RecordFile::up_to(&path, [1; 16], end).unwrap();
        let second = records.append(&record).unwrap();
        assert_eq!(second, end);
        // Just written, so in memory.
        let is_read = reads_without_waiting(directory.path());
        assert_eq!([first, second].map(|at| records.link(&name, at)), [Some(link.clone()), Some(link.clone())]);
        assert_eq!(records.link(&name, first + 1), None);
        let positions = [first, second, first + 1];
        assert_eq!(positions.map(|at| records.destination(&name, at).is_some()), [is_read, is_read, false]);
        let listed = records.links(&positions.map(|at| (link.id, Some(at))));
        assert_eq!(listed, [Some(link.clone()), Some(link.clone()), None]);
        assert_eq!(records.destination(&LinkName::parse("abcdefh").unwrap(), first), None, "of another link");
        assert_eq!(records.link(&LinkName::parse("abcdefh").unwrap(), first), None, "of another link");
        let far = u64::from(u32::MAX);
        assert!(records.destination(&name, far).is_none() && links_at(&records, link.id, far) == [None]);

        assert!(RecordFile::up_to(&path, [1; 16], records.end() + 1).is_err(), "cut");
        assert!(RecordFile::up_to(&path, [2; 16], end).is_err(), "another one");
        let again = RecordFile::create(&path, [2; 16]);
        assert!(again.destination(&name, first).is_none() && links_at(&again, link.id, first) == [None]);
        std::fs::write(&path, b"something else").unwrap();
        assert!(RecordFile::up_to(&path, [2; 16], 8).is_err());
        assert!(RecordFile::up_to(&directory.path().join("none"), [2; 16], 8).is_err());
    }

    #[test]
    fn records_of_all_lengths_are_read_before_others_and_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let records = RecordFile::create(&directory.path().join("records"), [1; 16]);
        let is_read = reads_without_waiting(directory.path());
        let at_the_edges =
            [FIRST_READ - 1, FIRST_READ, FIRST_READ + 1, destinations::MAX_BYTES].map(|bytes| bytes - HEAD_BYTES);
        let links: Vec<_> = at_the_edges.into_iter().chain([0, 1]).map(|bytes| link(&"x".repeat(bytes))).collect();
        let mut written = Vec::new();
        for link in &links {
            written.push((link, records.append(&encode(link).unwrap()).unwrap()));
            for (link, at) in &written {
                assert_eq!(records.destination(&link.name(), *at), is_read.then(|| Destination::from(*link)));
                assert_eq!(links_at(&records, link.id, *at), [Some((*link).clone())]);
                assert_eq!(records.link(&link.name(), *at).as_ref(), Some(*link));
            }
        }
    }

    #[test]
    fn links_are_read_in_the_order_in_which_they_are_wanted_from_near_and_far_records() {
        let directory = tempfile::tempdir().unwrap();
        let records = RecordFile::create(&directory.path().join("records"), [1; 16]);
        let mut written: Vec<_> = (0..100)
            .map(|number| {
                let link = tests::link(number);
                let at = records.append(&encode(&link).unwrap()).unwrap();
                if number % 7 == 0 {
                    records.append(&vec![0; usize::try_from(NEAR).unwrap()]).unwrap();
                }
                (link, Some(at))
            })
            .collect();
        written[3].1 = None;
        // Another link's record.
        written[4].1 = written[5].1;
        let in_another_order = (0..100).map(|place| &written[place * 37 % 100]);
        let (wanted, expected): (Vec<_>, Vec<_>) = in_another_order
            .map(|(link, at)| ((link.id, *at), Some(link.clone()).filter(|_| ![3, 4].contains(&link.created_at.0))))
            .unzip();
        assert_eq!(records.links(&wanted), expected);
    }

    #[test]
    fn without_a_file_no_record_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let records = RecordFile::create(directory.path(), [1; 16]);
        assert!(!records.are_whole());
        assert_eq!(records.append(b"a record"), None);
        let link = link("https://example.com/");
        assert!(records.destination(&link.name(), 8).is_none() && links_at(&records, link.id, 8) == [None]);
        records.sync().unwrap();
    }

    #[test]
    fn after_a_failed_write_no_record_is_appended() {
        let directory = tempfile::tempdir().unwrap();
        let records = RecordFile::create(&directory.path().join("records"), [1; 16]);
        records.append(b"a record").unwrap();
        // Beyond the maximum length of a file.
        records.end.store(i64::MAX as u64 - 8, Ordering::SeqCst);
        assert_eq!(records.append(b"a record that is longer"), None);
        assert!(!records.are_whole());
        records.end.store(HEAD as u64, Ordering::SeqCst);
        assert_eq!(records.append(b"a record"), None);
    }
}

//! The file of what redirects need of links: a record a link, in the order in which they came. Nothing in it ever changes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::domain::link::{Destination, ShortId};
use crate::store::records::destinations::{MAX_BYTES, decode, length};

/// How a file begins; its generation follows. So no record is at 0.
const MAGIC: [u8; 8] = *b"SP-LNK\x00\x01";
const HEAD: usize = MAGIC.len() + size_of::<Generation>();
/// What the first look reads, which is all of nearly every record. More would be read for nothing, and mostly from memory that no
/// cache of the processor has.
const FIRST_LOOK: usize = 192;

/// Another one for each file that is begun, so that none is taken for another.
pub type Generation = [u8; 16];

/// The file. A record that a power cut took is not whole, and then the link is looked up.
pub struct Records {
    /// None where it can't be made; then nothing is told.
    file: Option<File>,
    generation: Generation,
    end: AtomicU64,
    /// Whether the disk did not take a record.
    has_failed: AtomicBool,
    /// Whether the file system can't tell what is in memory.
    always_waits: AtomicBool,
}

impl Records {
    /// An empty file in the place of what was there.
    pub fn create(path: &Path, generation: Generation) -> Self {
        let made = open(path).and_then(|file| {
            file.set_len(0)?;
            file.write_all_at(&[&MAGIC[..], &generation].concat(), 0)?;
            Ok(file)
        });
        let warn = |error: &io::Error| tracing::warn!(path = %path.display(), %error, "store: {SLOWER}");
        Self::with(made.inspect_err(warn).ok(), generation, HEAD as u64)
    }

    /// Those of this generation that were written up to `end`.
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
            // The kernel is not to read along what is beside a record. Where it does, that is only slower.
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

    /// Whether all that was to be written was.
    pub fn are_whole(&self) -> bool {
        !self.has_failed.load(Ordering::Acquire)
    }

    /// Brings to the disk what was written.
    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Writes records, one behind another, and answers where the first begins; `None` where the disk doesn't take them.
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

    /// The record at this position, if it is in memory: nobody waits for the disk's answer here. Where it is not, the kernel is
    /// asked to read it (Linux 5.9 and later), so that it is the next time.
    pub fn read(&self, id: ShortId, position: u64) -> Option<Destination> {
        let file = self.file.as_ref().filter(|_| !self.always_waits.load(Ordering::Relaxed))?;
        let look =
            |into: &mut [u8]| rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], position, ReadWriteFlags::NOWAIT);
        let mut bytes = [0; MAX_BYTES];
        let mut read = look(&mut bytes[..FIRST_LOOK]);
        if read.is_ok_and(|read| length(&bytes[..read]).is_some_and(|length| length > FIRST_LOOK)) {
            read = look(&mut bytes);
        }
        match read {
            Ok(read) => decode(id, &bytes[..read]),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                if !self.always_waits.swap(true, Ordering::Relaxed) {
                    tracing::info!("store: this file system does not support RWF_NOWAIT; {SLOWER}");
                }
                None
            }
            Err(_) => None,
        }
    }
}

/// What is said of all that keeps records from being told.
const SLOWER: &str = "redirects to links that are not in the cache take a little longer";

/// People's links are in it: for the owner's eyes only.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether what was just written in this directory is told without waiting: not every file system can.
#[cfg(test)]
pub fn are_told_in(directory: &Path) -> bool {
    let file = open(&directory.join("told")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::key::KeyId;
    use crate::store::records::destinations::{HEAD_BYTES, encode};

    fn link(target: &str) -> Destination {
        let id = ShortId::parse("abcdefg").unwrap();
        let owner = KeyId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        Destination { id, owner, tracked: true, webhooks: 3, target: target.into() }
    }

    #[test]
    fn a_file_goes_on_where_it_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let link = link("https://example.com/");
        let record = encode(&link).unwrap();
        let records = Records::create(&path, [1; 16]);
        let first = records.append(&record).unwrap();
        let end = records.end();
        records.append(b"what nobody was told of").unwrap();

        let records = Records::up_to(&path, [1; 16], end).unwrap();
        let second = records.append(&record).unwrap();
        assert_eq!(second, end);
        // Just written, so in memory.
        let told = are_told_in(directory.path());
        assert_eq!([first, second, first + 1].map(|at| records.read(link.id, at).is_some()), [told, told, false]);
        assert_eq!(records.read(link.id, u64::from(u32::MAX)), None);

        assert!(Records::up_to(&path, [1; 16], records.end() + 1).is_err(), "cut");
        assert!(Records::up_to(&path, [2; 16], end).is_err(), "another one");
        let again = Records::create(&path, [2; 16]);
        assert_eq!(again.read(link.id, first), None);
        std::fs::write(&path, b"something else").unwrap();
        assert!(Records::up_to(&path, [2; 16], 8).is_err());
        assert!(Records::up_to(&directory.path().join("none"), [2; 16], 8).is_err());
    }

    #[test]
    fn records_of_all_lengths_are_read_with_others_behind_them_and_as_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::create(&directory.path().join("records"), [1; 16]);
        let told = are_told_in(directory.path());
        let at_the_edges = [FIRST_LOOK - 1, FIRST_LOOK, FIRST_LOOK + 1, MAX_BYTES].map(|bytes| bytes - HEAD_BYTES);
        let links: Vec<_> = at_the_edges.into_iter().chain([0, 1]).map(|bytes| link(&"x".repeat(bytes))).collect();
        let mut written = Vec::new();
        for link in &links {
            written.push((link, records.append(&encode(link).unwrap()).unwrap()));
            for (link, at) in &written {
                assert_eq!(records.read(link.id, *at).as_ref(), told.then_some(*link));
            }
        }
    }

    #[test]
    fn where_no_file_can_be_made_nothing_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::create(directory.path(), [1; 16]);
        assert!(!records.are_whole());
        assert_eq!(records.append(b"a record"), None);
        assert_eq!(records.read(link("https://example.com/").id, 8), None);
        records.sync().unwrap();
    }

    #[test]
    fn after_a_record_that_the_disk_did_not_take_no_other_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::create(&directory.path().join("records"), [1; 16]);
        records.append(b"a record").unwrap();
        // As far as no file reaches.
        records.end.store(i64::MAX as u64 - 8, Ordering::SeqCst);
        assert_eq!(records.append(b"a record that is longer"), None);
        assert!(!records.are_whole());
        records.end.store(HEAD as u64, Ordering::SeqCst);
        assert_eq!(records.append(b"a record"), None);
    }
}

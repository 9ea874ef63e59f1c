//! Finds the segments of earlier processes in the journal's directory, and reads them past torn records.
//!
//! Old segments are read and not mapped. A file may be shorter than its header says, and an access to a mapping behind
//! the file's end is a signal (`SIGBUS`) and not an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;

use super::JournalError;
use super::format::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameKind, FrameWord, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use super::segment::{LONGEST_PAGE_BYTES, UNFINISHED_EXTENSION};
use crate::domain::hit::{NodeId, Position};

/// The file that a process locks while it uses the directory.
pub const LOCK_FILE: &str = "journal.lock";

const SEGMENT_EXTENSION: &str = "seg";
/// Added to the name of a segment that can't be read.
pub(super) const UNREADABLE_EXTENSION: &str = "unreadable";

/// What was found in the journal's directory and in segments of earlier processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Old segments of this node.
    pub segments: u64,
    /// Valid records in old segments, including those below the cursor.
    pub records: u64,
    /// Ranges of bytes without a valid record: a writer was killed before it published its record, or the bytes are
    /// torn or damaged. The unused end of a segment is not a hole.
    pub holes: u64,
    /// Bytes in holes.
    pub torn_bytes: u64,
    /// Records with a valid checksum that can't be decoded; they are skipped.
    pub undecodable_records: u64,
    /// Segments shorter than their header says; they are read up to the file's end.
    pub truncated_segments: u64,
    /// Segments that could not be read to their end; their files are kept, under another name.
    pub unreadable_segments: u64,
    /// Files with a segment's name but without a valid header; they are left in place.
    pub damaged_segments: u64,
    /// Segments of another node; they are left in place.
    pub other_node_segments: u64,
    /// Other files; they are left in place.
    pub foreign_files: u64,
}

impl RecoveryReport {
    /// Whether only valid segments and records were found.
    pub fn is_clean(&self) -> bool {
        let clean = Self { segments: self.segments, records: self.records, ..Self::default() };
        *self == clean
    }
}

/// A segment that an earlier process of this node wrote.
#[derive(Clone, Debug)]
pub(super) struct OldSegment {
    pub path: PathBuf,
    pub header: SegmentHeader,
    /// The file's length in bytes, which may differ from the header's capacity.
    pub file_bytes: u64,
}

/// The contents of a journal's directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryContents {
    /// This node's segments, in order of sequence.
    pub segments: Vec<OldSegment>,
    /// The lowest sequence number above those of all files.
    pub next_sequence: u64,
    pub report: RecoveryReport,
}

/// The name of a segment's file.
pub(super) fn segment_path(directory: &Path, sequence: u64) -> PathBuf {
    directory.join(format!("{sequence:020}.{SEGMENT_EXTENSION}"))
}

/// The existing files in the directory that the journal writes or deletes, without directories that have the name of a
/// segment.
///
/// # Errors
/// If the directory can't be read.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_own = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name == LOCK_FILE)
            || sequence_of(path, UNFINISHED_EXTENSION).is_some()
            || sequence_of(path, SEGMENT_EXTENSION).is_some() && !path.is_dir()
    };
    let entries: Vec<_> = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    Ok(entries.into_iter().filter(is_own).collect())
}

fn sequence_of(path: &Path, extension: &str) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let named = path.extension()? == extension && stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit());
    if named { stem.parse().ok() } else { None }
}

/// Finds the segments in the directory. An unusable file is not an error: it is reported and left in place.
///
/// # Errors
/// If the directory can't be read, or a later release wrote a segment. Without that segment, its positions would be
/// used again, and the later release would take its hits for counted ones.
pub(super) fn inspect_directory(directory: &Path, node: NodeId) -> Result<DirectoryContents, JournalError> {
    let unreadable = |source| JournalError::Directory { path: directory.to_owned(), source };
    let mut contents = DirectoryContents::default();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        contents.add(&entry.map_err(unreadable)?.path(), node)?;
    }
    contents.segments.sort_by_key(|segment| segment.header.sequence);
    contents.report.segments = contents.segments.len() as u64;
    Ok(contents)
}

/// How many valid records of this node's segments end behind a position.
///
/// # Errors
/// As [`inspect_directory`], and if a segment can't be read.
pub(super) fn count_records(directory: &Path, node: NodeId, behind: Position) -> Result<u64, JournalError> {
    let DirectoryContents { segments, mut report, .. } = inspect_directory(directory, node)?;
    let mut count = 0;
    for segment in segments {
        if segment.header.end() <= behind {
            continue;
        }
        let unreadable = |source| JournalError::Directory { path: segment.path.clone(), source };
        let mut scan = Scan::open(&segment).map_err(unreadable)?;
        let is_behind = |end: usize, _: &[u8]| segment.header.base.0 + end as u64 > behind.0;
        while let Some(is_behind) = scan.next(&mut report, is_behind).map_err(unreadable)? {
            count += u64::from(is_behind);
        }
    }
    Ok(count)
}

impl DirectoryContents {
    fn add(&mut self, path: &Path, node: NodeId) -> Result<(), JournalError> {
        if path.file_name().is_some_and(|name| name == LOCK_FILE) {
            return Ok(());
        }
        if sequence_of(path, UNFINISHED_EXTENSION).is_some() {
            // The process ended before it renamed the file, so the file contains no record.
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "can't delete an incomplete journal segment");
            }
            return Ok(());
        }
        let Some(sequence) = sequence_of(path, SEGMENT_EXTENSION) else {
            self.report.foreign_files += 1;
            tracing::warn!(path = %path.display(), "ignored a file that is not a journal segment");
            return Ok(());
        };
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
        match read_header(path) {
            Ok(old) if old.header.sequence != sequence => self.add_damaged(path, &"the file was renamed"),
            Ok(old) if old.header.node != node => {
                self.report.other_node_segments += 1;
                let node = old.header.node.0;
                tracing::warn!(path = %path.display(), %node, "ignored a journal segment of another node");
            }
            Ok(old) => {
                if old.file_bytes < old.header.capacity {
                    self.report.truncated_segments += 1;
                    let (bytes, expected_bytes) = (old.file_bytes, old.header.capacity);
                    tracing::warn!(path = %path.display(), bytes, expected_bytes, "a journal segment is truncated");
                }
                self.segments.push(old);
            }
            Err(ReadHeaderError::Header(HeaderError::Version(version))) => {
                return Err(JournalError::LaterRelease { path: path.to_owned(), version });
            }
            Err(error) => self.add_damaged(path, &error),
        }
        Ok(())
    }

    fn add_damaged(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        self.report.damaged_segments += 1;
        tracing::warn!(path = %path.display(), %error, "ignored an unusable journal segment");
    }
}

#[derive(Debug, thiserror::Error)]
enum ReadHeaderError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] HeaderError),
}

fn read_header(path: &Path) -> Result<OldSegment, ReadHeaderError> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let header = SegmentHeader::decode(&bytes)?;
    Ok(OldSegment { path: path.to_owned(), header, file_bytes })
}

/// Reads the valid records of an old segment in order.
#[derive(Debug)]
pub(super) struct Scan {
    window: ReadWindow,
    seed: u32,
    /// The end of the readable bytes.
    limit: usize,
    offset: usize,
    /// The start of the hole at `offset`, if there is one.
    hole: Option<usize>,
    /// The end of the last bytes that are not zero.
    written_upto: usize,
}

impl Scan {
    pub fn open(segment: &OldSegment) -> io::Result<Self> {
        let readable = segment.header.capacity.min(segment.file_bytes);
        let limit = usize::try_from(readable).map_err(io::Error::other)?;
        Ok(Self {
            window: ReadWindow::new(File::open(&segment.path)?, limit),
            seed: segment.header.seed(),
            limit,
            offset: SEGMENT_HEADER_BYTES,
            hole: None,
            written_upto: 0,
        })
    }

    /// Calls `read` with the next valid record and the offset of its end; `None` at the segment's end.
    pub fn next<R>(
        &mut self,
        report: &mut RecoveryReport,
        read: impl FnOnce(usize, &[u8]) -> R,
    ) -> io::Result<Option<R>> {
        while let Some(word) = self.step(report)? {
            let start = self.offset - word.frame_bytes();
            if word.kind == FrameKind::Record {
                report.records += 1;
                let payload = start + FRAME_HEADER_BYTES;
                let bytes = self.window.get(payload, usize::from(word.payload_len))?;
                return Ok(Some(read(self.offset, bytes)));
            }
        }
        Ok(None)
    }

    /// Goes past the next valid frame. It looks for it at each aligned offset that has bytes other than zeros.
    fn step(&mut self, report: &mut RecoveryReport) -> io::Result<Option<FrameWord>> {
        while self.offset + FRAME_HEADER_BYTES <= self.limit {
            let start = self.offset;
            if let Some(word) = self.frame_at(start)? {
                self.close_hole(start, report);
                self.offset = start + word.frame_bytes();
                return Ok(Some(word));
            }
            self.hole.get_or_insert(start);
            self.offset = self.window.skip_zeros(start + FRAME_ALIGNMENT);
        }
        // Zeros up to the segment's end were never used, so they are not a hole.
        self.close_hole(self.written_upto, report);
        Ok(None)
    }

    fn frame_at(&mut self, start: usize) -> io::Result<Option<FrameWord>> {
        let head = self.window.get(start, FRAME_HEADER_BYTES)?;
        let (Some(&raw), Some(&checksum)) = (head.first_chunk(), head.last_chunk()) else {
            return Ok(None);
        };
        if (raw, checksum) != ([0; 4], [0; 4]) {
            self.written_upto = start + FRAME_ALIGNMENT;
        }
        let Some(word) = FrameWord::from_raw(u32::from_le_bytes(raw), self.limit - start) else {
            return Ok(None);
        };
        let payload_len = match word.kind {
            FrameKind::Record => usize::from(word.payload_len),
            FrameKind::Skip => 0,
        };
        let payload = self.window.get(start + FRAME_HEADER_BYTES, payload_len)?;
        let is_valid = word.checksum(self.seed, start, payload) == u32::from_le_bytes(checksum);
        Ok(is_valid.then_some(word))
    }

    fn close_hole(&mut self, end: usize, report: &mut RecoveryReport) {
        if let Some(start) = self.hole.take()
            && start < end
        {
            report.holes += 1;
            report.torn_bytes += (end - start) as u64;
        }
    }
}

/// A part of a file in memory.
#[derive(Debug)]
struct ReadWindow {
    file: File,
    file_bytes: usize,
    /// Whether the file system tells what it has no data for.
    tells_data: bool,
    start: usize,
    bytes: Vec<u8>,
}

/// Whether the file system reports holes (`SEEK_DATA`) and is known to report all data that was written through a mapping. Some file
/// systems had bugs there, and a skipped record would be lost.
fn tells_data(file: &File) -> io::Result<bool> {
    const KNOWN: [libc::c_long; 4] =
        [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::TMPFS_MAGIC];
    if !KNOWN.contains(&rustix::fs::fstatfs(file)?.f_type) {
        return Ok(false);
    }
    // A process that was killed has left pages that are not written yet.
    file.sync_data()?;
    // Without reading ahead: pages without data that it would bring into the page cache count as data.
    rustix::fs::fadvise(file, 0, None, Advice::Random)?;
    Ok(true)
}

impl ReadWindow {
    const BYTES: usize = 256 * 1024;

    fn new(file: File, file_bytes: usize) -> Self {
        let tells_data = tells_data(&file).unwrap_or(false);
        Self { file, file_bytes, tells_data, start: 0, bytes: Vec::new() }
    }

    /// The bytes at `offset`. `len` is at most the length of the longest frame.
    fn get(&mut self, offset: usize, len: usize) -> io::Result<&[u8]> {
        if offset < self.start || offset + len > self.start + self.bytes.len() {
            if offset + len > self.file_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // Whole pages: one that is read in part is in the page cache as a whole, and counts as data there.
            self.start = offset - offset % LONGEST_PAGE_BYTES;
            self.bytes.resize(Self::BYTES.min(self.file_bytes - self.start), 0);
            self.file.read_exact_at(&mut self.bytes, self.start as u64)?;
        }
        let from = offset - self.start;
        Ok(&self.bytes[from..from + len])
    }

    /// The next aligned offset from `offset` on that may have bytes other than zeros. Of the bytes in memory it skips all zeros, of
    /// the file what the file system has no data for: most of a segment that a killed process has left.
    fn skip_zeros(&self, offset: usize) -> usize {
        let known = offset.checked_sub(self.start).and_then(|from| self.bytes.get(from..)).unwrap_or_default();
        let (words, _) = known.as_chunks::<FRAME_ALIGNMENT>();
        match words.iter().position(|word| *word != [0; FRAME_ALIGNMENT]) {
            Some(zeros) => offset + zeros * FRAME_ALIGNMENT,
            None => self.next_data(offset + words.len() * FRAME_ALIGNMENT),
        }
    }

    fn next_data(&self, offset: usize) -> usize {
        if !self.tells_data {
            return offset;
        }
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(offset as u64)) {
            Ok(data) => usize::try_from(data).unwrap_or(self.file_bytes),
            Err(Errno::NXIO) => self.file_bytes,
            Err(_) => offset,
        };
        // A file system has data in blocks, which are aligned.
        offset.max(data - data % FRAME_ALIGNMENT)
    }
}

const _: () = assert!(ReadWindow::BYTES - LONGEST_PAGE_BYTES > FRAME_HEADER_BYTES + u16::MAX as usize);

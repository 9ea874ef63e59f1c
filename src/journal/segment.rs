//! A segment of the journal: a memory-mapped file that contains a [`Log`] and survives the process.
#![allow(unsafe_code, reason = "memory shared through a file; each block says why it is sound")]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::append_log::{Claim, FrameStart, Log, Memory, Published};
use super::format::{FRAME_ALIGNMENT, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, WORD_BYTES};
use crate::domain::hit::Position;
use crate::locks::lock;
use crate::threads::{CacheLines, yield_periodically};

/// The shortest page of any system.
const PAGE_BYTES: usize = 4096;
/// Bytes of a new file that are written at once, which takes some microseconds. With more, the kernel moves pages of
/// other memory to make larger ones.
const CHUNK_BYTES: usize = 8 * PAGE_BYTES;
/// Pages are released in steps of this length. A step of 1 MiB took 0.03 ms, and up to 0.7 ms under load.
const RELEASE_BYTES: usize = 128 << 10;
/// Pages are written to the disk in steps of this length, which take about 0.05 ms each.
const WRITE_BYTES: usize = 256 << 10;
/// The longest page that systems commonly have.
pub const LONGEST_PAGE_BYTES: usize = 64 << 10;

/// A file mapped into memory, shared with the page cache.
#[derive(Debug)]
pub struct Mapped {
    tail: CacheLines<AtomicUsize>,
    map: MmapRaw,
    /// The offset up to which pages are in memory and ready for writing. Writers fill no frame beyond it.
    ready_upto: AtomicUsize,
    /// The first append that reaches this offset wakes the thread that creates pages.
    wake_at: AtomicUsize,
    header: SegmentHeader,
    path: PathBuf,
    file: File,
    /// Whether the whole file was already written with zeros.
    has_zeros: bool,
    /// Locked by the thread that creates pages.
    making_ready: Mutex<()>,
    /// The offset up to which the reader has read.
    read_upto: AtomicUsize,
    /// The offset up to which memory was released.
    released_upto: AtomicUsize,
    /// The offset up to which the kernel was asked to write pages to the disk.
    written_upto: AtomicUsize,
    /// The offset up to which all frames are published and on the disk.
    synced_upto: AtomicUsize,
}

/// A segment of the running journal.
pub type Segment = Log<Mapped>;

/// When a segment is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Before it is needed. Its header is synced.
    Ahead,
    /// While redirects wait for it. Nothing is synced.
    Now,
}

impl Log<Mapped> {
    /// Creates a segment's file, allocates its blocks, and maps it.
    ///
    /// The file is renamed at the end, so each file with the name of a segment has a header.
    pub fn create(path: PathBuf, header: SegmentHeader, prepare: Prepare) -> io::Result<Self> {
        let unfinished = path.with_extension(UNFINISHED_EXTENSION);
        let segment = Self::allocate(&unfinished, path, header, prepare).and_then(|segment| {
            std::fs::rename(&unfinished, segment.path())?;
            Ok(segment)
        });
        if segment.is_err() {
            // The incomplete file uses blocks that a full disk needs. If the removal fails, the next start removes it.
            let _ = std::fs::remove_file(&unfinished);
        }
        segment
    }

    fn allocate(unfinished: &Path, path: PathBuf, header: SegmentHeader, prepare: Prepare) -> io::Result<Self> {
        let capacity = usize::try_from(header.capacity).map_err(io::Error::other)?;
        // Records contain clients' addresses, so only the owner may read the file.
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(unfinished)?;
        let has_zeros = allocate_blocks(&file, header.capacity)?;
        file.write_all_at(&header.encode(), 0)?;
        if prepare == Prepare::Ahead {
            file.sync_all()?;
        }
        let map = MmapOptions::new().len(capacity).map_raw(&file)?;
        let memory = Mapped {
            tail: CacheLines(AtomicUsize::new(SEGMENT_HEADER_BYTES)),
            map,
            ready_upto: AtomicUsize::new(0),
            wake_at: AtomicUsize::new(usize::MAX),
            header,
            path,
            file,
            has_zeros,
            making_ready: Mutex::default(),
            read_upto: AtomicUsize::new(0),
            released_upto: AtomicUsize::new(0),
            written_upto: AtomicUsize::new(0),
            synced_upto: AtomicUsize::new(0),
        };
        Ok(Self::new(memory, header.seed(), capacity))
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.memory().header
    }

    pub fn path(&self) -> &Path {
        &self.memory().path
    }

    /// The position of an offset in this segment.
    pub fn position(&self, offset: usize) -> Position {
        Position(self.header().base.0 + offset as u64)
    }

    /// How many bytes are reserved, including the header.
    pub fn reserved(&self) -> usize {
        self.memory().tail.0.load(Ordering::Acquire).min(self.capacity())
    }

    /// Sets the offset up to which the reader has read.
    pub fn mark_read(&self, offset: usize) {
        self.memory().read_upto.store(offset, Ordering::Release);
        // A reader that goes back maps released pages again.
        self.memory().released_upto.fetch_min(offset, Ordering::Relaxed);
    }

    /// The offset up to which pages are in memory and ready for writing.
    pub fn ready_upto(&self) -> usize {
        self.memory().ready_upto.load(Ordering::Acquire)
    }

    /// Creates the next few pages, which takes some microseconds. Returns false if all pages up to `upto` were ready.
    pub fn make_ready(&self, upto: usize) -> bool {
        self.memory().make_ready(upto)
    }

    /// The next append that reaches this offset is to wake the thread that creates pages.
    pub fn wake_at(&self, offset: usize) {
        self.memory().wake_at.store(offset, Ordering::Relaxed);
    }

    /// Whether the writer of an append that ends at `end` is to wake that thread. True once for each call of
    /// [`Self::wake_at`].
    pub fn is_to_wake(&self, end: usize) -> bool {
        let wake_at = &self.memory().wake_at;
        end >= wake_at.load(Ordering::Relaxed) && wake_at.swap(usize::MAX, Ordering::Relaxed) != usize::MAX
    }

    /// Releases the memory of pages that were read. Their content stays in the file and can be read again.
    pub fn release_read(&self) {
        self.memory().release_read();
    }

    /// Syncs all appended records to the disk. Returns false if there was nothing to sync.
    ///
    /// A reserved frame may be published after the flush. So a range counts as synced only if the reader had read it
    /// before the flush. Until then it is flushed again. This costs little, because the kernel writes only dirty pages.
    pub fn flush(&self) -> io::Result<bool> {
        let read_upto = self.memory().read_upto.load(Ordering::Acquire);
        let reserved = self.reserved();
        if self.memory().synced_upto.load(Ordering::Relaxed) == reserved {
            return Ok(false);
        }
        self.memory().begin_writing(reserved);
        self.memory().map.flush_range(0, reserved)?;
        if read_upto == reserved {
            self.memory().synced_upto.store(reserved, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// The extension of a segment's file until it is complete.
pub const UNFINISHED_EXTENSION: &str = "new";

/// Allocates the file's blocks, so that a full disk is an error here and not a signal (`SIGBUS`) at the first write to
/// a page. Returns whether it wrote zeros to do so.
fn allocate_blocks(file: &File, len: u64) -> io::Result<bool> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, 0..len).map(|()| true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Frees the blocks and the page cache of a deleted file in small steps. If the kernel frees them all at once when the
/// file is closed, redirects on that core wait for 6 ms.
pub fn free_blocks(file: &File, len: u64) {
    /// Takes about 0.05 ms.
    const HOLE_BYTES: u64 = 256 << 10;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut start = 0;
    while start < len {
        match rustix::fs::fallocate(file, hole, start, HOLE_BYTES.min(len - start)) {
            Ok(()) => start += HOLE_BYTES,
            Err(Errno::INTR) => {}
            // This file system does not support holes: the kernel frees the blocks when the file is closed.
            Err(_) => return,
        }
        yield_periodically();
    }
}

fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
    for at in range.clone().step_by(ZEROS.len()) {
        let bytes = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..bytes], at)?;
    }
    Ok(())
}

impl Mapped {
    /// Creates the next pages; see [`Log::make_ready`].
    fn make_ready(&self, upto: usize) -> bool {
        let upto = upto.min(self.map.len());
        if self.ready_upto.load(Ordering::Acquire) >= upto {
            return false;
        }
        let _one_at_a_time = lock(&self.making_ready);
        let start = self.ready_upto.load(Ordering::Relaxed);
        if start >= upto {
            return false;
        }
        let end = self.map.len().min(start + CHUNK_BYTES);
        if let Err(error) = self.prefault(start, end) {
            // The blocks are allocated, so the first write to each page creates it.
            let path = self.path.display();
            tracing::warn!(%path, %error, "can't create journal pages ahead of the writers");
            self.ready_upto.store(self.map.len(), Ordering::Release);
            return false;
        }
        self.ready_upto.store(end, Ordering::Release);
        true
    }

    /// Maps these pages for writing. No record is in them yet.
    ///
    /// Zeros are written to the file first, unless it has them already. Otherwise the page fault makes the kernel read
    /// ahead into pages as large as possible, for which it may move other memory. That occupied the core for up to
    /// 46 ms (Linux 6.18, ext4).
    fn prefault(&self, start: usize, end: usize) -> io::Result<()> {
        // The first page contains the header, and has been written.
        let behind_header = start.max(PAGE_BYTES);
        if !self.has_zeros {
            write_zeros(&self.file, behind_header as u64..end as u64)?;
        }
        if self.map.advise_range(Advice::PopulateWrite, start, end - start).is_err() {
            // Kernels before 5.14 do not support it.
            for offset in (behind_header..end).step_by(PAGE_BYTES) {
                self.word(offset).store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Creates the pages of a frame whose writer has overtaken the thread that creates pages.
    #[cold]
    fn make_all_ready(&self, end: usize) {
        while self.make_ready(end) {}
    }

    /// Has the kernel begin to write pages that no flush has covered, a few at a time: a flush that finds them all occupies
    /// the core for milliseconds.
    fn begin_writing(&self, upto: usize) {
        let start = self.written_upto.swap(upto, Ordering::Relaxed) / PAGE_BYTES * PAGE_BYTES;
        for start in (start..upto).step_by(WRITE_BYTES) {
            let bytes = WRITE_BYTES.min(upto - start);
            let (Ok(start), Ok(bytes)) = (i64::try_from(start), i64::try_from(bytes)) else { return };
            // SAFETY: it takes no memory, and the descriptor is the file's. If it fails, the flush does all of it.
            let _ = unsafe { libc::sync_file_range(self.file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE) };
            yield_periodically();
        }
    }

    fn release_read(&self) {
        // Only whole pages, so that none is released that is still written to.
        let upto = self.read_upto.load(Ordering::Acquire) / LONGEST_PAGE_BYTES * LONGEST_PAGE_BYTES;
        let mut start = self.released_upto.swap(upto, Ordering::Relaxed);
        while start < upto {
            let end = upto.min(start + RELEASE_BYTES);
            // SAFETY: the mapping is shared with its file. The pages' content stays in the page cache or the file. They
            // are only unmapped, and the next access maps them again.
            let released = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
            if let Err(error) = released {
                tracing::debug!(%error, "can't free the memory of a journal segment");
                return;
            }
            start = end;
            yield_periodically();
        }
    }

    /// The first word of a frame.
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(FRAME_ALIGNMENT) && offset < self.map.len());
        #[allow(clippy::cast_ptr_alignment, reason = "checked above")]
        // SAFETY: the word is inside the mapping, whose length is a multiple of 8. It is aligned, because a mapping
        // starts on a page. It stays mapped as long as `self` exists. First words of frames are accessed only through
        // this function, so only atomically: the slices of `fill` and `read` exclude them.
        unsafe {
            AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast())
        }
    }

    fn assert_inside(&self, start: usize, bytes: usize) {
        assert!(bytes >= FRAME_HEADER_BYTES && start + bytes <= self.map.len());
    }
}

impl Memory for Mapped {
    fn reserve(&self, bytes: usize) -> usize {
        // Relaxed: only the addition has to be atomic. `publish` orders the writes to the frame.
        self.tail.0.fetch_add(bytes, Ordering::Relaxed)
    }

    fn fill(&self, claim: &mut Claim, write: impl FnOnce(&mut [u8])) {
        self.assert_inside(claim.start(), claim.bytes());
        let end = claim.start() + claim.bytes();
        // Beyond it, the thread that creates pages writes zeros to the file, which would overwrite the frame.
        if end > self.ready_upto.load(Ordering::Acquire) {
            self.make_all_ready(end);
        }
        // SAFETY: the range is inside the mapping. `Log` makes one claim for each range that it reserves, so no other
        // thread writes it. No thread reads it before it is published, which needs the claim. `&mut` excludes a second
        // slice of the same claim. The bytes are initialised, because the file was allocated as zeros, and no thread
        // writes zeros to it where pages are ready. The lock on the journal's directory excludes other processes.
        let frame = unsafe {
            std::slice::from_raw_parts_mut(
                self.map.as_mut_ptr().add(claim.start() + WORD_BYTES),
                claim.bytes() - WORD_BYTES,
            )
        };
        write(frame);
    }

    fn publish(&self, claim: &Claim, word: u32) {
        self.word(claim.start()).store(word.to_le(), Ordering::Release);
    }

    fn load(&self, start: &FrameStart) -> u32 {
        u32::from_le(self.word(start.offset()).load(Ordering::Acquire))
    }

    fn read<R>(&self, frame: &Published, read: impl FnOnce(&[u8]) -> R) -> R {
        self.assert_inside(frame.start(), frame.bytes());
        // SAFETY: the range is inside the mapping. Its first word was loaded with Acquire and was not zero, so its
        // writer has published it and does not write to it any more.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(frame.start() + WORD_BYTES), frame.bytes() - WORD_BYTES)
        };
        read(bytes)
    }
}

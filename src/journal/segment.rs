//! One segment of the journal: a file, mapped into memory, that a [`Log`] lives in and that outlives
//! the process.
#![allow(unsafe_code, reason = "memory shared through a file; each block says why it is sound")]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::append_log::{Claim, FrameStart, Log, Memory, Published};
use super::format::{FRAME_ALIGNMENT, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, WORD_BYTES};
use crate::domain::hit::Position;
use crate::threads::yield_periodically;

/// A page is at least this long everywhere.
const PAGE_BYTES: usize = 4096;
/// What is written at once of a new file: the longest for which the kernel moves nobody, and some microseconds' work.
const STRETCH_BYTES: usize = 8 * PAGE_BYTES;
/// Pages are given back in pieces of this length, some 0.1 ms of work each.
const PIECE_BYTES: usize = 4 << 20;
/// The longest page that systems commonly have.
const LONGEST_PAGE_BYTES: usize = 64 << 10;

/// A file mapped into memory, shared with the page cache.
#[derive(Debug)]
pub struct Mapped {
    tail: CacheLines<AtomicUsize>,
    map: MmapRaw,
    /// Up to here the pages are in memory, ready for writing. No writer fills a frame that ends behind it.
    ready_upto: AtomicUsize,
    /// Whoever appends up to here is to wake the thread that makes pages ready.
    wake_at: AtomicUsize,
    header: SegmentHeader,
    path: PathBuf,
    file: File,
    /// Whether the file was written already, with zeros.
    has_zeros: bool,
    /// Held by the thread that makes pages ready.
    making_ready: Mutex<()>,
    /// How far the reader has come, in bytes.
    read_upto: AtomicUsize,
    /// How far memory was given back, in bytes.
    released_upto: AtomicUsize,
    /// How far all is published and on the disk, in bytes.
    settled_upto: AtomicUsize,
}

/// Alone on its cache lines (two of them, as they are fetched in pairs): for what every writer
/// changes, so that it takes nothing else along from core to core. Of two counters on one line, each
/// of a thread's own, an addition takes up to 5 ns; apart, 2 (`cargo bench -p loadtests --bench redirect_parts`,
/// 2026-11-23).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct CacheLines<T>(pub T);

/// A segment of the running journal.
pub type Segment = Log<Mapped>;

/// When a segment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Before it is needed: its header is brought to the disk.
    Ahead,
    /// While redirects wait for it: as fast as can be.
    Now,
}

impl Log<Mapped> {
    /// Makes the file of a segment, with its blocks allocated, and maps it.
    ///
    /// The file gets its name last, so that none by that name lacks its header.
    pub fn create(path: PathBuf, header: SegmentHeader, prepare: Prepare) -> io::Result<Self> {
        let unfinished = path.with_extension(UNFINISHED_EXTENSION);
        let segment = Self::allocate(&unfinished, path, header, prepare).and_then(|segment| {
            std::fs::rename(&unfinished, segment.path())?;
            Ok(segment)
        });
        if segment.is_err() {
            // Half a segment would hold blocks that the disk is short of. If even this fails, the
            // next start removes it.
            let _ = std::fs::remove_file(&unfinished);
        }
        segment
    }

    fn allocate(unfinished: &Path, path: PathBuf, header: SegmentHeader, prepare: Prepare) -> io::Result<Self> {
        let capacity = usize::try_from(header.capacity).map_err(io::Error::other)?;
        // Addresses of people are in it: for the owner's eyes only.
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
            settled_upto: AtomicUsize::new(0),
        };
        Ok(Self::new(memory, header.seed(), capacity))
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.memory().header
    }

    pub fn path(&self) -> &Path {
        &self.memory().path
    }

    /// The position that an offset of this segment stands for.
    pub fn position(&self, offset: usize) -> Position {
        Position(self.header().base.0 + offset as u64)
    }

    /// How many bytes are reserved, the header included.
    pub fn reserved(&self) -> usize {
        self.memory().tail.0.load(Ordering::Acquire).min(self.capacity())
    }

    /// Tells how far the reader has come.
    pub fn mark_read(&self, offset: usize) {
        self.memory().read_upto.store(offset, Ordering::Release);
        // Who goes back has memory again.
        self.memory().released_upto.fetch_min(offset, Ordering::Relaxed);
    }

    /// Up to which offset pages are in memory, ready for writing.
    pub fn ready_upto(&self) -> usize {
        self.memory().ready_upto.load(Ordering::Acquire)
    }

    /// Makes the next few pages ready, some microseconds' work; false if all up to this offset are ready.
    pub fn make_ready(&self, upto: usize) -> bool {
        self.memory().make_ready(upto)
    }

    /// Has the next append that ends at this offset or behind it be told to wake the thread that makes pages ready.
    pub fn wake_at(&self, offset: usize) {
        self.memory().wake_at.store(offset, Ordering::Relaxed);
    }

    /// Whether whoever has appended up to this offset is to wake that thread. True once for each [`Self::wake_at`].
    pub fn is_to_wake(&self, end: usize) -> bool {
        let wake_at = &self.memory().wake_at;
        end >= wake_at.load(Ordering::Relaxed) && wake_at.swap(usize::MAX, Ordering::Relaxed) != usize::MAX
    }

    /// Gives back the memory of what the reader has passed. It stays in the file: who reads it again has it again.
    pub fn release_read(&self) {
        self.memory().release_read();
    }

    /// Brings to the disk what has been appended, and returns whether there was anything to do.
    ///
    /// A frame may be published after this has passed it. So a stretch counts as settled only once
    /// the reader was through with it before it was flushed; until then it is flushed again, which
    /// costs little, as the kernel knows which pages are dirty.
    pub fn flush(&self) -> io::Result<bool> {
        let read_upto = self.memory().read_upto.load(Ordering::Acquire);
        let reserved = self.reserved();
        if self.memory().settled_upto.load(Ordering::Relaxed) == reserved {
            return Ok(false);
        }
        self.memory().map.flush_range(0, reserved)?;
        if read_upto == reserved {
            self.memory().settled_upto.store(reserved, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// The extension of a segment that is still being made.
pub const UNFINISHED_EXTENSION: &str = "new";

/// Gives the file real blocks, so that a full disk is an error here and not a signal (`SIGBUS`) at
/// the first write to a page. Answers whether it has written zeros for that.
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

/// Gives back the blocks and the memory of a file of this length, which nobody will read any more, in small parts. All at once, when
/// the last one lets go of it, took the core from the redirects for six milliseconds.
pub fn free_blocks(file: &File, len: u64) {
    /// A tenth of a millisecond's work.
    const HOLE_BYTES: u64 = 512 << 10;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut start = 0;
    while start < len {
        match rustix::fs::fallocate(file, hole, start, HOLE_BYTES.min(len - start)) {
            Ok(()) => start += HOLE_BYTES,
            Err(Errno::INTR) => {}
            // Not on this file system: then all at once.
            Err(_) => return,
        }
        yield_periodically();
    }
}

fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    static ZEROS: [u8; STRETCH_BYTES] = [0; STRETCH_BYTES];
    for at in range.clone().step_by(ZEROS.len()) {
        let bytes = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..bytes], at)?;
    }
    Ok(())
}

impl Mapped {
    /// Brings the next stretch of pages into memory for writing; false if that was done up to this offset.
    fn make_ready(&self, upto: usize) -> bool {
        let upto = upto.min(self.map.len());
        if self.ready_upto.load(Ordering::Acquire) >= upto {
            return false;
        }
        let _one_at_a_time = self.making_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let start = self.ready_upto.load(Ordering::Relaxed);
        if start >= upto {
            return false;
        }
        let end = self.map.len().min(start + STRETCH_BYTES);
        if let Err(error) = self.prefault(start, end) {
            // Its blocks are there all the same: the first write to each page makes it.
            let path = self.path.display();
            tracing::warn!(%path, %error, "can't create journal pages ahead of the writers");
            self.ready_upto.store(self.map.len(), Ordering::Release);
            return false;
        }
        self.ready_upto.store(end, Ordering::Release);
        true
    }

    /// Brings these pages into memory for writing. Nobody has written to them yet.
    ///
    /// They are written first, unless that was done already. Where a fault has to make a page of a file, the kernel reads ahead, into
    /// pieces of memory as large as it can have, and may move others out of the way for one: up to 46 ms in which nobody else had the
    /// core (Linux 6.18, ext4).
    fn prefault(&self, start: usize, end: usize) -> io::Result<()> {
        // The header's page is written to already.
        let behind_header = start.max(PAGE_BYTES);
        if !self.has_zeros {
            write_zeros(&self.file, behind_header as u64..end as u64)?;
        }
        if self.map.advise_range(Advice::PopulateWrite, start, end - start).is_err() {
            // A kernel before 5.14.
            for offset in (behind_header..end).step_by(PAGE_BYTES) {
                self.word(offset).store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Makes ready what a frame needs that ends behind all that is ready: its writer was faster than the thread whose work this is.
    #[cold]
    fn catch_up(&self, end: usize) {
        while self.make_ready(end) {}
    }

    fn release_read(&self) {
        // Whole pages, so that none is given back that is still written to.
        let upto = self.read_upto.load(Ordering::Acquire) / LONGEST_PAGE_BYTES * LONGEST_PAGE_BYTES;
        let mut start = self.released_upto.swap(upto, Ordering::Relaxed);
        while start < upto {
            let end = upto.min(start + PIECE_BYTES);
            // SAFETY: the mapping is shared with its file, whose pages stay what they are: this only takes them out of the mapping,
            // and the next access maps them again.
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
        // SAFETY: the word lies inside the mapping, whose length is a multiple of 8, and is aligned:
        // a mapping starts on a page. It stays mapped as long as `self`. Words where frames start are
        // reached through this function alone, so only atomically: the ranges that `fill` and `read`
        // hand out leave them out.
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
        // Relaxed: only the add's own indivisibility is needed. What is written is ordered by `publish`.
        self.tail.0.fetch_add(bytes, Ordering::Relaxed)
    }

    fn fill(&self, claim: &mut Claim, write: impl FnOnce(&mut [u8])) {
        self.assert_inside(claim.start(), claim.bytes());
        let end = claim.start() + claim.bytes();
        // Zeros are written to the file behind it.
        if end > self.ready_upto.load(Ordering::Acquire) {
            self.catch_up(end);
        }
        // SAFETY: the range lies inside the mapping. `Log` makes one claim for each range the tail
        // moved over, so no other thread writes it, and none reads it before it is published, which
        // takes the claim; `&mut` excludes a second slice from the same claim. The bytes are
        // initialised: the file was allocated as zeros, and nobody writes zeros to it where pages are ready. Other processes are kept out by the lock on the
        // journal's directory.
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
        // SAFETY: the range lies inside the mapping, and its first word was loaded with Acquire and
        // was not zero: its writer published it, and writes to it no more.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(frame.start() + WORD_BYTES), frame.bytes() - WORD_BYTES)
        };
        read(bytes)
    }
}

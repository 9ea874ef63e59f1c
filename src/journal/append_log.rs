//! The protocol of a log with many writers and one reader, independent of the memory that holds it.
//!
//! A writer reserves space with one atomic addition to the tail, fills it, and publishes the frame's first word with
//! Release. The reader loads that word with Acquire and reads the frame once the word is not zero. The writer whose
//! reservation crosses the end fills the rest with a skip frame, so there are only frames between the header and the
//! end. Aeron's term buffers work the same way.
//!
//! [`Memory`] is a mapped file in the service. In tests it is a model that tries every interleaving.

use std::sync::Arc;

use super::format::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameKind, FrameWord, SEGMENT_HEADER_BYTES, WORD_BYTES, frame_bytes,
};

/// The memory that holds a [`Log`].
///
/// The methods take tokens that only this module can create. A token says which range may be accessed, so these methods
/// are safe to call, and an implementation may rely on that.
pub trait Memory {
    /// Adds `bytes` to the tail and returns its previous value.
    fn reserve(&self, bytes: usize) -> usize;

    /// Calls `write` with the bytes of a claimed frame, without its first word.
    fn fill(&self, claim: &mut Claim, write: impl FnOnce(&mut [u8]));

    /// Stores the first word of a filled frame, with Release.
    fn publish(&self, claim: &Claim, word: u32);

    /// Loads the first word of a frame, with Acquire; 0 until it is published.
    fn load(&self, start: &FrameStart) -> u32;

    /// Calls `read` with the bytes of a published frame, without its first word and its padding.
    fn read<R>(&self, frame: &Published, read: impl FnOnce(&[u8]) -> R) -> R;
}

/// The right to write one frame. No other thread has reserved this range or reads it yet.
#[derive(Debug)]
pub struct Claim {
    start: usize,
    bytes: usize,
}

impl Claim {
    /// The frame's offset.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The frame's length in bytes, including its first word.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An offset where a frame starts or will start.
#[derive(Debug)]
pub struct FrameStart(usize);

impl FrameStart {
    pub fn offset(&self) -> usize {
        self.0
    }
}

/// The right to read one frame. No thread writes this range any more.
#[derive(Debug)]
pub struct Published {
    start: usize,
    bytes: usize,
}

impl Published {
    /// The frame's offset.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The frame's length in bytes, including its first word and excluding its padding.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The segment has no space left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// An append-only log for many writers and one reader.
#[derive(Debug)]
pub struct Log<M> {
    memory: M,
    /// The start value of the checksums.
    seed: u32,
    /// The offset of the log's end from the segment's start, in bytes.
    capacity: usize,
}

impl<M: Memory> Log<M> {
    /// A log in memory that contains only zeros behind the segment's header, with the tail at the header's end.
    ///
    /// # Panics
    /// If `capacity` is not a multiple of 8.
    pub fn new(memory: M, seed: u32, capacity: usize) -> Self {
        assert_eq!(capacity % FRAME_ALIGNMENT, 0, "the skip frame at the end has to fit");
        Self { memory, seed, capacity }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends a record of `len` bytes that `encode` writes, and returns the offset of its end. After that the reader
    /// can read the record, also after a crash of the process.
    pub fn append(&self, len: u16, encode: impl FnOnce(&mut [u8])) -> Result<usize, Full> {
        let bytes = frame_bytes(len);
        let start = self.memory.reserve(bytes);
        let end = start + bytes;
        if end > self.capacity {
            if start < self.capacity {
                self.publish_skip(&mut Claim { start, bytes: self.capacity - start });
            }
            return Err(Full);
        }
        let word = FrameWord { kind: FrameKind::Record, payload_len: len };
        let mut frame = Unpublished { log: self, claim: Claim { start, bytes } };
        self.memory.fill(&mut frame.claim, |bytes| {
            let (checksum, payload) = bytes.split_at_mut(FRAME_HEADER_BYTES - WORD_BYTES);
            let payload = &mut payload[..usize::from(len)];
            encode(payload);
            checksum.copy_from_slice(&word.checksum(self.seed, start, payload).to_le_bytes());
        });
        self.memory.publish(&frame.claim, word.to_raw());
        std::mem::forget(frame);
        Ok(end)
    }

    fn publish_skip(&self, claim: &mut Claim) {
        let len = claim.bytes - FRAME_HEADER_BYTES;
        // Can't fail: a claim is at most as long as the frame of the longest record.
        let payload_len = u16::try_from(len).unwrap_or(u16::MAX);
        let word = FrameWord { kind: FrameKind::Skip, payload_len };
        let checksum = word.checksum(self.seed, claim.start, &[]).to_le_bytes();
        self.memory.fill(claim, |bytes| bytes[..checksum.len()].copy_from_slice(&checksum));
        self.memory.publish(claim, word.to_raw());
    }
}

/// A frame that is not published yet. If its writer panics, it becomes a skip frame; the reader would wait for it for
/// ever otherwise.
struct Unpublished<'a, M: Memory> {
    log: &'a Log<M>,
    claim: Claim,
}

impl<M: Memory> Drop for Unpublished<'_, M> {
    fn drop(&mut self) {
        self.log.publish_skip(&mut self.claim);
    }
}

/// The result of [`LogReader::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep<R> {
    /// A record, with the value that the caller's function returned.
    Record(R),
    /// A frame with a wrong checksum, which the reader has skipped; its length in bytes.
    Damaged(usize),
    /// The next record is not published yet.
    Pending,
    /// Bytes that no writer has written; the reader can't go past them.
    Garbage,
    /// The end of the log. There will be no further record.
    End,
}

/// The reader of a log. A log has only one.
#[derive(Debug)]
pub struct LogReader<M> {
    log: Arc<Log<M>>,
    offset: usize,
}

impl<M: Memory> LogReader<M> {
    /// A reader that starts at the log's first record.
    pub fn new(log: Arc<Log<M>>) -> Self {
        Self { log, offset: SEGMENT_HEADER_BYTES }
    }

    /// The offset up to which the log has been read.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Calls `read` with the next record and the offset of its end.
    pub fn next<R>(&mut self, read: impl FnOnce(usize, &[u8]) -> R) -> LogStep<R> {
        let Log { memory, seed, capacity } = &*self.log;
        loop {
            if self.offset == *capacity {
                return LogStep::End;
            }
            let start = self.offset;
            let raw = memory.load(&FrameStart(start));
            if raw == 0 {
                return LogStep::Pending;
            }
            let Some(word) = FrameWord::from_raw(raw, capacity - start) else {
                return LogStep::Garbage;
            };
            self.offset = start + word.frame_bytes();
            if word.kind == FrameKind::Skip {
                continue;
            }
            let end = self.offset;
            let bytes = FRAME_HEADER_BYTES + usize::from(word.payload_len);
            return memory.read(&Published { start, bytes }, |bytes| {
                let (checksum, payload) = bytes.split_at(FRAME_HEADER_BYTES - WORD_BYTES);
                if word.checksum(*seed, start, payload).to_le_bytes() == checksum {
                    LogStep::Record(read(end, payload))
                } else {
                    LogStep::Damaged(word.frame_bytes())
                }
            });
        }
    }
}

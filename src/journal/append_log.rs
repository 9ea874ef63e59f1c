//! A log that many threads append to and one thread reads: the protocol, apart from the memory it
//! runs on.
//!
//! A writer reserves room with one atomic add to the tail, fills it, and publishes the frame's first
//! word with Release; the reader takes that word with Acquire and, once it is not zero, may read the
//! frame. The writer whose reservation crosses the end fills the rest with a skip frame, so that
//! frames and nothing else stand between the header and the end. This is the term buffer of Aeron.
//!
//! [`Memory`] is a mapped file in the service, and in the tests one that tries every interleaving.

use std::sync::Arc;

use super::format::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameKind, FrameWord, SEGMENT_HEADER_BYTES, WORD_BYTES, frame_bytes,
};

/// The memory a [`Log`] lives in.
///
/// The tokens that its methods take are made in this module alone, and say what may be touched: that
/// is what makes these methods safe to call, and what an implementation may rely on.
pub trait Memory {
    /// Adds `bytes` to the tail and returns what it was before.
    fn reserve(&self, bytes: usize) -> usize;

    /// Lets `write` fill a claimed frame, all but its first word.
    fn fill(&self, claim: &mut Claim, write: impl FnOnce(&mut [u8]));

    /// Stores the first word of a filled frame, with Release.
    fn publish(&self, claim: &Claim, word: u32);

    /// Loads the first word of a frame, with Acquire; 0 until it is published.
    fn load(&self, start: &FrameStart) -> u32;

    /// Lets `read` see a published frame, all but its first word and its padding.
    fn read<R>(&self, frame: &Published, read: impl FnOnce(&[u8]) -> R) -> R;
}

/// The right to write one frame: a range that no other thread has reserved or reads yet.
#[derive(Debug)]
pub struct Claim {
    start: usize,
    bytes: usize,
}

impl Claim {
    /// Where the frame starts.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The frame's length in bytes, its first word included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A place where a frame starts, or will.
#[derive(Debug)]
pub struct FrameStart(usize);

impl FrameStart {
    pub fn offset(&self) -> usize {
        self.0
    }
}

/// The right to read one frame: a range that nobody writes any more.
#[derive(Debug)]
pub struct Published {
    start: usize,
    bytes: usize,
}

impl Published {
    /// Where the frame starts.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The frame's length in bytes, its first word included and its padding not.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// There is no room left in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// An append-only log for many writers and one reader.
#[derive(Debug)]
pub struct Log<M> {
    memory: M,
    /// What the checksums start from.
    seed: u32,
    /// Where the log ends, in bytes from the segment's start.
    capacity: usize,
}

impl<M: Memory> Log<M> {
    /// A log in memory that holds zeros from the segment's header on, and whose tail stands right
    /// behind the header.
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

    /// Appends a record of `len` bytes that `encode` writes, and returns the offset of its end.
    /// Once this has returned, the record is there for the reader, also after a crash.
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
        // Can't fail: a claim is no longer than the frame of the longest record.
        let payload_len = u16::try_from(len).unwrap_or(u16::MAX);
        let word = FrameWord { kind: FrameKind::Skip, payload_len };
        let checksum = word.checksum(self.seed, claim.start, &[]).to_le_bytes();
        self.memory.fill(claim, |bytes| bytes[..checksum.len()].copy_from_slice(&checksum));
        self.memory.publish(claim, word.to_raw());
    }
}

/// A frame on its way. If its writer panics, the reader must not wait for it for ever: it becomes a
/// skip frame.
struct Unpublished<'a, M: Memory> {
    log: &'a Log<M>,
    claim: Claim,
}

impl<M: Memory> Drop for Unpublished<'_, M> {
    fn drop(&mut self) {
        self.log.publish_skip(&mut self.claim);
    }
}

/// What a [`LogReader`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep<R> {
    /// A record, and what the caller made of it.
    Record(R),
    /// A frame whose checksum is wrong, now behind the reader; its length in bytes.
    Damaged(usize),
    /// No record here yet.
    Pending,
    /// Something that no writer wrote; the reader stays in front of it.
    Garbage,
    /// The end of the log: there will be no further record.
    End,
}

/// The one reader of a log.
#[derive(Debug)]
pub struct LogReader<M> {
    log: Arc<Log<M>>,
    offset: usize,
}

impl<M: Memory> LogReader<M> {
    /// A reader in front of the log's first record.
    pub fn new(log: Arc<Log<M>>) -> Self {
        Self { log, offset: SEGMENT_HEADER_BYTES }
    }

    /// Everything before this offset has been read.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Goes on to the next record and shows it to `read`, with the offset of its end.
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

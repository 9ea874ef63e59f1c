//! The segment's protocol under loom: every interleaving of two writers and the reader, and every
//! value that the memory model lets them see.
//!
//! The code under test is `signpost::journal::append_log::{Log, LogReader}` itself; only the memory below
//! it is loom's instead of a mapped file.

use std::sync::{Arc, Mutex};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;
use signpost::journal::append_log::{Claim, FrameStart, Full, Log, LogReader, LogStep, Memory, Published};
use signpost::journal::format::{FRAME_ALIGNMENT, SEGMENT_HEADER_BYTES, WORD_BYTES};

const SEED: u32 = 0x5EED;

/// Memory in which loom watches who touches what.
struct Watched {
    tail: AtomicUsize,
    /// The first words, one for each place where a frame may start.
    words: Vec<AtomicU32>,
    /// One for each four bytes: loom panics when a write and another access are not ordered.
    accesses: Vec<UnsafeCell<()>>,
    /// What the bytes are. loom runs one thread at a time, so this lock orders nothing for it.
    bytes: Mutex<Vec<u8>>,
}

impl Watched {
    fn new(capacity: usize) -> Self {
        Self {
            tail: AtomicUsize::new(SEGMENT_HEADER_BYTES),
            words: (SEGMENT_HEADER_BYTES..capacity).step_by(FRAME_ALIGNMENT).map(|_| AtomicU32::new(0)).collect(),
            accesses: (0..capacity).step_by(WORD_BYTES).map(|_| UnsafeCell::new(())).collect(),
            bytes: Mutex::new(vec![0; capacity]),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        &self.words[(offset - SEGMENT_HEADER_BYTES) / FRAME_ALIGNMENT]
    }
}

impl Memory for Watched {
    fn reserve(&self, bytes: usize) -> usize {
        self.tail.fetch_add(bytes, Ordering::Relaxed)
    }

    fn fill(&self, claim: &mut Claim, write: impl FnOnce(&mut [u8])) {
        let (from, to) = (claim.start() + WORD_BYTES, claim.start() + claim.bytes());
        for access in &self.accesses[from / WORD_BYTES..to / WORD_BYTES] {
            access.with_mut(|_| ());
        }
        write(&mut self.bytes.lock().unwrap()[from..to]);
    }

    fn publish(&self, claim: &Claim, word: u32) {
        self.word(claim.start()).store(word, Ordering::Release);
    }

    fn load(&self, start: &FrameStart) -> u32 {
        self.word(start.offset()).load(Ordering::Acquire)
    }

    fn read<R>(&self, frame: &Published, read: impl FnOnce(&[u8]) -> R) -> R {
        let (from, to) = (frame.start() + WORD_BYTES, frame.start() + frame.bytes());
        for access in &self.accesses[from / WORD_BYTES..to.div_ceil(WORD_BYTES)] {
            access.with(|_| ());
        }
        let bytes = self.bytes.lock().unwrap()[from..to].to_vec();
        read(&bytes)
    }
}

/// A row of segments, as the journal has them one after another.
#[allow(clippy::arc_with_non_send_sync, reason = "loom runs all its threads on one")]
fn row_of_logs(capacities: &[usize]) -> Vec<Arc<Log<Watched>>> {
    let logs = capacities.iter().map(|&it| Arc::new(Log::new(Watched::new(it), SEED, it)));
    logs.collect()
}

/// Appends to the first log that has room, and returns which it was and the record's end.
fn append(logs: &[Arc<Log<Watched>>], payload: [u8; 8]) -> Option<(usize, usize)> {
    logs.iter().enumerate().find_map(|(index, log)| match log.append(8, |out| out.copy_from_slice(&payload)) {
        Ok(end) => Some((index, end)),
        Err(Full) => None,
    })
}

/// Reads on until something is missing; what it read is `(log, end, payload)`.
fn read_on(readers: &mut [LogReader<Watched>], at: &mut usize, seen: &mut Vec<((usize, usize), [u8; 8])>) {
    while *at < readers.len() {
        match readers[*at].next(|end, payload| (end, payload.try_into().unwrap())) {
            LogStep::Record((end, payload)) => seen.push(((*at, end), payload)),
            LogStep::End => *at += 1,
            LogStep::Pending => return,
            other => panic!("the writers never leave this: {other:?}"),
        }
    }
}

/// Two writers, `records` each, and a reader that looks while they write and once after.
fn run(capacities: &'static [usize], records: u8) {
    loom::model(move || {
        let logs = row_of_logs(capacities);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let logs = logs.clone();
                thread::spawn(move || {
                    let payloads = (0..records).map(|n| [writer, n, 7, 7, 7, 7, n, writer]);
                    payloads
                        .map(|payload| (append(&logs, payload).expect("there is room"), payload))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut readers: Vec<_> = logs.iter().cloned().map(LogReader::new).collect();
        let (mut at, mut seen) = (0, Vec::new());
        read_on(&mut readers, &mut at, &mut seen);
        let mut acknowledged: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        read_on(&mut readers, &mut at, &mut seen);
        acknowledged.sort_unstable();
        // Sorted by place: so each was read once, whole, and in order of position.
        assert_eq!(seen, acknowledged);
    });
}

/// A frame of eight bytes is sixteen long.
const FRAME: usize = 16;

#[test]
fn two_writers_and_the_reader_agree_on_every_record() {
    run(&[SEGMENT_HEADER_BYTES + 4 * FRAME], 2);
}

#[test]
fn the_writer_that_crosses_the_end_pads_it_and_the_reader_goes_on_behind_it() {
    run(&[SEGMENT_HEADER_BYTES + FRAME + 8, SEGMENT_HEADER_BYTES + 2 * FRAME + 8], 1);
    run(&[SEGMENT_HEADER_BYTES + 2 * FRAME + 8, SEGMENT_HEADER_BYTES + 4 * FRAME], 2);
}

#[test]
fn a_segment_that_ends_with_a_record_needs_no_pad() {
    run(&[SEGMENT_HEADER_BYTES + FRAME, SEGMENT_HEADER_BYTES + FRAME], 1);
}

//! The hit journal on a real disk: what is acknowledged is read, once, whatever happens in between.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use signpost::domain::hit::{NodeId, Position};
use signpost::hits::format::{self, SEGMENT_HEADER_BYTES, SegmentHeader};
use signpost::hits::journal::{Journal, JournalError, JournalSettings, JournalWriter, NotRecorded, open};
use signpost::hits::reader::JournalReader;
use signpost::hits::record::{HitRecord, MAX_HEADER_BYTES};
use tempfile::TempDir;
use uuid::Uuid;

const NODE: NodeId = NodeId(Uuid::from_bytes([7; 16]));
const START: Position = Position(0);
const SEGMENT: u64 = 4096;

/// Small segments, room for `segments` of them, and no pause after the disk was full.
fn small(segments: u64) -> JournalSettings {
    JournalSettings {
        segment_bytes: SEGMENT,
        disk_budget: segments * SEGMENT,
        sync_interval: Duration::from_secs(1),
        retry_interval: Duration::ZERO,
    }
}

/// A hit that can be told from all others by its time and owner.
fn hit(owner: u8, number: u64) -> HitRecord<'static> {
    HitRecord {
        at_ms: number,
        short_id: *b"a1B2c3D",
        tracked: true,
        webhooks: owner % 11,
        ch_ua_mobile: None,
        owner: [owner; 16],
        address: [192, 0, 2, owner].into(),
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        referer: b"https://example.com/",
    }
}

fn append_all(writer: &JournalWriter, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        writer.append(&hit(0, number)).expect("there is room");
    }
}

/// Everything up to where the reader catches up: (position, time).
fn read_all(reader: &mut JournalReader) -> Vec<(Position, u64)> {
    let mut seen = Vec::new();
    while !reader.read(100, &mut |position, hit| seen.push((position, hit.at_ms))).caught_up {}
    seen
}

fn numbers(seen: &[(Position, u64)]) -> Vec<u64> {
    seen.iter().map(|&(_, number)| number).collect()
}

fn segments_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect();
    paths.sort();
    paths
}

/// A journal whose process ended after these hits: its only segment, and where each record ended.
fn left_behind(directory: &Path, hits: u64) -> (PathBuf, Vec<Position>) {
    let Journal { writer, mut reader, .. } = open(directory, &small(64), NODE, START).unwrap();
    append_all(&writer, 0..hits);
    let ends = read_all(&mut reader).into_iter().map(|(position, _)| position).collect();
    let segments = segments_in(directory);
    assert_eq!(segments.len(), 1, "the test means to stay in one segment");
    (segments[0].clone(), ends)
}

fn reopen(directory: &Path) -> Journal {
    open(directory, &small(64), NODE, START).unwrap()
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// The length of one frame that holds [`hit`].
fn frame_bytes() -> usize {
    format::frame_bytes(hit(0, 0).encoded_len())
}

proptest! {
    #[test]
    fn a_record_reads_back_as_written(
        at_ms: u64, short_id: [u8; 7], tracked: bool, webhooks: u8, mobile: Option<bool>,
        owner: [u8; 16], address: std::net::IpAddr,
        user_agent in prop::collection::vec(any::<u8>(), 0..700),
        referer in prop::collection::vec(any::<u8>(), 0..700),
    ) {
        let written = HitRecord {
            at_ms, short_id, tracked, webhooks, ch_ua_mobile: mobile, owner, address,
            user_agent: &user_agent, referer: &referer,
        };
        let mut bytes = vec![0xEE; usize::from(written.encoded_len())];
        written.encode(&mut bytes);
        let kept = HitRecord {
            user_agent: &user_agent[..user_agent.len().min(MAX_HEADER_BYTES)],
            referer: &referer[..referer.len().min(MAX_HEADER_BYTES)],
            ..written
        };
        prop_assert_eq!(HitRecord::decode(&bytes), Ok(kept));
    }

    #[test]
    fn bytes_that_decode_encode_to_the_same(
        bytes in prop::collection::vec(any::<u8>(), 0..80), flags in 0u8..32, user_agent in 0u16..30,
    ) {
        let mut bytes = bytes;
        // Mostly right lengths and flags, or hardly any bytes would decode.
        if let Some(texts) = bytes.len().checked_sub(53) {
            let texts = u16::try_from(texts).unwrap();
            let user_agent = user_agent.min(texts);
            bytes[15] = flags;
            bytes[48..50].copy_from_slice(&user_agent.to_le_bytes());
            bytes[50..52].copy_from_slice(&(texts - user_agent).to_le_bytes());
        }
        if let Ok(hit) = HitRecord::decode(&bytes) {
            let mut again = vec![0; usize::from(hit.encoded_len())];
            hit.encode(&mut again);
            prop_assert_eq!(HitRecord::decode(&again), Ok(hit));
            prop_assert_eq!(again.len(), bytes.len());
        }
    }
}

#[test]
fn hits_are_read_in_order_with_rising_positions_and_only_once() {
    let directory = TempDir::new().unwrap();
    let Journal { writer, mut reader, .. } = open(directory.path(), &small(64), NODE, START).unwrap();
    append_all(&writer, 0..200);
    let mut first = Vec::new();
    let outcome = reader.read(3, &mut |position, read| {
        assert_eq!(read, hit(0, read.at_ms));
        first.push((position, read.at_ms));
    });
    assert_eq!((outcome.records, outcome.caught_up, outcome.upto), (3, false, first[2].0));
    assert!(writer.stats().unread_bytes > 0);
    let rest = read_all(&mut reader);
    first.extend(rest);
    assert_eq!(numbers(&first), (0..200).collect::<Vec<_>>());
    assert!(first.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(read_all(&mut reader), []);
    let stats = writer.stats();
    assert_eq!((stats.appended, stats.not_recorded, stats.unread_bytes), (200, 0, 0));
    append_all(&writer, [200]);
    assert_eq!(numbers(&read_all(&mut reader)), [200]);
}

#[test]
fn eight_threads_append_across_segments_and_every_hit_is_read_once() {
    const THREADS: u8 = 8;
    const HITS: u64 = 50_000;
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings { segment_bytes: 1 << 20, disk_budget: 1 << 30, ..JournalSettings::default() };
    let Journal { writer, mut reader, keeper } = open(directory.path(), &settings, NODE, START).unwrap();
    let keeper = keeper.start().unwrap();
    let mut next = [0; THREADS as usize];
    let mut last = START;
    let mut read_on = || {
        let outcome = reader.read(10_000, &mut |position, hit| {
            let next = &mut next[usize::from(hit.owner[0])];
            assert_eq!(hit.at_ms, *next, "a thread's hits stay in order, none is missing or twice");
            assert!(position > last);
            *next += 1;
            last = position;
        });
        reader.release(outcome.upto);
        outcome.caught_up
    };
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let writer = writer.clone();
            scope.spawn(move || (0..HITS).for_each(|number| writer.append(&hit(thread, number)).unwrap()))
        });
        let threads: Vec<_> = threads.collect();
        // Reads and deletes while they write.
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            if read_on() {
                std::thread::yield_now();
            }
        }
    });
    while !read_on() {}
    keeper.stop();
    assert_eq!(next, [HITS; THREADS as usize]);
    let stats = writer.stats();
    assert_eq!((stats.appended, stats.not_recorded), (u64::from(THREADS) * HITS, 0));
    assert_eq!(stats.bytes_on_disk, (1 << 20) * segments_in(directory.path()).len() as u64);
}

#[test]
fn a_journal_opened_again_reads_what_was_left_and_skips_what_the_cursor_covers() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 10);
    let Journal { writer, mut reader, .. } = open(directory.path(), &small(64), NODE, ends[3]).unwrap();
    append_all(&writer, 10..12);
    let seen = read_all(&mut reader);
    assert_eq!(numbers(&seen), (4..12).collect::<Vec<_>>());
    assert!(seen[5].0 == ends[9] && seen[6].0 > ends[9], "positions go on growing");
    assert!(reader.recovery().is_clean(), "{:?}", reader.recovery());
    assert_eq!((reader.recovery().segments, reader.recovery().records), (1, 10));
    reader.release(ends[8]);
    assert!(segment.exists(), "its last record is not consumed yet");
    reader.release(ends[9]);
    assert!(!segment.exists());
}

#[test]
fn positions_stay_above_the_cursor_even_if_the_directory_was_emptied() {
    let directory = TempDir::new().unwrap();
    let cursor = Position(123_456_789);
    let Journal { writer, mut reader, .. } = open(directory.path(), &small(64), NODE, cursor).unwrap();
    append_all(&writer, 0..1);
    assert!(read_all(&mut reader)[0].0 > cursor);
}

#[test]
fn a_start_gives_no_position_twice() {
    let directory = TempDir::new().unwrap();
    let mut given = HashSet::new();
    for life in 0..5 {
        let Journal { writer, mut reader, .. } = reopen(directory.path());
        append_all(&writer, life * 60..(life + 1) * 60);
        let seen = read_all(&mut reader);
        assert_eq!(numbers(&seen), (0..(life + 1) * 60).collect::<Vec<_>>());
        given.extend(seen.into_iter().skip(usize::try_from(life * 60).unwrap()));
    }
    assert_eq!(given.len(), 300);
}

#[test]
fn segments_below_the_cursor_are_deleted_at_the_start() {
    let directory = TempDir::new().unwrap();
    let end = {
        let Journal { writer, mut reader, .. } = reopen(directory.path());
        append_all(&writer, 0..100);
        read_all(&mut reader).last().unwrap().0
    };
    let before = segments_in(directory.path()).len();
    assert!(before > 2);
    let Journal { mut reader, .. } = open(directory.path(), &small(64), NODE, end).unwrap();
    assert_eq!(segments_in(directory.path()).len(), 2, "the one that holds the cursor, and a new one");
    assert_eq!(read_all(&mut reader), []);
    assert_eq!(segments_in(directory.path()).len(), 1);
}

#[test]
fn a_reader_sent_back_reads_again_what_was_not_released() {
    let directory = TempDir::new().unwrap();
    left_behind(directory.path(), 20);
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, 20..120);
    let seen = read_all(&mut reader);
    reader.release(seen[30].0);
    reader.rewind(seen[49].0);
    assert_eq!(read_all(&mut reader), seen[50..]);
    reader.release(START);
    reader.rewind(START);
    assert_eq!(read_all(&mut reader), seen[31..], "what was released is gone for good");
    reader.release(seen[119].0);
    assert_eq!(segments_in(directory.path()).len(), 1);
}

#[test]
fn a_reader_sent_back_may_release_a_segment_before_it_goes_on_to_the_next() {
    let directory = TempDir::new().unwrap();
    left_behind(directory.path(), 10);
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, 10..100);
    let seen = read_all(&mut reader);
    let segments = segments_in(directory.path()).len();
    let report = *reader.recovery();
    reader.rewind(START);
    let outcome = reader.read(10, &mut |_, _| ());
    reader.release(outcome.upto);
    assert_eq!(read_all(&mut reader), seen[10..]);
    assert_eq!(*reader.recovery(), report, "reading again finds nothing new");
    assert_eq!(segments_in(directory.path()).len(), segments - 1);
    reader.release(seen[99].0);
    assert_eq!(segments_in(directory.path()).len(), 1);
}

#[test]
fn what_was_not_read_cannot_be_released() {
    let directory = TempDir::new().unwrap();
    left_behind(directory.path(), 10);
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, 10..100);
    let segments = segments_in(directory.path());
    reader.release(Position(u64::MAX));
    assert_eq!(numbers(&read_all(&mut reader)), (0..100).collect::<Vec<_>>());
    assert_eq!(segments_in(directory.path()), segments, "what was read since is not released either");
}

#[test]
fn a_hole_left_by_a_killed_writer_is_stepped_over() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 10);
    // Reserved, perhaps filled in part, never published: twice, and twice in a row.
    let zeros = vec![0; frame_bytes()];
    for record in [2, 5, 6] {
        overwrite(&segment, ends[record].0 - zeros.len() as u64, &zeros);
    }
    overwrite(&segment, ends[5].0 - 24, b"half a user agent");
    let Journal { mut reader, .. } = reopen(directory.path());
    let seen = read_all(&mut reader);
    assert_eq!(numbers(&seen), [0, 1, 3, 4, 7, 8, 9]);
    assert_eq!(seen[4].0, ends[7], "a record keeps its position, and with it its hit id");
    let report = reader.recovery();
    assert_eq!((report.holes, report.torn_bytes), (2, 3 * frame_bytes() as u64));
    assert!(!report.is_clean());
}

#[test]
fn a_torn_tail_is_reported_and_what_precedes_it_read() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 10);
    // The first word is on the disk, the second half of the payload is not.
    overwrite(&segment, ends[9].0 - 40, &[0; 40]);
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, [10]);
    assert_eq!(numbers(&read_all(&mut reader)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]);
    let report = reader.recovery();
    assert_eq!((report.holes, report.records), (1, 9));
    assert!((1..=frame_bytes() as u64).contains(&report.torn_bytes));
}

#[test]
fn no_flipped_bit_makes_a_different_record() {
    let directory = TempDir::new().unwrap();
    let (segment, _) = left_behind(directory.path(), 3);
    let good = fs::read(&segment).unwrap();
    let middle = SEGMENT_HEADER_BYTES + frame_bytes();
    let written = 8 + usize::from(hit(0, 0).encoded_len());
    for bit in (0..written * 8).step_by(7) {
        let directory = TempDir::new().unwrap();
        let mut bytes = good.clone();
        bytes[middle + bit / 8] ^= 1 << (bit % 8);
        fs::write(directory.path().join(segment.file_name().unwrap()), bytes).unwrap();
        let Journal { mut reader, .. } = reopen(directory.path());
        assert_eq!(numbers(&read_all(&mut reader)), [0, 2], "bit {bit}");
        assert_eq!(reader.recovery().holes, 1);
    }
}

#[test]
fn records_copied_from_another_place_or_generation_are_no_records() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 4);
    let bytes = fs::read(&segment).unwrap();
    let first = &bytes[SEGMENT_HEADER_BYTES..][..frame_bytes()];
    overwrite(&segment, ends[3].0, first);
    let Journal { mut reader, .. } = reopen(directory.path());
    assert_eq!(numbers(&read_all(&mut reader)), [0, 1, 2, 3]);
    drop(reader);
    // The same bytes under the header of another generation.
    let header = SegmentHeader::decode(bytes.first_chunk().unwrap()).unwrap();
    let other = SegmentHeader { sequence: 77, ..header };
    let mut moved = bytes;
    moved[..SEGMENT_HEADER_BYTES].copy_from_slice(&other.encode());
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join(format!("{:020}.seg", 77)), moved).unwrap();
    let Journal { mut reader, .. } = reopen(directory.path());
    assert_eq!(read_all(&mut reader), []);
    assert_eq!(reader.recovery().holes, 1);
}

#[test]
fn a_truncated_segment_is_read_as_far_as_it_goes() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 10);
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(ends[6].0 - 10).unwrap();
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, [10]);
    let seen = read_all(&mut reader);
    assert_eq!(numbers(&seen), [0, 1, 2, 3, 4, 5, 10]);
    assert!(seen[6].0 > ends[9], "the part that is missing keeps its positions");
    assert_eq!(reader.recovery().truncated_segments, 1);
}

#[test]
fn foreign_and_damaged_files_are_left_alone_and_never_block_the_start() {
    let directory = TempDir::new().unwrap();
    let (segment, _) = left_behind(directory.path(), 10);
    let bytes = fs::read(&segment).unwrap();
    let header = SegmentHeader::decode(bytes.first_chunk().unwrap()).unwrap();
    let numbered = |number: u64| directory.path().join(format!("{number:020}.seg"));
    let mut left_alone = Vec::new();
    let mut leave = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        left_alone.push(path);
    };
    leave(directory.path().join("README.txt"), b"not ours");
    leave(directory.path().join("1.seg"), b"not ours either");
    leave(numbered(10), b"");
    leave(numbered(11), &bytes[..SEGMENT_HEADER_BYTES - 1]);
    leave(numbered(12), &[0; 4096]);
    leave(numbered(13), &bytes);
    let mut flipped = bytes.clone();
    flipped[30] ^= 1;
    leave(numbered(14), &flipped);
    let other = SegmentHeader { sequence: 15, node: NodeId(Uuid::from_bytes([8; 16])), ..header };
    leave(numbered(15), &other.encode());
    fs::create_dir(numbered(16)).unwrap();
    let unfinished = directory.path().join(format!("{:020}.new", 17));
    fs::write(&unfinished, [0; 100]).unwrap();

    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, [10]);
    assert_eq!(numbers(&read_all(&mut reader)), (0..11).collect::<Vec<_>>());
    let report = *reader.recovery();
    assert_eq!((report.foreign_files, report.damaged_segments), (2, 6));
    assert_eq!((report.other_node_segments, report.segments), (1, 1));
    assert!(left_alone.iter().all(|path| path.exists()));
    assert!(!unfinished.exists(), "it never held a record");
    assert!(numbered(17).exists(), "the new segment's number is one that no file had");
}

#[test]
fn a_full_budget_refuses_hits_until_consumed_ones_are_released() {
    let directory = TempDir::new().unwrap();
    let Journal { writer, mut reader, keeper } = open(directory.path(), &small(3), NODE, START).unwrap();
    for _ in 0..3 {
        let mut recorded = 0;
        while writer.append(&hit(0, recorded)).is_ok() {
            recorded += 1;
        }
        assert_eq!(writer.append(&hit(0, 0)), Err(NotRecorded::BudgetFull));
        assert_eq!(keeper.prepare_spare(), Err(NotRecorded::BudgetFull));
        assert_eq!(writer.stats().bytes_on_disk, 3 * SEGMENT);
        assert_eq!(segments_in(directory.path()).len(), 3);
        let seen = read_all(&mut reader);
        assert_eq!(numbers(&seen), (0..recorded).collect::<Vec<_>>());
        // All is read, and nothing is written to any more: so all may go.
        reader.release(seen.last().unwrap().0);
        assert_eq!(segments_in(directory.path()).len(), 0);
    }
    assert_eq!(writer.stats().not_recorded, 6);
    append_all(&writer, [99]);
    assert_eq!(numbers(&read_all(&mut reader)), [99]);
}

#[test]
fn a_disk_without_room_is_left_alone_until_the_pause_is_over_or_something_is_released() {
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings { retry_interval: Duration::from_hours(1), ..small(64) };
    let Journal { writer, mut reader, .. } = open(directory.path(), &settings, NODE, START).unwrap();
    // Where the second segment would be made, nothing can be made.
    let in_the_way = directory.path().join(format!("{:020}.new", 1));
    fs::create_dir(&in_the_way).unwrap();
    while writer.append(&hit(0, 1)).is_ok() {}
    fs::remove_dir(&in_the_way).unwrap();
    assert!(matches!(writer.append(&hit(0, 2)), Err(NotRecorded::Disk { .. })), "within the pause");
    let seen = read_all(&mut reader);
    reader.release(seen.last().unwrap().0);
    assert_eq!(writer.append(&hit(0, 3)), Ok(()));
}

#[test]
fn a_start_with_a_full_budget_succeeds_and_records_once_there_is_room() {
    let directory = TempDir::new().unwrap();
    {
        let Journal { writer, .. } = open(directory.path(), &small(4), NODE, START).unwrap();
        while writer.append(&hit(0, 1)).is_ok() {}
    }
    let Journal { writer, mut reader, .. } = open(directory.path(), &small(4), NODE, START).unwrap();
    assert_eq!(writer.append(&hit(0, 2)), Err(NotRecorded::BudgetFull));
    let seen = read_all(&mut reader);
    reader.release(seen[seen.len() / 2].0);
    append_all(&writer, [3]);
    assert_eq!(numbers(&read_all(&mut reader)), [3]);
}

#[test]
fn the_spare_segment_is_used_next_and_removed_by_a_stop() {
    let directory = TempDir::new().unwrap();
    let Journal { writer, mut reader, keeper } = open(directory.path(), &small(64), NODE, START).unwrap();
    keeper.prepare_spare().unwrap();
    keeper.prepare_spare().unwrap();
    assert_eq!(segments_in(directory.path()).len(), 2, "one spare is enough");
    append_all(&writer, 0..40);
    assert_eq!(segments_in(directory.path()).len(), 2, "the second is the spare");
    keeper.sync().unwrap();
    keeper.prepare_spare().unwrap();
    assert_eq!(segments_in(directory.path()).len(), 3);
    keeper.start().unwrap().stop();
    assert_eq!(numbers(&read_all(&mut reader)), (0..40).collect::<Vec<_>>());
    assert_eq!(writer.stats().segments, segments_in(directory.path()).len() as u64);
    assert_eq!(segments_in(directory.path()).len(), 2);
}

#[test]
fn an_append_that_panics_half_way_leaves_no_hole_for_the_reader_to_wait_at() {
    use signpost::hits::append_log::{LogReader, Next};
    use signpost::hits::segment::{Prepare, Segment};
    let directory = TempDir::new().unwrap();
    let header = SegmentHeader { sequence: 0, base: START, capacity: SEGMENT, node: NODE, created_at_ms: 0 };
    let path = directory.path().join("0.seg");
    let segment = std::sync::Arc::new(Segment::create(path, header, Prepare::Ahead).unwrap());
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        segment.append(20, |_| std::panic::resume_unwind(Box::new("on purpose")))
    }));
    assert!(unwound.is_err());
    segment.append(3, |out| out.copy_from_slice(b"abc")).unwrap();
    let mut reader = LogReader::new(std::sync::Arc::clone(&segment));
    assert_eq!(reader.next(|_, payload| payload.to_vec()), Next::Record(b"abc".to_vec()));
    assert_eq!(reader.next(|_, payload| payload.to_vec()), Next::Pending);
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_that_names_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("a-file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("journal"), PathBuf::from("/proc/1/journal")] {
        let error = open(&path, &small(4), NODE, START).unwrap_err();
        assert!(matches!(&error, JournalError::Directory { path: named, .. } if *named == path));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn two_journals_never_share_a_directory() {
    let directory = TempDir::new().unwrap();
    let first = reopen(directory.path());
    let second = open(directory.path(), &small(4), NODE, START);
    assert!(matches!(second, Err(JournalError::InUse { .. })));
    drop(first);
    reopen(directory.path());
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let directory = TempDir::new().unwrap();
    for segment_bytes in [0, 4095, 4097, 2 << 30] {
        let settings = JournalSettings { segment_bytes, ..small(4) };
        let refused = open(directory.path(), &settings, NODE, START);
        assert!(matches!(refused, Err(JournalError::SegmentBytes(it)) if it == segment_bytes));
    }
    let refused = open(directory.path(), &small(1), NODE, START);
    assert!(matches!(refused, Err(JournalError::DiskBudget(SEGMENT))));
}

// --- Tests that need a process of their own: this binary again, told by its environment ------------

const CHILD_DIRECTORY: &str = "SIGNPOST_TEST_JOURNAL";

/// The name by which the test harness knows a test of this module.
fn test_name(name: &str) -> String {
    let (_crate, module) = module_path!().split_once("::").unwrap();
    format!("{module}::{name}")
}

/// The command line that runs one test of this module in another process.
fn child(name: &str, directory: &Path, through: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match through {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", &test_name(name), "--nocapture"]);
    command.env(CHILD_DIRECTORY, directory).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIRECTORY).map(PathBuf::from)
}

#[test]
fn kill_9_in_mid_load_loses_no_acknowledged_hit_and_none_is_read_twice() {
    for kill_after in [1_000, 20_000, 60_000] {
        let directory = TempDir::new().unwrap();
        let mut writer =
            child("child_that_appends_until_killed", directory.path(), &[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut acknowledged = [0; 2];
        for line in BufReader::new(writer.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((thread, count)) = line.strip_prefix("acknowledged ").and_then(|it| it.split_once(' ')) {
                acknowledged[thread.parse::<usize>().unwrap()] = count.parse().unwrap();
            }
            if acknowledged.iter().sum::<u64>() >= kill_after {
                // SIGKILL; what is still in the pipe is read until it ends.
                let _ = writer.kill();
            }
        }
        writer.wait().unwrap();
        assert!(acknowledged.iter().sum::<u64>() >= kill_after, "the child ended by itself");

        let Journal { mut reader, .. } = open(directory.path(), &child_settings(), NODE, START).unwrap();
        let mut read = [0; 2];
        while !reader
            .read(1000, &mut |_, hit| {
                let read = &mut read[usize::from(hit.owner[0])];
                assert_eq!(hit.at_ms, *read, "in order, none missing, none twice");
                *read += 1;
            })
            .caught_up
        {}
        assert!(read[0] >= acknowledged[0] && read[1] >= acknowledged[1], "{read:?} {acknowledged:?}");
        assert!(reader.recovery().holes <= 2, "one a thread at most: {:?}", reader.recovery());
    }
}

fn child_settings() -> JournalSettings {
    JournalSettings { segment_bytes: 256 << 10, disk_budget: 1 << 30, ..JournalSettings::default() }
}

#[test]
fn child_that_appends_until_killed() {
    let Some(directory) = child_directory() else { return };
    let Journal { writer, keeper, .. } = open(&directory, &child_settings(), NODE, START).unwrap();
    let _keeper = keeper.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let writer = writer.clone();
            scope.spawn(move || {
                for number in 0.. {
                    writer.append(&hit(thread, number)).unwrap();
                    if number.is_multiple_of(16) {
                        // One write: a line is whole, or is not there.
                        let line = format!("\nacknowledged {thread} {}\n", number + 1);
                        if std::io::stdout().write_all(line.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn where_the_system_refuses_a_segment_hits_are_counted_and_the_journal_stays_open() {
    let directory = TempDir::new().unwrap();
    // No file may be longer than 8 blocks of 512 bytes, and asking for more is an error, not a signal.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""];
    let status = child("child_that_may_not_make_long_files", directory.path(), &limited);
    assert_passed(status);
}

#[test]
fn child_that_may_not_make_long_files() {
    const EFBIG: i32 = 27;
    let Some(directory) = child_directory() else { return };
    let settings = JournalSettings { segment_bytes: 1 << 20, disk_budget: 4 << 20, ..small(4) };
    let Journal { writer, mut reader, keeper } = open(&directory, &settings, NODE, START).unwrap();
    let refused = Err(NotRecorded::Disk { os_error: EFBIG });
    assert_eq!(writer.append(&hit(0, 0)), refused);
    assert_eq!(keeper.prepare_spare().map(drop), refused);
    assert_eq!(read_all(&mut reader), []);
    let stats = writer.stats();
    assert_eq!((stats.not_recorded, stats.bytes_on_disk, stats.segments), (1, 0, 0));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "the lock, and no half segment");
}

#[test]
fn a_full_disk_refuses_hits_and_they_are_recorded_again_once_there_is_room() {
    let directory = TempDir::new().unwrap();
    // A disk of 256 KiB, in a mount namespace of its own, which ends with the child.
    let mount = "mount -t tmpfs -o size=256k none \"$SIGNPOST_TEST_JOURNAL\" && exec \"$0\" \"$@\"";
    let namespace = ["unshare", "--user", "--map-root-user", "--mount"];
    let permitted = Command::new(namespace[0]).args(&namespace[1..]).arg("true").output();
    if !permitted.is_ok_and(|it| it.status.success()) {
        eprintln!("not run: this system permits no mount namespaces");
        return;
    }
    let through: Vec<_> = namespace.into_iter().chain(["sh", "-c", mount]).collect();
    assert_passed(child("child_on_a_small_disk", directory.path(), &through));
}

#[test]
fn child_on_a_small_disk() {
    const ENOSPC: i32 = 28;
    let Some(directory) = child_directory() else { return };
    let settings = JournalSettings { segment_bytes: 64 << 10, disk_budget: 1 << 30, ..small(2) };
    let Journal { writer, mut reader, keeper } = open(&directory, &settings, NODE, START).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let ballast = directory.join("ballast");
        fs::write(&ballast, vec![1; 100 << 10]).unwrap();
        let refused = loop {
            match writer.append(&hit(0, seen.len() as u64)) {
                Ok(()) => seen.push(seen.len() as u64),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, NotRecorded::Disk { os_error: ENOSPC });
        assert_eq!(keeper.prepare_spare(), Err(refused));
        fs::remove_file(&ballast).unwrap();
        append_all(&writer, [seen.len() as u64]);
        seen.push(seen.len() as u64);
        let read = read_all(&mut reader);
        assert!(seen.ends_with(&numbers(&read)));
        reader.release(read.last().unwrap().0);
    }
    assert_eq!(writer.stats().not_recorded, 3);
    assert_eq!(writer.stats().appended, seen.len() as u64);
}

fn assert_passed(mut child: Command) {
    let output = child.stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

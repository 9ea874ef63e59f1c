//! The hit journal on a real disk: what is acknowledged is read, once, whatever happens in between.

mod children;
mod memory;
mod record;
mod recovery;

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use signpost::domain::hit::{NodeId, Position};
use signpost::journal::format::{self, RecordLayout, SegmentHeader};
use signpost::journal::reader::JournalReader;
use signpost::journal::record::HitRecord;
use signpost::journal::{Journal, JournalError, JournalSettings, JournalWriter, NotRecorded, open};
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
        revision: 1 + u32::from(owner),
        webhooks: owner % 11,
        owner: [owner; 16],
        address: [192, 0, 2, owner].into(),
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        referer: b"https://example.com/",
        ..HitRecord::EMPTY
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
    let Journal { writer, mut reader, upkeep } = open(directory.path(), &settings, NODE, START).unwrap();
    let upkeep = upkeep.start().unwrap();
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
            scope.spawn(move || {
                (0..HITS).for_each(|number| {
                    writer.append(&hit(thread, number)).unwrap();
                });
            })
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
    upkeep.stop();
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
fn a_full_budget_refuses_hits_until_consumed_ones_are_released() {
    let directory = TempDir::new().unwrap();
    let Journal { writer, mut reader, upkeep } = open(directory.path(), &small(3), NODE, START).unwrap();
    for _ in 0..3 {
        let mut recorded = 0;
        while writer.append(&hit(0, recorded)).is_ok() {
            recorded += 1;
        }
        assert_eq!(writer.append(&hit(0, 0)), Err(NotRecorded::BudgetFull));
        assert_eq!(upkeep.prepare_spare(), Err(NotRecorded::BudgetFull));
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
    assert!(writer.append(&hit(0, 3)).is_ok());
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
    let Journal { writer, mut reader, upkeep } = open(directory.path(), &small(64), NODE, START).unwrap();
    upkeep.prepare_spare().unwrap();
    upkeep.prepare_spare().unwrap();
    assert_eq!(segments_in(directory.path()).len(), 2, "one spare is enough");
    append_all(&writer, 0..40);
    assert_eq!(segments_in(directory.path()).len(), 2, "the second is the spare");
    upkeep.sync().unwrap();
    upkeep.prepare_spare().unwrap();
    assert_eq!(segments_in(directory.path()).len(), 3);
    upkeep.start().unwrap().stop();
    assert_eq!(numbers(&read_all(&mut reader)), (0..40).collect::<Vec<_>>());
    assert_eq!(writer.stats().segments, segments_in(directory.path()).len() as u64);
    assert_eq!(segments_in(directory.path()).len(), 2);
}

#[test]
fn an_append_that_panics_half_way_leaves_no_hole_for_the_reader_to_wait_at() {
    use signpost::journal::append_log::{LogReader, LogStep};
    use signpost::journal::segment::{Prepare, Segment};
    let directory = TempDir::new().unwrap();
    let layout = RecordLayout::WRITTEN;
    let header = SegmentHeader { layout, sequence: 0, base: START, capacity: SEGMENT, node: NODE, created_at_ms: 0 };
    let path = directory.path().join("0.seg");
    let segment = std::sync::Arc::new(Segment::create(path, header, Prepare::Ahead).unwrap());
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        segment.append(20, |_| std::panic::resume_unwind(Box::new("on purpose")))
    }));
    assert!(unwound.is_err());
    segment.append(3, |out| out.copy_from_slice(b"abc")).unwrap();
    let mut reader = LogReader::new(std::sync::Arc::clone(&segment));
    assert_eq!(reader.next(|_, payload| payload.to_vec()), LogStep::Record(b"abc".to_vec()));
    assert_eq!(reader.next(|_, payload| payload.to_vec()), LogStep::Pending);
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

#[test]
fn a_segment_that_was_counted_gives_its_blocks_back_also_where_somebody_has_its_file() {
    let directory = tempfile::tempdir().unwrap();
    // Of more than one stretch in which blocks are made and given back.
    let settings = JournalSettings { segment_bytes: 3 << 19, disk_budget: 1 << 30, ..JournalSettings::default() };
    let Journal { writer, mut reader, upkeep } = open(directory.path(), &settings, NODE, START).unwrap();
    upkeep.prepare_spare().unwrap();
    append_all(&writer, 0..60_000);
    let mut segments = segments_in(directory.path());
    assert!(segments.len() > 2);
    let kept = directory.path().join("a copy");
    fs::hard_link(segments.remove(1), &kept).unwrap();
    let file = OpenOptions::new().read(true).open(segments.remove(0)).unwrap();
    let blocks = || file.metadata().unwrap().blocks();
    assert!(blocks() > 0);
    let seen = read_all(&mut reader);
    reader.release(seen.last().unwrap().0);
    assert!(blocks() == 0 || !makes_holes(directory.path()), "{}", blocks());
    assert_eq!(segments_in(directory.path()).len(), 1);
    // A backup may be another name of the same file.
    assert!(fs::read(kept).unwrap().starts_with(b"SPJ"), "what has another name stays as it is");
}

fn makes_holes(directory: &Path) -> bool {
    let file = fs::File::create(directory.join("holes")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 0, 4096).is_ok()
}

// --- Tests that need a process of their own: this binary again, told by its environment ------------

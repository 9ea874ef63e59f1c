//! What a killed process, a torn page or a stranger leaves behind never blocks the start, and is never taken for a hit.

use rustix::fs::FallocateFlags;
use signpost::journal::format::SEGMENT_HEADER_BYTES;
use signpost::journal::segment::{Prepare, Segment};

use super::*;

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
fn records_behind_many_zeros_are_found_whether_the_file_has_data_there_or_not() {
    const ALL: u64 = 20_000;
    // More than is read at once.
    const ZEROS: std::ops::Range<u64> = 256 << 10..1_280 << 10;
    let settings = JournalSettings { segment_bytes: 4 << 20, disk_budget: 32 << 20, ..small(1) };
    for is_hole in [false, true] {
        let directory = TempDir::new().unwrap();
        let Journal { writer, mut reader, .. } = open(directory.path(), &settings, NODE, START).unwrap();
        append_all(&writer, 0..ALL);
        let ends: Vec<u64> = read_all(&mut reader).iter().map(|(end, _)| end.0 - START.0).collect();
        assert!(
            ends.len() as u64 == ALL && ends[ends.len() - 1] > ZEROS.end + (256 << 10),
            "the zeros are in the middle"
        );
        drop((writer, reader));
        let segment = &segments_in(directory.path())[0];
        if is_hole {
            let file = OpenOptions::new().write(true).open(segment).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, ZEROS.start, ZEROS.end - ZEROS.start).unwrap();
        } else {
            overwrite(segment, ZEROS.start, &vec![0; usize::try_from(ZEROS.end - ZEROS.start).unwrap()]);
        }
        let Journal { mut reader, .. } = open(directory.path(), &settings, NODE, START).unwrap();
        let frame = frame_bytes() as u64;
        let is_whole = |end: &u64| *end <= ZEROS.start || end - frame >= ZEROS.end;
        let expected: Vec<u64> =
            (0..ALL).zip(&ends).filter(|(_, end)| is_whole(end)).map(|(number, _)| number).collect();
        assert_eq!(numbers(&read_all(&mut reader)), expected, "{is_hole}");
        let torn = (ALL - expected.len() as u64) * frame;
        assert_eq!((reader.recovery().holes, reader.recovery().torn_bytes), (1, torn), "{is_hole}");
    }
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
fn a_segment_that_cannot_be_read_is_kept_when_the_hits_behind_it_are_counted() {
    let directory = TempDir::new().unwrap();
    let (segment, _) = left_behind(directory.path(), 3);
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    // A directory can be opened, and not read.
    fs::remove_file(&segment).unwrap();
    fs::create_dir(&segment).unwrap();
    append_all(&writer, [3, 4]);
    let seen = read_all(&mut reader);
    assert_eq!(numbers(&seen), [3, 4]);
    assert_eq!(reader.recovery().unreadable_segments, 1);
    drop((writer, reader));
    let kept = segment.with_added_extension("unreadable");
    assert!(kept.is_dir() && !segment.exists());
    let counted = seen.last().unwrap().0;
    let Journal { reader, .. } = open(directory.path(), &small(4), NODE, counted).unwrap();
    assert!(kept.is_dir(), "the next start leaves it in place");
    assert_eq!(reader.recovery().foreign_files, 1);
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
fn a_directory_in_the_place_of_the_next_segment_refuses_the_start() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join(format!("{:020}.new", 0))).unwrap();
    let refused = open(directory.path(), &small(4), NODE, START).unwrap_err();
    assert!(matches!(&refused, JournalError::Directory { path, .. } if path == directory.path()), "{refused}");
    assert!(refused.to_string().contains("Is a directory"), "{refused}");
}

#[test]
fn a_segment_of_a_later_release_refuses_the_start_and_stays() {
    let directory = TempDir::new().unwrap();
    let (segment, _) = left_behind(directory.path(), 10);
    let mut later = fs::read(&segment).unwrap();
    later[8] = 3;
    later[12..16].fill(0);
    let checksum = crc32fast::hash(&later[..SEGMENT_HEADER_BYTES]);
    later[12..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&segment, &later).unwrap();
    let refused = open(directory.path(), &small(64), NODE, START).unwrap_err();
    assert!(matches!(&refused, JournalError::LaterRelease { path, version: 3 } if *path == segment), "{refused}");
    assert!(refused.to_string().contains(segment.to_str().unwrap()), "{refused}");
    assert_eq!(fs::read(&segment).unwrap(), later);
    assert_eq!(segments_in(directory.path()), [segment], "no position was used");
}

#[test]
fn segments_of_both_layouts_are_read_in_one_go() {
    let directory = TempDir::new().unwrap();
    let (segment, ends) = left_behind(directory.path(), 10);
    // The same records as 0.1.0 wrote them.
    let bytes = fs::read(&segment).unwrap();
    let header = SegmentHeader::decode(bytes.first_chunk().unwrap()).unwrap();
    let header = SegmentHeader { layout: RecordLayout::V1, ..header };
    let path = directory.path().join("old");
    let log = Segment::create(path.clone(), header, Prepare::Ahead).unwrap();
    for number in 0..10 {
        let hit = hit(0, number);
        let mut record = vec![0; usize::from(hit.encoded_len())];
        hit.encode(&mut record);
        record.drain(53..59);
        log.append(u16::try_from(record.len()).unwrap(), |out| out.copy_from_slice(&record)).unwrap();
    }
    drop(log);
    fs::rename(path, &segment).unwrap();
    let Journal { writer, mut reader, .. } = reopen(directory.path());
    append_all(&writer, 10..20);
    let mut seen = Vec::new();
    while !reader
        .read(7, &mut |position, read| {
            assert_eq!(read, hit(0, read.at_ms));
            seen.push((position, read.at_ms));
        })
        .caught_up
    {}
    assert_eq!(numbers(&seen), (0..20).collect::<Vec<_>>());
    assert!(seen[10].0 > ends[9]);
    assert!(reader.recovery().is_clean(), "{:?}", reader.recovery());
    reader.rewind(START);
    assert_eq!(read_all(&mut reader), seen);
    reader.release(seen[19].0);
    assert!(!segment.exists());
}

//! How much memory a journal takes, and that its writers need not make it.

use signpost::journal::pages::WINDOW;

use super::super::super::support::process::resident_where;
use super::super::super::support::soon;
use super::*;

const KIB: u64 = 1024;
const PAGE: u64 = 4 * KIB;
/// What a mapping may have besides: pages in part, and those around one that was read.
const SLACK: u64 = 256 * KIB;

/// Memory of this process that is of these segments.
fn resident(segments: &[PathBuf]) -> u64 {
    resident_where("self", |name| segments.iter().any(|segment| *segment == Path::new(name)))
}

fn append_all_of(writer: &JournalWriter, owner: u8, hits: u64) {
    for number in 0..hits {
        writer.append(&hit(owner, number)).unwrap();
    }
}

/// Pages that this thread had the kernel make or map so far.
fn faults_of_this_thread() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The second field, the name in brackets, may hold blanks.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn a_journal_makes_its_pages_shortly_ahead_of_the_writers_and_gives_them_back_behind_the_reader() {
    let window = WINDOW as u64;
    let directory = TempDir::new().unwrap();
    let settings = JournalSettings::default();
    let Journal { writer, mut reader, upkeep } = open(directory.path(), &settings, NODE, START).unwrap();
    let _keeper = upkeep.start().unwrap();
    soon("pages are ready", || writer.stats().ready_bytes + SLACK > window);
    soon("there is a spare segment", || segments_in(directory.path()).len() == 2);
    let segments = segments_in(directory.path());
    assert!(resident(&segments) < window + SLACK, "at rest: {}", resident(&segments));

    let hits_of_half_a_window = window / 2 / frame_bytes() as u64;
    let half_windows = settings.segment_bytes / (window / 2) - 1;
    let mut faults = 0;
    for _ in 0..half_windows {
        soon("pages are ready", || writer.stats().ready_bytes >= window / 2);
        let before = faults_of_this_thread();
        append_all(&writer, 0..hits_of_half_a_window);
        faults += faults_of_this_thread() - before;
    }
    // Some, for what the kernel has just written to the disk is watched anew.
    let pages = half_windows * (window / 2) / PAGE;
    assert!(faults < pages / 10, "{faults} for {pages} pages");
    // A quarter of a window from the segment's end, at least as much of the next one is ready.
    let hits_of_segment = (settings.segment_bytes - window / 4) / frame_bytes() as u64;
    append_all(&writer, 0..hits_of_segment - half_windows * hits_of_half_a_window);
    assert_eq!(segments_in(directory.path()).len(), 2, "the test means to stay in the first segment");
    soon("pages of the next segment are ready", || resident(&segments[1..]) + SLACK > window / 4);

    assert!(resident(&segments) > settings.segment_bytes / 2);
    let seen = read_all(&mut reader);
    soon("memory of what was read is given back", || resident(&segments) < window + 2 * SLACK);
    // And is there again for who reads it again.
    reader.rewind(START);
    assert_eq!(read_all(&mut reader), seen);
    soon("it is given back again", || resident(&segments) < window + 2 * SLACK);
}

#[test]
fn writers_that_overtake_the_making_of_pages_lose_nothing() {
    const THREADS: u8 = 4;
    const HITS: u64 = 100_000;
    let directory = TempDir::new().unwrap();
    let Journal { writer, mut reader, upkeep } =
        open(directory.path(), &JournalSettings::default(), NODE, START).unwrap();
    // Begins while they write, and is overtaken by them.
    std::thread::scope(|scope| {
        for owner in 0..THREADS {
            let writer = writer.clone();
            scope.spawn(move || append_all_of(&writer, owner, HITS));
        }
        let upkeep = upkeep.start().unwrap();
        scope.spawn(move || drop(upkeep));
    });
    let mut next = [0; THREADS as usize];
    while !reader
        .read(10_000, &mut |_, hit| {
            let next = &mut next[usize::from(hit.owner[0])];
            assert_eq!(hit.at_ms, *next);
            *next += 1;
        })
        .caught_up
    {}
    assert_eq!(next, [HITS; THREADS as usize]);
}

//! The fuzzer's targets, without a fuzzer: fed its seeds, and changes of them that are the same at every run.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use signpost::domain::hit::HitCursor;
use signpost::journal::format::RecordLayout;
use signpost::journal::record::HitRecord;
use signpost::journal::{self, JournalSettings};

use self::targets::ALL;
use crate::faults::load::Random;
use crate::hits::mmdb::{self, Value};
use crate::support::picture::read_back;

/// Changes of each seed.
const CHANGES: u64 = 300;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no seeds", directory.display());
    files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// Some bytes changed, cut away or doubled.
fn changed(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let place = |random: &mut Random, bytes: &[u8]| usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap();
        let (from, to) = (place(random, &bytes), place(random, &bytes));
        let (from, to) = (from.min(to), from.max(to));
        match random.below(4) {
            0 => drop(bytes.drain(from..to)),
            1 => bytes.truncate(to),
            2 => bytes.splice(from..from, bytes[from..to].to_vec()).for_each(drop),
            _ => {
                for byte in bytes.iter_mut().skip(from).take(4) {
                    *byte = u8::try_from(random.below(256)).unwrap();
                }
            }
        }
    }
    bytes
}

#[test]
fn seeds_and_changes_of_them_find_no_fault_in_any_parser() {
    for (name, target) in ALL {
        let mut random = Random::with_seed(0x5167_6e70);
        for (file, seed) in seeds(name) {
            let inputs = std::iter::once(seed.clone()).chain((0..CHANGES).map(|_| changed(&seed, &mut random)));
            for input in inputs {
                let found = catch_unwind(AssertUnwindSafe(|| target(&input)));
                assert!(found.is_ok(), "{name}, from {}: {:?}", file.display(), String::from_utf8_lossy(&input));
            }
        }
    }
}

#[test]
fn every_image_of_seeds_and_changes_of_them_reads_back() {
    let (mut random, mut drawn) = (Random::with_seed(0x5167_6e70), 0);
    for (_, seed) in seeds("colours") {
        let inputs = std::iter::once(seed.clone()).chain((0..CHANGES).map(|_| changed(&seed, &mut random)));
        for image in inputs.filter_map(|input| targets::drawn(&input)) {
            assert_eq!(read_back(image.content_type, &image.bytes).unwrap().text, targets::DRAWN);
            drawn += 1;
        }
    }
    assert!(drawn > 10, "{drawn}");
}

/// What is changed is read to its end as it stands; else its parsers would hardly be reached.
#[test]
fn the_seeds_themselves_are_good() {
    let seed = |target, name: &str| seeds(target).into_iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
    for segment in ["segment", "segment-of-0.1.0"] {
        assert_eq!(targets::hits_in(&seed("journal", segment)), 2, "{segment}");
    }
    for (record, layout) in
        [("layout-1", RecordLayout::V1), ("layout-2", RecordLayout::V2), ("fields", RecordLayout::V2)]
    {
        assert!(HitRecord::decode(layout, &seed("hit_record", record)).is_ok(), "{record}");
    }
    assert!(targets::is_imported(&seed("import", "whole")));
}

/// The seeds of what is no text, made anew where that is asked for: after a change of a form.
#[test]
fn a_journal_and_a_database_of_places_are_among_the_seeds() {
    let text = Value::Text;
    let place = Value::Map(vec![
        ("country", Value::Map(vec![("iso_code", text("DE"))])),
        ("city", Value::Map(vec![("names", Value::Map(vec![("en", text("Ulm"))]))])),
    ]);
    let database = mmdb::write("fuzz", &place, &text("not a record"));
    let [layout_1, layout_2, fields] = records();
    let made = [
        ("journal/segment", segment()),
        ("hit_record/layout-1", layout_1),
        ("hit_record/layout-2", layout_2),
        ("hit_record/fields", fields),
        ("places/city", fs::read(database).unwrap()),
    ];
    for (name, bytes) in made {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(name);
        if std::env::var_os("SIGNPOST_TEST_WRITE_SEEDS").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        // Times are in them.
        assert_eq!(fs::read(path).unwrap().len(), bytes.len(), "{name} is of another form");
    }
}

const HIT: HitRecord<'static> = HitRecord {
    at_ms: 1_790_000_000_000,
    short_id: *b"Abc1234",
    webhooks: 2,
    ch_ua_mobile: Some(false),
    owner: [7; 16],
    address: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
    user_agent: b"Mozilla/5.0 (X11; Linux x86_64)",
    referer: b"https://news.example/item",
    ..HitRecord::EMPTY
};

/// A record of layout 1, one of layout 2, and one of layout 2 with fields.
fn records() -> [Vec<u8>; 3] {
    let mut layout_2 = vec![0; usize::from(HIT.encoded_len())];
    HIT.encode(&mut layout_2);
    let mut layout_1 = layout_2.clone();
    layout_1.drain(53..59);
    let fields = [layout_2.as_slice(), &[1, 5], b"de-de", &[2, 4], b"news", &[9, 2, 1, 4], &[200, 0]].concat();
    [layout_1, layout_2, fields]
}

/// A segment with some hits.
fn segment() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let settings = JournalSettings { segment_bytes: 4096, disk_budget: 1 << 20, ..JournalSettings::default() };
    let opened = journal::open(directory.path(), &settings, targets::NODE, HitCursor::default()).unwrap();
    opened.writer.append(&HIT).unwrap();
    opened.writer.append(&HitRecord { user_agent: b"", referer: b"", ..HIT }).unwrap();
    let mut files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.find(|path| path.extension().is_some_and(|kind| kind == "seg")).unwrap();
    fs::read(segment).unwrap()
}

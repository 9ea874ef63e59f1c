//! What a server has recorded of hits.

use std::fs;

use signpost::domain::hit::{NodeId, Position};
use signpost::journal::record::HitRecord;
use signpost::journal::{Journal, JournalSettings, open};

use super::stores::Home;

/// Reads the records of a server that has ended and has deleted no segment.
pub fn each_record(home: &Home, mut each: impl FnMut(&HitRecord<'_>)) {
    let data = home.data_dir();
    let node = NodeId(fs::read_to_string(data.join("node.id")).unwrap().trim().parse().unwrap());
    let settings = JournalSettings { segment_bytes: 1 << 20, disk_budget: 64 << 20, ..JournalSettings::default() };
    let Journal { mut reader, .. } = open(&data.join("journal"), &settings, node, Position(0)).unwrap();
    while !reader.read(100, &mut |_, hit| each(&hit)).caught_up {}
}

/// What a record has beside time, link and key.
pub fn what_is_told(hit: &HitRecord<'_>) -> String {
    let HitRecord { at_ms, short_id, owner, .. } = HitRecord::EMPTY;
    format!("{:?}", HitRecord { at_ms, short_id, owner, ..*hit })
}

//! What nodes tell each other for live streams, where there may be others.

use signpost::domain::hit::{HitId, HitSubject, Position};
use signpost::domain::live_hit::{LiveEntry, LiveEvent};
use signpost::store::hit_streams::NotesReadUpto;

use super::{Ground, reopened};
use crate::store::samples::{key_id, node, short_id};

fn left_out(of: HitSubject, position: u64, count: u64) -> LiveEntry {
    LiveEntry { of, position: Position(position), after: None, event: LiveEvent::LeftOut(count) }
}

pub async fn hits_are_told_to_other_lives_where_stores_are_shared(ground: &impl Ground) {
    let store = ground.open().await;
    let (link, key) = (HitSubject::Link(short_id(1)), HitSubject::Key(key_id(1)));
    assert_eq!(store.listened_subjects().await.unwrap(), []);
    store.note_listeners(vec![link, key]).await.unwrap();
    let groups: Vec<Vec<LiveEntry>> = [0, 1, 450, 3]
        .into_iter()
        .zip(1..)
        .map(|(size, group)| (0..size).map(|at| left_out(link, group * 1_000 + at, at + 1)).collect())
        .collect();
    for group in &groups {
        store.note_live_hits(node(1), group.clone()).await.unwrap();
    }
    store.share_open_streams(key_id(1), 3).await.unwrap();
    // Not to itself.
    assert_eq!(store.live_hits(Vec::new()).await.unwrap(), []);
    assert_eq!(store.streams_elsewhere(key_id(1)).await.unwrap(), 0);
    let is_shared = store.is_shared();
    let store = reopened(ground, store).await;
    let mut subjects = store.listened_subjects().await.unwrap();
    subjects.sort();
    assert_eq!(subjects, if is_shared { vec![link, key] } else { Vec::new() });
    assert_eq!(store.streams_elsewhere(key_id(2)).await.unwrap(), 0);
    let noted = store.live_hits(Vec::new()).await.unwrap();
    if !is_shared {
        assert_eq!(noted, []);
        return;
    }
    assert_eq!(store.streams_elsewhere(key_id(1)).await.unwrap(), 3);
    assert!(noted.iter().all(|noted| noted.node == node(1)));
    let entries: Vec<LiveEntry> = noted.iter().flat_map(|noted| noted.entries.clone()).collect();
    assert_eq!(entries, groups.concat());
    let [first, .., last] = &noted[..] else { panic!("several rows") };
    let rest = store.live_hits(vec![first.upto]).await.unwrap();
    assert_eq!(rest, noted[1..]);
    assert_eq!(store.live_hits(vec![last.upto]).await.unwrap(), []);
    let unknown = NotesReadUpto { life: HitId(key_id(9).0).0, number: 9 };
    assert_eq!(store.live_hits(vec![unknown]).await.unwrap(), noted);
}

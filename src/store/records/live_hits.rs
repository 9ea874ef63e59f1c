//! Hits that nodes tell each other for live streams, and the links and keys that somebody listens to. They are kept for
//! some seconds.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Base62Id, corrupt, split_version, unknown_version};
use crate::domain::hit::{HitId, HitSubject, NodeId, Position};
use crate::domain::key::KeyId;
use crate::domain::link::Revision;
use crate::domain::live_hit::{LiveEntry, LiveEvent, LiveHit};
use crate::store::StoreError;

/// The name of the table.
pub const TABLE: &str = "live_hits";
const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
struct LiveHitsV1 {
    node: [u8; 16],
    entries: Vec<LiveEntryV1>,
}

#[derive(Serialize, Deserialize)]
struct LiveEntryV1 {
    of: SubjectV1,
    position: u64,
    after: Option<u64>,
    event: LiveEventV1,
}

#[derive(Serialize, Deserialize)]
enum SubjectV1 {
    Link(Base62Id),
    Key([u8; 16]),
}

#[derive(Serialize, Deserialize)]
enum LiveEventV1 {
    Hit(LiveHitV1),
    LeftOut(u64),
}

#[derive(Serialize, Deserialize)]
struct LiveHitV1 {
    id: [u8; 16],
    link: Base62Id,
    revision: u32,
    device: Option<Box<str>>,
    browser: Option<Box<str>>,
    system: Option<Box<str>>,
    country: Option<Box<str>>,
    language: Option<Box<str>>,
    referrer: Option<Box<str>>,
    destination: Option<Box<str>>,
    bot: Option<Box<str>>,
}

impl From<HitSubject> for SubjectV1 {
    fn from(subject: HitSubject) -> Self {
        match subject {
            HitSubject::Link(link) => Self::Link(Base62Id(link)),
            HitSubject::Key(key) => Self::Key(*key.0.as_bytes()),
        }
    }
}

impl From<SubjectV1> for HitSubject {
    fn from(subject: SubjectV1) -> Self {
        match subject {
            SubjectV1::Link(link) => Self::Link(link.0),
            SubjectV1::Key(key) => Self::Key(KeyId(Uuid::from_bytes(key))),
        }
    }
}

impl From<LiveHit> for LiveHitV1 {
    fn from(hit: LiveHit) -> Self {
        let LiveHit { id, link, revision, device, browser, system, country, language, referrer, destination, bot } =
            hit;
        let (id, link, revision) = (*id.0.as_bytes(), Base62Id(link), revision.0);
        Self { id, link, revision, device, browser, system, country, language, referrer, destination, bot }
    }
}

impl From<LiveHitV1> for LiveHit {
    fn from(hit: LiveHitV1) -> Self {
        let LiveHitV1 { id, link, revision, device, browser, system, country, language, referrer, destination, bot } =
            hit;
        let (id, link, revision) = (HitId(Uuid::from_bytes(id)), link.0, Revision(revision));
        Self { id, link, revision, device, browser, system, country, language, referrer, destination, bot }
    }
}

impl From<LiveEntry> for LiveEntryV1 {
    fn from(entry: LiveEntry) -> Self {
        let LiveEntry { of, position, after, event } = entry;
        let event = match event {
            LiveEvent::Hit(hit) => LiveEventV1::Hit(hit.into()),
            LiveEvent::LeftOut(count) => LiveEventV1::LeftOut(count),
        };
        Self { of: of.into(), position: position.0, after: after.map(|after| after.0), event }
    }
}

impl From<LiveEntryV1> for LiveEntry {
    fn from(entry: LiveEntryV1) -> Self {
        let LiveEntryV1 { of, position, after, event } = entry;
        let event = match event {
            LiveEventV1::Hit(hit) => LiveEvent::Hit(hit.into()),
            LiveEventV1::LeftOut(count) => LiveEvent::LeftOut(count),
        };
        Self { of: of.into(), position: Position(position), after: after.map(Position), event }
    }
}

/// The column of hits that were noted together.
pub fn encode(node: NodeId, entries: Vec<LiveEntry>) -> Result<Vec<u8>, StoreError> {
    let entries = entries.into_iter().map(LiveEntryV1::from).collect();
    super::encode(TABLE, VERSION, &LiveHitsV1 { node: *node.0.as_bytes(), entries })
}

pub fn decode(column: &[u8]) -> Result<(NodeId, Vec<LiveEntry>), StoreError> {
    let LiveHitsV1 { node, entries } = match split_version(TABLE, column)? {
        (VERSION, record) => super::decode(TABLE, record)?,
        (later, _) => return Err(unknown_version(TABLE, later, VERSION)),
    };
    Ok((NodeId(Uuid::from_bytes(node)), entries.into_iter().map(LiveEntry::from).collect()))
}

/// The column of a link or key that somebody listens to.
pub fn encode_subject(subject: HitSubject) -> Vec<u8> {
    match subject {
        HitSubject::Link(link) => link.0.to_vec(),
        HitSubject::Key(key) => key.0.as_bytes().to_vec(),
    }
}

pub fn decode_subject(column: &[u8]) -> Result<HitSubject, StoreError> {
    if let Ok(key) = Uuid::from_slice(column) {
        return Ok(HitSubject::Key(KeyId(key)));
    }
    let link = std::str::from_utf8(column).ok().and_then(crate::domain::link::ShortId::parse);
    link.map(HitSubject::Link).ok_or_else(|| corrupt("hit_listeners", &"neither a link nor a key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::link::ShortId;

    #[test]
    fn hits_and_subjects_are_read_back_as_they_were_written() {
        let node = NodeId(Uuid::from_u128(7));
        let hit = LiveHit {
            id: HitId(Uuid::from_u128(9)),
            link: ShortId(*b"a1B2c3D"),
            revision: Revision(3),
            device: Some("mobile".into()),
            browser: None,
            system: None,
            country: None,
            language: None,
            referrer: Some("example.com".into()),
            destination: Some("default".into()),
            bot: Some("crawler".into()),
        };
        let subjects = [HitSubject::Link(ShortId(*b"a1B2c3D")), HitSubject::Key(KeyId(Uuid::from_u128(8)))];
        let entries = vec![
            LiveEntry { of: subjects[0], position: Position(640), after: None, event: LiveEvent::Hit(hit) },
            LiveEntry {
                of: subjects[1],
                position: Position(700),
                after: Some(Position(640)),
                event: LiveEvent::LeftOut(12),
            },
        ];
        let column = encode(node, entries.clone()).unwrap();
        assert_eq!(decode(&column).unwrap(), (node, entries));
        assert!(decode(&column[..column.len() - 1]).is_err());
        assert!(decode(&[9]).is_err());
        for subject in subjects {
            assert_eq!(decode_subject(&encode_subject(subject)).unwrap(), subject);
        }
        assert!(decode_subject(b"a1B2c3").is_err());
    }
}

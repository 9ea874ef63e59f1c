//! Hits as live streams tell them.

use super::hit::{HitId, HitSubject, Position};
use super::link::{Revision, ShortId};

/// The most hits a second that a node notes of a link or key for live streams, and that a stream tells.
pub const LIVE_HITS_A_SECOND: u32 = 100;

/// A hit of a tracked link, with its labels as in breakdowns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveHit {
    /// Begins with the time of the hit.
    pub id: HitId,
    pub link: ShortId,
    /// The revision of the link that the hit met.
    pub revision: Revision,
    pub device: Option<Box<str>>,
    pub browser: Option<Box<str>>,
    pub system: Option<Box<str>>,
    pub country: Option<Box<str>>,
    pub language: Option<Box<str>>,
    pub referrer: Option<Box<str>>,
    pub destination: Option<Box<str>>,
    pub bot: Option<Box<str>>,
}

impl LiveHit {
    /// The bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let Self {
            id: _,
            link: _,
            revision: _,
            device,
            browser,
            system,
            country,
            language,
            referrer,
            destination,
            bot,
        } = self;
        let texts = [device, browser, system, country, language, referrer, destination, bot];
        texts.into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// What is noted for live streams of a link or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    Hit(LiveHit),
    /// So many hits were left out.
    LeftOut(u64),
}

impl LiveEvent {
    /// How many hits it stands for.
    pub fn hits(&self) -> u64 {
        match self {
            Self::Hit(_) => 1,
            Self::LeftOut(count) => *count,
        }
    }
}

/// A hit of a link or key, or hits that were left out, as a node notes them. The entries of a node are in the order of its
/// journal, also over its restarts: a hit that is noted again has the same position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEntry {
    pub of: HitSubject,
    /// The position in the node's journal, of the last hit.
    pub position: Position,
    /// A position at or behind the entry before, and before this one: no hit between them is missing. `None`: hits before
    /// this entry were not noted, since nobody listened.
    pub after: Option<Position>,
    pub event: LiveEvent,
}

//! The lists that a link is in.

use ring::digest::{SHA256, digest};
use uuid::Uuid;

use crate::domain::key::KeyId;
use crate::domain::link::{Link, ListIndex, folded};

pub const TABLE: &str = "link_lists";

/// The owner of the lists with the links of all keys. No key has this id.
pub const EVERYONE: KeyId = KeyId(Uuid::nil());

/// Whose list a query reads; `None` if there is no such list: a client may ask for the links of any id.
pub fn owner_of_list(asked: Option<KeyId>) -> Option<KeyId> {
    match asked {
        None => Some(EVERYONE),
        asked => asked.filter(|owner| *owner != EVERYONE),
    }
}

/// What links of a list by time have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeListKind {
    All,
    Tag,
    Target,
}

/// A list of links by the time of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeList {
    pub kind: TimeListKind,
    /// [`EVERYONE`] for the links of all keys.
    pub owner: KeyId,
    /// The beginning of the SHA-256 of the folded tag, or of the target; zeros for all links.
    pub value: [u8; 16],
}

impl TimeList {
    /// `None` for a list by name.
    pub fn of_index(owner: KeyId, index: &ListIndex) -> Option<Self> {
        let (kind, value) = match index {
            ListIndex::All => (TimeListKind::All, [0; 16]),
            ListIndex::Tag(tag) => (TimeListKind::Tag, hash_of(tag)),
            ListIndex::Target(target) => (TimeListKind::Target, hash_of(target)),
            ListIndex::SlugPrefix(_) => return None,
        };
        Some(Self { kind, owner, value })
    }

    /// All lists by time that a link is in.
    pub fn all_of(link: &Link) -> Vec<Self> {
        let tags = link.options.tags.iter().map(|tag| (TimeListKind::Tag, hash_of(&folded(tag))));
        let others = [(TimeListKind::All, [0; 16]), (TimeListKind::Target, hash_of(link.target.as_str()))];
        let values: Vec<_> = others.into_iter().chain(tags).collect();
        let of = |owner| values.iter().map(move |(kind, value)| Self { kind: *kind, owner, value: *value });
        of(link.owner).chain(of(EVERYONE)).collect()
    }
}

fn hash_of(text: &str) -> [u8; 16] {
    let mut value = [0; 16];
    value.copy_from_slice(&digest(&SHA256, text.as_bytes()).as_ref()[..16]);
    value
}

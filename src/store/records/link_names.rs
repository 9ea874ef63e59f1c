//! What is known of a name that is not simply the id of a link: a row of the embedded store.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Base62Id, split_version, unknown_version};
use crate::domain::key::KeyId;
use crate::domain::link::{Revision, ShortId};
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "link_names";
const VERSION: u8 = 1;

/// The state of a name. A live link that has its id as its name has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameState {
    /// The link with this id has the name.
    Live(ShortId),
    /// The name is kept for a key that had a link with it. The next link of that name has a later revision.
    Kept { owner: KeyId, revision: Revision },
    /// The id of a deleted link that had another name: no link ever has it again.
    Used,
}

#[derive(Serialize, Deserialize)]
enum NameStateV1 {
    Live(Base62Id),
    Kept { owner: Uuid, revision: u32 },
    Used,
}

pub fn encode(state: NameState) -> Result<Vec<u8>, StoreError> {
    let record = match state {
        NameState::Live(id) => NameStateV1::Live(Base62Id(id)),
        NameState::Kept { owner, revision } => NameStateV1::Kept { owner: owner.0, revision: revision.0 },
        NameState::Used => NameStateV1::Used,
    };
    super::encode(TABLE, VERSION, &record)
}

pub fn decode(row: &[u8]) -> Result<NameState, StoreError> {
    let record = match split_version(TABLE, row)? {
        (VERSION, record) => super::decode(TABLE, record)?,
        (later, _) => return Err(unknown_version(TABLE, later, VERSION)),
    };
    Ok(match record {
        NameStateV1::Live(id) => NameState::Live(id.0),
        NameStateV1::Kept { owner, revision } => NameState::Kept { owner: KeyId(owner), revision: Revision(revision) },
        NameStateV1::Used => NameState::Used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back() {
        let kept = NameState::Kept { owner: KeyId(Uuid::from_u128(7)), revision: Revision(9) };
        for state in [NameState::Live(ShortId(*b"abcdefg")), kept, NameState::Used] {
            assert_eq!(decode(&encode(state).unwrap()).unwrap(), state);
        }
        assert!(decode(&[9, 0]).unwrap_err().to_string().contains("written by a later version"));
    }
}

//! Answers that are kept for requests with an `Idempotency-Key`, and what a creation of many links has planned.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Base62Id, corrupt, split_version, unknown_version};
use crate::domain::calendar::Timestamp;
use crate::domain::idempotency::{Fingerprint, KeptAnswer};
use crate::domain::key::KeyId;
use crate::domain::link::{Revision, ShortId};
use crate::store::StoreError;

/// The name of the table, and of its keyspace.
pub const TABLE: &str = "idempotency";
const VERSION: u8 = 1;

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRecord {
    pub fingerprint: Fingerprint,
    pub begun_at: Timestamp,
    pub answer: KeptAnswer,
}

#[derive(Serialize, Deserialize)]
struct OnceRecordV1 {
    fingerprint: [u8; 32],
    begun_at: u64,
    status: u16,
    body: String,
}

pub fn encode(record: &OnceRecord) -> Result<Vec<u8>, StoreError> {
    let OnceRecord { fingerprint, begun_at, answer: KeptAnswer { status, body } } = record;
    let record = OnceRecordV1 { fingerprint: fingerprint.0, begun_at: begun_at.0, status: *status, body: body.clone() };
    super::encode(TABLE, VERSION, &record)
}

pub fn decode(row: &[u8]) -> Result<OnceRecord, StoreError> {
    let record = match split_version(TABLE, row)? {
        (VERSION, record) => super::decode(TABLE, record)?,
        (later, _) => return Err(unknown_version(TABLE, later, VERSION)),
    };
    let OnceRecordV1 { fingerprint, begun_at, status, body } = record;
    Ok(OnceRecord {
        fingerprint: Fingerprint(fingerprint),
        begun_at: Timestamp(begun_at),
        answer: KeptAnswer { status, body },
    })
}

/// What a creation of many links has done with one of them before they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedLink {
    /// It is to be counted.
    Inserted {
        id: ShortId,
        /// Of a name that is not the id: the first revision of the link, and for whom the name was kept before.
        name: Option<(Revision, Option<(KeyId, Revision)>)>,
    },
    /// Its name is taken.
    Taken,
    /// The store could not insert it.
    Failed,
}

/// `None`: the name is taken.
type PlannedLinkV1 = Option<TriedLinkV1>;

#[derive(Default, Serialize, Deserialize)]
struct TriedLinkV1 {
    /// `None`: it is not inserted.
    id: Option<Base62Id>,
    revision: Option<u32>,
    kept_for: Option<Uuid>,
    kept_revision: Option<u32>,
}

/// A column with what a creation of many links has inserted.
pub fn plan_to_json(plan: &[PlannedLink]) -> Result<String, StoreError> {
    let planned = |link: &PlannedLink| match link {
        PlannedLink::Taken => None,
        PlannedLink::Failed => Some(TriedLinkV1::default()),
        PlannedLink::Inserted { id, name } => {
            let kept = name.and_then(|(_, kept)| kept);
            Some(TriedLinkV1 {
                id: Some(Base62Id(*id)),
                revision: name.map(|(revision, _)| revision.0),
                kept_for: kept.map(|(owner, _)| owner.0),
                kept_revision: kept.map(|(_, last)| last.0),
            })
        }
    };
    let plan: Vec<PlannedLinkV1> = plan.iter().map(planned).collect();
    super::to_json(TABLE, &plan)
}

pub fn plan_from_json(text: &str) -> Result<Vec<PlannedLink>, StoreError> {
    let plan: Vec<PlannedLinkV1> = super::from_json(TABLE, text)?;
    let planned = |link: PlannedLinkV1| match link {
        None => PlannedLink::Taken,
        Some(TriedLinkV1 { id: None, .. }) => PlannedLink::Failed,
        Some(TriedLinkV1 { id: Some(id), revision, kept_for, kept_revision }) => {
            let kept = kept_for.map(KeyId).zip(kept_revision.map(Revision));
            PlannedLink::Inserted { id: id.0, name: revision.map(|revision| (Revision(revision), kept)) }
        }
    };
    Ok(plan.into_iter().map(planned).collect())
}

/// What a month says about a creation that it has counted: which, how many links, and the count with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedOnce {
    pub claim: Uuid,
    pub counted: u64,
    pub used: u64,
}

pub fn counted_to_bytes(counted: CountedOnce) -> Vec<u8> {
    let CountedOnce { claim, counted, used } = counted;
    [claim.as_bytes().as_slice(), &counted.to_be_bytes(), &used.to_be_bytes()].concat()
}

pub fn counted_from_bytes(bytes: &[u8]) -> Result<CountedOnce, StoreError> {
    let invalid = || corrupt("link_quotas", &"not a counted creation");
    let (claim, rest) = bytes.split_first_chunk().ok_or_else(invalid)?;
    let (counted, rest) = rest.split_first_chunk().ok_or_else(invalid)?;
    let used: &[u8; 8] = rest.try_into().map_err(|_| invalid())?;
    Ok(CountedOnce {
        claim: Uuid::from_bytes(*claim),
        counted: u64::from_be_bytes(*counted),
        used: u64::from_be_bytes(*used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back() {
        let answer = KeptAnswer { status: 201, body: "{}".into() };
        let record = OnceRecord { fingerprint: Fingerprint([7; 32]), begun_at: Timestamp(9), answer };
        assert_eq!(decode(&encode(&record).unwrap()).unwrap(), record);
        assert!(decode(&[9, 0]).unwrap_err().to_string().contains("written by a later version"));
        let id = ShortId(*b"abcdefg");
        let kept = (KeyId(Uuid::from_u128(7)), Revision(4));
        let plan = [
            PlannedLink::Taken,
            PlannedLink::Failed,
            PlannedLink::Inserted { id, name: None },
            PlannedLink::Inserted { id, name: Some((Revision::FIRST, None)) },
            PlannedLink::Inserted { id, name: Some((Revision(5), Some(kept))) },
        ];
        assert_eq!(plan_from_json(&plan_to_json(&plan).unwrap()).unwrap(), plan);
        let counted = CountedOnce { claim: Uuid::from_u128(1), counted: 2, used: 3 };
        assert_eq!(counted_from_bytes(&counted_to_bytes(counted)).unwrap(), counted);
        assert!(counted_from_bytes(&[0; 31]).is_err() && counted_from_bytes(&[0; 33]).is_err());
    }
}

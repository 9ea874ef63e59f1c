//! Deliveries of webhooks: their states, and how many of a link's day have which status.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::links::first_revision;
use super::{Time, corrupt, split_version, unknown_version};
use crate::domain::bots::BotKind;
use crate::domain::key::KeyId;
use crate::domain::link::Revision;
use crate::domain::webhook::{DeliveryId, DeliveryState, DeliveryStatus, UrlSummary};
use crate::store::StoreError;

pub const TABLE: &str = "deliveries";
pub const DUE_TABLE: &str = "due";
pub const DAYS_TABLE: &str = "delivery days";
const VERSION: u8 = 2;
const DAY_VERSION: u8 = 1;

written_enum! {
    StatusV1 for DeliveryStatus { Pending, Delivered, Failed }
}

written_enum! {
    BotV1 for BotKind { Prefetch, Preview, Crawler, Monitor, Scanner, Tool }
}

/// The state of a delivery in rows, as 0.1.0 wrote it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct DeliveryV1<'a> {
    owner: Uuid,
    status: StatusV1,
    attempts: u32,
    counted: bool,
    response_status: Option<u16>,
    error: Option<Cow<'a, str>>,
    created_at: Time,
    updated_at: Time,
    next_attempt_at: Option<Time>,
}

/// The state of a delivery, in rows and in the column `state`. In JSON fields from the revision on may be missing: 0.1.0
/// wrote none.
#[derive(Serialize, Deserialize)]
struct DeliveryV2<'a> {
    owner: Uuid,
    status: StatusV1,
    attempts: u32,
    counted: bool,
    response_status: Option<u16>,
    error: Option<Cow<'a, str>>,
    created_at: Time,
    updated_at: Time,
    next_attempt_at: Option<Time>,
    #[serde(default = "first_revision")]
    revision: u32,
    #[serde(default)]
    round: u32,
    #[serde(default)]
    earlier_attempts: u32,
    /// `None` for hits of persons, and of those that were counted before bots were told.
    #[serde(default)]
    bot: Option<BotV1>,
}

impl<'a> From<&'a DeliveryState> for DeliveryV2<'a> {
    fn from(state: &'a DeliveryState) -> Self {
        let DeliveryState {
            owner,
            revision,
            bot,
            status,
            attempts,
            round,
            earlier_attempts,
            counted,
            response_status,
            error,
            created_at,
            updated_at,
            next_attempt_at,
        } = state;
        Self {
            owner: owner.0,
            status: (*status).into(),
            attempts: *attempts,
            counted: *counted,
            response_status: *response_status,
            error: error.as_ref().map(Cow::from),
            created_at: Time(*created_at),
            updated_at: Time(*updated_at),
            next_attempt_at: next_attempt_at.map(Time),
            revision: revision.0,
            round: *round,
            earlier_attempts: *earlier_attempts,
            bot: bot.map(BotV1::from),
        }
    }
}

impl From<DeliveryV2<'_>> for DeliveryState {
    fn from(record: DeliveryV2<'_>) -> Self {
        let DeliveryV2 {
            owner,
            status,
            attempts,
            counted,
            response_status,
            error,
            created_at,
            updated_at,
            next_attempt_at,
            revision,
            round,
            earlier_attempts,
            bot,
        } = record;
        Self {
            owner: KeyId(owner),
            revision: Revision(revision),
            bot: bot.map(BotKind::from),
            status: status.into(),
            attempts,
            round,
            earlier_attempts,
            counted,
            response_status,
            error: error.map(Cow::into_owned),
            created_at: created_at.0,
            updated_at: updated_at.0,
            next_attempt_at: next_attempt_at.map(|time| time.0),
        }
    }
}

impl<'a> From<DeliveryV1<'a>> for DeliveryV2<'a> {
    fn from(record: DeliveryV1<'a>) -> Self {
        let DeliveryV1 {
            owner,
            status,
            attempts,
            counted,
            response_status,
            error,
            created_at,
            updated_at,
            next_attempt_at,
        } = record;
        Self {
            owner,
            status,
            attempts,
            counted,
            response_status,
            error,
            created_at,
            updated_at,
            next_attempt_at,
            revision: first_revision(),
            round: 0,
            earlier_attempts: 0,
            bot: None,
        }
    }
}

pub fn encode(state: &DeliveryState) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &DeliveryV2::from(state))
}

pub fn decode(row: &[u8]) -> Result<DeliveryState, StoreError> {
    match split_version(TABLE, row)? {
        (1, record) => super::decode::<DeliveryV1<'_>>(TABLE, record).map(|first| DeliveryV2::from(first).into()),
        (VERSION, record) => super::decode::<DeliveryV2<'_>>(TABLE, record).map(DeliveryState::from),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// The column `state`.
pub fn to_json(state: &DeliveryState) -> Result<String, StoreError> {
    super::to_json(TABLE, &DeliveryV2::from(state))
}

/// The state of a row on the cluster, which has a column of its own for `counted`.
pub fn from_columns(state: &str, counted: Option<bool>) -> Result<DeliveryState, StoreError> {
    let state = super::from_json::<DeliveryV2<'_>>(TABLE, state).map(DeliveryState::from)?;
    Ok(DeliveryState { counted: counted.unwrap_or(false), ..state })
}

/// The row of a due time: the revision and the round, as far as they are not the first ones. 0.1.0 wrote empty rows.
pub fn encode_due(revision: Revision, round: u32) -> Vec<u8> {
    match (revision, round) {
        (Revision::FIRST, 0) => Vec::new(),
        (revision, 0) => revision.0.to_be_bytes().to_vec(),
        (revision, round) => [revision.0.to_be_bytes(), round.to_be_bytes()].concat(),
    }
}

pub fn decode_due(row: &[u8]) -> Result<(Revision, u32), StoreError> {
    let Some((revision, round)) = row.split_first_chunk::<4>() else {
        let is_first = row.is_empty();
        return is_first.then_some((Revision::FIRST, 0)).ok_or_else(|| corrupt(DUE_TABLE, &"not a revision"));
    };
    let round = match round {
        [] => 0,
        round => round.try_into().map(u32::from_be_bytes).map_err(|_| corrupt(DUE_TABLE, &"not a round"))?,
    };
    Ok((Revision(u32::from_be_bytes(*revision)), round))
}

/// A delivery in one of its rounds.
pub type DeliveryRound = (DeliveryId, u32);

const ID_BYTES: usize = 32;

/// The column `deliveries` of a claim: 32 bytes for each delivery. The round of a replayed one is 32 bytes before it, which
/// begin with a zero: no delivery's do, so that 0.1.0 passes over them.
pub fn encode_claimed(claimed: &[DeliveryRound]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(claimed.len() * ID_BYTES);
    for (id, round) in claimed {
        if *round > 0 {
            bytes.extend([0; ID_BYTES - 4]);
            bytes.extend(round.to_be_bytes());
        }
        bytes.extend(id.to_bytes());
    }
    bytes
}

pub fn decode_claimed(bytes: &[u8]) -> Vec<DeliveryRound> {
    let (mut claimed, mut round) = (Vec::with_capacity(bytes.len() / ID_BYTES), 0);
    for chunk in bytes.chunks(ID_BYTES) {
        match chunk {
            [0, .., a, b, c, d] => round = u32::from_be_bytes([*a, *b, *c, *d]),
            chunk => {
                claimed.extend(DeliveryId::from_bytes(chunk).map(|id| (id, round)));
                round = 0;
            }
        }
    }
    claimed
}

/// Deliveries of a link's day to one URL.
#[derive(Serialize, Deserialize)]
struct DayV1<'a> {
    pending: u64,
    delivered: u64,
    failed: u64,
    last_attempt_at: Option<Time>,
    last_status: Option<u16>,
    last_error: Option<Cow<'a, str>>,
}

impl<'a> From<&'a UrlSummary> for DayV1<'a> {
    fn from(sum: &'a UrlSummary) -> Self {
        let UrlSummary { pending, delivered, failed, last_attempt_at, last_status, last_error } = sum;
        Self {
            pending: *pending,
            delivered: *delivered,
            failed: *failed,
            last_attempt_at: last_attempt_at.map(Time),
            last_status: *last_status,
            last_error: last_error.as_ref().map(Cow::from),
        }
    }
}

impl From<DayV1<'_>> for UrlSummary {
    fn from(record: DayV1<'_>) -> Self {
        let DayV1 { pending, delivered, failed, last_attempt_at, last_status, last_error } = record;
        Self {
            pending,
            delivered,
            failed,
            last_attempt_at: last_attempt_at.map(|time| time.0),
            last_status,
            last_error: last_error.map(Cow::into_owned),
        }
    }
}

pub fn encode_day(sum: &UrlSummary) -> Result<Vec<u8>, StoreError> {
    super::encode(DAYS_TABLE, DAY_VERSION, &DayV1::from(sum))
}

pub fn decode_day(row: &[u8]) -> Result<UrlSummary, StoreError> {
    match split_version(DAYS_TABLE, row)? {
        (DAY_VERSION, record) => super::decode::<DayV1<'_>>(DAYS_TABLE, record).map(UrlSummary::from),
        (later, _) => Err(unknown_version(DAYS_TABLE, later, DAY_VERSION)),
    }
}

/// The changes that one process has made to the deliveries of a link's day, by the index of the URL: an entry of the
/// column `sums`.
///
/// The CQL store works on the record itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSumsV1 {
    pub urls: BTreeMap<u8, UrlSumsV1>,
}

/// The changes that one process has made to the deliveries to a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlSumsV1 {
    pub put: u64,
    pub delivered: u64,
    pub failed: u64,
    pub last_attempt_at: Option<Time>,
    pub last_status: Option<u16>,
    pub last_error: Option<String>,
    /// When the last one changed; `last_error` is its error.
    pub changed_at: Option<Time>,
    /// Those that were queued again after they had been delivered, and after they had failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replayed_delivered: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replayed_failed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "Serde asks for it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

pub fn sums_to_json(sums: &ProcessSumsV1) -> Result<String, StoreError> {
    super::to_json(TABLE, sums)
}

pub fn sums_from_json(sums: &str) -> Result<ProcessSumsV1, StoreError> {
    super::from_json(TABLE, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::ShortId;
    use crate::domain::webhook::AttemptOutcome;

    const AT: Timestamp = Timestamp(1_795_000_000_000);

    fn state(revision: Revision) -> DeliveryState {
        let mut state = DeliveryState::new(KeyId(Uuid::from_u128(7)), revision, AT);
        let outcome = AttemptOutcome::Failed { response_status: Some(503), error: "http 503".into(), retry_in: None };
        state.settle(&outcome, Timestamp(AT.0 + 5));
        state
    }

    #[test]
    fn a_replayed_delivery_keeps_its_round() {
        let mut state = state(Revision(3));
        state.replay(4, Timestamp(AT.0 + 9), Timestamp(AT.0 + 10));
        assert_eq!((state.round, state.earlier_attempts, state.attempts), (4, 1, 1));
        assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
        assert_eq!(from_columns(&to_json(&state).unwrap(), None).unwrap(), state);
    }

    #[test]
    fn a_delivery_keeps_the_kind_of_its_bot() {
        for bot in BotKind::ALL.map(Some).into_iter().chain([None]) {
            let state = DeliveryState { bot, ..state(Revision(3)) };
            assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
            assert_eq!(from_columns(&to_json(&state).unwrap(), None).unwrap(), state);
        }
    }

    #[test]
    fn a_delivery_keeps_its_revision_in_rows_and_columns() {
        for revision in [Revision::FIRST, Revision(2), Revision(u32::MAX)] {
            let state = state(revision);
            assert_eq!(decode(&encode(&state).unwrap()).unwrap(), state);
            assert_eq!(from_columns(&to_json(&state).unwrap(), None).unwrap(), state);
            for round in [0, 1, u32::MAX] {
                assert_eq!(decode_due(&encode_due(revision, round)).unwrap(), (revision, round));
            }
        }
        assert!(encode_due(Revision::FIRST, 0).is_empty());
        assert!([1, 3, 5, 9].into_iter().all(|length| decode_due(&vec![1; length]).is_err()));
    }

    #[test]
    fn a_claim_names_deliveries_with_their_rounds() {
        let id = |url_index| {
            let hit = HitStamp { id: HitId(Uuid::from_u128(5)), at: AT };
            DeliveryId { link: ShortId::parse("aB3xYz9").unwrap(), hit, url_index }
        };
        let claimed = vec![(id(0), 0), (id(1), 7), (id(2), 0), (id(3), u32::MAX)];
        let bytes = encode_claimed(&claimed);
        assert_eq!(decode_claimed(&bytes), claimed);
        // What 0.1.0 wrote, and what it reads.
        let ids: Vec<_> = bytes.chunks(ID_BYTES).filter_map(DeliveryId::from_bytes).collect();
        assert_eq!(ids, claimed.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        assert_eq!(encode_claimed(&[(id(0), 0)]), id(0).to_bytes());
    }

    #[test]
    fn deliveries_of_0_1_0_are_of_the_first_revision() {
        let state = state(Revision::FIRST);
        let first = DeliveryV1 {
            owner: state.owner.0,
            status: StatusV1::Failed,
            attempts: 1,
            counted: false,
            response_status: Some(503),
            error: Some("http 503".into()),
            created_at: Time(AT),
            updated_at: Time(state.updated_at),
            next_attempt_at: None,
        };
        assert_eq!(decode(&super::super::encode(TABLE, 1, &first).unwrap()).unwrap(), state);
        assert_eq!(from_columns(&super::super::to_json(TABLE, &first).unwrap(), None).unwrap(), state);
    }
}

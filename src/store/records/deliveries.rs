//! Deliveries of webhooks: their states, and how many of a link's day have which status.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Time, split_version, unknown_version};
use crate::domain::key::KeyId;
use crate::domain::webhook::{DeliveryState, DeliveryStatus, UrlSummary};
use crate::store::StoreError;

pub const TABLE: &str = "deliveries";
pub const DAYS_TABLE: &str = "delivery days";
const VERSION: u8 = 1;
const DAY_VERSION: u8 = 1;

written_enum! {
    StatusV1 for DeliveryStatus { Pending, Delivered, Failed }
}

/// The state of a delivery, in rows and in the column `state`.
#[derive(Serialize, Deserialize)]
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

impl<'a> From<&'a DeliveryState> for DeliveryV1<'a> {
    fn from(state: &'a DeliveryState) -> Self {
        let DeliveryState {
            owner,
            status,
            attempts,
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
        }
    }
}

impl From<DeliveryV1<'_>> for DeliveryState {
    fn from(record: DeliveryV1<'_>) -> Self {
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
            owner: KeyId(owner),
            status: status.into(),
            attempts,
            counted,
            response_status,
            error: error.map(Cow::into_owned),
            created_at: created_at.0,
            updated_at: updated_at.0,
            next_attempt_at: next_attempt_at.map(|time| time.0),
        }
    }
}

pub fn encode(state: &DeliveryState) -> Result<Vec<u8>, StoreError> {
    super::encode(TABLE, VERSION, &DeliveryV1::from(state))
}

pub fn decode(row: &[u8]) -> Result<DeliveryState, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => super::decode::<DeliveryV1<'_>>(TABLE, record).map(DeliveryState::from),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// The column `state`.
pub fn to_json(state: &DeliveryState) -> Result<String, StoreError> {
    super::to_json(TABLE, &DeliveryV1::from(state))
}

/// The state of a row on the cluster, which has a column of its own for `counted`.
pub fn from_columns(state: &str, counted: Option<bool>) -> Result<DeliveryState, StoreError> {
    let state = super::from_json::<DeliveryV1<'_>>(TABLE, state).map(DeliveryState::from)?;
    Ok(DeliveryState { counted: counted.unwrap_or(false), ..state })
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
}

pub fn sums_to_json(sums: &ProcessSumsV1) -> Result<String, StoreError> {
    super::to_json(TABLE, sums)
}

pub fn sums_from_json(sums: &str) -> Result<ProcessSumsV1, StoreError> {
    super::from_json(TABLE, sums)
}

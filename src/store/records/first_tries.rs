//! New deliveries that are kept in memory for their first try.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::deliveries::BotV1;
use super::{corrupt, split_version, unknown_version};
use crate::domain::bots::BotKind;
use crate::domain::key::KeyId;
use crate::domain::link::Revision;
use crate::domain::webhook::{DeliveryId, NewDelivery};
use crate::store::StoreError;

const TABLE: &str = "first tries";
const VERSION: u8 = 1;

/// Deliveries in a row of those that are kept for their first try: so many are never longer than a row may be.
pub const IN_ROW: usize = 64;

/// A delivery that is kept for its first try.
#[derive(Serialize, Deserialize)]
struct FirstTryV1 {
    id: [u8; DeliveryId::BYTES],
    owner: Uuid,
    revision: u32,
    bot: Option<BotV1>,
}

impl From<&NewDelivery> for FirstTryV1 {
    fn from(delivery: &NewDelivery) -> Self {
        let NewDelivery { id, owner, revision, bot } = delivery;
        Self { id: id.to_bytes(), owner: owner.0, revision: revision.0, bot: bot.map(BotV1::from) }
    }
}

impl TryFrom<FirstTryV1> for NewDelivery {
    type Error = StoreError;

    fn try_from(record: FirstTryV1) -> Result<Self, StoreError> {
        let FirstTryV1 { id, owner, revision, bot } = record;
        let id = DeliveryId::from_bytes(&id).ok_or_else(|| corrupt(TABLE, &"not a delivery id"))?;
        Ok(Self { id, owner: KeyId(owner), revision: Revision(revision), bot: bot.map(BotKind::from) })
    }
}

pub fn encode(deliveries: &[NewDelivery]) -> Result<Vec<u8>, StoreError> {
    let records: Vec<FirstTryV1> = deliveries.iter().map(FirstTryV1::from).collect();
    super::encode(TABLE, VERSION, &records)
}

pub fn decode(row: &[u8]) -> Result<Vec<NewDelivery>, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, record) => {
            let records: Vec<FirstTryV1> = super::decode(TABLE, record)?;
            records.into_iter().map(NewDelivery::try_from).collect()
        }
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

/// Which deliveries of a row the quota has counted: the version, and a byte for the place of each.
pub fn encode_counted(places: &[u8]) -> Vec<u8> {
    [&[VERSION], places].concat()
}

pub fn decode_counted(row: &[u8]) -> Result<Vec<u8>, StoreError> {
    match split_version(TABLE, row)? {
        (VERSION, places) => Ok(places.to_vec()),
        (later, _) => Err(unknown_version(TABLE, later, VERSION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::calendar::Timestamp;
    use crate::domain::hit::{HitId, HitStamp};
    use crate::domain::link::ShortId;

    #[test]
    fn a_full_row_is_shorter_than_rows_may_be() {
        let hit = HitStamp { id: HitId(Uuid::max()), at: Timestamp(u64::MAX) };
        let id = DeliveryId { link: ShortId(*b"zzzzzzz"), hit, url_index: u8::MAX };
        let (owner, revision, bot) = (KeyId(Uuid::max()), Revision(u32::MAX), Some(BotKind::Tool));
        let deliveries = [NewDelivery { id, owner, revision, bot }; IN_ROW];
        let row = encode(&deliveries).unwrap();
        assert!(row.len() + 8 <= 3_900, "{}", row.len());
        assert_eq!(decode(&row).unwrap(), deliveries);
    }

    #[test]
    fn rows_of_later_versions_are_refused() {
        assert!(decode(&[2, 0]).is_err() && decode_counted(&[2, 0]).is_err());
        assert_eq!(decode_counted(&encode_counted(&[0, 63])).unwrap(), [0, 63]);
    }
}

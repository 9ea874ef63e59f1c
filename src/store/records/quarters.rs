//! The hits of a day by quarter of an hour, as a column or a row.
//!
//! Pairs of a byte and a number ([`varint`]): the slot, from 0 to 95, and its hits of persons; then the slot and 128,
//! and its hits of bots. Slots are in order and without those that have no hits. Other bytes are left for later
//! versions.

use super::{corrupt, varint};
use crate::domain::quarters::{QuarterHits, SLOTS};
use crate::domain::tally::Tally;
use crate::store::StoreError;

const TABLE: &str = "quarters";
/// In the byte of a slot: its hits of bots.
const BOTS: u8 = 0x80;

/// No bytes if there are no hits.
pub fn encode(hits: &QuarterHits) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    let persons = hits.slots().map(|(slot, tally)| (slot, tally.persons));
    let bots = hits.slots().map(|(slot, tally)| (slot | BOTS, tally.bots));
    for (slot, count) in persons.chain(bots).filter(|(_, count)| *count > 0) {
        bytes.push(slot);
        varint::push(&mut bytes, count.min(varint::MAX_COUNT));
    }
    bytes
}

/// # Errors
/// When `bytes` are not the hits of a day.
pub fn decode(mut bytes: &[u8]) -> Result<QuarterHits, StoreError> {
    let mut hits = QuarterHits::default();
    let mut before = None;
    while let Some((slot, rest)) = bytes.split_first() {
        bytes = rest;
        if slot & !BOTS >= SLOTS {
            return Err(corrupt(TABLE, &format_args!("{slot} is no slot, or one of a later version")));
        }
        if before.is_some_and(|before| before >= *slot) {
            return Err(corrupt(TABLE, &"slots out of order"));
        }
        before = Some(*slot);
        let count = varint::take(&mut bytes).filter(|count| (1..=varint::MAX_COUNT).contains(count));
        let count = count.ok_or_else(|| corrupt(TABLE, &"not a count"))?;
        let is_bots = slot & BOTS != 0;
        let tally = if is_bots { Tally { persons: 0, bots: count } } else { Tally { persons: count, bots: 0 } };
        hits.add(slot & !BOTS, tally);
    }
    Ok(hits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_that_released_versions_wrote() {
        let mut hits = QuarterHits::default();
        for (slot, persons, bots) in [(0, 1, 0), (37, 300, 2), (95, 0, 5)] {
            hits.add(slot, Tally { persons, bots });
        }
        let bytes = [0, 1, 37, 0xac, 2, 128 + 37, 2, 128 + 95, 5];
        assert_eq!(encode(&hits), bytes);
        assert_eq!(decode(&bytes).unwrap(), hits);
        assert!(encode(&QuarterHits::default()).is_empty() && decode(&[]).unwrap().is_empty());
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for bytes in
            [&[0][..], &[96, 1], &[0xff, 1], &[224, 1], &[1, 1, 0, 1], &[1, 1, 1, 1], &[1, 0], &[1, 0x80], &[0xff; 40]]
        {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
        let mut too_large = vec![3];
        varint::push(&mut too_large, varint::MAX_COUNT + 1);
        assert!(decode(&too_large).is_err());
    }

    proptest! {
        #[test]
        fn hits_are_read_as_they_were_written_and_add_up_over_writers(
            hits in prop::collection::vec((0_usize..4, 0_u8..96, 1_u64..1_000_000, any::<bool>()), 0..300)
        ) {
            let mut writers: [QuarterHits; 4] = Default::default();
            let mut expected = std::collections::BTreeMap::<u8, Tally>::new();
            for (writer, slot, count, is_bot) in hits {
                let tally = if is_bot { Tally { persons: 0, bots: count } } else { Tally { persons: count, bots: 0 } };
                // Each batch is added to what is stored.
                let mut stored = decode(&encode(&writers[writer])).unwrap();
                stored.add(slot, tally);
                writers[writer] = stored;
                *expected.entry(slot).or_default() += tally;
            }
            let mut merged = QuarterHits::default();
            for writer in &writers {
                let bytes = encode(writer);
                prop_assert!(bytes.len() <= 96 * 2 * (1 + 4));
                prop_assert_eq!(&decode(&bytes).unwrap(), writer);
                merged.add_all(writer);
            }
            prop_assert_eq!(merged.total(), expected.values().copied().sum());
            prop_assert_eq!(merged.slots().collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_refused_or_read_as_what_is_written_the_same(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..8], 0..60)
        ) {
            if let Ok(hits) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&hits)).unwrap(), hits);
            }
        }
    }
}

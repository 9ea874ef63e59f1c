//! Records as bytes.

use proptest::prelude::*;
use signpost::journal::record::{HitRecord, MAX_HEADER_BYTES};

proptest! {
    #[test]
    fn a_record_reads_back_as_written(
        at_ms: u64, short_id: [u8; 7], tracked: bool, webhooks: u8, mobile: Option<bool>,
        owner: [u8; 16], address: std::net::IpAddr,
        user_agent in prop::collection::vec(any::<u8>(), 0..700),
        referer in prop::collection::vec(any::<u8>(), 0..700),
    ) {
        let written = HitRecord {
            at_ms, short_id, tracked, webhooks, ch_ua_mobile: mobile, owner, address,
            user_agent: &user_agent, referer: &referer,
        };
        let mut bytes = vec![0xEE; usize::from(written.encoded_len())];
        written.encode(&mut bytes);
        let kept = HitRecord {
            user_agent: &user_agent[..user_agent.len().min(MAX_HEADER_BYTES)],
            referer: &referer[..referer.len().min(MAX_HEADER_BYTES)],
            ..written
        };
        prop_assert_eq!(HitRecord::decode(&bytes), Ok(kept));
    }

    #[test]
    fn bytes_that_decode_encode_to_the_same(
        bytes in prop::collection::vec(any::<u8>(), 0..80), flags in 0u8..32, user_agent in 0u16..30,
    ) {
        let mut bytes = bytes;
        // Mostly right lengths and flags, or hardly any bytes would decode.
        if let Some(texts) = bytes.len().checked_sub(53) {
            let texts = u16::try_from(texts).unwrap();
            let user_agent = user_agent.min(texts);
            bytes[15] = flags;
            bytes[48..50].copy_from_slice(&user_agent.to_le_bytes());
            bytes[50..52].copy_from_slice(&(texts - user_agent).to_le_bytes());
        }
        if let Ok(hit) = HitRecord::decode(&bytes) {
            let mut again = vec![0; usize::from(hit.encoded_len())];
            hit.encode(&mut again);
            prop_assert_eq!(HitRecord::decode(&again), Ok(hit));
            prop_assert_eq!(again.len(), bytes.len());
        }
    }
}

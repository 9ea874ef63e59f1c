//! The worker cache: the links that one worker has looked up lately, in front of the shared cache.

use std::sync::Arc;

use super::links::CachedLink;
use crate::domain::link::ShortId;

/// One link for each slot: about the links that a worker redirects to within seconds. The table takes 100 KB, plus the
/// links.
const SLOTS: usize = 4_096;

/// The worker cache. The shared cache records every use in memory that all workers write; here a look-up writes nothing
/// and takes 2 ns instead of 104 (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23).
///
/// Links never change, so no entry can be out of date. The id of a link determines its slot, and the last link with
/// that slot is kept.
pub struct NearLinks {
    slots: Box<[Option<Arc<CachedLink>>]>,
}

impl Default for NearLinks {
    fn default() -> Self {
        Self { slots: vec![None; SLOTS].into() }
    }
}

impl NearLinks {
    pub fn get(&self, id: ShortId) -> Option<&CachedLink> {
        self.slots[slot(id)].as_deref().filter(|link| link.id == id)
    }

    /// Keeps a link, unless its target is long.
    pub fn put(&mut self, link: &Arc<CachedLink>) {
        if link.is_short() {
            self.slots[slot(link.id)] = Some(Arc::clone(link));
        }
    }
}

/// Ids are random, so that any mixing is good enough.
fn slot(id: ShortId) -> usize {
    let mut bytes = [0; 8];
    bytes[..id.0.len()].copy_from_slice(&id.0);
    let bits = u64::from_le_bytes(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    #[expect(clippy::cast_possible_truncation, reason = "below SLOTS")]
    let slot = (bits >> (u64::BITS - SLOTS.ilog2())) as usize;
    slot
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::domain::key::KeyId;

    fn link(id: &str, target: &str) -> Arc<CachedLink> {
        Arc::new(CachedLink {
            id: ShortId::parse(id).unwrap(),
            owner: KeyId(uuid::Uuid::nil()),
            revision: 1,
            tracked: true,
            webhooks: 0,
            location: HeaderValue::try_from(target).unwrap(),
        })
    }

    #[test]
    fn a_link_is_found_until_another_takes_its_slot() {
        let mut near = NearLinks::default();
        let mut others = (0..u32::MAX).map(|number| format!("{number:07}"));
        let first = link("0000000", "https://example.com/first");
        let rival = others.find(|id| *id != "0000000" && slot(ShortId::parse(id).unwrap()) == slot(first.id)).unwrap();
        near.put(&first);
        let rival = link(&rival, "https://example.com/second");
        assert_eq!(near.get(first.id).unwrap().location, first.location);
        assert!(near.get(rival.id).is_none());
        near.put(&rival);
        assert!(near.get(first.id).is_none());
        assert_eq!(near.get(rival.id).unwrap().location, rival.location);
    }

    #[test]
    fn long_targets_are_left_to_the_shared_cache() {
        let mut near = NearLinks::default();
        let long = link("0000000", &format!("https://example.com/{}", "x".repeat(300)));
        near.put(&long);
        assert!(near.get(long.id).is_none());
    }
}

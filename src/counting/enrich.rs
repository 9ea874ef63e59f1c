//! Determines device, referrer and place of a hit.
//!
//! Visitors repeat themselves, so results are cached. A cached hit takes a few hundred nanoseconds; a new user agent,
//! referrer or address takes that much again.

use std::{hash::BuildHasher, net::IpAddr, sync::Arc};

use foldhash::quality::RandomState;

use super::places::{PlaceDatabase, VisitorPlace};
use crate::domain::{
    device::{self, Device},
    referrer::{OwnHost, referrer_host},
};

/// Current browsers on the devices in use have some thousand user agents.
const USER_AGENTS: usize = 8_192;
/// `Referer` headers: most are the origin of a site.
const REFERRERS: usize = 4_096;
/// Referring hosts: headers with the same host share its text.
const HOSTS: usize = 4_096;
/// Addresses: enough that clicks of one visitor within minutes share an entry.
const ADDRESSES: usize = 16_384;
/// Places, each with up to three labels.
const PLACES: usize = 8_192;

/// The properties of a hit's visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enriched {
    pub device: Device,
    /// The referring host; `None` if none is counted.
    pub referrer: Option<Arc<str>>,
    /// `None` without a database of places, and for addresses that are not in it.
    pub place: Option<Arc<VisitorPlace>>,
}

/// Determines devices, referrers and places, and caches the results. Memory is bounded: under 10 MB, whatever visitors
/// send.
#[derive(Debug)]
pub struct Enricher {
    own_host: OwnHost,
    places: Option<Arc<PlaceDatabase>>,
    /// Has a random key, so that no visitor can choose hashes that share a slot or collide.
    hasher: RandomState,
    /// By the hash of user agent and hint: 64 bits distinguish some thousands of them.
    devices: DirectMappedCache<u64, Device>,
    /// By the header's hash.
    referrers: DirectMappedCache<u64, Option<Arc<str>>>,
    hosts: DirectMappedCache<Arc<str>, ()>,
    addresses: DirectMappedCache<IpAddr, Option<Arc<VisitorPlace>>>,
    /// By the record's offset in the database.
    records: DirectMappedCache<usize, Option<Arc<VisitorPlace>>>,
}

impl Enricher {
    /// `places` is `None` if no database is configured.
    pub fn new(own_host: OwnHost, places: Option<Arc<PlaceDatabase>>) -> Self {
        // Without a database there are no look-ups.
        let (addresses, records) = if places.is_some() { (ADDRESSES, PLACES) } else { (1, 1) };
        Self {
            own_host,
            places,
            hasher: RandomState::default(),
            devices: DirectMappedCache::with_slots(USER_AGENTS),
            referrers: DirectMappedCache::with_slots(REFERRERS),
            hosts: DirectMappedCache::with_slots(HOSTS),
            addresses: DirectMappedCache::with_slots(addresses),
            records: DirectMappedCache::with_slots(records),
        }
    }

    /// Determines the properties from the request's headers and the client's address. `ch_ua_mobile` is
    /// `Sec-CH-UA-Mobile`; headers that were not sent are empty.
    pub fn enrich(
        &mut self,
        user_agent: &[u8],
        ch_ua_mobile: Option<bool>,
        referer: &[u8],
        address: IpAddr,
    ) -> Enriched {
        Enriched {
            device: self.device(user_agent, ch_ua_mobile),
            referrer: self.referrer(referer),
            place: self.place(address),
        }
    }

    fn device(&mut self, user_agent: &[u8], ch_ua_mobile: Option<bool>) -> Device {
        let key = self.hasher.hash_one((user_agent, ch_ua_mobile));
        *self
            .devices
            .get_or_insert_with(key, key, || device::classify(&String::from_utf8_lossy(user_agent), ch_ua_mobile))
    }

    fn referrer(&mut self, referer: &[u8]) -> Option<Arc<str>> {
        if referer.is_empty() {
            return None;
        }
        let (own_host, hosts, hasher) = (&self.own_host, &mut self.hosts, &self.hasher);
        let read = || {
            let host = referrer_host(referer, own_host)?;
            Some(hosts.shared(hasher.hash_one(&*host), &host))
        };
        let key = hasher.hash_one(referer);
        self.referrers.get_or_insert_with(key, key, read).clone()
    }

    fn place(&mut self, address: IpAddr) -> Option<Arc<VisitorPlace>> {
        let places = self.places.as_deref()?;
        let (records, hasher) = (&mut self.records, &self.hasher);
        let find = || {
            let record = places.find(address)?;
            let offset = record.offset()?;
            records.get_or_insert_with(hasher.hash_one(offset), offset, || record.read().map(Arc::new)).clone()
        };
        self.addresses.get_or_insert_with(hasher.hash_one(address), address, find).clone()
    }
}

/// A direct-mapped cache: the hash of a key determines its only slot, and the newest entry replaces the one there. It
/// does not track use, which would cost more than the cached results.
#[derive(Debug)]
struct DirectMappedCache<K, V> {
    /// Their number is a power of two.
    slots: Box<[Option<(K, V)>]>,
}

impl<K: PartialEq, V> DirectMappedCache<K, V> {
    fn with_slots(count: usize) -> Self {
        Self { slots: (0..count.next_power_of_two()).map(|_| None).collect() }
    }

    fn slot(&mut self, hash: u64) -> &mut Option<(K, V)> {
        #[allow(clippy::cast_possible_truncation, reason = "the mask leaves less than the number of slots")]
        let index = hash as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    fn get_or_insert_with(&mut self, hash: u64, key: K, make: impl FnOnce() -> V) -> &V {
        let slot = self.slot(hash);
        if slot.as_ref().is_none_or(|(held, _)| *held != key) {
            *slot = None;
        }
        &slot.get_or_insert_with(|| (key, make())).1
    }
}

impl DirectMappedCache<Arc<str>, ()> {
    /// Returns the shared copy of `text`, while it is cached.
    fn shared(&mut self, hash: u64, text: &str) -> Arc<str> {
        let slot = self.slot(hash);
        if slot.as_ref().is_none_or(|(held, ())| **held != *text) {
            *slot = None;
        }
        Arc::clone(&slot.get_or_insert_with(|| (text.into(), ())).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn enricher() -> Enricher {
        Enricher::new(OwnHost::of_base_url("https://sho.rt"), None)
    }

    #[test]
    fn a_remembered_answer_is_the_first_one() {
        let mut enricher = enricher();
        let agent =
            b"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/153.0.0.0 Safari/537.36";
        for _ in 0..2 {
            assert_eq!(enricher.enrich(agent, None, b"", HERE).device, Device::Tablet);
            assert_eq!(enricher.enrich(agent, Some(true), b"", HERE).device, Device::Mobile);
        }
        let first = enricher.enrich(agent, None, b"https://example.com/a", HERE).referrer.unwrap();
        let second = enricher.enrich(agent, None, b"https://WWW.example.com/b", HERE).referrer.unwrap();
        assert_eq!(&*first, "example.com");
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn a_slot_taken_by_another_gives_no_wrong_answer() {
        let mut cache = DirectMappedCache::with_slots(1);
        for key in [1, 2, 1, 1, 2] {
            assert_eq!(*cache.get_or_insert_with(7, key, || key * 10), key * 10);
        }
    }

    #[test]
    fn without_a_database_there_are_no_places() {
        assert_eq!(
            enricher().enrich(b"\xff", None, b"\xff", HERE),
            Enriched { device: Device::Desktop, referrer: None, place: None }
        );
    }
}

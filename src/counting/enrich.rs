//! Determines what is counted of a hit: device, browser, referrer, place and so on.
//!
//! Visitors repeat themselves, so results are cached, and hits with the same properties share one [`HitProfile`].

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::places::{PlaceDatabase, VisitorPlace};
use super::profile::{AgentTraits, HitProfile, HitProperties, UtmTexts};
use crate::domain::agent::{self, Browser, OperatingSystem};
use crate::domain::bots::{BotKind, BotRules, SharedBotRules};
use crate::domain::device;
use crate::domain::language::Language;
use crate::domain::privacy::PrivateVisitor;
use crate::domain::referrer::{OwnHost, referrer_host};
use crate::domain::utm::UtmValues;
use crate::journal::record::HitRecord;

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
/// Values of all UTM parameters together: campaigns have few.
const UTM_VALUES: usize = 2_048;
/// Properties that hits have together, each with up to fifteen labels.
const PROFILES: usize = 8_192;
/// Combinations of the headers, route and place of hits.
const VISITS: usize = 8_192;

/// Determines what is counted of hits, and caches the results. Memory is bounded: some 35 MB, whatever visitors send.
#[derive(Debug)]
pub struct Enricher {
    own_host: OwnHost,
    places: Option<Arc<PlaceDatabase>>,
    shared_rules: SharedBotRules,
    /// Those of the current batch.
    rules: Arc<BotRules>,
    /// Those of the next batch, if they are not those in force then.
    next_rules: Option<Arc<BotRules>>,
    /// Has a random key, so that no visitor can choose hashes that share a slot or collide.
    hasher: RandomState,
    /// By the hash of user agent and hint: 64 bits distinguish some thousands of them.
    agents: DirectMappedCache<u64, AgentTraits>,
    /// By the header's hash.
    referrers: DirectMappedCache<u64, Option<Arc<str>>>,
    hosts: DirectMappedCache<Arc<str>, ()>,
    addresses: DirectMappedCache<IpAddr, Option<Arc<VisitorPlace>>>,
    /// By the record's offset in the database.
    records: DirectMappedCache<usize, Option<Arc<VisitorPlace>>>,
    /// By the hash of the five values.
    utm: DirectMappedCache<u64, Arc<UtmTexts>>,
    profiles: DirectMappedCache<u64, (HitProperties, Arc<HitProfile>)>,
    /// By the hash of all that a profile depends on but the place. Most hits are found here, and need no other cache.
    visits: DirectMappedCache<u64, (Option<Arc<VisitorPlace>>, Arc<HitProfile>)>,
    /// The number of profiles made so far.
    made: u64,
}

impl Enricher {
    /// `places` is `None` if no database is configured.
    pub fn new(own_host: OwnHost, places: Option<Arc<PlaceDatabase>>, rules: SharedBotRules) -> Self {
        // Without a database there are no look-ups.
        let (addresses, records) = if places.is_some() { (ADDRESSES, PLACES) } else { (1, 1) };
        Self {
            own_host,
            places,
            rules: rules.current(),
            shared_rules: rules,
            next_rules: None,
            hasher: RandomState::default(),
            agents: DirectMappedCache::with_slots(USER_AGENTS),
            referrers: DirectMappedCache::with_slots(REFERRERS),
            hosts: DirectMappedCache::with_slots(HOSTS),
            addresses: DirectMappedCache::with_slots(addresses),
            records: DirectMappedCache::with_slots(records),
            utm: DirectMappedCache::with_slots(UTM_VALUES),
            profiles: DirectMappedCache::with_slots(PROFILES),
            visits: DirectMappedCache::with_slots(VISITS),
            made: 0,
        }
    }

    /// A new batch begins: from here on, the rules for bots are those that are in force now.
    pub fn begin_batch(&mut self) {
        let rules = self.next_rules.take().unwrap_or_else(|| self.shared_rules.current());
        if !Arc::ptr_eq(rules.list(), self.rules.list()) {
            // What they hold depends on the list.
            self.agents.clear();
            self.visits.clear();
        }
        self.rules = rules;
    }

    /// Has the next batch made with these rules.
    pub fn make_next_batch_with(&mut self, rules: BotRules) {
        self.next_rules = Some(Arc::new(rules));
    }

    /// The rules of the current batch.
    pub fn bot_rules(&self) -> &Arc<BotRules> {
        &self.rules
    }

    /// What is counted of a hit.
    pub fn profile(&mut self, hit: &HitRecord<'_>) -> Arc<HitProfile> {
        let HitRecord { route, private, address, .. } = *hit;
        let place = if private.is_some() { None } else { self.place(address) };
        let is_in_network = private.is_none() && self.rules.has_network_of(address);
        let key = self.visit_key(hit, is_in_network);
        if let Some((of, profile)) = self.visits.get(key, &key)
            && of.as_ref().map(Arc::as_ptr) == place.as_ref().map(Arc::as_ptr)
        {
            return Arc::clone(profile);
        }
        let properties = match private {
            Some(visitor) => private_properties(visitor, route),
            None => HitProperties { place: place.clone(), ..self.properties(hit, is_in_network) },
        };
        let profile = self.shared_profile(&properties);
        self.visits.replace(key, key, (place, Arc::clone(&profile)));
        profile
    }

    /// The hash of all that a profile depends on but the place. It is made for each hit, so the lengths of the texts and
    /// what is short are hashed together, and empty texts are not hashed.
    fn visit_key(&self, hit: &HitRecord<'_>, is_in_network: bool) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        let [source, medium, campaign, term, content] = hit.utm;
        let texts = [hit.user_agent, hit.referer, hit.language, source, medium, campaign, term, content];
        // A text is at most 512 bytes long.
        let lengths = texts.iter().fold(0, |lengths, text| lengths << 10 | text.len() as u128);
        let private = hit.private.map_or(0, |visitor| 0x100 | u128::from(visitor.to_byte()));
        let flags = u128::from(hit.is_prefetch) << 3
            | u128::from(is_in_network) << 2
            | hit.ch_ua_mobile.map_or(0, |is_mobile| 0b10 | u128::from(is_mobile));
        hasher.write_u128(lengths << 48 | private << 32 | flags << 16 | u128::from(hit.route));
        texts.iter().filter(|text| !text.is_empty()).for_each(|text| hasher.write(text));
        hasher.finish()
    }

    fn shared_profile(&mut self, properties: &HitProperties) -> Arc<HitProfile> {
        let (hash, last) = (self.hasher.hash_one(properties.identity()), &mut self.made);
        let is_it = |(known, _): &(HitProperties, _)| known.is_same(properties);
        let make = || {
            *last += 1;
            let profile = Arc::new(properties.profile(*last));
            (properties.clone(), profile)
        };
        Arc::clone(&self.profiles.get_or_replace(hash, hash, is_it, make).1)
    }

    /// The kind of bot that made a hit, if one did.
    pub fn bot(&mut self, hit: &HitRecord<'_>) -> Option<BotKind> {
        if let Some(visitor) = hit.private {
            return visitor.bot;
        }
        let agent = self.agent(hit.user_agent, hit.ch_ua_mobile);
        BotRules::kind(hit.is_prefetch, agent.bot, self.rules.has_network_of(hit.address))
    }

    /// All properties but the place.
    fn properties(&mut self, hit: &HitRecord<'_>, is_in_network: bool) -> HitProperties {
        let agent = self.agent(hit.user_agent, hit.ch_ua_mobile);
        HitProperties {
            agent,
            bot: BotRules::kind(hit.is_prefetch, agent.bot, is_in_network),
            referrer: self.referrer(hit.referer),
            place: None,
            language: Language::parse(hit.language),
            utm: self.utm(&hit.utm),
            route: hit.route,
            is_private: false,
        }
    }

    fn agent(&mut self, user_agent: &[u8], ch_ua_mobile: Option<bool>) -> AgentTraits {
        let (key, rules) = (self.hasher.hash_one((user_agent, ch_ua_mobile)), &self.rules);
        *self.agents.get_or_insert_with(key, key, || {
            let (browser, system) = agent::software(user_agent);
            AgentTraits {
                device: device::classify(&String::from_utf8_lossy(user_agent), ch_ua_mobile),
                browser,
                system,
                bot: rules.kind_of_agent(user_agent),
            }
        })
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

    fn utm(&mut self, values: &UtmValues<'_>) -> Option<Arc<UtmTexts>> {
        if values.iter().all(|value| value.is_empty()) {
            return None;
        }
        let text = |value: &[u8]| (!value.is_empty()).then(|| String::from_utf8_lossy(value).into());
        let key = self.hasher.hash_one(values);
        Some(Arc::clone(self.utm.get_or_insert_with(key, key, || Arc::new(values.map(text)))))
    }
}

fn private_properties(visitor: PrivateVisitor, route: u16) -> HitProperties {
    let PrivateVisitor { device, bot } = visitor;
    let (browser, system) = (Browser::Other, OperatingSystem::Other);
    HitProperties {
        agent: AgentTraits { device, browser, system, bot },
        bot,
        referrer: None,
        place: None,
        language: None,
        utm: None,
        route,
        is_private: true,
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

    fn clear(&mut self) {
        self.slots.fill_with(|| None);
    }

    fn slot(&mut self, hash: u64) -> &mut Option<(K, V)> {
        #[allow(clippy::cast_possible_truncation, reason = "the mask leaves less than the number of slots")]
        let index = hash as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    fn get(&mut self, hash: u64, key: &K) -> Option<&V> {
        self.slot(hash).as_ref().filter(|(held, _)| held == key).map(|(_, value)| value)
    }

    fn replace(&mut self, hash: u64, key: K, value: V) {
        *self.slot(hash) = Some((key, value));
    }

    fn get_or_insert_with(&mut self, hash: u64, key: K, make: impl FnOnce() -> V) -> &V {
        self.get_or_replace(hash, key, |_| true, make)
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), for keys that stand for several values: `is_it` tells which.
    fn get_or_replace(&mut self, hash: u64, key: K, is_it: impl FnOnce(&V) -> bool, make: impl FnOnce() -> V) -> &V {
        let slot = self.slot(hash);
        if slot.as_ref().is_none_or(|(held, value)| *held != key || !is_it(value)) {
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
    use crate::domain::bots::BotNetworks;
    use crate::domain::device::Device;
    use crate::domain::tally::Tally;

    fn enricher() -> Enricher {
        let rules = SharedBotRules::new(BotRules::built_in());
        Enricher::new(OwnHost::of_base_url("https://sho.rt"), None, rules)
    }

    const TABLET: HitRecord<'static> = HitRecord {
        user_agent:
            b"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/153.0.0.0 Safari/537.36",
        ..HitRecord::EMPTY
    };

    /// The labels of a profile.
    fn labels(profile: &HitProfile) -> Vec<(&'static str, &str)> {
        profile.labels.iter().map(|(of, label)| (of.name(), label.text(*of).unwrap())).collect()
    }

    #[test]
    fn hits_with_the_same_properties_share_a_profile() {
        let mut enricher = enricher();
        let mobile = HitRecord { ch_ua_mobile: Some(true), ..TABLET };
        for _ in 0..2 {
            assert_eq!(enricher.profile(&TABLET).device, Device::Tablet);
            assert_eq!(enricher.profile(&mobile).device, Device::Mobile);
        }
        let utm: UtmValues<'_> = [b"news", b"", b"", b"", b"top"];
        let with = |referer| HitRecord { referer, language: b"pt-br", utm, route: 0x0201, ..TABLET };
        let first = enricher.profile(&with(b"https://example.com/a"));
        assert!(Arc::ptr_eq(&first, &enricher.profile(&with(b"https://WWW.example.com/b"))));
        assert_eq!(
            labels(&first),
            [
                ("referrer", "example.com"),
                ("device", "tablet"),
                ("browser", "chrome"),
                ("os", "android"),
                ("language", "pt-br"),
                ("utm_source", "news"),
                ("utm_content", "top"),
                ("destination", "1/2"),
            ]
        );
        assert_eq!((first.bot, first.tally(2)), (None, Tally { persons: 2, bots: 0 }));
    }

    #[test]
    fn bots_are_told_by_headers_agent_and_network() {
        let mut enricher = enricher();
        let bot = |enricher: &mut Enricher, hit: &HitRecord<'_>| (enricher.bot(hit), enricher.profile(hit).bot);
        assert_eq!(bot(&mut enricher, &TABLET), (None, None));
        let prefetch = HitRecord { is_prefetch: true, ..TABLET };
        assert_eq!(bot(&mut enricher, &prefetch), (Some(BotKind::Prefetch), Some(BotKind::Prefetch)));
        let crawler = HitRecord { user_agent: b"Googlebot/2.1", ..TABLET };
        assert_eq!(bot(&mut enricher, &crawler), (Some(BotKind::Crawler), Some(BotKind::Crawler)));
        assert_eq!(labels(&enricher.profile(&crawler)).last(), Some(&("bot", "crawler")));
        assert_eq!(enricher.profile(&crawler).tally(3), Tally { persons: 0, bots: 3 });
        // Networks that are replaced count from the next batch on.
        assert!(enricher.shared_rules.replace_networks(BotNetworks::parse("127.0.0.0/8").0));
        assert_eq!(bot(&mut enricher, &TABLET), (None, None));
        enricher.begin_batch();
        assert_eq!(bot(&mut enricher, &TABLET), (Some(BotKind::Scanner), Some(BotKind::Scanner)));
    }

    #[test]
    fn of_a_private_hit_device_destination_and_bot_are_counted() {
        let private = Some(PrivateVisitor { device: Device::Mobile, bot: Some(BotKind::Tool) });
        let profile = enricher().profile(&HitRecord { private, route: 3, ..HitRecord::EMPTY });
        assert_eq!(labels(&profile), [("device", "mobile"), ("destination", "3"), ("bot", "tool")]);
        assert!(profile.is_private);
    }

    #[test]
    fn a_slot_taken_by_another_gives_no_wrong_answer() {
        let mut cache = DirectMappedCache::with_slots(1);
        for key in [1, 2, 1, 1, 2] {
            assert_eq!(*cache.get_or_insert_with(7, key, || key * 10), key * 10);
        }
    }

    #[test]
    fn unknown_texts_have_no_labels() {
        let hit = HitRecord { user_agent: b"\xff/", referer: b"\xff", language: b"\xff", ..HitRecord::EMPTY };
        let profile = enricher().profile(&hit);
        assert_eq!(
            labels(&profile),
            [("device", "desktop"), ("browser", "other"), ("os", "other"), ("destination", "default")]
        );
    }
}

//! Hits that no person made: prefetches of browsers, and bots by kind.
//!
//! Three tests tell them, in this order: the headers of a prefetch ([`PurposeHeader`]), the user agent ([`BotList`]),
//! and the client's address ([`BotNetworks`]). [`BotRules`] has the last two, and gives a verdict with its reason. A
//! user agent repeats itself, so callers that see many hits remember the kind of an agent
//! ([`BotRules::kind_of_agent`]).

mod built_in;
mod list;
mod matcher;
mod networks;
mod prefetch;
mod words;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use ring::digest::{Context, SHA256};

pub use self::list::{BotList, BotListFault, MAX_LIST_BYTES, MAX_PATTERN_BYTES, MAX_PATTERNS};
pub use self::networks::{BotNetworks, MAX_NETWORKS};
pub use self::prefetch::PurposeHeader;

/// The most bytes of a `User-Agent` header that are read: as many as the journal keeps of it, so that all parts of the
/// program see the same text.
pub const MAX_AGENT_BYTES: usize = 512;

/// What made a hit, if no person did.
///
/// The discriminants are stored: do not change them. 0 is a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BotKind {
    /// A browser that loads what its user may open next.
    Prefetch = 1,
    /// A messenger or social network that shows what a link leads to.
    Preview = 2,
    /// A search engine, archive, reader of feeds, or another program that collects pages.
    Crawler = 3,
    /// A program that watches whether a service is up.
    Monitor = 4,
    /// A program that looks for weaknesses or malware, or a client in one of the operator's networks of such.
    Scanner = 5,
    /// A library or command of programmers, an automated browser, or a client without a user agent.
    Tool = 6,
}

impl BotKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 6] = [Self::Prefetch, Self::Preview, Self::Crawler, Self::Monitor, Self::Scanner, Self::Tool];

    /// The label in analytics, and in the header `Signpost-Bot`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Preview => "preview",
            Self::Crawler => "crawler",
            Self::Monitor => "monitor",
            Self::Scanner => "scanner",
            Self::Tool => "tool",
        }
    }

    /// The kind with this label.
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }

    /// The discriminant; 0 for a person.
    pub const fn code(kind: Option<Self>) -> u8 {
        match kind {
            Some(kind) => kind as u8,
            None => 0,
        }
    }

    /// The kind of a discriminant; `None` also for numbers that no kind has.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == code)
    }
}

/// What a request is taken for, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BotVerdict<'a> {
    pub kind: BotKind,
    pub reason: BotReason<'a>,
}

/// Why a request is a bot's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BotReason<'a> {
    /// Its headers say that it is a prefetch.
    Prefetch,
    /// It has no user agent.
    EmptyAgent,
    /// Its user agent matches this pattern of the list.
    Pattern(&'a str),
    /// Its user agent has a word that ends with this one.
    Word(&'static str),
    /// Its address is in one of the operator's networks.
    Network,
}

/// The rules that all parts of a process share, and that can be replaced.
#[derive(Debug, Clone)]
pub struct SharedBotRules(Arc<RwLock<Arc<BotRules>>>);

impl SharedBotRules {
    pub fn new(rules: BotRules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules in force now.
    pub fn current(&self) -> Arc<BotRules> {
        // Nothing panics while this lock is held.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the networks; returns whether they are others.
    pub fn replace_networks(&self, networks: BotNetworks) -> bool {
        let rules = BotRules::new(Arc::clone(self.current().list()), Arc::new(networks));
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let are_others = current.fingerprint() != rules.fingerprint();
        *current = Arc::new(rules);
        are_others
    }
}

/// The list and the networks that are in force together.
#[derive(Debug, Clone)]
pub struct BotRules {
    list: Arc<BotList>,
    networks: Arc<BotNetworks>,
    fingerprint: [u8; 16],
}

impl BotRules {
    pub fn new(list: Arc<BotList>, networks: Arc<BotNetworks>) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&list.fingerprint());
        context.update(&networks.fingerprint());
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&context.finish().as_ref()[..16]);
        Self { list, networks, fingerprint }
    }

    /// The built-in list without networks.
    pub fn built_in() -> Self {
        Self::new(BotList::built_in(), Arc::default())
    }

    /// Identifies the rules: equal rules have equal fingerprints, also in another process.
    pub fn fingerprint(&self) -> [u8; 16] {
        self.fingerprint
    }

    pub fn list(&self) -> &Arc<BotList> {
        &self.list
    }

    pub fn networks(&self) -> &Arc<BotNetworks> {
        &self.networks
    }

    /// What a request is taken for: whether a [`PurposeHeader`] says that it is a prefetch, its `User-Agent` (empty
    /// without one), and the client's address. `None` is a person.
    pub fn verdict(&self, is_prefetch: bool, agent: &[u8], address: IpAddr) -> Option<BotVerdict<'_>> {
        if is_prefetch {
            return Some(BotVerdict { kind: BotKind::Prefetch, reason: BotReason::Prefetch });
        }
        self.list.verdict(agent).or_else(|| {
            self.has_network_of(address).then_some(BotVerdict { kind: BotKind::Scanner, reason: BotReason::Network })
        })
    }

    /// The kind of a user agent alone, to be remembered by the caller.
    pub fn kind_of_agent(&self, agent: &[u8]) -> Option<BotKind> {
        self.list.verdict(agent).map(|verdict| verdict.kind)
    }

    /// Whether an address is in one of the networks.
    pub fn has_network_of(&self, address: IpAddr) -> bool {
        !self.networks.is_empty() && self.networks.contains(address)
    }

    /// The kind of a request, as of [`verdict`](Self::verdict), from the remembered kind of its user agent.
    pub fn kind(is_prefetch: bool, of_agent: Option<BotKind>, is_in_network: bool) -> Option<BotKind> {
        if is_prefetch {
            return Some(BotKind::Prefetch);
        }
        of_agent.or_else(|| is_in_network.then_some(BotKind::Scanner))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHROME: &[u8] =
        b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36";

    fn rules(networks: &str) -> BotRules {
        BotRules::new(BotList::built_in(), Arc::new(BotNetworks::parse(networks).0))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn codes_and_labels_lead_back_to_their_kind() {
        for kind in BotKind::ALL {
            assert_eq!(BotKind::of_code(BotKind::code(Some(kind))), Some(kind));
            assert_eq!(BotKind::of_label(kind.label()), Some(kind));
        }
        assert_eq!(BotKind::code(None), 0);
        assert_eq!(BotKind::of_code(0), None);
        assert_eq!(BotKind::of_code(7), None);
        assert_eq!(BotKind::of_label("person"), None);
    }

    #[test]
    fn headers_come_before_the_agent_and_the_agent_before_networks() {
        let rules = rules("192.0.2.0/24");
        let of = |is_prefetch, agent, from| rules.verdict(is_prefetch, agent, address(from)).map(|found| found.kind);
        assert_eq!(of(true, b"Googlebot/2.1", "192.0.2.1"), Some(BotKind::Prefetch));
        assert_eq!(of(false, b"Googlebot/2.1", "192.0.2.1"), Some(BotKind::Crawler));
        assert_eq!(of(false, b"", "192.0.2.1"), Some(BotKind::Tool));
        assert_eq!(of(false, CHROME, "192.0.2.1"), Some(BotKind::Scanner));
        assert_eq!(of(false, CHROME, "::ffff:192.0.2.1"), Some(BotKind::Scanner));
        assert_eq!(of(false, CHROME, "192.0.3.1"), None);
    }

    #[test]
    fn fingerprints_follow_the_list_and_the_networks() {
        let own = |text| BotRules::new(Arc::new(BotList::parse(text).unwrap()), Arc::default()).fingerprint();
        let fingerprints = [
            rules("").fingerprint(),
            rules("192.0.2.0/24").fingerprint(),
            own(r#"[{"pattern": "a1b2", "kind": "tool"}]"#),
            own(r#"[{"pattern": "a1b2", "kind": "monitor"}]"#),
            own("[]"),
        ];
        for (place, fingerprint) in fingerprints.iter().enumerate() {
            assert!(!fingerprints[..place].contains(fingerprint), "{place}");
        }
        assert_eq!(rules("192.0.2.0/24 # here").fingerprint(), rules("192.0.2.0/25\n192.0.2.128/25").fingerprint());
    }

    proptest! {
        #[test]
        fn a_remembered_kind_gives_what_the_verdict_says(
            is_prefetch: bool,
            agent in prop_oneof![Just(CHROME.to_vec()), Just(b"curl/8".to_vec()), any::<Vec<u8>>()],
            address: [u8; 4],
        ) {
            let rules = rules("0.0.0.0/1");
            let address = IpAddr::from(address);
            let told = rules.verdict(is_prefetch, &agent, address).map(|verdict| verdict.kind);
            prop_assert_eq!(BotRules::kind(is_prefetch, rules.kind_of_agent(&agent), rules.has_network_of(address)), told);
        }
    }
}

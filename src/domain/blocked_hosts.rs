//! Hosts that no link may lead to.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::{Arc, PoisonError, RwLock};

use url::{Host, Url};

use super::calendar::Timestamp;
use super::link::{Link, LinkState, TargetUrl};

/// A list of hosts. A host on the list blocks all hosts below it too.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HostList(HashSet<Host<String>>);

impl HostList {
    /// Reads a text with a host on each line: a name or an IP address. What follows a `#` is a comment. Returns the
    /// numbers of the lines that are no host, too; they are skipped.
    pub fn parse(text: &str) -> (Self, Vec<usize>) {
        let mut faults = Vec::new();
        let mut hosts = HashSet::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim().trim_end_matches('.');
            // A usual notation for the hosts below a host, which are blocked anyway.
            let line = line.strip_prefix("*.").unwrap_or(line).trim_start_matches('.');
            if line.is_empty() {
                continue;
            }
            match parse_host(line) {
                Some(host) => drop(hosts.insert(host)),
                None => faults.push(number + 1),
            }
        }
        (Self(hosts), faults)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a URL leads to a host of the list.
    pub fn has_host_of(&self, url: &str) -> bool {
        // Most services have no list.
        if self.is_empty() {
            return false;
        }
        let url = Url::parse(url).ok();
        match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                let parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
                std::iter::once(name).chain(parents).any(|name| self.0.contains(&Host::Domain(name.to_owned())))
            }
            Some(Host::Ipv4(address)) => self.0.contains(&Host::Ipv4(address)),
            Some(Host::Ipv6(address)) => self.0.contains(&canonical(address)),
            None => false,
        }
    }
}

/// In the form that hosts of URLs have. An IPv6 address may have brackets or not.
fn parse_host(text: &str) -> Option<Host<String>> {
    match text.parse() {
        Ok(address) => Some(canonical(address)),
        Err(_) => match Host::parse(text).ok()? {
            Host::Ipv6(address) => Some(canonical(address)),
            host => Some(host),
        },
    }
}

/// An IPv4 address that is written as an IPv6 address is that IPv4 address.
fn canonical(address: Ipv6Addr) -> Host<String> {
    address.to_ipv4_mapped().map_or(Host::Ipv6(address), Host::Ipv4)
}

/// The list in use, which may be replaced at any time.
#[derive(Clone, Debug, Default)]
pub struct BlockedHosts(Arc<RwLock<Arc<HostList>>>);

impl BlockedHosts {
    pub fn new(list: HostList) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(list))))
    }

    /// The list as it is now.
    pub fn list(&self) -> Arc<HostList> {
        // Nothing panics while this lock is held.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a visitor of a link meets.
    pub fn state_of(&self, link: &Link, now: Timestamp) -> LinkState {
        let state = link.state(now);
        let hosts = self.list();
        let is_blocked = |url: &TargetUrl| hosts.has_host_of(url.as_str());
        let leads_to_fallback = state == LinkState::Expired;
        if is_blocked(&link.target) || leads_to_fallback && link.options.fallback.as_ref().is_some_and(is_blocked) {
            return LinkState::Blocked;
        }
        state
    }

    /// Replaces the list; returns whether it has changed.
    pub fn replace(&self, list: HostList) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let has_changed = **current != list;
        *current = Arc::new(list);
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> HostList {
        let (list, faults) = HostList::parse(text);
        assert_eq!(faults, [] as [usize; 0]);
        list
    }

    #[test]
    fn a_host_blocks_the_hosts_below_it_and_no_others() {
        let list = list("# a comment\n\nevil.example  # why\nBÜCHER.example.\n192.0.2.7\n[2001:db8::1]\n2001:db8::2\n");
        assert_eq!(list.len(), 5);
        for url in [
            "https://evil.example/",
            "http://EVIL.example.:8080/a?b",
            "https://a.b.evil.example/",
            "https://xn--bcher-kva.example/",
            "https://user@192.0.2.7/",
            "http://0xc0000207/",
            "http://[2001:db8::1]:80/",
            "http://[2001:DB8:0::2]/",
        ] {
            assert!(list.has_host_of(url), "{url}");
        }
        for url in [
            "https://notevil.example/",
            "https://example/",
            "https://evil.example.com/",
            "https://192.0.2.70/",
            "https://example.com/evil.example",
            "no url",
        ] {
            assert!(!list.has_host_of(url), "{url}");
        }
        assert!(!HostList::default().has_host_of("https://evil.example/"));
    }

    #[test]
    fn lines_that_are_no_host_are_reported_and_skipped() {
        let (list, faults) = HostList::parse("a.example\nhttps://b.example/\n c d \n\n10.0.0.0/8\ne.example");
        assert_eq!((list.len(), faults), (2, vec![2, 3, 5]));
    }

    #[test]
    fn a_replaced_list_is_in_use_at_once() {
        let hosts = BlockedHosts::default();
        let same = hosts.clone();
        assert!(hosts.replace(list("a.example")));
        assert!(!hosts.replace(list("a.example # again")));
        assert!(same.list().has_host_of("https://a.example/"));
    }
}

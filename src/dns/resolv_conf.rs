//! The settings in a `resolv.conf`: servers, timeouts and search domains.
//!
//! The file has the format of `resolv.conf(5)`. Other settings are ignored.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The largest number of servers, as in the C library.
const MOST_SERVERS: usize = 3;
/// The largest number of search domains, as many as Kubernetes allows.
const MOST_SEARCH_DOMAINS: usize = 32;
const MOST_NDOTS: usize = 15;
const MOST_SECONDS: u64 = 30;
const MOST_ATTEMPTS: u32 = 5;
const DEFAULT_PORT: u16 = 53;

/// The default timeout of a server. The C library's 5 s would leave no time for a second server within a webhook
/// attempt.
const DEFAULT_SECONDS: u64 = 3;

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    pub address: IpAddr,
    /// The network interface of a link-local IPv6 address, by name or number.
    pub zone: Option<String>,
    pub port: u16,
}

/// The settings of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvConf {
    /// At least one, in the order in which they are asked.
    pub servers: Vec<NameServer>,
    /// The timeout of one server, after which the next one is asked.
    pub timeout: Duration,
    /// How often all servers are asked in turn.
    pub attempts: u32,
    /// Whether each look-up starts with the next server.
    pub rotates: bool,
    search: Vec<String>,
    ndots: usize,
}

/// The settings of an empty file: the name server on this machine is asked, as by the C library.
impl Default for ResolvConf {
    fn default() -> Self {
        Self {
            servers: vec![NameServer { address: Ipv4Addr::LOCALHOST.into(), zone: None, port: DEFAULT_PORT }],
            timeout: Duration::from_secs(DEFAULT_SECONDS),
            attempts: 2,
            rotates: false,
            search: Vec::new(),
            ndots: 1,
        }
    }
}

impl ResolvConf {
    /// Parses what it can: an invalid line or value is skipped.
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        let mut servers = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with(['#', ';']));
            match words.next() {
                Some("nameserver") => servers.extend(words.next().and_then(NameServer::parse)),
                // Of several lines with search domains the last one counts.
                Some("domain") => conf.search = search_domains(words.take(1)),
                Some("search") => conf.search = search_domains(words),
                Some("options") => words.for_each(|option| conf.set(option)),
                _ => {}
            }
        }
        servers.truncate(MOST_SERVERS);
        if !servers.is_empty() {
            conf.servers = servers;
        }
        conf
    }

    fn set(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match (name, value.parse::<u32>()) {
            ("rotate", _) => self.rotates = true,
            ("ndots", Ok(dots)) => self.ndots = (dots as usize).min(MOST_NDOTS),
            ("timeout", Ok(seconds)) => self.timeout = Duration::from_secs(u64::from(seconds).clamp(1, MOST_SECONDS)),
            ("attempts", Ok(attempts)) => self.attempts = attempts.clamp(1, MOST_ATTEMPTS),
            _ => {}
        }
    }

    /// The full names under which to look up a host, in order.
    ///
    /// A host with a trailing dot has no other name. A host with fewer dots than `ndots` is first looked up in the
    /// search domains, all others first as they are.
    pub fn names(&self, host: &str) -> SearchNames {
        if let Some(full) = host.strip_suffix('.') {
            return SearchNames { in_order: vec![full.to_owned()], as_given: 0 };
        }
        let in_domains = self.search.iter().map(|domain| format!("{host}.{domain}"));
        let as_given = std::iter::once(host.to_owned());
        if host.matches('.').count() >= self.ndots {
            SearchNames { in_order: as_given.chain(in_domains).collect(), as_given: 0 }
        } else {
            SearchNames { in_order: in_domains.chain(as_given).collect(), as_given: self.search.len() }
        }
    }
}

/// The full names of a host.
#[derive(Debug, PartialEq, Eq)]
pub struct SearchNames {
    /// At least one, without a trailing dot.
    pub in_order: Vec<String>,
    /// The index of the host as it was given.
    pub as_given: usize,
}

impl NameServer {
    /// Parses an address, or an address in brackets with a colon and a port (the syntax of OpenBSD). An address may
    /// have an interface behind a `%`.
    fn parse(word: &str) -> Option<Self> {
        let (address, port) = match word.strip_prefix('[') {
            None => (word, DEFAULT_PORT),
            Some(bracketed) => {
                let (address, port) = bracketed.split_once("]:")?;
                (address, port.parse().ok().filter(|port| *port > 0)?)
            }
        };
        let (address, zone) = match address.split_once('%') {
            None => (address, None),
            Some((address, zone)) => (address, Some(zone.to_owned())),
        };
        Some(Self { address: address.parse().ok()?, zone, port })
    }
}

fn search_domains<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let domains = words.map(|word| word.trim_matches('.').to_ascii_lowercase()).filter(|domain| !domain.is_empty());
    domains.take(MOST_SEARCH_DOMAINS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, zone: Option<&str>, port: u16) -> NameServer {
        NameServer { address: address.parse().unwrap(), zone: zone.map(str::to_owned), port }
    }

    #[test]
    fn all_that_counts_is_read() {
        let conf = ResolvConf::parse(
            "# a comment\n; another\ndomain first.example\n\
             nameserver 192.0.2.1 # why\n\tnameserver\t2001:db8::1\nnameserver fe80::1%eth0\nnameserver 192.0.2.4\n\
             search One.Example. two.example ; three.example\n\
             options edns0 ndots:2 timeout:1\noptions attempts:3 rotate trust-ad\nsortlist 130.155.160.0\n",
        );
        assert_eq!(
            conf,
            ResolvConf {
                servers: vec![
                    server("192.0.2.1", None, 53),
                    server("2001:db8::1", None, 53),
                    server("fe80::1", Some("eth0"), 53)
                ],
                timeout: Duration::from_secs(1),
                attempts: 3,
                rotates: true,
                search: vec!["one.example".into(), "two.example".into()],
                ndots: 2,
            }
        );
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        let text = "nameserver\nnameserver a.example\nnameserver [::1]\nnameserver [::1]:0\nnameserver [::1]:65536\n\
                    search . \noptions ndots timeout: attempts:many rotate2\nnonsense\n\0";
        assert_eq!(ResolvConf::parse(text), ResolvConf::default());
        assert_eq!(ResolvConf::parse(""), ResolvConf::default());
        assert_eq!(ResolvConf::default().servers, [server("127.0.0.1", None, 53)]);
    }

    #[test]
    fn values_have_bounds() {
        let conf = ResolvConf::parse("options ndots:99 timeout:99 attempts:99");
        assert_eq!((conf.ndots, conf.timeout.as_secs(), conf.attempts), (15, 30, 5));
        let conf = ResolvConf::parse("options timeout:0 attempts:0");
        assert_eq!((conf.timeout.as_secs(), conf.attempts), (1, 1));
        let domains: Vec<String> = (0..99).map(|number| format!("d{number}")).collect();
        assert_eq!(ResolvConf::parse(&format!("search {}", domains.join(" "))).search.len(), 32);
    }

    #[test]
    fn a_server_may_have_a_port_in_the_form_of_openbsd() {
        let conf = ResolvConf::parse("nameserver [127.0.0.1]:5353\nnameserver [fe80::1%2]:54\n");
        assert_eq!(conf.servers, [server("127.0.0.1", None, 5353), server("fe80::1", Some("2"), 54)]);
    }

    #[test]
    fn names_are_completed_as_the_c_library_does_it() {
        let names = |conf: &str, host: &str| {
            let SearchNames { in_order, as_given } = ResolvConf::parse(conf).names(host);
            (in_order.join(" "), as_given)
        };
        let search = "search x.example y.example";
        assert_eq!(names(search, "a"), ("a.x.example a.y.example a".into(), 2));
        assert_eq!(names(search, "a.b"), ("a.b a.b.x.example a.b.y.example".into(), 0));
        assert_eq!(names(search, "a."), ("a".into(), 0));
        let five = format!("{search}\noptions ndots:5");
        assert_eq!(names(&five, "a.b"), ("a.b.x.example a.b.y.example a.b".into(), 2));
        assert_eq!(names("options ndots:0", "a"), ("a".into(), 0));
        assert_eq!(names("domain d.example e.example", "a"), ("a.d.example a".into(), 1));
    }
}

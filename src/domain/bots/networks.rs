//! Networks of the operator's file, whose clients are scanners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use ring::digest::{Context, SHA256};

/// The most networks of a file. Further ones are left out.
pub const MAX_NETWORKS: usize = 200_000;

/// A set of networks. A look-up is a binary search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BotNetworks {
    /// First and last address of each range. Ranges are sorted, and neither overlap nor touch.
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl BotNetworks {
    /// Reads a text with a network on each line (`192.0.2.0/24`, `2001:db8::/32`), or a single address. What follows a
    /// `#` is a comment. Returns the numbers of the lines that are no network, too, and of those beyond
    /// [`MAX_NETWORKS`]; they are skipped.
    pub fn parse(text: &str) -> (Self, Vec<usize>) {
        let (mut v4, mut v6, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            match parse_network(line).filter(|_| v4.len() + v6.len() < MAX_NETWORKS) {
                Some(IpNet::V4(network)) => v4.push((network.network().to_bits(), network.broadcast().to_bits())),
                Some(IpNet::V6(network)) => match mapped(network.network(), network.prefix_len()) {
                    Some((first, last)) => v4.push((first.to_bits(), last.to_bits())),
                    None => v6.push((network.network().to_bits(), network.broadcast().to_bits())),
                },
                None => faults.push(number + 1),
            }
        }
        (Self::of_ranges(v4, v6), faults)
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The number of ranges of addresses. Networks that touch are one range.
    pub fn ranges(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether an address is in one of the networks. An IPv4 address that is written as an IPv6 address is that IPv4
    /// address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_in(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_in(&self.v6, address.to_bits()),
        }
    }

    /// First and last address of each range of IPv4 addresses.
    pub fn v4_ranges(&self) -> &[(u32, u32)] {
        &self.v4
    }

    /// The same of IPv6.
    pub fn v6_ranges(&self) -> &[(u128, u128)] {
        &self.v6
    }

    /// Networks with these ranges, in any order.
    pub fn of_ranges(v4: Vec<(u32, u32)>, v6: Vec<(u128, u128)>) -> Self {
        Self { v4: merged(v4, |last| last.checked_add(1)), v6: merged(v6, |last| last.checked_add(1)) }
    }

    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        for (first, last) in &self.v4 {
            context.update(&first.to_be_bytes());
            context.update(&last.to_be_bytes());
        }
        // A length in between, so that the same bytes are not the other kind of addresses.
        context.update(&self.v4.len().to_be_bytes());
        for (first, last) in &self.v6 {
            context.update(&first.to_be_bytes());
            context.update(&last.to_be_bytes());
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }
}

fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// The IPv4 addresses of a network within `::ffff:0:0/96`.
fn mapped(network: Ipv6Addr, prefix: u8) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let first = network.to_ipv4_mapped()?;
    let hosts = 128_u8.checked_sub(prefix).filter(|&bits| bits <= 32)?;
    let mask = u32::MAX.checked_shr(32 - u32::from(hosts)).unwrap_or(0);
    Some((first, Ipv4Addr::from_bits(first.to_bits() | mask)))
}

fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            // Where nothing comes after the last address, every further range begins within.
            Some(before) if next(before.1).is_none_or(|next| first <= next) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged.into_boxed_slice()
}

fn is_in<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|&(first, _)| first <= address);
    behind.checked_sub(1).is_some_and(|place| address <= ranges[place].1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_has_networks_addresses_and_comments() {
        let text = "# of a scanner\n192.0.2.0/24\n\n2001:db8::/32 # documentation\n  198.51.100.7\t\nnetwork\n10.1.2.3/8\n\
                    10.0.0.0/33\n::ffff:203.0.113.0/120\n";
        let (networks, faults) = BotNetworks::parse(text);
        assert_eq!(faults, [6, 8]);
        assert_eq!(networks.ranges(), 5);
        for (address, expected) in [
            ("192.0.1.255", false),
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("198.51.100.6", false),
            ("198.51.100.7", true),
            ("10.255.255.255", true),
            ("203.0.113.9", true),
            ("203.0.114.0", false),
            ("::ffff:10.0.0.1", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::a00:1", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn everything_and_nothing_are_sets_too() {
        let (all, faults) = BotNetworks::parse("0.0.0.0/0\n255.255.255.255\n::/0\nffff::/16");
        assert!(faults.is_empty());
        assert_eq!(all.ranges(), 2);
        for address in ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            assert!(all.contains(address.parse().unwrap()), "{address}");
            assert!(!BotNetworks::default().contains(address.parse().unwrap()), "{address}");
        }
        assert!(BotNetworks::default().is_empty());
    }

    #[test]
    fn lines_beyond_the_bound_are_told() {
        let count = u32::try_from(MAX_NETWORKS).unwrap();
        let lines: Vec<_> = (0..=count).map(|n| Ipv4Addr::from_bits(2 * n).to_string()).collect();
        let (networks, faults) = BotNetworks::parse(&lines.join("\n"));
        assert_eq!(networks.ranges(), MAX_NETWORKS);
        assert_eq!(faults, [MAX_NETWORKS + 1]);
    }

    proptest! {
        #[test]
        fn ranges_contain_what_their_networks_contain(
            networks in proptest::collection::vec((any::<bool>(), 0_u32..64, 0_u8..=32), 0..20),
            addresses in proptest::collection::vec((any::<bool>(), 0_u32..64, 0_u32..4), 50),
        ) {
            // Few distinct addresses, so that networks touch and overlap.
            let at = |is_v6: bool, place: u32, low: u32| -> IpAddr {
                let bits = (place << 26) | low;
                if is_v6 { Ipv6Addr::from_bits(u128::from(bits) << 96).into() } else { Ipv4Addr::from_bits(bits).into() }
            };
            let networks: Vec<IpNet> =
                networks.into_iter().map(|(v6, place, prefix)| IpNet::new(at(v6, place, 0), prefix).unwrap()).collect();
            let lines: Vec<_> = networks.iter().map(ToString::to_string).collect();
            let text = lines.join("\n");
            let (set, faults) = BotNetworks::parse(&text);
            prop_assert!(faults.is_empty());
            for (v6, place, low) in addresses {
                let address = at(v6, place, low);
                prop_assert_eq!(set.contains(address), networks.iter().any(|network| network.contains(&address)));
            }
        }

        #[test]
        fn any_text_is_read(text in ".{0,200}") {
            BotNetworks::parse(&text);
        }
    }
}

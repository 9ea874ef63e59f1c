//! The addresses to which webhooks may be sent: the guard against server-side request forgery (SSRF).
//!
//! Users choose webhook URLs. Without a guard they could make this service send requests to its own machine, its
//! private network, or the metadata service of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IPv4 networks that no webhook may reach.
///
/// Source: IANA's IPv4 Special-Purpose Address Registry and IPv4 Multicast Address Space, with the RFC of each row;
/// and a cloud's metadata service that has a public address.
const REFUSED_IPV4: &[Ipv4Net] = &[
    ipv4([0, 0, 0, 0], 8),          // "this network" and unspecified: RFC 791 §3.2
    ipv4([10, 0, 0, 0], 8),         // private use: RFC 1918
    ipv4([100, 64, 0, 0], 10),      // shared (CGNAT), Alibaba's metadata in it: RFC 6598
    ipv4([127, 0, 0, 0], 8),        // loopback: RFC 1122 §3.2.1.3
    ipv4([168, 63, 129, 16], 32),   // Azure's WireServer (metadata): Azure's documentation
    ipv4([169, 254, 0, 0], 16),     // link-local, most clouds' metadata in it: RFC 3927
    ipv4([172, 16, 0, 0], 12),      // private use: RFC 1918
    ipv4([192, 0, 0, 0], 24),       // IETF protocol assignments, Oracle's metadata: RFC 6890 §2.1
    ipv4([192, 0, 2, 0], 24),       // documentation, TEST-NET-1: RFC 5737
    ipv4([192, 88, 99, 0], 24),     // 6to4 relay anycast, deprecated: RFC 7526
    ipv4([192, 168, 0, 0], 16),     // private use: RFC 1918
    ipv4([198, 18, 0, 0], 15),      // benchmarking: RFC 2544
    ipv4([198, 51, 100, 0], 24),    // documentation, TEST-NET-2: RFC 5737
    ipv4([203, 0, 113, 0], 24),     // documentation, TEST-NET-3: RFC 5737
    ipv4([224, 0, 0, 0], 4),        // multicast: RFC 5771
    ipv4([240, 0, 0, 0], 4),        // reserved: RFC 1112 §4
    ipv4([255, 255, 255, 255], 32), // limited broadcast: RFC 919
];

/// IPv6 networks that no webhook may reach, except forms that contain an IPv4 address ([`translated_ipv4`]).
///
/// Source: IANA's IPv6 Special-Purpose Address Registry and, for the last three rows, IPv6 Address Space: only
/// `2000::/3` is global unicast. Some rows are within others; each is listed so that readers find it.
const REFUSED_IPV6: &[Ipv6Net] = &[
    ipv6([], 128),                       // unspecified: RFC 4291
    ipv6([0, 0, 0, 0, 0, 0, 0, 1], 128), // loopback: RFC 4291
    ipv6([], 96),                        // IPv4-compatible, deprecated: RFC 4291 §2.5.5.1
    ipv6([0x64, 0xff9b, 1], 48),         // local-use NAT64, any IPv4 in it: RFC 8215
    ipv6([0x100], 64),                   // discard-only: RFC 6666
    ipv6([0x100, 0, 0, 1], 64),          // dummy prefix: RFC 9780
    ipv6([0x2001], 23),                  // IETF protocol assignments: RFC 2928
    ipv6([0x2001], 32),                  // Teredo: RFC 4380
    ipv6([0x2001, 2], 48),               // benchmarking: RFC 5180
    ipv6([0x2001, 0x10], 28),            // ORCHID, deprecated: RFC 4843
    ipv6([0x2001, 0x20], 28),            // ORCHIDv2: RFC 7343
    ipv6([0x2001, 0x30], 28),            // drone remote identification: RFC 9374
    ipv6([0x2001, 0xdb8], 32),           // documentation: RFC 3849
    ipv6([0x3fff], 20),                  // documentation: RFC 9637
    ipv6([0x5f00], 16),                  // segment routing identifiers: RFC 9602
    ipv6([0xfc00], 7),                   // unique-local, clouds' metadata: RFC 4193
    ipv6([0xfe80], 10),                  // link-local: RFC 4291
    ipv6([0xfec0], 10),                  // site-local, deprecated: RFC 3879
    ipv6([0xff00], 8),                   // multicast: RFC 4291
    ipv6([], 3),                         // reserved by IETF: RFC 4291 §2.4
    ipv6([0x4000], 2),                   // reserved by IETF: RFC 4291 §2.4
    ipv6([0x8000], 1),                   // reserved by IETF: RFC 4291 §2.4
];

/// IPv4-mapped addresses, with the IPv4 address in the low 32 bits: RFC 4291 §2.5.5.2.
const IPV4_MAPPED: Ipv6Net = ipv6([0, 0, 0, 0, 0, 0xffff], 96);
/// The deprecated form with the IPv4 address in the low 32 bits: RFC 4291 §2.5.5.1.
const IPV4_COMPATIBLE: Ipv6Net = ipv6([], 96);
/// The well-known NAT64 prefix, with the IPv4 address in the low 32 bits: RFC 6052 §2.1.
const NAT64: Ipv6Net = ipv6([0x64, 0xff9b], 96);
/// 6to4, with the IPv4 address of the relay in bits 16 to 47: RFC 3056 §2.
const SIX_TO_FOUR: Ipv6Net = ipv6([0x2002], 16);

/// Decides to which addresses webhooks may be sent.
///
/// Public addresses are permitted, and networks that the operator allows. The default guard allows none.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    allowed: Vec<IpNet>,
}

impl AddressGuard {
    /// A guard that also permits the addresses in `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Whether a webhook may be sent to `address`.
    ///
    /// An IPv6 address that contains an IPv4 address (IPv4-mapped, NAT64, 6to4) is permitted if the IPv4 address is,
    /// because packets are sent there. So an allowed IPv4 network also allows these forms of its addresses.
    pub fn permits(&self, address: IpAddr) -> bool {
        self.opens(address)
            || match address {
                IpAddr::V4(address) => is_public_ipv4(address),
                IpAddr::V6(address) => is_public_ipv6(address),
            }
    }

    fn opens(&self, address: IpAddr) -> bool {
        let carried = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => translated_ipv4(address).or_else(|| compatible_ipv4(address)),
        };
        self.allowed.iter().any(|network| {
            network.contains(&address) || carried.is_some_and(|carried| network.contains(&IpAddr::V4(carried)))
        })
    }
}

fn is_public_ipv4(address: Ipv4Addr) -> bool {
    !REFUSED_IPV4.iter().any(|network| network.contains(&address))
}

fn is_public_ipv6(address: Ipv6Addr) -> bool {
    match translated_ipv4(address) {
        Some(carried) => is_public_ipv4(carried),
        None => !REFUSED_IPV6.iter().any(|network| network.contains(&address)),
    }
}

/// The IPv4 address to which packets for `address` are sent, in the forms still in use.
fn translated_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if IPV4_MAPPED.contains(&address) || NAT64.contains(&address) {
        Some(low_ipv4(address))
    } else if SIX_TO_FOUR.contains(&address) {
        let [_, _, a, b, c, d, ..] = address.octets();
        Some(Ipv4Addr::new(a, b, c, d))
    } else {
        None
    }
}

/// The IPv4 address in the deprecated IPv4-compatible form. `::` and `::1` have that form, but are other addresses.
fn compatible_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let own = address.is_unspecified() || address.is_loopback();
    (IPV4_COMPATIBLE.contains(&address) && !own).then(|| low_ipv4(address))
}

fn low_ipv4(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

const fn ipv4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// The network whose first 16-bit groups are `groups`; all others are zero.
const fn ipv6<const N: usize>(groups: [u16; N], prefix: u8) -> Ipv6Net {
    let mut bits = 0;
    let mut at = 0;
    while at < N {
        bits |= (groups[at] as u128) << (112 - 16 * at);
        at += 1;
    }
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix)
}

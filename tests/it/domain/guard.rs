//! Which addresses the guard against server-side request forgery refuses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use signpost::domain::guard::AddressGuard;
use signpost::domain::webhook_url::{WebhookUrl, WebhookUrlError};

const PUBLIC: &[&str] = &[
    // Also the addresses right outside refused networks.
    "1.0.0.0",
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.0.3.0",
    "192.88.98.255",
    "192.88.100.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.99.255",
    "198.51.101.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.255",
    "2000::",
    "2000:ffff::1",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2001:db7:ffff::1",
    "2001:db9::1",
    "2003::1",
    "2606:4700:4700::1111",
    "2a00:1450::1",
    "3ffe:ffff::1",
    "3fff:1000::1",
    // What carries a public IPv4 address is public.
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
];

const REFUSED: &[&str] = &[
    // This network, unspecified.
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "::",
    // Loopback.
    "127.0.0.1",
    "127.0.0.0",
    "127.1.2.3",
    "127.255.255.255",
    "::1",
    // Private, shared, unique-local, site-local.
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.168.0.0",
    "192.168.255.255",
    "fc00::",
    "fd12:3456:789a::1",
    "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "fec0::1",
    "feff::1",
    // Link-local.
    "169.254.0.0",
    "169.254.255.255",
    "fe80::1",
    "febf::1",
    // Metadata services: AWS, Google, Azure and others; Alibaba; Oracle; Azure's WireServer.
    "169.254.169.254",
    "169.254.170.2",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    // Multicast, broadcast, reserved.
    "224.0.0.0",
    "239.255.255.255",
    "ff00::",
    "ff02::1",
    "255.255.255.255",
    "240.0.0.0",
    "255.255.255.254",
    "200::1",
    "1fff:ffff::1",
    "4000::1",
    "5f00::1",
    "9000::1",
    "fbff::1",
    // Documentation, benchmarking, protocol assignments.
    "192.0.2.0",
    "192.0.2.255",
    "198.51.100.7",
    "203.0.113.255",
    "2001:db8::1",
    "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    "3fff::1",
    "3fff:fff:ffff::1",
    "198.18.0.0",
    "198.19.255.255",
    "2001:2::1",
    "192.0.0.8",
    "192.88.99.1",
    "2001:1::1",
    // Discard, ORCHID, Teredo.
    "100::1",
    "100:0:0:1::1",
    "2001:10::1",
    "2001:2f:ffff::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    // IPv4-compatible, even of a public address.
    "::127.0.0.1",
    "::10.0.0.1",
    "::8.8.8.8",
    // IPv4-mapped, IPv4-translated (SIIT).
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0.0.0.0",
    "::ffff:192.168.1.1",
    "::ffff:0:127.0.0.1",
    // 6to4.
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:c0a8:101:1::1",
    "2002:a9fe:a9fe::",
    "2002:e000:1::1",
    // NAT64, and its local-use prefix, in which the IPv4 address may stand in several places.
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::255.255.255.255",
    "64:ff9b:1::10.0.0.1",
    "64:ff9b:1:a00:0:100::",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:2::8.8.8.8",
];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn guard(allowed: &[&str]) -> AddressGuard {
    AddressGuard::new(allowed.iter().map(|net| net.parse().unwrap()).collect())
}

#[test]
fn public_addresses_are_permitted() {
    for text in PUBLIC {
        assert!(guard(&[]).permits(address(text)), "{text}");
    }
}

#[test]
fn special_addresses_are_refused() {
    for text in REFUSED {
        assert!(!guard(&[]).permits(address(text)), "{text}");
    }
}

#[test]
fn an_allowed_network_opens_its_addresses_and_no_others() {
    let guard = guard(&["10.1.0.0/16", "fd00:1::/32", "127.0.0.1/32"]);
    for text in ["10.1.0.0", "10.1.255.255", "fd00:1::7", "127.0.0.1"] {
        assert!(guard.permits(address(text)), "{text}");
    }
    for text in ["10.0.255.255", "10.2.0.0", "fd00:2::7", "127.0.0.2", "::1"] {
        assert!(!guard.permits(address(text)), "{text}");
    }
    assert!(guard.permits(address("8.8.8.8")));
}

#[test]
fn an_allowed_ipv4_network_opens_the_ipv6_forms_of_its_addresses() {
    let guard = guard(&["10.0.0.0/8"]);
    for text in ["::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1"] {
        assert!(guard.permits(address(text)), "{text}");
    }
    for text in ["::ffff:127.0.0.1", "64:ff9b::192.168.0.1", "64:ff9b:1::10.0.0.1", "2002:7f00:1::"] {
        assert!(!guard.permits(address(text)), "{text}");
    }
}

#[test]
fn an_allowed_ipv6_network_opens_the_forms_that_lie_in_it() {
    let nat64 = guard(&["64:ff9b:1::/48"]);
    assert!(nat64.permits(address("64:ff9b:1::10.0.0.1")));
    assert!(!nat64.permits(address("64:ff9b::10.0.0.1")));
    assert!(!nat64.permits(address("10.0.0.1")));
}

#[test]
fn opening_all_of_ipv4_does_not_open_ipv6_loopback() {
    let guard = guard(&["0.0.0.0/0"]);
    assert!(guard.permits(address("127.0.0.1")));
    assert!(!guard.permits(address("::1")));
    assert!(!guard.permits(address("::")));
}

#[test]
fn a_literal_address_is_refused_in_every_notation() {
    for (url, stands_for) in [
        ("http://127.0.0.1/", "127.0.0.1"),
        ("https://127.0.0.1:8443/hook", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://127.0.1/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0X7F.0.0.0x1/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://%31%32%37.0.0.1/", "127.0.0.1"),
        ("http://１２７.0.0.1/", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1"),
        ("http://0/", "0.0.0.0"),
        ("http://0x/", "0.0.0.0"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
        ("http://0xa9fea9fe/", "169.254.169.254"),
        ("http://2852039166/", "169.254.169.254"),
        ("http://10.255/", "10.0.0.255"),
        ("http://[::]/", "::"),
        ("http://[::1]:8080/", "::1"),
        ("http://[0:0:0:0:0:0:0:1]/", "::1"),
        ("http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
        ("http://[::ffff:7f00:1]/", "::ffff:127.0.0.1"),
        ("http://[64:ff9b::7f00:1]/", "64:ff9b::7f00:1"),
        ("http://[2002:7f00:1::]/", "2002:7f00:1::"),
        ("http://[fe80::1]/", "fe80::1"),
    ] {
        assert_eq!(
            WebhookUrl::parse(url, &guard(&[])),
            Err(WebhookUrlError::BlockedAddress(address(stands_for))),
            "{url}"
        );
    }
}

#[test]
fn a_literal_address_in_an_allowed_network_is_taken() {
    let guard = guard(&["127.0.0.0/8"]);
    for url in ["http://2130706433:9000/", "http://[::ffff:127.0.0.1]/"] {
        assert!(WebhookUrl::parse(url, &guard).is_ok(), "{url}");
    }
    assert!(WebhookUrl::parse("http://10.0.0.1/", &guard).is_err());
}

/// What the standard library knows to be special; it knows less than the registries.
fn is_special_to_std(address: Ipv4Addr) -> bool {
    address.is_unspecified()
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
}

proptest! {
    #[test]
    fn whatever_the_standard_library_calls_special_is_refused(bits: u32) {
        let address = Ipv4Addr::from_bits(bits);
        if is_special_to_std(address) {
            prop_assert!(!guard(&[]).permits(address.into()));
        }
    }

    #[test]
    fn a_form_of_an_ipv4_address_is_judged_like_the_address(bits: u32, interface: u64) {
        let plain = Ipv4Addr::from_bits(bits);
        let low = u128::from(bits);
        let forms = [
            plain.to_ipv6_mapped(),
            Ipv6Addr::from_bits((0x0064_ff9b_u128 << 96) | low),
            Ipv6Addr::from_bits((0x2002_u128 << 112) | (low << 80) | u128::from(interface)),
        ];
        for allowed in [guard(&[]), guard(&["0.0.0.0/1"])] {
            for form in forms {
                prop_assert_eq!(allowed.permits(form.into()), allowed.permits(plain.into()));
            }
        }
    }

    #[test]
    fn outside_global_unicast_only_mapped_and_nat64_addresses_are_permitted(bits: u128) {
        let address = Ipv6Addr::from_bits(bits);
        let is_global_unicast = bits >> 125 == 1;
        let carries_ipv4 = address.to_ipv4_mapped().is_some() || bits >> 32 == 0x0064_ff9b_u128 << 64;
        if guard(&[]).permits(address.into()) {
            prop_assert!(is_global_unicast || carries_ipv4);
        }
    }
}

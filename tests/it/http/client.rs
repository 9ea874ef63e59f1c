//! Who is asking: the client's address from the peer and what trusted proxies say.

use std::net::{IpAddr, SocketAddr};

use actix_http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, X_FORWARDED_FOR};
use proptest::prelude::*;
use signpost::http::client::{TrustedProxies, client_address};

/// A trusted peer.
const PROXY: &str = "10.0.0.1";

fn trusted() -> TrustedProxies {
    let networks = ["10.0.0.0/8", "192.168.7.7/32", "2001:db8:aaaa::/48"];
    TrustedProxies::new(networks.iter().map(|network| network.parse().unwrap()).collect())
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn headers<'a>(lines: impl IntoIterator<Item = (HeaderName, &'a [u8])>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line).unwrap());
    }
    headers
}

fn asked_by(peer: &str, headers: &HeaderMap) -> IpAddr {
    client_address(Some(SocketAddr::new(ip(peer), 4711)), headers, &trusted())
}

fn check(name: &HeaderName, lines: &[&str], expected: &str) {
    let headers = headers(lines.iter().map(|line| (name.clone(), line.as_bytes())));
    assert_eq!(asked_by(PROXY, &headers), ip(expected), "{name}: {lines:?}");
}

#[test]
fn x_forwarded_for_is_read_from_the_right() {
    let long = format!("{}203.0.113.9", "10.0.0.2,".repeat(900));
    let long_trusted = format!("203.0.113.9{}", ",10.0.0.2".repeat(900));
    let cases: &[(&[&str], &str)] = &[
        // One address, in every form.
        (&["203.0.113.9"], "203.0.113.9"),
        (&["  203.0.113.9\t "], "203.0.113.9"),
        (&["203.0.113.9:51234"], "203.0.113.9"),
        (&["203.0.113.9:0"], "203.0.113.9"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["2001:DB8:0:0::0:1"], "2001:db8::1"),
        // Without brackets the last group is no port.
        (&["2001:db8::1:4711"], "2001:db8::1:4711"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        (&["[::ffff:cb00:7109]:80"], "203.0.113.9"),
        (&["0.0.0.0"], "0.0.0.0"),
        (&["::"], "::"),
        // The right-most one that is not trusted; what a client made up on the left is not looked at.
        (&["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        (&["198.51.100.1,203.0.113.9,10.0.0.2"], "203.0.113.9"),
        (&["198.51.100.1, 203.0.113.9, 10.0.0.2:80, [2001:db8:aaaa::5]:443"], "203.0.113.9"),
        (&["10.9.9.9, 203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9, 192.168.7.7"], "203.0.113.9"),
        (&["203.0.113.9, 192.168.7.8"], "192.168.7.8"),
        (&["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
        (&["unknown, 203.0.113.9"], "203.0.113.9"),
        (&["<script>, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        (&["\", 203.0.113.9"], "203.0.113.9"),
        (&["\"\\, 203.0.113.9"], "203.0.113.9"),
        (&[&long], "203.0.113.9"),
        (&[&long_trusted], "203.0.113.9"),
        // All trusted: the left-most.
        (&["10.0.0.2"], "10.0.0.2"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (&["2001:db8:aaaa::5, 10.0.0.3:80, 10.0.0.2"], "2001:db8:aaaa::5"),
        // Several lines are one list.
        (&["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        (&["198.51.100.1, 203.0.113.9", "10.0.0.3, 10.0.0.2", "10.0.0.4"], "203.0.113.9"),
        (&["10.0.0.3", "10.0.0.2"], "10.0.0.3"),
        // Empty elements are passed over.
        (&[",203.0.113.9,"], "203.0.113.9"),
        (&["203.0.113.9, ,, 10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9", ""], "203.0.113.9"),
        (&["", "10.0.0.2"], "10.0.0.2"),
        (&[""], PROXY),
        (&[" , ,"], PROXY),
        // Malformed where it is looked at: the peer.
        (&["unknown"], PROXY),
        (&["203.0.113.9, unknown"], PROXY),
        (&["203.0.113.9, unknown, 10.0.0.2"], PROXY),
        (&["203.0.113.9", "oops", "10.0.0.2"], PROXY),
        (&["203.0.113.9 198.51.100.1"], PROXY),
        (&["203.0.113.9;198.51.100.1"], PROXY),
        (&["203.0.113"], PROXY),
        (&["203.0.113.9.1"], PROXY),
        (&["203.0.113.256"], PROXY),
        (&["203.0.113.09"], PROXY),
        (&["3405803785"], PROXY),
        (&["0xcb.0.113.9"], PROXY),
        (&["203.0.113.9/32"], PROXY),
        (&["203.0.113.9:"], PROXY),
        (&["203.0.113.9:http"], PROXY),
        (&["203.0.113.9:123456"], PROXY),
        (&["203.0.113.9:+80"], PROXY),
        (&["203.0.113.9:80:80"], PROXY),
        (&[":80"], PROXY),
        (&["[203.0.113.9]"], PROXY),
        (&["[203.0.113.9]:80"], PROXY),
        (&["[2001:db8::1"], PROXY),
        (&["2001:db8::1]"], PROXY),
        (&["[2001:db8::1]80"], PROXY),
        (&["[2001:db8::1]:"], PROXY),
        (&["[[2001:db8::1]]"], PROXY),
        (&["[]"], PROXY),
        (&["fe80::1%eth0"], PROXY),
        (&["1:2:3:4:5:6:7:8:9"], PROXY),
        (&["\"203.0.113.9\""], PROXY),
        (&["203.0.113.9\", 10.0.0.2"], PROXY),
        (&["for=203.0.113.9"], PROXY),
        (&["example.com"], PROXY),
        (&["２０３.0.113.9"], PROXY),
    ];
    for (lines, expected) in cases {
        check(&X_FORWARDED_FOR, lines, expected);
    }
}

#[test]
fn forwarded_is_read_from_the_right() {
    let cases: &[(&[&str], &str)] = &[
        (&["for=203.0.113.9"], "203.0.113.9"),
        (&["For=203.0.113.9"], "203.0.113.9"),
        (&["FOR=\"203.0.113.9\""], "203.0.113.9"),
        (&["for=\"203.0.113.9:47011\""], "203.0.113.9"),
        (&["for=\"203.0.113.9:_gazonk\""], "203.0.113.9"),
        (&["for=\"[2001:db8::1]\""], "2001:db8::1"),
        (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        (&["for=\"[::ffff:203.0.113.9]:4711\""], "203.0.113.9"),
        (&["for=\"203\\.0.113\\.9\""], "203.0.113.9"),
        (&["proto=https;for=203.0.113.9;by=10.0.0.1"], "203.0.113.9"),
        (&["by=\"[2001:db8::7]:80\"; for=203.0.113.9 ;host=\"a;for=1.1.1.1,b\""], "203.0.113.9"),
        (&["for=203.0.113.9;host=\"a\\\";for=1.1.1.1\""], "203.0.113.9"),
        (&["for=203.0.113.9;host=\"a\\\\\""], "203.0.113.9"),
        (&[";for=203.0.113.9;;"], "203.0.113.9"),
        // What several proxies send, though the grammar asks for quotes and brackets.
        (&["for=203.0.113.9:47011"], "203.0.113.9"),
        (&["for=2001:db8::1"], "2001:db8::1"),
        (&["for=[2001:db8::1]:4711"], "2001:db8::1"),
        (&["for=\"2001:db8::1\""], "2001:db8::1"),
        // Lists and lines.
        (&["for=198.51.100.1, for=203.0.113.9"], "203.0.113.9"),
        (&["for=198.51.100.1,for=203.0.113.9;proto=http,for=10.0.0.2"], "203.0.113.9"),
        (&["for=203.0.113.9, for=\"[2001:db8:aaaa::5]:1\";by=_x"], "203.0.113.9"),
        (&["for=198.51.100.1", "for=203.0.113.9", "for=10.0.0.2"], "203.0.113.9"),
        (&["for=10.0.0.3, for=10.0.0.2"], "10.0.0.3"),
        (&["for=203.0.113.9,, ,for=10.0.0.2,"], "203.0.113.9"),
        // What stands left is not looked at, and can't reach to the right.
        (&["for=unknown, for=203.0.113.9"], "203.0.113.9"),
        (&["garbage, for=203.0.113.9"], "203.0.113.9"),
        (&["for=\"198.51.100.1, for=203.0.113.9"], "203.0.113.9"),
        (&["for=\"198.51.100.1\\, for=203.0.113.9, for=10.0.0.2"], "203.0.113.9"),
        (&["for=\"198.51.100.1", "for=203.0.113.9;by=\"b\""], "203.0.113.9"),
        // Malformed where it is looked at: the peer.
        (&["for=unknown"], PROXY),
        (&["for=_hidden"], PROXY),
        (&["for=\"_SEVKISEK\""], PROXY),
        (&["for=203.0.113.9, for=unknown, for=10.0.0.2"], PROXY),
        (&["for=203.0.113.9, proto=https"], PROXY),
        (&["for=203.0.113.9, by=10.0.0.1;proto=https, for=10.0.0.2"], PROXY),
        (&["for=203.0.113.9, ;"], PROXY),
        (&["for=203.0.113.9;for=203.0.113.9"], PROXY),
        (&["for=198.51.100.1;FOR=203.0.113.9"], PROXY),
        (&["for"], PROXY),
        (&["for="], PROXY),
        (&["for=\"\""], PROXY),
        (&["for=\""], PROXY),
        (&["for = 203.0.113.9"], PROXY),
        (&["for= 203.0.113.9"], PROXY),
        (&["for=203.0.113.9;secret"], PROXY),
        (&["203.0.113.9"], PROXY),
        (&["xfor=203.0.113.9"], PROXY),
        (&["for='203.0.113.9'"], PROXY),
        (&["for=\"203.0.113.9"], PROXY),
        (&["for=203.0.113.9\""], PROXY),
        (&["for=\"203.0.113.9\"x"], PROXY),
        (&["for=\"203.0.113.9\\\""], PROXY),
        (&["for=\"\"203.0.113.9\"\""], PROXY),
        (&["for=\"203.0.113.9:_\""], PROXY),
        (&["for=\"203.0.113.9:_a b\""], PROXY),
        (&["for=\"[2001:db8::1]:123456\""], PROXY),
        (&["for=\"[203.0.113.9]\""], PROXY),
        (&["for=\"198.51.100.1, 203.0.113.9\""], PROXY),
        (&[""], PROXY),
    ];
    for (lines, expected) in cases {
        check(&FORWARDED, lines, expected);
    }
}

#[test]
fn a_peer_that_is_no_trusted_proxy_is_the_client_whatever_it_says() {
    let claims = headers([(X_FORWARDED_FOR, &b"198.51.100.1"[..]), (FORWARDED, b"for=198.51.100.1")]);
    for (peer, expected) in [
        ("203.0.113.9", "203.0.113.9"),
        ("11.0.0.1", "11.0.0.1"),
        ("2001:db8:bbbb::1", "2001:db8:bbbb::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::1", "::1"),
    ] {
        assert_eq!(asked_by(peer, &claims), ip(expected));
    }
    let nobody = TrustedProxies::default();
    let peer = Some(SocketAddr::new(ip(PROXY), 1));
    assert_eq!(client_address(peer, &claims, &nobody), ip(PROXY));
}

#[test]
fn a_trusted_peer_is_known_in_every_form() {
    let claims = headers([(X_FORWARDED_FOR, &b"203.0.113.9"[..])]);
    for peer in ["10.0.0.1", "10.255.255.255", "::ffff:10.0.0.1", "2001:db8:aaaa:1::"] {
        assert_eq!(asked_by(peer, &claims), ip("203.0.113.9"));
    }
    for network in ["::ffff:10.0.0.0/104", "::ffff:10.0.0.1/128", "::ffff:0:0/96", "0.0.0.0/0"] {
        let trusted = TrustedProxies::new(vec![network.parse().unwrap()]);
        for peer in ["10.0.0.1", "::ffff:10.0.0.1"] {
            let client = client_address(Some(SocketAddr::new(ip(peer), 1)), &claims, &trusted);
            assert_eq!(client, ip("203.0.113.9"), "{network}");
        }
    }
}

#[test]
fn forwarded_counts_only_where_x_forwarded_for_is_absent() {
    for (x_forwarded_for, expected) in
        [("203.0.113.9", "203.0.113.9"), ("10.0.0.2", "10.0.0.2"), ("unknown", PROXY), ("", PROXY)]
    {
        let both = headers([(FORWARDED, &b"for=198.51.100.1"[..]), (X_FORWARDED_FOR, x_forwarded_for.as_bytes())]);
        assert_eq!(asked_by(PROXY, &both), ip(expected), "X-Forwarded-For: {x_forwarded_for}");
    }
    assert_eq!(asked_by(PROXY, &HeaderMap::new()), ip(PROXY));
    let forwarded = headers([(FORWARDED, &b"for=198.51.100.1"[..])]);
    assert_eq!(asked_by(PROXY, &forwarded), ip("198.51.100.1"));
}

#[test]
fn bytes_that_are_no_text_are_malformed_only_where_they_are_looked_at() {
    for (line, expected) in [(&b"\xff\xfe, 203.0.113.9"[..], "203.0.113.9"), (b"203.0.113.9, \xff", PROXY)] {
        assert_eq!(asked_by(PROXY, &headers([(X_FORWARDED_FOR, line)])), ip(expected));
    }
}

#[test]
fn without_a_peer_the_address_is_unspecified() {
    let claims = headers([(X_FORWARDED_FOR, &b"203.0.113.9"[..])]);
    assert_eq!(client_address(None, &claims, &trusted()), ip("0.0.0.0"));
}

/// An element as a proxy or a client may write it, and its address if it is well-formed.
fn element() -> impl Strategy<Value = (String, Option<IpAddr>)> {
    let address = prop_oneof![
        3 => any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        2 => any::<[u8; 4]>().prop_map(IpAddr::from),
        1 => any::<[u16; 8]>().prop_map(IpAddr::from),
        1 => any::<u16>().prop_map(|n| IpAddr::from([0x2001, 0xdb8, 0xaaaa, n, 0, 0, 0, 1])),
    ];
    let port = prop::option::of(any::<u16>());
    prop_oneof![
        6 => (address, port).prop_map(|(address, port)| {
            let text = match port {
                Some(port) => SocketAddr::new(address, port).to_string(),
                None => address.to_string(),
            };
            (text, Some(address.to_canonical()))
        }),
        1 => "[g-z_ \";=\\\\]{1,12}[g-z]".prop_map(|garbage| (garbage, None)),
    ]
}

fn expected(elements: &[(String, Option<IpAddr>)], trusted: &[ipnet::IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut leftmost = ip(PROXY);
    for (_, address) in elements.iter().rev() {
        match address {
            Some(address) if is_trusted(address) => leftmost = *address,
            Some(address) => return *address,
            None => return ip(PROXY),
        }
    }
    leftmost
}

proptest! {
    #[test]
    fn never_an_address_left_of_the_first_untrusted_one(
        elements in prop::collection::vec(element(), 0..8),
        breaks in prop::collection::vec(any::<bool>(), 8),
    ) {
        let networks: Vec<ipnet::IpNet> =
            ["10.0.0.0/8", "2001:db8:aaaa::/48"].iter().map(|n| n.parse().unwrap()).collect();
        let trusted = TrustedProxies::new(networks.clone());
        let peer = Some(SocketAddr::new(ip(PROXY), 1));
        for (name, prefix, quote) in [(X_FORWARDED_FOR, "", ""), (FORWARDED, "for=", "\"")] {
            let mut map = HeaderMap::new();
            let mut line = String::new();
            for ((text, address), &ends_line) in elements.iter().zip(&breaks) {
                let quote = if address.is_some() { quote } else { "" };
                if !line.is_empty() {
                    line.push_str(", ");
                }
                line.extend([prefix, quote, text, quote]);
                if ends_line {
                    map.append(name.clone(), line.parse().unwrap());
                    line.clear();
                }
            }
            map.append(name.clone(), line.parse().unwrap());
            // A quote in garbage may take elements left of it along; they were not to be looked at.
            prop_assert_eq!(
                client_address(peer, &map, &trusted), expected(&elements, &networks), "{:?}", map
            );
        }
    }

    #[test]
    fn any_bytes_give_an_address(
        lines in prop::collection::vec((any::<bool>(), prop::collection::vec(
            prop_oneof![
                3 => prop::sample::select(&b"for=FOR\"\\,; \t[]:._%0123456789abcdef"[..]),
                1 => 0x20..=0x7e_u8,
                1 => 0x80..=0xff_u8,
            ],
            0..60,
        )), 0..5),
    ) {
        let headers = headers(lines.iter().map(|(forwarded, line)| {
            (if *forwarded { FORWARDED } else { X_FORWARDED_FOR }, line.as_slice())
        }));
        asked_by(PROXY, &headers);
    }
}

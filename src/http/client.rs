//! The client's address, for limits and places.
//!
//! It is the peer's address. If the peer is a trusted proxy, it is the address that the proxy adds to
//! `X-Forwarded-For`, or to `Forwarded` (RFC 7239) if that is missing. Each proxy appends the address of its peer on
//! the right. So the list is read from the right, skipping trusted proxies, to the first address that is not a
//! trusted proxy's. Everything left of it was sent by the client and is ignored.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_http::header::{FORWARDED, X_FORWARDED_FOR};
use ipnet::{IpNet, Ipv4Net};

use super::fields::HeaderFields;

/// The networks of trusted proxies (`http.trusted_proxies`).
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Box<[IpNet]>);

impl TrustedProxies {
    /// A network of IPv4-mapped addresses (`::ffff:10.0.0.0/104`) is converted to the IPv4 network.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks.into_iter().map(canonical).collect())
    }

    /// Whether the address, in canonical form, is a trusted proxy's.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    mapped.and_then(|(address, prefix_len)| Ipv4Net::new(address, prefix_len).ok()).map_or(network, IpNet::V4)
}

/// The address of the client. An IPv4-mapped IPv6 address is returned as IPv4.
///
/// If every address in the list is a trusted proxy's, it is the left-most. If an element that is read is not an
/// address (also `unknown` and the obfuscated names of RFC 7239, or an element without `for`), or if the list is
/// empty, it is the peer's. Empty elements are skipped, as in every list header. Without a peer (a connection that is
/// not TCP) it is `0.0.0.0`.
///
/// Does not allocate, except for a `Forwarded` address with escapes.
pub fn client_address(
    peer: Option<SocketAddr>,
    fields: &(impl HeaderFields + ?Sized),
    trusted: &TrustedProxies,
) -> IpAddr {
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip().to_canonical());
    if !trusted.contains(peer) {
        return peer;
    }
    let client = if fields.lines(X_FORWARDED_FOR).next().is_some() {
        first_untrusted(fields.lines(X_FORWARDED_FOR), node_address, trusted)
    } else {
        first_untrusted(fields.lines(FORWARDED), forwarded_for, trusted)
    };
    client.unwrap_or(peer)
}

/// The right-most address that is not a trusted proxy's, else the left-most. `None` if an element on the way is
/// malformed, or if there is none.
fn first_untrusted<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    address_of: impl Fn(&[u8]) -> Option<IpAddr>,
    trusted: &TrustedProxies,
) -> Option<IpAddr> {
    let mut leftmost = None;
    for line in lines.rev() {
        for element in from_right(line, b',').filter(|element| !element.is_empty()) {
            let address = address_of(element)?;
            if !trusted.contains(address) {
                return Some(address);
            }
            leftmost = Some(address);
        }
    }
    leftmost
}

/// The elements of a list, the last one first, without surrounding white space.
///
/// It reads from the right, so that an unclosed quote from a client can't hide what the proxy appended. For a
/// well-formed list, the elements are the same as read from the left.
fn from_right(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    // Nearly all lists have one address. Looked at once: a list may have as many elements as bytes.
    let is_single = !list.iter().any(|&byte| byte == separator || byte == b'"');
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let (left, part) = if is_single { (None, rest?) } else { split_last(rest?, separator) };
        rest = left;
        Some(trim(part))
    })
}

/// The text before and after the last separator outside of quotes.
fn split_last(list: &[u8], separator: u8) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, &byte) in list.iter().enumerate().rev() {
        if byte == b'"' && !(quoted && is_escaped(list, at)) {
            quoted = !quoted;
        } else if byte == separator && !quoted {
            return (Some(&list[..at]), &list[at + 1..]);
        }
    }
    (None, list)
}

fn is_escaped(list: &[u8], at: usize) -> bool {
    list[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The address in the `for` parameter of a `Forwarded` element.
///
/// Quotes and brackets that RFC 7239 requires around an IPv6 address or a port may be missing, because several
/// proxies omit them.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    for parameter in from_right(element, b';').filter(|parameter| !parameter.is_empty()) {
        let equals = parameter.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
    }
    match node? {
        [b'"', quoted @ .., b'"'] => node_address(&unescaped(quoted)),
        token => node_address(token),
    }
}

/// The value of a quoted string, from the text between the quotes. A backslash at the end, which escapes nothing,
/// remains and makes the address invalid.
fn unescaped(quoted: &[u8]) -> Cow<'_, [u8]> {
    if !quoted.contains(&b'\\') {
        return Cow::Borrowed(quoted);
    }
    let mut bytes = quoted.iter();
    Cow::Owned(
        std::iter::from_fn(|| match bytes.next()? {
            b'\\' => Some(*bytes.next().unwrap_or(&b'\\')),
            &byte => Some(byte),
        })
        .collect(),
    )
}

/// The address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn node_address(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    if let Ok(address) = node.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Some(bracketed) = node.strip_prefix('[') {
        let (address, behind) = bracketed.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let well_formed = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
        return well_formed.then(|| IpAddr::V6(address).to_canonical());
    }
    let (address, port) = node.rsplit_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

/// A port as in RFC 7239: one to five digits, or an obfuscated port (`_` and a name).
fn is_port(port: &str) -> bool {
    match port.strip_prefix('_') {
        Some(name) => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(allowed)
        }
        None => (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

//! Warnings about settings that do not fit the requests that arrive. Each is logged once by a process.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use actix_http::header::{FORWARDED, HOST, HeaderMap, HeaderName, X_FORWARDED_FOR};

use super::client::TrustedProxies;
use super::fields::HeaderFields;
use crate::domain::guard::AddressGuard;
use crate::domain::link::BaseUrl;

/// Longer than any host name with its port.
const MAX_HOST_BYTES: usize = 300;

/// The first and then one in this many refused redirects is checked: a check takes a tenth of the time of a refusal
/// (`loadtests/guard/run check '*limited*'`), and floods of requests are refused, too.
const CHECK_ONE_IN: u32 = 16;

/// The notices that were logged.
///
/// Redirects that are answered with their link are not checked, because that would slow down each of them. A wrong
/// setting shows elsewhere: without a trusted proxy all visitors share one limit, so a redirect is refused soon, and
/// refused redirects and API requests are checked. After a notice is logged, a check reads only a flag.
#[derive(Default)]
pub struct Notices {
    by_local_peer: AtomicBool,
    by_public_peer: AtomicBool,
    other_host: AtomicBool,
    refused: AtomicU32,
}

impl Notices {
    /// Checks a redirect that the client limit refuses, as [`check_forwarding`](Self::check_forwarding) does.
    pub fn check_refused(
        &self,
        peer: Option<SocketAddr>,
        fields: &(impl HeaderFields + ?Sized),
        trusted: &TrustedProxies,
    ) {
        if self.refused.fetch_add(1, Relaxed).is_multiple_of(CHECK_ONE_IN) {
            self.check_forwarding(peer, fields, trusted);
        }
    }

    /// Checks a request to the API: warns if a peer that is not a trusted proxy sends a client's address.
    ///
    /// A peer on a public address may be a client that sends any header, and the log has no client's address. So
    /// there are two flags: such a client does not use up the notice about a proxy on the operator's network.
    pub fn check_forwarding(
        &self,
        peer: Option<SocketAddr>,
        fields: &(impl HeaderFields + ?Sized),
        trusted: &TrustedProxies,
    ) {
        if self.by_local_peer.load(Relaxed) && self.by_public_peer.load(Relaxed) {
            return;
        }
        let Some(peer) = peer.map(|peer| peer.ip().to_canonical()).filter(|peer| !trusted.contains(*peer)) else {
            return;
        };
        let is_there = |name: &HeaderName| fields.lines(name.clone()).next().is_some();
        let Some(header) = [X_FORWARDED_FOR, FORWARDED].into_iter().find(is_there) else { return };
        let is_public = AddressGuard::default().permits(peer);
        let given = if is_public { &self.by_public_peer } else { &self.by_local_peer };
        if given.swap(true, Relaxed) {
            return;
        }
        // A client may be on the operator's network, too: the log has no addresses except loopback.
        let peer = match (peer.is_loopback(), is_public) {
            (true, _) => peer.to_string(),
            (false, false) => "a private address".to_owned(),
            (false, true) => "a public address".to_owned(),
        };
        tracing::warn!(
            %peer,
            %header,
            setting = "http.trusted_proxies",
            "a peer that is not a trusted proxy sends a client address: if it is your proxy, add it to the setting; until then all of its \
             visitors share the limits of one client"
        );
    }

    /// Checks a request with a valid key: warns if its `Host` is not the host of short links. Ports are ignored,
    /// because proxies omit them.
    pub fn check_host(&self, headers: &HeaderMap, base_url: &BaseUrl) {
        if self.other_host.load(Relaxed) {
            return;
        }
        let Some(sent) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return };
        if sent.len() > MAX_HOST_BYTES || is_same_host(sent, base_url.host()) || self.other_host.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            host = sent,
            base_url = base_url.as_str(),
            setting = "http.base_url",
            "requests have another host than the base URL of short links: if visitors use that host, change the setting"
        );
    }
}

fn is_same_host(sent: &str, host: &str) -> bool {
    let name = without_port(sent).trim_end_matches('.');
    let host = host.trim_end_matches('.');
    // On one machine all loopback names are the same host.
    name.eq_ignore_ascii_case(host) || (is_loopback(name) && is_loopback(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_same_whatever_their_port_and_case() {
        for (sent, host) in [
            ("go.example", "go.example"),
            ("GO.example:8080", "go.example"),
            ("go.example.", "go.example"),
            ("go.example:", "go.example"),
            ("[2001:db8::1]:8080", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("localhost:8080", "127.0.0.1"),
            ("[::1]", "localhost"),
            ("127.0.0.2:80", "127.0.0.1"),
        ] {
            assert!(is_same_host(sent, host), "{sent} {host}");
        }
    }

    #[test]
    fn other_hosts_differ() {
        for (sent, host) in [
            ("www.go.example", "go.example"),
            ("go.example", "127.0.0.1"),
            ("192.0.2.1:8080", "0.0.0.0"),
            ("localhost", "0.0.0.0"),
            ("localhost", "go.example"),
            ("[2001:db8::2]:80", "[2001:db8::1]"),
        ] {
            assert!(!is_same_host(sent, host), "{sent} {host}");
        }
    }
}

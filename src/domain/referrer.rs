//! Referrers: the host of the `Referer` header, as analytics lists it.

use std::{
    borrow::Cow,
    net::{Ipv4Addr, Ipv6Addr},
};

/// The maximum length of a DNS name in bytes, without the root's dot. A referrer is never longer.
pub const MAX_HOST_LENGTH: usize = 253;

/// The location of this service, so that its own pages are not listed as referrers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnHost(Option<OwnUrl>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnUrl {
    host: String,
    /// `None`: the scheme's default.
    port: Option<u16>,
    /// Without a trailing slash; empty if the service has the whole host.
    path: String,
}

impl OwnHost {
    /// Parses the service's base URL: `https://sho.rt` or `https://example.com/s`, in its WHATWG form (a host with
    /// other characters than ASCII as `xn--`). If the host is not valid for a referrer, it matches none.
    pub fn of_base_url(base_url: &str) -> Self {
        Self(HttpUrl::parse(base_url.as_bytes()).map(|url| OwnUrl {
            host: url.host.into_owned(),
            port: url.port,
            path: url.path.trim_end_matches('/').to_owned(),
        }))
    }

    /// Whether `url` has the same host and port, with any scheme, and is under the same path.
    fn is(&self, url: &HttpUrl<'_>) -> bool {
        let Some(own) = &self.0 else { return false };
        let under_own_path = || {
            let rest = url.path.strip_prefix(&own.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#', '\\']))
        };
        own.port == url.port && own.host == url.host && under_own_path()
    }
}

/// The host of a `Referer` header: lower case, without a leading `www.`, a port, or the dot of the root. An IPv6
/// address has no brackets and is in its canonical form (`2001:db8::1`).
///
/// `None`, so that nothing is listed, if the header is empty or malformed, if its scheme is neither http nor https
/// (`android-app://…`, `about:client`), or if it is this service.
///
/// `www.` remains if a single label follows: `www.com` is a name of its own. A name with other characters than ASCII
/// is malformed: browsers send the `xn--` form, and another form could be a forgery of it.
pub fn referrer_host<'a>(referer: &'a [u8], own: &OwnHost) -> Option<Cow<'a, str>> {
    let url = HttpUrl::parse(referer)?;
    if own.is(&url) { None } else { Some(url.host) }
}

/// The parts of a URL that identify its site.
struct HttpUrl<'a> {
    host: Cow<'a, str>,
    /// `None`: the scheme's default, whether it was written or not.
    port: Option<u16>,
    /// Path, query and fragment, cut before the first character that is not UTF-8.
    path: &'a str,
}

impl<'a> HttpUrl<'a> {
    fn parse(url: &'a [u8]) -> Option<Self> {
        let (rest, default_port) = after_scheme(url)?;
        // Browsers treat a backslash as a slash here, and forged referrers may contain one.
        let end = rest.iter().position(|byte| br"/\?#".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = std::str::from_utf8(authority).ok()?;
        // Browsers omit credentials; if they are present, the host is after them.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);

        let (host, port) = if let Some(literal) = authority.strip_prefix('[') {
            let (address, port) = literal.split_once(']')?;
            (Cow::Owned(address.parse::<Ipv6Addr>().ok()?.to_string()), port)
        } else {
            let port_at = authority.find(':').unwrap_or(authority.len());
            let (name, port) = authority.split_at(port_at);
            (normal_name(name)?, port)
        };
        Some(Self {
            host,
            port: parse_port(port)?.filter(|&port| port != default_port),
            path: path.utf8_chunks().next().map_or("", |chunk| chunk.valid()),
        })
    }
}

/// The text after `http://` or `https://`, and the scheme's port.
fn after_scheme(url: &[u8]) -> Option<(&[u8], u16)> {
    [(b"https://".as_slice(), 443), (b"http://", 80)].into_iter().find_map(|(scheme, port)| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some((rest, port))
    })
}

/// Empty, or a colon with an optional number after it: `None` if it is not a valid port.
#[allow(clippy::option_option, reason = "malformed and absent are different cases")]
fn parse_port(text: &str) -> Option<Option<u16>> {
    let Some(digits) = text.strip_prefix(':') else {
        return text.is_empty().then_some(None);
    };
    if digits.is_empty() {
        return Some(None);
    }
    // `u16::from_str` accepts a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Some)
}

/// A DNS name or IPv4 address in the form in which it is listed; `None` if it is neither.
fn normal_name(name: &str) -> Option<Cow<'_, str>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(allowed);
    if name.len() > MAX_HOST_LENGTH || !name.split('.').all(is_label) {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if last.bytes().all(|byte| byte.is_ascii_digit()) && name.parse::<Ipv4Addr>().is_err() {
        // No top-level domain is a number, so this is an address, and an invalid one.
        return None;
    }
    let lower = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    };
    Some(match lower.strip_prefix("www.") {
        Some(rest) if rest.contains('.') => match lower {
            Cow::Borrowed(name) => Cow::Borrowed(&name["www.".len()..]),
            Cow::Owned(ref name) => Cow::Owned(name["www.".len()..].to_owned()),
        },
        _ => lower,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(referer: &str) -> Option<String> {
        let own = OwnHost::of_base_url("https://sho.rt");
        referrer_host(referer.as_bytes(), &own).map(Cow::into_owned)
    }

    #[test]
    fn the_host_is_listed_in_one_form() {
        for (referer, host) in [
            ("https://example.com/", "example.com"),
            ("https://example.com", "example.com"),
            ("HTTP://WWW.Example.COM/Path", "example.com"),
            ("https://example.com:8443/x?y#z", "example.com"),
            ("https://example.com:/", "example.com"),
            ("https://example.com?q=http://other.example/", "example.com"),
            ("https://example.com./", "example.com"),
            (r"https://example.com\@other.example/", "example.com"),
            ("https://user:word@example.com/", "example.com"),
            ("https://www.www.example.com/", "www.example.com"),
            ("https://www2.example.com/", "www2.example.com"),
            ("https://www.com/", "www.com"),
            ("https://www.intranet/", "www.intranet"),
            ("http://localhost:3000/", "localhost"),
            ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
            ("https://my_shop.example.com/", "my_shop.example.com"),
            ("http://192.0.2.7:8080/", "192.0.2.7"),
            ("http://[2001:DB8:0:0::1]:8080/", "2001:db8::1"),
        ] {
            assert_eq!(listed(referer).as_deref(), Some(host), "{referer}");
        }
    }

    #[test]
    fn a_referer_without_a_host_is_not_listed() {
        let long_label = format!("https://{}.example/", "a".repeat(64));
        let long_name = format!("https://{}example/", "abcdefgh.".repeat(28));
        for referer in [
            "",
            "null",
            "about:client",
            "android-app://com.google.android.gm/",
            "ftp://example.com/",
            "//example.com/",
            "example.com",
            "https:example.com",
            "https://",
            "https:///path",
            "https://.example.com/",
            "https://example..com/",
            "https://exa mple.com/",
            "https://ex%61mple.com/",
            "https://bücher.example/",
            "https://<script>/",
            "https://example.com:80a/",
            "https://example.com:+80/",
            "https://example.com:65536/",
            "https://256.1.1.1/",
            "https://1.2.3/",
            "https://[::1/",
            "https://[fe80::1%25eth0]/",
            "https://[::1]x/",
            &long_label,
            &long_name,
        ] {
            assert_eq!(listed(referer), None, "{referer}");
        }
        let own = OwnHost::of_base_url("https://sho.rt");
        assert_eq!(referrer_host(b"https://caf\xe9.example/", &own), None);
        assert_eq!(referrer_host(b"https://example.com/caf\xe9", &own).as_deref(), Some("example.com"));
    }

    #[test]
    fn this_service_itself_is_not_listed() {
        for (base_url, referer, is_listed) in [
            ("https://sho.rt", "https://sho.rt/docs", false),
            ("https://sho.rt", "http://sho.rt/", false),
            ("https://sho.rt", "https://www.sho.rt/", false),
            ("https://sho.rt", "https://sho.rt:443/", false),
            ("https://sho.rt", "https://sho.rt:8443/", true),
            ("https://sho.rt", "https://sub.sho.rt/", true),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/docs", false),
            ("http://127.0.0.1:8080", "http://127.0.0.1:3000/", true),
            ("http://[::1]:8080/", "http://[0:0::1]:8080/docs", false),
            ("https://example.com/s/", "https://example.com/s/docs", false),
            ("https://example.com/s", "https://example.com/s?x", false),
            ("https://example.com/s", "https://example.com/shop", true),
            ("https://example.com/s", "https://example.com/", true),
        ] {
            let own = OwnHost::of_base_url(base_url);
            assert_eq!(referrer_host(referer.as_bytes(), &own).is_some(), is_listed, "{base_url} {referer}");
        }
    }

    proptest! {
        #[test]
        fn a_listed_host_is_short_lower_case_and_listed_as_itself(host in "[a-zA-Z0-9.:\\[\\]@_-]{0,300}") {
            if let Some(label) = listed(&format!("http://{host}/")) {
                prop_assert!(!label.is_empty() && label.len() <= MAX_HOST_LENGTH);
                prop_assert_eq!(&label.to_ascii_lowercase(), &label);
                let again = if label.contains(':') { format!("http://[{label}]/") } else { format!("http://{label}/") };
                if !label.starts_with("www.") && label != "sho.rt" {
                    prop_assert_eq!(listed(&again), Some(label));
                }
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let own = OwnHost::of_base_url("https://sho.rt");
            let mut referer = b"https://".to_vec();
            referer.extend(bytes);
            referrer_host(&referer, &own);
        }
    }
}

//! The URL of a webhook, as a user sends it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use url::{Host, Url};

use super::guard::AddressGuard;

/// The maximum length of a webhook URL, in bytes of UTF-8 as sent.
pub const MAX_WEBHOOK_URL_BYTES: usize = 2_048;

/// An absolute `http` or `https` URL without credentials.
///
/// It is shown as it was sent. Two are equal if they mean the same request: `HTTP://Example.com` and
/// `http://example.com:80/#top` are.
#[derive(Debug, Clone)]
pub struct WebhookUrl {
    text: Box<str>,
    /// In its WHATWG form, without the fragment, which is never sent.
    target: Url,
}

/// Why a text is not a valid webhook URL; shown to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WebhookUrlError {
    #[error("must be at most 2,048 bytes long")]
    TooLong,
    #[error("must not contain white space or control characters")]
    WhiteSpace,
    #[error("must be an absolute http or https URL with a host")]
    NotAbsoluteHttp,
    #[error("must not contain a user name or password")]
    Credentials,
    #[error("must have a host without quotes and braces")]
    Host,
    #[error("must point at a public address, not at {0}")]
    BlockedAddress(IpAddr),
    #[error("must point at a public address, not at localhost")]
    Localhost,
}

impl WebhookUrl {
    /// Parses a URL from a user. Refuses a literal address that `guard` refuses, in any notation (`http://0x7f.1/`
    /// and `http://2130706433/` are `127.0.0.1`).
    ///
    /// `localhost` and names below it are loopback addresses (RFC 6761), and are refused if `guard` refuses these.
    /// The addresses of other names are known only when the name is resolved, and are checked then.
    pub fn parse(text: &str, guard: &AddressGuard) -> Result<Self, WebhookUrlError> {
        let parsed = Self::parse_stored(text)?;
        // The WHATWG parser takes them, and no request can be sent to such a host (RFC 3986, section 3.2.2).
        if parsed.target.host_str().is_some_and(|host| host.contains(['"', '`', '{', '}'])) {
            return Err(WebhookUrlError::Host);
        }
        match parsed.literal_address() {
            Some(address) if !guard.permits(address) => Err(WebhookUrlError::BlockedAddress(address)),
            None if parsed.is_localhost() && !LOOPBACK.into_iter().any(|address| guard.permits(address)) => {
                Err(WebhookUrlError::Localhost)
            }
            _ => Ok(parsed),
        }
    }

    /// Parses a URL that was accepted before. The guard is not asked: its settings may have changed since, and the
    /// sender checks the address.
    pub fn parse_stored(text: &str) -> Result<Self, WebhookUrlError> {
        if text.len() > MAX_WEBHOOK_URL_BYTES {
            return Err(WebhookUrlError::TooLong);
        }
        // The WHATWG parser removes them silently, so the stored text would differ from what is sent.
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(WebhookUrlError::WhiteSpace);
        }
        // Checked as sent, because the parser accepts `http:example.com` and `http:///example.com` as absolute, and
        // ignores an empty user name.
        let authority = authority_as_sent(text).ok_or(WebhookUrlError::NotAbsoluteHttp)?;
        if authority.contains('@') {
            return Err(WebhookUrlError::Credentials);
        }
        let mut target = Url::parse(text).map_err(|_| WebhookUrlError::NotAbsoluteHttp)?;
        target.set_fragment(None);
        Ok(Self { text: text.into(), target })
    }

    /// The URL as the user sent it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL to send to, in its WHATWG form and without a fragment.
    pub fn target(&self) -> &Url {
        &self.target
    }

    fn is_localhost(&self) -> bool {
        // The parser has converted it to lower case.
        let Some(Host::Domain(name)) = self.target.host() else { return false };
        let name = name.strip_suffix('.').unwrap_or(name);
        name == "localhost" || name.ends_with(".localhost")
    }

    /// The address that the URL has instead of a host name.
    pub fn literal_address(&self) -> Option<IpAddr> {
        match self.target.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }
}

/// The addresses of `localhost`.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn authority_as_sent(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = rest.split(['/', '\\', '?', '#']).next()?;
    (is_http && !authority.is_empty()).then_some(authority)
}

impl PartialEq for WebhookUrl {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

impl Eq for WebhookUrl {}

impl Hash for WebhookUrl {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.target.hash(state);
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn parse(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
        WebhookUrl::parse(text, &AddressGuard::default())
    }

    #[test]
    fn a_url_is_shown_as_sent() {
        for text in [
            "https://example.com",
            "HTTPS://Example.COM:443/a/../b?q=%41#top",
            "http://xn--bcher-kva.example/hook",
            "http://bücher.example/größe",
            "http://8.8.8.8:8080/",
            "http://[2606:4700::1111]/",
        ] {
            assert_eq!(parse(text).map(|url| url.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn other_than_absolute_http_urls_are_refused() {
        for text in [
            "",
            "example.com",
            "/hook",
            "//example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "http:example.com",
            "http:/example.com",
            "http://",
            "http:///example.com",
            r"http:\\example.com\",
            r"http://\example.com",
            "http://?q",
            "http://#f",
            "http://:80/",
            "http://example.com:65536/",
            "http://exa<mple.com/",
            "http://[::1/",
            "http://999.1.1.1/",
        ] {
            assert_eq!(parse(text), Err(WebhookUrlError::NotAbsoluteHttp), "{text}");
        }
    }

    #[test]
    fn hosts_to_which_no_request_can_be_sent_are_refused() {
        for text in ["http://a{b}.example/", "http://a\"b.example/", "https://a`b.example/hook"] {
            assert_eq!(parse(text), Err(WebhookUrlError::Host), "{text}");
        }
    }

    #[test]
    fn credentials_are_refused() {
        for text in [
            "http://user@example.com/",
            "http://user:secret@example.com/",
            "http://:secret@example.com/",
            "http://@example.com/",
            "http://a@b@example.com/",
        ] {
            assert_eq!(parse(text), Err(WebhookUrlError::Credentials), "{text}");
        }
        assert!(parse("http://example.com/@me?mail=a@example.com#@").is_ok());
    }

    #[test]
    fn white_space_and_control_characters_are_refused() {
        for text in [
            " http://example.com/",
            "http://example.com/\n",
            "http://exam\tple.com/",
            "http://example.com/a b",
            "http://example.com/\u{0}",
            "http://example.com/\u{a0}",
            "http://example.com/\u{85}",
        ] {
            assert_eq!(parse(text), Err(WebhookUrlError::WhiteSpace), "{text:?}");
        }
    }

    #[test]
    fn the_length_is_counted_in_bytes_as_sent() {
        let url_of = |bytes: usize| {
            let start = "http://example.com/ü";
            format!("{start}{}", "a".repeat(bytes - start.len()))
        };
        assert!(parse(&url_of(2_048)).is_ok());
        assert_eq!(parse(&url_of(2_049)), Err(WebhookUrlError::TooLong));
    }

    #[test]
    fn a_name_is_checked_when_it_is_resolved() {
        for text in ["http://metadata.google.internal/", "http://localhost.example/", "http://mylocalhost/"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn localhost_and_names_below_it_are_refused_unless_loopback_is_allowed() {
        let open = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        for text in [
            "http://localhost/",
            "http://LOCALHOST:8080/x",
            "http://localhost./",
            "http://a.b.localhost/",
            "http://%6cocalhost/",
        ] {
            assert_eq!(parse(text), Err(WebhookUrlError::Localhost), "{text}");
            assert!(WebhookUrl::parse(text, &open).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_stored_url_is_not_checked_by_the_guard() {
        let stored = WebhookUrl::parse_stored("http://127.0.0.1:9/").unwrap();
        assert_eq!(stored.literal_address(), Some([127, 0, 0, 1].into()));
    }

    #[test]
    fn urls_that_mean_the_same_request_are_equal() {
        let same = [
            "http://example.com",
            "http://example.com/",
            "HTTP://EXAMPLE.com:80/",
            "http://example.com/#top",
            "http://example.com/a/..",
        ];
        let others =
            ["https://example.com/", "http://example.com:8080/", "http://example.com/a", "http://example.com/?"];
        let distinct: HashSet<_> = same.iter().chain(&others).map(|text| parse(text).unwrap()).collect();
        assert_eq!(distinct.len(), 1 + others.len());
    }
}

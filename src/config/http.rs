//! `[http]`: settings of the public listener.

use std::{
    fmt,
    net::{SocketAddr, SocketAddrV6},
    num::NonZeroUsize,
    time::Duration,
};

use ipnet::IpNet;
use url::Url;

use super::{error::SettingError, layers::LayeredSettings};

/// The public listener's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Address and port to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The start of short links. If unset, see [`HttpConfig::base_url_at`].
    pub base_url: Option<HttpBaseUrl>,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Threads that serve requests. `None`: one for each CPU core.
    pub workers: Option<NonZeroUsize>,
    /// Time limit to receive a request's head and body.
    pub request_timeout: Duration,
    /// Time limit in which a client must take at least one byte of an answer.
    pub send_timeout: Duration,
    /// How long an idle connection stays open. Zero: closed after each answer.
    pub keep_alive: Duration,
    /// Maximum number of connections of each worker.
    pub max_connections: usize,
}

impl HttpConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        Ok(Self {
            listen: settings.parsed("http.listen", ADDRESS, |text| text.parse().ok())?,
            base_url: settings.optional("http.base_url", BASE_URL, HttpBaseUrl::parse)?,
            trusted_proxies: settings.networks("http.trusted_proxies")?,
            workers: NonZeroUsize::new(settings.integer("http.workers", 0..=512)?),
            request_timeout: settings
                .duration("http.request_timeout", Duration::from_millis(100)..=Duration::from_mins(5))?,
            send_timeout: settings
                .duration("http.send_timeout", Duration::from_millis(100)..=Duration::from_hours(1))?,
            keep_alive: settings.duration("http.keep_alive", Duration::ZERO..=Duration::from_hours(1))?,
            max_connections: settings.integer("http.max_connections", 1..=1_000_000)?,
        })
    }

    /// The effective base URL. `bound` is the address of the bound socket, which differs from [`HttpConfig::listen`]
    /// if that has port 0.
    pub fn base_url_at(&self, bound: SocketAddr) -> HttpBaseUrl {
        self.base_url.clone().unwrap_or_else(|| HttpBaseUrl::of_address(bound))
    }
}

/// The end of the message `"…" is not …` for a listen address.
pub(super) const ADDRESS: &str = "an address and port";

pub(super) const BASE_URL: &str = "an http or https URL with a host and without credentials, query or fragment";

/// The prefix of short links, without a trailing slash; and other base URLs of the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpBaseUrl {
    url: Url,
}

impl HttpBaseUrl {
    /// Parses a base URL and removes a trailing slash. `None` for anything but an `http` or `https` URL with a host
    /// and without credentials, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        // The URL standard accepts a missing or a third slash, and white space. Here they are refused: they are
        // probably mistakes.
        let (scheme, rest) = text.split_once("://")?;
        let is_web = ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
        if !is_web || rest.starts_with('/') || rest.contains(is_odd) {
            return None;
        }
        let mut url = Url::parse(text).ok()?;
        let is_bare =
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        if !is_bare {
            return None;
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Some(Self { url })
    }

    fn of_address(address: SocketAddr) -> Self {
        // A URL can't have an IPv6 zone.
        let address = match address {
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
            v4 @ SocketAddr::V4(_) => v4,
        };
        let text = format!("http://{address}");
        // Never fails: an IP address and a port are a valid host and port of a URL.
        Self::parse(&text).expect("an address forms a URL")
    }

    /// The URL without a trailing slash, such as `https://go.example/s`.
    pub fn as_str(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// The parsed URL, whose path is `/` if it has none.
    pub fn as_url(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for HttpBaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_loses_its_trailing_slash_and_keeps_its_path() {
        for (given, kept) in [
            ("https://go.example", "https://go.example"),
            ("https://go.example/", "https://go.example"),
            ("https://go.example/s/", "https://go.example/s"),
            ("https://go.example/s//", "https://go.example/s"),
            ("HTTP://Go.Example:80/s", "http://go.example/s"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            let url = HttpBaseUrl::parse(given).expect(given);
            assert_eq!(url.as_str(), kept);
            assert_eq!(url.to_string(), kept);
        }
    }

    #[test]
    fn an_invalid_base_url_is_refused() {
        for text in [
            "go.example",
            "ftp://go.example",
            "http:go.example",
            "http://",
            "http:///path",
            "http://go.example?",
            "http://go.example/#top",
            "http://user@go.example",
            "http://:secret@go.example",
            "http://go.example/a b",
            "http://go\n.example",
            "http://go.example:99999",
        ] {
            assert_eq!(HttpBaseUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_makes_a_base_url() {
        for (address, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("[fe80::1%3]:8080", "http://[fe80::1]:8080"),
        ] {
            let address = address.parse().expect(address);
            assert_eq!(HttpBaseUrl::of_address(address).as_str(), url);
        }
    }
}

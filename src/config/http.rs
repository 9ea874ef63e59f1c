//! `[http]`: the public listener.

use std::{
    fmt,
    net::{SocketAddr, SocketAddrV6},
    num::NonZeroUsize,
    time::Duration,
};

use ipnet::IpNet;
use url::Url;

use super::{error::SettingError, layers::Settings};

/// The public listener's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What short links begin with; see [`Http::base_url_at`] for when it is not set.
    pub base_url: Option<BaseUrl>,
    /// Peers whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Threads that serve requests; none: one for each processor core.
    pub workers: Option<NonZeroUsize>,
    /// Longest time to receive a request's head and body.
    pub request_timeout: Duration,
    /// Longest time in which a client takes no byte of an answer.
    pub send_timeout: Duration,
    /// How long an idle connection stays open; zero: closed after each answer.
    pub keep_alive: Duration,
    /// Most connections at once on each worker.
    pub max_connections: usize,
}

impl Http {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        Ok(Self {
            listen: settings.parsed("http.listen", ADDRESS, |text| text.parse().ok())?,
            base_url: settings.optional("http.base_url", BASE_URL, BaseUrl::parse)?,
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

    /// The base URL in force, `bound` being the address really listened on (which differs from
    /// [`Http::listen`] where that asked for port 0).
    pub fn base_url_at(&self, bound: SocketAddr) -> BaseUrl {
        self.base_url.clone().unwrap_or_else(|| BaseUrl::of_address(bound))
    }
}

/// The end of the message `"…" is not …` for a listen address.
pub(super) const ADDRESS: &str = "an address and port";

pub(super) const BASE_URL: &str = "an http or https URL with a host and without credentials, query or fragment";

/// What a short link's id is appended to, after a slash. It never ends in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    url: Url,
}

impl BaseUrl {
    /// Reads a base URL; a trailing slash is dropped. `None` for anything but an `http` or `https`
    /// URL with a host and without credentials, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        // The URL standard forgives a missing or a third slash, and white space; a typing error
        // in what every short link begins with is better heard.
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
        // A URL has no place for an IPv6 zone.
        let address = match address {
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
            v4 @ SocketAddr::V4(_) => v4,
        };
        let text = format!("http://{address}");
        // Can't fail: a literal address and a port are always a host and port of a URL.
        Self::parse(&text).expect("an address forms a URL")
    }

    /// The URL without a trailing slash, such as `https://go.example/s`.
    pub fn as_str(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// The parsed form, whose path is `/` where there is none.
    pub fn as_url(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for BaseUrl {
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
            let url = BaseUrl::parse(given).expect(given);
            assert_eq!(url.as_str(), kept);
            assert_eq!(url.to_string(), kept);
        }
    }

    #[test]
    fn what_is_no_base_url_is_refused() {
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
            assert_eq!(BaseUrl::parse(text), None, "{text}");
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
            assert_eq!(BaseUrl::of_address(address).as_str(), url);
        }
    }
}

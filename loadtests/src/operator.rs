//! What the program tells its operator.

use std::net::SocketAddr;

use serde_json::Value;

use crate::http;

pub const ROOT_KEY: &str = "root-key-of-a-load-test-0123456789-0123456789";

/// What the program tells of itself.
pub struct Operator {
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

/// Its counts since the start, and `hits` of the month, which are read from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub found: u64,
    pub not_found: u64,
    pub limited: u64,
    pub hits: u64,
    pub links: u64,
}

impl Counts {
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            found: self.found - earlier.found,
            not_found: self.not_found - earlier.not_found,
            limited: self.limited - earlier.limited,
            hits: self.hits - earlier.hits,
            links: self.links - earlier.links,
        }
    }
}

impl Operator {
    pub fn is_ready(&self) -> bool {
        http::exchange(self.admin, &get("/readyz")).is_ok_and(|answer| answer.status == 200)
    }

    /// Whether every hit is in the store.
    pub fn has_counted_all(&self) -> bool {
        let metrics = self.metrics();
        let number = |name: &str| metric(&metrics, name);
        // Hits that are read may wait for a slow disk. Those that an earlier process left are counted besides.
        number("signpost_journal_unread_bytes") == 0
            && number("signpost_hits_counted_total") >= number("signpost_journal_hits_appended_total")
    }

    fn metrics(&self) -> String {
        String::from_utf8(http::exchange(self.admin, &get("/metrics")).unwrap().body).unwrap()
    }

    /// A document of the API, as the root key sees it.
    pub fn document(&self, path: &str) -> Value {
        let answer = http::exchange(self.address, &get(path)).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    pub fn counts(&self) -> Counts {
        let metrics = self.metrics();
        let outcome = |outcome: &str| metric(&metrics, &format!("signpost_redirects_total{{outcome=\"{outcome}\"}}"));
        let usage = self.document("/usage");
        let current = |name: &str| usage["usage"][name]["current"].as_u64().unwrap();
        assert_eq!(outcome("unavailable"), 0, "redirects that the store did not answer");
        Counts {
            found: outcome("found"),
            not_found: outcome("not_found"),
            limited: outcome("limited"),
            hits: current("hits_served"),
            links: current("links_created"),
        }
    }

    /// Deliveries that reached their receiver, and those that wait.
    pub fn deliveries(&self) -> (u64, u64) {
        let metrics = self.metrics();
        let delivered = metric(&metrics, "signpost_webhook_deliveries_total{outcome=\"delivered\"}");
        (delivered, metric(&metrics, "signpost_webhook_pending"))
    }
}

/// A request that bears the root key.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: signpost\r\nX-API-Key: {ROOT_KEY}\r\n\r\n")
}

fn metric(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value: f64 = line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap();
    value as u64
}

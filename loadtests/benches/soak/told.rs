//! What the program tells of everything at the end: by its API, and by an export.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
};

use loadtests::{
    http,
    operator::{self, ROOT_KEY},
};
use serde_json::Value;

use super::scene::{Scene, ask};

#[derive(Default)]
pub struct Told {
    /// By index of the link: total, sum of days, sum of devices.
    pub analytics: Vec<[u64; 3]>,
    /// By index of the link, and by URL: pending, delivered, failed.
    pub webhooks: HashMap<usize, Vec<[u64; 3]>>,
    /// By index of the key: links made, deliveries.
    pub usage: Vec<(u64, u64)>,
    pub exported: Exported,
    /// Hits that the journal had no room for, over all lives.
    pub not_recorded: u64,
}

pub struct ExportedLink {
    pub id: String,
    pub target: String,
    pub owner: String,
}

#[derive(Default)]
pub struct Exported {
    pub links: Vec<ExportedLink>,
    /// By id of the link.
    pub hits: HashMap<String, u64>,
    /// By metric and key.
    usage: HashMap<(String, String), u64>,
}

impl Told {
    /// Asks the running program.
    pub fn by_api(address: SocketAddr, scene: &Scene) -> Self {
        let sum = |list: &Value| list.as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap()).sum();
        let mut told = Self::default();
        for (index, link) in scene.links.iter().enumerate() {
            let shown = ask(address, ROOT_KEY, "GET", &format!("/links/{}/analytics", link.id), None);
            told.analytics.push([shown["total_hits"].as_u64().unwrap(), sum(&shown["daily"]), sum(&shown["devices"])]);
            if link.hooks > 0 {
                let shown = ask(address, ROOT_KEY, "GET", &format!("/{}/webhooks/status?limit=1", link.id), None);
                let urls = shown["webhooks"].as_array().unwrap().iter();
                let sums = urls.map(|url| ["pending", "delivered", "failed"].map(|sum| url[sum].as_u64().unwrap()));
                told.webhooks.insert(index, sums.collect());
            }
        }
        for key in &scene.keys {
            let usage = &ask(address, &key.secret, "GET", "/usage", None)["usage"];
            let current = |metric: &str| usage[metric]["current"].as_u64().unwrap();
            told.usage.push((current("links_created"), current("webhook_deliveries")));
        }
        told
    }
}

impl Exported {
    /// Reads the file that `signpost export` has written.
    pub fn read(path: &Path) -> Self {
        let mut exported = Self::default();
        for line in BufReader::new(File::open(path).unwrap()).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let text = |of: &Value| of.as_str().unwrap().to_owned();
            if let Some(link) = line.get("link") {
                let (id, target, owner) = (text(&link["id"]), text(&link["target"]), text(&link["owner"]));
                exported.links.push(ExportedLink { id, target, owner });
            } else if let Some(day) = line.get("day").filter(|day| day.get("link").is_some()) {
                let devices = day["devices"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
                *exported.hits.entry(text(&day["link"])).or_default() += devices.sum::<u64>();
            } else if let Some(usage) = line.get("usage") {
                let of = (text(&usage["metric"]), text(&usage["key"]));
                *exported.usage.entry(of).or_default() += usage["count"].as_u64().unwrap();
            }
        }
        exported
    }

    /// The target of a link, if it is there.
    pub fn target(&self, id: &str) -> Option<&str> {
        self.links.iter().find(|link| link.id == id).map(|link| &*link.target)
    }

    /// What a key has used of a metric.
    pub fn used(&self, metric: &str, key: &str) -> u64 {
        self.usage.get(&(metric.to_owned(), key.to_owned())).copied().unwrap_or_default()
    }
}

/// Whether every hit is counted and no delivery is pending; `None` where it does not say. Both numbers.
pub fn left(admin: SocketAddr) -> Option<(u64, u64)> {
    let answer = http::exchange(admin, &operator::get("/metrics")).ok()?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let number = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<f64>().ok().map(|value| value as u64)
    };
    Some((number("signpost_journal_unread_bytes")?, number("signpost_webhook_pending")?))
}

//! Links, keys and quotas of the soak.

use std::{net::SocketAddr, path::Path};

use loadtests::{
    http,
    operator::ROOT_KEY,
    program::Program,
    seed::{self, Seed},
};
use serde_json::{Value, json};

use super::beside::{EDITED, edited_target};
use super::mix::Rates;

/// Links without webhooks, of the root key.
pub const PLAIN: usize = 4_000;
/// Links with webhooks, of a key without a quota: this many, with one webhook or two by turns.
pub const HOOKED: usize = 100;
/// Keys with quotas, each with a link that has a webhook. Each of them is used less than the one before, so that their quotas
/// are used up at different times.
pub const QUOTAS: usize = 8;

/// Whose link a creation makes, by index: the keys with quotas first.
pub const ROOT: usize = QUOTAS;
/// A key of the tier Pro, which has a limit per minute and no quota.
pub const LIMITED: usize = QUOTAS + 1;

/// Indexes of the links of clients beside the traffic.
pub const REPLAYED: usize = PLAIN + HOOKED + QUOTAS;
pub const FIRST_EDITED: usize = REPLAYED + 1;

/// A key as the client has it.
#[derive(Clone, Debug)]
pub struct Key {
    pub secret: String,
    pub id: String,
}

#[derive(Clone, Debug)]
pub struct Link {
    pub id: String,
    /// Its index among the keys.
    pub owner: usize,
    pub hooks: u64,
}

/// What a month allows a key with quotas.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub links: u64,
    pub deliveries: u64,
}

impl Quota {
    /// So much that the key which is used least has used it up after seven tenths of the time.
    pub fn for_run(rates: Rates, seconds: f64) -> Self {
        let least = Rates::share_of_quota(QUOTAS - 1) * seconds * 0.7;
        let of = |rate: f64| ((rate * least) as u64).max(1);
        Self { links: of(rates.quota_creations()), deliveries: of(rates.quota_hits()) }
    }

    /// The settings that say so. Tries that fail come again for long enough that no fault ends a delivery.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        let text = [
            ("SIGNPOST_TIERS__FREE__SHORTEN_PER_MINUTE", "0"),
            ("SIGNPOST_TIERS__FREE__USAGE_PER_MINUTE", "0"),
            ("SIGNPOST_WEBHOOKS__ALLOWED_NETWORKS", "127.0.0.0/8"),
            ("SIGNPOST_WEBHOOKS__RETRY_DELAYS", "1s,2s,5s,10s,10s,20s,20s,30s,30s,30s"),
            // One is always made ahead: it takes the hits while the disk has no room for another.
            ("SIGNPOST_JOURNAL__SEGMENT_BYTES", "536870912"),
            ("SIGNPOST_JOURNAL__DISK_BUDGET_BYTES", "2147483648"),
        ];
        let mut settings: Vec<_> = text.map(|(name, value)| (name, value.to_owned())).into();
        settings.push(("SIGNPOST_TIERS__FREE__LINKS_PER_MONTH", self.links.to_string()));
        settings.push(("SIGNPOST_TIERS__FREE__WEBHOOK_DELIVERIES_PER_MONTH", self.deliveries.to_string()));
        settings
    }
}

/// All links that are asked for: the plain ones, those with webhooks, those of the keys with quotas, and of clients beside the
/// traffic the one whose deliveries are replayed and those that are edited.
#[derive(Clone, Debug)]
pub struct Scene {
    pub links: Vec<Link>,
    pub keys: Vec<Key>,
}

impl Scene {
    /// Fills the store in `home` with the plain links; to be called before the program is started there.
    pub fn fill(program: &Program, home: &Path) {
        seed::fill(program, home, &Seed { links: PLAIN as u64, all_hit: false, past: &[] });
    }

    /// Makes the keys and the other links, whose webhooks go to `receiver`.
    pub fn set(address: SocketAddr, receiver: SocketAddr) -> Self {
        let tier = |index: usize| if index == LIMITED { "Pro" } else { "Free" };
        let mut keys: Vec<Key> = (0..QUOTAS).map(|index| new_key(address, tier(index))).collect();
        let root = ask(address, ROOT_KEY, "GET", "/usage", None);
        keys.push(Key { secret: ROOT_KEY.to_owned(), id: text(&root, "api_key_id") });
        keys.push(new_key(address, tier(LIMITED)));
        let mut links: Vec<Link> =
            (0..PLAIN).map(|index| Link { id: seed::id(index as u64), owner: ROOT, hooks: 0 }).collect();
        let quotas = (0..QUOTAS).map(|owner| (owner, 1));
        let hooked = (0..HOOKED).map(|index| (ROOT, 1 + index % 2));
        for (owner, hooks) in hooked.chain(quotas) {
            let index = links.len();
            let urls: Vec<_> = (0..hooks).map(|url| format!("http://{receiver}/hook/{index}/{url}")).collect();
            let body = json!({"redirect_url": seed::target(index as u64), "webhooks": urls, "data": {"link": index}});
            let made = ask(address, &keys[owner].secret, "POST", "/shorten", Some(&body));
            links.push(Link { id: text(&made, "short_id"), owner, hooks: hooks as u64 });
        }
        let replayed = json!({
            "redirect_url": seed::target(REPLAYED as u64),
            "webhooks": [format!("http://{receiver}/replay/{REPLAYED}/0")],
            "data": {"link": REPLAYED},
        });
        let edited = (0..EDITED).map(|index| (json!({"redirect_url": edited_target(index, 0)}), 0));
        for (body, hooks) in std::iter::once((replayed, 1)).chain(edited) {
            let made = ask(address, ROOT_KEY, "POST", "/shorten", Some(&body));
            links.push(Link { id: text(&made, "short_id"), owner: ROOT, hooks });
        }
        Self { links, keys }
    }

    pub fn replayed(&self) -> &Link {
        &self.links[REPLAYED]
    }

    pub fn edited(&self) -> &[Link] {
        &self.links[FIRST_EDITED..]
    }
}

fn new_key(address: SocketAddr, tier: &str) -> Key {
    let made = ask(address, ROOT_KEY, "POST", "/api-keys", Some(&json!({"name": "soak", "tier": tier})));
    Key { secret: text(&made, "key"), id: text(&made, "key_id") }
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap_or_else(|| panic!("no {field}: {document}")).to_owned()
}

/// A request to the API, as it goes over the wire.
pub fn request(key: &str, method: &str, path: &str, body: Option<&Value>) -> String {
    request_with(key, method, path, "", body)
}

/// The same with more header fields, each with the end of its line.
pub fn request_with(key: &str, method: &str, path: &str, fields: &str, body: Option<&Value>) -> String {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: go.example\r\nX-API-Key: {key}\r\n{fields}");
    match body.map(Value::to_string) {
        Some(body) => {
            format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        None => head + "\r\n",
    }
}

/// Asks the API for a document, which it must have.
pub fn ask(address: SocketAddr, key: &str, method: &str, path: &str, body: Option<&Value>) -> Value {
    let answer = http::exchange(address, &request(key, method, path, body)).unwrap();
    let text = String::from_utf8_lossy(&answer.body);
    assert!((200..300).contains(&answer.status), "{method} {path}: {} {text}", answer.status);
    serde_json::from_slice(&answer.body).unwrap()
}

//! The traffic's mixture: which requests there are, how often, and how each is made.

use loadtests::{
    requests::browser,
    seed::{id, mix, target},
};
use serde_json::json;

use super::scene::{HOOKED, LIMITED, PLAIN, QUOTAS, ROOT, Scene, request};

/// Requests for short ids, made in advance and sent by turns.
const TEXTS: u64 = 65_536;
/// From here on indexes are of no link.
const NO_LINK: u64 = 1 << 40;
/// The client that sends more than it may; the others are below.
const BUSY_CLIENT: u64 = 1 << 20;

/// Of all requests, those to the API and for QR codes.
const API: f64 = 0.05;
/// Of the requests for short ids: unknown ids, links with webhooks, links of keys with quotas, and the busy client's.
const UNKNOWN: f64 = 0.04;
const TO_HOOKED: f64 = 0.025;
const TO_QUOTAS: f64 = 0.005;
const BY_BUSY_CLIENT: f64 = 0.005;
/// Of those to the API: creations by the keys with quotas.
const QUOTA_CREATIONS: f64 = 0.15;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A redirect of the link with this index; by the client that sends too much, or by another.
    Redirect {
        link: u32,
        busy: bool,
    },
    Unknown,
    Qr,
    /// A link for the key with this index.
    Creation {
        key: u8,
    },
    /// Something that is there: a link, analytics, usage, deliveries, keys.
    Read,
}

/// A request as it goes over the wire.
pub struct Prepared {
    pub ask: Ask,
    pub text: Box<[u8]>,
}

/// Requests a second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// For short ids.
    pub redirects: f64,
    pub api: f64,
}

impl Rates {
    pub fn of_total(total: f64) -> Self {
        Self { redirects: total * (1.0 - API), api: total * API }
    }

    /// Requests to the API for one for a short id.
    pub fn api_per_redirect() -> f64 {
        API / (1.0 - API)
    }

    /// Creations by keys with quotas.
    pub fn quota_creations(self) -> f64 {
        self.api * QUOTA_CREATIONS
    }

    /// Hits of their links.
    pub fn quota_hits(self) -> f64 {
        self.redirects * TO_QUOTAS
    }

    /// The share of one of them, by its index: half, a third, a quarter of the first one's, and so on.
    pub fn share_of_quota(index: usize) -> f64 {
        let all: f64 = (1..=QUOTAS).map(|rank| 1.0 / rank as f64).sum();
        1.0 / (index + 1) as f64 / all
    }
}

/// A number from 0 to 1 that follows from `n`; `salt` tells what it is for.
fn draw(n: u64, salt: u64) -> f64 {
    mix(n ^ salt << 48) as f64 / u64::MAX as f64
}

/// Which of `ends`, the cumulated shares, a number from 0 to 1 falls to.
fn pick(ends: &[f64], drawn: f64) -> usize {
    ends.partition_point(|&end| end < drawn).min(ends.len() - 1)
}

/// Cumulated shares: the k-th comes 1/k times as often as the first (Zipf).
fn zipf(count: usize) -> Vec<f64> {
    let all: f64 = (1..=count).map(|rank| 1.0 / rank as f64).sum();
    (1..=count)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64 / all;
            Some(*sum)
        })
        .collect()
}

/// Draws requests.
pub struct Mix {
    scene: Scene,
    pub redirects: Vec<Prepared>,
    plain: Vec<f64>,
    quotas: Vec<f64>,
}

impl Mix {
    pub fn of(scene: Scene) -> Self {
        let mut mix = Self { scene, redirects: Vec::new(), plain: zipf(PLAIN), quotas: zipf(QUOTAS) };
        mix.redirects = (0..TEXTS).map(|n| mix.redirect(n)).collect();
        mix
    }

    pub fn links(&self) -> usize {
        self.scene.links.len()
    }

    fn redirect(&self, n: u64) -> Prepared {
        let ends = [UNKNOWN, TO_HOOKED, TO_QUOTAS, BY_BUSY_CLIENT].iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        let which = ends.filter(|end| *end < draw(n, 1)).count();
        let link = match which {
            1 => PLAIN + mix(n ^ 2 << 48) as usize % HOOKED,
            2 => PLAIN + HOOKED + pick(&self.quotas, draw(n, 2)),
            _ => pick(&self.plain, draw(n, 2)),
        };
        let (ask, path) = if which == 0 {
            (Ask::Unknown, id(NO_LINK + n))
        } else {
            (Ask::Redirect { link: link as u32, busy: which == 3 }, self.scene.links[link].id.clone())
        };
        let client = if which == 3 { BUSY_CLIENT } else { n };
        Prepared { ask, text: browser(&format!("/{path}"), n, client, "").into_bytes().into() }
    }

    /// The `n`-th request to the API; `creations` is how many creations there were before it.
    pub fn api(&self, n: u64, creations: u64) -> Prepared {
        let link = |scene: &Scene| scene.links[pick(&self.plain, draw(n, 3))].id.clone();
        let root = &self.scene.keys[ROOT].secret;
        let read = |path: String| (Ask::Read, request(root, "GET", &path, None));
        let create = |key: usize| {
            let body =
                json!({"redirect_url": made_target(creations), "data": {"campaign": "autumn", "number": creations}});
            (Ask::Creation { key: key as u8 }, request(&self.scene.keys[key].secret, "POST", "/shorten", Some(&body)))
        };
        let (ask, text) = match (draw(n, 4) * 100.0) as u32 {
            0..25 => create(ROOT),
            25..40 => create(pick(&self.quotas, draw(n, 5))),
            40..42 => create(LIMITED),
            42..57 => read(format!("/links/{}", link(&self.scene))),
            57..67 => read(format!("/links/{}/analytics", link(&self.scene))),
            67..75 => read(format!("/links/{}/analytics/summary", link(&self.scene))),
            75..85 => {
                let key = &self.scene.keys[mix(n) as usize % QUOTAS].secret;
                (Ask::Read, request(key, "GET", "/usage", None))
            }
            85..90 => {
                let hooked = &self.scene.links[PLAIN + mix(n) as usize % HOOKED].id;
                read(format!("/{hooked}/webhooks/status?limit=1"))
            }
            90..93 => read("/api-keys".to_owned()),
            _ => (Ask::Qr, browser(&format!("/{}/qr", link(&self.scene)), n, mix(n) % TEXTS, "")),
        };
        Prepared { ask, text: text.into_bytes().into() }
    }
}

/// Where the link of a creation leads: each to another place, so that each can be found again.
pub fn made_target(number: u64) -> String {
    target(MADE + number)
}

/// Above the indexes of all links that are there before.
const MADE: u64 = 10_000_000;
/// From here on are those of links that are made many at once.
pub const BULK: u64 = 50_000_000;

/// The number of the creation that asked for this target.
pub fn made_number(target: &str) -> Option<u64> {
    let digits = target.split_once("/item-")?.1.split_once('?')?.0;
    let index = digits.parse::<u64>().ok().filter(|index| *index < BULK)?;
    index.checked_sub(MADE)
}

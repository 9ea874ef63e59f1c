//! What the load generators send: the very same bytes to every contestant.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use crate::{
    operator::ROOT_KEY,
    seed::{id, mix, target},
};

/// Links of the hot redirect.
pub const HOT_LINKS: u64 = 1_000;
/// Requests made in advance, which are sent in turns.
const TEXTS: u64 = 16_384;
/// Clients that they come from, by `X-Forwarded-For`.
const CLIENTS: u64 = 4_096;
/// Ids made in advance where each request is for another one.
const FRESH_IDS: u64 = 2_000_000;
/// Of the mixed loads, one request in so many is to the API.
pub const MIXED_EVERY: u64 = 20;
/// From here on indexes are of no link.
const NO_LINK: u64 = 1 << 40;

/// Stands in a request for an id that is different each time.
pub const FRESH: char = '\u{1}';
/// Bytes of such an id.
pub const FRESH_ID_LENGTH: usize = 7;
/// Begins a request that goes over a connection which only such requests use.
pub const APART: char = '\u{2}';

const USER_AGENTS: [&str; 20] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 OPR/125.0.0.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Linux; Android 15; SM-X710) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Android 15; Mobile; rv:144.0) Gecko/144.0 Firefox/144.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/142.0.7444.77 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPad; CPU OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 404.0.0.31.75",
];

const LANGUAGES: [&str; 5] = [
    "en-US,en;q=0.9",
    "de-DE,de;q=0.9,en;q=0.8",
    "fr-FR,fr;q=0.9,en-US;q=0.8,en;q=0.7",
    "es-ES,es;q=0.9",
    "en-GB,en;q=0.9",
];

/// None stands for a link that was typed, or came from an app.
const REFERRERS: [Option<&str>; 6] = [
    None,
    Some("https://www.google.com/"),
    None,
    Some("https://news.example.org/2026/11/autumn-sale"),
    Some("https://t.co/"),
    Some("https://www.facebook.com/"),
];

/// A request as browsers send it, and `more` fields; `n` chooses who sends it and from where.
pub fn browser(path: &str, n: u64, client: u64, more: &str) -> String {
    let pick = |salt: u64, of: usize| mix(n ^ salt << 40) as usize % of;
    let referrer = REFERRERS[pick(1, REFERRERS.len())];
    let referrer = referrer.map(|url| format!("Referer: {url}\r\n")).unwrap_or_default();
    // Public addresses; the limit and the hits' places see different ones.
    let client = format!("81.{}.{}.{}", client >> 16 & 255, client >> 8 & 255, client & 255);
    format!(
        "GET {path} HTTP/1.1\r\nHost: go.example\r\nUser-Agent: {}\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
         Accept-Language: {}\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n{referrer}X-Forwarded-For: {client}\r\n{more}\r\n",
        USER_AGENTS[pick(2, USER_AGENTS.len())],
        LANGUAGES[pick(3, LANGUAGES.len())],
    )
}

/// Draws from the hot links: the k-th is asked for 1/k times as often as the first (Zipf).
fn zipf(n: u64) -> u64 {
    let total: f64 = (1..=HOT_LINKS).map(|rank| 1.0 / rank as f64).sum();
    let mut rest = (mix(n ^ 7 << 50) as f64 / u64::MAX as f64) * total;
    for rank in 1..=HOT_LINKS {
        rest -= 1.0 / rank as f64;
        if rest <= 0.0 {
            return rank - 1;
        }
    }
    HOT_LINKS - 1
}

/// A field that the fast path leaves to the dispatcher.
const DISPATCHED: &str = "Upgrade: h2c\r\n";

/// Asks for the record of one of the hot links.
fn api(n: u64) -> String {
    format!("GET /links/{} HTTP/1.1\r\nHost: go.example\r\nX-API-Key: {ROOT_KEY}\r\n\r\n", id(zipf(n)))
}

/// Requests, in files that a load generator reads.
#[derive(Clone, Debug)]
pub struct Load {
    pub texts: PathBuf,
    /// Ids for where each request is for another one.
    pub ids: Option<PathBuf>,
    /// One of the requests.
    pub sample: String,
}

/// The requests of a load's file.
pub fn read_texts(path: &Path) -> Vec<Vec<u8>> {
    let texts = fs::read(path).unwrap();
    texts.split(|&byte| byte == 0).filter(|text| !text.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Writes loads into a directory.
pub struct Requests(pub PathBuf);

impl Requests {
    fn write(&self, name: &str, texts: impl Iterator<Item = String>) -> Load {
        let path = self.0.join(name);
        let mut out = std::io::BufWriter::new(fs::File::create(&path).unwrap());
        let mut sample = String::new();
        for text in texts {
            out.write_all(text.as_bytes()).unwrap();
            out.write_all(&[0]).unwrap();
            sample = text;
        }
        out.flush().unwrap();
        Load { texts: path, ids: None, sample }
    }

    fn with_ids(load: Load, indexes: impl Fn(u64) -> u64) -> Load {
        let path = load.texts.with_extension("ids");
        let ids: String = (0..FRESH_IDS).map(|n| id(indexes(n))).collect();
        fs::write(&path, ids).unwrap();
        let sample = load.sample.replace(FRESH, &id(indexes(0)));
        Load { ids: Some(path), sample, ..load }
    }

    fn to_hot_links(&self, name: &str, more: &str, path: impl Fn(&str) -> String) -> Load {
        let text = |n| browser(&path(&id(zipf(n))), n, mix(n) % CLIENTS, more);
        self.write(name, (0..TEXTS).map(text))
    }

    /// Redirects of a thousand links.
    pub fn hot(&self) -> Load {
        self.to_hot_links("hot", "", |id| format!("/{id}"))
    }

    /// The same with a field that the fast path leaves to the dispatcher, and means nothing.
    pub fn dispatched(&self) -> Load {
        self.to_hot_links("dispatched", DISPATCHED, |id| format!("/{id}"))
    }

    /// Requests to the API: the hot links' records.
    pub fn api(&self) -> Load {
        self.write("api", (0..TEXTS).map(api))
    }

    /// Hot redirects, and one request in [`MIXED_EVERY`] to the API.
    pub fn mixed(&self) -> Load {
        self.mixed_with("mixed", "", "")
    }

    /// The same with the requests to the API on connections of their own.
    pub fn mixed_apart(&self) -> Load {
        self.mixed_with("mixed-apart", "", &APART.to_string())
    }

    /// The same with the field of [`dispatched`](Self::dispatched) in each redirect.
    pub fn mixed_dispatched(&self) -> Load {
        self.mixed_with("mixed-dispatched", DISPATCHED, "")
    }

    fn mixed_with(&self, name: &str, more: &str, before_api: &str) -> Load {
        let redirect = |n| browser(&format!("/{}", id(zipf(n))), n, mix(n) % CLIENTS, more);
        let to_api = |n| before_api.to_owned() + &api(n);
        self.write(name, (0..TEXTS).map(|n| if n.is_multiple_of(MIXED_EVERY) { to_api(n) } else { redirect(n) }))
    }

    /// The same, each over a connection of its own.
    pub fn closing(&self) -> Load {
        self.to_hot_links("closing", "Connection: close\r\n", |id| format!("/{id}"))
    }

    /// The same from a single client.
    pub fn one_client(&self) -> Load {
        self.write("one-client", (0..TEXTS).map(|n| browser(&format!("/{}", id(zipf(n))), n, 0, "")))
    }

    /// As many unknown ids as there are requests made in advance: put together while they are sent, they kept the generator so
    /// busy that the server waited for it. They touch all of the index that a store of few links has.
    pub fn unknown(&self) -> Load {
        self.write("unknown", (0..TEXTS).map(|n| browser(&format!("/{}", id(NO_LINK + n)), n, mix(n) % CLIENTS, "")))
    }

    /// Of `links` links: a fifth of the look-ups for the hot ones, the others for any, each other, and others for each `salt`.
    pub fn wide(&self, links: u64, salt: u64) -> Load {
        let path = |n: u64| if n.is_multiple_of(5) { format!("/{}", id(zipf(n))) } else { format!("/{FRESH}") };
        let texts = (0..TEXTS).map(|n| browser(&path(n), n, mix(n) % CLIENTS, ""));
        // Links whose indexes follow each other lie far apart, and these do not even follow.
        Self::with_ids(self.write(&format!("wide-{salt}"), texts), |n| mix(n ^ salt << 50) % links)
    }

    /// Images; `query` says which.
    pub fn qr(&self, name: &str, query: &str) -> Load {
        self.to_hot_links(name, "", |id| format!("/{id}/qr{query}"))
    }

    /// Hot redirects, one in `every` of them of another link.
    pub fn hot_with(&self, link: &str, every: u64) -> Load {
        let path = |n: u64| if n.is_multiple_of(every) { format!("/{link}") } else { format!("/{}", id(zipf(n))) };
        self.write("hot-with", (0..TEXTS).map(|n| browser(&path(n), n, mix(n) % CLIENTS, "")))
    }

    /// How many of the first `requests` of such a load are the one in `every`.
    pub fn hits_with(every: u64, requests: u64) -> u64 {
        (requests / TEXTS) * TEXTS.div_ceil(every) + (requests % TEXTS).div_ceil(every)
    }

    /// Creations.
    pub fn creations(&self) -> Load {
        let text = |n| {
            let body = format!(r#"{{"redirect_url":"{}","data":{{"campaign":"autumn","customer":{n}}}}}"#, target(n));
            format!(
                "POST /shorten HTTP/1.1\r\nHost: go.example\r\nX-API-Key: {ROOT_KEY}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        self.write("creations", (0..TEXTS).map(text))
    }

    /// The same request again and again.
    pub fn same(&self, name: &str, text: &str) -> Load {
        self.write(name, std::iter::once(text.to_owned()))
    }
}

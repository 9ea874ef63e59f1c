//! The API reference as a document and as a page, both generated once from the table of endpoints.

#![expect(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "generated once, so readability counts more than speed"
)]

mod document;
mod guide;
mod headers;
mod markdown;
mod page;
mod problems;
pub mod schemas;

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use actix_web::http::header::HeaderValue;
use bytes::Bytes;

use crate::domain::plan::Plans;
use crate::domain::rate_limit::Rates;
use crate::http::endpoint::Endpoint;

/// The settings that users of the API need to know.
#[derive(Clone)]
pub struct Facts {
    /// The base URL, without a trailing slash.
    pub base_url: String,
    pub plans: Plans,
    pub rates: Rates,
    pub redirect_per_minute: Option<NonZeroU32>,
    /// The endpoints that limit requests by client.
    pub by_client: Vec<(&'static Endpoint, Option<NonZeroU32>)>,
    pub unauthorized_per_minute: Option<NonZeroU32>,
    /// Streams of hits that a key may have at once, of the tiers Free and Pro.
    pub streams: [u32; 2],
    /// The time limit of an attempt of a webhook delivery.
    pub webhook_timeout: Duration,
    /// The delay after each failed attempt except the last.
    pub retry_delays: Vec<Duration>,
    /// How many deliveries in a row, over at least a day, fail until a webhook is suspended.
    pub suspend_after: Option<NonZeroU32>,
}

/// The API reference of a running service, generated at the first request for it.
pub struct Reference {
    facts: Facts,
    rendered: OnceLock<Rendered>,
}

/// Document and page, with their headers.
struct Rendered {
    document: (Bytes, HeaderValue),
    page: (Bytes, HeaderValue),
    page_policy: HeaderValue,
}

impl Reference {
    pub fn new(facts: Facts) -> Self {
        Self { facts, rendered: OnceLock::new() }
    }

    /// The document, as JSON text.
    pub fn document_text(&self) -> String {
        format!("{:#}", document::document(&self.facts))
    }

    /// The document as it is sent, and its `ETag`.
    pub fn document(&self) -> &(Bytes, HeaderValue) {
        &self.rendered().document
    }

    /// The page, and its `ETag`.
    pub fn page(&self) -> &(Bytes, HeaderValue) {
        &self.rendered().page
    }

    /// The page's `Content-Security-Policy`.
    pub fn page_policy(&self) -> &HeaderValue {
        &self.rendered().page_policy
    }

    fn rendered(&self) -> &Rendered {
        self.rendered.get_or_init(|| {
            let document = document::document(&self.facts);
            let page = page::render(&document);
            let ascii = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
            let with_etag = |text: String| {
                let hash = page::base64_sha256(&text);
                (Bytes::from(text), ascii(format!("\"{}\"", &hash[..22])))
            };
            Rendered {
                document: with_etag(document.to_string()),
                page: with_etag(page.html),
                page_policy: ascii(page.content_security_policy),
            }
        })
    }
}

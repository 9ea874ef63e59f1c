//! `GET /openapi.json` and `GET /docs`: the API reference, made from the code, once.

#![expect(clippy::format_push_string, clippy::format_collect, reason = "made once: what reads well counts")]

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

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;

use super::Api;
use super::problem::{Kind, Problem};
use super::qr::is_known_to_client;
use super::query::Query;
use crate::domain::plan::Plans;
use schemas::Revalidation;

const CONTENT_SECURITY_POLICY: HeaderName = HeaderName::from_static("content-security-policy");
/// To be asked for again each time, with the `ETag`: it changes with the version and the settings.
const REVALIDATED: HeaderValue = HeaderValue::from_static("public, no-cache");

/// What of the settings a user of the API has to know.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How the service is reached, without a trailing slash.
    pub base_url: String,
    pub plans: Plans,
    pub redirect_per_minute: Option<NonZeroU32>,
    pub qr_per_minute: Option<NonZeroU32>,
    pub unauthorized_per_minute: Option<NonZeroU32>,
    /// For one try of a webhook delivery.
    pub webhook_timeout: Duration,
    /// The wait after each failed try but the last.
    pub retry_delays: Vec<Duration>,
}

/// The API reference of a running service. Made when it is first asked for.
pub struct Reference {
    facts: Facts,
    rendered: OnceLock<Rendered>,
}

/// Both forms, with their headers.
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

/// `GET /openapi.json`
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "Service",
    operation_id = "getOpenApiDocument",
    summary = "OpenAPI document",
    description = "This reference for programs: OpenAPI 3.1.",
    params(Revalidation),
    responses(
        (
            status = 200,
            description = "The document.",
            body = serde_json::Map<String, serde_json::Value>,
            headers(("ETag"), ("Cache-Control")),
        ),
        (status = 304, description = "The client has the document.", headers(("ETag"), ("Cache-Control"))),
    ),
    extensions(("x-problems" = json!([Kind::Validation.slug()]))),
)]
pub async fn document(api: web::Data<Api>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    Query::of(&request).finish()?;
    let (text, etag) = &api.reference.rendered().document;
    Ok(answer(&request, text, etag, "application/json"))
}

/// API reference
///
/// This reference for people: one page of HTML that loads nothing from elsewhere. Ignores any query.
#[utoipa::path(
    get,
    path = "/docs",
    tag = "Service",
    operation_id = "getReference",
    params(Revalidation),
    responses(
        (
            status = 200,
            description = "The page.",
            body = String,
            content_type = "text/html",
            headers(("ETag"), ("Cache-Control"), ("Content-Security-Policy")),
        ),
        (status = 304, description = "The client has the page.", headers(("ETag"), ("Cache-Control"))),
    ),
)]
pub async fn docs(api: web::Data<Api>, request: HttpRequest) -> HttpResponse {
    let rendered = api.reference.rendered();
    let (html, etag) = &rendered.page;
    let mut response = answer(&request, html, etag, "text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, rendered.page_policy.clone());
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    response
}

fn answer(request: &HttpRequest, text: &Bytes, etag: &HeaderValue, content_type: &'static str) -> HttpResponse {
    let is_known = is_known_to_client(request, etag.to_str().unwrap_or_default());
    let mut response = if is_known {
        HttpResponse::NotModified().finish()
    } else {
        HttpResponse::Ok().insert_header((CONTENT_TYPE, content_type)).body(text.clone())
    };
    response.headers_mut().insert(ETAG, etag.clone());
    response.headers_mut().insert(CACHE_CONTROL, REVALIDATED);
    response
}

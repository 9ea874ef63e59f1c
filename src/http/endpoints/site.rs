//! `GET /robots.txt` and `GET /favicon.ico`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::{HttpResponse, web};
use bytes::Bytes;

use super::ENDPOINTS;
use super::health::SERVICE;
use crate::http::Api;
use crate::http::endpoint::{self, Content, Docs, Endpoint, Requirement, ResponseDoc, inline_shape};
use crate::http::openapi::schemas::Binary;

const FOR_A_DAY: HeaderValue = HeaderValue::from_static("public, max-age=86400");
const ICON: &[u8] = include_bytes!("../pages/own/favicon.ico");

pub static ROBOTS: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/robots.txt",
    requires: Requirement::Nothing,
    handler: || web::route().to(robots),
    docs: Docs {
        id: "getRobots",
        summary: "Rules for crawlers",
        description: "Allows short links and pages, so that crawlers see their `X-Robots-Tag`, and disallows the API. Ignores \
        the query.",
        tag: &SERVICE,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The rules (RFC 9309).",
            content: &[Content { media_type: "text/plain", shape: inline_shape::<String>(), example: None }],
            headers: &["Cache-Control"],
            ..ResponseDoc::NONE
        }],
        problems: &[],
    },
};

async fn robots(api: web::Data<Api>) -> HttpResponse {
    let text = api.pages.robots.clone().unwrap_or_else(|| Bytes::from_static(OWN_ROBOTS.as_bytes()));
    cached_for_a_day("text/plain; charset=utf-8", text)
}

static OWN_ROBOTS: LazyLock<String> = LazyLock::new(|| {
    let with_key = ENDPOINTS.iter().filter(|endpoint| endpoint.access().is_some());
    let paths: BTreeSet<&str> = with_key.filter_map(|endpoint| endpoint.path.split('/').nth(1)).collect();
    // Without `$` and `/`, a link whose name begins like a path would be disallowed, too.
    let rules = paths.into_iter().filter(|path| !path.starts_with('{'));
    let rules = rules.map(|path| format!("Disallow: /{path}$\nDisallow: /{path}/\n"));
    format!("User-agent: *\nAllow: /\n{}", rules.collect::<Vec<_>>().concat())
});

pub static FAVICON: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/favicon.ico",
    requires: Requirement::Nothing,
    handler: || web::route().to(favicon),
    docs: Docs {
        id: "getFavicon",
        summary: "Icon",
        description: "The icon that browsers show for pages of the service. Ignores the query.",
        tag: &SERVICE,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The icon.",
            content: &[Content { media_type: "image/x-icon", shape: inline_shape::<Binary>(), example: None }],
            headers: &["Cache-Control"],
            ..ResponseDoc::NONE
        }],
        problems: &[],
    },
};

async fn favicon() -> HttpResponse {
    cached_for_a_day("image/x-icon", Bytes::from_static(ICON))
}

fn cached_for_a_day(content_type: &'static str, body: Bytes) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, content_type)).insert_header((CACHE_CONTROL, FOR_A_DAY)).body(body)
}

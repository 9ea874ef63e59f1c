//! `GET /openapi.json` and `GET /docs`.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;

use super::health::SERVICE;
use crate::http::Api;
use crate::http::conditions::is_known_to_client;
use crate::http::endpoint::{
    self, Content, Docs, Endpoint, Requirement, ResponseDoc, inline_shape, parameters, problem,
};
use crate::http::openapi::schemas::{AnyObject, Revalidation};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;

const CONTENT_SECURITY_POLICY: HeaderName = HeaderName::from_static("content-security-policy");
/// Clients must revalidate it with the `ETag`, which changes with the version and the settings.
const REVALIDATED: HeaderValue = HeaderValue::from_static("public, no-cache");

pub static DOCUMENT: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/openapi.json",
    requires: Requirement::Nothing,
    handler: || web::route().to(document),
    docs: Docs {
        id: "getOpenApiDocument",
        summary: "OpenAPI document",
        description: "This reference as an OpenAPI 3.1 document.",
        tag: &SERVICE,
        parameters: &[parameters::<Revalidation>()],
        body: None,
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The document.",
                content: &[Content {
                    media_type: "application/json",
                    shape: inline_shape::<AnyObject>(),
                    example: None,
                }],
                headers: &["Cache-Control", "ETag"],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 304,
                description: "The client's copy of the document is current.",
                headers: &["Cache-Control", "ETag"],
                ..ResponseDoc::NONE
            },
        ],
        problems: &[problem(ProblemKind::Validation)],
    },
};

async fn document(api: web::Data<Api>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    Query::of(&request).finish()?;
    let (text, etag) = api.reference.document();
    Ok(answer(&request, text, etag, "application/json"))
}

pub static PAGE: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/docs",
    requires: Requirement::Nothing,
    handler: || web::route().to(page),
    docs: Docs {
        id: "getReference",
        summary: "API reference",
        description: "This reference as one HTML page without external resources. Ignores the query.",
        tag: &SERVICE,
        parameters: &[parameters::<Revalidation>()],
        body: None,
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The page.",
                content: &[Content { media_type: "text/html", shape: inline_shape::<String>(), example: None }],
                headers: &["Cache-Control", "Content-Security-Policy", "ETag"],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 304,
                description: "The client's copy of the page is current.",
                headers: &["Cache-Control", "ETag"],
                ..ResponseDoc::NONE
            },
        ],
        problems: &[],
    },
};

async fn page(api: web::Data<Api>, request: HttpRequest) -> HttpResponse {
    let (html, etag) = api.reference.page();
    let mut response = answer(&request, html, etag, "text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, api.reference.page_policy().clone());
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    response
}

fn answer(request: &HttpRequest, text: &Bytes, etag: &HeaderValue, content_type: &'static str) -> HttpResponse {
    let is_known = is_known_to_client(request.headers(), etag.to_str().unwrap_or_default());
    let mut response = if is_known {
        HttpResponse::NotModified().finish()
    } else {
        HttpResponse::Ok().insert_header((CONTENT_TYPE, content_type)).body(text.clone())
    };
    response.headers_mut().insert(ETAG, etag.clone());
    response.headers_mut().insert(CACHE_CONTROL, REVALIDATED);
    response
}

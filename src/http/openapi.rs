//! `GET /openapi.json` and `GET /docs`.

use actix_web::{HttpRequest, HttpResponse};

use super::problem::Problem;
use super::query::Query;

/// The document, as JSON text.
pub fn document_text() -> String {
    "{}".into()
}

pub async fn document(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Query::of(&request).finish()?;
    Ok(HttpResponse::Ok().content_type("application/json").body(document_text()))
}

pub async fn docs() -> HttpResponse {
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body("")
}

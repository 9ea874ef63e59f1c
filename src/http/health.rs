//! `GET /`.

use actix_web::{Responder, web};
use serde::Serialize;

/// Who answers here.
#[derive(Debug, Serialize)]
pub struct Health {
    pub status: &'static str,
    pub service: &'static str,
    pub version: &'static str,
}

/// `GET /`
pub async fn get() -> impl Responder {
    web::Json(Health { status: "ok", service: "signpost", version: env!("CARGO_PKG_VERSION") })
}

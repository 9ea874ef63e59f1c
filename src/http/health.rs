//! `GET /`.

use actix_web::{Responder, web};
use serde::Serialize;
use utoipa::ToSchema;

/// Who answers here.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`: a service that can't serve does not answer here.
    #[schema(pattern = "^ok$")]
    pub status: &'static str,
    /// Always `signpost`.
    #[schema(pattern = "^signpost$")]
    pub service: &'static str,
    /// The version that runs.
    pub version: &'static str,
}

/// Health check
///
/// Tells that the service answers. Needs no key, has no limit, and ignores any query.
#[utoipa::path(
    get,
    path = "/",
    tag = "Service",
    operation_id = "getHealth",
    responses((
        status = 200,
        description = "The service answers.",
        body = Health,
        example = json!({"status": "ok", "service": "signpost", "version": env!("CARGO_PKG_VERSION")}),
    )),
)]
pub async fn get() -> impl Responder {
    web::Json(Health { status: "ok", service: "signpost", version: env!("CARGO_PKG_VERSION") })
}
